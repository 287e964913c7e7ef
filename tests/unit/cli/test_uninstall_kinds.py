"""What kqueue leaves behind of every custom kind, when it goes or when the kind is switched off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kqueue.controllers.leftovers import Left, Leftover, of_kind
from kqueue.controllers.resources import resource_of
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.kind import PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.kinds import FRAMEWORKS
from kqueue.operations.removal.release import release
from kqueue.operations.removal.survey import Scope, still_registered, survey
from kqueue.runtime.resources import ResourceType
from tests.unit.cli.test_uninstall import IN_GANG, MUTATING, Pages, owned, pod
from tests.unit.controllers.kinds_world import CUSTOM, ON, RAY_FOREVER, SPARK, TRAIN, WRAPPER, make, whole
from tests.unit.jobs.builders import JSON, make_job
from tests.unit.jobs.test_jobset import make_jobset, replicated
from tests.unit.jobs.test_leader_worker_set import made as serving_set
from tests.unit.webhooks.test_configuration import TARGET
from webhooks.configuration import WebhookScope, webhook_configurations
from webhooks.review import Request, ReviewResult
from webhooks.routes import routes

P = "kueue.x-k8s.io/"
EACH = pytest.mark.parametrize("framework", CUSTOM)
LEADER_WORKER_SET = "leaderworkerset.x-k8s.io/leaderworkerset"
BATCH: dict[str, Callable[..., JSON]] = {
    "batch/job": make_job,
    "jobset.x-k8s.io/jobset": lambda **spec: make_jobset(replicated(), **spec),
}
"""The kinds that are no custom kinds and are held by a flag, with a function that makes an object."""
HELD = (*CUSTOM, *BATCH)
"""The frameworks of all kinds that are held by a flag."""
READ = {"resourceVersion": "7"}
ENDED: dict[str, JSON] = {
    TRAIN: {"conditions": [{"type": "Complete", "status": "True"}]},
    WRAPPER: {"phase": "Succeeded"},
    SPARK: {"applicationState": {"state": "COMPLETED"}},
    "ray.io/rayjob": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
}
"""A status of an object that has ended, where it is not that of the training kinds."""


def started(framework: str) -> JSON:
    """The object as kqueue has started it, with a gate of topology for its pods."""
    kind, obj = BY_FRAMEWORK[framework], make(framework)
    for _ in range(3):
        infos = [
            PodSetInfo(name=p["name"], count=p["count"], scheduling_gates=(f"{P}topology",))
            for p in kind.pod_sets(whole(kind, obj), ON)
        ]
        patch = kind.start(whole(kind, obj), infos)
        assert not isinstance(patch, Refused)
        obj = apply_merge_patch(obj, patch)
        if not kind.is_suspended(obj):
            return obj
    raise AssertionError("it does not start")


def told(framework: str, obj: JSON, *, waits: bool = False) -> list[Left]:
    """What is left behind of an object."""
    kind = BY_FRAMEWORK[framework]
    read = {**obj, "metadata": {**obj["metadata"], **READ}}
    found = of_kind(resource_of(kind), read, kind, waits_for_us=waits)
    assert all((each.name, each.integration) == ("sample", framework) for each in found)
    assert not any("suspend" in str(each.patch()) for each in found)
    return [each.left for each in found]


@pytest.mark.proves("Training job", "uninstall")
@pytest.mark.proves("TrainJob", "uninstall")
@pytest.mark.proves("Ray", "uninstall")
@pytest.mark.proves("AppWrapper", "uninstall")
@pytest.mark.proves("SparkApplication", "uninstall")
@EACH
def test_what_waits_and_what_makes_gated_pods_is_told(framework: str) -> None:
    """Nothing is started; an object that its user holds, and one that goes, is left out."""
    held, runs = make(framework), started(framework)
    own = make(framework, queue="")
    goes = {**held, "metadata": {**held["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}

    assert told(framework, held) == [Left.SUSPENDED]
    assert told(framework, runs) == [Left.GATED_TEMPLATE]
    assert (told(framework, own), told(framework, own, waits=True)) == ([], [Left.SUSPENDED])
    assert told(framework, goes) == []


@pytest.mark.parametrize("framework", [framework for framework in CUSTOM if framework not in RAY_FOREVER])
def test_what_has_ended_is_not_told(framework: str) -> None:
    """Its template may have a gate, and makes no pods any more."""
    status = ENDED.get(framework, {"conditions": [{"type": "Succeeded", "status": "True"}]})
    assert told(framework, {**started(framework), "status": status}) == []


def of_replica(leader: bool) -> JSON:
    """A held pod of a LeaderWorkerSet; StatefulSets make its leaders and its workers."""
    return pod(
        f"{P}admission",
        labels=IN_GANG | {"leaderworkerset.sigs.k8s.io/name": "serve", f"{P}pod-group-name": "g"},
        annotations={f"{P}pod-suspending-parent": LEADER_WORKER_SET},
        ownerReferences=owned("StatefulSet", "apps/v1"),
        finalizers=(f"{P}managed",),
        name="leader" if leader else "worker",
        namespace="ns",
        uid="1",
        resourceVersion="7",
    )


def held(framework: str, *, suspend: bool = True) -> JSON:
    """Return an object of a kind that is held by a flag."""
    return BATCH[framework](suspend=suspend) if framework in BATCH else make(framework, suspend=suspend)


class Cluster(Pages):
    """Has one held object of every kind that is held by a flag, and the webhooks of these frameworks."""

    def __init__(self, frameworks: tuple[str, ...] = ()) -> None:
        super().__init__([of_replica(True), of_replica(False)])
        self._objects = {resource_of(BY_FRAMEWORK[framework]): held(framework) for framework in HELD}
        scope = WebhookScope(frameworks=frameworks, own_namespace="kueue-system")
        self._mutating = [each for each in webhook_configurations(TARGET, scope) if each["kind"] == MUTATING.kind]
        self.patched: list[str] = []

    async def list_json(self, resource: ResourceType, *_: Any, **__: Any) -> list[JSON]:
        if resource == MUTATING:
            return [{**each, "metadata": {**each["metadata"], "uid": "1", **READ}} for each in self._mutating]
        found = self._objects.get(resource)
        return [] if found is None else [{**found, "metadata": {**found["metadata"], **READ}}]

    async def list_page(self, resource: ResourceType, *args: Any, **more: Any) -> bytes:
        found = self._objects.get(resource)
        if found is None:
            return await super().list_page(resource, *args, **more)
        return msgspec.json.encode({"items": [{**found, "metadata": {**found["metadata"], **READ}}], "metadata": {}})

    async def patch(self, resource: ResourceType, name: str, *_: Any, **__: Any) -> JSON:
        self.patched.append(f"{resource.kind} {name}")
        return {}


OFF = (*HELD, LEADER_WORKER_SET)


async def found_in(cluster: Any, integration: str) -> list[Leftover]:
    """What is left behind of one integration."""
    return await survey(cluster, Scope(integrations=frozenset({integration})))


async def answer_to(obj: JSON, framework: str, on: tuple[str, ...]) -> ReviewResult:
    """The answer of a kind's mutating webhook to a new object."""
    path = f"/mutate-{FRAMEWORKS[framework].webhook_path}"
    return await routes(on, ON)[path](Request(uid="u", operation="CREATE", obj=obj, old=None))


