from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from kqueue.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from kqueue.sandbox.api import JOBS, JSON_PATCH, NAMESPACES, NODES, PODS, GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.deletion import Preconditions
from kqueue.sandbox.failure import Detailed
from kqueue.sandbox.objects import WriteOptions
from tests.unit.sandbox.objects import CONFIG_MAPS, START, config_map, job, new_api, pod

BINDINGS = GroupVersionResource("", "v1", "pods/binding")
EVICTIONS = GroupVersionResource("", "v1", "pods/eviction")
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")


@pytest.fixture
def api() -> ClusterApi:
    return new_api()


def fields_of(error: ApiError) -> list[str]:
    assert isinstance(error, Detailed)
    return [cause.field for cause in error.details.causes]


async def test_a_new_object_gets_what_only_the_server_gives(api: ClusterApi) -> None:
    """UID, time of creation, version and kind are there; what the client said about them is not."""
    sent = config_map(uid="mine", creationTimestamp="2020-01-01T00:00:00Z", generation=7)

    created = await api.create(CONFIG_MAPS, sent)

    meta = created["metadata"]
    assert (created["kind"], created["apiVersion"], meta["creationTimestamp"]) == ("ConfigMap", "v1", START)
    assert meta["uid"] not in ("", "mine")
    assert int(meta["resourceVersion"]) > 1
    assert "generation" not in meta
    assert api.get(CONFIG_MAPS, "c", namespace="default") is created
    assert sent["metadata"]["uid"] == "mine"


async def test_names_are_generated_and_differ(api: ClusterApi) -> None:
    """generateName gives every object a name of its own, and a long base leaves room for the letters."""
    sent: Object = {"metadata": {"generateName": "x" * 80, "namespace": "default"}}

    made = [(await api.create(CONFIG_MAPS, sent))["metadata"]["name"] for _ in range(50)]

    assert len(set(made)) == 50
    assert all(len(name) == 63 for name in made)


@pytest.mark.parametrize(
    ("obj", "error", "status"),
    [
        pytest.param(config_map("there"), AlreadyExistsError, 409, id="a-name-that-is-taken"),
        pytest.param(config_map(namespace="nowhere"), NotFoundError, 404, id="a-namespace-that-is-not-there"),
        pytest.param(config_map("Big_Name"), InvalidError, 422, id="a-name-that-is-none"),
        pytest.param(config_map(""), InvalidError, 422, id="no-name"),
        pytest.param(config_map(labels={"a b": "c"}), InvalidError, 422, id="a-label-that-is-none"),
        pytest.param(config_map(labels={"a": 1}), InvalidError, 400, id="a-label-of-another-type"),
        pytest.param(config_map(ownerReferences=[{"name": "x"}]), InvalidError, 422, id="an-owner-without-uid"),
        pytest.param(config_map(resourceVersion="5"), ServerError, 500, id="a-version-before-it-exists"),
        pytest.param({**config_map(), "kind": "Secret"}, InvalidError, 400, id="another-kind"),
        pytest.param({"metadata": "x"}, InvalidError, 400, id="metadata-that-is-text"),
        pytest.param({**config_map(), "data": {"a": 1}}, InvalidError, 400, id="a-value-of-another-type"),
    ],
)
async def test_what_cannot_be_created_says_why(
    api: ClusterApi, obj: Object, error: type[ApiError], status: int
) -> None:
    """Each refusal has its own status."""
    await api.create(CONFIG_MAPS, config_map("there"))

    with pytest.raises(error) as caught:
        await api.create(CONFIG_MAPS, obj)

    assert caught.value.status == status


async def test_unknown_fields_are_dropped_warned_of_or_refused(api: ClusterApi) -> None:
    """The three ways of field validation: Ignore, Warn, Strict."""
    obj = {**config_map(), "dta": {"a": "b"}}
    options = WriteOptions(validation="Warn", dry_run=True)

    assert "dta" not in await api.create(CONFIG_MAPS, obj, options=options)
    assert options.warnings == ['unknown field "dta"']
    with pytest.raises(InvalidError, match='unknown field "dta"'):
        await api.create(CONFIG_MAPS, obj, options=WriteOptions(validation="Strict"))
    assert "dta" not in await api.create(CONFIG_MAPS, obj)


