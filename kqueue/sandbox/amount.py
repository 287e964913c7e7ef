"""Resource quantities as the simulated scheduler counts them: cpu in milli, everything else in base units."""

from __future__ import annotations

from functools import lru_cache

from kqueue.sandbox.quantity import nanos

_NANOS_PER_UNIT = 10**9
_LARGEST = 2**63 - 1


@lru_cache(maxsize=1 << 14)
def amount(written: str | int, resource: str) -> int:
    """Return the quantity as an integer, rounded up, limited to 64 bits.

    Raises:
        ValueError: `written` is negative or no quantity; the message says what to write instead.
    """
    try:
        exact = -1 if isinstance(written, bool) else nanos(str(written))
    except ValueError:
        exact = -1
    if exact < 0:
        raise ValueError(f"{written!r} is no amount: write a number with an optional suffix, such as 500m, 2 or 16Gi")
    per_unit = _NANOS_PER_UNIT // 1000 if resource == "cpu" else _NANOS_PER_UNIT
    return min(-(-exact // per_unit), _LARGEST)
