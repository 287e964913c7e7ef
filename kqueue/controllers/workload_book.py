"""The interface through which controllers find and change Workloads, independent of their storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kqueue.api.wire import kueue as wire
from kqueue.runtime.lane import Lane
from kqueue.state import status


class WorkloadBook(Protocol):
    """Finds and writes Workloads; `StatusWriter` implements it for the API server."""

    def newest(self, key: str, /) -> wire.Workload | None:
        """Return the newest known version, with kqueue's own last write; None: the Workload does not exist."""
        ...

    async def write(
        self,
        key: str,
        change: Callable[[wire.Workload], status.Patch | None],
        *,
        lane: Lane = Lane.STATUS,
        subresource: str | None = "status",
    ) -> wire.Workload | None:
        """Apply `change` to the newest version, again after a conflict; return the written Workload.

        None: the Workload is gone, or `change` returned None.  Raises ConflictError when the last try has failed.
        """
        ...
