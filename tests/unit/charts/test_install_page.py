"""docs/install.md tells every value of the chart, with what values.yaml says about it.

The table is made anew by `KQUEUE_REMAKE_GOLDENS=1 .venv/bin/pytest tests/unit/charts`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.unit.charts.rendering import CHART

PAGE = Path(__file__).resolve().parents[3] / "docs" / "install.md"
BEGIN, END = "<!-- values: made from charts/kqueue/values.yaml -->\n", "<!-- end of values -->\n"


def explained() -> dict[str, str]:
    """Path of each value that values.yaml explains, to its words."""
    found: dict[str, str] = {}
    above: list[str] = []
    words: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if comment := re.fullmatch(r"\s*# ?(-- )?(.*)", line):
            words = [comment[2]] if comment[1] else [*words, comment[2]] if words else []
        elif key := re.match(r"(\s*)(\w+):", line):
            above[len(key[1]) // 2 :] = [key[2]]
            if words:
                found[".".join(above)] = " ".join(words)
            words = []
    return found


def paths(values: Any, above: str = "") -> Iterator[str]:
    """Every leaf."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and value:
            yield from paths(value, f"{path}.")
        else:
            yield path


def table() -> str:
    """As it stands in the page."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = ["| Value | Default | Meaning |", "|---|---|---|"]
    for path, words in explained().items():
        value = values
        for name in path.split("."):
            value = value[name]
        rows.append(f"| `{path}` | `{json.dumps(value)}` | {words.replace('|', '&#124;')} |")
    return "\n".join(rows) + "\n"


def test_the_page_has_the_table_of_all_values() -> None:
    """With their defaults."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("KQUEUE_REMAKE_GOLDENS"):
        shown = table()
        PAGE.write_text(f"{before}{BEGIN}{shown}{END}{after}")

    assert shown == table()


def test_every_value_is_explained() -> None:
    """Itself, or what it is part of."""
    told = explained()
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert [p for p in paths(values) if not any(p == t or p.startswith(f"{t}.") for t in told)] == []
