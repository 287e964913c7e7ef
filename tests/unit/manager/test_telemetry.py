"""What is counted and shown of workloads and queues."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kqueue import model
from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import meta as wire_meta
from kqueue.api.wire.meta import Condition
from kqueue.clock import FakeClock
from kqueue.controllers.record import ObjectReference, job_controller
from kqueue.core.decision import Admit, Phase, PlacementQuality, Retargeted
from kqueue.core.mention import Mention
from kqueue.core.preemption import PreemptionReason, Target
from kqueue.core.topology import HOSTNAME, Algorithm, Domain, LevelQuality, TopologyAssignment
from kqueue.core.workload import Admitted
from kqueue.manager.gauges import QueueGauges
from kqueue.manager.telemetry import CycleObserver, Events, WorkloadCounter
from kqueue.observe import CustomLabel, EventRecorder, Metrics
from kqueue.observe.events import EventHooks
from kqueue.observe.metric_groups import MetricGroups
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairRules, FairUsage
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from tests.readings import page_of

CLOCK = FakeClock()
QUEUE, LOCAL = {"cluster_queue": "team"}, {"name": "main", "namespace": "ns"}
EVICTION = {"reason": "Preempted", "underlying_cause": "", "priority_class": "high"}


def read(kind: type[Any], **obj: Any) -> Any:
    return msgspec.convert(obj, kind, strict=False)


def true(kind: str, *, ago: int = 0, reason: str = "") -> dict[str, str]:
    """A condition that became True so many seconds ago."""
    since = (CLOCK.now() - timedelta(seconds=ago)).isoformat()
    return {"type": kind, "status": "True", "reason": reason or kind, "message": "", "lastTransitionTime": since}


def workload(
    *conditions: dict[str, str],
    held: bool = True,
    name: str = "w",
    annotations: Mapping[str, str] | None = None,
    **status: Any,
) -> wire.Workload:
    """A workload of one pod; `held`: with quota in ClusterQueue team."""
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    entry = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1500m"}, "count": 1}
    admission = {"clusterQueue": "team", "podSetAssignments": [entry]}
    found: wire.Workload = read(
        wire.Workload,
        metadata={"name": name, "namespace": "ns", "uid": name, "annotations": dict(annotations or {})},
        spec={
            "queueName": "main",
            "podSets": [{"name": "main", "count": 1, "template": template}],
            "priorityClassRef": {"group": "", "kind": "PriorityClass", "name": "high"},
        },
        status={"conditions": list(conditions), **({"admission": admission} if held else {}), **status},
    )
    return found


def evictions(count: int) -> dict[str, Any]:
    return {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": count}]}


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    page = page_of(metrics).decode()
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(page)
        for s in family.samples
    }


def value(metrics: Metrics, name: str, labels: dict[str, str]) -> float | None:
    return samples(metrics).get((name, frozenset({**labels, "replica_role": "standalone"}.items())))


WAITING = workload(held=False)
CHECKED = workload(true("QuotaReserved", ago=90))
ADMITTED = workload(true("QuotaReserved", ago=90), true("Admitted", ago=60))
HELD = workload(true("QuotaReserved", ago=60), true("Admitted", ago=60))
EVICTED = workload(true("Admitted", ago=60), true("Evicted", ago=5, reason="Preempted"), schedulingStats=evictions(1))
AGAIN = workload(true("Admitted", ago=60), true("Evicted", ago=0, reason="Preempted"), schedulingStats=evictions(2))
FAILED_BEFORE = workload(
    true("Admitted", ago=60),
    schedulingStats={"evictions": [{"reason": "NodeFailures", "underlyingCause": "", "count": 3}]},
)
OTHERWISE = workload(
    true("Admitted", ago=60),
    true("Evicted", ago=5, reason="Preempted"),
    schedulingStats={
        "evictions": [{"reason": "NodeFailures", "underlyingCause": "", "count": 3}, *evictions(1)["evictions"]]
    },
)
DEACTIVATED = workload(
    true("Admitted", ago=60),
    true("Evicted", ago=5, reason="DeactivatedDueToAdmissionCheck"),
    schedulingStats={"evictions": [{"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1}]},
)
EVICTED_READY = workload(
    true("Admitted", ago=60),
    true("PodsReady", ago=30),
    true("Evicted", ago=5, reason="Preempted"),
    schedulingStats=evictions(1),
)
GONE = workload(true("Evicted", ago=5, reason="Preempted"), held=False, schedulingStats=evictions(1))
READY = workload(true("Admitted", ago=60), true("PodsReady"))
FINISHED = workload(true("Admitted", ago=60), true("Finished"))


@pytest.mark.parametrize(
    ("old", "new", "name", "labels", "want"),
    [
        pytest.param(CHECKED, ADMITTED, "kueue_admitted_workloads_total", QUEUE | {"priority_class": "high"}, 1,
                     id="admitted-once-its-checks-were-ready"),
        pytest.param(CHECKED, ADMITTED, "kueue_local_queue_admission_wait_time_seconds_count",
                     LOCAL | {"priority_class": "high"}, 1, id="its-wait-in-its-local-queue"),
        pytest.param(CHECKED, ADMITTED, "kueue_admission_checks_wait_time_seconds_sum",
                     QUEUE | {"priority_class": "high"}, 90, id="how-long-its-checks-took"),
        pytest.param(HELD, DEACTIVATED, "kueue_evicted_workloads_total",
                     QUEUE | EVICTION | {"reason": "Deactivated", "underlying_cause": "AdmissionCheck"}, 1,
                     id="evicted-by-a-deactivation-of-ours"),
        pytest.param(FAILED_BEFORE, OTHERWISE, "kueue_evicted_workloads_total",
                     QUEUE | EVICTION | {"reason": "NodeFailures"}, None, id="not-those-that-were-counted-before"),
        pytest.param(WAITING, HELD, "kueue_admitted_workloads_total", QUEUE | {"priority_class": "high"}, None,
                     id="not-what-was-counted-with-its-reservation"),
        pytest.param(HELD, READY, "kueue_admitted_until_ready_wait_time_seconds_sum",
                     QUEUE | {"priority_class": "high"}, 60, id="how-long-until-its-pods-were-ready"),
        pytest.param(HELD, READY, "kueue_local_queue_ready_wait_time_seconds_count",
                     LOCAL | {"priority_class": "high"}, 1, id="ready-in-its-local-queue"),
        pytest.param(HELD, FINISHED, "kueue_finished_workloads_total", QUEUE | {"priority_class": "high"}, 1,
                     id="finished"),
        pytest.param(HELD, FINISHED, "kueue_local_queue_finished_workloads_total", LOCAL | {"priority_class": "high"},
                     1, id="finished-in-its-local-queue"),
        pytest.param(HELD, FINISHED, "kueue_execution_time_seconds_sum", QUEUE | {"priority_class": "high"}, 60,
                     id="how-long-it-ran"),
        pytest.param(FINISHED, FINISHED, "kueue_finished_workloads_total", QUEUE | {"priority_class": "high"}, None,
                     id="finished-once"),
        pytest.param(None, FINISHED, "kueue_finished_workloads_total", QUEUE | {"priority_class": "high"}, None,
                     id="not-what-was-finished-before-the-watch"),
        pytest.param(HELD, EVICTED, "kueue_evicted_workloads_total", QUEUE | EVICTION, 1, id="evicted"),
        pytest.param(HELD, EVICTED, "kueue_evicted_workloads_once_total", QUEUE | EVICTION, 1, id="evicted-first"),
        pytest.param(HELD, EVICTED, "kueue_local_queue_evicted_workloads_total", LOCAL | EVICTION, 1,
                     id="evicted-in-its-local-queue"),
        pytest.param(READY, EVICTED_READY, "kueue_pods_ready_to_evicted_time_seconds_sum",
                     QUEUE | {"reason": "Preempted", "underlying_cause": ""}, 30, id="how-long-it-was-ready"),
        pytest.param(HELD, EVICTED, "kueue_pods_ready_to_evicted_time_seconds_count",
                     QUEUE | {"reason": "Preempted", "underlying_cause": ""}, None, id="it-was-never-ready"),
        pytest.param(HELD, OTHERWISE, "kueue_evicted_workloads_once_total", QUEUE | EVICTION, 1,
                     id="evicted-first-for-this-reason"),
        pytest.param(EVICTED, AGAIN, "kueue_evicted_workloads_total", QUEUE | EVICTION, 1, id="evicted-again"),
        pytest.param(EVICTED, AGAIN, "kueue_evicted_workloads_once_total", QUEUE | EVICTION, None,
                     id="again-is-not-first"),
        pytest.param(EVICTED, GONE, "kueue_workload_eviction_latency_seconds_sum", QUEUE | {"reason": "Preempted"}, 5,
                     id="how-long-until-it-gave-back"),
    ],
)  # fmt: skip
def test_steps_of_workloads_are_counted(
    old: wire.Workload | None, new: wire.Workload, name: str, labels: dict[str, str], want: float | None
) -> None:
    """Once each, under the names that dashboards know."""
    metrics = Metrics(clock=CLOCK)
    WorkloadCounter(metrics, CLOCK, lambda: True).on_workload(old, new)

    assert value(metrics, name, labels) == want


@pytest.mark.parametrize(
    ("new", "name", "labels", "want"),
    [
        pytest.param(READY, "kueue_admitted_until_ready_wait_time_seconds_count", {"priority_class": "high"}, None, id="its pods"),
        pytest.param(FINISHED, "kueue_finished_workloads_total", {"priority_class": "high"}, None, id="its end"),
        pytest.param(workload(true("Finished"), held=False), "kueue_finished_workloads_total", {"priority_class": "high"}, None, id="its end without quota"),
        pytest.param(EVICTED, "kueue_evicted_workloads_total", EVICTION, 1, id="its own eviction counts"),
    ],
)  # fmt: skip
def test_a_job_counts_once_with_its_variants(
    new: wire.Workload, name: str, labels: dict[str, str], want: float | None
) -> None:
    """By its own Workload, but where the variant was evicted: that is not counted on the parent."""

    def of_parent(obj: wire.Workload) -> wire.Workload:
        owner = wire_meta.OwnerReference(
            api_version="kueue.x-k8s.io/v1beta2", kind="Workload", name="p", uid="p", controller=True
        )
        metadata = msgspec.structs.replace(obj.metadata, owner_references=(owner,))
        return msgspec.structs.replace(obj, metadata=metadata)

    metrics = Metrics(clock=CLOCK)
    old = HELD if new.status.admission is not None else workload(held=False)
    counter = WorkloadCounter(metrics, CLOCK, lambda: True, cluster_queue_of=lambda _local: "team")
    counter.on_workload(of_parent(old), of_parent(new))

    assert value(metrics, name, QUEUE | labels) == want


@pytest.mark.parametrize(("cluster_queue", "want"), [("team", 1), (None, None)])
def test_a_workload_that_finishes_without_an_admission_is_counted(
    cluster_queue: str | None, want: float | None
) -> None:
    """In the queues that it waited in; a queue that does not exist gets no series."""
    metrics, by_class = Metrics(clock=CLOCK), {"priority_class": "high"}
    counter = WorkloadCounter(metrics, CLOCK, lambda: True, cluster_queue_of={"ns/main": cluster_queue}.get)
    finished = workload(true("Finished"), held=False)
    counter.on_workload(workload(held=False), finished)
    counter.on_workload(finished, finished)

    assert value(metrics, "kueue_finished_workloads_total", QUEUE | by_class) == want
    assert value(metrics, "kueue_local_queue_finished_workloads_total", LOCAL | by_class) == want
    assert value(metrics, "kueue_execution_time_seconds_count", QUEUE | by_class) is None


@pytest.mark.parametrize(("cluster_queue", "want"), [("team", 0), (None, None)])
def test_the_series_of_an_admission_are_there_when_a_workload_arrives(
    cluster_queue: str | None, want: float | None
) -> None:
    """So the first cycle does not make them; a queue that does not exist gets none, nor does a workload that runs."""
    metrics, by_class = Metrics(clock=CLOCK), {"priority_class": "high"}
    counter = WorkloadCounter(metrics, CLOCK, lambda: True, cluster_queue_of={"ns/main": cluster_queue}.get)
    counter.on_workload(None, HELD)
    assert value(metrics, "kueue_admitted_workloads_total", QUEUE | by_class) is None

    counter.on_workload(None, workload(held=False))
    for name in ("kueue_admitted_workloads_total", "kueue_admission_wait_time_seconds_count"):
        assert value(metrics, name, QUEUE | by_class) == want
    assert value(metrics, "kueue_local_queue_admitted_workloads_total", LOCAL | by_class) == want


def test_a_follower_counts_nothing() -> None:
    """What the leader counts must not be counted by every replica."""
    metrics = Metrics(clock=CLOCK)
    WorkloadCounter(metrics, CLOCK, lambda: False).on_workload(HELD, FINISHED)

    assert value(metrics, "kueue_finished_workloads_total", QUEUE | {"priority_class": "high"}) is None


@pytest.mark.parametrize(
    ("annotations", "is_group"),
    [
        pytest.param({}, "false", id="of a job"),
        pytest.param({"kueue.x-k8s.io/is-group-workload": "true"}, "true", id="of a pod group"),
    ],
)
def test_released_pods_are_counted_with_the_time_since_admission(annotations: dict[str, str], is_group: str) -> None:
    """One observation per pod; those with ranks are told apart by whether these were of use."""
    metrics = Metrics(clock=CLOCK)
    counter = WorkloadCounter(metrics, CLOCK, lambda: True)
    metadata = msgspec.structs.replace(HELD.metadata, annotations=annotations)
    for in_order in (True, None, False):
        counter.on_released(msgspec.structs.replace(HELD, metadata=metadata), in_order)

    gate = QUEUE | {"name": "kueue.x-k8s.io/topology", "is_group": is_group}
    assert value(metrics, "kqueue_ungated_pods_total", QUEUE) == 3
    assert value(metrics, "kqueue_ranked_pods_total", QUEUE | {"order": "kept"}) == 1
    assert value(metrics, "kqueue_ranked_pods_total", QUEUE | {"order": "lost"}) == 1
    assert value(metrics, "kueue_pod_scheduling_gate_removal_seconds_count", gate) == 3
    assert value(metrics, "kueue_pod_scheduling_gate_removal_seconds_sum", gate) == 180


class World:
    """One ClusterQueue with one LocalQueue, and its gauges."""

    def __init__(self, *, fair: bool = False, custom: Sequence[CustomLabel] = ()) -> None:
        self.metrics = Metrics(
            groups=MetricGroups(cluster_queue_resources=True), clock=CLOCK, custom_labels={"Workload": custom}
        )
        self.cache, self.queues = Cache(), Queues(CLOCK.now)
        self.workloads: list[wire.Workload] = []
        self.gauges = QueueGauges(
            self.metrics, self.cache, self.queues, clock=CLOCK, workload=self.workload, fair_sharing=fair
        )
        quota = {"name": "cpu", "nominalQuota": "10", "borrowingLimit": "2500m"}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]
        spec = {"resourceGroups": groups, "cohortName": "all"}
        self.cache.quota.on_cluster_queue("team", read(wire.ClusterQueue, metadata={"name": "team"}, spec=spec))
        self.cache.on_flavor("f", read(wire.ResourceFlavor, metadata={"name": "f"}, spec={}))
        self.queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
        self.queues.set_local_queue("ns/main", "team")
        active = {"conditions": [true("Active")]}
        self.local = [
            read(wire.LocalQueue, metadata={"name": "main", "namespace": "ns"}, spec={"clusterQueue": "team"},
                 status=active)
        ]  # fmt: skip

    def workload(self, key: str) -> wire.Workload | None:
        return next((w for w in self.workloads if model.workload_key(w) == key), None)

    def add(self, *workloads: wire.Workload) -> None:
        for new in workloads:
            self.workloads.append(new)
            self.cache.held.on_workload(model.workload_key(new), new)
            if model.is_queueable(new):
                self.queues.push(model.pending(new))

    async def refresh(self) -> None:
        await self.gauges.refresh(self.local, self.workloads)


WAITS = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "no room"}
COHORT = {"cohort": "all"}
COLUMN = {"cluster_queue": "team", "cohort": "all", "flavor": "f", "resource": "cpu"}


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("kueue_pending_workloads", QUEUE | {"status": "active"}, 2, id="active"),
        pytest.param("kueue_pending_workloads", QUEUE | {"status": "inadmissible"}, 0, id="inadmissible"),
        pytest.param("kueue_local_queue_pending_workloads", LOCAL | {"status": "active"}, 2, id="local-active"),
        pytest.param("kueue_reserving_active_workloads", QUEUE, 2, id="reserving"),
        pytest.param("kueue_admitted_active_workloads", QUEUE, 1, id="admitted"),
        pytest.param("kueue_local_queue_reserving_active_workloads", LOCAL, 2, id="local-reserving"),
        pytest.param("kueue_local_queue_admitted_active_workloads", LOCAL, 1, id="local-admitted"),
        pytest.param("kueue_finished_workloads", QUEUE, 1, id="finished-and-kept"),
        pytest.param("kueue_local_queue_finished_workloads", LOCAL, 1, id="local-finished-and-kept"),
        pytest.param("kueue_cluster_queue_status", QUEUE | {"status": "active"}, 1, id="status"),
        pytest.param("kueue_local_queue_status", LOCAL | {"active": "True"}, 1, id="local-status"),
        pytest.param("kueue_unadmitted_workloads",
                     QUEUE | {"reason": "NoReservation", "underlying_cause": "WaitingForQuota"}, 1, id="why-not"),
        pytest.param("kueue_cluster_queue_info", QUEUE | {"parent_cohort": "all", "root_cohort": "all"}, 1, id="place"),
        pytest.param("kueue_cluster_queue_nominal_quota", COLUMN, 10, id="nominal-in-cpus"),
        pytest.param("kueue_cluster_queue_borrowing_limit", COLUMN, 2.5, id="borrowing-limit"),
        pytest.param("kueue_cluster_queue_lending_limit", COLUMN, float("inf"), id="no-lending-limit"),
        pytest.param("kueue_cluster_queue_resource_reservation", COLUMN, 3, id="reserved"),
        pytest.param("kueue_cluster_queue_resource_usage", COLUMN, 1.5, id="used-by-admitted"),
        pytest.param("kueue_local_queue_resource_reservation", LOCAL | {"flavor": "f", "resource": "cpu"}, 3,
                     id="local-reserved"),
        pytest.param("kueue_local_queue_resource_usage", LOCAL | {"flavor": "f", "resource": "cpu"}, 1.5,
                     id="local-used"),
        pytest.param("kueue_local_queue_unadmitted_workloads",
                     LOCAL | QUEUE | {"reason": "NoReservation", "underlying_cause": "WaitingForQuota"}, 1,
                     id="local-why-not"),
        pytest.param("kueue_pending_scheduling_hashes", QUEUE | {"status": "active"}, 1, id="forms"),
        pytest.param("kueue_pending_scheduling_hashes", QUEUE | {"status": "inadmissible"}, 0, id="no-form-set-aside"),
        pytest.param("kueue_cluster_queue_resource_pending", QUEUE | {"resource": "cpu"}, 2, id="wanted-in-cpus"),
        pytest.param("kueue_cohort_info", COHORT | {"parent_cohort": "", "root_cohort": "all"}, 1, id="cohort-place"),
        pytest.param("kueue_cohort_subtree_quota", COHORT | {"flavor": "f", "resource": "cpu"}, 10, id="cohort-quota"),
        pytest.param("kueue_cohort_subtree_resource_reservations", COHORT | {"flavor": "f", "resource": "cpu"}, 3,
                     id="cohort-reserved"),
        pytest.param("kueue_cohort_subtree_admitted_active_workloads", COHORT, 1, id="cohort-admitted"),
    ],
)  # fmt: skip
async def test_gauges_show_the_queues_as_they_are(name: str, labels: dict[str, str], want: float) -> None:
    """Waiting, holding, finished, and amounts in the unit that users write."""
    world = World()
    world.add(
        workload(held=False, name="new"),
        workload(WAITS, held=False, name="waits"),
        workload(true("QuotaReserved"), name="reserved"),
        workload(true("QuotaReserved"), true("Admitted"), name="admitted"),
        workload(true("Admitted"), true("Finished"), name="finished"),
    )
    await world.refresh()

    assert value(world.metrics, name, labels) == want


async def test_workloads_are_told_apart_by_their_own_labels() -> None:
    """Those that wait and those that are admitted, in queues of both kinds; values that nobody has any more go."""
    world = World(custom=[CustomLabel(name="tier", key="tier", tracked=frozenset({"gold", "tin"}))])

    def labelled(name: str, tier: str, *conditions: dict[str, str], held: bool = False) -> wire.Workload:
        found = workload(*conditions, held=held, name=name)
        metadata = msgspec.structs.replace(found.metadata, labels={"tier": tier} if tier else {})
        return msgspec.structs.replace(found, metadata=metadata)

    admitted = true("QuotaReserved"), true("Admitted")
    world.add(
        labelled("a", "gold"), labelled("b", "gold"), labelled("c", ""), labelled("d", "lead"),
        labelled("e", "tin", *admitted, held=True),
    )  # fmt: skip
    await world.refresh()
    untracked = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
    active = {tier: value(world.metrics, "kueue_pending_workloads", QUEUE | {"status": "active", "custom_tier": tier})
              for tier in ("gold", "", untracked, "tin")}  # fmt: skip
    assert active == {"gold": 2, "": 1, untracked: 1, "tin": None}
    assert value(world.metrics, "kueue_admitted_active_workloads", QUEUE | {"custom_tier": "tin"}) == 1
    assert value(world.metrics, "kueue_local_queue_admitted_active_workloads", LOCAL | {"custom_tier": "tin"}) == 1
    assert value(world.metrics, "kueue_local_queue_pending_workloads", LOCAL | {"status": "active"}) == 4

    world.queues.delete("ns/d")
    await world.refresh()
    gone = QUEUE | {"status": "active", "custom_tier": untracked}
    assert value(world.metrics, "kueue_pending_workloads", gone) is None


async def test_series_of_queues_that_are_gone_disappear() -> None:
    """Of both kinds."""
    world = World()
    await world.refresh()
    assert value(world.metrics, "kueue_local_queue_reserving_active_workloads", LOCAL) == 0

    world.local = []
    world.cache.quota.on_cluster_queue("team", None)
    await world.refresh()

    assert value(world.metrics, "kueue_local_queue_reserving_active_workloads", LOCAL) is None
    assert value(world.metrics, "kueue_reserving_active_workloads", QUEUE) is None


async def test_workloads_that_name_a_missing_local_queue_are_counted() -> None:
    """By namespace, until the queue is there.  Workloads that run, have ended or name no queue do not count."""
    world = World()
    world.add(
        workload(held=False, name="new"),
        workload(WAITS, held=False, name="waits"),
        workload(true("QuotaReserved"), true("Admitted"), name="runs"),
        workload(true("Finished"), held=False, name="ended"),
    )
    unnamed = workload(held=False, name="unnamed")
    world.add(msgspec.structs.replace(unnamed, spec=msgspec.structs.replace(unnamed.spec, queue_name="")))
    family, queues = "kqueue_workloads_without_local_queue", world.local
    await world.refresh()
    before = value(world.metrics, family, {"namespace": "ns"})
    world.local = []
    await world.refresh()
    missing = value(world.metrics, family, {"namespace": "ns"})
    world.local = queues
    await world.refresh()

    assert (before, missing, value(world.metrics, family, {"namespace": "ns"})) == (None, 2, None)


async def test_workloads_of_a_stopped_queue_count_as_inadmissible() -> None:
    """They wait, but nothing tries them."""
    world = World()
    world.add(workload(held=False, name="new"))
    stopped = world.cache.quota.queue_object("team")
    assert stopped is not None
    spec = msgspec.structs.replace(stopped.spec, stop_policy="Hold")
    world.cache.quota.on_cluster_queue("team", msgspec.structs.replace(stopped, spec=spec))
    await world.refresh()

    assert value(world.metrics, "kueue_pending_workloads", QUEUE | {"status": "inadmissible"}) == 1
    assert value(world.metrics, "kueue_local_queue_pending_workloads", LOCAL | {"status": "inadmissible"}) == 1
    assert value(world.metrics, "kueue_cluster_queue_status", QUEUE | {"status": "pending"}) == 1


SHARE, COHORT_SHARE = "kueue_cluster_queue_weighted_share", "kueue_cohort_weighted_share"


def lender(world: World, name: str, cpus: int, *, weight: str = "1") -> None:
    """Another ClusterQueue of cohort `all`."""
    quota = {"name": "cpu", "nominalQuota": str(cpus)}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]
    spec = {"resourceGroups": groups, "cohortName": "all", "fairSharing": {"weight": weight}}
    world.cache.quota.on_cluster_queue(name, read(wire.ClusterQueue, metadata={"name": name}, spec=spec))


async def test_shares_are_shown_as_they_are() -> None:
    """Half a cpu borrowed of 20 is 25 per thousand; of an endless share there is no number; gone ones leave no series."""
    world = World(fair=True)
    lender(world, "lender", 10)
    world.add(*(workload(true("QuotaReserved"), true("Admitted"), name=f"w{i}") for i in range(7)))
    await world.refresh()
    assert value(world.metrics, SHARE, QUEUE | {"cohort": "all"}) == 25
    assert value(world.metrics, COHORT_SHARE, {"cohort": "all"}) == 0

    lender(world, "team", 10, weight="0")
    await world.refresh()
    shown = value(world.metrics, SHARE, QUEUE | {"cohort": "all"})
    assert shown is not None
    assert math.isnan(shown)

    world.cache.quota.on_cluster_queue("team", None)
    world.cache.quota.on_cluster_queue("lender", None)
    await world.refresh()
    assert value(world.metrics, SHARE, QUEUE | {"cohort": "all"}) is None
    assert value(world.metrics, COHORT_SHARE, {"cohort": "all"}) is None


async def test_without_fair_sharing_there_are_no_shares() -> None:
    """Neither of queues nor of cohorts."""
    world = World()
    await world.refresh()

    assert value(world.metrics, SHARE, QUEUE | {"cohort": "all"}) is None
    assert value(world.metrics, COHORT_SHARE, {"cohort": "all"}) is None


async def test_what_a_local_queue_used_is_shown() -> None:
    """As the order of its ClusterQueue sees it, weighted."""
    world, usage = World(), FairUsage(FairRules(weights={"cpu": 3.0}))
    world.gauges = QueueGauges(
        world.metrics, world.cache, world.queues, clock=CLOCK, workload=world.workload, fair_usage=usage
    )
    stored = {"consumedResources": {"cpu": "2500m"}, "lastUpdate": "2025-01-01T00:00:00Z"}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": stored}}
    queue = read(wire.LocalQueue, metadata={"name": "main", "namespace": "ns"}, status=status)
    usage.on_local_queue("ns/main", queue, CLOCK.now())
    await world.refresh()

    assert value(world.metrics, "kueue_local_queue_admission_fair_sharing_usage", LOCAL | QUEUE) == 7.5


def _not_mended(*conditions: dict[str, str]) -> Callable[[CycleObserver], None]:
    return lambda observer: observer.hosts_not_replaced(workload(*conditions), message="no room")


def _waits(**annotations: str) -> Callable[[CycleObserver], None]:
    def happens(observer: CycleObserver) -> None:
        waiting = workload(annotations=annotations)
        observer.position = {"ns/w": (3, 12)}.get
        observer.waits(waiting, reason="WaitingForQuota", message="2 cpu more needed")

    return happens


GANG = {gang_names.GANG_ANNOTATION: "{}"}


@pytest.mark.parametrize(
    ("happens", "want"),
    [
        pytest.param(
            _waits(**GANG),
            ("WaitingForQuota", "Warning", "2 cpu more needed; position 3 of 12 in the queue"),
            id="a gang waits, and its group object shows the position",
        ),
        pytest.param(_waits(), ("WaitingForQuota", "Warning", "2 cpu more needed"), id="another workload waits"),
        pytest.param(_not_mended(), ("SecondPassFailed", "Warning", "no room"), id="failed hosts are tried again"),
        pytest.param(
            _not_mended(true("Evicted")),
            ("EvictedDueToNodeFailures", "Normal", "no room"),
            id="failed hosts are not replaced, the workload is evicted",
        ),
        pytest.param(
            lambda observer: observer.replaced(workload(), by="ns/newer"),
            ("WorkloadSliceReplaced", "Normal", "Replaced by ns/newer"),
            id="a newer slice took over",
        ),
    ],
)
async def test_what_becomes_of_a_running_workload_is_told(
    happens: Callable[[CycleObserver], None], want: tuple[str, str, str]
) -> None:
    """One event each, a warning where it is not over yet."""
    told: list[dict[str, Any]] = []

    async def post(event: dict[str, Any]) -> None:
        told.append(event)

    async def patch(namespace: str, name: str, change: dict[str, Any]) -> None:
        raise AssertionError("one event is no series")

    clock = FakeClock()
    recorder = EventRecorder(
        post=post, patch=patch, clock=clock, instance="test", hooks=EventHooks(lost=lambda _reason: None)
    )
    observer = CycleObserver(Metrics(clock=clock), Events(recorder), clock)
    running = asyncio.create_task(recorder.run())

    happens(observer)

    await clock.advance(5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [(event["reason"], event["type"], event["message"]) for event in told] == [want]


def quiet() -> Events:
    """Events that nobody reads."""

    async def ignore(*_what: Any) -> None:
        raise AssertionError("the recorder does not run")

    clock = FakeClock()
    return Events(
        EventRecorder(
            post=ignore, patch=ignore, clock=clock, instance="test", hooks=EventHooks(lost=lambda _reason: None)
        )
    )


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("kqueue_placements_total", {"proven": "true"}, 1, id="how many were proven"),
        pytest.param("kqueue_placement_domains_total", {"level": "rack"}, 2, id="the racks that they use"),
        pytest.param("kqueue_placement_fewest_domains_total", {"level": "rack"}, 1, id="the racks that would do"),
    ],
)
def test_how_good_placements_are_is_counted_for_their_queue(name: str, labels: dict[str, str], want: int) -> None:
    """Once per admission that was written."""
    metrics = Metrics(clock=CLOCK)
    admission = model.admission(HELD)
    assert admission is not None
    head = model.head(HELD, queue="team", topology_only=False, last_tried={})
    quality = PlacementQuality(Algorithm.OPTIMAL, True, (LevelQuality("rack", 2, 1),))
    decision = Admit(head=head, admission=admission, quality=(quality,))

    CycleObserver(metrics, quiet(), CLOCK).reserved(HELD, admission, decision=decision)

    assert value(metrics, name, QUEUE | {"algorithm": "optimal"} | labels) == want


async def test_who_gets_a_host_again_on_which_it_failed_is_told_so() -> None:
    """In the event of the reservation; others that it avoids are not named."""
    posted: list[str] = []
    controllers: set[str] = set()

    async def post(event: dict[str, Any]) -> None:
        posted.append(event["message"])
        controllers.add(event["reportingComponent"])

    async def patch(*_what: Any) -> None:
        raise AssertionError("no event comes twice")

    clock = FakeClock()
    events = EventRecorder(
        post=post, patch=patch, clock=clock, instance="test", hooks=EventHooks(lost=lambda _reason: None)
    )
    admission = model.admission(HELD)
    assert admission is not None
    (held,) = admission.pod_sets
    domains = TopologyAssignment((HOSTNAME,), (Domain(("h1",), 1), Domain(("h3",), 1)))
    placed = replace(admission, pod_sets=(replace(held, topology=domains),))
    head = replace(model.head(HELD, queue="team", topology_only=False, last_tried={}), avoided=frozenset({"h1", "h2"}))

    CycleObserver(Metrics(clock=CLOCK), Events(events), CLOCK).reserved(
        HELD, placed, decision=Admit(head=head, admission=placed)
    )
    await events.drain()

    assert posted == [
        "Quota reserved in ClusterQueue team after 0 s, in flavor f; it failed repeatedly on h1, but fits nowhere else",
        "Admitted by ClusterQueue team, 0 s after the reservation",
    ]
    assert controllers == {"kueue-admission"}


async def test_each_part_tells_under_its_name() -> None:
    """Through the same recorder, so that what is bounded is bounded for all."""
    told: list[str] = []

    async def post(event: dict[str, Any]) -> None:
        told.append(event["reportingComponent"])

    async def patch(*_what: Any) -> None:
        raise AssertionError("no event comes twice")

    recorder = EventRecorder(
        post=post, patch=patch, clock=CLOCK, instance="test", hooks=EventHooks(lost=lambda _reason: None)
    )
    events = Events(recorder)
    about = ObjectReference("batch/v1", "Job", "j", "ns", "1")
    for number, one in enumerate((events, events.by(job_controller("batch/job")))):
        one.record(about, reason=f"R{number}", message="")
    await recorder.drain()

    assert told == ["kueue-admission", "batch/job-kueue-controller"]


def test_a_preemption_is_told_on_both_sides_with_priorities() -> None:
    """Who goes, for whom, by which rule, and how the two compare."""
    posted: list[tuple[str, str, str]] = []

    class Recorder(Events):
        def record(
            self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False, once: bool = False
        ) -> None:
            posted.append((regarding.name, reason, message))

    metrics = Metrics(clock=CLOCK)
    boosts = model.QueueOrder(boosts=True)
    observer = CycleObserver(metrics, Recorder(cast("EventRecorder", None)), CLOCK, boosts)
    admitted = Admitted(
        key="ns/victim",
        uid="v",
        queue="lender",
        local_queue="ns/main",
        priority=-5,
        timestamp=CLOCK.now(),
        reserved_at=None,
        evicted=False,
        usage={},
    )
    preemptor = workload(held=False, name="p")
    boosted = msgspec.structs.replace(preemptor.metadata, annotations={"kueue.x-k8s.io/priority-boost": "3"})
    spec = msgspec.structs.replace(preemptor.spec, priority=4)
    preemptor = msgspec.structs.replace(preemptor, metadata=boosted, spec=spec)

    observer.preempted(
        workload(name="victim"),
        target=Target(admitted, PreemptionReason.IN_COHORT_RECLAMATION),
        queue="team",
        preemptor=preemptor,
        message="Makes room for ns/p",
    )
    observer.preemption_loop(preemptor, queue="team", victims=[Mention("ns/victim", "lender")])
    observer.retargeted("team", Retargeted.NEW_TARGETS)
    observer.cycle_ended(seconds=1, success=True, robbed={"team": 2}, phases={Phase.ORDER: 0.25})

    assert [(name, reason) for name, reason, _ in posted] == [
        ("victim", "EvictedDueToPreempted"),
        ("victim", "Preempted"),
        ("p", "PreemptedWorkload"),
        ("p", "PreemptionLoop"),
    ]
    assert posted[0][2] == "Makes room for ns/p"
    assert posted[1][2] == "Makes room for ns/p; priority -5, 7 of the one that it leaves for"
    assert posted[2][2] == (
        "ns/victim (UID v) of ClusterQueue lender makes room: InCohortReclamation; priority -5, 7 of this one"
    )
    gains = {"preempting_cluster_queue": "team", "reason": "InCohortReclamation"}
    assert value(metrics, "kueue_preempted_workloads_total", gains) == 1
    assert value(metrics, "kqueue_preemption_loops_total", QUEUE) == 1
    assert value(metrics, "kueue_preemption_target_recomputations_total", QUEUE | {"result": "new_targets"}) == 1
    assert value(metrics, "kueue_admission_cycle_preemption_skips", QUEUE) == 2
    assert value(metrics, "kqueue_cycle_phase_seconds_sum", {"phase": "order"}) == 0.25


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param([], 3600, id="since-it-was-created"),
        pytest.param([true("Requeued", ago=20, reason="Preempted")], 20, id="since-it-was-queued-again"),
    ],
)
def test_what_a_workload_ran_before_an_eviction_was_no_waiting(conditions: list[dict[str, str]], want: float) -> None:
    """Both until the reservation and until its pods are ready."""
    metrics = Metrics(clock=CLOCK)
    created = CLOCK.now() - timedelta(hours=1)
    held = workload(true("QuotaReserved"), true("Admitted"), *conditions)
    held = msgspec.structs.replace(held, metadata=msgspec.structs.replace(held.metadata, creation_timestamp=created))
    admission = model.admission(held)
    assert admission is not None
    head = model.head(held, queue="team", topology_only=False, last_tried={})
    is_ready = read(Condition, **true("PodsReady"))
    ready = msgspec.structs.replace(
        held, status=msgspec.structs.replace(held.status, conditions=(*held.status.conditions, is_ready))
    )

    CycleObserver(metrics, quiet(), CLOCK).reserved(held, admission, decision=Admit(head=head, admission=admission))
    WorkloadCounter(metrics, CLOCK, lambda: True).on_workload(held, ready)

    for name in ("quota_reserved_wait_time", "admission_wait_time", "ready_wait_time"):
        assert value(metrics, f"kueue_{name}_seconds_sum", QUEUE | {"priority_class": "high"}) == want
