"""Records as users name them: one file, or a folder of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kqueue.core.hooks import HooksByProfile
from kqueue.errors import ConfigError
from kqueue.record.chain import DamagedRecordError, StoredEntry, last_hash, read_chain
from kqueue.record.decided import Decided, read_decided
from kqueue.record.decoding import CycleDecoder, RecordedCycle
from kqueue.record.entries import (
    FORM_WITH_ANSWERS,
    FORM_WITH_TOLD,
    FORMAT,
    FORMATS,
    Begin,
    Cycle,
    End,
    Entry,
    Pieces,
    StartTimesTold,
    ToldIntervalForm,
    WaitsBehind,
    from_text,
)
from kqueue.record.plain import UnreadableValueError, reader
from kqueue.record.ring import files_in
from kqueue.record.store import is_stored_name
from kqueue.record.told import ToldInterval

_UNREADABLE = UnreadableValueError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError
"""Errors of values that no writer writes."""
_TIME: Any = datetime
_FIRST_YEAR, _LAST_YEAR = 1970, 8999
_LONGEST = 10**10
"""Seconds until a start, at most: far beyond every horizon, and within what `timedelta` holds."""
_MOST_TOLD = 100_000
"""Start times that were told before one cycle: a hostile file must not fill the memory."""


@dataclass(frozen=True, slots=True)
class FoundCycle:
    """A cycle and its place: the file with its begin, and the entry.

    `told`: the start times that stand between the cycle before and this one.
    """

    place: _Place
    begin: Begin
    entry: Cycle
    _decoder: CycleDecoder
    told: tuple[ToldInterval, ...] = ()

    @property
    def read_bytes(self) -> tuple[Path, int]:
        """The file, and the offset of the entry in it."""
        return self.place.path, self.place.stored.offset

    @property
    def name(self) -> str:
        """The name of the cycle in its record: the number of the file and the number of the entry."""
        return f"{self.place.file_number}:{self.place.stored.number}"

    def moment(self) -> datetime:
        """Return the time of the plan, with which a caller may compute.  Raises DamagedRecordError."""
        try:
            now: datetime = reader(_TIME)(self.entry.now)
            _check_year(now)
        except _UNREADABLE as e:
            raise self.place.unreadable(e) from e
        return now

    def recorded(self, hooks: HooksByProfile | None = None) -> RecordedCycle:
        """Return the question with its answers; only before the next entry is read.  Raises DamagedRecordError."""
        try:
            return self._decoder.cycle(self.entry, hooks)
        except _UNREADABLE as e:
            raise self.place.unreadable(e) from e

    def behind(self, workload: str) -> WaitsBehind | None:
        """Return a workload (namespace/name, or UID) that waits behind the head of a StrictFIFO ClusterQueue of this
        cycle; None: it does not.  Only before the next entry is read.
        """
        for queue in self.entry.strict:
            line = self._decoder.lines.get(queue, {})
            found = line.get(workload) or next((one for one in line.values() if one.key == workload), None)
            if found is not None:
                return found
        return None

    def queue_of(self, waiting: WaitsBehind) -> str:
        """Return the ClusterQueue in whose line a workload is.  Only before the next entry is read."""
        return next(queue for queue in self.entry.strict if waiting.uid in self._decoder.lines.get(queue, {}))

    def decided(self) -> list[Decided]:
        """Return the decisions as typed values.  Raises DamagedRecordError."""
        try:
            return [read_decided(raw) for raw in self.entry.decisions]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
            raise self.place.unreadable(e) from e


class Record:
    """The files of a record, the oldest first.

    `remarks` grows while it is read: what is true of the record, and does not make it unreadable.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError: there is no record at `path`."""
        self._is_folder = path.is_dir()
        self._files = _in_order(files_in(path)) if self._is_folder else [path]
        if not self._files or not self._files[0].exists():
            raise ConfigError(f"{path}: there is no record; give a file or the folder of decisionRecord.path")
        self.remarks: list[str] = []
        self._told: list[ToldInterval] = []
        """Start times that were told before the next cycle."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files in the order in which they are read."""
        return tuple(self._files)

    def cycles(self) -> Iterator[FoundCycle]:
        """Yield all cycles in their order.  Raises DamagedRecordError, which names file, entry and byte."""
        ends: set[str] = set()
        self._told.clear()
        for number, path in enumerate(self._files):
            is_newest = self._is_folder and number == len(self._files) - 1
            yield from self._file(path, ends, number=number, is_newest=is_newest)

    def _file(self, path: Path, ends: set[str], *, number: int, is_newest: bool) -> Iterator[FoundCycle]:
        decoder = CycleDecoder()
        begin: Begin | None = None
        stored: StoredEntry | None = None
        has_end = False
        try:
            for stored in read_chain(path):
                with_place = _Place(path, stored, _number_of(path, number + 1))
                entry = with_place.read()
                if has_end:
                    raise with_place.damage("there are entries behind the end of the file")
                if begin is None:
                    begin = with_place.begin(entry)
                    if begin.after and number and begin.after not in ends:
                        raise with_place.damage("the file before it is missing, or is another one than it names")
                    continue
                has_end = isinstance(entry, End)
                if isinstance(entry, StartTimesTold):
                    self._told += with_place.told(entry, begin)
                    if len(self._told) > _MOST_TOLD:
                        raise with_place.damage(f"more than {_MOST_TOLD} start times were told before one cycle")
                    continue
                with_place.follow(decoder, entry, begin)
                if isinstance(entry, Cycle):
                    told, self._told = tuple(self._told), []
                    yield FoundCycle(with_place, begin, entry, decoder, told)
        except DamagedRecordError as e:
            if not (is_newest and e.is_cut):
                raise
            self.remarks.append(f"{e}; it is being written, or its writer was killed")
            return
        if stored is not None:
            ends.add(stored.digest.hex())
        if not has_end and not is_newest:
            raise _cut_off(path, stored)


