"""Marks of processes: an end is reported only when it is certain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kqueue.runtime.process_mark import has_ended, own_mark


def stat(pid: int, *, state: str = "S", started: int = 500, name: str = "python") -> str:
    """A line of /proc/PID/stat."""
    return f"{pid} ({name}) {state} " + " ".join(["1"] * 18) + f" {started} 0 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with this process and process 77."""
    boot = tmp_path / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("3f0d-boot\n")
    for pid in (os.getpid(), 77):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat(pid))
    (tmp_path / "self/ns").mkdir(parents=True)
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
    assert has_ended(mark_of(proc), proc) is ended


@pytest.mark.parametrize("change", ["boot", "namespace", "no-proc", "no-mark"])
def test_of_another_machine_nothing_is_known(proc: Path, change: str) -> None:
    """After another boot, in another PID namespace, or without /proc, a process that is not found counts as alive."""
    mark = mark_of(proc, pid=4711)
    assert has_ended(mark, proc)
    if change == "boot":
        (proc / "sys/kernel/random/boot_id").write_text("another\n")
    if change == "namespace":
        (proc / "self/ns/pid").unlink()
        (proc / "self/ns/pid").symlink_to("pid:[4026531999]")
    if change == "no-proc":
        (proc / "sys/kernel/random/boot_id").unlink()
        assert own_mark(proc) is None
    assert not has_ended("pod-1" if change == "no-mark" else mark, proc)
