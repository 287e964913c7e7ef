"""Render the JobSet that Kubeflow's Trainer makes of a TrainJob and its runtime, as far as pods and requests go.

Environment, commands, volumes and ports that Trainer adds are left out: neither the number of pods nor their requests
depend on them.  Source: Trainer, version 2.2 (JobSet builder; plugins for plain, Torch and MPI policies).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.jobs.fields import JSON, flag, labels_of, mapping, objects, text, whole
from kqueue.jobs.meaning import canonical
from kqueue.kube import names as kube_names

PATCHES = "runtimePatches"
"""Field of a TrainJob's spec with the changes that each manager makes to the runtime's template."""
_STEP = kube_names.TRAINER_STEP_LABEL
_NODE, _LAUNCHER, _TRAINER = "node", "launcher", "trainer"
_STEPS_OF_ONE_REPLICA = (_TRAINER, "dataset-initializer", "model-initializer")
_LISTS_BY_KEY = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
}
"""Lists that a patch merges item by item, with the field that identifies an item; all other lists it replaces."""


def replicated_jobs(job: JSON, runtime: JSON, *, without: str = "") -> list[JSON]:
    """Return the replicated jobs of the JobSet; `without`: the manager whose patches are left out."""
    entries = [one for one in objects(job, "spec", PATCHES) if not without or text(one, "manager") != without]
    found = []
    for replicated in objects(runtime, "spec", "template", "spec", "replicatedJobs"):
        one = dict(replicated)
        for entry in entries:
            for patch in _patches(entry):
                if patch.get("name") == one.get("name"):
                    one["template"] = patched(mapping(one, "template"), mapping(patch, "template"))
        found.append(one)
    counts = _counts(job, runtime, found)
    return [_rendered(one, count, job, runtime) for one, count in zip(found, counts, strict=True)]


def as_it_runs(rendered: Sequence[JSON], runs: Sequence[Mapping[str, Any]]) -> list[JSON]:
    """Return the replicated jobs that run: each as rendered if it is as large, else as it is in the running JobSet.

    Trainer adds parts without requests to a JobSet, so templates are compared by requests only.
    """
    by_name = {text(one, "name"): one for one in rendered}
    found = []
    for one in runs:
        wanted = by_name.get(text(one, "name"))
        found.append(wanted if wanted is not None and _size(wanted) == _size(one) else _rendered_part(one))
    return found


def _size(replicated: Mapping[str, Any]) -> object:
    """Return what a replicated job asks for: its numbers, and the resources of each container."""
    spec = mapping(replicated, "template", "spec")
    replicas = whole(replicated, "replicas")
    pod = mapping(spec, "template", "spec")
    asked = {
        (part, text(one, "name")): canonical(mapping(one, "resources"))
        for part in ("containers", "initContainers")
        for one in objects(pod, part)
        if mapping(one, "resources")
    }
    return 1 if replicas is None else replicas, whole(spec, "parallelism"), whole(spec, "completions"), asked


def _rendered_part(replicated: Mapping[str, Any]) -> JSON:
    template = mapping(replicated, "template")
    spec = mapping(template, "spec")
    written = {**spec, "template": _without_ports(mapping(spec, "template"))}
    return {**replicated, "template": {**template, "spec": written}}


def _without_ports(template: Mapping[str, Any]) -> JSON:
    """Return a pod template with host ports only: Trainer adds other ports, which need no room on a host."""
    spec = dict(mapping(template, "spec"))
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [_with_host_ports(one) for one in objects(spec, part)]
    return {**template, "spec": spec}


def _with_host_ports(container: Mapping[str, Any]) -> JSON:
    ports = [port for port in objects(container, "ports") if whole(port, "hostPort")]
    rest = {key: value for key, value in container.items() if key != "ports"}
    return {**rest, "ports": ports} if ports else rest


def patched(template: Mapping[str, Any], patch: Mapping[str, Any]) -> JSON:
    """Return a template with a patch merged in as Kubernetes' strategic merge does: maps and named items are merged."""
    new = dict(template)
    for key, value in patch.items():
        before, name = new.get(key), _LISTS_BY_KEY.get(key)
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            new[key] = patched(before if isinstance(before, Mapping) else {}, value)
        elif name is not None and isinstance(value, list):
            new[key] = _merged_list(objects(new, key), objects(patch, key), name)
        else:
            new[key] = value
    return new


def _merged_list(before: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], name: str) -> list[JSON]:
    merged = {text(item, name): dict(item) for item in before}
    for item in patch:
        merged[text(item, name)] = patched(merged.get(text(item, name), {}), item)
    return list(merged.values())


def _patches(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return objects(entry, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")


def _step(replicated: Mapping[str, Any]) -> str:
    return labels_of(mapping(replicated, "template")).get(_STEP, "")


def _counts(job: JSON, runtime: JSON, found: Sequence[JSON]) -> list[int]:
    """Return the number of pods of each replicated job's Jobs."""
    policy = mapping(runtime, "spec").get("mlPolicy")
    has_policy, is_mpi = isinstance(policy, Mapping), isinstance(mapping(policy).get("mpi"), Mapping)
    nodes = whole(job, "spec", "trainer", "numNodes")
    counts = []
    for one in found:
        count = whole(one, "template", "spec", "parallelism")
        if _step(one) == _TRAINER and has_policy:
            count = whole(policy, "numNodes")
        if nodes is not None and not is_mpi and _step(one) == _TRAINER:
            count = nodes
        if nodes is not None and is_mpi and one.get("name") == _NODE:
            count = max(nodes - 1, 1) if flag(policy, "mpi", "runLauncherAsNode") else nodes
        counts.append(1 if count is None else count)
    return counts


def _rendered(replicated: JSON, count: int, job: JSON, runtime: JSON) -> JSON:
    template = mapping(replicated, "template")
    spec = {**mapping(template, "spec"), "parallelism": count, "completions": count}
    spec["template"] = _without_ports(mapping(spec, "template"))
    if labels_of(template):
        spec["template"] = _with_trainer(spec["template"], job, runtime)
    one = {**replicated, "template": {**template, "spec": spec}}
    return {**one, "replicas": 1} if _step(replicated) in _STEPS_OF_ONE_REPLICA else one


def _with_trainer(template: Mapping[str, Any], job: JSON, runtime: JSON) -> JSON:
    """Return a pod template whose training containers have the image and the resources of the TrainJob."""
    trainer = mapping(job, "spec", "trainer")
    resources = mapping(trainer, "resourcesPerNode")
    wanted: JSON = {}
    if text(trainer, "image"):
        wanted["image"] = text(trainer, "image")
    if mapping(resources, "limits") or mapping(resources, "requests"):
        wanted["resources"] = {key: resources[key] for key in ("limits", "requests") if mapping(resources, key)}
    called = {_NODE}
    if flag(runtime, "spec", "mlPolicy", "mpi", "runLauncherAsNode"):
        called.add(_LAUNCHER)
    spec = mapping(template, "spec")
    if not wanted or "containers" not in spec:
        return dict(template)
    containers = [{**one, **wanted} if text(one, "name") in called else one for one in objects(spec, "containers")]
    return {**template, "spec": {**spec, "containers": containers}}
