"""The times at which running workloads are taken to end, for planned starts.

A time changes only when it has passed: then the workload is taken to run twice as long as before.  So a planned start
moves a few times, by as much as the run times explain, however often it is searched for.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue.core.future.run_time import RunTime

UNKNOWN_RUN = timedelta(days=7)
"""A workload without a known run time is taken to run for this time, so that a start beside it has a time, too."""
_LONGEST = timedelta(days=36_500)
"""A workload is taken to run for no longer than this: times in objects are input, and may be any."""
LEAVING = timedelta(seconds=60)
"""A workload that is being evicted, or has reached its limit, is taken to end after this time."""


def expected_end(run_time: RunTime, since: datetime | None, now: datetime) -> datetime:
    """Return when a workload is taken to end that runs since then, later than now; `since` None: its time begins now.

    A limit ends it, and its pods need a while to end; else the time in which nine of ten such workloads end counts.
    """
    begun = now if since is None else max(min(since, now), now - _LONGEST)
    if run_time.promised is not None:
        limit = begun + timedelta(seconds=run_time.promised)
        return limit if limit > now else lasting(limit, LEAVING, now)
    guess = timedelta(seconds=run_time.p90) if run_time.p90 is not None else UNKNOWN_RUN
    return lasting(begun, guess, now)


def lasting(since: datetime, span: timedelta, now: datetime) -> datetime:
    """Return the end of the first of these times that is later than now: the span, twice the span, four times ..."""
    since, span = max(min(since, now), now - _LONGEST), max(span, timedelta(seconds=1))
    while (end := since + span) <= now:
        span *= 2
    return end
