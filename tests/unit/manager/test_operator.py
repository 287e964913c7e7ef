"""One controller process: its parts, the events that make controllers read keys, and when it is ready."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kqueue import model
from kqueue.api.crd_files import crd_folder
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.clock import FakeClock
from kqueue.config import Configuration, Timings, parse
from kqueue.config.without_effect import warnings
from kqueue.controllers.explaining import PendingExplainer
from kqueue.controllers.record import workload_reference
from kqueue.controllers.resources import CLUSTER_QUEUES, NAMESPACES, PODS, WORKLOADS
from kqueue.core.topology import HOSTNAME, Algorithm, NodeFacts, Profile
from kqueue.kube.definitions import read_definitions
from kqueue.manager.operator import PARTS, Operator
from kqueue.observe import Checks, Metrics
from kqueue.runtime.client import Client
from kqueue.runtime.resources import LEASES
from kqueue.runtime.transport import RequestRecord
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.api import CRDS, JOB_SETS
from kqueue.sandbox.simulated_kinds import SIMULATED
from kqueue.state.fair_usage import FairRules
from tests.readings import failing, page_of

JSON = dict[str, Any]
T = TypeVar("T")
NOWHERE = "http://127.0.0.1:1"
AT_ONCE = Timings(
    status_refresh_window=0, ungater_window=0, node_failure_pod_window=0, leaked_gate_after=1, leaked_gate_sweep=1
)
CORE = {
    "admission_check",
    "plugin_check_status",
    "provisioning",
    "provisioning_check",
    "workload_priority",
    "workload_priority_class",
    "workload",
    "cluster_queue",
    "cohort",
    "local_queue",
    "resource_flavor",
    "topology",
    "configuration",
    "node_classes",
    "quota_from_capacity",
    "budgets",
}
TRAINJOB, JOBSET = "trainer.kubeflow.org/trainjob", "jobset.x-k8s.io/jobset"
SETS, SETS_OF_TRAINJOBS = "jobsets.jobset.x-k8s.io", "jobsets.jobset.x-k8s.io-of-trainjob"
NEW_YEAR = "2026-01-01T00:00:00Z"
ALL = {"configuration"}
"""Makes every workload and queue be looked at."""

Make = Callable[..., Operator]


def make_configuration(*, elect: bool = False, text: str = "") -> Configuration:
    """The defaults and `text`; without election a process leads as soon as it has synced."""
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    return parse(f"{head}leaderElection: {{leaderElect: {str(elect).lower()}}}\n{text}", source="test")


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Operators on a fake clock, none of them running; without `server` there is nobody to ask."""
    async with contextlib.AsyncExitStack() as stack:

        def operator(
            server: str = NOWHERE,
            *,
            parts: Iterable[str] = PARTS,
            config: Configuration | None = None,
            timings: Timings = AT_ONCE,
        ) -> Operator:
            clock = FakeClock()
            client = Client(server, clock=clock)
            stack.push_async_callback(client.close)
            return Operator(
                client=client,
                config=config or make_configuration(),
                timings=timings,
                clock=clock,
                metrics=Metrics(clock=clock),
                checks=Checks(),
                parts=parts,
            )

        yield operator


def waiting(operator: Operator) -> dict[str, int]:
    """Keys that wait for a worker, by controller."""
    families = text_string_to_metric_families(page_of(operator.metrics).decode())
    return {
        sample.labels["name"]: int(sample.value)
        for family in families
        for sample in family.samples
        if sample.name == "workqueue_depth"
    }


def read(kind: type[T], name: str, namespace: str = "", *, spec: JSON | None = None, status: JSON | None = None) -> T:
    metadata = {"name": name, "namespace": namespace, "uid": name}
    return msgspec.convert({"metadata": metadata, "spec": spec or {}, "status": status or {}}, kind)


def make_job(name: str = "j") -> JSON:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {}, "status": {}}


def make_workload(name: str = "w", *, owner: JSON | None = None, **status: Any) -> wire.Workload:
    owners = [{"uid": "u", "controller": True, "apiVersion": "batch/v1", "kind": "Job", "name": "j", **(owner or {})}]
    metadata = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": owners}
    return msgspec.convert({"metadata": metadata, "spec": {"queueName": "main"}, "status": status}, wire.Workload)


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "controllers"),
    [
        pytest.param((), set(), id="none"),
        pytest.param(("webhooks",), set(), id="a-part-without-reconcilers"),
        pytest.param(("scheduler",), {"second_pass", "requests", "reservations"}, id="the-scheduling-loop"),
        pytest.param(("core",), CORE, id="our-own-kinds"),
        pytest.param(("jobs",), {"batch_job", "elastic_ungater", "forged_pods"}, id="job-kinds"),
        pytest.param(("topology",), {"topology_ungater", "node_health"}, id="what-topology-needs"),
        pytest.param(
            PARTS,
            {
                *CORE,
                *("batch_job", "elastic_ungater", "forged_pods", "topology_ungater", "node_health"),
                *("second_pass", "requests", "reservations"),
            },
            id="all",
        ),
    ],
)
async def test_each_part_brings_its_controllers(make: Make, parts: Iterable[str], controllers: set[str]) -> None:
    """And no others: a process that is told to do less does less."""
    assert waiting(make(parts=parts)).keys() == controllers


async def test_the_operator_shows_how_many_events_wait(make: Make) -> None:
    """Events of each rank are on the page, from the recorder that all parts share."""
    operator = make()
    operator.manager.events.record(workload_reference(make_workload()), reason="Admitted", message="now")
    page = text_string_to_metric_families(page_of(operator.metrics).decode())
    samples = [sample for family in page for sample in family.samples if sample.name == "kqueue_events_waiting"]
    assert {sample.labels["rank"]: sample.value for sample in samples} == {"decisions": 1, "others": 0}


