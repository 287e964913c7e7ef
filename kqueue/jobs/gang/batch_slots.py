"""The places of a BatchProcess for pods, one for each index of each process type, and the failures in them.  Pure.

Pods carry all that is counted: a place remembers its attempts and failures in annotations of its newest pod,
so that a controller that is killed anywhere counts the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.api import gang_names
from kqueue.jobs.ancestry import controller_uid
from kqueue.jobs.fields import JSON, annotations_of, int_of, labels_of, mapping, objects, text, whole
from kqueue.jobs.gang.batch_process import BatchPlan
from kqueue.jobs.pod_view import ManagedPod

Place = tuple[str, int]
"""The name of a process type, and an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlaces:
    """The pods of a BatchProcess by place; of several pods in one place the one of the last attempt counts."""

    newest: Mapping[Place, ManagedPod]
    pods: tuple[ManagedPod, ...]
    """All pods, also those of earlier attempts."""
    earlier: Mapping[Place, int] = field(default_factory=dict)
    """Failures by place, without places that had none."""

    def of(self, process: str) -> list[ManagedPod]:
        """Return the pods that count of one process type."""
        return [pod for (name, _), pod in sorted(self.newest.items()) if name == process]

    def failed(self) -> list[ManagedPod]:
        """Return the pods that count and have failed, the oldest first."""
        return sorted((pod for pod in self.newest.values() if has_failed(pod)), key=lambda pod: (pod.created, pod.key))

    def failures(self, *, whole_gang: bool) -> int:
        """Return the failures of all places; `whole_gang`: pods that failed in one attempt of the gang count once."""
        numbers = self.earlier.values()
        return max(numbers, default=0) if whole_gang else sum(numbers)

    def round(self) -> int:
        """Return the attempt to which the whole gang has come with `restart: Gang`."""
        return max((attempt_of(pod) + 1 for pod in self.pods if has_failed(pod)), default=0)


def places_of(pods: Iterable[ManagedPod], plan: BatchPlan) -> BatchPlaces:
    """Return the places of these pods; pods whose labels name no place of the plan are left out."""
    by_place: dict[Place, list[ManagedPod]] = defaultdict(list)
    for pod in pods:
        place = place_of(pod.obj)
        role = plan.role(place[0]) if place is not None else None
        if place is not None and role is not None and place[1] < role.replicas:
            by_place[place].append(pod)
    newest = {place: max(found, key=lambda pod: (attempt_of(pod), pod.key)) for place, found in by_place.items()}
    counted = {place: max(map(_failures_of, found)) for place, found in by_place.items()}
    return BatchPlaces(
        newest=newest,
        pods=tuple(pod for found in by_place.values() for pod in found),
        earlier={place: number for place, number in counted.items() if number},
    )


def place_of(pod: JSON) -> Place | None:
    """Return the place that the labels of a pod name; None: they name none."""
    labels = labels_of(pod)
    index = int_of(labels.get(gang_names.BATCH_PROCESS_INDEX_LABEL, ""))
    process = labels.get(gang_names.BATCH_PROCESS_TYPE_LABEL, "")
    return (process, index) if process and index is not None and index >= 0 else None


def attempt_of(pod: ManagedPod) -> int:
    """Return how often the pod was created again."""
    return _number(pod, gang_names.BATCH_PROCESS_ATTEMPT_ANNOTATION)


def has_failed(pod: ManagedPod) -> bool:
    """Whether the pod has failed, or was deleted by another client than kqueue after its release."""
    return not pod.runnable and not pod.stopped and not pod.gated


def _failures_of(pod: ManagedPod) -> int:
    return _number(pod, gang_names.BATCH_PROCESS_FAILURES_ANNOTATION) + has_failed(pod)


def _number(pod: ManagedPod, annotation: str) -> int:
    found = int_of(annotations_of(pod.obj).get(annotation, ""))
    return max(0, found or 0)


def of_batch_process(pods: Iterable[ManagedPod], obj: JSON) -> list[ManagedPod]:
    """Return the pods that the BatchProcess controls; another one of the same name may have left pods behind."""
    uid = text(obj, "metadata", "uid")
    return [pod for pod in pods if controller_uid(pod.obj) == uid]


def failure_text(pod: ManagedPod, number: int, limit: int) -> str:
    """Return the sentence on the failure that ends a BatchProcess."""
    how = f" (exit code {code})" if (code := _exit_code(pod.obj)) is not None else ""
    verb = "failed" if pod.phase == "Failed" else "was deleted"
    return f"pod {pod.name} {verb}{how}, the {_ordinal(number)} failure; backoffLimit is {limit}"


def _exit_code(pod: JSON) -> int | None:
    """Return the exit code of the first container that failed; None: no container reports one."""
    statuses: Sequence[Mapping[str, object]] = [
        *objects(pod, "status", "initContainerStatuses"),
        *objects(pod, "status", "containerStatuses"),
    ]
    codes = (whole(mapping(entry, "state", "terminated"), "exitCode") for entry in statuses)
    return next((code for code in codes if code), None)


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
