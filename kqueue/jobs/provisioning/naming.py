"""Names of ProvisioningRequests and of their pod templates.  Source: the compatible system's names."""

from __future__ import annotations

import hashlib

_LONGEST = 247
"""Characters of a name before it is shortened: with a hyphen and five digits it has 253, the limit for objects."""
_DIGITS = 5
_MOST_ATTEMPTS = 100
"""Attempts that a shortened name is compared with, from the number of retries on; a check is never retried so often."""


def request_name(workload: str, check: str, attempt: int) -> str:
    """Return the name of the request of one attempt."""
    return _shortened(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """Return the name of the pod template of a request's pod set."""
    return _shortened(f"ppt-{request}-{pod_set}")


def attempt_of(request: str, workload: str, check: str) -> int | None:
    """Return the attempt that a request of the workload is for; None: it is of another check."""
    prefix, _, number = request.rpartition("-")
    if prefix == f"{workload}-{check}" and number.isascii() and number.isdigit() and number == str(int(number)):
        return int(number)
    if len(request) != _LONGEST + 1 + _DIGITS:
        return None
    tried = range(1, _MOST_ATTEMPTS + 1)
    return next((attempt for attempt in tried if request_name(workload, check, attempt) == request), None)


def _shortened(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:_LONGEST]}-{digest[:_DIGITS]}"
