"""The start times of a what-if: two drains of the planner, of the present state and of the changed one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from kqueue.clock import utc_text
from kqueue.core.future.drain import NoStart
from kqueue.core.future.question import StartQuestion
from kqueue.core.future.start_times import StartTime, StartTimes
from kqueue.core.future.told import no_start_sentence
from kqueue.visibility.explained import Audience
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.question import JSON
from kqueue.visibility.start_times import NoAnswer, shown_assumptions
from kqueue.visibility.what_if_answer import LISTED

_STEP = 250
_ENDLESS = frozenset({NoStart.NOT_IN_SIGHT, NoStart.BEYOND_HORIZON})
"""The reasons that say that a workload does not start, and not only that its start is not known."""


class StartTimesOfStates(Protocol):
    """Computes start times in states that need not be the present one."""

    async def of_questions(self, questions: Sequence[StartQuestion]) -> list[StartTimes] | NoAnswer:
        """Return the start times of each question; `NoAnswer`: they are not known, for a reason."""
        ...


class TimesCompared:
    """The workloads whose start times differ."""

    def __init__(self, before: StartQuestion, after: StartQuestion, found: Sequence[StartTimes]) -> None:
        """`found` are the answers to both questions."""
        self._keys = _keys(before) | _keys(after)
        """By UID, key and ClusterQueue."""
        self._before, self._after = found
        self.at = before.state.rules.now
        self.counts = {"earlier": 0, "later": 0, "again": 0, "neverAgain": 0}
        self._differing: list[tuple[int, str]] = []
        """Minus the size of the difference, and the UID."""

    async def compare(self, pace: RequestPace) -> None:
        """Find the differences."""
        for number, (uid, after) in enumerate(self._after.of.items()):
            if number % _STEP == 0:
                await pace.step()
            before = self._before.of.get(uid)
            word = _difference(before, after)
            if word:
                self.counts[word] += 1
                self._differing.append((-_size(before, after), uid))
        self._differing.sort()
        del self._differing[LISTED:]

    def keys(self) -> list[str]:
        """Return the workloads that the answer would name."""
        return [self._keys[uid][0] for _, uid in self._differing if uid in self._keys]

    def shown(self, audience: Audience) -> JSON:
        """Return the part of the answer."""
        items: list[JSON] = []
        for _, uid in self._differing:
            key, queue = self._keys.get(uid, ("", ""))
            if audience.may_name(key):
                namespace, _, name = key.partition("/")
                item: JSON = {"namespace": namespace, "name": name, "clusterQueue": queue}
            else:
                item = {"hidden": True, "clusterQueue": queue}
            item["without"] = self._start(self._before.of.get(uid), self._before)
            item["with"] = self._start(self._after.of[uid], self._after)
            items.append(item)
        return {
            "known": True,
            "generatedAt": utc_text(self.at),
            "complete": self._before.is_complete and self._after.is_complete,
            "counts": self.counts,
            "items": items,
            "assumptions": {"without": _assumed(self._before), "with": _assumed(self._after)},
        }

    def _start(self, start: StartTime | None, of: StartTimes) -> JSON:
        """Return the start of a workload in one state; one that does not wait in it has none."""
        if start is None:
            return {"known": False, "message": "it does not wait"}
        shown: JSON = {"known": start.earlier is not None}
        for name, planned in (("p50", start.earlier), ("p90", start.later)):
            if planned is not None:
                shown[name] = utc_text(self.at + timedelta(seconds=planned.seconds))
                shown[f"{name}Seconds"] = planned.seconds
        if start.reason is not None:
            shown["reason"] = str(start.reason.reason)
            shown["message"] = no_start_sentence(start.reason, of.assumptions.horizon)
        return shown


def _difference(before: StartTime | None, after: StartTime) -> str:
    """Return the count of a difference; empty: there is none, or it is not known."""
    was = before.earlier if before is not None else None
    if after.earlier is not None:
        if before is None:
            return "again"  # it runs now, and has to leave
        if was is None or was.seconds > after.earlier.seconds:
            return "earlier"
        return "later" if was.seconds < after.earlier.seconds else ""
    ends = after.reason is not None and after.reason.reason in _ENDLESS
    return "neverAgain" if ends and (before is None or was is not None) else ""


def _size(before: StartTime | None, after: StartTime) -> int:
    """Return the seconds of a difference; one without end is larger than all others."""
    if after.earlier is None or before is None or before.earlier is None:
        return 1 << 62
    return abs(after.earlier.seconds - before.earlier.seconds)


def _keys(question: StartQuestion) -> dict[str, tuple[str, str]]:
    found = {one.head.uid: (one.head.key, line.queue) for line in question.lines for one in line.workloads}
    running = (run.waits_as.head for run in question.running.values() if run.waits_as is not None)
    return {**{head.uid: (head.key, head.queue) for head in running}, **found}


def _assumed(times: StartTimes) -> JSON:
    return shown_assumptions(times.assumptions)
