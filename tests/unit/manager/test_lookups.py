"""Look-ups of the webhooks: few requests, never for long, and never about what is long gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.controllers.resources import PODS
from kqueue.errors import InvalidObjectError, NotFoundError, ServerError
from kqueue.jobs.ancestry import owner_kinds
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.others import Reference
from kqueue.kinds import TRAINING_RUNTIMES
from kqueue.manager.lookups import FOUND_SECONDS, MISSING_SECONDS, VERSION_SECONDS, ApiLookups
from kqueue.runtime.resources import ResourceType
from webhooks.surroundings import LookupFailedError

Object = dict[str, Any]


class Server:
    """An API server of which every answer is made up."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.asked: list[str] = []
        self.versions: list[str] = []
        self.served = ""
        self.before: Callable[[], Any] | None = None

    async def get_json(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object:
        self.asked.append(f"{resource}/{namespace}/{name}")
        self.versions.append(resource.version)
        if self.served not in ("", resource.version):
            raise NotFoundError(f"no {resource.version}", status=404)
        if self.before is not None:
            await self.before()
        try:
            return self.objects[name]
        except KeyError:
            raise NotFoundError(f"no {name}", status=404) from None

    async def list_json(self, resource: ResourceType) -> list[Object]:
        await self.get_json(resource, "topologies")
        return [{"spec": {"levels": [{"nodeLabel": level}]}} for level in self.objects["topologies"]]


class Desk:
    def __init__(self, **settings: Any) -> None:
        self.server, self.clock = Server(), FakeClock()
        self.lookups = ApiLookups(self.server, clock=self.clock, **settings)  # type: ignore[arg-type]


async def test_an_answer_is_believed_for_seconds() -> None:
    """What exists for five of them, what does not for one."""
    desk = Desk()
    before = [await desk.lookups.has_local_queue("ns", "default") for _ in range(5)]
    desk.server.objects["default"] = {"metadata": {"uid": "1"}}
    await desk.clock.advance(MISSING_SECONDS + 0.1)
    found = [await desk.lookups.has_local_queue("ns", "default") for _ in range(5)]
    del desk.server.objects["default"]
    kept = await desk.lookups.has_local_queue("ns", "default")
    await desk.clock.advance(FOUND_SECONDS + 0.1)
    gone = await desk.lookups.has_local_queue("ns", "default")

    assert (set(before), set(found), kept, gone) == ({False}, {True}, True, False)
    assert desk.server.asked == ["localqueues.kueue.x-k8s.io/ns/default"] * 3


async def test_many_who_ask_at_once_share_one_request() -> None:
    """A thousand pods of one Job come together; who gives up leaves the answer to the others."""
    desk = Desk()
    go = asyncio.Event()
    desk.server.before = go.wait
    desk.server.objects["ns"] = {"metadata": {"labels": {"team": "a", "odd": 7}}}
    asking = [asyncio.create_task(desk.lookups.namespace_labels("ns")) for _ in range(100)]
    await desk.clock.advance(0)
    asking[0].cancel()
    go.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert len(desk.server.asked) == 1
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [{"team": "a"}] * 99


async def test_a_namesake_of_what_is_gone_is_looked_at_anew() -> None:
    """An owner is known by its identity, too."""
    desk = Desk()
    desk.server.objects["a"] = {"metadata": {"uid": "old"}}
    first = await desk.lookups.get(PODS, "ns", "a", uid="old")
    desk.server.objects["a"] = {"metadata": {"uid": "new"}}
    same = await desk.lookups.get(PODS, "ns", "a", uid="old")
    other = await desk.lookups.get(PODS, "ns", "a", uid="new")

    assert [each and each["metadata"]["uid"] for each in (first, same, other)] == ["old", "old", "new"]
    assert len(desk.server.asked) == 2


@pytest.mark.parametrize(
    ("wait", "fact"),
    [
        pytest.param(asyncio.Event, "did not answer about LocalQueue ns/default within 0.01 s", id="no-answer"),
        pytest.param(None, "could not be asked about LocalQueue ns/default: broken", id="a-failure"),
    ],
)
async def test_a_question_without_answer_is_said_in_words(wait: Callable[[], asyncio.Event] | None, fact: str) -> None:
    """Within its time limit; the next one is asked again."""
    desk = Desk(seconds=0.01)

    async def broken() -> None:
        raise ServerError("broken", status=500)

    desk.server.before = broken if wait is None else wait().wait
    for _ in range(2):
        with pytest.raises(LookupFailedError, match=fact):
            await desk.lookups.has_local_queue("ns", "default")

    assert len(desk.server.asked) == 2


def owned(name: str, uid: str, by: tuple[str, str, str] | None = None, queue: str = "") -> Object:
    """An object; `by`: API version and kind of its owner, and the owner's name, which is its UID too."""
    reference = [] if by is None else [dict(zip(("apiVersion", "kind", "name"), by, strict=True))]
    owners = [each | {"controller": True, "uid": each["name"]} for each in reference]
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {"metadata": {"name": name, "uid": uid, "labels": labels, "ownerReferences": owners}}


REPLICA_SET = ("apps", "ReplicaSet")


async def is_owned_by_queued(desk: Desk, child: dict[str, Any], kind: tuple[str, str] = ("", "Pod")) -> bool:
    return (await desk.lookups.lineage(child, kind, "ns")).ancestor is not None


async def test_owners_are_followed_and_remembered() -> None:
    """A pod of a ReplicaSet of a queued Deployment is not queued itself; its sisters cost no request."""
    desk = Desk(owners=owner_kinds({"deployment"}))
    desk.server.objects["rs"] = owned("rs", "rs", ("apps/v1", "Deployment", "web"))
    desk.server.objects["web"] = owned("web", "web", queue="main")
    pod = owned("p", "", ("apps/v1", "ReplicaSet", "rs"))
    found = [await is_owned_by_queued(desk, pod) for _ in range(3)]
    desk.server.objects["web"] = owned("web", "other", queue="main")
    desk.server.objects["rs"] = owned("rs", "newer", ("apps/v1", "Deployment", "other"))
    stranger = await is_owned_by_queued(desk, owned("p", "", ("apps/v1", "DaemonSet", "d")))

    assert (found, stranger) == ([True] * 3, False)
    assert desk.server.asked == ["replicasets.apps/ns/rs", "deployments.apps/ns/web"]


async def test_an_owner_that_is_missing_is_asked_for_until_it_is_there() -> None:
    """The child is refused, in words; it is no queue of its own."""
    desk = Desk(owners=owner_kinds({"deployment"}))
    pod = owned("rs", "", ("apps/v1", "Deployment", "web"))
    with pytest.raises(InvalidObjectError, match="Deployment web, which owns this, does not exist"):
        await is_owned_by_queued(desk, pod, REPLICA_SET)
    desk.server.objects["web"] = owned("web", "web", queue="main")
    await desk.clock.advance(MISSING_SECONDS + 0.1)

    assert await is_owned_by_queued(desk, pod, REPLICA_SET)


async def test_a_child_of_a_namesake_is_not_judged_by_the_one_that_is_gone() -> None:
    """A queued Deployment was deleted and made anew without a queue, or the other way round."""
    desk = Desk(owners=owner_kinds({"deployment"}))
    desk.server.objects["web"] = owned("web", "web", queue="main")
    old, new = (owned("rs", "", ("apps/v1", "Deployment", "web")) for _ in range(2))
    new["metadata"]["ownerReferences"][0]["uid"] = "newer"
    before = await is_owned_by_queued(desk, old, REPLICA_SET)
    desk.server.objects["web"] = owned("web", "newer", queue="other")
    after = await is_owned_by_queued(desk, new, REPLICA_SET)

    assert (before, after) == (True, True)


async def test_the_pods_of_a_gang_cost_one_look_up() -> None:
    """G2.14: of the group object, and for seconds; a group that comes after its first pod is found a second later."""
    desk, ref = Desk(), GangRef(framework="scheduling.x-k8s.io/podgroup", namespace="ns", name="g")
    missing = [await desk.lookups.group_object(ref) for _ in range(100)]
    desk.server.objects["g"] = {"metadata": {"uid": "1"}}
    await desk.clock.advance(MISSING_SECONDS + 0.1)
    found = [await desk.lookups.group_object(ref) for _ in range(100)]
    await desk.clock.advance(FOUND_SECONDS + 0.1)
    await desk.lookups.group_object(ref)

    assert (missing, [obj and obj["metadata"]["uid"] for obj in found]) == ([None] * 100, ["1"] * 100)
    assert desk.server.asked == ["podgroups.scheduling.x-k8s.io/ns/g"] * 3


async def test_the_served_version_of_a_group_object_is_remembered() -> None:
    """Kubernetes serves one of several versions; once an object was found, the others are not asked."""
    desk = Desk()
    refs = [GangRef(framework="scheduling.k8s.io/podgroup", namespace="ns", name=name) for name in ("a", "b", "c")]
    desk.server.objects |= {"a": {"metadata": {}}, "b": {"metadata": {}}}
    desk.server.served = "v1alpha2"
    found = [await desk.lookups.group_object(ref) for ref in refs]
    asked = list(desk.server.versions)
    desk.server.served = "v1beta1"
    await desk.clock.advance(VERSION_SECONDS + 0.1)

    assert [obj is not None for obj in found] == [True, True, False]
    assert asked == ["v1beta1", "v1alpha3", "v1alpha2", "v1alpha2", "v1alpha2"]
    assert await desk.lookups.group_object(refs[0]) is not None


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        pytest.param({"conditions": [{"type": "QuotaReserved", "status": "True"}]}, True, id="reserved"),
        pytest.param({"conditions": [{"type": "QuotaReserved", "status": "False"}]}, False, id="waits"),
        pytest.param({}, False, id="new"),
        pytest.param(None, False, id="no-workload"),
    ],
)
async def test_quota_of_a_gang_is_asked_for_anew(status: Object | None, holds: bool) -> None:
    """A change is judged by the present state, not by that of seconds ago."""
    desk = Desk()
    if status is not None:
        desk.server.objects["w"] = {"metadata": {}, "status": status}
    found = [await desk.lookups.holds_quota("w", "ns") for _ in range(2)]

    assert found == [holds, holds]
    assert len(desk.server.asked) == 2


