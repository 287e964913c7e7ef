"""`kqueue demo` as a user runs it."""

from __future__ import annotations

import asyncio
import sys

import pytest

pytestmark = pytest.mark.slow


async def test_the_demo_tells_its_story_and_checks_itself() -> None:
    """It ends with exit code 0, shows who waits and why, draws the topology, says what it has checked, and
    shows queues and domains with the command line.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "demo"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 170)
    text = out.decode()

    assert process.returncode == 0, text[-4000:]
    for fact in (
        "patient-gang: waiting",
        " of 100 pods",
        "impossible-gang: waiting",
        "With no workload running, the best ",
        "The job on each node",
        "Conditions:",
        "patient-gang: finished",
        "submitted leader-and-workers: 7 pods (leader 1, workers 2 x 3), required: one rack, all together",
        "leader-and-workers: evicted - Makes room for default/job-urgent-gang",
        "urgent-gang: finished",
        "leader-and-workers: finished",
        "Checked: every gang ran inside its domain",
        "pod-group (Kueue's group of pods): 2 pods started as one Workload",
        "labels (two labels): 2 pods started as one Workload; 1 more started alone",
        "coscheduling (a PodGroup of the coscheduling plugin): 2 pods started as one Workload",
        "volcano (a PodGroup of Volcano): 2 pods started as one Workload",
        "batch-process (a BatchProcess of two types): 3 pods started as one Workload",
        "kubernetes (a PodGroup of Kubernetes): 2 pods started as one Workload",
        "          one by one         planned together\n  b1-r6   SSSSSS",
        "\n  b1-r7   TTTTTTTAAAAA....   TTTTTTTGGGGGGGGG\n",
        "One by one, gamma would wait.  The plan has room for all of them.",
        "Optimal: 19 units of at most 19, gap 0.000; one by one 10",
        "whole-rack: waiting - Quota is there; no room in the topology",
        "  b1-r6   SSSSSS..........   SSSSSSTTTTTTT...\n  b1-r7   TTTTTTT.........   WWWWWWWWWWWWWWWW\n",
        "The plan is done: train runs again in the other rack, and whole-rack has started.\n\n"
        "  b1-r6   SSSSSSTTTTTTT...\n  b1-r7   WWWWWWWWWWWWWWWW\n",
        "labels          kqueue.dev/coscheduling-labels   Running   2        3         3 ",
        "PodGroup default/coscheduling: Running, 2 of 2 pods run; quorum 2, 2 pods are there",
        "$ kqueue explain workload job-patient-gang-2-",
        "It would start if",
        "$ kqueue top queues --once",
        "research   company   Active   0         0              3 ",
        "$ kqueue topology datacentre",
        "Topology datacentre, flavor gpu: 255 nodes, 1 more left out (2 blocks, 16 racks)",
        "b1-r7-h15   b1/b1-r7   it is cordoned",
        "patient-gang-3 is to start at ",
        "... and has started at ",
        "kqueue dashboard shows queues, domains and start times as a page",
    ):
        assert fact in text, text[-6000:]
