"""Make the pictures of docs/pictures from the output of commands on the demo's cluster.  Run it in a checkout.

Each command runs in a terminal of its own, as a user would run it; its output, with colours, becomes an SVG.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
TOPOLOGY = "2x8x16"
_COLUMNS, _LINES = 124, 60
_SECONDS = 90
_SCREEN = re.compile(rb"\x1b\[\?[0-9;]*[a-zA-Z]|\x1b\[[0-9;]*[HJKABCDG]|\r")
"""Sequences that move the cursor or switch the screen; sequences for colours are kept."""
_FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)
"""Fonts that a browser would download; its own monospace font is sufficient."""


async def main() -> None:
    """Start the demo's cluster, set the stage, and take the pictures; those of moves on a cluster of their own."""
    from kqueue.cli.story import cluster, create_queues, examples_folder
    from kqueue.cli.story_encore import commands, stage
    from kqueue.cli.story_racks import RackScenes
    from kqueue.observe import configure_logs

    configure_logs("console", "error")
    FOLDER.mkdir(exist_ok=True)
    async with cluster(TOPOLOGY, Console(stderr=True)) as (_, _, client, kubeconfig):
        await create_queues(client)
        waiting = await stage(client, examples_folder())
        shown = {arguments[0]: arguments for arguments in commands(waiting)}
        shown["doctor"] = ("doctor", "--queue", "research")
        for name, arguments in shown.items():
            await _take(name, arguments, kubeconfig)
    async with cluster(TOPOLOGY, Console(stderr=True)) as (_, _, client, kubeconfig):
        await create_queues(client)
        scenes = RackScenes(client, kubeconfig, Console(stderr=True), examples_folder())
        await scenes.prepare()
        workload = (await scenes.wait_for_a_rack())["metadata"]["name"]
        await _take("defrag", ("defrag", "plan", "--for", f"default/{workload}", "--picture"), kubeconfig)


async def _take(name: str, arguments: tuple[str, ...], kubeconfig: Path) -> None:
    path = FOLDER / f"{name}.svg"
    path.write_text(picture(arguments, await printed(arguments, kubeconfig)), encoding="utf-8")
    print(path.relative_to(ROOT), file=sys.stderr)


async def printed(arguments: tuple[str, ...], kubeconfig: Path) -> str:
    """Return the output of `kqueue` with these arguments on a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    surroundings = {**os.environ, "KUBECONFIG": str(kubeconfig), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", *arguments), stdin=slave, stdout=slave, stderr=slave, env=surroundings
    )
    os.close(slave)
    try:
        async with asyncio.timeout(_SECONDS):
            out, _ = await asyncio.gather(asyncio.to_thread(_all_of, master), process.wait())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)
    if process.returncode != 0:
        raise SystemExit(f"kqueue {' '.join(arguments)} ended with {process.returncode}: {out.decode()}")
    return _SCREEN.sub(b"", out).decode()


def _all_of(terminal: int) -> bytes:
    pieces = []
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # the command has closed the terminal
            return b"".join(pieces)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def picture(arguments: tuple[str, ...], text: str) -> str:
    """Return an SVG of a terminal with the command and its output."""
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ kqueue {' '.join(arguments)}", style="bold"))
    console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
    return console.export_svg(
        title=f"kqueue {arguments[0]}",
        theme=MONOKAI,
        unique_id=f"kqueue-{arguments[0]}",
        code_format=_FONT_FACE.sub("", CONSOLE_SVG_FORMAT),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("HOME", home)
        asyncio.run(main())
