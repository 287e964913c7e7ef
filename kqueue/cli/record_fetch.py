"""`kqueue record fetch`: copies the record of a running controller."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kqueue.cli.output import printable
from kqueue.cli.reaching import ReachFlags

_TARGET = Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the files of the record.")]


def fetch(target: _TARGET, *, reach: ReachFlags) -> None:
    """Copy the record of the running controller into a folder, which all other commands of records read.

    \b
        kqueue record fetch ./record
        kqueue report ./record --from 7d -o report.html

    The record has the decisions about all tenants: the ClusterRole kqueue-decision-record-reader-role has the right to
    it and is bound to nobody.  The newest file may end in the middle of an entry.
    """
    from kqueue.runtime.loop import run

    number, size = run(_fetched(target, reach))
    print(f"{number} files, {size} bytes, are in {printable(str(target))}", file=sys.stderr)


async def _fetched(target: Path, reach: ReachFlags) -> tuple[int, int]:
    from kqueue.operations.record_fetch import fetch_record

    shows = sys.stderr.isatty()

    def progress(done: int, whole: int) -> None:
        if shows:
            print(f"\r{100 * done // max(1, whole):3} % of the record is copied", end="", file=sys.stderr, flush=True)

    async with reach.session() as session:
        try:
            return await fetch_record(session.client, target, progress)
        finally:
            if shows:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
