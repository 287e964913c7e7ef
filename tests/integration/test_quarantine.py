"""A workload that breaks the planner, on the sandbox and on a real control plane: left alone, told, and tried again."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.core import cycle as core_cycle
from kqueue.core import flavors
from kqueue.manager.process import running
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.road import has
from tests.integration.teams import FAST, Plane, configuration, flags, make_teams
from tests.readings import page_of

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]


def plant(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
    """Let a part of the planner fail on the Workload of the Job `bad`."""
    whole = getattr(where, name)

    def broken(*args: Any, **more: Any) -> Any:
        for given in (*args, *more.values()):
            for each in given if isinstance(given, list) else [given]:
                if getattr(getattr(each, "head", each), "key", "").rpartition("/")[2].startswith("job-bad-"):
                    raise ZeroDivisionError("planted")
        return whole(*args, **more)

    monkeypatch.setattr(where, name, broken)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        pytest.param(flavors, "assign", id="planning it", marks=pytest.mark.seldom),
        pytest.param(core_cycle._Cycle, "turns", id="ordering a cycle that it is in"),
    ],
)
async def test_a_workload_that_breaks_the_planner_stops_nobody(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    """It says Quarantined, with an event and a metric; the jobs behind it and beside it run; when the fault is mended
    and somebody asks for it by the annotation, it runs, too.
    """
    teams = await make_teams(either_plane, {"red": 16, "blue": 16}, queueingStrategy="StrictFIFO")
    async with running(configuration(), flags(either_plane), timings=FAST) as process:
        await process.operator.ready.wait()
        with monkeypatch.context() as planted:
            plant(planted, where, name)
            await teams.submit("bad", queue="red", pods=1, run_seconds=1)
            await teams.until_workload("bad", "QuotaReserved", status="False", reason="Quarantined")
            for number in range(3):
                await teams.submit(f"behind-{number}", queue="red", pods=2, run_seconds=1)
                await teams.submit(f"beside-{number}", queue="blue", pods=2, run_seconds=1)
            await teams.until_complete(*(f"{where}-{n}" for n in range(3) for where in ("behind", "beside")))
            process.operator.metrics.quarantined(process.operator.manager.quarantine.by_queue())
            page = page_of(process.operator.metrics).decode()
            waiting = await teams.workload_of("bad")
            notes = await teams.events_of("bad", "Quarantined")
        path = f"{teams.workloads}/{waiting['metadata']['name']}"
        again = {"metadata": {"annotations": {"kqueue.dev/try-again": "once"}}}
        await either_plane.cluster.request("PATCH", path, again, content_type=MERGE_PATCH)
        await teams.until_complete("bad")

    [line] = [each for each in page.splitlines() if each.startswith("kqueue_quarantined_workloads{")]
    assert 'cluster_queue="red"' in line
    assert line.endswith(" 1.0")
    assert all("ZeroDivisionError: planted" in note and "kqueue.dev/try-again" in note for note in notes)
    assert len(notes) == 1
    assert not has(waiting, "QuotaReserved")
    assert process.operator.manager.quarantine.by_queue() == {}
