"""The recorder never holds its caller: disks that are full, slow or missing cost entries, which are counted."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

import kqueue.record.recorder
from kqueue.core.plan_question import PlanQuestion
from kqueue.record.capture import CapturedCycle
from kqueue.record.recorder import DecisionRecorder
from kqueue.record.records import Record
from kqueue.record.ring import Ring, RingSettings
from kqueue.record.uploader import RecordUploader
from tests.builders import START
from tests.unit.core.test_progress import bustle, make_model
from tests.unit.record.storage import MemoryStore, UploadCounts


class Counts:
    """Counts as metrics do."""

    def __init__(self) -> None:
        self.cycles: Counter[str] = Counter()
        self.stored = 0
        self._changed = threading.Condition()

    def recorded(self, result: str, stored: int) -> None:
        """Count a cycle."""
        with self._changed:
            self.cycles[result] += 1
            self.stored += stored
            self._changed.notify_all()

    def until(self, result: str, cycles: int) -> None:
        """Wait until so many cycles came to this, at most ten seconds."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.cycles[result] == cycles, 10), self.cycles


def make_recorder(path: Path, counts: Counts, uploader: RecordUploader | None = None) -> DecisionRecorder:
    settings = RingSettings(path=path, max_bytes=1 << 24, max_age=timedelta(days=1), version="v9.9.9")
    return DecisionRecorder(settings, count=counts, now=lambda: START, uploader=uploader)


def plan_once(recorder: DecisionRecorder, seed: int = 8) -> None:
    """Record one plan, as the scheduling loop does."""
    model = make_model(seed)
    bustle(model, 2)
    question = PlanQuestion(snapshot=model.snapshot(), heads=model.heads(), rules=model.rules())
    recording = recorder.begin(question)
    for decision in question.decisions(next_head=recording.asking(model.next_head)):
        recording.decided(decision)
    recording.ended()


def test_plans_are_written_by_another_thread(tmp_path: Path) -> None:
    counts = Counts()
    recorder = make_recorder(tmp_path / "ring", counts)
    for _ in range(3):
        plan_once(recorder)
    recorder.stop()
    assert counts.cycles == {"written": 3}
    assert counts.stored > 0
    assert len(list(Record(tmp_path / "ring").cycles())) == 3

    plan_once(recorder)  # the process leads again
    recorder.stop()
    assert len(list(Record(tmp_path / "ring").cycles())) == 4


def test_a_folder_that_cannot_be_made_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kqueue.record.recorder, "_REST", 0.0)
    counts = Counts()
    recorder = make_recorder(tmp_path / "later" / "ring", counts)
    plan_once(recorder)
    counts.until("failed", 1)
    (tmp_path / "later").mkdir()
    plan_once(recorder)
    recorder.stop()
    assert counts.cycles == {"failed": 1, "written": 1}


def test_after_a_failed_write_the_disk_rests(tmp_path: Path) -> None:
    counts = Counts()
    recorder = make_recorder(tmp_path / "missing" / "ring", counts)
    for _ in range(3):
        plan_once(recorder)
    counts.until("failed", 3)
    (tmp_path / "missing").mkdir()
    plan_once(recorder)
    recorder.stop()
    assert counts.cycles == {"failed": 4}


def test_a_disk_that_hangs_costs_cycles_of_the_record_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    write = Ring.write

    def hangs(self: Ring, captured: CapturedCycle, now: object) -> int:
        go_on.wait(30)
        return write(self, captured, START)

    monkeypatch.setattr(Ring, "write", hangs)
    monkeypatch.setattr(kqueue.record.recorder, "_MOST_WAITING", 64)
    counts = Counts()
    recorder = make_recorder(tmp_path / "ring", counts)
    for _ in range(80):
        plan_once(recorder)
    assert counts.cycles["dropped"] in (15, 16)  # the thread may have taken one
    go_on.set()
    recorder.stop(timeout=30)
    assert counts.cycles["written"] == 80 - counts.cycles["dropped"]
    assert len(list(Record(tmp_path / "ring").cycles())) == counts.cycles["written"]


def test_the_last_file_is_uploaded_when_the_recorder_stops(tmp_path: Path) -> None:
    store, folder = MemoryStore(), tmp_path / "ring"
    uploader = RecordUploader(folder, store, interval=3600, count=UploadCounts(), now=lambda: START)
    recorder = make_recorder(folder, Counts(), uploader)
    recorder.stop()
    assert uploader._thread is None, "a process that records nothing uploads nothing"
    for leads in (1, 2):
        plan_once(recorder)
        recorder.stop()
        assert len(store.objects) == leads
    assert len(list(Record(store.download(tmp_path / "downloaded")).cycles())) == 2


def test_a_storage_that_hangs_does_not_hold_a_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, store = threading.Event(), MemoryStore()
    monkeypatch.setattr(store, "put", lambda *_: go_on.wait(30))
    uploader = RecordUploader(tmp_path / "ring", store, interval=0.001, count=UploadCounts(), now=lambda: START)
    counts = Counts()
    recorder = make_recorder(tmp_path / "ring", counts, uploader)
    for _ in range(3):
        plan_once(recorder)
        recorder.stop(timeout=0.5)
    assert counts.cycles == {"written": 3}
    go_on.set()


def test_a_plan_that_ends_early_says_why(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "ring", Counts())
    model = make_model(8)
    question = PlanQuestion(snapshot=model.snapshot(), heads=model.heads(), rules=model.rules())
    recorder.begin(question).ended(ValueError("no"))
    recorder.stop()
    (found,) = Record(tmp_path / "ring").cycles()
    assert found.entry.error == "ValueError: no"
