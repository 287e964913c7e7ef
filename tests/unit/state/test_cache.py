"""What is believed: assumed, confirmed, forgotten, and equal to a rebuild after any history."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.quota import FlavorResource, add_usage, available
from kqueue.core.workload import Admission, Snapshot
from kqueue.state.cache import Cache
from kqueue.state.cache_audit import Told
from kqueue.state.checks import delayed_flavors
from kqueue.state.holding import Holding
from kqueue.state.holdings import AssumedTwiceError
from tests.readings import free_by_node, requests_per_pod

HOST = "kubernetes.io/hostname"
CPU = FlavorResource("gpu", "cpu")


T = TypeVar("T")


def read(kind: type[T], **obj: Any) -> T:
    return msgspec.convert(obj, kind)


def make_workload(
    name: str, *, host: str | None = None, cpus: int = 4, finished: bool = False, minute: int = 0, ended: int = 0
) -> wire.Workload:
    """Pending without a `host`, else admitted there, in this minute; `ended` of its pods have given back their places."""
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    status: dict[str, Any] = {"conditions": []}
    if host is not None:
        assigned: dict[str, Any] = {
            "levels": [HOST],
            "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": cpus}}],
        }
        entry = {
            "name": "main",
            "flavors": {"cpu": "gpu"},
            "resourceUsage": {"cpu": str(cpus)},
            "count": cpus,
            "topologyAssignment": assigned,
        }
        status["admission"] = {"clusterQueue": "team", "podSetAssignments": [entry]}
        if ended:
            gone = {"levels": [HOST], "slices": [{**assigned["slices"][0], "podCounts": {"universal": ended}}]}
            status["reclaimablePods"] = [{"name": "main", "count": ended}]
            status["finishedPods"] = [{"name": "main", "topologyAssignment": gone}]
        status["conditions"] = [
            {"type": kind, "status": "True", "lastTransitionTime": f"2026-01-01T00:{minute:02}:00Z"}
            for kind in ("QuotaReserved", "Admitted")
        ]
    if finished:
        status["conditions"].append({"type": "Finished", "status": "True"})
    return read(
        wire.Workload,
        metadata={"name": name, "namespace": "ns", "uid": name},
        spec={"queueName": "main", "podSets": [{"name": "main", "count": cpus, "template": template}]},
        status=status,
    )


def make_queue(**spec: Any) -> wire.ClusterQueue:
    quotas = [{"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": "10"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    return read(wire.ClusterQueue, metadata={"name": "team"}, spec={"resourceGroups": groups, **spec})


FLAVOR = read(wire.ResourceFlavor, metadata={"name": "gpu"}, spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"})
TOPOLOGY = read(wire.Topology, metadata={"name": "dc"}, spec={"levels": [{"nodeLabel": HOST}]})


def make_cache() -> Cache:
    cache = Cache()
    for name in ("h1", "h2"):
        node = read(
            wire_core.Node,
            metadata={"name": name, "labels": {HOST: name, "pool": "gpu"}},
            status={"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        )
        cache.on_node(name, model.node_facts(node))
    cache.quota.on_topology("dc", TOPOLOGY)
    cache.on_flavor("gpu", FLAVOR)
    cache.quota.on_cluster_queue("team", make_queue())
    return cache


def free(cache: Cache) -> tuple[int, int]:
    """Quota that is left, and cpu on host h1, both in milli."""
    node = cache.quota.node_of("team")
    assert node is not None
    return available(node, CPU), free_by_node(cache.ledger)["h1"]["cpu"]


def holding(workload: wire.Workload) -> Holding:
    """What a decision to admit this workload assumes."""
    admission = model.admission(workload)
    assert admission is not None
    return Holding(
        key=model.workload_key(workload),
        uid=workload.metadata.uid,
        local_queue="ns/main",
        admission=admission,
        requests=requests_per_pod(workload),
        admitted=False,
        assumed=True,
    )


def on_queue(cache: Cache, name: str, **spec: Any) -> None:
    obj = make_queue(**spec)
    cache.quota.on_cluster_queue(name, msgspec.structs.replace(obj, metadata=read(type(obj.metadata), name=name)))


def on_cohort(cache: Cache, name: str, **spec: Any) -> None:
    cache.quota.on_cohort(name, read(wire.Cohort, metadata={"name": name}, spec=spec))


OTHER_QUOTA = [
    {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": "9"}]}],
    }
]
FIRST_FLAVOR = [
    {
        "coveredResources": ["cpu"],
        "flavors": [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "10"}]} for name in ("new", "gpu")],
    }
]


@pytest.mark.parametrize(
    ("happens", "rises"),
    [
        pytest.param(
            lambda c: c.held.on_workload("ns/b", make_workload("b", host="h2")), False, id="one more holds quota"
        ),
        pytest.param(
            lambda c: c.held.on_workload("ns/a", make_workload("a", host="h1")), False, id="news of who holds it"
        ),
        pytest.param(
            lambda c: c.held.on_workload("ns/a", make_workload("a", host="h2")), True, id="one holds another host"
        ),
        pytest.param(
            lambda c: c.held.on_workload("ns/a", make_workload("a", host="h1", cpus=2)), True, id="one holds less"
        ),
        pytest.param(lambda c: c.held.on_workload("ns/a", None), True, id="one has left"),
        pytest.param(lambda c: c.held.on_workload("ns/c", None), False, id="one has left that held nothing"),
        pytest.param(
            lambda c: on_queue(c, "team", cohortName="all", resourceGroups=OTHER_QUOTA), True, id="its quota changes"
        ),
        pytest.param(
            lambda c: on_queue(c, "team", cohortName="all", resourceGroups=FIRST_FLAVOR),
            True,
            id="flavors are in another order",
        ),
        pytest.param(lambda c: on_queue(c, "team"), True, id="it leaves its cohort"),
        pytest.param(
            lambda c: on_queue(c, "team", cohortName="all", stopPolicy="Hold"), False, id="something else of it changes"
        ),
        pytest.param(lambda c: on_queue(c, "mate", cohortName="all"), True, id="a ClusterQueue joins its cohort"),
        pytest.param(lambda c: on_queue(c, "mate", cohortName="far"), False, id="a ClusterQueue joins another cohort"),
        pytest.param(lambda c: c.quota.on_cluster_queue("rival", None), True, id="one of its cohort is deleted"),
        pytest.param(lambda c: on_queue(c, "rival"), True, id="one of its cohort leaves it"),
        pytest.param(lambda c: on_cohort(c, "all", resourceGroups=OTHER_QUOTA), True, id="its cohort gets quota"),
        pytest.param(lambda c: on_cohort(c, "all", parentName="far"), True, id="its cohort gets a parent"),
        pytest.param(lambda c: on_cohort(c, "far", resourceGroups=OTHER_QUOTA), False, id="another cohort gets quota"),
        pytest.param(lambda c: c.held.on_workload("ns/r", None), False, id="one has left a ClusterQueue beside it"),
    ],
)
def test_when_the_room_of_a_queue_is_another_one(happens: Callable[[Cache], object], rises: bool) -> None:
    """Who leaves it, and quota of its tree; not who comes."""
    cache = make_cache()
    on_queue(cache, "rival", cohortName="all")
    on_queue(cache, "team", cohortName="all")
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    cache.held.on_workload("ns/r", in_queue(make_workload("r", host="h1"), "rival"))
    before = cache.quota.room_generation("team")
    happens(cache)

    assert (cache.quota.room_generation("team") > before) is rises


def in_queue(workload: wire.Workload, queue: str) -> wire.Workload:
    admission = workload.status.admission
    assert admission is not None
    moved = msgspec.structs.replace(admission, cluster_queue=queue)
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, admission=moved))


def test_what_a_stopped_queue_does_not_use_is_lent_all_the_same() -> None:
    """And what its workloads use is still theirs; only it admits nobody."""
    cache = make_cache()
    on_queue(cache, "team", cohortName="all", stopPolicy="Hold")
    on_queue(cache, "rival", cohortName="all")
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    snapshot = cache.snapshot({"team", "rival"})

    assert available(snapshot.nodes["rival"], CPU) == 16_000
    assert list(snapshot.queues) == ["rival"]
    assert list(snapshot.inactive) == ["team"]


def test_a_part_of_a_cohort_that_cannot_be_read_is_logged_and_counts_for_nothing() -> None:
    """The rest of it counts, and nobody of its tree is kept from admitting."""
    cache = make_cache()
    on_queue(cache, "team", cohortName="all")
    quotas = [{"name": "cpu", "nominalQuota": "many"}, {"name": "memory", "nominalQuota": "7"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "gpu", "resources": quotas}]}]
    with structlog.testing.capture_logs() as logged:
        on_cohort(cache, "all", resourceGroups=groups, fairSharing={"weight": "-1"})
    node = cache.quota.cohort_node("all")

    assert node is not None
    assert (node.quota(CPU).nominal, node.quota(FlavorResource("gpu", "memory")).nominal) == (0, 7)
    assert cache.quota.inactive("team") is None
    assert all(fact in str(logged) for fact in ("'many' is not a quantity", "spec.fairSharing.weight"))


@pytest.mark.parametrize(("boosts", "priority"), [pytest.param(True, 4, id="counts"), pytest.param(False, 0, id="not")])
def test_a_boost_counts_for_who_holds_quota(boosts: bool, priority: int) -> None:
    """It is preempted by its effective priority."""
    cache = Cache(order=model.QueueOrder(boosts=boosts))
    workload = make_workload("a", host="h1")
    annotations = {"kueue.x-k8s.io/priority-boost": "4"}
    boosted = msgspec.structs.replace(workload.metadata, annotations=annotations)
    cache.held.on_workload("ns/a", msgspec.structs.replace(workload, metadata=boosted))
    held = cache.held.holding("ns/a")

    assert held is not None
    assert held.priority == priority


def test_a_change_of_priority_may_change_the_outcome_of_a_try() -> None:
    """Who holds quota may be preempted then who could not be before."""
    cache = make_cache()
    workload = make_workload("a", host="h1")
    cache.held.on_workload("ns/a", workload)
    before = cache.generation
    cache.held.on_workload("ns/a", workload)
    assert cache.generation == before
    cache.held.on_workload(
        "ns/a", msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, priority=5))
    )

    assert cache.generation > before


def test_weights_reach_the_quota_tree() -> None:
    """Those of ClusterQueues, of Cohorts, and 1 for cohorts without an object."""
    cache = make_cache()
    cache.quota.on_cluster_queue("team", make_queue(cohortName="own", fairSharing={"weight": "500m"}))
    own: dict[str, Any] = {"parentName": "root", "fairSharing": {"weight": 3}}
    cache.quota.on_cohort("own", read(wire.Cohort, metadata={"name": "own"}, spec=own))
    node = cache.quota.node_of("team")
    assert node is not None
    assert [(n.name, n.weight) for n in node.path_to_root()] == [
        ("team", 500_000_000),
        ("own", 3_000_000_000),
        ("root", 1_000_000_000),
    ]


def test_a_snapshot_takes_over_the_copies_of_one_that_nobody_has() -> None:
    """They are as the trees are now: whatever was charged to them is forgotten."""
    cache = make_cache()
    node = cache.snapshot(["team"]).nodes["team"]
    add_usage(node, CPU, 1)
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    kept = cache.snapshot(["team"])
    assert kept.nodes["team"] is node
    assert node.usage == {CPU: 4_000}
    assert cache.snapshot(["team"]).nodes["team"] is not node


def test_a_snapshot_after_an_audit_has_what_was_healed() -> None:
    """Not what the one before it had copied."""
    cache = make_cache()
    node = cache.quota.node_of("team")
    assert node is not None
    node.usage = {CPU: 1}
    assert cache.snapshot(["team"]).nodes["team"].usage == {CPU: 1}
    assert [drift.key for drift in cache.audits.audit()] == ["of ClusterQueue team"]
    assert cache.snapshot(["team"]).nodes["team"].usage == {}


@pytest.mark.mechanism("3.13")
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_a_snapshot_shows_what_is_held_and_nobody_charges_it_from_outside(seed: int, steps: int) -> None:
    """Whatever comes and goes, whoever is charged, and whichever snapshots are kept."""
    chance, cache = random.Random(seed), make_cache()
    kept: list[tuple[Snapshot, int]] = []
    for _ in range(steps):
        name = f"w{chance.randrange(3)}"
        match chance.randrange(5):
            case 0:
                cache.held.on_workload(f"ns/{name}", make_workload(name, host="h1"))
            case 1:
                cache.held.on_workload(f"ns/{name}", None)
            case 2 if kept:
                kept.pop(chance.randrange(len(kept)))
            case 3 if kept:
                at = chance.randrange(len(kept))
                add_usage(kept[at][0].nodes["team"], CPU, 1)
                kept[at] = kept[at][0], kept[at][1] + 1
            case _:
                kept.append((cache.snapshot(["team"]), 4_000 * len(cache.held.holdings("team"))))
        assert [snapshot.nodes["team"].usage.get(CPU, 0) for snapshot, _ in kept] == [used for _, used in kept]


def test_what_is_assumed_is_charged_once_and_confirmed_by_the_echo() -> None:
    """Quota and host are taken at once; the watch's echo changes nothing; the end gives both back."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    with cache.held.assumed(holding(admitted)):
        pass
    assert free(cache) == (6000, 4000)
    cache.held.on_workload("ns/a", admitted)
    assert free(cache) == (6000, 4000)
    assert cache.held.on_workload("ns/a", make_workload("a", host="h1", finished=True))
    assert free(cache) == (10000, 8000)


