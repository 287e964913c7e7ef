"""Jobs that run with their pods, and the cluster around them, for tests of imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.kind import JobKind
from kqueue.jobs.switches import JobFeatures
from kqueue.operations.importing.mapping import MappingRule
from kqueue.operations.importing.plan import ImportProblem, ImportSettings, ImportStep, Skipped, plan
from kqueue.operations.importing.units import units_in
from kqueue.operations.importing.world import ImportWorld

Object = dict[str, Any]
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
KUEUE = "kueue.x-k8s.io"
TO_MAIN = ImportSettings(rules=[MappingRule(queue="main")])
TRAINING = {
    "kubeflow.org/pytorchjob": ("pytorchReplicaSpecs", ("Master", "Worker")),
    "kubeflow.org/tfjob": ("tfReplicaSpecs", ("Chief", "Worker")),
    "kubeflow.org/xgboostjob": ("xgbReplicaSpecs", ("Master", "Worker")),
    "kubeflow.org/paddlejob": ("paddleReplicaSpecs", ("Master", "Worker")),
    "kubeflow.org/jaxjob": ("jaxReplicaSpecs", ("Worker",)),
    "kubeflow.org/mpijob": ("mpiReplicaSpecs", ("Launcher", "Worker")),
}


def world(**more: Any) -> ImportWorld:
    """LocalQueue `main` of ClusterQueue `team`; flavor `a` has a topology of racks r0 and r1, each with three hosts, and
    `b` has none.
    """
    quotas = [{"name": "cpu", "nominalQuota": "10"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": quotas} for name in "ab"]}]
    hosts = {f"h{r}{i}": {"pool": "a", RACK: f"r{r}", HOST: f"h{r}{i}"} for r in range(2) for i in range(3)}
    settings: Object = {
        "local_queues": {("ns", "main"): "team"},
        "cluster_queues": {"team": {"metadata": {"name": "team"}, "spec": {"resourceGroups": groups}}},
        "flavors": {
            "a": {"spec": {"nodeLabels": {"pool": "a"}, "topologyName": "dc"}},
            "b": {"spec": {"nodeLabels": {"pool": "b"}}},
        },
        "topologies": {"dc": {"spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}}},
        "node_labels": {**hosts, "h-b": {"pool": "b"}, "h-new": {"pool": "a", RACK: "r0"}},
    }
    return ImportWorld(**{**settings, **more})


def template(**annotations: str) -> Object:
    """A pod template; keys are annotations of kqueue, as in `podset_required_topology`."""
    marks = {f"{KUEUE}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"labels": {"app": "x"}, "annotations": marks}, "spec": {"containers": [container]}}


def pod(
    name: str, node: str, of: Object | None = None, *, controller: Object | None = None, labels: Object | None = None
) -> Object:
    """A pod that runs; `labels` are those that its controller adds."""
    made = template() if of is None else of
    meta: Object = {**made["metadata"], "name": name, "namespace": "ns", "uid": name}
    meta["labels"] = {**meta["labels"], **(labels or {})}
    if controller is not None:
        meta["ownerReferences"] = [reference(controller)]
    spec = {**made["spec"], "nodeName": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def reference(owner: Object) -> Object:
    """The reference by which an object controls another."""
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"],
            "controller": True}  # fmt: skip


def made(framework: str, spec: Object, **more: Any) -> Object:
    """An object of a kind that runs."""
    gvk = BY_FRAMEWORK[framework].gvk
    meta = {"name": "j", "namespace": "ns", "uid": "j", **more}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": meta, "spec": spec, "status": {}}


def job(pods: int = 2, *, annotations: Object | None = None, of: Object | None = None, **spec: Any) -> Object:
    """A batch Job."""
    whole = {"parallelism": pods, "completions": pods, "template": of or template(), **spec}
    return made("batch/job", whole, annotations=annotations or {})


def training(framework: str, of: Object | None = None) -> tuple[Object, list[Object]]:
    """A training job with a worker more than other types, all of one template, and its pods on rack r0."""
    field, types = TRAINING[framework]
    numbers = dict(zip(types[::-1], (2, 1), strict=False))
    obj = made(framework, {field: {one: {"replicas": n, "template": of or template()} for one, n in numbers.items()}})
    hosts = iter(("h00", "h01", "h02"))
    return obj, [
        pod(f"j-{one}-{i}".lower(), next(hosts), of, controller=obj, labels={"training.kubeflow.org/replica-type": one.lower()})
        for one, number in numbers.items() for i in range(number)
    ]  # fmt: skip


def jobset(of: Object | None = None, **status: Any) -> tuple[Object, Object, list[Object]]:
    """A JobSet, its child Jobs, and three pods on rack r0: replicated jobs `a` and `b` of equal templates."""
    child = {"spec": {"parallelism": 1, "completions": 1, "template": of or template()}}
    parts = [{"name": "a", "replicas": 1, "template": child}, {"name": "b", "replicas": 2, "template": child}]
    obj = made("jobset.x-k8s.io/jobset", {"replicatedJobs": parts})
    obj["status"] = status
    jobs = {}
    pods = []
    for number, name in enumerate(("a-0", "b-0", "b-1")):
        one = job(1)
        one["metadata"] = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [reference(obj)]}
        jobs[name] = one
        pods.append(pod(f"{name}-x", f"h0{number}", of, controller=one,
                        labels={"jobset.sigs.k8s.io/replicatedjob-name": name[0]}))  # fmt: skip
    return obj, jobs, pods


def planned(
    jobs: Sequence[Object],
    pods: Sequence[Object],
    around: ImportWorld | None = None,
    settings: ImportSettings = TO_MAIN,
) -> list[ImportStep | ImportProblem | Skipped]:
    """The plan for each unit."""
    found = [(kind_of(one), one) for one in jobs]
    return [plan(unit, around or world(), settings) for unit in units_in(found, pods, JobFeatures())]


def kind_of(obj: Object) -> JobKind:
    """The adapter of an object."""
    return next(k for k in BY_FRAMEWORK.values() if (k.gvk.api_version, k.gvk.kind) == (obj["apiVersion"], obj["kind"]))


def of_job(obj: Object, *nodes: str, of: Object | None = None) -> list[Object]:
    """Pods of a Job on these nodes."""
    return [pod(f"p{number}", node, of, controller=obj) for number, node in enumerate(nodes)]
