"""Annotations that control the simulated kubelets and nodes."""

from __future__ import annotations

from typing import Final

# ---- The simulated cluster -------------------------------------------------------------------------------------------

RUN_SECONDS_ANNOTATION: Final = "sandbox.kqueue.dev/run-seconds"
"""On pod templates in a simulated cluster: the run time, after which the pod succeeds."""
FAIL_ANNOTATION: Final = "sandbox.kqueue.dev/fail"
"""On pod templates in a simulated cluster: the pod fails when its run time is over."""
STOP_SECONDS_ANNOTATION: Final = "sandbox.kqueue.dev/stop-seconds"
"""On pod templates in a simulated cluster: the time of termination after a deletion, within the grace period."""
USE_ANNOTATION: Final = "sandbox.kqueue.dev/use"
"""On nodes and pod templates in a simulated cluster: the measured use in metrics.k8s.io, as `cpu=500m,memory=1Gi`."""