def test_a_write_that_fails_gives_the_charge_back() -> None:
    """Whatever ends the block, cancellation included."""
    cache = make_cache()
    with pytest.raises(KeyboardInterrupt), cache.held.assumed(holding(make_workload("a", host="h1"))):
        raise KeyboardInterrupt
    assert free(cache) == (10000, 8000)


def test_an_event_from_before_the_write_does_not_undo_it() -> None:
    """A pending version of an assumed workload leaves the charge; the same after the echo takes it back."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    with cache.held.assumed(holding(admitted)):
        pass
    assert not cache.held.on_workload("ns/a", make_workload("a"))
    assert free(cache) == (6000, 4000)
    cache.held.on_workload("ns/a", admitted)
    assert cache.held.on_workload("ns/a", make_workload("a"))
    assert free(cache) == (10000, 8000)


@pytest.mark.parametrize("audited", [False, True], ids=["an event tells of it", "an audit finds it"])
def test_what_was_written_and_taken_back_unseen_holds_nothing(audited: bool) -> None:
    """A watch that begins anew may show a workload as pending without ever having shown its reservation."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    with cache.held.assumed(holding(admitted)):
        pass
    cache.held.on_written("ns/a", version(admitted, 7))
    assert not cache.held.on_workload("ns/a", version(make_workload("a"), 6))
    assert free(cache) == (6000, 4000)
    later = version(given_back("a"), 8)
    if audited:
        told = Told(nodes=dict(cache.ledger.nodes), pods={}, workloads={"ns/a": later})
        assert [drift.cause for drifts in cache.audits.audit_steps(told) for drift in drifts] == ["workload"]
    else:
        assert cache.held.on_workload("ns/a", later)
    assert free(cache) == (10000, 8000)