async def test_without_replacement_of_failed_nodes_nobody_looks_at_their_health(make: Make) -> None:
    """The gate switches the whole of it off."""
    names = ["TASFailedNodeReplacement", "TASFailedNodeReplacementFailFast", "TASReplaceNodeOnPodTermination"]
    gates = make_configuration(text="featureGates: {" + ", ".join(f"{gate}: false" for gate in names) + "}\n")

    assert "node_health" not in waiting(make(config=gates))


@pytest.mark.parametrize(
    ("frameworks", "jobs"),
    [
        pytest.param('["batch/job"]', {"batch/job"}, id="jobs"),
        pytest.param('["workload.codeflare.dev/appwrapper"]', {"workload.codeflare.dev/appwrapper"}, id="no-jobs"),
    ],
)
async def test_only_enabled_frameworks_are_watched(make: Make, frameworks: str, jobs: set[str]) -> None:
    """A kind that nobody enabled costs no watch, so its definition need not exist."""
    operator = make(config=make_configuration(text=f"integrations: {{frameworks: {frameworks}}}\n"))

    assert operator.watches.jobs.keys() == jobs
    assert {"watch-jobs.batch"} & operator.checks.results().keys() == (
        {"watch-jobs.batch"} if "batch/job" in jobs else set()
    )


@pytest.mark.parametrize(
    ("frameworks", "everything", "watched"),
    [
        pytest.param("batch/job", False, set(), id="no-trainjobs"),
        pytest.param(TRAINJOB, False, {SETS_OF_TRAINJOBS}, id="their-jobsets"),
        pytest.param(
            f"batch/job, {TRAINJOB}", False, {SETS_OF_TRAINJOBS, "jobs.batch-of-trainjob"}, id="and-the-jobs-below"
        ),
        pytest.param(
            f"batch/job, {JOBSET}, {TRAINJOB}", False, {SETS, SETS_OF_TRAINJOBS, "jobs.batch-of-jobset"}, id="jobs-once"
        ),
        pytest.param(
            f"batch/job, {JOBSET}, {TRAINJOB}", True, {SETS}, id="where-all-are-watched-none-is-watched-again"
        ),
    ],
)
async def test_what_trainjobs_refer_to_and_run_as_is_watched_once(
    make: Make, frameworks: str, everything: bool, watched: set[str]
) -> None:
    """Their runtimes, and the JobSets and Jobs below them that no other watch has."""
    text = f"integrations: {{frameworks: [{frameworks}]}}\nmanageJobsWithoutQueueName: {str(everything).lower()}\n"
    names = set(make(config=make_configuration(text=text)).watches.named())
    runtimes = {f"{kind}.trainer.kubeflow.org" for kind in ("clustertrainingruntimes", "trainingruntimes")}

    assert {name for name in names if "-of-" in name or name.startswith(SETS)} == watched
    assert (runtimes <= names) is (TRAINJOB in frameworks)


async def test_what_counts_in_quota_is_as_the_file_says(make: Make) -> None:
    """Excluded, transformed and undeclared resources, and smaller gangs."""
    text = """resources:
  quotaCheckStrategy: IgnoreUndeclared
  transformations:
  - {input: example.com/mig, strategy: Replace, multiplyBy: cpu, outputs: {example.com/mem: 2500m}}
  - {input: example.com/other, outputs: {example.com/mem: 1}}
"""
    operator = make(config=make_configuration(text=text))
    wants = {"cpu": "2", "example.com/mig": "3", "example.com/other": "4"}
    template = {"spec": {"containers": [{"resources": {"requests": wants}}]}}
    pod_sets = [{"name": "main", "count": 3, "minCount": 1, "template": template}]
    workload = msgspec.structs.replace(
        make_workload(), spec=msgspec.convert({"queueName": "main", "podSets": pod_sets}, wire.WorkloadSpec)
    )
    head = operator.cache.requests.head(workload, queue="team", topology_only=False, last_tried={})
    filled(operator)

    assert head.pod_sets[0].quota_requests == {"cpu": 2000, "example.com/other": 4, "example.com/mem": 15 + 4}
    assert head.pod_sets[0].min_count == 1
    spec = operator.cache.quota.queue_spec("team")
    assert spec is not None
    assert spec.ignores_undeclared


@pytest.mark.parametrize(
    ("text", "ignores", "counted", "minimum"),
    [
        pytest.param("", False, {"cpu": 1000, "net": 1}, 1, id="without-a-word"),
        pytest.param("resources: {excludeResourcePrefixes: [ne]}\n", False, {"cpu": 1000}, 1, id="excluded"),
        pytest.param(
            "resources: {quotaCheckStrategy: IgnoreUndeclared}\nfeatureGates: {QuotaCheckStrategy: false}\n",
            False,
            {"cpu": 1000, "net": 1},
            1,
            id="the-gate-decides-about-undeclared-resources",
        ),
        pytest.param(
            "featureGates: {PartialAdmission: false}\n",
            False,
            {"cpu": 1000, "net": 1},
            None,
            id="the-gate-decides-about-smaller-gangs",
        ),
    ],
)
async def test_gates_decide_about_what_is_asked_for(
    make: Make, text: str, ignores: bool, counted: dict[str, int], minimum: int | None
) -> None:
    """And prefixes about what costs something."""
    operator = filled(make(config=make_configuration(text=text)))
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "net": "1"}}}]}}
    pod_sets = [{"name": "main", "count": 3, "minCount": 1, "template": template}]
    workload = msgspec.structs.replace(
        make_workload(), spec=msgspec.convert({"queueName": "main", "podSets": pod_sets}, wire.WorkloadSpec)
    )
    (made,) = operator.cache.requests.head(workload, queue="team", topology_only=False, last_tried={}).pod_sets
    spec = operator.cache.quota.queue_spec("team")

    assert spec is not None
    assert (spec.ignores_undeclared, made.quota_requests, made.min_count) == (ignores, counted, minimum)


