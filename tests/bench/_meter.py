"""What a run takes: processor time of processes and of the machine, memory."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType


def cpu_seconds(pid: int) -> float:
    """User and system time of a running process so far."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """The largest resident set of a running process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def resident_kib() -> float:
    """The present memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


_SHARED = (type, ModuleType, FunctionType)


def held_kib(roots: Sequence[object]) -> float:
    """The memory of these objects and of all that they refer to, each object counted once; code counts nothing."""
    seen: set[int] = set()
    todo, size = list(roots), 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, _SHARED):
            continue
        seen.add(id(each))
        size += sys.getsizeof(each)
        todo.extend(gc.get_referents(each))
    return size / 1024


@dataclass(frozen=True, slots=True)
class Processors:
    """Seconds of all processors since the machine started, as /proc/stat counts them."""

    busy: float
    idle: float
    stolen: float

    @classmethod
    def now(cls) -> Processors:
        """Read /proc/stat; idle includes waiting for disks, stolen is what other guests of the host took."""
        user, nice, system, idle, waiting, hard, soft, stolen = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        tick = os.sysconf("SC_CLK_TCK")
        return cls((user + nice + system + hard + soft) / tick, (idle + waiting) / tick, stolen / tick)


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds of one stretch of time."""

    by: Mapping[str, float]
    """Of each process by its name, and `others`: all other processes of the machine."""
    idle: float
    stolen: float

    @property
    def ours(self) -> float:
        """All named processes together."""
        return sum(seconds for name, seconds in self.by.items() if name != "others")


class Meter:
    """Measures from its creation on what these processes use."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        """`pids` by name; all of them run until the last call of `spent`."""
        self._pids = dict(pids)
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        self._machine = Processors.now()

    def spent(self) -> Spent:
        """What was used since the creation."""
        by = {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}
        now, then = Processors.now(), self._machine
        by["others"] = max(0.0, now.busy - then.busy - sum(by.values()))
        return Spent(by, now.idle - then.idle, now.stolen - then.stolen)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest of the values that so many percent of them do not exceed; `values` is not empty."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