@pytest.mark.proves("Job", "switched off")
@pytest.mark.proves("JobSet", "switched off")
@pytest.mark.proves("Training job", "switched off")
@pytest.mark.proves("TrainJob", "switched off")
@pytest.mark.proves("Ray", "switched off")
@pytest.mark.proves("AppWrapper", "switched off")
@pytest.mark.proves("SparkApplication", "switched off")
@pytest.mark.proves("LeaderWorkerSet", "switched off")
@pytest.mark.parametrize("framework", OFF)
async def test_a_kind_that_is_off_has_no_webhook_and_its_objects_are_found(framework: str) -> None:
    """Those of no other kind are.  As long as it is on, its webhook is seen, and a release is refused."""
    others = tuple(other for other in OFF if other != framework)
    on: Any = Cluster(OFF)
    off: Any = Cluster(others)
    asked = frozenset({framework})
    obj = held(framework, suspend=False) if framework in HELD else serving_set()
    found = await found_in(off, framework)
    answer = await answer_to(obj, framework, others)

    assert (await answer_to(obj, framework, OFF)).patch
    assert (answer.patch, list(answer.problems), answer.fault) == ({}, [], None)
    assert (await still_registered(on, asked), await still_registered(off, asked)) == ([framework], [])
    assert {each.integration for each in found} == asked
    assert {each.left for each in found} == {Left.SUSPENDED if framework in HELD else Left.HELD_POD}


@pytest.mark.proves("LeaderWorkerSet", "uninstall")
async def test_pods_of_a_leader_worker_set_are_let_go_as_its_own() -> None:
    """Leaders and workers: they are not those of a StatefulSet, which may stay on."""
    cluster: Any = Cluster()
    serving, sets = await found_in(cluster, LEADER_WORKER_SET), await found_in(cluster, "statefulset")
    await release(cluster, serving)

    assert (cluster.patched, sets) == (["Pod leader", "Pod worker"], [])
    assert [(each.gates, each.finalizers) for each in serving] == [((), ())] * 2