def test_what_was_written_says_nothing_of_what_is_assumed_later() -> None:
    """The next admission of a workload is written in a version of its own: news from before that do not undo it."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    for number in (7, 9):
        with cache.held.assumed(holding(admitted)):
            pass
        assert not cache.held.on_workload("ns/a", version(make_workload("a"), number - 1))
        cache.held.on_written("ns/a", version(admitted, number))
        assert cache.held.on_workload("ns/a", version(given_back("a"), number + 1))
    assert free(cache) == (10000, 8000)


def test_what_was_written_and_wiped_unseen_is_held_still() -> None:
    """Its job may run already: nobody gives a reservation back like that."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    with cache.held.assumed(holding(admitted)):
        pass
    cache.held.on_written("ns/a", version(admitted, 7))

    assert not cache.held.on_workload("ns/a", version(make_workload("a"), 8))
    assert free(cache) == (6000, 4000)
    assert cache.held.lost_status("ns/a") == admitted.status


def test_what_was_written_is_not_taken_back() -> None:
    """A step that fails after the write gives nothing back: it stands in the object."""
    cache, admitted = make_cache(), make_workload("a", host="h1")

    def fail_late() -> None:
        with cache.held.assumed(holding(admitted)):
            cache.held.on_written("ns/a", version(admitted, 7))
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail_late()
    assert free(cache) == (6000, 4000)


