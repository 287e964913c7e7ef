"""`kqueue drain`: the survey of a domain, and the commands against an API server without a controller."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kqueue.api.reservation import DomainReservation
from kqueue.api.reservation_names import CORDONED_FOR_ANNOTATION
from kqueue.cli.app import run
from kqueue.clock import FakeClock
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS, NODES, RESERVATIONS, WORKLOADS
from kqueue.errors import ConfigError, NotFoundError
from kqueue.operations.defrag.reading import ClusterObjects, state_of
from kqueue.operations.drain.nodes import cordon, uncordon
from kqueue.operations.drain.run import DrainState, DrainWish, drain, undo, wait
from kqueue.operations.drain.survey import survey
from kqueue.operations.drain.target import DrainTarget, reservation_object, target_of, time_of
from kqueue.runtime.client import Client
from kqueue.sandbox import Sandbox
from tests.unit.cli.defrag_cluster import NOW, cluster, ours, workload
from tests.unit.cli.test_defrag import write

JSON = dict[str, Any]
B = DrainTarget(topology="dc", domain=("b",))


def surveyed(
    objects: ClusterObjects, domain: str = "b", *, minutes: int = 0, others: tuple[JSON, ...] = ()
) -> dict[str, str]:
    """What becomes of the workloads of a rack that is drained in so many minutes."""
    target = DrainTarget(topology="dc", domain=(domain,))
    begins = NOW + timedelta(minutes=minutes)
    obj = reservation_object(target, begins, begins + timedelta(hours=1), "")
    found = survey(state_of(objects, NOW), target, obj, others)
    return {one.occupant.key: f"{one.fate} {one.detail}".strip() for one in found.workloads}


def limited(objects: ClusterObjects, name: str, seconds: int) -> ClusterObjects:
    """The objects, in which a Workload that has run for an hour has a limit."""
    found = [
        {**obj, "spec": {**obj["spec"], "maximumExecutionTimeSeconds": seconds}}
        if obj["metadata"]["name"] == name
        else obj
        for obj in objects.workloads
    ]
    return replace(objects, workloads=found)


@pytest.mark.parametrize(
    ("objects", "domain", "minutes", "fates"),
    [
        pytest.param(
            cluster(), "b", 0, {"team-b/u": "MayMove to a, and loses 10 pod-minutes"}, id="a gang that may move"
        ),
        pytest.param(
            cluster(u="Never"), "b", 0, {"team-b/u": "Stays kqueue.dev/reschedule: Never"}, id="a gang that may not"
        ),
        pytest.param(
            limited(cluster(u="Never"), "u", 5400), "b", 30, {"team-b/u": "EndsInTime"}, id="a gang with a limit"
        ),
        pytest.param(
            limited(cluster(u="Never"), "u", 5401),
            "b",
            30,
            {"team-b/u": "Stays kqueue.dev/reschedule: Never"},
            id="its limit is a second late",
        ),
        pytest.param(
            replace(cluster(), workloads=[*cluster().workloads, workload("fill", "a", 6, 10)]),
            "b",
            0,
            {"team-b/u": "Stays it has no other place that is free now and as good"},
            id="no room elsewhere",
        ),
    ],
)
def test_a_drain_says_what_becomes_of_each_workload(
    objects: ClusterObjects, domain: str, minutes: int, fates: dict[str, str]
) -> None:
    assert surveyed(objects, domain, minutes=minutes) == fates


def test_no_workload_moves_onto_hosts_that_are_reserved() -> None:
    other = reservation_object(DrainTarget(topology="dc", domain=("a",)), NOW, NOW + timedelta(hours=1), "")
    other["metadata"]["uid"] = "uid-other"
    assert surveyed(cluster(), others=(other,)) == {
        "team-b/u": "Stays it has no other place that is free now and as good"
    }


def test_a_survey_names_the_nodes_without_workloads_cordoned_ones_included() -> None:
    objects = cluster()
    nodes = [
        {**node, "spec": {"unschedulable": True}} if node["metadata"]["name"] == "b15" else node
        for node in objects.nodes
    ]
    obj = reservation_object(B, NOW, NOW + timedelta(hours=1), "")
    found = survey(state_of(replace(objects, nodes=nodes), NOW), B, obj, ())
    assert (len(found.nodes), found.empty) == (16, tuple(f"b{number}" for number in range(10, 16)))


def test_a_domain_is_found_in_its_topology() -> None:
    state = state_of(cluster(), NOW)
    assert target_of(state.cache, "b/b03", "") == DrainTarget(topology="dc", domain=("b", "b03"))
    with pytest.raises(NotFoundError, match=r"no Topology \(dc\) has the domain z"):
        target_of(state.cache, "z", "")
    with pytest.raises(NotFoundError, match="Topology x has no domain b"):
        target_of(state.cache, "b", "x")


def test_a_domain_of_two_topologies_needs_the_name_of_one() -> None:
    objects = cluster()
    topology = {**objects.topologies[0], "metadata": {"name": "dd"}}
    flavor = ours("ResourceFlavor", "also", {"topologyName": "dd", "nodeLabels": {"pool": "gpu"}})
    state = state_of(
        replace(objects, topologies=[*objects.topologies, topology], flavors=[*objects.flavors, flavor]), NOW
    )
    with pytest.raises(ConfigError, match="dc, dd have a domain b: name one by --topology"):
        target_of(state.cache, "b", "")
    assert target_of(state.cache, "b", "dd").topology == "dd"


def test_names_of_different_domains_differ() -> None:
    names = {DrainTarget(topology="dc", domain=path).name for path in (("a-b",), ("a", "b"), ("A", "b"), ("a_b",))}
    assert len(names) == 4
    DomainReservation.read(reservation_object(B, NOW, NOW + timedelta(hours=1), "q"))


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("2h30m", 150), ("3d", 4320), ("2026-01-01T13:00:00Z", 60), ("2026-01-01T14:00:00+01:00", 60)],
)
def test_a_time_is_a_moment_or_a_duration(text: str, minutes: int) -> None:
    assert time_of(text, "--by", NOW) == NOW + timedelta(minutes=minutes)


@pytest.mark.parametrize("text", ["tomorrow", "2026-01-01T13:00:00", "13:00", "-1h", "1d2h", "99999d"])
def test_a_time_without_a_zone_or_before_now_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--by"):
        time_of(text, "--by", NOW)


async def node(client: Client, name: str) -> tuple[bool, str | None]:
    """Whether a node is cordoned, and the mark of a drain."""
    found = await client.get_json(NODES, name)
    marks = found["metadata"].get("annotations") or {}
    return bool((found.get("spec") or {}).get("unschedulable")), marks.get(CORDONED_FOR_ANNOTATION)


async def test_only_nodes_that_a_drain_has_cordoned_are_uncordoned(client: Client) -> None:
    for name in ("n1", "n2", "n3"):
        await client.create(NODES, {"metadata": {"name": name}})
    await client.patch(NODES, "n2", {"spec": {"unschedulable": True}})
    assert await cordon(client, ["n1", "n2", "n3", "gone"], "r") == ["n1", "n3"]
    assert [await node(client, name) for name in ("n1", "n2", "n3")] == [(True, "r"), (True, None), (True, "r")]
    assert await uncordon(client, "another") == []
    await client.patch(NODES, "n3", {"spec": {"unschedulable": None}})
    assert await uncordon(client, "r") == ["n1"]
    assert [await node(client, name) for name in ("n1", "n2", "n3")] == [(False, None), (True, None), (False, None)]


async def test_the_command(
    sandbox: Sandbox, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Drain, drain again, and undo; what was not asked for stays as it is."""
    kubeconfig = tmp_path / "kubeconfig"
    sandbox.write_kubeconfig(kubeconfig)
    await write(client, cluster())

    async def call(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, ["drain", *words, "--kubeconfig", str(kubeconfig)])
        return code, capsys.readouterr().out

    code, text = await call("b", "--by", "2h")
    assert code == 0
    assert "16 nodes, 1 workload there" in text
    assert "may move to a, and loses" in text
    assert "No node is cordoned before" in text
    (plan,) = await client.list_json(DEFRAGMENTATION_PLANS)
    assert (plan["status"]["domain"], plan["status"]["phase"]) == (["b"], "Proposed")
    assert f"kqueue defrag approve {plan['metadata']['name']} begins them" in text
    assert f"kqueue defrag show {plan['metadata']['name']}; they are approved" in (await call("b", "--move"))[1]

    code, text = await call("b", "--by", "0", "-o", "json")
    told = json.loads(text)
    assert (code, told["plan"], told["workloads"][0]["fate"]) == (0, plan["metadata"]["name"], "MayMove")
    assert told["cordoned"] == [f"b{number}" for number in range(10, 16)], "hosts without workloads"
    (stored,) = await client.list_json(RESERVATIONS)
    assert stored["spec"]["domain"] == ["b"]
    assert len(await client.list_json(DEFRAGMENTATION_PLANS)) == 1

    code, text = await call("b", "--wait", "--timeout", "0s")
    assert (code, "6 of 16 nodes are cordoned" in text) == (1, True)
    await client.delete(WORKLOADS, "u", "team-b")
    code, text = await call("b", "--wait", "--timeout", "1s")
    assert (code, "Empty: 16 nodes cordoned" in text) == (0, True)

    code, text = await call("b", "--undo", "-o", "json")
    undone = json.loads(text)
    assert (code, undone["deleted"], len(undone["uncordoned"])) == (0, True, 16)
    assert (await client.list_json(RESERVATIONS), await node(client, "b00")) == ([], (False, None))
    assert "There was no Reservation" in (await call("b", "--undo"))[1]

    for words in (
        ("b", "--undo", "--by", "1h"),
        ("b", "--by", "soon"),
        ("b", "--by", "2h", "--until", "1h"),
        ("b", "--wait", "--timeout", "-1s"),
    ):
        assert (await call(*words))[0] == 2
    for missing in (("z",), ("b", "--for", "nobody")):
        assert (await call(*missing))[0] == 1
    assert await client.list_json(RESERVATIONS) == []


