"""The pod sets of one component of an AppWrapper: those that it declares, or those of a kind that AppWrapper knows.

Source: AppWrapper's inference of pod sets (project-codeflare/appwrapper v1.1).  A component has a pod set for each path
to a pod template in its manifest; for the kinds here the paths and numbers follow from the manifest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqueue.errors import FieldError
from kqueue.jobs.fields import int_of, mapping, objects, strings, text, whole
from kqueue.jobs.topology_request import IndexLabels
from kqueue.kinds import OWNERS
from kqueue.kube import names as kube_names

Object = Mapping[str, Any]
_STEP = re.compile(r"\.([^.\[\]]+)|\[(0|[1-9][0-9]{0,5})\]")
_ROOT = "template"
_MORE_KINDS_WITH_PODS = frozenset({("apps", "DaemonSet"), ("batch", "CronJob"), ("", "ReplicationController")})
"""Kinds of Kubernetes that make pods, beside those of `kqueue.kinds`."""


@dataclass(frozen=True, slots=True)
class WrappedPods:
    """One pod set of a component."""

    path: str
    """The path of the pod template in the component."""
    replicas: int = 1
    index: Mapping[str, str] = field(default_factory=dict)
    """Annotations with the labels that number the pods."""

    @property
    def labels(self) -> IndexLabels:
        """Return the labels that number the pods."""
        return IndexLabels(
            pod=self.index.get(kube_names.APPWRAPPER_POD_INDEX_ANNOTATION, ""),
            sub_group=self.index.get(kube_names.APPWRAPPER_SUB_GROUP_INDEX_ANNOTATION, ""),
            sub_groups=int_of(self.index.get(kube_names.APPWRAPPER_SUB_GROUP_COUNT_ANNOTATION, "")),
        )


def look(component: Object, path: str) -> Mapping[str, Any]:
    """Return the pod template at the path in a component; empty: there is none."""
    found: Any = component.get(_ROOT)
    end = len(_ROOT)
    if not path.startswith(_ROOT):
        return {}
    while end < len(path):
        step = _STEP.match(path, end)
        if step is None:
            return {}
        key, number = step.groups()
        if key is not None:
            found = found.get(key) if isinstance(found, Mapping) else None
        else:
            found = found[int(number)] if isinstance(found, list) and int(number) < len(found) else None
        end = step.end()
    return mapping(found)


def pods_of(component: Object) -> list[WrappedPods]:
    """Return the pod sets of a component: its own list, else those of its kind."""
    known = inferred(component)
    declared = objects(component, "podSets")
    if not declared:
        return known
    labels = {pods.path: pods.index for pods in known}
    return [
        WrappedPods(
            path=text(one, "path"),
            replicas=_number(one, "replicas"),
            index={**labels.get(text(one, "path"), {}), **strings(one, "annotations")},
        )
        for one in declared
    ]


def inferred(component: Object) -> list[WrappedPods]:
    """Return the pod sets by the kind of the component; none for a kind that AppWrapper does not know."""
    manifest = mapping(component, _ROOT)
    rule = _RULES.get((text(manifest, "apiVersion"), text(manifest, "kind")))
    return list(rule(manifest)) if rule is not None else []


def problems(component: Object, at: str) -> Iterator[FieldError]:
    """Yield why the pods of a component cannot be counted; `at` is its path."""
    manifest = mapping(component, _ROOT)
    kind = (text(manifest, "apiVersion").rpartition("/")[0], text(manifest, "kind"))
    if kind == _WRAPPER:
        yield FieldError(f"{at}.template", "must not be an AppWrapper; put its components here")
        return
    declared, known = pods_of(component), inferred(component)
    if not declared and (kind in OWNERS or kind in _MORE_KINDS_WITH_PODS):
        remedy = f"give the path and the number of each pod template of the {kind[1]}"
        yield FieldError(f"{at}.podSets", f"AppWrapper does not know the pods of this kind: {remedy}")
    if len({pods.path for pods in declared}) < len(declared):
        yield FieldError(f"{at}.podSets", "has a path twice; every pod template is one pod set")
    elif known and {p.path: p.replicas for p in declared} != {p.path: p.replicas for p in known}:
        wanted = ", ".join(f"{pods.path} with {pods.replicas}" for pods in known)
        yield FieldError(f"{at}.podSets", f"differs from the manifest, which has {wanted}; leave podSets out")
    for number, group in enumerate(objects(_ray_cluster(manifest), "workerGroupSpecs")):
        hosts = whole(group, "numOfHosts")
        if hosts is not None and hosts > 1:
            path = f"workerGroupSpecs[{number}].numOfHosts"
            yield FieldError(f"{at}.template", f"{path}: AppWrapper counts one pod for each replica; use 1", hosts)


def _number(owner: object, *path: str) -> int:
    found = whole(owner, *path)
    return 1 if found is None else found


def _job_pods(job: Object) -> int:
    """Return the pods that a Job runs at a time."""
    parallelism, completions = _number(job, "spec", "parallelism"), whole(job, "spec", "completions")
    return parallelism if completions is None else min(parallelism, completions)


def _pod(_manifest: Object) -> Iterator[WrappedPods]:
    yield WrappedPods(_ROOT)


def _scaled(manifest: Object) -> Iterator[WrappedPods]:
    yield WrappedPods("template.spec.template", _number(manifest, "spec", "replicas"))


def _job(manifest: Object) -> Iterator[WrappedPods]:
    yield WrappedPods("template.spec.template", _job_pods(manifest), _BY_COMPLETION)


def _job_set(manifest: Object) -> Iterator[WrappedPods]:
    for number, replicated in enumerate(objects(manifest, "spec", "replicatedJobs")):
        jobs = _number(replicated, "replicas")
        index = {
            **_BY_COMPLETION,
            kube_names.APPWRAPPER_SUB_GROUP_INDEX_ANNOTATION: kube_names.JOBSET_JOB_INDEX_LABEL,
            kube_names.APPWRAPPER_SUB_GROUP_COUNT_ANNOTATION: str(jobs),
        }
        path = f"template.spec.replicatedJobs[{number}].template.spec.template"
        yield WrappedPods(path, jobs * _job_pods(mapping(replicated, "template")), index)


def _pytorch(manifest: Object) -> Iterator[WrappedPods]:
    specs = mapping(manifest, "spec", "pytorchReplicaSpecs")
    index = {kube_names.APPWRAPPER_POD_INDEX_ANNOTATION: kube_names.TRAINING_REPLICA_INDEX_LABEL}
    for name in ("Master", "Worker"):
        if "template" in mapping(specs, name):
            path = f"template.spec.pytorchReplicaSpecs.{name}.template"
            yield WrappedPods(path, _number(specs, name, "replicas"), index)


def _ray(prefix: str) -> Callable[[Object], Iterator[WrappedPods]]:
    def pods(manifest: Object) -> Iterator[WrappedPods]:
        yield WrappedPods(f"{prefix}.headGroupSpec.template")
        for number, group in enumerate(objects(_ray_cluster(manifest), "workerGroupSpecs")):
            if "template" in group:
                yield WrappedPods(f"{prefix}.workerGroupSpecs[{number}].template", _number(group, "replicas"))

    return pods


def _ray_cluster(manifest: Object) -> Object:
    """Return the description of a cluster in a RayCluster or RayJob; empty for other kinds."""
    if text(manifest, "apiVersion") != "ray.io/v1":
        return {}
    return mapping(manifest, "spec", *(("rayClusterSpec",) if text(manifest, "kind") == "RayJob" else ()))


_WRAPPER = ("workload.codeflare.dev", "AppWrapper")
_BY_COMPLETION = {kube_names.APPWRAPPER_POD_INDEX_ANNOTATION: kube_names.JOB_COMPLETION_INDEX_LABEL}
_RULES: Mapping[tuple[str, str], Callable[[Object], Iterator[WrappedPods]]] = {
    ("v1", "Pod"): _pod,
    ("apps/v1", "Deployment"): _scaled,
    ("apps/v1", "StatefulSet"): _scaled,
    ("batch/v1", "Job"): _job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _job_set,
    ("kubeflow.org/v1", "PyTorchJob"): _pytorch,
    ("ray.io/v1", "RayCluster"): _ray("template.spec"),
    ("ray.io/v1", "RayJob"): _ray("template.spec.rayClusterSpec"),
}
"""The kinds that AppWrapper knows, by API version and kind."""