async def test_a_level_that_is_missing_is_looked_for_anew_after_a_second() -> None:
    """A Topology that was made a moment ago counts soon; a flood of misspelt levels costs one list a second."""
    desk = Desk()
    desk.server.objects["topologies"] = {"rack": None}
    first = [await desk.lookups.topology_levels({"block"}) for _ in range(50)]
    desk.server.objects["topologies"] = {"rack": None, "block": None}
    await desk.clock.advance(MISSING_SECONDS + 0.1)
    known = await desk.lookups.topology_levels({"rack"})
    then = await desk.lookups.topology_levels({"block"})

    assert set(first) == {known} == {frozenset({"rack"})}
    assert then == frozenset({"rack", "block"})
    assert len(desk.server.asked) == 2


async def test_without_topologies_of_ours_no_level_is_judged() -> None:
    assert await Desk().lookups.topology_levels({"rack"}) is None


async def test_a_level_is_not_waited_for_long() -> None:
    desk = Desk()
    desk.server.before = asyncio.Event().wait
    with pytest.raises(LookupFailedError, match=r"within 0.5 s"):
        await desk.lookups.topology_levels({"rack"})


async def test_an_object_that_jobs_refer_to_is_found_by_its_kind() -> None:
    """In the cluster or in a namespace; one that is missing, or whose kind is not served, is None."""
    desk = Desk()
    desk.server.objects["torch"] = {"spec": {}}
    of_cluster, of_namespace = TRAINING_RUNTIMES
    found = [
        await desk.lookups.other(reference)
        for reference in (
            Reference(of_cluster, "", "torch"),
            Reference(of_namespace, "ns", "torch"),
            Reference(of_namespace, "ns", "missing"),
        )
    ]

    assert found == [{"spec": {}}, {"spec": {}}, None]
    assert desk.server.asked == [
        "clustertrainingruntimes.trainer.kubeflow.org/None/torch",
        "trainingruntimes.trainer.kubeflow.org/ns/torch",
        "trainingruntimes.trainer.kubeflow.org/ns/missing",
    ]


