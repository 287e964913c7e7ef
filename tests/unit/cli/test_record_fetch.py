"""`kqueue record fetch`: the command copies into the named folder, and a missing right is said with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.errors import ForbiddenError
from kqueue.operations import record_fetch
from tests.unit.cli.test_simulate import KUBECONFIG


@pytest.fixture(autouse=True)
def kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kubeconfig whose cluster is not asked."""
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


def test_the_folder_is_filled_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stdout stays empty, and a stderr that is no terminal gets no progress."""

    async def fetch(_client: Any, folder: Path, progress: Callable[[int, int], None]) -> tuple[int, int]:
        progress(1, 36)
        folder.mkdir()
        return 3, 36

    monkeypatch.setattr(record_fetch, "fetch_record", fetch)
    assert run(["record", "fetch", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy").is_dir()
    assert capsys.readouterr() == ("", f"3 files, 36 bytes, are in {tmp_path / 'copy'}\n")


def test_a_missing_right_is_said_with_the_role(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer of the API server, and whom to ask for what."""

    async def refuses(*_: Any, **__: Any) -> Any:
        raise ForbiddenError('User "ann" cannot list resource "decisionrecordfiles"', status=403, reason="Forbidden")

    monkeypatch.setattr(record_fetch, "ask", refuses)
    assert run(["record", "fetch", str(tmp_path / "copy")]) != 0
    said = capsys.readouterr().err
    assert 'User "ann" cannot list' in said
    assert "kqueue-decision-record-reader-role" in said
    assert not (tmp_path / "copy").exists()