@pytest.mark.parametrize(("text", "cpus"), [("", 2), ("featureGates: {ReclaimablePods: false}\n", 3)])
async def test_a_gate_decides_whether_pods_that_have_ended_give_quota_back(make: Make, text: str, cpus: int) -> None:
    """One of three pods has ended, and an earlier process with the gate on has written so."""
    operator = make(config=make_configuration(text=text))
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    pod_sets = [{"name": "main", "count": 3, "template": template}]
    workload = msgspec.structs.replace(
        make_workload(),
        spec=msgspec.convert({"queueName": "main", "podSets": pod_sets}, wire.WorkloadSpec),
        status=msgspec.convert({"reclaimablePods": [{"name": "main", "count": 1}]}, wire.WorkloadStatus),
    )

    assert operator.cache.requests.total(workload) == {"cpu": cpus * 1000}


@pytest.mark.parametrize(
    ("kind", "key", "labels"),
    [
        pytest.param("cluster_queues", "team", {"cluster_queue": "team"}, id="a-cluster-queue"),
        pytest.param("local_queues", "ns/main", {"namespace": "ns", "name": "main"}, id="a-local-queue"),
        pytest.param("cohorts", "alone", {"cohort": "alone"}, id="a-cohort"),
    ],
)
async def test_the_series_of_an_object_go_with_it(make: Make, kind: str, key: str, labels: dict[str, str]) -> None:
    """No refresh of the gauges is needed."""
    operator = filled(make())
    operator.watches.cohorts.store.put("alone", read(wire.Cohort, "alone"))
    metrics = operator.metrics
    metrics.cluster_queue("team").pending(active=1, inadmissible=0)
    metrics.local_queue(namespace="ns", name="main").pending(active=1, inadmissible=0)
    metrics.cohort("alone").place((), root="alone")
    assert series_with(metrics, labels)

    getattr(operator.watches, kind).store.remove(key)

    assert series_with(metrics, labels) == []


async def test_the_series_of_a_cohort_with_members_outlive_its_object(make: Make) -> None:
    """ClusterQueues still name it."""
    operator = filled(make())
    operator.watches.cohorts.store.put("all", read(wire.Cohort, "all"))
    operator.watches.cluster_queues.store.put("one", read(wire.ClusterQueue, "one", spec={"cohortName": "all"}))
    operator.metrics.cohort("all").place((), root="all")

    operator.watches.cohorts.store.remove("all")

    assert series_with(operator.metrics, {"cohort": "all"})


def series_with(metrics: Metrics, labels: dict[str, str]) -> list[str]:
    """Names of the series that have these labels."""
    families = (family for registry, _ in metrics._groups for family in registry.collect())
    return [s.name for family in families for s in family.samples if labels.items() <= s.labels.items()]


@pytest.mark.parametrize("on", [True, False])
async def test_what_metrics_read_of_workloads_is_copied_from_jobs(make: Make, on: bool) -> None:
    """With its gate; labels of queues are read from queues."""
    text = f"""featureGates: {{CustomMetricLabels: {str(on).lower()}}}
integrations: {{labelKeysToCopy: [team]}}
metrics:
  customLabels:
  - {{name: tier, sourceKind: Workload, trackedValues: [gold]}}
  - {{name: cost, sourceKind: Workload, sourceAnnotationKey: example.com/cost, trackedValues: ["7"]}}
  - {{name: owner}}
"""
    copied = make(config=make_configuration(text=text)).manager.owner_policy.copied

    assert copied.labels == ("team",)
    assert (copied.metric_labels, copied.metric_annotations) == ((("tier",), ("example.com/cost",)) if on else ((), ()))


# --- which event makes what be looked at -----------------------------------------------------------------------------


async def test_a_leader_knows_what_pods_take_on_their_hosts_before_it_begins(make: Make) -> None:
    """Also where the watch of LimitRanges was slower than that of Workloads."""
    operator = filled(make())
    template: JSON = {"spec": {"containers": [{}]}}
    spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]}
    placed = msgspec.structs.replace(make_placed(), spec=msgspec.convert(spec, wire.WorkloadSpec))
    operator.watches.workloads.store.put("ns/w", placed)
    operator.watches.limit_ranges.store.put("ns/bounds", make_limit_range("ns"))
    await operator._take_in_surrounded()
    held = operator.cache.held.holding("ns/w")

    assert held is not None
    assert held.requests == {"main": {"cpu": 1000}}
    assert waiting(operator)["requests"] == 0


def make_limit_range(namespace: str) -> wire_core.LimitRange:
    limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
    return read(wire_core.LimitRange, "bounds", namespace, spec={"limits": limits})


def make_runtime_class(name: str) -> wire_core.RuntimeClass:
    obj = {"metadata": {"name": name}, "overhead": {"podFixed": {"cpu": "1"}}}
    return msgspec.convert(obj, wire_core.RuntimeClass)


async def test_workloads_are_taken_in_again_when_their_surroundings_change(make: Make) -> None:
    """Those of the namespace, those of the runtime class, and no others."""
    operator = filled(make())
    sandboxed = {"name": "main", "template": {"spec": {"runtimeClassName": "sandboxed", "containers": [{}]}}}
    spec = msgspec.convert({"queueName": "main", "podSets": [sandboxed]}, wire.WorkloadSpec)
    workload = msgspec.structs.replace(make_workload("other"), spec=spec)
    operator.watches.workloads.store.put("ns/other", workload)
    (requests,) = [c for c in operator.manager.controllers if c.name == "requests"]
    item = operator.cache.requests.pending(workload)

    assert await woken(operator, put("limit_ranges", "x/bounds", make_limit_range("x"))) == set()
    assert await woken(operator, put("runtime_classes", "plain", make_runtime_class("plain"))) == set()
    assert await woken(operator, put("runtime_classes", "sandboxed", make_runtime_class("sandboxed"))) == {"requests"}
    assert len(requests.queue) == 1
    assert await woken(operator, put("limit_ranges", "ns/bounds", make_limit_range("ns"))) == {"requests"}
    assert len(requests.queue) == 2

    running = asyncio.create_task(requests.run())
    while len(requests.queue):
        await operator.clock.sleep(0)
    await requests.stop()
    await running
    ((_, queued),) = operator.queues.pop_heads(lambda _queue: True)
    assert (queued.key, queued == item) == ("ns/other", False)
    assert queued == operator.cache.requests.pending(workload)