async def test_a_drain_for_a_cluster_queue_cordons_no_node(client: Client) -> None:
    """It is over once no workload of others is there."""
    await write(client, replace(cluster(), workloads=[]))
    told: list[frozenset[str]] = []
    wish = DrainWish(domain="b", queue="team")
    found = await wait(client, wish, FakeClock(NOW), limit=60.0, on_change=lambda state: told.append(state.cordoned))
    assert (found.survey.workloads, told) == ((), [frozenset()])
    (stored,) = await client.list_json(RESERVATIONS)
    assert stored["spec"]["clusterQueue"] == "team"


@pytest.mark.parametrize("then", [{"by": NOW + timedelta(hours=1)}, {"queue": "team"}], ids=["later", "for a queue"])
async def test_a_drain_that_asks_for_no_cordons_any_more_takes_its_own_back(client: Client, then: JSON) -> None:
    await write(client, replace(cluster(), workloads=[]))
    await client.patch(NODES, "b01", {"spec": {"unschedulable": True}})
    clock = FakeClock(NOW)
    assert len((await drain(client, DrainWish(domain="b", by=NOW), clock)).cordoned) == 16
    found = await drain(client, DrainWish(domain="b", cordons=False, **then), clock)
    assert await node(client, "b00") == (True, B.name), "--no-cordon leaves nodes alone"
    found = await drain(client, DrainWish(domain="b"), clock)
    assert (found.cordoned, len(found.remarks)) == (frozenset(), 1)
    assert (await node(client, "b00"), await node(client, "b01")) == ((False, None), (True, None))


