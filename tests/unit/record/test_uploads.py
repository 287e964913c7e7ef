"""Uploads send each complete file once, in order; failures, restarts and other writers cost requests and no object."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from kqueue.record.chain import DamagedRecordError
from kqueue.record.records import Record
from kqueue.record.replay import replay
from kqueue.record.ring import files_in
from kqueue.record.store import is_stored_name, stored_name
from kqueue.record.uploader import RecordUploader
from kqueue.record.uploads import STATE, Uploads
from tests.builders import START
from tests.unit.record.recorded import cycles
from tests.unit.record.storage import MemoryStore, UploadCounts, away, forbidden
from tests.unit.record.test_files import make_ring

HOUR = timedelta(hours=1)


class Desk:
    """A folder, its ring, a storage and a process that uploads."""

    def __init__(self, folder: Path, store: MemoryStore | None = None) -> None:
        self.folder = folder
        self.store = store or MemoryStore()
        self.now = START
        self.pauses: list[float] = []
        self.ends = False
        self.start()

    def start(self) -> None:
        """Begin anew, as a process does."""
        self.counts = UploadCounts()
        self.uploads = Uploads(
            self.folder,
            self.store,
            count=self.counts,
            now=lambda: self.now,
            wait=self._wait,
            chance=random.Random(3),
        )

    def _wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self.ends

    def record(self, files: int = 1, *, at: datetime | None = None) -> list[Path]:
        """Write complete files."""
        for _ in range(files):
            ring = make_ring(self.folder)
            for captured in cycles(5, 1):
                ring.write(captured, at or self.now)
            ring.close()
            self.now += HOUR
        for number, path in enumerate(files_in(self.folder)):
            ended = (START + number * HOUR).timestamp()
            os.utime(path, (ended, ended))
        return files_in(self.folder)

    def look(self, times: int = 1) -> None:
        """Look, as the thread does."""
        for _ in range(times):
            self.uploads.look()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ring")


def names_of(files: list[Path]) -> list[str]:
    """The names of the objects of these files."""
    found = [stored_name(path.name) for path in files]
    return [name for name in found if name is not None]


def test_complete_files_are_sent_once_the_oldest_first(desk: Desk) -> None:
    files = desk.record(3)
    desk.look(3)
    assert desk.store.order == names_of(files)
    assert desk.store.order == sorted(desk.store.order)
    assert [desk.store.objects[name] for name in desk.store.order] == [path.read_bytes() for path in files]
    assert desk.counts.files == {"uploaded": 3}


def test_a_file_that_is_written_is_never_sent(desk: Desk) -> None:
    ring = make_ring(desk.folder)
    writes = iter(cycles(5, 3))
    for captured in writes:
        ring.write(captured, desk.now)
        desk.look(3)
        assert desk.store.order == []
    ring.close()
    desk.look()  # its size has changed
    assert desk.store.order == []
    desk.look()
    assert desk.store.order == names_of(files_in(desk.folder))


def test_a_file_that_a_killed_writer_left_is_sent_when_the_next_one_has_ended_it(desk: Desk) -> None:
    (path,) = desk.record()
    path.write_bytes(path.read_bytes()[:-60])
    shutil.copy(path, path.with_name(path.name.replace("000000000001", "000000000002")))  # not the newest any more
    desk.look(3)
    assert desk.store.order == []
    path.with_name(path.name.replace("000000000001", "000000000002")).unlink()
    files = desk.record()
    desk.look(2)
    assert desk.store.order == names_of(files)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], id="changed"),
        pytest.param(lambda data: data + b"more", id="longer"),
        pytest.param(lambda _: b"", id="empty"),
    ],
)
def test_damaged_files_are_not_sent_and_stop_nothing(desk: Desk, spoil: Callable[[bytes], bytes]) -> None:
    first, second, third = desk.record(3)
    second.write_bytes(spoil(second.read_bytes()))
    desk.look(3)
    assert desk.store.order == names_of([first, third])


def test_other_files_of_the_folder_are_not_sent(desk: Desk) -> None:
    (path,) = desk.record()
    shutil.copy(path, desk.folder / "night.kqrecord")
    (desk.folder / f"{path.name}.tmp").write_text("")
    desk.look(3)
    assert desk.store.order == names_of([path])


def test_the_last_look_sends_what_the_ring_has_just_ended(desk: Desk) -> None:
    files = desk.record()
    desk.store.errors = [away()]
    desk.uploads.look(is_last=True)
    assert desk.counts.files == {"failed": 1}
    assert desk.pauses == []
    desk.uploads.look(is_last=True)
    assert sorted(desk.store.objects) == names_of(files)


def test_a_storage_that_is_away_is_asked_a_bounded_number_of_times_with_growing_pauses(desk: Desk) -> None:
    files = desk.record(2)
    desk.look()
    desk.store.errors = [away() for _ in range(100)]
    desk.store.objects.clear()
    desk.start()
    (desk.folder / STATE).unlink()
    desk.store.order.clear()
    desk.look()
    assert desk.store.order == names_of(files)[:1] * 4  # the second file waits for its turn
    first, second, third = desk.pauses
    assert 0.5 <= first <= 1 < 2 <= second <= 4 < 8 <= third <= 16
    assert desk.counts.files == {"failed": 4}
    desk.store.errors.clear()
    desk.look()
    assert list(desk.store.objects) == names_of(files)


def test_an_answer_that_another_try_does_not_change_gets_none_until_the_next_look(desk: Desk) -> None:
    files = desk.record(3)
    desk.store.errors = [forbidden(), forbidden()]
    desk.look()
    assert desk.store.order == names_of(files)[:2]
    assert desk.pauses == []
    desk.look()
    assert list(desk.store.objects) == names_of(files)


@pytest.mark.parametrize(
    "error", [pytest.param(away(), id="away"), pytest.param(ValueError("a fault of the client"), id="a-fault")]
)
def test_a_failure_keeps_the_file_for_the_next_try(desk: Desk, error: Exception) -> None:
    files = desk.record(2)
    desk.store.errors = [error]
    desk.look(2)
    assert list(desk.store.objects) == names_of(files)
    assert desk.counts.files == {"failed": 1, "uploaded": 2}


def test_a_process_that_ends_does_not_wait_for_the_next_try(desk: Desk) -> None:
    desk.record(2)
    desk.store.errors = [away() for _ in range(100)]
    desk.ends = True
    desk.look()
    assert len(desk.store.order) == len(desk.pauses) == 1


def test_the_next_process_goes_on_where_the_former_one_ended(desk: Desk) -> None:
    desk.record(2)
    desk.look(2)
    files = desk.record(2)
    desk.store.order.clear()
    desk.start()
    desk.look(2)
    assert desk.store.order == names_of(files[2:])


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[" * 10_000, id="deep"),
        pytest.param(b'{"uploaded": 3}', id="another-form"),
        pytest.param(b"\xff\xfe", id="no-text"),
    ],
)
def test_a_state_that_cannot_be_read_costs_requests_and_no_object(desk: Desk, state: bytes) -> None:
    files = desk.record(2)
    desk.look(2)
    (desk.folder / STATE).write_bytes(state)
    desk.start()
    desk.look(2)
    assert desk.store.order == names_of(files) * 2
    assert sorted(desk.store.objects) == names_of(files)


def test_another_place_gets_all_files(desk: Desk) -> None:
    files = desk.record(2)
    desk.look(2)
    desk.store = MemoryStore("memory/other/")
    desk.start()
    desk.look(2)
    assert desk.store.order == names_of(files)


def test_the_state_is_private_and_has_no_more_than_the_folder(desk: Desk) -> None:
    desk.record(3)
    desk.look(2)
    state = desk.folder / STATE
    assert state.stat().st_mode & 0o777 == 0o600
    kept = files_in(desk.folder)[1:]
    files_in(desk.folder)[0].unlink()
    desk.look()
    assert set(msgspec.json.decode(state.read_bytes())["uploaded"]) == {path.name for path in kept}
    assert [path.name for path in desk.folder.iterdir() if path.name.startswith(f"{STATE}.")] == []


def test_a_file_that_the_ring_removed_first_is_lost_once(desk: Desk) -> None:
    files = desk.record(3)
    desk.store.errors = [away() for _ in range(4)]
    desk.look()
    files[0].unlink()
    desk.start()  # a restart between the removal and the next look
    desk.look(2)
    desk.start()
    desk.look(2)
    assert desk.counts.files == {}
    assert list(desk.store.objects) == names_of(files[1:])


def test_a_lost_file_is_counted(desk: Desk) -> None:
    files = desk.record(3)
    desk.store.errors = [away() for _ in range(4)]
    desk.look()
    files[0].unlink()
    desk.look(2)
    assert desk.counts.files == {"failed": 4, "lost": 1, "uploaded": 2}


def test_the_lag_is_the_age_of_the_oldest_file_that_is_not_sent(desk: Desk) -> None:
    desk.record(3)  # they end at 0 h, 1 h and 2 h; now it is 3 h
    desk.look()
    assert desk.counts.lags[:2] == [3 * 3600, 2 * 3600]
    desk.look()
    assert desk.counts.lags[-1] == 0


def test_a_clock_that_was_set_back_makes_no_negative_lag(desk: Desk) -> None:
    desk.record(2)
    desk.now = START - 10 * HOUR
    desk.store.errors = [forbidden(), forbidden()]
    desk.look()
    assert set(desk.counts.lags) == {0}


def test_two_processes_on_one_folder_leave_each_object_once(desk: Desk) -> None:
    other = Desk(desk.folder, desk.store)
    files = desk.record(3)
    for _ in range(3):
        desk.look()
        other.look()
    assert sorted(desk.store.objects) == names_of(files)


def replays(folder: Path) -> list[bool]:
    """Replay all cycles of a folder."""
    return [replay(found.recorded()).equal for found in Record(folder).cycles()]


def test_a_downloaded_folder_is_a_record(desk: Desk, tmp_path: Path) -> None:
    desk.record(3)
    desk.look(2)
    downloaded = desk.store.download(tmp_path / "downloaded")
    assert replays(downloaded) == [True] * 3
    assert [found.name for found in Record(downloaded).cycles()] == [
        found.name for found in Record(desk.folder).cycles()
    ]


def test_records_of_several_leaders_with_disks_of_their_own_are_one_folder(desk: Desk, tmp_path: Path) -> None:
    """Each leader's numbers begin at 1; their files alternate in time."""
    other = Desk(tmp_path / "other", desk.store)
    for _ in range(2):
        desk.record()
        other.now = desk.now
        other.record()
        desk.now = other.now
    desk.look(2)
    other.look(2)
    assert len(desk.store.objects) == 4
    downloaded = desk.store.download(tmp_path / "downloaded")
    assert replays(downloaded) == [True] * 4
    assert len({found.name for found in Record(downloaded).cycles()}) == 4


