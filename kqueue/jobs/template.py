"""Merge an admission's additions into pod templates, and remove them again.

Merging is all or nothing: a label, annotation or node selector may have the same value twice, never two values;
tolerations and scheduling gates are united. Names reserved for kqueue that this admission does not set are removed:
pods with these names would count as pods of another Workload, or wait forever. Restoring sets all five to exactly the
values that the user wrote. Neither changes affinity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kqueue.api import names
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects, strings, text
from kqueue.jobs.kind import Conflict, PodSetInfo

_OVERRIDABLE = frozenset({names.WORKLOAD_ANNOTATION, names.WORKLOAD_SLICE_NAME_ANNOTATION})
_RESERVED_ANNOTATIONS = _OVERRIDABLE | {
    names.TOPOLOGY_WORKLOAD_ALIAS_ANNOTATION,
    names.TOPOLOGY_PODSET_ALIAS_ANNOTATION,
}
"""kqueue finds the Workload of a pod by these annotations and labels; only a start may write them."""
_RESERVED_GATES = frozenset({names.ADMISSION_GATE, names.TOPOLOGY_GATE, names.ELASTIC_JOB_GATE})
"""Gates that kqueue removes only from pods that it manages."""
_ONLY_ON_PODS = frozenset(
    {
        names.MANAGED_LABEL,
        names.POD_GROUP_NAME_LABEL,
        names.POD_GROUP_NAME_ANNOTATION,
        names.POD_GROUP_TOTAL_COUNT_ANNOTATION,
    }
)
"""Labels and annotations of pods that are queued themselves, alone or as a group; pods of a queued job do not have
them.
"""


def info_of(template: Mapping[str, Any], *, name: str, count: int | None = None) -> PodSetInfo:
    """Return the five parts of `template` that starting a job may change."""
    spec = mapping(template, "spec")
    return PodSetInfo(
        name=name,
        count=count,
        labels=labels_of(template),
        annotations=strings(template, "metadata", "annotations"),
        node_selector=strings(spec, "nodeSelector"),
        tolerations=tuple(objects(spec, "tolerations")),
        scheduling_gates=tuple(text(gate, "name") for gate in objects(spec, "schedulingGates")),
    )


def merged_infos(first: PodSetInfo, second: PodSetInfo) -> PodSetInfo | tuple[Conflict, ...]:
    """Return both together, with the count of `second` if it has one; conflicts if their values differ."""
    conflicts = tuple(conflicts_of(first, second))
    if conflicts:
        return conflicts
    return PodSetInfo(
        name=first.name,
        count=first.count if second.count is None else second.count,
        labels={**first.labels, **second.labels},
        annotations={**first.annotations, **second.annotations},
        node_selector={**first.node_selector, **second.node_selector},
        tolerations=_union(first.tolerations, second.tolerations),
        scheduling_gates=tuple(dict.fromkeys((*first.scheduling_gates, *second.scheduling_gates))),
    )


def conflicts_of(first: PodSetInfo, second: PodSetInfo, *, elastic: bool = False) -> Iterator[Conflict]:
    """Yield a conflict for each key with different values.

    `elastic`: the names of Workload and slice may be overwritten, because a new slice takes over running templates.
    """
    for where, ours, theirs in (
        ("label", first.labels, second.labels),
        ("annotation", first.annotations, second.annotations),
        ("nodeSelector entry", first.node_selector, second.node_selector),
    ):
        for key, value in theirs.items():
            if key in ours and ours[key] != value and not (elastic and key in _OVERRIDABLE):
                yield Conflict(where, key, ours[key], value)


def merged(
    template: Mapping[str, Any], info: PodSetInfo, *, elastic: bool = False, queued_pod: bool = False
) -> JSON | tuple[Conflict, ...]:
    """Return a new template with `info` added; conflicts if the template has other values.

    Reserved names that `info` does not have are left out.  `queued_pod`: the template is a pod that is queued itself,
    and keeps the marks of such pods.
    """
    own = info_of(template, name=info.name)
    conflicts = tuple(conflicts_of(own, info, elastic=elastic))
    if conflicts:
        return conflicts
    own = _without_reserved(own, frozenset() if queued_pod else _ONLY_ON_PODS)
    kept_gates = [g for g in objects(template, "spec", "schedulingGates") if _stays(_gate_name(g), info)]
    new_gates = [{"name": gate} for gate in info.scheduling_gates if gate not in map(_gate_name, kept_gates)]
    return _with(
        template,
        metadata={
            "labels": {**own.labels, **info.labels},
            "annotations": {**own.annotations, **info.annotations},
        },
        spec={
            "nodeSelector": {**own.node_selector, **info.node_selector},
            "tolerations": list(_union(own.tolerations, info.tolerations)),
            "schedulingGates": [*kept_gates, *new_gates],
        },
    )


def _without_reserved(own: PodSetInfo, more: Collection[str]) -> PodSetInfo:
    """Return the info without reserved labels and annotations; `more`: further reserved names."""
    return replace(
        own,
        labels={key: value for key, value in own.labels.items() if key not in more},
        annotations={k: v for k, v in own.annotations.items() if k not in _RESERVED_ANNOTATIONS and k not in more},
    )


def reserved_names(template: Mapping[str, Any], info: PodSetInfo) -> list[str]:
    """Return the reserved names that `merged` leaves out of a template, for kinds whose templates cannot be changed."""
    own = info_of(template, name=info.name)
    kept = _without_reserved(own, _ONLY_ON_PODS)
    return [
        *(f"label {key}" for key in own.labels if key not in kept.labels),
        *(f"annotation {key}" for key in own.annotations if key not in {**kept.annotations, **info.annotations}),
        *(
            f"scheduling gate {gate}"
            for gate in own.scheduling_gates
            if gate in _RESERVED_GATES - {*info.scheduling_gates}
        ),
    ]


def _gate_name(gate: Mapping[str, Any]) -> str:
    return text(gate, "name")


def _stays(gate: str, info: PodSetInfo) -> bool:
    """Whether a gate of the template stays: it belongs to another controller, or the admission has it, too."""
    return gate not in _RESERVED_GATES or gate in info.scheduling_gates


def restored(template: Mapping[str, Any], info: PodSetInfo, *, keep_labels: Sequence[str] = ()) -> JSON:
    """Return a new template with exactly `info` in all five parts.

    `keep_labels` are written by the kind's own controller: they keep the template's values.
    """
    kept = {key: value for key, value in labels_of(template).items() if key in keep_labels}
    return _with(
        template,
        metadata={"labels": {**info.labels, **kept}, "annotations": dict(info.annotations)},
        spec={
            "nodeSelector": dict(info.node_selector),
            "tolerations": [dict(toleration) for toleration in info.tolerations],
            "schedulingGates": [{"name": gate} for gate in info.scheduling_gates],
        },
    )


def as_pod_set(template: Mapping[str, Any], *, without: Collection[str] = ()) -> JSON:
    """Return the template in the form of a pod set: of its metadata only labels and annotations, each variable once.

    `without`: labels that the kind's own controller adds.
    """
    kept = {key: value for key, value in labels_of(template).items() if key not in without}
    metadata: JSON = {}
    if kept:
        metadata["labels"] = kept
    if annotations_of(template):
        metadata["annotations"] = annotations_of(template)
    return without_duplicate_environment({"metadata": metadata, "spec": dict(mapping(template, "spec"))})


def without_duplicate_environment(template: Mapping[str, Any]) -> JSON:
    """Return a new template whose containers name no environment variable twice.

    The last value is kept, at the position of the first.
    """
    spec = dict(mapping(template, "spec"))
    for part in ("initContainers", "containers"):
        if isinstance(spec.get(part), list):
            spec[part] = [_container(item) for item in spec[part]]
    return {**template, "spec": spec} if spec else dict(template)


def _container(container: object) -> object:
    environment = objects(container, "env")
    if not isinstance(container, Mapping) or not environment:
        return container
    last = {text(variable, "name"): variable for variable in environment}
    return container if len(last) == len(environment) else {**container, "env": list(last.values())}


def _union(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    united: list[Mapping[str, Any]] = []
    for toleration in (*first, *second):
        if toleration not in united:
            united.append(toleration)
    return tuple(united)


def _with(template: Mapping[str, Any], *, metadata: JSON, spec: JSON) -> JSON:
    """Return `template` with parts replaced; an empty part is left out unless the template had it, even empty."""
    return {
        **template,
        "metadata": _replaced(mapping(template, "metadata"), metadata),
        "spec": _replaced(mapping(template, "spec"), spec),
    }


def _replaced(old: Mapping[str, Any], parts: JSON) -> JSON:
    new = dict(old)
    for key, value in parts.items():
        if value or old.get(key) == value:
            new[key] = value
        else:
            new.pop(key, None)
    return new