def test_who_is_told_to_leave_is_told_once() -> None:
    """News from before the eviction do not undo the mark; a reservation made after it does."""
    cache = make_cache()
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    assert cache.held.mark_evicted("ns/a", "a")
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    assert not cache.held.mark_evicted("ns/a", "a")
    cache.held.on_workload("ns/a", make_workload("a", host="h1", minute=5))
    assert cache.held.mark_evicted("ns/a", "a")
    assert not cache.held.mark_evicted("ns/a", "b")


def given_back(name: str) -> wire.Workload:
    """One that had a reservation, and has none any more."""
    conditions = [
        {"type": kind, "status": "False", "reason": "Because", "message": ""} for kind in ("QuotaReserved", "Admitted")
    ]
    status = msgspec.convert({"conditions": conditions}, wire.WorkloadStatus)
    return msgspec.structs.replace(make_workload(name), status=status)


def version(workload: wire.Workload, number: int) -> wire.Workload:
    """The workload as of this resource version."""
    metadata = msgspec.structs.replace(workload.metadata, resource_version=str(number))
    return msgspec.structs.replace(workload, metadata=metadata)


def answered(cache: Cache, key: str, workload: wire.Workload, *, before: wire.Workload | None = None) -> None:
    """The write of what is assumed fails, after this was read, and after `before` was told by the watch."""
    if before is not None:
        cache.held.on_workload(key, before)
    cache.held.on_answer(key, workload)
    raise KeyboardInterrupt


