"""A view of the demo's cluster at one moment, and readers of its objects."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kqueue.api import names
from kqueue.kube import names as kube_names
from kqueue.runtime.resources import ResourceType

Object = dict[str, Any]
JOBS = ResourceType("batch", "v1", "jobs", "Job")
JOB_SETS = ResourceType("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
_PLURALS: Mapping[str, str] = {
    names.TOPOLOGY_KIND: "topologies",
    names.RESOURCE_FLAVOR_KIND: "resourceflavors",
    names.CLUSTER_QUEUE_KIND: "clusterqueues",
    names.LOCAL_QUEUE_KIND: "localqueues",
    names.WORKLOAD_PRIORITY_CLASS_KIND: "workloadpriorityclasses",
    JOBS.kind: JOBS.plural,
    JOB_SETS.kind: JOB_SETS.plural,
    "Pod": "pods",
    "PodGroup": "podgroups",
    "BatchProcess": "batchprocesses",
}


def documents(path: Path) -> Iterator[Object]:
    """Yield the objects of a manifest."""
    return (doc for doc in yaml.safe_load_all(path.read_text()) if doc)


def type_of(obj: Object) -> ResourceType:
    """Return the kind of an object of the demo's manifests."""
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = obj["kind"]
    return ResourceType(group, version, _PLURALS[kind], kind, namespaced="namespace" in obj["metadata"])


@dataclass(slots=True)
class View:
    """The state of the cluster at one moment."""

    jobs: dict[str, Object] = field(default_factory=dict)
    workloads: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, list[Object]] = field(default_factory=dict)

    def phase(self, name: str) -> tuple[str, str]:
        """Return the phase of a job in one word, and its reason."""
        workload, job = self.workloads.get(name), self.jobs.get(name)
        if job is not None and (is_true(job, "Complete") or is_true(job, "Completed")):
            return "finished", ""
        if workload is None:
            return "submitted", ""
        if not is_true(workload, names.CONDITION_ADMITTED):
            return "waiting", message(workload, names.CONDITION_QUOTA_RESERVED)
        if is_true(workload, names.CONDITION_EVICTED):
            return "leaving", message(workload, names.CONDITION_EVICTED)
        phases = Counter(pod_state(pod) for pod in self.pods.get(name, []))
        total = sum(p["count"] for p in workload["spec"]["podSets"])
        if phases["running"] + phases["ended"] >= total:
            return "running", f"{phases['running']} pods"
        waiting = total - phases["running"] - phases["ended"]
        return "starting", f"{phases['gated']} gated, {waiting - phases['gated']} released, {phases['running']} running"


def pod_state(pod: Object) -> str:
    """Return the state of a pod: gated, released, running or ended."""
    phase = pod.get("status", {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        return "ended"
    if phase == "Running":
        return "running"
    return "gated" if pod["spec"].get("schedulingGates") else "released"


def is_true(obj: Object, kind: str) -> bool:
    """Whether a condition has status True."""
    return any(c["type"] == kind and c["status"] == "True" for c in obj.get("status", {}).get("conditions", []))


def message(obj: Object, kind: str) -> str:
    """Return the message of a condition."""
    found = (c["message"] for c in obj.get("status", {}).get("conditions", []) if c["type"] == kind)
    return next(found, "in the queue")


def owner(obj: Object) -> str:
    """Return the job of a Workload or a pod; for pods of a JobSet's Job the JobSet."""
    labels = obj["metadata"].get("labels") or {}
    if kube_names.JOBSET_NAME_LABEL in labels:
        return str(labels[kube_names.JOBSET_NAME_LABEL])
    return next((o["name"] for o in obj["metadata"].get("ownerReferences", []) if o.get("controller")), "")


def job_specs(job: Object) -> dict[str, tuple[int, Object]]:
    """Return (replicas, Job spec) by name, for a Job or a JobSet; the name is empty for a Job."""
    if "replicatedJobs" not in job["spec"]:
        return {"": (1, job["spec"])}
    return {r["name"]: (r.get("replicas", 1), r["template"]["spec"]) for r in job["spec"]["replicatedJobs"]}


def templates_of(job: Object) -> list[Object]:
    """Return the pod templates of a Job or a JobSet."""
    return [spec["template"] for _, spec in job_specs(job).values()]


def pods_asked(job: Object) -> int:
    """Return the number of pods of a Job or a JobSet that run at the same time."""
    return sum(times * int(spec.get("parallelism", 1)) for times, spec in job_specs(job).values())


def annotation(job: Object, key: str) -> str:
    """Return an annotation of the first pod template, or an empty string."""
    return str((templates_of(job)[0].get("metadata", {}).get("annotations") or {}).get(key, ""))


async def kubectl(server: str, *args: str) -> str:
    """Return the output of kubectl; empty if kubectl is not installed or fails."""
    program = shutil.which("kubectl")
    if program is None:
        return ""
    process = await asyncio.create_subprocess_exec(
        program, "--server", server, *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 20)
    except TimeoutError:
        process.kill()
        await process.wait()
        return ""
    return out.decode(errors="replace") if process.returncode == 0 else ""


def without_template(text: str) -> str:
    """Return the description without the pod template, which the user wrote and knows."""
    kept: list[str] = []
    skip_deeper_than: int | None = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if skip_deeper_than is not None and (indent > skip_deeper_than or not line.strip()):
            continue
        skip_deeper_than = None
        if line.strip() in ("Template:", "Managed Fields:"):
            skip_deeper_than = indent
            continue
        kept.append(line)
    return "\n".join(kept)


def conditions(workload: Object) -> str:
    """Return all conditions, one per line."""
    lines = [
        f"  {c['type']}={c['status']} ({c['reason']}) since {c['lastTransitionTime']}: {c['message']}"
        for c in workload["status"]["conditions"]
    ]
    return "\n".join(["Conditions:", *lines])