def checked(*names: str) -> Object:
    rules = [{"name": name} for name in names]
    return {"metadata": {}, "spec": {"admissionChecksStrategy": {"admissionChecks": rules}}}


def answered_by(controller: str) -> Object:
    return {"metadata": {}, "spec": {"controllerName": controller}}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param({}, False, id="no queue"),
        pytest.param({"main": {"metadata": {}, "spec": {}}}, False, id="a queue of no ClusterQueue"),
        pytest.param({"team": checked()}, False, id="no check"),
        pytest.param({"team": checked("x")}, False, id="a check that does not exist"),
        pytest.param({"team": checked("x"), "x": answered_by("example.com/x")}, False, id="another check"),
        pytest.param(
            {"team": checked("x", "y"), "x": answered_by("e/x"), "y": answered_by("kueue.x-k8s.io/multikueue")},
            True,
            id="a check of MultiKueue",
        ),
    ],
)
async def test_a_queue_that_sends_jobs_away(objects: dict[str, Object], want: bool) -> None:
    """By its ClusterQueue's checks."""
    desk = Desk()
    desk.server.objects = {"main": {"metadata": {}, "spec": {"clusterQueue": "team"}}} if objects else {}
    desk.server.objects |= objects
    assert await desk.lookups.sends_away("ns", "main") is want