def test_what_an_answer_tells_ahead_of_the_watch_outlives_late_news() -> None:
    """A reservation that was read, because the answer to its write was lost, is kept when its block fails, through
    events from before it and through an audit of what the watch holds; the watch's own news confirm it.
    """
    cache, pending, admitted = make_cache(), make_workload("a"), make_workload("a", host="h1")
    with pytest.raises(KeyboardInterrupt), cache.held.assumed(holding(admitted)):
        answered(cache, "ns/a", admitted)
    told = Told(nodes=dict(cache.ledger.nodes), pods={}, workloads={"ns/a": pending})
    drifts = [drift for drifts in cache.audits.audit_steps(told) for drift in drifts]
    cache.held.on_workload("ns/a", pending)
    assert (drifts, free(cache)) == ([], (6000, 4000))
    cache.held.on_workload("ns/a", admitted)
    assert cache.held.on_workload("ns/a", pending)
    assert free(cache) == (10000, 8000)


@pytest.mark.parametrize(
    ("news", "left"),
    [
        pytest.param(make_workload("a", host="h1"), (6000, 4000), id="that it is reserved"),
        pytest.param(make_workload("a", host="h1", finished=True), (10000, 8000), id="that it is finished"),
    ],
)
def test_an_answer_that_comes_after_the_watch_changes_nothing(news: wire.Workload, left: tuple[int, int]) -> None:
    """What the watch has told stays, and the audit agrees."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    with pytest.raises(KeyboardInterrupt), cache.held.assumed(holding(admitted)):
        answered(cache, "ns/a", admitted, before=news)
    told = Told(nodes=dict(cache.ledger.nodes), pods={}, workloads={"ns/a": news})
    assert [drift for drifts in cache.audits.audit_steps(told) for drift in drifts] == []
    assert free(cache) == left


def moving(cache: Cache) -> Admission:
    """A workload holds host h1, and is about to move to h2."""
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    admission = model.admission(make_workload("a", host="h2"))
    assert admission is not None
    return admission


def test_what_moves_holds_its_new_host_at_once_and_events_from_before_change_nothing() -> None:
    """Quota stays; the old host is free.  An audit finds nothing wrong, and after the echo any news counts."""
    cache = make_cache()
    with cache.held.moved("ns/a", moving(cache)):
        assert free(cache) == (6000, 8000)
        cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    assert free(cache) == (6000, 8000)
    told = Told(nodes=dict(cache.ledger.nodes), pods={}, workloads={"ns/a": make_workload("a", host="h1")})
    assert [drift for drifts in cache.audits.audit_steps(told) for drift in drifts] == []

    cache.held.on_workload("ns/a", make_workload("a", host="h2"))
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))

    assert free(cache) == (6000, 4000)


@pytest.mark.parametrize(
    ("meanwhile", "want"),
    [
        pytest.param(None, (6000, 4000), id="it holds again what it held"),
        pytest.param(make_workload("a", host="h2"), (6000, 8000), id="the write had come through after all"),
        pytest.param(make_workload("a", host="h2", finished=True), (10000, 8000), id="it has finished"),
    ],
)
def test_a_move_that_fails_is_taken_back(meanwhile: wire.Workload | None, want: tuple[int, int]) -> None:
    """Unless an event has told of something newer."""
    cache = make_cache()
    admission = moving(cache)

    def move() -> None:
        with cache.held.moved("ns/a", admission):
            if meanwhile is not None:
                cache.held.on_workload("ns/a", meanwhile)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        move()
    assert free(cache) == want


def test_nothing_is_assumed_twice() -> None:
    """The second time is a bug, and says who holds it."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    with (
        cache.held.assumed(holding(admitted)),
        pytest.raises(AssumedTwiceError, match="team"),
        cache.held.assumed(holding(admitted)),
    ):
        pass


