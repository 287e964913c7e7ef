"""How often sign-ins may fail: each costs a review of the API server, and a line of the log.

Tokens cannot be guessed, so the limit is one of costs.  It is kept by address of the client.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, IPv6Network, ip_address

from kqueue.clock import Clock

BURST = 10
"""Failures in a row that cost no wait."""
PER_SECOND = 0.2
"""Further failures."""
_MOST = 4096
"""Addresses that are known at one time; beyond it the one that failed longest ago is forgotten."""


class FailedSignIns:
    """Failures by address."""

    def __init__(self, *, clock: Clock, burst: int = BURST, per_second: float = PER_SECOND, most: int = _MOST) -> None:
        self._clock, self._burst, self._per_second, self._most = clock, burst, per_second, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Failures that an address has left, and when that was counted."""

    def __len__(self) -> int:
        return len(self._left)

    def wait(self, address: str) -> float:
        """Return the seconds until the address may try again; 0: it may now."""
        left = self._now_left(_network(address))
        return 0.0 if left >= 1 else (1 - left) / self._per_second

    def failed(self, address: str) -> None:
        """Note a failure."""
        key = _network(address)
        self._left[key] = max(0.0, self._now_left(key) - 1), self._clock.monotonic()
        self._left.move_to_end(key)
        while len(self._left) > self._most:
            self._left.popitem(last=False)

    def _now_left(self, key: str) -> float:
        left, counted = self._left.get(key, (float(self._burst), self._clock.monotonic()))
        return min(float(self._burst), left + (self._clock.monotonic() - counted) * self._per_second)


def _network(address: str) -> str:
    """Return the address, or the network of 64 bits around an IPv6 address: one client has all of them."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))
    return str(found)
