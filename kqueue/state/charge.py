"""Charges: what a decision holds in the cache while the decision is being written.

The task that writes a decision owns its charge.  When the task has ended, in whatever way and even before its first
step, `settle` runs: a decision that stands in the API server keeps what it holds, any other one gives it back.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from kqueue.api.wire import kueue as wire


class Charge:
    """Quota and domains held for one decision about the workload `key` (namespace/name).

    As a context manager it settles when its block fails, and does nothing when the block ends well: each step between
    taking a charge and handing it to its task is such a block.
    """

    __slots__ = ("_confirm", "_settle", "key")

    def __init__(self, key: str, *, confirm: Callable[[wire.Workload], None], settle: Callable[[Charge], None]) -> None:
        """The cache hands in what `confirm` and `settle` do; settling a second time must change nothing."""
        self.key = key
        self._confirm, self._settle = confirm, settle

    def confirm(self, written: wire.Workload) -> None:
        """The decision stands in this object, as the API server answered: what is held is not taken back."""
        self._confirm(written)

    def settle(self) -> None:
        """The writing has ended: give back what is held, unless the decision stands.  May be called again."""
        self._settle(self)

    def __enter__(self) -> Charge:
        return self

    def __exit__(
        self, failure: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if failure is not None:
            self.settle()
