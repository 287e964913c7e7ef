"""Charges: the quota and domains that a decision reserves in the cache while the decision is being written.

The task that writes a decision owns its charge.  `settle` runs whenever the task ends, even before its first step: a
decision that the API server has stored keeps its reservation, any other decision releases it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from kqueue.api.wire import kueue as wire


class Charge:
    """Quota and domains reserved for one decision about the workload `key` (namespace/name).

    As a context manager, a charge settles when its block raises, and does nothing otherwise. Each step between the
    creation of a charge and the start of its task is such a block.
    """

    __slots__ = ("_confirm", "_settle", "key")

    def __init__(self, key: str, *, confirm: Callable[[wire.Workload], None], settle: Callable[[Charge], None]) -> None:
        """Take the cache's functions for `confirm` and `settle`; a second call of `settle` must change nothing."""
        self.key = key
        self._confirm, self._settle = confirm, settle

    def confirm(self, written: wire.Workload) -> None:
        """Keep the reservation: the API server returned `written`, which contains the decision."""
        self._confirm(written)

    def settle(self) -> None:
        """Release the reservation after writing has ended, unless the decision was stored.  May be called again."""
        self._settle(self)

    def __enter__(self) -> Charge:
        return self

    def __exit__(
        self, failure: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if failure is not None:
            self.settle()
