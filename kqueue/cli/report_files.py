"""Files of a report: CSV, Parquet and others, each whole or not there."""

from __future__ import annotations

import csv
import io
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from kqueue.core.quantity import clamp
from kqueue.errors import ConfigError
from kqueue.operations.report.figures import QueueReport
from kqueue.operations.report.tables import CELL_COLUMNS, KEYS, cells
from kqueue.printable import printable

_FORMULA = tuple("=+-@＝＋－＠")  # noqa: RUF001 -- spreadsheets read the wide forms as formulas, too
"""First characters with which spreadsheets take the text of a cell for a formula."""


def as_csv(report: QueueReport) -> bytes:
    """Return all figures as CSV in UTF-8, one in a line; figures that the record does not have are empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(CELL_COLUMNS)
    for cell in cells(report):
        texts = [cell_text(text) for text in (cell.table, *cell.keys, cell.measure, cell.unit)]
        writer.writerow([*texts, "" if cell.value is None else cell.value])
    return lines.getvalue().encode()


def cell_text(text: str) -> str:
    """Return a text as a cell that no spreadsheet computes."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def need_parquet(path: Path) -> None:
    """Raise ConfigError: the package that writes Parquet is not installed."""
    try:
        import_module("arro3.io")
    except ImportError as e:
        raise ConfigError(
            f"-o {path}: Parquet needs another package: pip install 'kqueue[parquet]', or write .csv or .json"
        ) from e


def as_parquet(report: QueueReport) -> bytes:
    """Return all figures as Parquet: the columns of the CSV, `value` as an integer of 64 bits."""
    from arro3.core import Array, DataType, Table
    from arro3.io import write_parquet

    found = list(cells(report))
    columns: dict[str, list[str]] = {"table": [cell.table for cell in found]}
    columns |= {key: [printable(cell.keys[number]) for cell in found] for number, key in enumerate(KEYS)}
    columns |= {"measure": [cell.measure for cell in found], "unit": [cell.unit for cell in found]}
    arrays: dict[str, Any] = {name: Array(texts, DataType.string()) for name, texts in columns.items()}
    values = [clamp(cell.value) if cell.value is not None else None for cell in found]
    arrays["value"] = Array(values, DataType.int64())
    packed = io.BytesIO()
    write_parquet(Table.from_pydict(arrays), packed)
    return packed.getvalue()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that other readers see whole: the former one, or this one.  Raises ConfigError: it cannot be."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as e:
        problem = (e.strerror or str(e)).lower()
        raise ConfigError(f"-o {path}: {problem}; name a file in a folder that can be written") from e