def filled(operator: Operator) -> Operator:
    """One of each: flavor, topology, queues, a Job and its Workload; what that made wait is worked off."""
    watches = operator.watches
    flavor = {"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": "9"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    watches.namespaces.store.put("ns", read(wire_core.Namespace, "ns"))
    watches.topologies.store.put("dc", read(wire.Topology, "dc", spec={"levels": [{"nodeLabel": "rack"}]}))
    watches.flavors.store.put("gpu", read(wire.ResourceFlavor, "gpu", spec={"topologyName": "dc"}))
    watches.cluster_queues.store.put("team", read(wire.ClusterQueue, "team", spec={"resourceGroups": groups}))
    watches.local_queues.store.put("ns/main", read(wire.LocalQueue, "main", "ns", spec={"clusterQueue": "team"}))
    watches.jobs["batch/job"].store.put("ns/j", make_job())
    watches.workloads.store.put("ns/w", make_workload())
    return operator


def make_placed(*unhealthy: str) -> wire.Workload:
    """An admitted Workload on host h1."""
    values = [{"universal": "h1"}]
    slices = [{"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": 1}}]
    entry = {"name": "main", "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": slices}, "count": 1}
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": NEW_YEAR}
        for kind in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": "team", "podSetAssignments": [entry]}
    nodes = [{"name": name} for name in unhealthy]
    return make_workload(admission=admission, conditions=conditions, unhealthyNodes=nodes)


def leads(operator: Operator) -> None:
    """The process begins to lead."""
    for begin in operator.manager.on_lead:
        begin()


async def test_failed_nodes_are_looked_at_and_what_they_damage_comes_back_to_the_loop(make: Make) -> None:
    """The node of a Workload goes, a pod waits for it, a new leader begins; the second pass is due after its pause."""
    operator = make()
    labels = {"kubernetes.io/hostname": "h1"}
    operator.watches.nodes.store.put("n1", NodeFacts(name="n1", labels=labels, allocatable={}))
    operator.watches.workloads.store.put("ns/w", make_placed())

    assert "node_health" in await woken(operator, lambda o: o.watches.nodes.store.remove("n1"))
    assert "node_health" in await woken(operator, leads)
    waits = wire_core.Pod(
        metadata=msgspec.convert(
            {
                "name": "p",
                "namespace": "ns",
                "annotations": {
                    "kueue.x-k8s.io/podset-required-topology": "rack",
                    "kueue.x-k8s.io/workload": "w",
                },
            },
            ObjectMeta,
        ),
        spec=wire_core.PodSpec(node_selector=labels),
    )
    assert "node_health" in await woken(operator, put("pods", "ns/p", model.pod_view(waits)))

    operator.watches.workloads.store.put("ns/w", make_placed("h1"))
    (second_pass,) = [c for c in operator.manager.controllers if c.name == "second_pass"]
    assert isinstance(operator.clock, FakeClock)
    running = asyncio.create_task(second_pass.run())
    await operator.clock.advance(0.9)
    assert operator.manager.second_pass.take() == []
    await operator.clock.advance(0.2)
    assert operator.manager.second_pass.take() == ["ns/w"]
    await second_pass.stop()
    await running


async def woken(operator: Operator, change: Callable[[Operator], None]) -> set[str]:
    """The controllers that a change gives something to do."""
    for controller in operator.manager.controllers:
        while len(controller.queue):
            key = await controller.queue.get()
            assert key is not None
            controller.queue.done(key)
    change(operator)
    return {name for name, keys in waiting(operator).items() if keys}


def put(watch: str, key: str, view: Any) -> Callable[[Operator], None]:
    """An object arrives, or changes."""
    return lambda operator: getattr(operator.watches, watch).store.put(key, view)


def recounted(operator: Operator) -> None:
    """The ClusterQueue comes back with other counts in its status, as after each write of ours."""
    store = operator.watches.cluster_queues.store
    queue = store.get("team")
    assert queue is not None
    store.put("team", msgspec.structs.replace(queue, status=wire.ClusterQueueStatus(pending_workloads=5)))


def relabelled(operator: Operator) -> None:
    """The namespace comes back with other labels."""
    metadata = {"name": "ns", "labels": {"team": "a"}}
    operator.watches.namespaces.store.put("ns", msgspec.convert({"metadata": metadata}, wire_core.Namespace))


def job_changed(operator: Operator) -> None:
    operator.watches.jobs["batch/job"].store.put("ns/j", make_job() | {"spec": {"suspend": True}})


def job_deleted(operator: Operator) -> None:
    operator.watches.jobs["batch/job"].store.remove("ns/j")


def released(operator: Operator) -> None:
    """The flavor comes back as it was, but for a finalizer that somebody took away."""
    store = operator.watches.flavors.store
    flavor = store.get("gpu")
    assert flavor is not None
    metadata = msgspec.structs.replace(flavor.metadata, finalizers=("other",))
    store.put("gpu", msgspec.structs.replace(flavor, metadata=metadata))


def make_pod(*, workload: str, name: str = "p", **labels: str) -> JSON:
    """A pod of a gang that waits for its release."""
    prefix = "kueue.x-k8s.io/"
    marks = {f"{prefix}podset-required-topology": "rack", f"{prefix}workload": workload}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": marks,
                     "labels": {f"{prefix}podset": "main"} | labels},
        "spec": {"schedulingGates": [{"name": f"{prefix}topology"}], "containers": [{"name": "c", "image": "x"}]},
    }  # fmt: skip


