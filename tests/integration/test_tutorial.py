"""docs/tutorial.md, command by command, as its reader runs it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.controlplane import binaries

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
SECONDS = 60
"""After which a reader would think that something is wrong."""
OTHER_PORTS = {
    "kqueue sandbox": "kqueue sandbox --port 0",
    "kqueue controller": "kqueue controller --webhook-port 0 --health-address 0 --metrics-address 0 --visibility-port 0",
}
"""The reader has the machine for himself; tests run beside each other."""
_BLOCK = re.compile(
    r"(?:<!-- (?P<note>[a-z ]+) -->\n)?```sh\n(?P<code>.*?)```\n(?:```text\n(?P<shown>.*?)```)?", re.DOTALL
)
_VARIES = re.compile(r"\d+[smh](?:\d+s)?\b|-[0-9a-f]{5}\b|\d{4}-\d\d-\d\d \d\d:\d\dZ")
"""Times, and the last part of a Workload's name."""


@dataclass(frozen=True, slots=True)
class Step:
    """A block of commands; `note` says where they run, `shown` what the page says that they print."""

    code: str
    note: str
    shown: str


def steps(text: str) -> Iterator[Step]:
    """The blocks of a page, in order."""
    for found in _BLOCK.finditer(text):
        yield Step(found["code"], found["note"] or "", found["shown"] or "")


def shows(out: str, shown: str) -> bool:
    """Whether something was printed that agrees with the page, but for times, ends of names, widths of columns, and what
    the page leaves out (`...`).
    """
    lines = (" ".join(line.split()) for line in _VARIES.sub("...", shown).strip().splitlines())
    wanted = r"\n".join(re.escape(line).replace(re.escape("..."), ".*?") for line in lines)
    return re.search(wanted, "\n".join(" ".join(line.split()) for line in out.splitlines())) is not None


class Reader:
    """Somebody with several terminals in one folder."""

    def __init__(self, folder: Path) -> None:
        kubectl = binaries.kubectl()
        assert kubectl is not None
        path = os.pathsep.join([str(Path(sys.executable).parent), str(Path(kubectl).parent), os.environ["PATH"]])
        self.folder, self.others = folder, list[asyncio.subprocess.Process]()
        self.environment = {**os.environ, "PATH": path, "HOME": str(folder), "KUBECONFIG": str(folder / "kubeconfig")}

    async def open_terminal(self, step: Step) -> None:
        """Run commands that do not end, in a terminal of their own, until it shows what the page shows."""
        code, path = step.code, self.folder / f"terminal-{len(self.others)}.log"
        for command, more in OTHER_PORTS.items():
            code = code.replace(command, more)
        with path.open("wb") as log:
            self.others.append(
                await asyncio.create_subprocess_exec(
                    "bash", "-ec", f"exec 2>&1; {code}", cwd=self.folder, env=self.environment, stdout=log,
                    start_new_session=True,
                )
            )  # fmt: skip
        until = time.monotonic() + SECONDS
        while not all(shows(path.read_text(), line) for line in step.shown.splitlines()):
            assert time.monotonic() < until, f"{step.code}\ndoes not show\n{step.shown}\n{self.logs()}"
            await asyncio.sleep(0.1)

    async def run(self, code: str) -> str:
        """Run commands; what they print.  They fail the test when the last one fails."""
        process = await asyncio.create_subprocess_exec(
            "bash", "-ec", code, cwd=self.folder, env=self.environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        return out.decode()

    async def see(self, step: Step) -> None:
        """Run commands, and again, until they print what the page shows."""
        until, first = time.monotonic() + SECONDS, True
        code = step.code
        while True:
            out = await self.run(code)
            if shows(out, step.shown):
                return
            assert time.monotonic() < until, f"{step.code}\nprints\n{out}\nand not\n{step.shown}\n{self.logs()}"
            if first:
                code, first = step.code.strip().splitlines()[-1], False  # to look again is not to do again
            await asyncio.sleep(0.2)

    def logs(self) -> str:
        """The last words in the other terminals."""
        return "\n".join(log.read_text()[-2000:] for log in sorted(self.folder.glob("terminal-*.log")))

    async def close(self) -> None:
        """Ctrl-C in all other terminals."""
        for process in reversed(self.others):
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGINT)
        for process in self.others:
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                raise


async def follow(reader: Reader, page: Path) -> None:
    """Run all steps of a page, and close the reader's terminals."""
    try:
        for step in steps(page.read_text()):
            if step.note.endswith("terminal"):
                await reader.open_terminal(step)
            elif step.note != "not run":
                await reader.see(step)
    finally:
        await reader.close()


@pytest.mark.controlplane
@pytest.mark.slow
async def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    """Each command does what the page shows under it."""
    reader = Reader(tmp_path)
    await follow(reader, PAGE)

    assert [process.returncode for process in reader.others] == [0, 0], reader.logs()


def test_the_page_has_steps() -> None:
    """Or the test above would be empty."""
    found = list(steps(PAGE.read_text()))

    assert len(found) > 10
    assert sum(bool(step.shown) for step in found) > 6
    assert [step.note for step in found if step.note] == ["not run", "second terminal", "third terminal"]
