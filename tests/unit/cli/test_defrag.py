"""`kqueue defrag`: from objects of the cluster to a plan, and the life of a stored plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kqueue.api import names
from kqueue.api.defragmentation_plan import DefragmentationPlan
from kqueue.cli.app import run
from kqueue.clock import utc_text
from kqueue.controllers import resources
from kqueue.core.devices.counting import DeviceRules
from kqueue.core.devices.values import DeviceMapping
from kqueue.core.joint.defrag import DefragPlan, DefragSettings
from kqueue.core.joint.movable import MoveHistory, MoveLimits
from kqueue.core.joint.moving import RunningGang
from kqueue.errors import ConfigError, InvalidObjectError, KqueueError, NotFoundError
from kqueue.operations.defrag import storing
from kqueue.operations.defrag.reading import READ, ClusterObjects, state_of
from kqueue.operations.devices import ClusterDevices
from kqueue.runtime.client import Client
from kqueue.sandbox import Sandbox
from kqueue.state.defrag.document import VALID_FOR, plan_hash, plan_object, why_none
from kqueue.state.defrag.planning import AskedGoal, plan
from kqueue.state.defrag.running import running_steps
from kqueue.state.defrag.stored import MOST_PLANS
from tests.unit.cli.defrag_cluster import GPU, HOST, JSON, NOW, WAITING, ago, answered, cluster


def test_the_plan_of_the_published_example() -> None:
    """E21."""
    made = plan_object(answered(cluster()))
    status = made["status"]
    assert status["moves"] == [
        {
            "workload": "team-b/u",
            "uid": "uid-u",
            "assignments": [
                {
                    "name": "main",
                    "flavors": {GPU: "gpu"},
                    "count": 10,
                    "topologyAssignment": {
                        "levels": [HOST],
                        "slices": [
                            {
                                "domainCount": 10,
                                "valuesPerLevel": [
                                    {"individual": {"prefix": "a", "roots": [f"{n:02}" for n in range(6, 16)]}}
                                ],
                                "podCounts": {"universal": 1},
                            }
                        ],
                    },
                }
            ],
            "pods": 10,
            "from": ["b"],
            "to": ["a"],
            "cost": 600,
            "checkpointAgeSeconds": 0,
            "state": "Planned",
        }
    ]
    assert (status["domain"], status["cost"], status["validUntil"]) == (["b"], {"podSeconds": 600}, ago(-600))
    assert status["gain"] == {
        "slotsBefore": 0,
        "slotsAfter": 1,
        "fragmentationBefore": 1000,
        "fragmentationAfter": 238,
        "starts": "team-a/big",
    }
    assert DefragmentationPlan.read(made).status.moves[0].source == ("b",)


def test_without_consent_the_others_move_or_the_blocker_is_named() -> None:
    """E22."""
    made = plan_object(answered(cluster(u="Never")))
    assert [move["workload"] for move in made["status"]["moves"]] == ["team-a/v1", "team-a/v2"]
    assert made["status"]["cost"] == {"podSeconds": 4860}
    none = why_none(answered(cluster(u="Never", v2="Never")))
    assert (none["reason"], none["domain"], none["missing"]) == ("Blocked", ["a"], 3)
    assert none["message"] == (
        "no plan: a comes closest and lacks room for 3 pods; blocked by team-a/v2 (kqueue.dev/reschedule: Never)"
    )


def test_room_without_a_workload_is_a_goal() -> None:
    made = plan_object(answered(cluster(), AskedGoal(flavor="gpu", level="rack", nodes=16)))
    assert made["spec"]["goal"] == {"flavor": "gpu", "level": "rack", "nodes": 16}
    assert "starts" not in made["status"]["gain"]


def test_budgets_of_disruption_are_kept() -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "team-b"},
        "spec": {"selector": {"matchLabels": {"app": "u"}}},
        "status": {"disruptionsAllowed": 9},
    }
    made = plan_object(answered(replace(cluster(), budgets=[budget])))
    assert [move["workload"] for move in made["status"]["moves"]] == ["team-a/v1", "team-a/v2"]
    budget["status"] = {"disruptionsAllowed": 10}
    made = plan_object(answered(replace(cluster(), budgets=[budget])))
    assert [move["workload"] for move in made["status"]["moves"]] == ["team-b/u"]


BROKEN = [
    {
        "name": "main",
        "count": 10,
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: "eight"}}}]}},
    }
]
LEAVING = [
    {"type": kind, "status": "True", "reason": "r", "message": "", "lastTransitionTime": ago(3600)}
    for kind in ("QuotaReserved", "Admitted", "Evicted")
]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": {"unhealthyNodes": [{"name": "b03"}]}}, "some of its nodes have failed"),
        (
            {"metadata": {"annotations": {names.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION: "team-b/older"}}},
            "it is a part of an elastic job",
        ),
        ({"spec": {"podSets": BROKEN}}, "its requests cannot be read"),
        ({"status": {"conditions": LEAVING}}, "it does not run"),
    ],
)
def test_odd_workloads_stay(change: JSON, reason: str) -> None:
    """Even with the consent of their users."""
    objects = cluster()
    odd = [
        {**obj, **{part: {**obj[part], **fields} for part, fields in change.items()}}
        for obj in objects.workloads
        if obj["metadata"]["name"] == "u"
    ]
    state = state_of(replace(objects, workloads=odd), NOW)
    topologies = state.cache.snapshot([]).topologies
    running: list[RunningGang] = []
    for _ in running_steps(state, topologies, running, limits=MoveLimits(), history=MoveHistory()):
        pass
    (found,) = running
    assert reason in found.immovable


def test_pods_that_kqueue_does_not_place_have_their_room() -> None:
    """One more GPU in use on a host of rack a: u has no other place."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "x", "uid": "p"},
        "spec": {"nodeName": "a15", "containers": [{"name": "c", "resources": {"requests": {GPU: "1"}}}]},
        "status": {"phase": "Running"},
    }
    none = why_none(answered(replace(cluster(), pods=[pod])))
    assert none["reason"] == "Blocked"


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (AskedGoal(workload="team-a/nobody"), NotFoundError),
        (AskedGoal(workload="team-a/v1"), ConfigError),
        (AskedGoal(flavor="cpu", level="rack", nodes=1), NotFoundError),
        (AskedGoal(flavor="gpu", level="row", nodes=1), NotFoundError),
    ],
)
def test_unknown_goals_are_refused(asked: AskedGoal, error: type[KqueueError]) -> None:
    with pytest.raises(error):
        answered(cluster(), asked)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"local_queues": []}, "no such LocalQueue"),
        ({"cluster_queues": []}, "is admitted"),
    ],
)
def test_why_moves_cannot_help(change: JSON, text: str) -> None:
    none = why_none(answered(replace(cluster(), **change)))
    assert none["plan"] is None
    assert text in none["message"]


