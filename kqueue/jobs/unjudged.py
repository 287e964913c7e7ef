"""Find fields of a pod spec that restrict its nodes and that kqueue does not evaluate.  Pure.

kube-scheduler evaluates these fields after the release.  Preferences are left out: they never prevent a pod from
running. Host ports, and rules between the pods of one workload, are evaluated (`kqueue.model.neighbours`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kqueue.api.wire.core import PodAffinityTerm, PodTemplate
from kqueue.api.wire.pod_affinity import selects
from kqueue.jobs.fields import mapping, objects, sequence, text
from kqueue.kube import names as kube_names

Template = Mapping[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LEVELS = ("required", "preferred", "podSetSliceRequiredTopology", "podsetSliceRequiredTopologyConstraints")
MOST = 20
"""The largest number of templates of one workload that are read; a Workload has at most 18 pod sets."""
_CLAIMS = ("persistentVolumeClaim", "ephemeral")


def fields(template: Template, namespace: str, *, among: Sequence[Template] = ()) -> list[str]:
    """Return the names of such fields in a pod template; a value of a wrong type counts as absent.

    `among` are the pod templates of the workload, the first MOST of which count: rules between its pods are evaluated.
    """
    return list(_fields(template, namespace, among or (template,)))


def sentence(found: Sequence[str]) -> str:
    """Return the consequence for a pod set that requests a topology level."""
    return (
        f"kqueue does not judge {', '.join(found)} when it chooses topology domains; "
        "a pod that kube-scheduler refuses there stays pending"
    )


def _fields(template: Template, namespace: str, among: Sequence[Template]) -> Iterator[str]:
    spec = mapping(template, "spec")
    near, away = (sequence(spec, "affinity", kind, _REQUIRED) for kind in ("podAffinity", "podAntiAffinity"))
    if near or away:
        own = _labelled(template)
        others = [_labelled(one) for one in among[:MOST]] if away else []
        if not all(_selects(term, own, (own,), namespace) for term in near):
            yield "affinity.podAffinity"
        if not all(_is_by_host(term) and _selects(term, own, others, namespace) for term in away):
            yield "affinity.podAntiAffinity"
    if any(text(one, "whenUnsatisfiable") != "ScheduleAnyway" for one in objects(spec, "topologySpreadConstraints")):
        yield "topologySpreadConstraints"
    volumes = objects(spec, "volumes")
    yield from (f"volumes.{name}" for name in _CLAIMS if any(mapping(volume, name) for volume in volumes))


def _is_by_host(term: object) -> bool:
    return text(term, "topologyKey") == kube_names.HOSTNAME_LABEL


def _labelled(template: Template) -> PodTemplate:
    """Return the template's labels; no labels if they are invalid."""
    try:
        return msgspec.convert({"metadata": {"labels": mapping(template, "metadata", "labels")}}, PodTemplate)
    except msgspec.ValidationError:
        return PodTemplate()


def _selects(term: object, own: PodTemplate, among: Sequence[PodTemplate], namespace: str) -> bool:
    """Whether a term certainly selects pods of one of these templates; an invalid term selects none."""
    try:
        rule = msgspec.convert(term, PodAffinityTerm, strict=False)
    except msgspec.ValidationError:
        return False
    return any(selects(rule, own, other, namespace) for other in among)


def of_workload(workload: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each pod set of a Workload that requests a topology level and has such fields."""
    told = []
    pod_sets, namespace = objects(workload, "spec", "podSets"), text(workload, "metadata", "namespace")
    among = [mapping(pod_set, "template") for pod_set in pod_sets]
    for pod_set in pod_sets:
        request = mapping(pod_set, "topologyRequest")
        found = fields(mapping(pod_set, "template"), namespace, among=among)
        if found and any(request.get(level) for level in _LEVELS):
            told.append(f"pod set {text(pod_set, 'name')}: {sentence(found)}")
    return told