def test_a_step_of_the_clock_does_not_break_a_downloaded_folder(desk: Desk, tmp_path: Path) -> None:
    for at in (START + 5 * HOUR, START + 2 * HOUR, START, START + 6 * HOUR):
        desk.record(at=at)
    desk.look(2)
    assert sorted(desk.store.objects) != desk.store.order  # names sort by time, and the time went back
    assert replays(desk.store.download(tmp_path / "downloaded")) == [True] * 4


def test_a_missing_object_is_noticed(desk: Desk, tmp_path: Path) -> None:
    desk.record(3)
    desk.look(2)
    del desk.store.objects[desk.store.order[1]]
    with pytest.raises(DamagedRecordError, match="the file before it is missing"):
        replays(desk.store.download(tmp_path / "downloaded"))


def test_files_that_name_each_other_in_a_circle_are_refused(desk: Desk, tmp_path: Path) -> None:
    desk.record(2)
    desk.look(2)
    folder = desk.store.download(tmp_path / "downloaded")
    first, second = files_in(folder)
    first.write_bytes(second.read_bytes())
    with pytest.raises(DamagedRecordError, match="another one than it names"):
        replays(folder)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        pytest.param(
            "000000000012-20260101T000000.000000Z-kqueue-0.kqrecord",
            "20260101T000000.000000Z-000000000012-kqueue-0.kqrecord",
            id="a-file-of-the-ring",
        ),
        pytest.param("night.kqrecord", None, id="another-name"),
        pytest.param("000000000012-20260101T000000.000000Z-../x.kqrecord", None, id="a-path"),
        pytest.param("000000000012-20260101T000000.000000Z-a.kqrecord\n", None, id="a-line-end"),
    ],
)
def test_names_of_objects(name: str, stored: str | None) -> None:
    assert stored_name(name) == stored
    assert stored is None or is_stored_name(stored)


