"""Checks gated pods at regular intervals, and reports each pod that stays gated: once, after a given time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import structlog

from kqueue.clock import Clock

_log = structlog.get_logger(__name__)

_AT_ONCE = 500
"""The number of pods checked before the event loop runs other tasks: a few milliseconds."""
_NAMED = 5
"""The largest number of pods that a log line names."""


class HeldPod(Protocol):
    """A pod with a gate."""

    @property
    def key(self) -> str:
        """namespace/name."""
        ...

    @property
    def uid(self) -> str:
        """The pod's UID."""
        ...


P = TypeVar("P", bound=HeldPod)

Why = tuple[StrEnum, str]
"""A reason, whose value is its name in metrics, and the message for users."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A pod that every check since `since` (monotonic seconds) has found permanently gated."""

    since: float
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The intervals of checks of gated pods, and the time after which a pod counts.

    Args:
        after: seconds for which a pod must be gated before it counts.
        interval: seconds between two checks.
        report: called with the number of pods by reason at each check.
    """

    clock: Clock
    after: float
    interval: float
    report: Callable[[Mapping[str, int]], None]


class HeldPods(Generic[P]):
    """Runs the checks, and remembers which pods were found and reported."""

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
        """Take the functions. `judge` returns, at each check, a function that returns the reason why a pod stays gated;
        None: it may be released.

        `tell` is called with each pod that counts, the message and its age in seconds.  `headline` is the message of
        the log.
        """
        self._pods, self._judge, self._report_held, self._headline = pods, judge, tell, headline
        self._reasons, self._report = tuple(reasons), sweep.report
        self._clock, self._after, self._interval = sweep.clock, sweep.after, sweep.interval
        self._found: dict[str, _Found] = {}

    async def run(self) -> None:
        """Check the pods until cancelled; then report a count of zero."""
        try:
            while True:
                await self._clock.sleep(self._interval)
                await self.look()
        finally:
            self._found.clear()
            self._report(self._none())

    async def look(self) -> None:
        """Check the pods once."""
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
                    self._report_held(pod, why[1], age)
                    new.append(pod.key)
                    seen = _Found(seen.since, told=True)
            found[pod.uid] = seen
        self._found = found
        self._report(counts)
        if new:
            _log.warning(self._headline, new=len(new), pods=new[:_NAMED], in_all=sum(counts.values()))

    def _none(self) -> dict[str, int]:
        return {reason.value: 0 for reason in self._reasons}