async def test_a_stale_version_is_a_conflict(api: ClusterApi) -> None:
    """Whoever writes with an old resourceVersion, by update or by patch, is told to read again."""
    first = await api.create(CONFIG_MAPS, config_map())
    await api.patch(CONFIG_MAPS, "c", {"data": {"a": "2"}}, namespace="default")

    with pytest.raises(ConflictError, match="the object has been modified"):
        await api.update(CONFIG_MAPS, {**first, "data": {}})
    lock = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    with pytest.raises(ConflictError) as caught:
        await api.patch(CONFIG_MAPS, "c", lock, namespace="default")
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")


async def test_a_write_that_changes_nothing_keeps_the_version(api: ClusterApi) -> None:
    """No new version, no event."""
    created = await api.create(CONFIG_MAPS, config_map())

    again = await api.update(CONFIG_MAPS, created)
    patched = await api.patch(CONFIG_MAPS, "c", {"data": {"a": "1"}}, namespace="default")

    assert again is created
    assert patched is created


async def test_a_dry_run_answers_and_stores_nothing(api: ClusterApi) -> None:
    """Create, change and deletion can be tried."""
    dry = WriteOptions(dry_run=True)
    await api.create(CONFIG_MAPS, config_map("new"), options=dry)
    created = await api.create(CONFIG_MAPS, config_map())
    changed = await api.patch(CONFIG_MAPS, "c", {"data": {"a": "2"}}, namespace="default", options=dry)
    await api.delete_owned(api.kind(CONFIG_MAPS), "c", "default", options=dry)

    assert changed["data"] == {"a": "2"}
    assert api.list(CONFIG_MAPS) == [created]


async def test_generation_counts_what_is_asked_for(api: ClusterApi) -> None:
    """Spec changes raise it; labels and status do not."""
    await api.create(JOBS, job(suspend=True))

    generations = [
        (await api.patch(JOBS, "j", patch, namespace="default", subresource=sub))["metadata"]["generation"]
        for patch, sub in (
            ({"metadata": {"labels": {"a": "b"}}}, None),
            ({"status": {"active": 1}}, "status"),
            ({"spec": {"parallelism": 3}}, None),
        )
    ]

    assert generations == [1, 1, 2]


async def test_spec_and_status_do_not_overwrite_each_other(api: ClusterApi) -> None:
    """The main resource keeps the status, the status subresource keeps the spec."""
    await api.create(JOBS, job())
    patch = {"spec": {"parallelism": 5}, "status": {"active": 5}}

    main = await api.patch(JOBS, "j", patch, namespace="default")
    status = await api.patch(
        JOBS, "j", {"spec": {"parallelism": 7}, "status": {"active": 7}}, namespace="default", subresource="status"
    )

    assert (main["spec"]["parallelism"], main["status"]) == (5, {})
    assert (status["spec"]["parallelism"], status["status"]) == (5, {"active": 7})


async def test_finalizers_hold_a_deleted_object(api: ClusterApi) -> None:
    """It is marked, takes no new finalizer, and goes with its last one."""
    await api.create(CONFIG_MAPS, config_map(finalizers=["example.com/a", "example.com/b"]))

    marked = await api.delete(CONFIG_MAPS, "c", namespace="default")
    assert marked["metadata"]["deletionTimestamp"] == START
    with pytest.raises(InvalidError, match="no new finalizers"):
        await patch_finalizers(api, ["example.com/a", "example.com/b", "example.com/c"])
    await patch_finalizers(api, ["example.com/b"])
    assert api.list(CONFIG_MAPS)
    await patch_finalizers(api, [])

    assert not api.list(CONFIG_MAPS)


async def patch_finalizers(api: ClusterApi, finalizers: list[str]) -> None:
    await api.patch(CONFIG_MAPS, "c", {"metadata": {"finalizers": finalizers}}, namespace="default")


