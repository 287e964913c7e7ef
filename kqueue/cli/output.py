"""Printing a value the way `-o` asks for, and text from the cluster so that it cannot drive a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer


class Output(StrEnum):
    """Formats of `-o`."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print.", case_sensitive=False)]


def printable(text: object) -> str:
    """`text` (or what `str` makes of it) on one line, with nothing in it that a terminal would obey.

    Escaped as in a Python string are: control characters (C0, DEL, C1, so ANSI sequences and line ends), format
    characters (bidirectional overrides, zero-width ones, tags), line and paragraph separators, unusual spaces, lone
    surrogates, and what is private or not assigned.  Everything else stays, backslashes too.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def show(value: Mapping[str, Any], output: Output) -> None:
    """Print `value`: aligned lines, indented JSON, or YAML."""
    match output:
        case Output.JSON:
            print(json.dumps(value, indent=2))
        case Output.YAML:
            import yaml

            print(yaml.safe_dump(dict(value), sort_keys=False), end="")
        case Output.TEXT:
            width = max(map(len, value), default=0)
            for key, item in value.items():
                print(f"{key:<{width}}  {item}")