async def test_a_node_of_another_drain_stays_cordoned(client: Client) -> None:
    """The rack is open again, and one of its hosts is not: its own drain goes on."""
    await write(client, replace(cluster(), workloads=[]))
    clock = FakeClock(NOW)
    await drain(client, DrainWish(domain="b"), clock)
    host = await drain(client, DrainWish(domain="b/b03"), clock)
    assert len((await undo(client, "b", "", clock))[1]) == 15
    assert (await node(client, "b02"), await node(client, "b03")) == ((False, None), (True, host.target.name))
    assert (await undo(client, "b/b03", "", clock))[1] == ["b03"]
    assert await node(client, "b03") == (False, None)


async def test_a_wait_tells_changes_and_not_the_passing_of_time(client: Client) -> None:
    """Why a workload stays has the seconds that it has run, which are no news."""

    class Skipping(FakeClock):
        """A clock that goes on at once when somebody sleeps."""

        async def sleep(self, seconds: float) -> None:
            sleeps.append(seconds)
            await self.advance(seconds)

    sleeps, told = list[float](), list[DrainState]()
    await write(client, cluster())
    clock = Skipping(datetime.now(UTC) - timedelta(minutes=55))
    found = await wait(client, DrainWish(domain="b"), clock, limit=20.0, on_change=told.append)
    assert "of at least 600 s" in found.survey.workloads[0].detail
    assert found.survey.workloads[0].detail != told[0].survey.workloads[0].detail
    assert (len(told), sleeps) == (1, [2.0, 3.0, 4.5, 6.75, 3.75]), "looks become rarer, too"
