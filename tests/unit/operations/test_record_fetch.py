"""A copy of the record through the visibility API: whole, without holes, and nothing outside of its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from kqueue.errors import ApiError, ConfigError, NotFoundError
from kqueue.manager.record_files import record_files
from kqueue.operations import record_fetch
from kqueue.operations.record_fetch import RecordWentOnError, fetch_record
from kqueue.runtime.client import Client
from kqueue.visibility import record_files as view
from kqueue.visibility.question import AuthorizedQuestion
from kqueue.visibility.record_files import RecordFileViews

JSON = dict[str, Any]
NAMES = [f"{n:012}-2026013{n}T220000.000000Z-Pod-{n}.kqrecord" for n in (1, 2, 3)]


async def _reads(_: str) -> bool:
    return False


class Controller:
    """A server of files in a folder; `before` is called before each answer with the number of questions so far."""

    def __init__(self, folder: Path, before: Callable[[int], None] = lambda _: None) -> None:
        self.views, self._before, self.asked = RecordFileViews(record_files(str(folder))), before, 0

    async def get_path(self, path: str, params: Mapping[str, str] | None = None, **_: Any) -> JSON:
        """Answer a question; discovery says that the API is served."""
        name = path.removeprefix("/apis/visibility.kqueue.dev/v1alpha1").strip("/").partition("/")[2]
        if path.endswith("v1alpha1"):
            return {}
        self._before(self.asked)
        self.asked += 1
        asked = AuthorizedQuestion(namespace="", name=name, params=params or {}, reads=_reads)
        return await (self.views.one(asked) if name else self.views.every(asked))


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three files; pieces are of five bytes, and nothing waits between tries."""
    monkeypatch.setattr(view, "MOST_BYTES", 5)
    monkeypatch.setattr(record_fetch, "_PAUSE_SECONDS", 0)
    folder = tmp_path / "ring"
    folder.mkdir()
    for number, name in enumerate(NAMES, 1):
        (folder / name).write_bytes(bytes([number]) * 12)
    (folder / "notes.txt").write_text("not a file of the record")
    return folder


async def copied(controller: Any, target: Path) -> dict[str, int]:
    """Copy; return the bytes of each file of the copy."""
    number, size = await fetch_record(cast("Client", controller), target, lambda _done, _whole: None)
    found = {file.name: file.stat().st_size for file in sorted(target.iterdir())}
    assert (number, size) == (len(found), sum(found.values()))
    return found


async def test_all_files_are_copied_as_they_are(ring: Path, tmp_path: Path) -> None:
    """Their names have capitals, which names in paths do not have; other users of the machine may not read them."""
    target = tmp_path / "copy"
    assert await copied(Controller(ring), target) == dict.fromkeys(NAMES, 12)
    assert [(target / name).read_bytes() for name in NAMES] == [(ring / name).read_bytes() for name in NAMES]
    assert {file.stat().st_mode & 0o077 for file in (target, *target.iterdir())} == {0}


async def test_an_open_file_is_copied_as_far_as_it_was_at_first(ring: Path, tmp_path: Path) -> None:
    """A controller that writes faster than the copy reads would hold it for ever."""

    def grows(_: int) -> None:
        with (ring / NAMES[2]).open("ab") as file:
            file.write(b"more")

    assert (await copied(Controller(ring, grows), tmp_path / "copy"))[NAMES[2]] == 16


@pytest.mark.parametrize(
    ("gone", "at", "left"),
    [
        pytest.param(NAMES[:1], 2, NAMES[1:], id="the oldest file, half copied"),
        pytest.param(NAMES[:2], 6, NAMES[2:], id="the second one, so the first one, too"),
    ],
)
async def test_files_that_made_room_leave_no_hole(
    ring: Path, tmp_path: Path, gone: list[str], at: int, left: list[str]
) -> None:
    """A record without a file in its middle is refused by its readers."""

    def removes(asked: int) -> None:
        if asked == at:
            for name in gone:
                (ring / name).unlink()

    assert list(await copied(Controller(ring, removes), tmp_path / "copy")) == left


async def test_a_record_that_went_on_as_a_whole_is_an_error(ring: Path, tmp_path: Path) -> None:
    def removes(asked: int) -> None:
        for name in NAMES if asked == 1 else []:
            (ring / name).unlink()

    with pytest.raises(RecordWentOnError, match="ask again"):
        await copied(Controller(ring, removes), tmp_path / "copy")


async def test_another_replica_is_asked_until_one_has_files(ring: Path, tmp_path: Path) -> None:
    """A replica that never led has none; the API server chooses the replica of each question."""
    empty = tmp_path / "empty"
    empty.mkdir()
    leader, follower = Controller(ring), Controller(empty)

    class Balanced:
        asked = 0

        async def get_path(self, path: str, *rest: Any, **more: Any) -> JSON:
            self.asked += not path.endswith("v1alpha1")  # discovery comes from the API server itself
            return await (leader if self.asked % 2 == 0 else follower).get_path(path, *rest, **more)

    assert list(await copied(Balanced(), tmp_path / "copy")) == NAMES


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("", "set decisionRecord.path", id="no record"),
        pytest.param("missing", "the record has no file", id="no decision so far"),
    ],
)
async def test_a_missing_record_is_said(ring: Path, tmp_path: Path, path: str, message: str) -> None:
    controller = Controller(ring)
    controller.views = RecordFileViews(record_files(str(tmp_path / path) if path else ""))
    with pytest.raises(NotFoundError, match=message):
        await copied(controller, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_a_folder_with_files_is_left_alone(ring: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has files already"):
        await copied(Controller(ring), ring)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/x.kqrecord", "a.kqrecord", f"{NAMES[0]}/../x.kqrecord"])
async def test_a_server_names_no_file_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    """A server that answers in place of the controller must not choose where the command writes."""

    class Forged:
        async def get_path(self, *_: Any, **__: Any) -> JSON:
            return {"items": [{"metadata": {"name": name.lower()}, "file": name, "bytes": 1}]}

    with pytest.raises(ConfigError, match="no file of a record"):
        await copied(Forged(), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_nothing_is_left_after_a_failure(ring: Path, tmp_path: Path) -> None:
    """Half a file would look like a damaged record."""

    def fails(asked: int) -> None:
        if asked == 5:
            raise ApiError("no answer", status=0)

    with pytest.raises(ApiError):
        await copied(Controller(ring, fails), tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


@pytest.mark.parametrize("params", [{"offset": "-1"}, {"offset": "1e3"}, {"offset": "9" * 40}, {"other": "1"}])
async def test_wrong_questions_are_refused(ring: Path, params: dict[str, str]) -> None:
    """Each becomes 400."""
    views = RecordFileViews(record_files(str(ring)))
    asked = AuthorizedQuestion(namespace="", name=NAMES[0].lower(), params=params, reads=_reads)
    with pytest.raises(ConfigError):
        await views.one(asked)


@pytest.mark.parametrize("name", ["notes.txt", "..", "ring", NAMES[0]])
async def test_only_files_of_the_record_are_read(ring: Path, name: str) -> None:
    views = RecordFileViews(record_files(str(ring)))
    with pytest.raises(NotFoundError):
        await views.one(AuthorizedQuestion(namespace="", name=name, params={}, reads=_reads))
