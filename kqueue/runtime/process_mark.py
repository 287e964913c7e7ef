"""Names a process so that another one on the same machine can find out whether it has ended.

A mark is `MACHINE.PID.STARTED`: a digest of the boot and of the PID namespace, the process id, and the start time in
clock ticks since boot.  In another boot or namespace nothing is known of the process, so it counts as alive.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

_MARK = re.compile(r"([0-9a-f]{12})\.(\d+)\.(\d+)")
_PROC = Path("/proc")
_GONE = frozenset("ZX")
"""States of proc(5): a zombie runs nothing any more, and waits for its parent to read its exit status."""


def own_mark(proc: Path = _PROC) -> str | None:
    """The mark of this process; None where the system has no /proc as Linux has it."""
    pid = os.getpid()
    try:
        machine, (_, started) = _machine(proc), _stat(proc, pid)
    except (OSError, ValueError):
        return None
    return f"{machine}.{pid}.{started}"


def has_ended(mark: str, proc: Path = _PROC) -> bool:
    """Whether the process with this mark ran on this machine and does not any more.

    False when that is not certain: another machine or namespace, no /proc, or no mark.
    """
    found = _MARK.fullmatch(mark)
    try:
        if found is None or found[1] != _machine(proc):
            return False
    except OSError:
        return False
    try:
        state, started = _stat(proc, int(found[2]))
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return state in _GONE or started != int(found[3])


def _machine(proc: Path) -> str:
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    namespace = (proc / "self/ns/pid").readlink()
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def _stat(proc: Path, pid: int) -> tuple[str, int]:
    """State and start time of a process; the name before them is in brackets and may hold anything.

    Raises:
        FileNotFoundError: there is no such process.
        ValueError: the line does not read as proc(5) says.
    """
    try:
        line = (proc / str(pid) / "stat").read_text(errors="replace")
    except ProcessLookupError as e:  # it ended between open and read
        raise FileNotFoundError(str(pid)) from e
    fields = line.rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields after the name")
    return fields[0], int(fields[19])
