"""Joint placement in a running cluster: gangs that one by one would keep from starting run, whatever fails meanwhile."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from kqueue.operations.checkup.joint import verdict_of
from kqueue.operations.checkup.values import StepStatus
from kqueue.scheduling.joint import process
from kqueue.scheduling.joint.rounds import JointRounds, RoundResult
from tests.integration.joint.joint_road import (
    CONFIGURATION,
    JOINT,
    Gang,
    JointRoad,
    Plane,
    configuration,
    controlled,
    hosts_held,
    is_alive,
    planners_of,
    until,
    watched,
)
from tests.integration.road import condition, controller
from tests.integration.test_explain import VISIBILITY, command, explaining
from tests.readings import failing, page_of

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

FIVE_FIVE_NINE = (Gang("a", 5), Gang("b", 5), Gang("c", 9))
SIXTY = (
    *(Gang(f"five-{n}", 5) for n in range(6)),
    *(Gang(f"nine-{n}", 9) for n in range(3)),
    Gang("seven", 7),
    *(Gang(f"six-{n}", 6) for n in range(50)),
)
SIXTY_FOUR_NODES = (10, 10, 10, 9, 9, 9, 7)


async def test_gangs_that_one_by_one_do_not_all_start_run(either_plane: Plane) -> None:
    """E2: 5 and 5 share the rack of 10 hosts, so that 9 have the other one."""
    road = await JointRoad.make(either_plane.cluster, (10, 9))
    async with controlled(either_plane, configuration()) as operator:
        await road.submit_gangs(FIVE_FIVE_NINE)
        await road.until_queued(3)
        await road.open()
        await road.until_running(a=5, b=5, c=9)
        racks = {name: await road.racks_of(name) for name in "abc"}
    assert isinstance(operator.rounds, JointRounds)
    assert operator.rounds.last is not None
    assert operator.rounds.last.units > operator.rounds.last.greedy_units
    assert racks["a"] == racks["b"] != racks["c"]


async def _hosts_of_sixty(plane: Plane, road: JointRoad, text: str) -> int:
    """The hosts that the gangs get which a controller with this configuration admits; then all is as before."""
    await road.hold()
    async with controlled(plane, configuration(text)):
        await road.add_workloads(SIXTY)
        await road.open()
        hosts = hosts_held(await road.until_settled(len(SIXTY)))
    await road.delete_workloads()
    return hosts


async def test_a_joint_queue_of_sixty_gangs_on_sixty_four_nodes_beats_one_by_one(either_plane: Plane) -> None:
    """The same objects with the feature gate off and on."""
    road = await JointRoad.make(either_plane.cluster, SIXTY_FOUR_NODES)
    one_by_one = await _hosts_of_sixty(either_plane, road, CONFIGURATION)
    jointly = await _hosts_of_sixty(either_plane, road, JOINT)
    assert (one_by_one, jointly) == (48, 64)


async def test_the_next_round_goes_on_when_the_planning_process_is_killed(either_plane: Plane) -> None:
    """It is killed in the middle of a round: ordinary cycles try its gangs, and the next round has a new process."""
    road = await JointRoad.make(either_plane.cluster, (10, 9, 10, 9))
    async with controlled(either_plane, configuration()) as operator:
        rounds, results = watched(operator)
        await road.submit_gangs([Gang("first", 1), Gang("second", 1)])
        await road.until_queued(2)
        await road.open()
        await road.until_running(first=1, second=1)
        (planner,) = planners_of(os.getpid())
        os.kill(planner, signal.SIGSTOP)
        await road.hold()
        await road.submit_gangs([Gang("third", 2), Gang("fourth", 2)])
        await road.until_queued(4)
        await road.open()
        await until(lambda: rounds.is_planning, "a round is being planned")
        os.kill(planner, signal.SIGKILL)
        await road.until_running(third=2, fourth=2)
        await road.hold()
        await road.submit_gangs(FIVE_FIVE_NINE)
        await road.until_queued(7)
        await road.open()
        await road.until_running(a=5, b=5, c=9)
        (other,) = planners_of(os.getpid())
    assert results[-2] is RoundResult.FAILED
    assert results[-1] in (RoundResult.APPLIED, RoundResult.GREEDY)
    assert other != planner
    assert planners_of(os.getpid()) == []


async def test_another_leader_plans_when_the_leader_is_killed_in_the_middle_of_a_round(
    either_plane: Plane, tmp_path: Path
) -> None:
    """Nothing of the round that was being planned is left, and its process ends, too."""
    road = await JointRoad.make(either_plane.cluster, (10, 9, 4))
    config, log = tmp_path / "config.yaml", tmp_path / "log"
    config.write_text(JOINT)
    async with controller(either_plane.kubeconfig, log, config=config) as first:
        await road.submit_gangs([Gang("first", 2), Gang("second", 2)])
        await road.until_queued(2)
        await road.open()
        await road.until_running(first=2, second=2)
        (planner,) = planners_of(first.process.pid)
        os.kill(planner, signal.SIGSTOP)
        await road.hold()
        await road.submit_gangs(FIVE_FIVE_NINE)
        await road.until_queued(5)
        await road.open()
        await road.until_told("PendingEvaluation", 3)
        await first.kill()
    before = len(await road.until_admitted(2))
    os.kill(planner, signal.SIGCONT)
    await until(lambda: not is_alive(planner), "the process that planned has ended")
    async with controller(either_plane.kubeconfig, log, config=config) as second:
        await road.until_running(a=5, b=5, c=9)
        (other,) = planners_of(second.process.pid)
        hosts = hosts_held(await road.until_admitted(5))
    assert (before, hosts) == (2, 23)
    assert other != planner
    assert log.read_text().count("quota reserved") == 5


async def test_a_round_is_seen_where_people_look(either_plane: Plane) -> None:
    """In the message of the reservation, in the visibility API, in `kqueue explain` and in metrics."""
    road = await JointRoad.make(either_plane.cluster, (10, 9))
    async with explaining(either_plane, config=configuration()) as running:
        await running.operator.ready.wait()
        await road.submit_gangs([*FIVE_FIVE_NINE, Gang("d", 4)])
        await road.until_queued(4)
        await road.open()
        await road.until_running(a=5, b=5, c=9)
        reserved = condition(await road.workload_of("c"), "QuotaReserved")["message"]
        latest = await either_plane.cluster.get(f"{VISIBILITY}/jointrounds/latest")
        rounds = await either_plane.cluster.get(f"{VISIBILITY}/jointrounds")
        code, page, problem = await command(either_plane, "job/d", "-n", road.namespace)
        doctor = verdict_of(rounds)
        metrics = page_of(running.operator.metrics).decode()

    number = latest["number"]
    assert reserved == f"Quota reserved in ClusterQueue team, joint round {number}, gap 0.000"
    assert [(e["clusterQueue"], e["planned"]) for e in latest["entries"]] == [("team", True)] * 3 + [("team", False)]
    assert rounds["items"][0]["number"] == number
    assert (code, problem) == (0, "")
    assert f"left out by joint round {number}, proven: no placement of all that come before it leaves room" in page
    assert doctor.status is StepStatus.OK
    assert 'kqueue_joint_units{flavor="gpu",kind="greedy",replica_role="' in metrics
    assert 'kqueue_joint_rounds_total{result="applied",replica_role="' in metrics


async def test_without_its_process_joint_placement_rests_and_the_controller_stays_ready(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rounds fail, and gangs are placed one by one."""
    monkeypatch.setattr(process, "_MODULE", "no.such.module")
    road = await JointRoad.make(either_plane.cluster, (10, 9))
    async with controlled(either_plane, configuration()) as operator:
        rounds, results = watched(operator)
        for number in range(3):
            await road.submit_gangs([Gang(f"first-{number}", 1), Gang(f"second-{number}", 1)])
            await road.until_queued(2 * (number + 1))
            await road.open()
            await road.until_admitted(2 * (number + 1))
            await road.hold()
        assert rounds.is_paused
        metrics, not_ready = page_of(operator.metrics).decode(), failing(operator.checks)
        await road.submit_gangs([Gang("last", 2), Gang("least", 2)])
        await road.until_queued(8)
        await road.open()
        await road.until_admitted(8)
    assert results == [RoundResult.FAILED] * 3
    assert re.search(r"^kqueue_joint_paused\{.*\} 1(\.0)?$", metrics, re.MULTILINE)
    assert not_ready == {}


async def test_without_the_feature_gate_the_profile_means_best_fit(
    either_plane: Plane, capfd: pytest.CaptureFixture[str]
) -> None:
    """The gangs are placed one by one, and the log says so once."""
    road = await JointRoad.make(either_plane.cluster, (10, 9))
    async with controlled(either_plane, configuration(CONFIGURATION)) as operator:
        await road.submit_gangs(FIVE_FIVE_NINE)
        await road.until_queued(3)
        await road.open()
        await road.until_running(a=5, b=5)
        admitted = await road.until_settled(3)
    assert operator.rounds is None
    assert capfd.readouterr().out.count("profile joint means best fit, because the feature gate is off") == 1
    assert hosts_held(admitted) == 10
    assert planners_of(os.getpid()) == []
