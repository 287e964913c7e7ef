"""Help pages are whole on a terminal of 80 columns: no sentence is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from kqueue.cli.app import build, command_of


def pages(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The call and the help page of a command and of all below it."""
    with command.make_context(" ".join(words), ["--help"], resilient_parsing=True) as context:
        yield " ".join(words), command.get_help(context)
    for name, below in command.commands.items() if isinstance(command, TyperGroup) else ():
        yield from pages(below, (*words, name))


def test_no_line_of_help_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a list of commands nor, with an ellipsis, anywhere else."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    found = dict(pages(command_of(build()), ("kqueue",)))
    lists = {call: page.partition("Commands:")[2].splitlines() for call, page in found.items()}
    wrong = [f"{call}: {line}" for call, lines in lists.items() for line in lines if line.endswith("...")]
    wrong += [call for call, page in found.items() if "…" in page]

    assert len(found) > 30
    assert wrong == []
