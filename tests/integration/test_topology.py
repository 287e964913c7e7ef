"""Where pods really run, read off bound pods: preferred racks, slices, ranks in domain order, and repair in place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from kqueue.api import names
from kqueue.config import Configuration, load
from kqueue.core.topology import decode
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.cluster import BLOCK_LABEL, RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, job, make_road

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane

PARTS = frozenset({"core", "scheduler", "jobs", "topology"})
INDEX = "batch.kubernetes.io/job-completion-index"
REQUIRED, PREFERRED = names.REQUIRED_TOPOLOGY_ANNOTATION, names.PREFERRED_TOPOLOGY_ANNOTATION
SLICE_LEVEL, SLICE_SIZE = names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION, names.SLICE_SIZE_ANNOTATION
LAYERS = names.SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION


def configuration() -> Configuration:
    """The defaults, without leader election."""
    found = load(None)
    election = found.leader_election.model_copy(update={"leader_elect": False})
    return found.model_copy(update={"leader_election": election})


def flags(plane: Plane) -> Flags:
    """No probes, no metrics, no webhooks: Jobs here come suspended."""
    return Flags(kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0")


async def submit(road: Road, name: str, asked: Mapping[str, str], **settings: Any) -> None:
    """Create an indexed Job with these annotations on its pods."""
    obj = job(name, road.namespace, required=None, **settings)
    obj["spec"]["template"]["metadata"]["annotations"].update(asked)
    await road.cluster.request("POST", road.jobs, obj)


async def occupy(road: Road, *hosts: str, gpus: int = 8) -> None:
    """A stranger's pod on each host takes these GPUs."""
    for host in hosts:
        container = job("", "", gpus=gpus)["spec"]["template"]["spec"]["containers"][0]
        spec = {"nodeName": host, "containers": [container]}
        metadata = {"name": f"stranger-{host}", "namespace": road.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await road.cluster.request("POST", road.pods, pod)


async def until_bound(road: Road, name: str, pods: int, *, without: str = "") -> dict[int, Object]:
    """Wait until so many pods of the Job run, none of them on the node `without`; completion index -> pod."""

    def found(listed: Object) -> list[Object]:
        mine = [p for p in listed["items"] if p["metadata"].get("labels", {}).get("job-name") == name]
        run = [p for p in mine if p["status"].get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")]
        return [p for p in run if p["spec"]["nodeName"] != without]

    listed = await road.cluster.until(road.pods, lambda got: len(found(got)) == pods, what=f"{pods} pods of {name} run")
    placed = {int(pod["metadata"]["labels"][INDEX]): pod for pod in found(listed)}
    assert sorted(placed) == list(range(pods))
    return placed


async def labels_by_rank(road: Road, placed: Mapping[int, Object], label: str) -> list[str]:
    """This label of the node that each pod is bound to, in the order of their completion indexes."""
    nodes = {n["metadata"]["name"]: n["metadata"]["labels"] for n in (await road.cluster.get("/api/v1/nodes"))["items"]}
    return [nodes[placed[index]["spec"]["nodeName"]][label] for index in sorted(placed)]


def hosts_by_rank(placed: Mapping[int, Object]) -> list[str]:
    """The node of each pod, in the order of their completion indexes."""
    return [placed[index]["spec"]["nodeName"] for index in sorted(placed)]


@pytest.mark.proves("Job", "reclaimable pods")
async def test_the_place_of_a_rank_that_has_finished_is_for_others_while_the_rest_runs(either_plane: Plane) -> None:
    """Two hosts are full with one gang; rank 0 ends, and another Job runs on its host beside rank 1.  A controller that
    is started afterwards knows that from the Workload.
    """
    road = await make_road(either_plane.cluster, shape=(1, 1, 2))
    async with running(configuration(), flags(either_plane)):
        await submit(road, "gang", {REQUIRED: RACK_LABEL}, pods=2, run_seconds=600)
        gang = await until_bound(road, "gang", 2)
        await submit(road, "next", {REQUIRED: RACK_LABEL}, pods=1, run_seconds=600)
        await road.until_workload("next", "QuotaReserved", status="False")
        ended = f"{road.pods}/{gang[0]['metadata']['name']}/status"
        merge = "application/merge-patch+json"
        await road.cluster.request("PATCH", ended, {"status": {"phase": "Succeeded"}}, content_type=merge)
        after = await until_bound(road, "next", 1)
    async with running(configuration(), flags(either_plane)):
        await submit(road, "last", {REQUIRED: RACK_LABEL}, pods=1, run_seconds=600)
        await road.until_workload("last", "QuotaReserved", status="False")
        workload = await road.workload_of("gang")
        pods = {p["metadata"]["name"]: p for p in (await road.cluster.get(road.pods))["items"]}

    assert hosts_by_rank(after) == [gang[0]["spec"]["nodeName"]]
    assert pods[gang[1]["metadata"]["name"]]["status"]["phase"] == "Running"
    assert workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    (given_back,) = workload["status"]["finishedPods"]
    found = decode(given_back["topologyAssignment"])
    assert [(domain.values[-1], domain.count) for domain in found.domains] == [(gang[0]["spec"]["nodeName"], 1)]


async def test_a_preferred_rack_is_kept_where_one_has_room_and_else_as_few_as_possible(either_plane: Plane) -> None:
    """Racks have room for 2, 3 and 4 pods: 3 and 4 pods take the tightest single rack, 6 take two racks, 9 all three."""
    road = await make_road(either_plane.cluster, shape=(1, 3, 4))
    await occupy(road, "node-0-0-0", "node-0-0-1", "node-0-1-0")
    racks: dict[int, Counter[str]] = {}
    async with running(configuration(), flags(either_plane)):
        for pods in (3, 4, 6, 9):
            name = f"gang-{pods}"
            await submit(road, name, {PREFERRED: RACK_LABEL}, pods=pods, run_seconds=600)
            placed = await until_bound(road, name, pods)
            racks[pods] = Counter(await labels_by_rank(road, placed, RACK_LABEL))
            await road.cluster.request("DELETE", f"{road.jobs}/{name}?propagationPolicy=Foreground")

    assert racks == {
        3: {"rack-0-1": 3},
        4: {"rack-0-2": 4},
        6: {"rack-0-2": 4, "rack-0-0": 2},
        9: {"rack-0-0": 2, "rack-0-1": 3, "rack-0-2": 4},
    }


async def choose_profile(road: Road, profile: str) -> None:
    """The tenant's ClusterQueue has its pods placed like this."""
    chosen = {"metadata": {"annotations": {names.PLACEMENT_PROFILE_ANNOTATION: profile}}}
    queue = f"{KUEUE}/clusterqueues/team"
    await road.cluster.request("PATCH", queue, chosen, content_type="application/merge-patch+json")


@pytest.mark.parametrize(
    ("profile", "wanted"),
    [
        pytest.param("BestFit", [2, 4], id="as it comes, one rack is filled up"),
        pytest.param("balanced", [3, 3], id="balanced, both racks get the same"),
    ],
)
async def test_a_queue_chooses_whether_its_gangs_are_balanced(
    either_plane: Plane, profile: str, wanted: list[int]
) -> None:
    """A gang in a block of two racks of four hosts is shared out among these as its ClusterQueue's profile says."""
    road = await make_road(either_plane.cluster, shape=(1, 2, 4))
    await choose_profile(road, profile)
    async with running(configuration(), flags(either_plane)):
        await submit(road, "gang", {PREFERRED: BLOCK_LABEL}, pods=6, run_seconds=600)
        placed = await until_bound(road, "gang", 6)
        racks = Counter(await labels_by_rank(road, placed, RACK_LABEL))

    assert sorted(racks.values()) == wanted


@pytest.mark.parametrize(
    ("profile", "racks"),
    [
        pytest.param("BestFit", 3, id="as it comes, the tightest block is taken, whose racks are half full"),
        pytest.param("optimal", 2, id="optimal, the roomier block is taken, where two racks are enough"),
    ],
)
async def test_a_queue_chooses_whether_its_gangs_get_the_fewest_racks(
    either_plane: Plane, profile: str, racks: int
) -> None:
    """One block has room for 2, 2 and 2 pods in its racks, the other for 4 and 3: a gang of six takes this many."""
    road = await make_road(either_plane.cluster, shape=(2, 3, 4))
    half_full = [f"node-0-{rack}-{host}" for rack in range(3) for host in range(2)]
    await occupy(road, *half_full, "node-1-1-0", *(f"node-1-2-{host}" for host in range(4)))
    await choose_profile(road, profile)
    async with running(configuration(), flags(either_plane)):
        await submit(road, "gang", {PREFERRED: RACK_LABEL}, pods=6, run_seconds=600)
        placed = await until_bound(road, "gang", 6)
        taken = await labels_by_rank(road, placed, RACK_LABEL)

    assert len(set(taken)) == racks


@pytest.mark.parametrize(
    ("asked", "layers"),
    [
        pytest.param(
            {REQUIRED: BLOCK_LABEL, SLICE_LEVEL: RACK_LABEL, SLICE_SIZE: "2"},
            {RACK_LABEL: 2},
            id="pairs of ranks in one rack, all in one block",
        ),
        pytest.param(
            {SLICE_LEVEL: RACK_LABEL, SLICE_SIZE: "2"}, {RACK_LABEL: 2}, id="pairs of ranks in one rack, in any block"
        ),
        pytest.param(
            {LAYERS: json.dumps([{"topology": BLOCK_LABEL, "size": 4}, {"topology": RACK_LABEL, "size": 2}])},
            {BLOCK_LABEL: 4, RACK_LABEL: 2},
            id="fours in one block, and each pair of them in one rack",
        ),
    ],
)
@pytest.mark.proves("Job", "ranks")
async def test_slices_are_whole_by_rank(either_plane: Plane, asked: dict[str, str], layers: dict[str, int]) -> None:
    """Racks have room for three pods: one stays free in each, because a slice is never cut, and ranks keep together."""
    road = await make_road(either_plane.cluster, shape=(2, 4, 3))
    async with running(configuration(), flags(either_plane)):
        await submit(road, "gang", asked, pods=8, run_seconds=600)
        placed = await until_bound(road, "gang", 8)
        by_rank = {label: await labels_by_rank(road, placed, label) for label in (BLOCK_LABEL, RACK_LABEL)}

    cut = {
        label: [first for first in range(0, 8, size) if len(set(by_rank[label][first : first + size])) > 1]
        for label, size in layers.items()
    }
    assert cut == {label: [] for label in layers}
    assert set(Counter(by_rank[RACK_LABEL]).values()) == {2}
    assert REQUIRED not in asked or len(set(by_rank[BLOCK_LABEL])) == 1


@pytest.mark.proves("Job", "ranks")
@pytest.mark.proves("Job", "start with topology")
async def test_completion_indexes_are_in_the_order_of_the_domains(either_plane: Plane) -> None:
    """Hosts with room for 1, 4, 2 and 4 pods: index 0 is on the first, 1 to 4 on the second, and so on."""
    road = await make_road(either_plane.cluster, shape=(1, 2, 2))
    await occupy(road, "node-0-0-0", gpus=6)
    await occupy(road, "node-0-1-0", gpus=4)
    async with running(configuration(), flags(either_plane)):
        await submit(road, "gang", {REQUIRED: BLOCK_LABEL}, pods=11, gpus=2, run_seconds=600)
        placed = await until_bound(road, "gang", 11)

    room = {"node-0-0-0": 1, "node-0-0-1": 4, "node-0-1-0": 2, "node-0-1-1": 4}
    assert hosts_by_rank(placed) == list(Counter(room).elements())


async def test_repair_in_place_moves_the_lost_rank_and_nobody_else(either_plane: Plane) -> None:
    """Of hosts with two, one and two ranks the middle one goes: its rank runs on the rack's spare host, and the pods of
    all others are the same pods as before.
    """
    road = await make_road(either_plane.cluster, shape=(1, 2, 4))
    lost = "node-0-0-1"
    await occupy(road, lost, "node-0-0-3", gpus=4)
    async with running(configuration(), flags(either_plane)):
        await submit(road, "gang", {REQUIRED: RACK_LABEL}, pods=5, gpus=4, run_seconds=600)
        before = await until_bound(road, "gang", 5)
        await road.cluster.request("DELETE", f"/api/v1/nodes/{lost}")
        pod = before[2]["metadata"]["name"]
        await road.cluster.request("DELETE", f"{road.pods}/{pod}", {"gracePeriodSeconds": 0})
        after = await until_bound(road, "gang", 5, without=lost)
        workload = await road.workload_of("gang")

    assert hosts_by_rank(before) == ["node-0-0-0", "node-0-0-0", lost, "node-0-0-2", "node-0-0-2"]
    assert hosts_by_rank(after) == ["node-0-0-0", "node-0-0-0", "node-0-0-3", "node-0-0-2", "node-0-0-2"]
    uids = [{index: pod["metadata"]["uid"] for index, pod in each.items()} for each in (before, after)]
    assert {index for index in range(5) if uids[0][index] != uids[1][index]} == {2}
    assert "schedulingStats" not in workload["status"]  # nobody was evicted
