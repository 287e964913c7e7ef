"""Marks of processes: an end is reported only when it is certain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kqueue.runtime.process_mark import ended_for, has_ended, own_mark, remember_processes, take_census


def stat(pid: int, *, state: str = "S", started: int = 500, name: str = "python") -> str:
    """A line of /proc/PID/stat."""
    return f"{pid} ({name}) {state} " + " ".join(["1"] * 18) + f" {started} 0 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with this process, which began at 500, and process 77."""
    boot = tmp_path / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("3f0d-boot\n")
    for pid in (os.getpid(), 77):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat(pid))
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / "self/mounts").write_text("/dev/sda / ext4 rw 0 0\nproc /proc proc rw,relatime 0 0\n")
    (tmp_path / "self/ns").mkdir()
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    return tmp_path


def mark_of(proc: Path, pid: int = 77, started: int = 500) -> str:
    """The mark of a process on the machine of `proc`."""
    own = own_mark(proc)
    assert own is not None
    return f"{own.split('.')[0]}.{pid}.{started}"


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        pytest.param(stat(77), False, id="it-runs"),
        pytest.param(stat(77, name="a) Z (b"), False, id="its-name-holds-brackets"),
        pytest.param(stat(77, state="Z"), True, id="it-is-a-zombie"),
        pytest.param(stat(77, state="T"), False, id="it-is-stopped"),
        pytest.param(stat(77, started=501), True, id="its-number-was-given-to-a-later-process"),
        pytest.param(None, True, id="there-is-no-such-process"),
        pytest.param("77 (short", False, id="the-line-cannot-be-read"),
    ],
)
def test_the_process_table_says_whether_it_has_ended(proc: Path, line: str | None, ended: bool) -> None:
    """By number and start time; doubt means alive."""
    file = proc / "77" / "stat"
    if line is None:
        file.unlink()
    else:
        file.write_text(line)
    assert has_ended(mark_of(proc), proc, exists=nothing) is ended


def nothing(_: int) -> bool:
    """The kernel knows no process that /proc does not show."""
    return False


def test_a_process_that_proc_hides_counts_as_alive(proc: Path) -> None:
    """/proc may be mounted so that it hides processes of other users; the kernel still knows their numbers."""
    mark = mark_of(proc, pid=4711)
    assert not has_ended(mark, proc, exists=lambda pid: pid == 4711)
    assert has_ended(mark, proc, exists=nothing)


@pytest.mark.parametrize(
    ("pid", "started", "lacks"),
    [
        pytest.param(4711, 499, True, id="gone-and-older-than-the-one-that-counts"),
        pytest.param(77, 499, False, id="its-number-was-there"),
        pytest.param(4711, 500, False, id="it-may-have-started-after-the-count"),
    ],
)
def test_a_census_tells_who_had_ended_by_then(proc: Path, pid: int, started: int, lacks: bool) -> None:
    """Only an older process whose number is missing; of another machine nothing is known."""
    census = take_census(proc)
    assert census is not None
    machine, _, _ = mark_of(proc).split(".")
    assert census.lacks(machine, pid, started) is lacks
    assert not census.lacks("0123456789ab", pid, started)


@pytest.mark.parametrize("mounts", ["proc /proc proc rw,hidepid=invisible 0 0\n", "/dev/sda / ext4 rw 0 0\n"])
def test_no_census_is_taken_where_processes_may_be_missing(proc: Path, mounts: str) -> None:
    """A process of another user would look as if it had ended."""
    (proc / "self/mounts").write_text(mounts)
    assert take_census(proc) is None


def test_what_is_no_mark_tells_nothing() -> None:
    """Nor does the mark of this process, which runs, after a census."""
    remember_processes()
    assert ended_for("pod-1") is None
    assert ended_for(own_mark() or "") is None


@pytest.mark.parametrize(
    "change", ["boot", "namespace", "time-namespace", "proc-of-another-namespace", "no-proc", "no-mark"]
)
def test_of_another_machine_nothing_is_known(proc: Path, change: str) -> None:
    """After another boot, in another PID namespace, or without /proc, a process that is not found counts as alive."""
    mark = mark_of(proc, pid=4711)
    assert has_ended(mark, proc, exists=nothing)
    if change == "boot":
        (proc / "sys/kernel/random/boot_id").write_text("another\n")
    if change == "namespace":
        (proc / "self/ns/pid").unlink()
        (proc / "self/ns/pid").symlink_to("pid:[4026531999]")
    if change == "time-namespace":
        (proc / "self/ns/time").symlink_to("time:[4026531999]")
    if change == "proc-of-another-namespace":
        (proc / "self").unlink()
        (proc / "self").symlink_to("1")
        assert own_mark(proc) is None
    if change == "no-proc":
        (proc / "sys/kernel/random/boot_id").unlink()
        assert own_mark(proc) is None
    assert not has_ended("pod-1" if change == "no-mark" else mark, proc, exists=nothing)