def test_the_thread_sends_the_last_file_when_it_is_stopped_and_can_start_again(desk: Desk) -> None:
    counts = UploadCounts()
    uploader = RecordUploader(desk.folder, desk.store, interval=3600, count=counts, now=lambda: START)
    for number in (1, 2):
        files = desk.record()
        uploader.start()
        uploader.start()
        uploader.stop()
        assert list(desk.store.objects) == names_of(files)
        assert counts.files == {"uploaded": number}
    uploader.stop()


def test_a_storage_that_hangs_holds_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, asked = threading.Event(), threading.Event()

    def hangs(name: str, path: Path) -> None:
        asked.set()
        go_on.wait(30)

    monkeypatch.setattr(desk.store, "put", hangs)
    desk.record()
    uploader = RecordUploader(desk.folder, desk.store, interval=3600, count=UploadCounts(), now=lambda: START)
    uploader.start()
    uploader.stop(timeout=0.01)
    assert asked.wait(10)
    go_on.set()


def test_a_folder_that_cannot_be_read_ends_no_thread(tmp_path: Path) -> None:
    (tmp_path / "ring").write_text("a file")
    counts = UploadCounts()
    uploader = RecordUploader(tmp_path / "ring", MemoryStore(), interval=0.001, count=counts, now=lambda: START)
    uploader.start()
    (tmp_path / "ring").unlink()
    Desk(tmp_path / "ring").record()
    counts.until("uploaded", 1)
    uploader.stop()
