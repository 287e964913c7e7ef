"""The pod set of each pod of a running job, which no mark of kqueue names yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.jobs.fields import JSON, labels_of, mapping, objects, text
from kqueue.operations.importing.refusal import RefusalError

Object = Mapping[str, Any]


def members_of(pod_sets: Sequence[JSON], pods: Sequence[Object]) -> dict[str, list[Object]]:
    """Return the pods of each pod set by its name.

    Pods of a job with one pod set are all of that.  Elsewhere a pod has the labels and the containers of its template;
    of several such pod sets it is of the one whose name a label has that the job's controller added, as all kinds with
    several templates do.

    Raises:
        RefusalError: a pod may be of no pod set, or of several.
    """
    found: dict[str, list[Object]] = {text(one, "name"): [] for one in pod_sets}
    for pod in pods:
        found[_name(pod_sets, pod)].append(pod)
    return found


def _name(pod_sets: Sequence[JSON], pod: Object) -> str:
    fitting = list(pod_sets) if len(pod_sets) == 1 else [one for one in pod_sets if _fits(one, pod)]
    if len(fitting) > 1:
        fitting = [one for one in fitting if _is_labelled(one, pod)] or fitting
    names = [text(one, "name") for one in fitting]
    if len(names) == 1:
        return names[0]
    which = f"may be of the pod sets {', '.join(names)}" if names else "is like no template of it"
    raise RefusalError(f"its pod {text(pod, 'metadata', 'name')} {which}")


def _fits(pod_set: JSON, pod: Object) -> bool:
    """Whether the pod has the template's labels and containers; webhooks may have added more."""
    template = mapping(pod_set, "template")
    wanted = {text(one, "name") for one in objects(template, "spec", "containers")}
    has = {text(one, "name") for one in objects(pod, "spec", "containers")}
    return wanted <= has and labels_of(template).items() <= labels_of(pod).items()


def _is_labelled(pod_set: JSON, pod: Object) -> bool:
    own = labels_of(mapping(pod_set, "template"))
    return any(value.lower() == text(pod_set, "name") for key, value in labels_of(pod).items() if key not in own)
