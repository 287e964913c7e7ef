"""A forged record of StrictFIFO ClusterQueues or of plugins is refused with file, entry, byte and field."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kqueue.record.capture import CapturedCycle
from kqueue.record.chain import DamagedRecordError, read_chain
from kqueue.record.records import FoundCycle, Record
from kqueue.record.replay import replay
from tests.builders import START
from tests.unit.record.opinions import PROFILE, picky_cycles
from tests.unit.record.test_files import make_ring, write_chain

JSON = dict[str, Any]


def with_line(captured: CapturedCycle) -> CapturedCycle:
    """The cycle with its first ClusterQueue as StrictFIFO, and two workloads in its line."""
    head = captured.question.heads[0]
    line = {uid: replace(head, key=f"ns/{uid}", uid=uid) for uid in ("first", "second")}
    captured.lines = {head.queue: line}
    return captured


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The entries of a record of two cycles."""
    folder = tmp_path_factory.mktemp("forged") / "ring"
    ring = make_ring(folder)
    for captured in picky_cycles(6, 2):
        ring.write(with_line(captured), START)
    ring.close()
    assert all(replay(found.recorded()).equal for found in Record(folder).cycles())
    (path,) = folder.iterdir()
    return [entry.text for entry in read_chain(path)]


def _last_cycle(entries: list[JSON]) -> tuple[int, JSON]:
    number = max(n for n, entry in enumerate(entries) if entry["type"] == "cycle")
    return number, entries[number]


def forged(path: Path, texts: list[bytes], change: Callable[[JSON], object], *, form: int = 3) -> tuple[Path, int, int]:
    """Write the record with another last cycle and right hashes; return its path, and number and byte of the cycle."""
    entries = [json.loads(text) for text in texts]
    number, cycle = _last_cycle(entries)
    change(cycle)
    entries[0]["format"] = form
    write_chain(path, *(msgspec.json.encode(entry) for entry in entries))
    return path, number, [entry.offset for entry in read_chain(path)][number]


def read_all(path: Path, found: list[FoundCycle]) -> None:
    """Replay all cycles, and add those that could be read to `found`."""
    for one in Record(path).cycles():
        assert replay(one.recorded()).equal
        found.append(one)


def _queue(cycle: JSON) -> str:
    queue: str = cycle["strict"][0]
    return queue


def _behind(cycle: JSON, **changes: Any) -> None:
    cycle.setdefault("behind", {})[_queue(cycle)] = changes


def _waits(cycle: JSON, uid: str, head: list[Any]) -> None:
    _behind(cycle, add=[["ns/x", uid, head]])