def pod_arrives(workload: str, name: str = "p") -> Callable[[Operator], None]:
    """A gang gets a pod."""
    pod = model.pod_view(msgspec.convert(make_pod(workload=workload, name=name), wire_core.Pod))
    return lambda operator: operator.watches.pods.store.put(pod.key, pod)


@pytest.mark.parametrize(
    ("changed", "keeps"),
    [
        pytest.param({}, True, id="its-job-is-the-jobsets"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="it-was-deleted-and-can-never-be-bound"),
    ],
)
async def test_a_pod_on_its_way_to_a_node_keeps_the_quota_of_the_jobset_above_its_job(
    make: Make, changed: JSON, keeps: bool
) -> None:
    """The pod names the Job alone, and the Workload the JobSet alone."""
    operator = make(config=make_configuration(text="integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}"))
    above = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "set",
        "uid": "set",
        "controller": True,
    }
    job, pod = make_job("set-workers-0"), make_pod(workload="w")
    job["metadata"]["ownerReferences"] = [above]
    by_job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "set-workers-0",
        "uid": "set-workers-0",
        "controller": True,
    }
    pod["metadata"] |= {"ownerReferences": [by_job], **changed}
    pod["spec"]["schedulingGates"] = []
    operator.watches.workloads.store.put("ns/w", make_workload(owner=above))
    operator.watches.child_jobs["jobset.x-k8s.io/jobset"].store.put("ns/set-workers-0", job)
    operator.watches.pods.store.put("ns/p", model.pod_view(msgspec.convert(pod, wire_core.Pod)))

    assert operator.manager.pods_left("ns/w") is keeps


COUNTS = {"cluster_queue", "local_queue"}
FLAVOR = read(wire.ResourceFlavor, "gpu", spec={"nodeLabels": {"pool": "a"}})
CHECK = msgspec.convert({"metadata": {"name": "c"}, "status": {"conditions": []}}, wire.AdmissionCheck)
CLASS = msgspec.convert({"metadata": {"name": "high"}, "value": 9}, wire.WorkloadPriorityClass)
POD_CLASS = msgspec.convert({"metadata": {"name": "high"}, "value": 9}, wire_core.PriorityClass)
WORKLOAD = {"workload", "batch_job", "topology_ungater", *COUNTS}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(put("workloads", "ns/w", make_workload(clusterName="x")), WORKLOAD, id="a-workload-changes"),
        pytest.param(
            put("workloads", "ns/v", make_workload("v", owner={"kind": "Other"})),
            WORKLOAD - {"batch_job"},
            id="a-workload-of-another-kind",
        ),
        pytest.param(
            lambda o: o.watches.workloads.store.remove("ns/w"), WORKLOAD - {"topology_ungater"}, id="one-goes"
        ),
        pytest.param(pod_arrives("w"), {"topology_ungater"}, id="a-pod-of-a-gang-arrives"),
        pytest.param(pod_arrives("unknown"), set(), id="a-pod-arrives-before-its-workload"),
        pytest.param(job_changed, {"batch_job"}, id="a-job-changes"),
        pytest.param(job_deleted, {"batch_job"}, id="a-job-goes"),
        pytest.param(put("flavors", "gpu", FLAVOR), {*ALL, "resource_flavor", "batch_job"}, id="a-flavor-changes"),
        pytest.param(released, {"resource_flavor"}, id="a-flavor-loses-its-finalizer"),
        pytest.param(put("cohorts", "c", read(wire.Cohort, "c")), ALL, id="a-cohort-arrives"),
        pytest.param(put("checks", "c", CHECK), {*ALL, "admission_check"}, id="a-check-arrives"),
        pytest.param(relabelled, {*ALL, "batch_job"}, id="a-namespace-is-relabelled"),
        pytest.param(put("namespaces", "ns", read(wire_core.Namespace, "ns")), set(), id="a-namespace-as-it-was"),
        pytest.param(recounted, set(), id="only-counts-of-a-queue-change"),
        pytest.param(
            put("workload_priorities", "high", CLASS),
            {"batch_job", "workload_priority_class"},
            id="a-priority-class-arrives",
        ),
        pytest.param(put("priority_classes", "high", POD_CLASS), {"batch_job"}, id="a-pod-priority-arrives"),
    ],
)
async def test_an_event_wakes_those_whom_it_concerns(
    make: Make, change: Callable[[Operator], None], want: set[str]
) -> None:
    """What may free or block somebody makes them be looked at; echoes of our own counts wake nobody."""
    assert await woken(filled(make()), change) == want


async def test_pods_of_a_gang_gather_before_they_are_released(make: Make) -> None:
    """The first ones for 0.05 s, later ones for a whole window; after a window without a pod the next is a first one."""
    window = 1.0
    operator = filled(make(timings=replace(AT_ONCE, ungater_window=window)))
    assert isinstance(operator.clock, FakeClock)

    for name, gathers in (("p1", 0.05), ("p2", window), ("p3", 0.05)):
        assert "topology_ungater" not in await woken(operator, pod_arrives("w", name))
        await operator.clock.advance(gathers - 0.01)
        assert not waiting(operator)["topology_ungater"], name
        await operator.clock.advance(0.02)
        assert waiting(operator)["topology_ungater"] == 1, name


async def test_under_load_counts_of_queues_are_written_less_often(make: Make) -> None:
    """Five seconds after the change, and soon again when the load has ended."""
    operator = filled(make())
    operator.manager.is_loaded = lambda: True
    change = put("workloads", "ns/w", make_workload(clusterName="x"))
    assert await woken(operator, change) == WORKLOAD - COUNTS

    assert isinstance(operator.clock, FakeClock)
    await operator.clock.advance(4.9)
    assert not any(waiting(operator)[name] for name in COUNTS)
    await operator.clock.advance(0.2)
    assert all(waiting(operator)[name] for name in COUNTS)

    operator.manager.is_loaded = lambda: False
    assert await woken(operator, change) > COUNTS