@pytest.mark.parametrize("gone", ["topology", "flavor", "queue"])
def test_usage_is_right_after_something_was_deleted_and_created_again(gone: str) -> None:
    """A Topology, a flavor or a ClusterQueue comes back while a workload runs."""
    cache = make_cache()
    cache.held.on_workload("ns/a", make_workload("a", host="h1"))
    changes: dict[str, Callable[[Any], object]] = {
        "topology": lambda obj: cache.quota.on_topology("dc", obj),
        "flavor": lambda obj: cache.on_flavor("gpu", obj),
        "queue": lambda obj: cache.quota.on_cluster_queue("team", obj),
    }
    change = changes[gone]
    back = {"topology": TOPOLOGY, "flavor": FLAVOR, "queue": make_queue()}[gone]
    change(None)
    change(back)

    assert free(cache) == (6000, 4000)
    assert cache.quota.inactive("team") is None
    assert cache.audits.audit() == []


def test_whether_all_of_a_queue_is_placed_follows_its_flavors_and_itself() -> None:
    """Asked again after each change, and of a queue that comes and goes."""
    cache = make_cache()
    plain = read(wire.ResourceFlavor, metadata={"name": "gpu"}, spec={"nodeLabels": {"pool": "gpu"}})
    found = [cache.quota.is_topology_only("team")]
    for flavor in (plain, FLAVOR):
        cache.on_flavor("gpu", flavor)
        found.append(cache.quota.is_topology_only("team"))
    for queue in (None, make_queue()):
        cache.quota.on_cluster_queue("team", queue)
        found.append(cache.quota.is_topology_only("team"))
    cache.on_flavor("gpu", None)
    found.append(cache.quota.is_topology_only("team"))

    assert found == [True, False, True, False, True, False]