async def test_a_bound_pod_waits_for_its_kubelet(api: ClusterApi) -> None:
    """Deletion marks it for the end of its grace period; only a deletion with none removes it."""
    await api.create(PODS, pod(terminationGracePeriodSeconds=20))
    await bind(api)

    marked = await api.delete(PODS, "p", namespace="default")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 20
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:20Z"
    sooner = await api.delete(PODS, "p", namespace="default", grace_period_seconds=5)
    assert sooner["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    later = await api.delete(PODS, "p", namespace="default", grace_period_seconds=50)
    assert later["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    await api.delete(PODS, "p", namespace="default", grace_period_seconds=0)

    assert not api.list(PODS)


async def bind(api: ClusterApi, name: str = "p", node: str = "n") -> None:
    await api.create(BINDINGS, {"metadata": {"name": name}, "target": {"name": node}}, namespace="default")


async def test_a_pod_that_nobody_holds_goes_at_once(api: ClusterApi) -> None:
    """Neither an unbound pod nor a finished one waits."""
    await api.create(PODS, pod("unbound"))
    await api.create(PODS, pod("done"))
    await bind(api, "done")
    await api.patch(PODS, "done", {"status": {"phase": "Failed"}}, namespace="default", subresource="status")

    for name in ("unbound", "done"):
        await api.delete(PODS, name, namespace="default")

    assert not api.list(PODS)


async def test_a_pod_is_bound_once_and_not_through_gates(api: ClusterApi) -> None:
    """A binding names the node and the condition; a second one, or one of a gated pod, is a conflict."""
    await api.create(PODS, pod())
    await api.create(PODS, pod("gated", schedulingGates=[{"name": "example.com/g"}]))

    await bind(api)

    bound = api.get(PODS, "p", namespace="default")
    assert bound["spec"]["nodeName"] == "n"
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    for name, why in (("p", 'already assigned to node "n"'), ("gated", "non-empty .spec.schedulingGates")):
        with pytest.raises(ConflictError, match=why):
            await bind(api, name, "m")


@pytest.mark.parametrize(
    ("budget", "evicted"),
    [
        pytest.param({"minAvailable": 1}, True, id="one-of-two-is-enough"),
        pytest.param({"minAvailable": 2}, False, id="both-are-needed"),
        pytest.param({"minAvailable": "51%"}, False, id="percentages-round-up"),
        pytest.param({"maxUnavailable": 1}, True, id="one-may-be-missing"),
        pytest.param({"maxUnavailable": 0}, False, id="none-may-be-missing"),
        pytest.param({"maxUnavailable": 0, "selector": {}}, False, id="an-empty-selector-selects-all-pods"),
        pytest.param({"maxUnavailable": 0, "selector": None}, True, id="an-absent-selector-selects-no-pods"),
    ],
)
async def test_evictions_respect_disruption_budgets(api: ClusterApi, budget: dict[str, Any], evicted: bool) -> None:
    """A ready pod is evicted only if enough ready ones stay."""
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for name in ("p", "q"):
        await api.create(PODS, pod(name, metadata={"labels": {"app": "x"}}))
        await api.patch(PODS, name, ready, namespace="default", subresource="status")
    spec = {"selector": {"matchLabels": {"app": "x"}}, **budget}
    await api.create(BUDGETS, {"metadata": {"name": "b", "namespace": "default"}, "spec": spec})

    with nullcontext() if evicted else pytest.raises(TooManyRequestsError, match="disruption budget"):
        await api.create(EVICTIONS, {"metadata": {"name": "p"}}, namespace="default")

    assert len(api.list(PODS)) == (1 if evicted else 2)


async def test_a_deletion_can_be_bound_to_one_object(api: ClusterApi) -> None:
    """A precondition on UID or version that does not hold is a conflict."""
    created = await api.create(CONFIG_MAPS, config_map())
    kind, meta = api.kind(CONFIG_MAPS), created["metadata"]

    for wrong in (Preconditions(uid="other"), Preconditions(resource_version="1")):
        with pytest.raises(ConflictError, match="Precondition failed"):
            await api.delete_owned(kind, "c", "default", preconditions=wrong)
    right = Preconditions(uid=meta["uid"], resource_version=meta["resourceVersion"])

    assert (await api.delete_owned(kind, "c", "default", preconditions=right)).gone


async def test_some_things_a_cluster_cannot_be_without(api: ClusterApi) -> None:
    """The default namespace is not deleted, and nothing new comes into one that ends."""
    with pytest.raises(ForbiddenError, match="may not be deleted"):
        await api.delete(NAMESPACES, "default")
    await api.create(NAMESPACES, {"metadata": {"name": "ending"}})
    marked = await api.delete(NAMESPACES, "ending")

    assert marked["status"]["phase"] == "Terminating"
    with pytest.raises(ForbiddenError, match="is being terminated") as caught:
        await api.create(CONFIG_MAPS, config_map(namespace="ending"))
    assert fields_of(caught.value) == ["metadata.namespace"]


async def test_identity_cannot_be_changed(api: ClusterApi) -> None:
    """Name, UID and time of creation stay."""
    await api.create(CONFIG_MAPS, config_map())

    for field, value in (("name", "other"), ("uid", "other"), ("creationTimestamp", "2020-01-01T00:00:00Z")):
        with pytest.raises((InvalidError, ConflictError)):
            await api.patch(CONFIG_MAPS, "c", {"metadata": {field: value}}, namespace="default")


async def test_a_failed_json_patch_changes_nothing(api: ClusterApi) -> None:
    """All operations or none."""
    created = await api.create(CONFIG_MAPS, config_map())
    operations = [{"op": "add", "path": "/data/b", "value": "2"}, {"op": "test", "path": "/data/a", "value": "no"}]

    with pytest.raises(InvalidError) as caught:
        await api.patch(CONFIG_MAPS, "c", operations, namespace="default", content_type=JSON_PATCH)

    assert caught.value.status == 422
    assert api.get(CONFIG_MAPS, "c", namespace="default") is created


async def test_a_watch_tells_present_objects_and_then_every_change(api: ClusterApi) -> None:
    """Nothing is skipped however late the watcher reads, and the watch ends when the server stops."""
    await api.create(CONFIG_MAPS, config_map("a"))
    events = api.watch(CONFIG_MAPS)
    seen = [await anext(events)]
    for value in map(str, range(100)):
        await api.patch(CONFIG_MAPS, "a", {"data": {"x": value}}, namespace="default")
    await api.delete(CONFIG_MAPS, "a", namespace="default")
    seen += [await anext(events) for _ in range(101)]
    rest = asyncio.ensure_future(anext(events, None))
    await asyncio.sleep(0)
    api.stop()

    assert await rest is None
    assert [kind for kind, _ in seen] == ["ADDED", *["MODIFIED"] * 100, "DELETED"]
    assert [obj["data"].get("x") for _, obj in seen[1:101]] == list(map(str, range(100)))


async def test_lists_can_be_narrowed(api: ClusterApi) -> None:
    """By namespace and by labels, in order of keys."""
    for name, labels in (("b", {"x": "1"}), ("a", {"x": "1", "y": "2"}), ("c", {})):
        await api.create(CONFIG_MAPS, config_map(name, labels=labels))
    await api.create(CONFIG_MAPS, config_map("a", namespace="kube-system"))

    def names(**how: Any) -> list[str]:
        return [obj["metadata"]["name"] for obj in api.list(CONFIG_MAPS, **how)]

    assert names() == ["a", "b", "c", "a"]
    assert names(namespace="default", labels={"x": "1"}) == ["a", "b"]
    assert names(labels={"x": "1", "y": "2"}) == ["a"]


async def test_an_event_has_two_faces(api: ClusterApi) -> None:
    """What is written as events.k8s.io/v1 is read as core, and the other way round."""
    new, core = GroupVersionResource("events.k8s.io", "v1", "events"), GroupVersionResource("", "v1", "events")
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    written = {"regarding": about, "note": "hello", "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
               "reportingController": "x", "reportingInstance": "x-1", "action": "Try", "reason": "Tried"}  # fmt: skip
    await api.create(new, {"metadata": {"name": "n", "namespace": "default"}, **written})
    await api.create(
        core, {"metadata": {"name": "o", "namespace": "default"}, "involvedObject": about, "message": "bye"}
    )

    assert api.get(core, "n", namespace="default")["message"] == "hello"
    assert api.get(core, "n", namespace="default")["involvedObject"]["name"] == "p"
    assert [e["note"] for e in api.list(new)] == ["hello", "bye"]
    assert {e["apiVersion"] for e in api.list(new)} == {"events.k8s.io/v1"}


async def test_a_node_keeps_the_status_it_comes_with(api: ClusterApi) -> None:
    """A kubelet registers with its capacity; what it leaves out can be allocated in full."""
    created = await api.create(NODES, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4000m"}}})

    assert created["status"] == {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
