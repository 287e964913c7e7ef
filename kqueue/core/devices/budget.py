"""How much evaluation of tenants' selectors a second may bring."""

from __future__ import annotations

from collections import Counter

WORK_A_SECOND = 500_000
"""Characters of selectors times devices, for all namespaces: they take 0.03 to 0.35 s, by the kind of selector."""
_SHARE = 4
"""A namespace may use one part of so many."""
PARSING = 10
"""Reading a selector costs as much as its evaluation on so many devices."""


class WorkBudget:
    """The work of each second, for all and for one namespace.

    A namespace that has not used up its part may begin one more piece of work of any size: a debt is paid by the
    seconds that follow.
    """

    def __init__(self, a_second: int = WORK_A_SECOND) -> None:
        self._all, self._each = a_second, max(1, a_second // _SHARE)
        self._spent = 0
        self._by: Counter[str] = Counter()
        self._refused: set[str] = set()

    def spend(self, namespace: str, work: int) -> bool:
        """Return whether the namespace may do this work now; if so, it is taken off the budget."""
        if self._spent >= self._all or self._by[namespace] >= self._each:
            self._refused.add(namespace)
            return False
        self._spent += work
        self._by[namespace] += work
        return True

    @property
    def is_used(self) -> bool:
        """Whether a second must pass before the budget is whole again."""
        return self._spent > 0 or bool(self._refused)

    def refill(self) -> frozenset[str]:
        """Give the work of one second; return the namespaces that were refused work since the last call."""
        self._spent = max(0, self._spent - self._all)
        self._by = Counter({name: spent - self._each for name, spent in self._by.items() if spent > self._each})
        refused, self._refused = frozenset(self._refused), set()
        return refused
