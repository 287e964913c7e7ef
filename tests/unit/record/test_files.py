"""Files of a record: a changed, cut or hostile file is refused with its place, and the ring keeps its bounds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import pytest

from kqueue.errors import ConfigError
from kqueue.record.chain import MAGIC, ChainWriter, DamagedRecordError, read_chain
from kqueue.record.entries import Begin, End, to_text
from kqueue.record.records import FoundCycle, Record
from kqueue.record.replay import replay
from kqueue.record.ring import Ring, RingSettings, files_in
from tests.builders import START
from tests.unit.record.recorded import cycles

MIB = 1 << 20


def make_ring(folder: Path, *, max_bytes: int = 64 * MIB, max_age: timedelta = timedelta(days=1)) -> Ring:
    """A ring in a folder."""
    return Ring(RingSettings(path=folder, max_bytes=max_bytes, max_age=max_age, version="v9.9.9"))


def recorded(folder: Path, seed: int = 5, number: int = 3) -> Path:
    """The one file of a short record."""
    ring = make_ring(folder)
    for captured in cycles(seed, number):
        ring.write(captured, START)
    ring.close()
    (path,) = files_in(folder)
    return path


def write_chain(path: Path, *texts: bytes) -> Path:
    """A file of these entries, with right hashes."""
    with path.open("w+b", buffering=0) as file:
        writer = ChainWriter(file)
        for text in texts:
            writer.append(text)
    return path


def found(path: Path) -> list[FoundCycle]:
    """The cycles of a record."""
    cycles = []
    for one in Record(path).cycles():
        one.recorded()
        cycles.append(one)
    return cycles


BEGIN = to_text(Begin(format=1, version="v9.9.9", time=START.isoformat()))
END = to_text(End())


def test_what_is_written_is_replayed(tmp_path: Path) -> None:
    path = recorded(tmp_path / "ring")

    for source in (path, path.parent):
        replays = [replay(one.recorded()) for one in Record(source).cycles()]
        assert [one.equal for one in replays] == [True] * 3


def test_a_file_that_is_cut_anywhere_is_refused_with_the_place(tmp_path: Path) -> None:
    small = write_chain(tmp_path / "small.kqrecord", BEGIN, END)
    for size in range(small.stat().st_size):
        cut = tmp_path / "cut.kqrecord"
        cut.write_bytes(small.read_bytes()[:size])
        with pytest.raises(DamagedRecordError, match=r"entry \d+ at byte \d+"):
            found(cut)

    path = recorded(tmp_path / "ring", number=1)
    whole, ends = path.read_bytes(), [entry.offset for entry in read_chain(path)]
    cut = tmp_path / "cut.kqrecord"
    for size in [*range(200), *range(200, len(whole), 61), *ends, len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(DamagedRecordError, match=r"entry \d+ at byte \d+") as raised:
            found(cut)
        assert raised.value.is_cut
        assert raised.value.offset <= size


def test_a_file_with_a_changed_byte_is_refused_with_the_place(tmp_path: Path) -> None:
    small = write_chain(tmp_path / "small.kqrecord", BEGIN, END)
    for place in range(small.stat().st_size):
        changed = tmp_path / "changed.kqrecord"
        changed.write_bytes(b"".join(bytes([b ^ (i == place)]) for i, b in enumerate(small.read_bytes())))
        with pytest.raises(DamagedRecordError, match=r"entry \d+ at byte \d+"):
            found(changed)

    path = recorded(tmp_path / "ring", number=1)
    whole, places = path.read_bytes(), [(entry.offset, entry.number) for entry in read_chain(path)]
    changed = tmp_path / "changed.kqrecord"
    for place in [*range(120), *range(120, len(whole), 71), *range(len(whole) - 40, len(whole))]:
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ 0x21]) + whole[place + 1 :])
        with pytest.raises(DamagedRecordError) as raised:
            found(changed)
        number = max((number for offset, number in places if offset <= place), default=0)
        assert raised.value.entry == number, f"byte {place}"


def test_an_entry_that_is_left_out_is_noticed(tmp_path: Path) -> None:
    path = recorded(tmp_path / "ring")
    whole, entries = path.read_bytes(), list(read_chain(path))
    first, second = entries[2].offset, entries[3].offset
    path.write_bytes(whole[:first] + whole[second:])
    with pytest.raises(DamagedRecordError, match=f"entry 2 at byte {first}: its hash"):
        found(path)


def test_a_file_that_is_left_out_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    for _ in range(3):
        ring = make_ring(folder)
        for captured in cycles(5, 1):
            ring.write(captured, START)
        ring.close()
    assert len(found(folder)) == 3

    files_in(folder)[1].unlink()
    with pytest.raises(DamagedRecordError, match="the file before it is missing"):
        found(folder)


def _entry(stored: bytes, length: int) -> bytes:
    return MAGIC + struct.pack(">II", len(stored), length) + stored + bytes(32)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(lambda: b"", "no record", id="empty"),
        pytest.param(lambda: b"hello, world, this is text", "no record", id="another-file"),
        pytest.param(lambda: b"kqueue-record 2\n", "read it with the version that wrote it", id="another-form"),
        pytest.param(lambda: _entry(zlib.compress(b"0" * 100), 1 << 31), "more than", id="a-length-beyond-the-bound"),
        pytest.param(lambda: MAGIC + b"\xff" * 40, "more than", id="lengths-of-ones"),
    ],
)
def test_hostile_bytes_are_refused(tmp_path: Path, make: Callable[[], bytes], problem: str) -> None:
    path = tmp_path / "hostile.kqrecord"
    path.write_bytes(make())
    with pytest.raises(DamagedRecordError, match=problem):
        found(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b"[" * 100_000, "no entry of forms 1", id="deep-lists"),
        pytest.param(
            b'{"type":"cycle","number":1,"now":' + b'{"a":' * 60_000, "no entry of forms 1", id="deep-objects"
        ),
        pytest.param(b'{"type":"pickle"}', "no entry of forms 1", id="an-unknown-kind"),
        pytest.param(b'{"type":"pieces","pieces":{"00":{}}}', "another hash", id="a-piece-under-another-name"),
        pytest.param(b'{"type":"cycle","number":1,"now":"2026-11-27T00:00:00+00:00"}', "comes later", id="no-state"),
        pytest.param(b"\xff\xfe", "no entry of forms 1", id="no-text"),
        pytest.param(BEGIN, "another place", id="a-second-begin"),
    ],
)
def test_hostile_entries_are_refused(tmp_path: Path, text: bytes, problem: str) -> None:
    path = write_chain(tmp_path / "hostile.kqrecord", BEGIN, text, END)
    with pytest.raises(DamagedRecordError, match=rf"entry 1 at byte \d+: .*{problem}"):
        found(path)


def test_no_more_is_unpacked_than_an_entry_says(tmp_path: Path) -> None:
    """An entry that says 10 bytes and unpacks to 64 MiB costs 10 bytes."""
    packer = zlib.compressobj(1)
    stored = b"".join(packer.compress(bytes(MIB)) for _ in range(64)) + packer.flush()
    lengths = struct.pack(">II", len(stored), 10)
    start = blake2b(MAGIC, digest_size=32).digest()
    digest = blake2b(start + lengths + stored, digest_size=32).digest()
    path = tmp_path / "bomb.kqrecord"
    path.write_bytes(MAGIC + lengths + stored + digest)
    with pytest.raises(DamagedRecordError, match="not compressed to 10 bytes"):
        found(path)


def test_another_form_is_refused_with_the_version_that_reads_it(tmp_path: Path) -> None:
    later = b'{"type":"begin","format":7,"version":"v3.1.0","time":"","shape":"new"}'
    path = write_chain(tmp_path / "later.kqrecord", later, END)
    with pytest.raises(DamagedRecordError, match=r"form 7, this is form 3; read it with that version"):
        found(path)


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="there is no record"):
            Record(path)


def _killed(folder: Path, *, keep: Callable[[int], int]) -> Path:
    """A file whose writer was killed; `keep`: the bytes that are left of it, by its size."""
    ring = make_ring(folder)
    for captured in cycles(5, 3):
        ring.write(captured, START)
    assert ring._file is not None
    ring._file.close()
    (path,) = files_in(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: keep(len(whole))])
    return path


def test_the_newest_file_may_be_torn_and_the_next_writer_ends_it(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    path = _killed(folder, keep=lambda size: size - 5)
    record = Record(folder)
    assert len(list(record.cycles())) == 2
    assert "its writer was killed" in record.remarks[0]

    ring = make_ring(folder)
    for captured in cycles(5, 1):
        ring.write(captured, START)
    ring.close()
    assert "killed in the middle of entry" in ring.remarks[0]
    again = Record(folder)
    assert len(list(again.cycles())) == 3
    assert again.remarks == []
    assert len(found(path)) == 2


def test_a_writer_that_was_killed_between_two_entries_loses_none(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    _killed(folder, keep=lambda size: size)
    assert len(found(folder)) == 3
    ring = make_ring(folder)
    for captured in cycles(5, 1):
        ring.write(captured, START)
    ring.close()
    assert ring.remarks == []
    assert len(found(folder)) == 4


def _many(ring: Ring, number: int) -> Iterator[int]:
    for n in range(number):
        for captured in cycles(n, 2):
            yield ring.write(captured, START + timedelta(minutes=10 * n))


def test_the_oldest_files_make_room(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    ring = make_ring(folder, max_bytes=24 << 10)
    for _ in _many(ring, 40):
        assert sum(path.stat().st_size for path in files_in(folder)) <= (24 << 10) + 2048
    ring.close()
    assert len(files_in(folder)) > 2
    assert len(found(folder)) < 80
    assert all(replay(one.recorded()).equal for one in Record(folder).cycles())


def test_old_files_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    ring = make_ring(folder, max_age=timedelta(hours=1))
    assert all(_many(ring, 12))
    ring.close()
    oldest = found(folder)[0].entry.number
    times = [one.begin.time for one in found(folder)]
    assert min(times) >= (START + timedelta(minutes=110 - 80)).isoformat(), oldest


def test_an_entry_larger_than_the_ring_is_refused_and_nothing_grows(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    ring = make_ring(folder, max_bytes=600)
    for captured in cycles(5, 2):
        with pytest.raises(OSError, match="the record may have 600"):
            ring.write(captured, START)
    assert sum(path.stat().st_size for path in files_in(folder)) < 3000


def test_a_folder_that_cannot_be_written_costs_an_error(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "missing" / "ring")
    (captured,) = cycles(5, 1)
    with pytest.raises(OSError, match="ring"):
        ring.write(captured, START)
    (tmp_path / "missing").mkdir()
    ring.write(captured, START)
    ring.close()
    assert len(found(tmp_path / "missing" / "ring")) == 1
