"""Names a process so that another process of the machine can check whether it has ended, and how long ago at least.

A mark is `MACHINE.PID.STARTED`: a digest of the boot and of the PID and time namespaces, the process id, and the start
time in clock ticks since boot.  In another boot or namespace the process cannot be checked, so it counts as alive.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_MARK = re.compile(r"([0-9a-f]{12})\.(\d+)\.(\d+)")
_PROC = Path("/proc")
_GONE = frozenset("ZX")
"""States of proc(5): a zombie does not run any more; its parent has not read its exit status."""


@dataclass(frozen=True, slots=True)
class Census:
    """The processes of this machine at one moment."""

    machine: str
    began: int
    """Start time of the process that took the census, in ticks since boot.  Later processes may be missing."""
    pids: frozenset[int]
    taken_at: float
    """Time of `time.monotonic` after the last process was counted.  Where this clock stops while the machine is
    suspended, the measured age is less than the real one."""

    def lacks(self, machine: str, pid: int, started: int) -> bool:
        """Whether a process of this machine had certainly ended at the time of the census."""
        return machine == self.machine and started < self.began and pid not in self.pids


_at_start: Census | None = None


def remember_processes() -> None:
    """Take a census that `ended_for` uses from now on.

    Call this early: a predecessor that is missing in the census has been gone since then, while this process started.
    """
    global _at_start
    _at_start = take_census()


def take_census(proc: Path = _PROC) -> Census | None:
    """Return the present processes; None where not all are visible."""
    try:
        if _hides_processes(proc):
            return None
        machine, (_, began) = _machine(proc), _stat(proc, os.getpid())
        pids = frozenset(int(each.name) for each in proc.iterdir() if each.name.isdecimal())
    except (OSError, ValueError):
        return None
    return Census(machine, began, pids, time.monotonic())


def own_mark(proc: Path = _PROC) -> str | None:
    """Return the mark of this process; None where the system has no /proc like that of Linux."""
    pid = os.getpid()
    try:
        machine, (_, started) = _machine(proc), _stat(proc, pid)
    except (OSError, ValueError):
        return None
    return f"{machine}.{pid}.{started}"


def ended_for(mark: str) -> float | None:
    """Return for how many seconds the process with this mark has certainly been gone; 0: its end was noticed just now.

    None when the end is not certain: the process runs, or ran on another machine or in another namespace, or there is
    no /proc or no mark.
    """
    found = _MARK.fullmatch(mark)
    if found is None or not has_ended(mark):
        return None
    if _at_start is None or not _at_start.lacks(found[1], int(found[2]), int(found[3])):
        return 0.0
    return time.monotonic() - _at_start.taken_at


def has_ended(mark: str, proc: Path = _PROC, *, exists: Callable[[int], bool] | None = None) -> bool:
    """Whether the process with this mark ran on this machine and has ended.

    False when this is not certain: another machine or namespace, no /proc, or no mark.  `exists` asks the kernel about
    a process that /proc does not show, because mount options of /proc may hide processes of other users.
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
        return not (exists or _exists)(int(found[2]))
    except (OSError, ValueError):
        return False
    return state in _GONE or started != int(found[3])


def _exists(pid: int) -> bool:
    """Whether the kernel has a process of this number, of whatever user; True when the kernel does not answer."""
    try:
        os.kill(pid, 0)  # signal 0 is not sent: kill(2)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _hides_processes(proc: Path) -> bool:
    """Whether mount options of /proc may hide processes of other users: proc(5), `hidepid`."""
    lines = (proc / "self/mounts").read_text(errors="replace").splitlines()
    options = [fields[3] for line in lines if len(fields := line.split()) > 3 and fields[2] == "proc"]
    return not options or any("hidepid=" in each for each in options)


def _machine(proc: Path) -> str:
    """Return a digest of the boot and of the namespaces in which process ids and start times are valid.

    Raises:
        OSError: they cannot be read, or /proc shows the process ids of another namespace.
    """
    if str((proc / "self").readlink()) != str(os.getpid()):
        raise OSError(f"{proc} belongs to another PID namespace")
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    spaces = [str(space.readlink()) for name in ("pid", "time") if (space := proc / "self/ns" / name).is_symlink()]
    return hashlib.sha256(" ".join([boot, *spaces]).encode()).hexdigest()[:12]


def _stat(proc: Path, pid: int) -> tuple[str, int]:
    """Return state and start time of a process; its name before them is in brackets and may have any characters.

    Raises:
        FileNotFoundError: there is no such process.
        ValueError: the line does not have the format of proc(5).
    """
    try:
        line = (proc / str(pid) / "stat").read_text(errors="replace")
    except ProcessLookupError as e:  # the process ended between open and read
        raise FileNotFoundError(str(pid)) from e
    fields = line.rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields after the name")
    return fields[0], int(fields[19])
