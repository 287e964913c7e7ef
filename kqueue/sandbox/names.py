"""Annotations that tell the simulated kubelet and nodes what to do."""

from __future__ import annotations

from typing import Final

# ---- The simulated cluster -------------------------------------------------------------------------------------------

RUN_SECONDS_ANNOTATION: Final = "sandbox.kqueue.dev/run-seconds"
"""On pod templates in a simulated cluster: how long the pod runs before it succeeds."""
FAIL_ANNOTATION: Final = "sandbox.kqueue.dev/fail"
"""On pod templates in a simulated cluster: the pod fails when its run time is over."""
STOP_SECONDS_ANNOTATION: Final = "sandbox.kqueue.dev/stop-seconds"
"""On pod templates in a simulated cluster: how long the pod takes to end when deleted, within its grace period."""