def test_objects_that_cannot_be_read_are_left_out() -> None:
    objects = cluster()
    broken = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "z", "labels": 5}}
    state = state_of(replace(objects, nodes=[*objects.nodes, broken]), NOW)
    assert len(state.remarks) == 1
    assert "Node z cannot be read" in state.remarks[0]


def test_limits_and_gain_are_told() -> None:
    assert "limits are 0 moves" in why_none(answered(cluster(), moves=0))["message"]
    told = why_none(answered(cluster(), least_gain=10**9))
    assert (told["reason"], told["cheapestPodSeconds"]) == ("Gain", 600)


def test_the_hash_is_about_all_that_is_approved() -> None:
    made = plan_object(answered(cluster()))
    spec, status = made["spec"], made["status"]
    assert status["hash"] == plan_hash(spec, status)
    for field in ("flavor", "domain", "moves", "cost", "gain", "validUntil"):
        assert plan_hash(spec, {**status, field: None}) != status["hash"], field
    assert plan_hash({**spec, "budget": {}}, status) != status["hash"]
    assert plan_hash({**spec, "approved": status["hash"]}, {**status, "phase": "Approved"}) == status["hash"]
    (move,) = status["moves"]
    changes: tuple[dict[str, object], ...] = (
        {"assignments": []},
        {"uid": "other"},
        {"pods": 9},
        {"workload": "team-a/x"},
    )
    for change in changes:
        assert plan_hash(spec, {**status, "moves": [{**move, **change}]}) != status["hash"], change
    carried = {**move, "state": "Done", "since": ago(1), "begun": ago(2), "message": "its pods are ready"}
    assert plan_hash(spec, {**status, "moves": [carried]}) == status["hash"]