@pytest.mark.parametrize(
    ("told", "looked_at"),
    [
        pytest.param(None, {"workload"}, id="one that says nothing of a try is looked at"),
        pytest.param("WaitingForQuota", set(), id="one that says why it waits is left alone"),
    ],
)
async def test_who_is_parked_with_an_equal_is_looked_at_once(make: Make, told: str | None, looked_at: set[str]) -> None:
    """Thousands are parked again at each flush: only those are looked at who have not been told why they wait."""
    operator = filled(make())
    conditions = [{"type": "QuotaReserved", "status": "False", "reason": told}] if told is not None else []
    put("workloads", "ns/v", make_workload("v", conditions=conditions))(operator)

    assert await woken(operator, lambda o: o.queues.on_parked(["ns/v"])) == looked_at


async def test_a_workload_that_waits_for_its_turn_to_be_told_is_not_looked_at_before(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is parked again at each round of cycles, and its time is set."""
    operator = filled(make())
    put("workloads", "ns/v", make_workload("v"))(operator)
    monkeypatch.setattr(PendingExplainer, "until_turn", lambda _self, _key: 3.0)

    assert await woken(operator, lambda o: o.queues.on_parked(["ns/v"])) == set()


@pytest.mark.parametrize(
    ("text", "looked_at"),
    [
        pytest.param("fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n", True, id="where shares count"),
        pytest.param("", False, id="not where they do not"),
    ],
)
async def test_a_workload_changes_the_shares_of_the_cohorts_above_it(make: Make, text: str, looked_at: bool) -> None:
    """Cohorts with an object are looked at with every change of what is held below them."""
    operator = filled(make(config=make_configuration(text=text)))
    queue = operator.watches.cluster_queues.store.get("team")
    assert queue is not None
    spec = msgspec.structs.replace(queue.spec, cohort_name="all")
    operator.watches.cluster_queues.store.put("team", msgspec.structs.replace(queue, spec=spec))
    operator.watches.cohorts.store.put("all", read(wire.Cohort, "all"))

    found = await woken(operator, put("workloads", "ns/w", make_workload(clusterName="x")))

    assert ("cohort" in found) == looked_at


BY_USAGE = """admissionFairSharing:
  usageHalfLifeTime: 168h
  usageSamplingInterval: 1m
  resourceWeights: {memory: 0}
"""


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param(BY_USAGE, FairRules(half_life=604800.0, interval=60.0, weights={"memory": 0.0}), id="as the file says"),
        pytest.param(BY_USAGE + "featureGates: {AdmissionFairSharing: false}\n", None, id="not where the gate is off"),
        pytest.param("", None, id="not without its section"),
    ],
)  # fmt: skip
async def test_the_past_counts_as_the_file_says(make: Make, text: str, rules: FairRules | None) -> None:
    """Half-life, interval and weights; a file that gives them is not told that they have no effect."""
    configuration = make_configuration(text=text)
    operator = make(config=configuration)

    assert (operator.manager.fair_usage.rules if operator.manager.fair_usage is not None else None) == rules
    assert not [said for said in warnings(configuration) if "admissionFairSharing" in said]


async def test_a_new_leader_goes_on_from_what_is_written(make: Make) -> None:
    """What it was told as a follower, in whatever order, is not what it begins with."""
    operator = filled(make(config=make_configuration(text=BY_USAGE)))
    stored = {"consumedResources": {"cpu": "3"}, "lastUpdate": NEW_YEAR}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": stored}}
    queue = read(wire.LocalQueue, "main", "ns", spec={"clusterQueue": "team"}, status=status)
    operator.watches.local_queues.store.put("ns/main", queue)
    assert operator.manager.fair_usage is not None
    assert operator.manager.fair_usage.usage("ns/main") == 0

    leads(operator)

    assert operator.manager.fair_usage.usage("ns/main") == 3


# --- health and leadership -------------------------------------------------------------------------------------------


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """An API server with our kinds and no nodes."""
    running = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def under_way(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """All of it runs while the block does."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def at_work(operator: Operator) -> AsyncIterator[None]:
    """The operator runs while the block does."""
    async with under_way(operator.run()):
        yield


def clock_of(operator: Operator) -> FakeClock:
    assert isinstance(operator.clock, FakeClock)
    return operator.clock


async def happens(operator: Operator, true: Callable[[], bool]) -> None:
    """Let time pass until `true` holds; fail if it does not within a generous time."""
    async with asyncio.timeout(20):
        while not true():
            await clock_of(operator).advance(0.5)
            await asyncio.sleep(0.002)  # requests on the wire take real time


async def test_a_process_is_not_ready_before_every_watch_has_synced(make: Make) -> None:
    """Each watch has a check of its own that says so; without a server none ever passes."""
    operator = make()

    watched = [name for name in operator.checks.results() if name.startswith("watch-")]
    assert len(watched) == len(operator.watches.all())
    assert set(failing(operator.checks).values()) == {"has not brought its initial state yet"}


async def test_a_process_is_ready_while_its_watches_live(make: Make, sandbox: Sandbox) -> None:
    """After the first sync every check passes; a watch that is silent for too long fails its own.  The sandbox does not
    serve ProvisioningRequests.
    """
    operator = make(sandbox.url)
    async with at_work(operator):
        await asyncio.wait_for(operator.ready.wait(), 20)
        synced = failing(operator.checks)
    await clock_of(operator).advance(operator.timings.watch_stale_after + 1)
    stale = failing(operator.checks)

    assert synced == {}
    served = {name for name in operator.checks.results() if name.startswith("watch-")}
    assert stale.keys() == served - {"watch-provisioningrequests.autoscaling.x-k8s.io"}
    assert all("silent for 181 s" in reason for reason in stale.values())


async def test_a_kind_that_is_defined_later_is_watched_from_then_on(make: Make, sandbox: Sandbox) -> None:
    """The process is ready without it, says nothing against itself, and finds the jobs that come with the definition."""
    both = make_configuration(text='integrations: {frameworks: ["batch/job", "jobset.x-k8s.io/jobset"]}\n')
    operator = make(sandbox.url, config=both)
    watch = operator.watches.jobs["jobset.x-k8s.io/jobset"]
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"replicatedJobs": []},
    }
    async with at_work(operator):
        await asyncio.wait_for(operator.ready.wait(), 20)
        without = watch.missing, failing(operator.checks)
        for definition in read_definitions(SIMULATED):
            await sandbox.api.create(CRDS, definition)
        await sandbox.api.create(JOB_SETS, jobset, namespace="default")
        await happens(operator, lambda: "default/s" in watch.store)

    assert without == (True, {})
    assert not watch.missing