@dataclass(frozen=True, slots=True)
class _Place:
    path: Path
    stored: StoredEntry
    file_number: int
    """The number of the file in its ring, or its place in the folder where its name does not begin with a number."""

    def damage(self, problem: str) -> DamagedRecordError:
        return DamagedRecordError(str(self.path), problem, entry=self.stored.number, offset=self.stored.offset)

    def read(self) -> Entry:
        try:
            entry: Entry = from_text(self.stored.text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
            form = _form_of(self.stored) if self.stored.number == 0 else None
            if form is not None and form not in FORMATS:
                raise self._other_format(form, "another version") from e
            raise self.damage(f"it is no entry of forms 1 to {FORMAT}: {e!s:.200}") from e
        return entry

    def begin(self, entry: object) -> Begin:
        if not isinstance(entry, Begin):
            raise self.damage("the first entry does not say which version wrote the file")
        if entry.format not in FORMATS:
            raise self._other_format(entry.format, entry.version)
        return entry

    def told(self, entry: StartTimesTold, begin: Begin) -> list[ToldInterval]:
        """Return the start times of an entry."""
        if begin.format < FORM_WITH_TOLD:
            raise self.damage(f"form {begin.format} has no start times that were told; the record was changed")
        try:
            return [_told(form) for form in entry.starts]
        except _UNREADABLE as e:
            raise self.unreadable(e) from e

    def _other_format(self, found: int, version: str) -> DamagedRecordError:
        return self.damage(f"kqueue {version:.40} wrote form {found}, this is form {FORMAT}; read it with that version")

    def unreadable(self, error: Exception) -> DamagedRecordError:
        return self.damage(f"its values cannot be read: {error!s:.200}")

    def follow(self, decoder: CycleDecoder, entry: object, begin: Begin) -> None:
        """Take what an entry says of the state."""
        if isinstance(entry, Cycle) and begin.format < FORM_WITH_ANSWERS and _has_form_3(entry):
            problem = "StrictFIFO ClusterQueues and answers of plugins"
            raise self.damage(f"form {begin.format} has no {problem}; the record was changed")
        try:
            if isinstance(entry, Pieces):
                decoder.pieces(entry)
            elif isinstance(entry, Cycle):
                decoder.follow(entry)
            elif not isinstance(entry, End):
                raise self.damage("it belongs to another place in a file")
        except _UNREADABLE as e:
            raise self.unreadable(e) from e


def _has_form_3(entry: Cycle) -> bool:
    return bool(entry.strict or entry.behind or entry.answers or entry.unanswered or "plugins" in entry.slots)


def _number_of(path: Path, place: int) -> int:
    number = path.name[:12]
    return int(number) if number.isdecimal() else place


def _in_order(files: list[Path]) -> list[Path]:
    """Return downloaded files so that each follows the one that it names, whatever its writer's clock did."""
    if not any(is_stored_name(path.name) for path in files):
        return files
    by_end = {last_hash(path): path for path in files}
    ordered: dict[Path, None] = {}
    for path in files:
        chain: dict[Path, None] = {}
        at = path
        while at not in ordered and at not in chain:
            chain[at] = None
            at = by_end.get(_named_before(at), at)
        ordered |= dict.fromkeys(reversed(chain))
    return list(ordered)


def _named_before(path: Path) -> str:
    """Return the hash of the file before, empty where the file names none or cannot be read."""
    try:
        entry = from_text(next(read_chain(path)).text)
    except (DamagedRecordError, StopIteration, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""  # the reader of the entries says what is wrong
    return entry.after if isinstance(entry, Begin) else ""


def _check_year(time: datetime) -> None:
    """Raise UnreadableValueError: sums with the time may lie outside of what `datetime` holds."""
    if not _FIRST_YEAR <= time.year <= _LAST_YEAR:
        raise UnreadableValueError(f"the time {time.isoformat()} is of no year from {_FIRST_YEAR} to {_LAST_YEAR}")


def _told(form: ToldIntervalForm) -> ToldInterval:
    at = reader(_TIME)(form.at)
    _check_year(at)
    if not 0 <= form.p50 <= (_LONGEST if form.p90 is None else form.p90) <= _LONGEST:
        raise UnreadableValueError(f"the interval {form.p50} to {form.p90} of a start time is none")
    return ToldInterval(form.uid, at, form.p50, form.p90)


def _form_of(stored: StoredEntry) -> int | None:
    """Return the form that a first entry names, which this version cannot read as a whole; None: it names none."""
    try:
        plain = msgspec.json.decode(stored.text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    found = plain.get("format") if isinstance(plain, dict) else None
    return found if isinstance(found, int) else None


def _cut_off(path: Path, last: StoredEntry | None) -> DamagedRecordError:
    number, offset = (last.number + 1, path.stat().st_size) if last is not None else (0, 0)
    problem = "the file has no end; it was cut off, or copied while it was written. Copy it by `kqueue record save`"
    return DamagedRecordError(str(path), problem, entry=number, offset=offset, is_cut=True)
