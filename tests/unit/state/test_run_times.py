"""Run times of Workloads, and the text in which what was learned is kept."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.core.future.learned import FinishedRun, LearnedRunTimes, RunKeys
from kqueue.core.future.run_time import RunTimeSource
from kqueue.state.run_summary import MOST_BYTES, DamagedSummaryError, summary_from, summary_text
from kqueue.state.run_times import RunTimes
from tests.unit.state.life import JSON, NOON, at, held
from tests.unit.state.wire_objects import make_workload

EXPECTED = "kqueue.dev/expected-seconds"


class Taught:
    """Run times whose clock is at the end of the last Workload."""

    def __init__(self, *, learns: bool = True) -> None:
        self.now: datetime = NOON
        self.memory = LearnedRunTimes(most_groups=50)
        self.times = RunTimes(self.memory if learns else None, lambda: self.now)

    def learn(self, seconds: float, number: int = 0, **more: Any) -> bool:
        """A Workload runs so long and ends so many quarters of an hour after noon."""
        ended = number * 900.0
        self.now = max(self.now, at(ended))
        return self.times.learn(job(number, began=ended - seconds, ended=ended, **more))


def job(
    number: int = 0,
    *,
    began: float | None = None,
    ended: float | None = None,
    reason: str = "Succeeded",
    annotations: JSON | None = None,
    **spec: Any,
) -> wire.Workload:
    """The Workload of Job `train-NUMBER`."""
    conditions = [held("Admitted", since=began)] if began is not None else []
    conditions += [held("Finished", since=ended, reason=reason)] if ended is not None else []
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{number}", "uid": "j", "controller": True}
    metadata = {"uid": f"u{number}", "ownerReferences": [owner], "annotations": annotations or {}}
    return make_workload(metadata=metadata, status={"conditions": conditions}, **spec)


def test_like_workloads_teach() -> None:
    world = Taught()
    assert world.times.of(job(9)).source is RunTimeSource.UNKNOWN
    assert all(world.learn(600, number) for number in range(8))
    found = world.times.of(job(9))
    assert (found.source, found.samples, found.promised) == (RunTimeSource.LEARNED, 8, None)
    assert 600 <= (found.p50 or 0) <= (found.p90 or 0) <= 675
    limited = world.times.of(job(9, maximumExecutionTimeSeconds=60))
    assert (limited.p50, limited.p90, limited.promised) == (60, 60, 60)


def test_failures_teach_nothing() -> None:
    world = Taught()
    assert not any(world.learn(600, number, reason="Failed") for number in range(30))
    assert world.memory.changes == 0


def test_the_same_workload_teaches_once() -> None:
    world = Taught()
    assert world.learn(600)
    assert not world.learn(600)


def test_clock_steps_teach_nothing() -> None:
    """A run of negative time, and an end an hour ahead of this clock."""
    world = Taught()
    assert not world.learn(-600)
    assert not world.times.learn(job(began=0, ended=3_600))
    assert world.memory.changes == 0


def test_without_learning_promises_and_expectations_count() -> None:
    world = Taught(learns=False)
    assert not world.learn(600)
    assert world.times.of(job(annotations={EXPECTED: "60"})).p50 == 60
    assert world.times.of(job(annotations={EXPECTED: "9" * 200_000})).p50 is None


def test_a_rewritten_workload_is_another_one() -> None:
    """The groups of a Workload are kept only as long as its spec is the same."""
    world = Taught()
    for number in range(30):
        world.learn(600, number)
    assert world.times.of(job(1)).samples == 30
    moved = job(1, queueName="other")
    newer = wire.Workload(metadata=_generation(moved, 2), spec=moved.spec, status=moved.status)
    assert world.times.of(newer).source is RunTimeSource.UNKNOWN


def _generation(obj: wire.Workload, generation: int) -> Any:
    meta = obj.metadata
    return type(meta)(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=generation,
        owner_references=meta.owner_references,
    )


# --- the text ---------------------------------------------------------------------------------------------------------


def full(namespaces: int = 1, groups: int = 5_000, values: int = 200) -> LearnedRunTimes:
    """A memory that tenants have filled with as long groups as they can."""
    memory = LearnedRunTimes(most_groups=groups)
    for number in range(groups):
        keys = tuple(f"{number:015x}{end}" for end in "abc")
        of = RunKeys(f"n{number % namespaces}", (keys[0], keys[1], keys[2]))
        for value in range(values):
            ended = int(NOON.timestamp()) + (number * values + value)
            memory.learn(FinishedRun(mark=f"{ended:016x}", keys=of, seconds=2**value % 10**8, ended=ended), ended)
    return memory


def test_a_summary_comes_back() -> None:
    memory = full(3, 40, 10)
    assert summary_from(summary_text(memory.summary())) == memory.summary()


def test_a_summary_is_never_too_long() -> None:
    """What is left out is what learned nothing for the longest time, of the tenant with most of it."""
    memory, most = full(2, 1_000, 16), 200_000
    small = RunKeys("small", ("0" * 16, "1" * 16, "2" * 16))
    ended = int(NOON.timestamp()) + 10**6
    memory.learn(FinishedRun(mark="f" * 16, keys=small, seconds=5, ended=ended), ended)
    whole = len(summary_text(memory.summary(), most_bytes=10**8))

    text = summary_text(memory.summary(), most_bytes=most)

    assert whole > most >= len(text.encode()) > most // 3
    kept = dict(summary_from(text).namespaces)
    assert len(kept["small"]) == 3
    newest = {name: [group.key for group in groups] for name, groups in memory.summary().namespaces}
    for name, groups in kept.items():
        assert [group.key for group in groups] == newest[name][-len(groups) :]


GOOD = json.loads(summary_text(full(1, 6, 10).summary()))


def damaged(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("", "", id="empty"),
        pytest.param("{", "", id="cut-off"),
        pytest.param(json.dumps(GOOD)[:-40], "", id="cut-off-late"),
        pytest.param("[]", "object", id="a-list"),
        pytest.param(damaged(version=2), "$.version", id="newer"),
        pytest.param(damaged(floor=-1), "$.floor", id="floor"),
        pytest.param(damaged(floor=10**30), "$.floor", id="floor-in-millennia"),
        pytest.param(damaged(remembered=[["x", 5]]), "$.remembered[0][0]", id="mark"),
        pytest.param(damaged(namespaces={"a": [["x", 0, 0, []]]}), "$.namespaces", id="key"),
        pytest.param(damaged(namespaces={"a": [["0" * 16, 0, 0, [[1, "x"]]]]}), "$.namespaces", id="count"),
        pytest.param(damaged(namespaces={"a": [["0" * 16, 0, 0, [], 7]]}), "at most length 4", id="longer"),
        pytest.param(damaged(namespaces={"a" * 64: []}), "", id="namespace"),
        pytest.param(damaged(more=1), "more", id="unknown-field"),
        pytest.param("[" * 10**5, "", id="deep"),
        pytest.param(" " * (2 * MOST_BYTES + 1), "characters are too many", id="long"),
    ],
)
def test_a_damaged_summary_is_refused_with_the_place(text: str, place: str) -> None:
    with pytest.raises(DamagedSummaryError) as refused:
        summary_from(text)
    assert place in str(refused.value)
