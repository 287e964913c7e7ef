"""`kqueue demo` as a user runs it."""

from __future__ import annotations

import asyncio
import sys

import pytest

pytestmark = pytest.mark.slow


async def test_the_demo_tells_its_story_and_checks_itself() -> None:
    """It ends with exit code 0, shows who waits and why, draws the topology, and says what it has checked."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "demo"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 170)
    text = out.decode()

    assert process.returncode == 0, text[-4000:]
    for fact in (
        "patient-gang: waiting",
        "100 pods do not fit in one domain",
        "impossible-gang: waiting",
        "it would not fit on an empty cluster either",
        "Who holds which node",
        "Conditions:",
        "patient-gang: finished",
        "submitted leader-and-workers: 7 pods (leader 1, workers 2 x 3), required: one rack, all together",
        "leader-and-workers: evicted - Makes room for default/job-urgent-gang",
        "urgent-gang: finished",
        "leader-and-workers: finished",
        "Checked: every gang ran inside its domain",
    ):
        assert fact in text, text[-6000:]