async def test_a_follower_is_warm_and_writes_nothing_until_the_leader_is_gone(make: Make, sandbox: Sandbox) -> None:
    """It syncs and queues what is to be done, and does it once the lease of the other has run out.  Its gauges show what
    it sees, under its role.
    """
    operator = make(sandbox.url, config=make_configuration(elect=True))
    election = operator.config.leader_election
    metadata = {"name": election.resource_name, "namespace": election.resource_namespace}
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": {}}
    async with Client(sandbox.url) as user:
        await user.create(NAMESPACES, {"metadata": {"name": election.resource_namespace}})
        await user.create(LEASES, {"metadata": metadata, "spec": spec}, election.resource_namespace)
        await user.create(CLUSTER_QUEUES, queue)
        async with at_work(operator):
            await asyncio.wait_for(operator.synced.wait(), 20)
            await happens(operator, lambda: waiting(operator)["configuration"] == 1)
            await happens(operator, lambda: roles(operator, "kueue_cluster_queue_status") == {"follower"})
            followed = operator.ready.is_set(), failing(operator.checks)
            before = await user.get_json(CLUSTER_QUEUES, "team")
            await happens(operator, operator.ready.is_set)
            await happens(operator, lambda: _has_status(operator))
            led = roles(operator, "kueue_cluster_queue_status")

    assert led == {"leader"}
    assert followed == (False, {})
    assert "status" not in before or not before["status"].get("conditions")


def roles(operator: Operator, name: str) -> set[str]:
    """Under which roles the series of a metric are shown."""
    families = text_string_to_metric_families(page_of(operator.metrics).decode())
    return {s.labels["replica_role"] for family in families for s in family.samples if s.name == name}


def _has_status(operator: Operator) -> bool:
    queue = operator.watches.cluster_queues.store.get("team")
    return queue is not None and bool(queue.status.conditions)


# --- gates -----------------------------------------------------------------------------------------------------------


async def test_a_leaked_gate_is_counted_while_this_process_leads(make: Make, sandbox: Sandbox) -> None:
    """The sweep belongs to the leader; what it has counted ends with its term."""

    def leaked() -> str:
        return next(
            line.rpartition(" ")[2]
            for line in page_of(operator.metrics).decode().splitlines()
            if line.startswith("kqueue_leaked_gates{") and "workload_gone" in line
        )

    operator = make(sandbox.url, parts=("topology",))
    async with Client(sandbox.url) as user:
        await user.create(NAMESPACES, {"metadata": {"name": "ns"}})
        await user.create(PODS, make_pod(workload="gone"))
        async with at_work(operator):
            await asyncio.wait_for(operator.ready.wait(), 20)
            await clock_of(operator).advance(1.5)
            await happens(operator, lambda: leaked() == "1.0")

    assert leaked() == "0.0"


async def test_each_term_of_leading_begins_with_a_look_at_the_pods(make: Make, sandbox: Sandbox) -> None:
    """Another may have released pods in between; within a term the watch is enough."""
    looks = 0
    operator = make(sandbox.url, parts=("topology",))

    def count(record: RequestRecord) -> None:
        nonlocal looks
        looks += (record.verb, record.resource) == ("list", "pods")

    assignment = {
        "levels": ["rack"],
        "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "r"}], "podCounts": {"universal": 9}}],
    }
    admitted = {"type": "Admitted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": NEW_YEAR}
    status = {
        "conditions": [admitted],
        "admission": {"clusterQueue": "t", "podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]},
    }
    metadata = {"name": "w", "namespace": "ns"}
    template = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    workload = {"metadata": metadata, "spec": {"podSets": [{"name": "main", "count": 9, "template": template}]}}
    async with Client(sandbox.url) as user:
        await user.create(NAMESPACES, {"metadata": {"name": "ns"}})
        await user.create(WORKLOADS, workload)
        await user.patch(WORKLOADS, "w", {"status": status}, "ns", subresource="status")
        async with under_way(*(watch.run() for watch in operator.watches.all())):
            await asyncio.wait_for(operator.watches.workloads.synced.wait(), 20)
            operator.manager.client.on_request = count
            for term in range(2):
                async with under_way(operator._lead()):
                    for number in range(2):
                        name = f"p{term}{number}"
                        await user.create(PODS, make_pod(workload="w", name=name))
                        await happens(operator, functools.partial(_is_released, operator, name))

    assert looks == 2


def _is_released(operator: Operator, name: str) -> bool:
    view = operator.watches.pods.store.get(f"ns/{name}")
    return view is not None and view.gang is not None and not view.gang.gated


@pytest.mark.parametrize(
    ("gates", "profile"),
    [
        pytest.param("", Profile(), id="as-it-comes"),
        pytest.param("TASProfileMixed: false", Profile(unconstrained=Algorithm.BEST_FIT), id="best-fit-for-all"),
        pytest.param("TASBalancedPlacement: true", Profile(constrained=Algorithm.BALANCED), id="balanced"),
        pytest.param("TASRespectNodeAffinityPreferred: true", Profile(preferred_affinity=True), id="affinity-counts"),
    ],
)
async def test_gates_choose_how_pods_are_placed(make: Make, gates: str, profile: Profile) -> None:
    """For every ClusterQueue that does not choose by itself."""
    operator = filled(make(config=make_configuration(text=f"featureGates: {{{gates}}}\n")))
    spec = operator.cache.quota.queue_spec("team")

    assert spec is not None
    assert spec.profile == profile


@pytest.mark.parametrize(
    ("text", "places"),
    [
        pytest.param("", {"same": 8000}, id="all but the first are left out"),
        pytest.param(
            "tas: {mergeDuplicateHostnames: true}\n", {"same": 12_000}, id="they add up where that is asked for"
        ),
    ],
)
async def test_the_configuration_says_what_nodes_of_one_host_name_are(
    make: Make, text: str, places: dict[str, int]
) -> None:
    """One place with the room of the first, or of all."""
    operator = make(config=make_configuration(text=text))
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]
    operator.watches.topologies.store.put("dc", read(wire.Topology, "dc", spec={"levels": levels}))
    operator.watches.flavors.store.put("gpu", read(wire.ResourceFlavor, "gpu", spec={"topologyName": "dc"}))
    for name, cpu in (("n1", 8000), ("n2", 4000)):
        labels = {"rack": "r1", HOSTNAME: "same"}
        operator.watches.nodes.store.put(name, NodeFacts(name=name, labels=labels, allocatable={"cpu": cpu, "pods": 9}))

    capacity = operator.cache.ledger.capacity("gpu")

    assert capacity is not None
    assert {path[-1]: capacity.free(leaf)["cpu"] for leaf, path in enumerate(capacity.tree.paths)} == places


