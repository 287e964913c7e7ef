"""Fields of a pod spec that decide where its pod may run and that kqueue does not judge.  Pure.

kube-scheduler judges these fields after the release.  Preferences are left out: they never keep a pod from running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.jobs.fields import mapping, objects, sequence, text

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LEVELS = ("required", "preferred", "podSetSliceRequiredTopology", "podsetSliceRequiredTopologyConstraints")
_CLAIMS = ("persistentVolumeClaim", "ephemeral")


def fields(spec: Mapping[str, Any]) -> list[str]:
    """Names of the fields that the spec has; a value of a wrong type counts as absent."""
    return list(_fields(spec))


def sentence(found: Sequence[str]) -> str:
    """What follows for a pod set that asks for a topology level."""
    return (
        f"kqueue does not judge {', '.join(found)} when it chooses topology domains; "
        "a pod that kube-scheduler refuses there stays pending"
    )


def _fields(spec: Mapping[str, Any]) -> Iterator[str]:
    for name in ("podAffinity", "podAntiAffinity"):
        if sequence(spec, "affinity", name, _REQUIRED):
            yield f"affinity.{name}"
    if any(text(one, "whenUnsatisfiable") != "ScheduleAnyway" for one in objects(spec, "topologySpreadConstraints")):
        yield "topologySpreadConstraints"
    containers = (*objects(spec, "containers"), *objects(spec, "initContainers"))
    if any(port.get("hostPort") for container in containers for port in objects(container, "ports")):
        yield "hostPort"
    volumes = objects(spec, "volumes")
    yield from (f"volumes.{name}" for name in _CLAIMS if any(mapping(volume, name) for volume in volumes))


def of_workload(workload: Mapping[str, Any]) -> list[str]:
    """A sentence for each pod set of a Workload that asks for a topology level and has such fields."""
    told = []
    for pod_set in objects(workload, "spec", "podSets"):
        request = mapping(pod_set, "topologyRequest")
        found = fields(mapping(pod_set, "template", "spec"))
        if found and any(request.get(level) for level in _LEVELS):
            told.append(f"pod set {text(pod_set, 'name')}: {sentence(found)}")
    return told
