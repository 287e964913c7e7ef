"""`replay`: a recorded day of 15,000 gangs on 2,560 hosts of eight GPUs, read and run once under its own policy.

Gangs of 1 to 16 hosts arrive over a day at four ClusterQueues of a cohort, and run for 20 minutes in the middle.
`read_s` and `run_s` are processor time of one core; `mb` is the size of the record.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kqueue.core.future.day import lived
from kqueue.operations.day_policy import DayPolicy, question_of
from kqueue.record.day import read_day
from kqueue.record.queries import Filter
from kqueue.record.records import Record
from tests.bench.table import Figure, Row, at_most, check
from tests.recorded_days import make_question, record_day

WORKLOADS, SIZE = 15_000, (10, 16, 16)


def replayed() -> Iterator[Figure]:
    """The day is recorded first, which is not measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record"
        recorded = record_day(make_question(7, WORKLOADS, size=SIZE), path)
        begun = time.process_time()
        day = read_day(Record(path), Filter())
        read = time.process_time()
        again = lived(question_of(day, DayPolicy()))
        ran = time.process_time()
        size = sum(file.stat().st_size for file in path.iterdir())
    check(len(again.first_starts()) > 0.99 * len(recorded.first_starts()), "workloads do not start")
    yield Figure("read_s", [read - begun])
    yield Figure("run_s", [ran - read])
    yield Figure("s", [ran - begun], at_most(60))
    yield Figure("mb", [size / 1e6])


ROWS = (Row("replay/day", replayed, alone=True, asked="replay"),)