def test_only_the_shown_hash_can_be_approved() -> None:
    made = plan_object(answered(cluster()))
    approved = {**made, "spec": {**made["spec"], "approved": made["status"]["hash"]}}
    assert DefragmentationPlan.read(approved).spec.approved == made["status"]["hash"]
    wrong = {**made, "spec": {**made["spec"], "approved": f"sha256:{'0' * 64}"}}
    with pytest.raises(InvalidObjectError, match="must be the hash"):
        DefragmentationPlan.read(wrong)


# --- stored plans


async def stored(client: Client) -> JSON:
    return await storing.save(client, plan_object(answered(cluster())))


async def test_a_plan_is_stored_approved_and_ended(client: Client) -> None:
    plan = await stored(client)
    name = plan["metadata"]["name"]
    assert plan_hash(plan["spec"], plan["status"]) == plan["status"]["hash"]
    approved = await storing.approve(client, name, "", NOW)
    assert (approved["spec"]["approved"], approved["status"]["phase"]) == (plan["status"]["hash"], "Approved")
    assert [c["type"] for c in approved["status"]["conditions"]] == ["Proposed", "Approved"]
    ended = await storing.abort(client, name, NOW)
    assert ended["status"]["phase"] == "Aborted"
    with pytest.raises(ConfigError, match="Aborted already"):
        await storing.abort(client, name, NOW)
    with pytest.raises(ConfigError, match="is Aborted"):
        await storing.approve(client, name, "", NOW)
    assert [one["metadata"]["name"] for one in await storing.plans(client)] == [name]


async def test_an_expired_or_changed_plan_is_not_approved(client: Client) -> None:
    plan = await stored(client)
    name, digest = plan["metadata"]["name"], plan["status"]["hash"]
    with pytest.raises(ConfigError, match="is Expired"):
        await storing.approve(client, name, digest, NOW + VALID_FOR)
    with pytest.raises(ConfigError, match="look at it again"):
        await storing.approve(client, name, f"sha256:{'0' * 64}", NOW)
    patch = {"status": {"cost": {"podSeconds": 1}}}
    await client.patch(resources.DEFRAGMENTATION_PLANS, name, patch, subresource="status")
    with pytest.raises(ConfigError, match="was changed"):
        await storing.approve(client, name, digest, NOW)
    with pytest.raises(NotFoundError, match="defrag list"):
        await storing.approve(client, "nobody", "", NOW)


async def test_sixteen_plans_are_enough(client: Client) -> None:
    made = plan_object(answered(cluster()))
    for number in range(MOST_PLANS):
        await storing.save(client, {**made, "metadata": {"name": f"p{number}"}})
    with pytest.raises(ConfigError, match="16 are allowed"):
        await storing.save(client, made)


# --- the command


async def write(client: Client, objects: ClusterObjects) -> None:
    """Write the objects of a cluster; times count from the present."""
    shift = datetime.now(UTC) - NOW
    for namespace in ("team-a", "team-b"):
        await client.create(resources.NAMESPACES, {"metadata": {"name": namespace}})
    for field, kind in READ:
        for obj in getattr(objects, field):
            made = _shifted(obj, shift)
            name, namespace = made["metadata"]["name"], made["metadata"].get("namespace")
            await client.create(kind, made, namespace)
            if made.get("status"):
                await client.patch(kind, name, {"status": made["status"]}, namespace, subresource="status")


def _shifted(obj: Mapping[str, Any], shift: timedelta) -> JSON:
    """The object with all its times so much later."""

    def walked(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walked(item) for key, item in value.items() if key not in ("uid", "creationTimestamp")}
        if isinstance(value, list):
            return [walked(item) for item in value]
        if isinstance(value, str) and value.startswith("202") and value.endswith("Z"):
            return utc_text(datetime.fromisoformat(value) + shift)
        return value

    found: JSON = walked(dict(obj))
    return found


async def versions(client: Client) -> list[tuple[str, str]]:
    """The version of each object but plans."""
    found = [obj for _, kind in READ for obj in await client.list_json(kind)]
    return [(obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) for obj in found]


