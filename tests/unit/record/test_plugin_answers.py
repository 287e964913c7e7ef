"""Answers of plugins are inputs of a recorded plan: a replay needs no code of theirs, and shows what other code changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.core.hooks import HooksByProfile
from kqueue.core.plugins import Verdict
from kqueue.core.preemption import Target
from kqueue.core.workload import Flavor, Head
from kqueue.record import plugin_answers
from kqueue.record.encoding import CycleEncoder
from kqueue.record.entries import Cycle, from_text
from kqueue.record.plugin_questions import PluginQuestion, places, pod_set_name
from kqueue.record.queries import Filter, save
from kqueue.record.records import FoundCycle, Record
from kqueue.record.replay import Replay, replay
from tests.builders import START
from tests.unit.record.opinions import PROFILE, Opinions, opinions, picky_cycles
from tests.unit.record.test_files import make_ring

SEED = 6


def record(folder: Path, seed: int = SEED, number: int = 5, hooks: HooksByProfile | None = None) -> Path:
    """A record of a world with plugins."""
    ring = make_ring(folder)
    for captured in picky_cycles(seed, number, hooks):
        ring.write(captured, START)
    ring.close()
    return folder


def replays(path: Path, hooks: HooksByProfile | None = None) -> list[Replay]:
    """The replays of all cycles."""
    return [replay(found.recorded(hooks)) for found in Record(path).cycles()]


def kinds(path: Path) -> Counter[str]:
    """How often each question was asked."""
    return Counter(one.question for found in Record(path).cycles() for one in found.entry.answers)


def test_a_replay_gets_the_recorded_answers(tmp_path: Path) -> None:
    """Among these worlds every question is asked, and plugins fail, too; not one is asked in the replay."""
    asked: Counter[str] = Counter()
    for seed in range(12):
        path = record(tmp_path / f"{seed}", seed)
        asked += kinds(path)
        for one in replays(path):
            assert one.equal, (seed, one)
            assert one.remarks == ()
            assert one.plugins == ()
    assert set(asked) == {question.value for question in PluginQuestion}


@given(seed=st.integers(0, 1_000_000))
@settings(max_examples=10, deadline=None)
def test_any_world_with_plugins_is_decided_again_as_it_was(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = record(tmp_path_factory.mktemp("ring") / "ring", seed, 3)
    assert all(one.equal and not one.remarks for one in replays(path))


def test_the_same_code_answers_as_recorded(tmp_path: Path) -> None:
    for one in replays(record(tmp_path / "ring"), opinions()):
        assert one.equal
        assert (one.remarks, one.plugins) == ((), ())


def test_other_code_shows_its_answers_and_decisions(tmp_path: Path) -> None:
    found = replays(record(tmp_path / "ring", number=8), opinions("other"))
    assert not all(one.equal for one in found)
    told = [line for one in found for line in one.plugins]
    assert any(line.startswith(f"the answer of profile {PROFILE} to screened about w") for line in told)
    assert any('recorded null, now ["opinions","' in line for line in told)
    assert any(one.differences for one in found)


def test_a_record_without_answers_says_so(tmp_path: Path) -> None:
    """Records of the forms 1 and 2 name the profiles only."""
    ring = make_ring(tmp_path / "ring")
    for captured in picky_cycles(SEED, 2):
        captured.plugin_answers = None
        ring.write(captured, START)
    ring.close()
    for one in replays(tmp_path / "ring"):
        assert one.remarks[0] == f"plugins of the profiles {PROFILE} took part; their answers are not in the record"


def test_a_saved_part_keeps_the_answers(tmp_path: Path) -> None:
    folder, target = record(tmp_path / "ring"), tmp_path / "part.kqrecord"
    assert save(Record(folder), Filter(cycle="1:4"), target) == 1
    (whole,) = [found for found in Record(folder).cycles() if found.name == "1:4"]
    (part,) = Record(target).cycles()
    assert part.entry.answers == whole.entry.answers
    assert [(one.equal, one.remarks) for one in replays(target)] == [(True, ())]


class Wavering:
    """Refuses each workload at the second asking, and never again."""

    name = "wavering"

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def screen(self, head: Head) -> Verdict:
        """Refuse at the second asking."""
        self._asked[head.uid] += 1
        return Verdict("thinking" if self._asked[head.uid] == 2 else "")


def test_a_plugin_that_changes_its_mind_is_replayed(tmp_path: Path) -> None:
    path = record(tmp_path / "ring", hooks=opinions(plugin=Wavering()))
    assert any(b"thinking" in raw for found in Record(path).cycles() for raw in map(bytes, found.entry.decisions))
    assert all(one.equal and not one.remarks for one in replays(path))


def test_answers_beyond_the_bounds_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle that asks too much is written, and its replay says what is missing."""
    monkeypatch.setattr(plugin_answers, "MOST_ANSWERS", 3)
    for one in replays(record(tmp_path / "many", number=2)):
        assert any("answers of plugins were too many" in remark for remark in one.remarks)
        assert any("is not in the record" in remark for remark in one.remarks)
    monkeypatch.undo()

    class Wordy(Opinions):
        def screen(self, head: Head) -> Verdict:
            return Verdict(f"{head.uid} " * 1000)

    monkeypatch.setattr(plugin_answers, "MOST_TEXT", 9000)
    path = record(tmp_path / "long", number=3, hooks=opinions(plugin=Wordy()))
    for found in Record(path).cycles():
        assert found.entry.unanswered > 0
        assert sum(len(one.answers) for one in found.entry.answers) > 0


def test_equal_answers_are_written_once() -> None:
    """A second plan on the same world costs hashes of its questions and no pieces."""
    encoder = CycleEncoder()
    (captured,) = picky_cycles(SEED, 1)
    list(encoder.entries(captured))
    (again,) = encoder.entries(captured)
    entry = from_text(again)
    assert isinstance(entry, Cycle)
    assert entry.answers
    assert entry.slots == {}


def test_the_hash_of_a_pod_set_follows_from_its_values() -> None:
    (captured,) = picky_cycles(SEED, 1)
    (first, *_) = captured.question.heads
    (pod_set,) = first.pod_sets
    assert pod_set_name(pod_set) == pod_set_name(replace(pod_set, quota_requests=dict(pod_set.quota_requests)))
    assert pod_set_name(pod_set) != pod_set_name(first.of_counts({pod_set.name: 77}).pod_sets[0])


class _Odd:
    """A sort key that cannot be compared."""


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        pytest.param([(2,), (1,), (2,)], [[1], [0], [1]], id="equal-keys-share-a-place"),
        pytest.param([("b", 1)], [[0]], id="one"),
        pytest.param([], [], id="none"),
        pytest.param([(_Odd(),), (_Odd(),)], [None, None], id="no-order"),
    ],
)
def test_sort_keys_become_places(keys: Sequence[Any], want: list[list[int] | None]) -> None:
    assert places(keys) == want


class _NoOrder(Opinions):
    def rank(self, head: Head, targets: Sequence[Target]) -> tuple[object, ...]:
        return (_Odd(),)

    def score(self, prepared: Head, flavor: Flavor) -> int:
        return True


def test_a_plugin_whose_keys_have_no_order_costs_a_remark_at_most(tmp_path: Path) -> None:
    """Its plans are written, and a score that is no number in JSON is read back."""
    for seed in range(4):
        path = record(tmp_path / f"{seed}", seed, hooks=opinions(plugin=_NoOrder()))
        found: list[FoundCycle] = []
        for one in Record(path).cycles():
            assert replay(one.recorded()).equal or one.entry.unanswered
            found.append(one)
        assert len(found) == 5
