"""Looks at held pods from time to time, and tells of those that nobody will let go: once each, when it has lasted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import structlog

from kqueue.clock import Clock

_log = structlog.get_logger(__name__)

_AT_ONCE = 500
"""Pods looked at before the event loop gets a turn: a few milliseconds."""
_NAMED = 5
"""Pods that a log line names."""


class Pod(Protocol):
    """A pod, as far as this goes."""

    @property
    def key(self) -> str:
        """namespace/name."""
        ...

    @property
    def uid(self) -> str:
        """UID."""
        ...


P = TypeVar("P", bound=Pod)

Why = tuple[StrEnum, str]
"""A reason, whose value is its name in metrics, and the words for it."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A pod that nobody would let go at every look since `since` (monotonic)."""

    since: float
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """How often pods that are held are looked at, and when they count.

    Args:
        after: seconds for which a pod is held before it counts.
        interval: seconds between two looks.
        report: called with the number of pods by reason at each look.
    """

    clock: Clock
    after: float
    interval: float
    report: Callable[[Mapping[str, int]], None]


class HeldPods(Generic[P]):
    """The memory of the looks, and their rhythm."""

    def __init__(
        self,
        *,
        pods: Callable[[], Iterable[P]],
        judge: Callable[[], Callable[[P], Why | None]],
        tell: Callable[[P, str, float], None],
        headline: str,
        reasons: Iterable[StrEnum],
        sweep: Sweep,
    ) -> None:
        """`judge` gives at each look a function that says why a pod stays held; None while it may still be released.

        `tell(pod, words, age)` is called for each pod that counts.  `headline` is the line of the log.
        """
        self._pods, self._judge, self._tell, self._headline = pods, judge, tell, headline
        self._reasons, self._report = tuple(reasons), sweep.report
        self._clock, self._after, self._interval = sweep.clock, sweep.after, sweep.interval
        self._found: dict[str, _Found] = {}

    async def run(self) -> None:
        """Look until cancelled; then this process counts no more."""
        try:
            while True:
                await self._clock.sleep(self._interval)
                await self.look()
        finally:
            self._found.clear()
            self._report(self._none())

    async def look(self) -> None:
        """One look."""
        found: dict[str, _Found] = {}
        counts, new, why_held = self._none(), list[str](), self._judge()
        for number, pod in enumerate(self._pods(), start=1):
            if number % _AT_ONCE == 0:
                await self._clock.sleep(0)
            why = why_held(pod)
            if why is None:
                continue
            seen = self._found.get(pod.uid) or _Found(self._clock.monotonic())
            age = self._clock.monotonic() - seen.since
            if age >= self._after:
                counts[why[0].value] += 1
                if not seen.told:
                    self._tell(pod, why[1], age)
                    new.append(pod.key)
                    seen = _Found(seen.since, told=True)
            found[pod.uid] = seen
        self._found = found
        self._report(counts)
        if new:
            _log.warning(self._headline, new=len(new), pods=new[:_NAMED], in_all=sum(counts.values()))

    def _none(self) -> dict[str, int]:
        return {reason.value: 0 for reason in self._reasons}