async def test_the_command(
    sandbox: Sandbox, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plan, save, list, show, approve and abort, with exit codes 0, 1 and 2; only plans are written."""
    kubeconfig = tmp_path / "kubeconfig"
    sandbox.write_kubeconfig(kubeconfig)
    await write(client, cluster())

    async def call(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, ["defrag", *words, "--kubeconfig", str(kubeconfig)])
        return code, capsys.readouterr().out

    before = await versions(client)
    code, text = await call("plan", "--for", "team-a/big")
    assert (code, "team-b/u" in text, "moves nothing by itself" in text) == (0, True, True)
    assert "there are no DefragmentationPlans" in (await call("list"))[1]
    code, text = await call("plan", "--for", "team-a/big", "--max-moves", "0")
    assert (code, "limits are 0 moves" in text) == (1, True)
    assert (await call("plan"))[0] == 2
    assert (await call("plan", "--for", "big"))[0] == 2
    assert (await call("plan", "--for", "team-a/big", "--nodes", "3"))[0] == 2
    code, text = await call("plan", "--flavor", "gpu", "--level", "rack", "--nodes", "16", "--save", "-o", "json")
    name = json.loads(text)["metadata"]["name"]
    assert code == 0
    assert name in (await call("list"))[1]
    assert "is Proposed" in (await call("show", name))[1]
    assert json.loads((await call("approve", name, "-o", "json"))[1])["status"]["phase"] == "Approved"
    assert "is Aborted" in (await call("abort", name))[1]
    assert (await call("abort", name))[0] == 2
    assert await versions(client) == before


# --- devices


CLASS, DRIVER, QUOTA = "gpu", "gpu.example.com", "example.com/gpus"
RULES = DeviceRules(mappings=(DeviceMapping(resource=QUOTA, classes=(CLASS,)),))


def device_objects(*, big_racks: str) -> ClusterDevices:
    """Each host has a device, a big one in these racks; template `big` asks for one of them."""

    def one(kind: str, name: str, spec: JSON, **meta: str) -> JSON:
        return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}

    hosts = [f"{rack}{number:02}" for rack in "abc" for number in range(16)]
    exactly = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].big"}}],
    }
    return ClusterDevices(
        classes=[one("DeviceClass", CLASS, {})],
        templates=[
            one(
                "ResourceClaimTemplate",
                "big",
                {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}},
                namespace="team-a",
            )
        ],
        slices=[
            one(
                "ResourceSlice",
                host,
                {
                    "driver": DRIVER,
                    "nodeName": host,
                    "pool": {"name": host, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "d", "attributes": {"big": {"bool": host[0] in big_racks}}}],
                },
            )
            for host in hosts
        ],
    )


@pytest.mark.parametrize(
    ("big_racks", "held", "domain"),
    [
        pytest.param("a", "", ("a",), id="rack-a-has-them"),
        pytest.param("b", "", ("b",), id="rack-b-has-them"),
        pytest.param("ab", "b03", ("a",), id="a-claim-of-others-has-one-of-b"),
        pytest.param("ab", "a15", ("b",), id="a-claim-of-others-has-one-of-a"),
        pytest.param("b", "b03", None, id="no-rack-has-enough"),
    ],
)
def test_plans_count_the_devices_of_hosts(big_racks: str, held: str, domain: tuple[str, ...] | None) -> None:
    """A rack is free for a gang only with the devices that the gang claims."""
    objects = cluster()
    big = next(obj for obj in objects.workloads if obj["metadata"]["name"] == "big")
    big["spec"]["podSets"][0]["template"]["spec"]["resourceClaims"] = [
        {"name": "r", "resourceClaimTemplateName": "big"}
    ]
    queue = objects.cluster_queues[0]
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"] = [*group["coveredResources"], QUOTA]
    group["flavors"][0]["resources"] = [*group["flavors"][0]["resources"], {"name": QUOTA, "nominalQuota": "100"}]
    devices = device_objects(big_racks=big_racks)
    if held:
        results = [{"request": "r", "driver": DRIVER, "pool": held, "device": "d"}]
        claim = {
            "metadata": {"name": "other", "namespace": "team-b"},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        devices = replace(devices, claims=[claim])
    state = state_of(replace(objects, devices=devices), NOW, RULES)
    answer = plan(state, WAITING, DefragSettings(least_gain=0, pod_seconds=10_000), limits=MoveLimits())

    assert (answer.found.domain if isinstance(answer.found, DefragPlan) else None) == domain
    assert state.remarks == []