def make_check(name: str, controller: str = "somebody", *, active: bool | None = True) -> wire.AdmissionCheck:
    found: wire.AdmissionCheck = read(
        wire.AdmissionCheck,
        metadata={"name": name},
        spec={"controllerName": f"kueue.x-k8s.io/{controller}"},
        status={"conditions": [{"type": "Active", "status": str(active), "reason": "", "message": ""}]}
        if active is not None
        else {},
    )
    return found


CHECKS = [
    make_check("fine"),
    make_check("idle", active=False),
    make_check("late", "budget", active=None),
    make_check("clouds", "provisioning-request", active=None),
    make_check("remote", "multikueue"),
    make_check("far", "multikueue"),
    make_check("nodes", "provisioning-request"),
]


def checked(*checks: str, on_flavors: tuple[str, ...] = (), **spec: Any) -> wire.ClusterQueue:
    rules = [{"name": name, "onFlavors": list(on_flavors)} for name in checks]
    return make_queue(admissionChecksStrategy={"admissionChecks": rules}, **spec)


@pytest.mark.parametrize(
    ("queue", "reason", "facts"),
    [
        pytest.param(make_queue(stopPolicy="Hold"), "Stopped", ["stopPolicy is Hold"], id="it is stopped"),
        pytest.param(
            checked("gone", "fine"), "AdmissionCheckNotFound", ["AdmissionCheck gone not found"], id="a check is missing"
        ),
        pytest.param(
            checked("idle", "fine"), "AdmissionCheckInactive", ["AdmissionCheck idle is not active"], id="a check is idle"
        ),
        pytest.param(
            checked("late"), "AdmissionCheckInactive",
            ["AdmissionCheck late: controller kueue.x-k8s.io/budget has not set condition Active: start it"],
            id="the controller of a check is missing",
        ),
        pytest.param(
            checked("clouds", "idle"), "AdmissionCheckInactive",
            ["AdmissionCheck idle is not active; AdmissionCheck clouds: controller kueue.x-k8s.io/provisioning-request",
             "name it in admissionChecks.controllers"],
            id="the controller of a check is switched off",
        ),
        pytest.param(
            checked("remote", "far"), "MultipleMultiKueueAdmissionChecks", ["far, remote", "keep one"],
            id="two checks would send its workloads away",
        ),
        pytest.param(
            checked("remote", on_flavors=("gpu",)), "MultiKueueAdmissionCheckAppliedPerFlavor", ["remove its onFlavors"],
            id="a check would send away what uses some flavors",
        ),
        pytest.param(
            checked("remote", "nodes"), "MultiKueueWithProvisioningRequest", ["nodes asks for nodes here"],
            id="nodes are asked for, and work is sent away",
        ),
        pytest.param(
            make_queue(fairSharing={"weight": "much"}), "Unknown", ["spec.fairSharing.weight"], id="a weight is no number"
        ),
        pytest.param(
            checked("gone", "idle", stopPolicy="Hold"), "Stopped",
            ["stopPolicy is Hold; AdmissionCheck gone not found", "; AdmissionCheck idle is not active"],
            id="the first of many problems is the reason, and all are named",
        ),
    ],
)  # fmt: skip
def test_an_inactive_queue_says_why(queue: wire.ClusterQueue, reason: str, facts: list[str]) -> None:
    """The reason of its condition, and a sentence that names the thing."""
    cache = make_cache()
    for check in CHECKS:
        cache.quota.on_check(check.metadata.name, check)
    cache.quota.on_cluster_queue("team", queue)
    why = cache.quota.inactive("team")

    assert why is not None
    assert why.reason == reason
    assert [fact for fact in facts if fact not in why.message] == []


@pytest.mark.parametrize(
    ("check", "works"),
    [
        pytest.param("remote", True, id="pods that run elsewhere need no topology here"),
        pytest.param("fine", False, id="pods that run here do"),
    ],
)
def test_a_topology_is_missed_where_pods_run(check: str, works: bool) -> None:
    """A queue whose workloads MultiKueue sends away is active without it."""
    cache = make_cache()
    for each in CHECKS:
        cache.quota.on_check(each.metadata.name, each)
    cache.quota.on_topology("dc", None)
    cache.quota.on_cluster_queue("team", checked(check))

    assert (cache.quota.inactive("team") is None) == works


