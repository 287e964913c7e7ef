"""The page of `kqueue place`: its examples have the output that the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kqueue.cli import app

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "placing.md").read_text()
_EXAMPLE = re.compile(r"^    \$ kqueue (place --input examples/.*)\n((?:    .*\n|\n(?=    ))+)", re.MULTILINE)
EXAMPLES = _EXAMPLE.findall(PAGE)


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_an_example_has_the_output_of_the_page(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    app.run(shlex.split(command))
    assert capsys.readouterr().out == re.sub("^    ", "", shown, flags=re.MULTILINE)


def test_the_page_has_examples() -> None:
    assert EXAMPLES
