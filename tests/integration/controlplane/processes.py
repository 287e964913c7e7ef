"""Child processes that end with the test process, and whose last output is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TAIL_LINES = 25
TAIL_COLUMNS = 240

# Runs in the child before the program: the kernel kills it when its parent dies, even by SIGKILL.  A small program of
# its own and not a `preexec_fn`, which may deadlock where there are threads.  1 is PR_SET_PDEATHSIG, Linux only.
LEASH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def leashed(argv: Sequence[str | Path]) -> list[str]:
    """The command line that runs a program (by its absolute path) so that it ends when this process ends."""
    return [sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid()), *map(str, argv)]


@dataclass(frozen=True, slots=True)
class Process:
    """One running part."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @classmethod
    def start(cls, argv: Sequence[str | Path], *, logs: Path) -> Process:
        """Start a program by its absolute path; its output goes to `logs/<name>.log`."""
        name = Path(argv[0]).name
        log = logs / f"{name}.log"
        with log.open("ab") as sink:
            popen = subprocess.Popen(
                leashed(argv),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests; we stop the parts
            )
        return cls(name, log, popen)

    @property
    def pid(self) -> int:
        """The process id, valid until `stop` returns."""
        return self.popen.pid

    def ended(self) -> int | None:
        """The exit status; None while it runs."""
        return self.popen.poll()

    def stop(self) -> None:
        """End it and wait until it is gone.

        SIGKILL at once: its data are thrown away, and a graceful API server waits for watches to end.
        """
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def tail(self) -> str:
        """The last words of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"--- {self.log}", *(line[:TAIL_COLUMNS] for line in lines)])
