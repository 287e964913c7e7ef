"""Run times learned from finished workloads: bounded groups of like workloads, with a histogram each.

A run counts in three groups: workloads of its LocalQueue, owner and shape; of its LocalQueue and shape; of its
LocalQueue.  The first of these with enough runs answers.  All groups belong to a namespace, so a tenant teaches nothing
about workloads of other namespaces, and takes the place of its own groups first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from kqueue.core.future.histogram import RunHistogram
from kqueue.core.value import value

LEAST_RUNS = (5, 10, 20)
"""The least number of runs of a group that answers, by the position of its key in `RunKeys.keys`."""
WINDOW_SECONDS, RUNS_PER_WINDOW = 600, 16
"""A group counts at most this many runs of each such window of time, so that no flood of runs replaces older ones at
once: it takes more than an hour and a half to replace half of what a full group knows."""
MOST_REMEMBERED = 2_000
"""The number of the last runs that are remembered by name, so that none counts twice."""
CLOCK_TOLERANCE_SECONDS = 300
"""An end so far in the future is still believed: clocks of processes differ."""


@value()
class RunKeys:
    """The groups of a workload: its namespace, and the keys of its groups in it, the most special one first."""

    namespace: str
    keys: tuple[str, str, str]


@value(kw_only=True)
class FinishedRun:
    """A run that ended in success.

    Args:
        mark: the name of its workload for all time, as its UID.
        keys: its groups.
        seconds: the time that it took; negative where a clock was set back.
        ended: the time of its end, in seconds since 1970.
    """

    mark: str
    keys: RunKeys
    seconds: int
    ended: int


@value(kw_only=True)
class LearnedTime:
    """The seconds within which half, and nine of ten, of like workloads end.

    Args:
        p50, p90: these seconds.
        runs: the number of runs that they come from.
        of_owner: whether these were runs of the same owner and shape.
    """

    p50: int
    p90: int
    runs: int
    of_owner: bool


@value(kw_only=True)
class GroupSummary:
    """One group as a summary stores it; `counts` are those of `RunHistogram.counts`."""

    key: str
    window: int
    taken: int
    counts: tuple[tuple[int, int], ...]


@value(kw_only=True)
class RunSummary:
    """All that was learned.

    Args:
        floor: no run that ended at this time or before counts any more, in seconds since 1970.
        remembered: the marks and ends of the last runs, in the order in which they were counted.
        namespaces: the groups of each namespace; the one that learned last comes last.
    """

    floor: int
    remembered: tuple[tuple[str, int], ...]
    namespaces: tuple[tuple[str, tuple[GroupSummary, ...]], ...]


class _Group:
    __slots__ = ("_quantiles", "histogram", "taken", "window")

    def __init__(self, histogram: RunHistogram, *, window: int = 0, taken: int = 0) -> None:
        self.histogram, self.window, self.taken = histogram, window, taken
        self._quantiles: tuple[int, int] | None = None

    def add(self, run: FinishedRun, now: int) -> bool:
        """Count the run; False: the window of its end is full."""
        window = run.ended // WINDOW_SECONDS
        if window > self.window or self.window * WINDOW_SECONDS > now + CLOCK_TOLERANCE_SECONDS:
            self.window, self.taken = window, 0
        if self.taken >= RUNS_PER_WINDOW:
            return False
        self.taken += 1
        self.histogram.add(run.seconds)
        self._quantiles = None
        return True

    def quantiles(self) -> tuple[int, int]:
        if self._quantiles is None:
            self._quantiles = self.histogram.quantile(50), self.histogram.quantile(90)
        return self._quantiles


class LearnedRunTimes:
    """Knowledge of the run times of like workloads.  A look costs the same however much is known."""

    def __init__(self, *, most_groups: int) -> None:
        """Make an empty memory of at most so many groups, three or more."""
        self._most_groups = most_groups
        self._namespaces: dict[str, OrderedDict[str, _Group]] = {}
        self._groups = 0
        self._remembered: OrderedDict[str, int] = OrderedDict()
        self._floor = 0
        self.changes = 0
        """Grows with each run that was counted or remembered."""

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self._groups

    def look(self, workload: RunKeys) -> LearnedTime | None:
        """Return the run times of workloads like this one; None: too few are known."""
        groups = self._namespaces.get(workload.namespace)
        if groups is None:
            return None
        for position, (key, least) in enumerate(zip(workload.keys, LEAST_RUNS, strict=True)):
            group = groups.get(key)
            if group is not None and group.histogram.runs >= least:
                p50, p90 = group.quantiles()
                return LearnedTime(p50=p50, p90=p90, runs=group.histogram.runs, of_owner=position == 0)
        return None

    def look_beyond(self, workload: RunKeys, elapsed: int) -> LearnedTime | None:
        """Return the run times, from their begin, of workloads like this one that ran longer than `elapsed` seconds.

        The first group that `look` would ask, and that has such a run, answers.  None: all known runs were shorter.
        """
        groups = self._namespaces.get(workload.namespace)
        if groups is None:
            return None
        for position, (key, least) in enumerate(zip(workload.keys, LEAST_RUNS, strict=True)):
            histogram = groups[key].histogram if key in groups else None
            if histogram is None or histogram.runs < least:
                continue
            p50, p90 = (histogram.quantile_beyond(elapsed, percent) for percent in (50, 90))
            if p50 is not None and p90 is not None:
                return LearnedTime(p50=p50, p90=p90, runs=histogram.runs, of_owner=position == 0)
        return None

    def learn(self, run: FinishedRun, now: int) -> bool:
        """Count a run once; return whether it counts.

        A run does not count if it was counted before, took negative time, ended in the future, or comes from a flood.

        Args:
            run: the run.
            now: the present time, in seconds since 1970.
        """
        latest = now + CLOCK_TOLERANCE_SECONDS
        if run.seconds < 0 or run.ended > latest:
            return False
        if self._floor > latest:  # ends of a time when the clock was ahead
            self._floor = now - 1
        if run.ended <= self._floor or run.mark in self._remembered:
            return False
        self._remember(run, latest)
        first, *others = run.keys.keys
        if not self._group(run.keys.namespace, first).add(run, now):
            return False
        for key in others:
            self._group(run.keys.namespace, key).add(run, now)
        return True

    def _remember(self, run: FinishedRun, latest: int) -> None:
        self.changes += 1
        self._remembered[run.mark] = run.ended
        if len(self._remembered) > MOST_REMEMBERED:
            _, ended = self._remembered.popitem(last=False)
            if ended <= latest:
                self._floor = max(self._floor, ended)

    def _group(self, namespace: str, key: str) -> _Group:
        """Return the group, which now counts as the one that learned last; a new one may take the place of another."""
        groups = self._namespaces.setdefault(namespace, OrderedDict())
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(RunHistogram())
            self._groups += 1
            if self._groups > self._most_groups:
                self._drop()
        groups.move_to_end(key)
        return group

    def _drop(self) -> None:
        """Forget the group of the namespace with most groups that has learned nothing for the longest time."""
        namespace = max(self._namespaces, key=lambda name: len(self._namespaces[name]))
        groups = self._namespaces[namespace]
        groups.popitem(last=False)
        self._groups -= 1
        if not groups:
            del self._namespaces[namespace]

    # --- its summary -----------------------------------------------------------------------------------------------

    def summary(self) -> RunSummary:
        """Return all that was learned."""
        return RunSummary(
            floor=self._floor,
            remembered=tuple(self._remembered.items()),
            namespaces=tuple((name, tuple(_summaries(groups))) for name, groups in self._namespaces.items()),
        )

    def restore(self, summary: RunSummary) -> None:
        """Take over a summary in place of all that was learned; groups and runs beyond the bounds are left out.

        Raises ValueError: counts of a group cannot be; the message names the group.
        """
        namespaces: dict[str, OrderedDict[str, _Group]] = {}
        for namespace, groups in summary.namespaces:
            namespaces[namespace] = OrderedDict((g.key, _restored(namespace, g)) for g in groups)
        self._namespaces = {name: groups for name, groups in namespaces.items() if groups}
        self._groups = sum(len(groups) for groups in self._namespaces.values())
        while self._groups > self._most_groups:
            self._drop()
        late = islice(summary.remembered, max(0, len(summary.remembered) - MOST_REMEMBERED), None)
        self._remembered, self._floor = OrderedDict(late), summary.floor


def _summaries(groups: OrderedDict[str, _Group]) -> Iterator[GroupSummary]:
    for key, group in groups.items():
        yield GroupSummary(key=key, window=group.window, taken=group.taken, counts=group.histogram.counts())


def _restored(namespace: str, group: GroupSummary) -> _Group:
    try:
        histogram = RunHistogram.restored(group.counts)
    except ValueError as e:
        raise ValueError(f"group {group.key} of namespace {namespace}: {e}") from e
    return _Group(histogram, window=group.window, taken=group.taken)