def _answer(cycle: JSON, **fields: Any) -> None:
    places = {"question": 0, "name": 1, "answers": 2}
    for name, value in fields.items():
        cycle["answers"][0][places[name]] = value


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(lambda c: c.update(strict="q0"), "no entry of forms 1 to 3.*strict", id="strict-is-a-text"),
        pytest.param(
            lambda c: c.update(behind={"elsewhere": {}}),
            "behind: ClusterQueue elsewhere has a line",
            id="another-queue",
        ),
        pytest.param(
            lambda c: _behind(c, drop=["nobody"]), r"\.drop: the workload nobody is not in", id="drop-of-none"
        ),
        pytest.param(lambda c: _behind(c, drop=[7]), r"no entry of forms 1 to 3.*drop", id="drop-of-a-number"),
        pytest.param(lambda c: _behind(c, add=[["ns/x"]]), "no entry of forms 1 to 3.*add", id="a-short-workload"),
        pytest.param(
            lambda c: _waits(c, "x", ["00", []]), r"behind\[q.*\]\[x\]: the piece 00 is missing", id="no-head"
        ),
        pytest.param(
            lambda c: _waits(c, "x", [c["answers"][0][2][0], []]), r"behind\[q", id="a-head-that-is-an-answer"
        ),
        pytest.param(lambda c: c.update(plugins=[]), "answers: there are no plugins", id="answers-of-nobody"),
        pytest.param(lambda c: _answer(c, question="guess"), r"answers\[0\]: 'guess' is no question", id="no-question"),
        pytest.param(
            lambda c: _answer(c, answers=[]), r"answers\[0\]: .* is no question with an answer", id="no-answer"
        ),
        pytest.param(
            lambda c: _answer(c, answers=["00"]), r"answers\[0\]: the piece 00 is missing", id="missing-answer"
        ),
        pytest.param(lambda c: _answer(c, name=7), r"no entry of forms 1 to 3.*answers", id="no-name"),
        pytest.param(
            lambda c: _answer(c, question="scored"), r"answers\[0\]\.piece \w+\.scored: an object", id="another-kind"
        ),
        pytest.param(lambda c: c.update(unanswered="many"), "no entry of forms 1 to 3.*unanswered", id="no-number"),
        pytest.param(
            lambda c: c.update(slots={"plugins": "00"}), "the piece 00 is missing", id="plugins-without-a-piece"
        ),
        pytest.param(lambda c: c.update(code="import os"), "no entry of forms 1 to 3.*code", id="an-unknown-field"),
    ],
)
def test_a_forged_cycle_is_refused_with_its_place(
    tmp_path: Path, texts: list[bytes], change: Callable[[JSON], object], problem: str
) -> None:
    """The cycle before it is read."""
    path, number, offset = forged(tmp_path / "forged.kqrecord", texts, change)
    before: list[FoundCycle] = []
    with pytest.raises(DamagedRecordError, match=problem) as raised:
        read_all(path, before)
    assert (raised.value.entry, raised.value.offset) == (number, offset)
    assert str(path) in str(raised.value)
    assert len(before) == 1


@pytest.mark.parametrize("form", [1, 2])
def test_an_older_form_has_none_of_it(tmp_path: Path, texts: list[bytes], form: int) -> None:
    path, _, _ = forged(tmp_path / "old.kqrecord", texts, lambda _: None, form=form)
    with pytest.raises(DamagedRecordError, match=f"form {form} has no StrictFIFO ClusterQueues and answers of plugins"):
        read_all(path, [])


@pytest.mark.parametrize("form", [1, 2])
def test_files_of_older_forms_are_read(tmp_path: Path, texts: list[bytes], form: int) -> None:
    """They have the profiles with plugins, and a replay says that the answers are missing."""
    entries = [json.loads(text) for text in texts]
    entries[0]["format"] = form
    for cycle in entries:
        for field in ("strict", "behind", "answers", "unanswered"):
            cycle.pop(field, None)
        cycle.get("slots", {}).pop("plugins", None)
    path = write_chain(tmp_path / "old.kqrecord", *(msgspec.json.encode(entry) for entry in entries))
    for found in Record(path).cycles():
        cycle = found.recorded()
        assert cycle.lines == {}
        assert replay(cycle).remarks[0].startswith(f"plugins of the profiles {PROFILE} took part")


def test_a_cut_record_keeps_the_cycles_before_the_cut(tmp_path: Path, texts: list[bytes]) -> None:
    whole = write_chain(tmp_path / "whole.kqrecord", *texts).read_bytes()
    offsets = [entry.offset for entry in read_chain(tmp_path / "whole.kqrecord")]
    cut = tmp_path / "cut.kqrecord"
    number, _ = _last_cycle([json.loads(text) for text in texts])
    for size in range(offsets[number] + 1, offsets[number + 1], 37):
        cut.write_bytes(whole[:size])
        before: list[FoundCycle] = []
        with pytest.raises(DamagedRecordError, match=rf"entry {number} at byte {offsets[number]}"):
            read_all(cut, before)
        assert len(before) == 1


def test_more_workloads_in_lines_than_a_record_may_have_are_refused(
    tmp_path: Path, texts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqueue.record.decoding._MOST_BEHIND", 1)
    path = write_chain(tmp_path / "many.kqrecord", *texts)
    with pytest.raises(DamagedRecordError, match="behind: more than 1 workloads wait behind heads"):
        read_all(path, [])
