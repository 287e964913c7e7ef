"""Run times counted in buckets that grow with the time: quantiles with a bounded error from a bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

MOST_SECONDS = 10 * 365 * 24 * 60 * 60
"""The longest run time that is counted: ten years."""
MOST_RUNS = 256
"""The number of runs at which all counts are halved, so that old runs count less and less."""


def _bounds() -> tuple[int, ...]:
    bounds = [1]
    while bounds[-1] < MOST_SECONDS:
        bounds.append(max(bounds[-1] + 1, bounds[-1] * 9 // 8))
    return tuple(bounds)


BOUNDS = _bounds()
"""The longest run time of each bucket, in seconds; each is at most an eighth above the one before, or one second."""


class RunHistogram:
    """Counts of run times.

    A quantile is never below the exact one of the counted runs, and at most an eighth above it, or one second.  Halving
    rounds the sums of counts from the shortest run on, so that it moves no quantile by more than one run.
    """

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0

    @classmethod
    def restored(cls, counts: Iterable[tuple[int, int]]) -> RunHistogram:
        """Return a histogram with these counts by bucket, as `counts` returns them.

        Raises ValueError: a bucket is unknown or not above the one before, a count is below 1, or there are too many
        runs.
        """
        found, last = cls(), -1
        for bucket, count in counts:
            if not last < bucket < len(BOUNDS):
                raise ValueError(f"bucket {bucket} must be above {last} and below {len(BOUNDS)}")
            if count < 1:
                raise ValueError(f"bucket {bucket} must count 1 run or more, and counts {count}")
            found._counts[bucket], last = count, bucket
            found._total += count
        if found._total >= MOST_RUNS:
            raise ValueError(f"the buckets must count fewer than {MOST_RUNS} runs, and count {found._total}")
        return found

    @property
    def runs(self) -> int:
        """The number of counted runs, below `MOST_RUNS`."""
        return self._total

    def counts(self) -> tuple[tuple[int, int], ...]:
        """Return the counts by bucket, the shortest runs first; none is 0."""
        return tuple(sorted(self._counts.items()))

    def add(self, seconds: int) -> None:
        """Count a run of 0 seconds or more; a longer run than `MOST_SECONDS` counts as one of that time."""
        bucket = bisect_left(BOUNDS, min(seconds, MOST_SECONDS))
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._total += 1
        if self._total >= MOST_RUNS:
            self._halve()

    def quantile(self, percent: int) -> int:
        """Return the seconds within which the next run ends with this probability, if it is like the counted ones.

        The longest counted run, where fewer than `percent` runs in a hundred are certain to be shorter.

        Raises ValueError: no run is counted (a bug in the caller).
        """
        if self._total == 0:
            raise ValueError("no run is counted, so there is no quantile; ask for `runs` before")
        found = self.quantile_beyond(-1, percent)
        assert found is not None, "every run is longer than -1 s"
        return found

    def quantile_beyond(self, seconds: int, percent: int) -> int | None:
        """Return the same for a run that has already taken `seconds`, by the counted runs of a longer bucket.

        The result is above `seconds`.  None: no counted run was longer.
        """
        longer = [(bucket, count) for bucket, count in self.counts() if BOUNDS[bucket] > seconds]
        total = sum(count for _, count in longer)
        rank = min(total, -(-percent * (total + 1) // 100))
        for bucket, count in longer:
            rank -= count
            if rank <= 0:
                return BOUNDS[bucket]
        return None

    def _halve(self) -> None:
        halved: dict[int, int] = {}
        odd = 0
        for bucket, count in self.counts():
            half, odd = divmod(count + odd, 2)
            if half:
                halved[bucket] = half
        self._counts, self._total = halved, sum(halved.values())