async def test_the_file_says_how_many_of_a_kind_are_looked_at_at_a_time(make: Make) -> None:
    """Kinds that it leaves out keep our numbers; pods and their groups are one kind."""
    text = "integrations: {frameworks: [batch/job, pod]}\ncontroller: {groupKindConcurrency: "
    plain = make(config=make_configuration(text=text + "{}}"))
    told = make(config=make_configuration(text=text + "{Job.batch: 3, Pod: 2, ClusterQueue.kueue.x-k8s.io: 4}}"))

    def workers(operator: Operator) -> dict[str, int]:
        return {c.name: c._settings.workers for c in operator.manager.controllers}

    changed = {name: number for name, number in workers(told).items() if number != workers(plain)[name]}
    assert changed == {"batch_job": 3, "pod": 2, "pod_group": 2, "cluster_queue": 4}


# --- readiness


async def test_a_part_that_has_failed_shows_until_it_is_back(make: Make) -> None:
    """By its name and the failure."""
    operator = make()
    clock = operator.clock
    assert isinstance(clock, FakeClock)

    async def fails() -> None:
        raise ZeroDivisionError("planted")

    async with under_way(operator.supervisor.run("gauges", fails)):
        await clock.advance(0.5)
        failing = operator.checks.results()["parts"]

    assert failing == "failed, and are started again soon: gauges (ZeroDivisionError: planted)"
    assert operator.checks.results()["parts"] is None


@pytest.mark.parametrize(
    ("held", "ago", "said"),
    [
        pytest.param(5, 0, None, id="for a while"),
        pytest.param(12, 1, "blocked for 12 s, 1 s ago", id="for long"),
        pytest.param(12, 70, None, id="long ago"),
    ],
)
async def test_an_event_loop_that_was_blocked_shows_for_a_minute(
    make: Make, held: float, ago: float, said: str | None
) -> None:
    """Nothing was answered in that time."""
    operator = make()
    clock = operator.clock
    assert isinstance(clock, FakeClock)
    async with under_way(operator._probe.run()):
        await clock.advance(1)
        clock._elapsed += held  # the loop did not turn for so long
        await clock.advance(0)
        await clock.advance(ago)
        told = operator.checks.results()["loop"]

    assert (told is None) if said is None else (said in (told or ""))


async def test_nobody_writes_before_it_leads(make: Make) -> None:
    """Without election everybody leads; with it, the lease says who does."""
    alone, elected = make(), make(config=make_configuration(elect=True))

    assert (alone.may_write(), elected.may_write()) == (True, False)


@pytest.mark.parametrize(
    ("conditions", "finalizers", "keeps"),
    [
        pytest.param([], ["ray.io/gcs-ft-redis-cleanup-finalizer"], True, id="its-cluster-clears-redis"),
        pytest.param([], ["foregroundDeletion"], False, id="redis-is-cleared"),
        pytest.param(
            [{"type": "Evicted", "status": "True", "reason": "Preempted"}],
            ["ray.io/gcs-ft-redis-cleanup-finalizer"],
            False,
            id="others-wait-for-its-quota",
        ),
    ],
)
async def test_a_ray_job_keeps_its_quota_while_its_cluster_cleans_up(
    make: Make, conditions: list[JSON], finalizers: list[str], keeps: bool
) -> None:
    """Between the end of the head and the pod that clears Redis there is no pod; the RayJob may be gone already."""
    operator = make(config=make_configuration(text="integrations: {frameworks: [ray.io/rayjob, ray.io/raycluster]}"))
    above = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": "ray", "controller": True}
    meta = {"namespace": "ns", "name": "ray-x", "uid": "x", "ownerReferences": [above], "finalizers": finalizers}
    cluster = {"metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}, "status": {}}
    operator.watches.jobs["ray.io/raycluster"].store.put("ns/ray-x", cluster)
    operator.watches.workloads.store.put("ns/w", make_workload(owner=above, conditions=conditions))

    assert operator.manager.pods_left("ns/w") is keeps
