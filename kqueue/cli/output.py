"""Printing a value in the format of `-o`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from kqueue.printable import printable

__all__ = ["Output", "OutputOption", "printable", "show"]


class Output(StrEnum):
    """Formats of `-o`."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print.", case_sensitive=False)]


def show(value: Mapping[str, Any], output: Output) -> None:
    """Print `value` as aligned lines without terminal control characters, as indented JSON, or as YAML."""
    match output:
        case Output.JSON:
            print(json.dumps(value, indent=2))
        case Output.YAML:
            import yaml

            print(yaml.safe_dump(dict(value), sort_keys=False), end="")
        case Output.TEXT:
            width = max(map(len, value), default=0)
            for key, item in value.items():
                print(f"{key:<{width}}  {printable(item)}")