def test_a_missing_flavor_and_topology_are_named() -> None:
    """FlavorNotFound first, then TopologyNotFound."""
    cache = make_cache()
    cache.quota.on_topology("dc", None)
    missing_topology = cache.quota.inactive("team")
    cache.on_flavor("gpu", None)
    missing_flavor = cache.quota.inactive("team")

    assert missing_topology is not None
    assert missing_flavor is not None
    assert (missing_topology.reason, missing_flavor.reason) == ("TopologyNotFound", "FlavorNotFound")


def test_pods_that_have_ended_give_back_their_places() -> None:
    """In the ledger, in what preemption sees, and for who rebuilds it from the Workload alone; step by step."""
    cache = make_cache()
    seen = []
    for ended in (0, 1, 3, 4):
        workload = make_workload("w", host="h1", ended=ended)
        cache.held.on_workload("ns/w", workload)
        anew = make_cache()
        anew.held.on_workload("ns/w", workload)
        view = cache.snapshot(["team"]).admitted["team"]["ns/w"]
        seen.append((free(cache), sum(usage.count for usage in view.domains.get("gpu", ()))))
        assert (cache.audits.audit(), free(anew)) == ([], free(cache))

    assert seen == [((6000, 4000), 4), ((7000, 5000), 3), ((9000, 7000), 1), ((10000, 8000), 0)]


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_any_history_ends_where_a_rebuild_would(seed: int, steps: int) -> None:
    """Admissions, ends, deletions and configuration changes in any order leave no drift."""
    chance = random.Random(seed)
    cache = make_cache()
    for _ in range(steps):
        name = f"w{chance.randrange(4)}"
        match chance.randrange(7):
            case 0 | 1:
                told = make_workload(name, host=chance.choice(["h1", "h2"]), ended=chance.choice([0, 0, 1, 4]))
                cache.held.on_workload(f"ns/{name}", told)
            case 2:
                cache.held.on_workload(f"ns/{name}", make_workload(name))
            case 3:
                cache.held.on_workload(f"ns/{name}", None)
            case 4:
                cache.quota.on_topology("dc", chance.choice([None, TOPOLOGY]))
            case 5:
                cache.on_flavor("gpu", chance.choice([None, FLAVOR]))
            case _:
                cache.quota.on_cluster_queue("team", chance.choice([None, make_queue()]))
        assert cache.audits.audit() == []
        held, holdings = cache.held.held_in("team"), cache.held.holdings("team")
        assert (held.reserving, held.reserved.get(CPU, 0)) == (
            len(holdings),
            sum(holding.admission.usage()[CPU] for holding in holdings),
        )


def test_an_admission_does_not_fit_once_one_of_its_hosts_is_gone() -> None:
    """Quota is left; the host left after the plan and before the write."""
    cache = make_cache()
    admission = holding(make_workload("a", host="h1")).admission
    assert cache.fits(admission)

    cache.on_node("h1", None)

    assert not cache.fits(admission)
    assert cache.fits(holding(make_workload("b", host="h2")).admission)


@pytest.mark.parametrize(
    ("queue", "want"),
    [
        pytest.param(checked("fine"), set(), id="a check about something else"),
        pytest.param(checked("nodes"), {"gpu"}, id="nodes are made first"),
        pytest.param(checked("remote"), {"gpu"}, id="another cluster has the nodes"),
        pytest.param(checked("unknown"), set(), id="a check that does not exist"),
    ],
)
def test_flavors_whose_domains_are_chosen_after_the_checks(queue: wire.ClusterQueue, want: set[str]) -> None:
    assert queue.spec is not None
    assert delayed_flavors(queue.spec, {check.metadata.name: check for check in CHECKS}) == want
