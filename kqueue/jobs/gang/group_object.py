"""Parts of group objects that several dialects read in the same way."""

from __future__ import annotations

from collections.abc import Iterator

from kqueue.api import names, run_names, run_time_names
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, annotations_of, int_of, labels_of, mapping, whole
from kqueue.jobs.gang.dialect import GangRules
from kqueue.jobs.gang.value import GangDeadline
from kqueue.jobs.kind import JobContext
from kqueue.kube import quantity

MOST_MEMBERS = 10_000
"""The largest possible quorum."""


def quorum_problem(path: str, quorum: int) -> FieldError | None:
    """Return why a quorum is not possible; None: it is."""
    if quorum < 1:
        return FieldError(path, "must be 1 or more", quorum)
    if quorum > MOST_MEMBERS:
        return FieldError(path, f"must be at most {MOST_MEMBERS}", quorum)
    return None


def least_of(obj: JSON | None) -> dict[str, str]:
    """Return `spec.minResources` as text by resource."""
    return {resource: str(amount) for resource, amount in mapping(obj, "spec", "minResources").items()}


def least_problems(obj: JSON | None) -> Iterator[FieldError]:
    """Yield amounts of `spec.minResources` that are no quantities of 0 or more."""
    for resource, amount in mapping(obj, "spec", "minResources").items():
        found = quantity.parse(str(amount)) if isinstance(amount, str | int) and not isinstance(amount, bool) else None
        if found is None or found.number < 0:
            yield FieldError(f"spec.minResources[{resource}]", "must be a quantity of 0 or more", amount)


def deadline_of(rules: GangRules, quorum: int, *, seconds: int | None = None) -> GangDeadline:
    """Return the deadline from the admission on: `seconds`, else the default of the quorum, at most the maximum."""
    found = rules.timeouts.seconds(quorum) if seconds is None else min(float(seconds), rules.timeouts.maximum)
    return GangDeadline(seconds=found)


def cut(path: str, seconds: int | None, around: JobContext) -> Iterator[str]:
    """Yield a sentence if a deadline, the number at `path`, is longer than the configuration allows."""
    longest = around.switches.longest_schedule_seconds
    if seconds is not None and seconds > longest:
        yield f"{path} is cut to {longest:g} s, the cluster's maximum"


def topology_of(obj: JSON | None) -> dict[str, str]:
    """Return the topology annotations of a group object, which hold for all its roles."""
    return {key: value for key, value in annotations_of(obj).items() if key in names.TOPOLOGY_ANNOTATIONS}


def without_level(named: tuple[str, str] | None, rules: GangRules) -> str:
    """Return the sentence about the level that a group object names, if no topology has it; empty otherwise."""
    return named[1] if named is not None and rules.levels is not None and named[0] not in rules.levels else ""


def queue_of(obj: JSON | None) -> str:
    """Return the LocalQueue in the label of a group object; empty: it names none."""
    return labels_of(obj).get(names.QUEUE_NAME_LABEL, "")


def priority_class_of(obj: JSON | None) -> str:
    """Return the WorkloadPriorityClass in the label of a group object; empty: it names none."""
    return labels_of(obj).get(names.PRIORITY_CLASS_LABEL, "")


def limit_of(obj: JSON | None) -> int | None:
    """Return the maximum execution time in the label of a group object; None: it has none, or no positive number."""
    found = int_of(labels_of(obj).get(names.MAX_EXEC_TIME_SECONDS_LABEL, ""))
    return found if found is not None and found > 0 else None


def speaker_of(first: JSON, obj: JSON | None) -> JSON:
    """Return the object whose labels and annotations speak for a gang as those of a job do: its oldest member, with
    those of the group object instead where it has them.
    """
    if obj is None:
        return first
    labels = {key: value for key, value in labels_of(obj).items() if key in _LABELS and value}
    annotations = {key: value for key, value in annotations_of(obj).items() if _speaks(key)}
    metadata = {
        **mapping(first, "metadata"),
        "labels": {**labels_of(first), **labels},
        "annotations": {**annotations_of(first), **annotations},
    }
    return {**first, "metadata": metadata}


_LABELS = (names.PRIORITY_CLASS_LABEL, names.MAX_EXEC_TIME_SECONDS_LABEL)
_ANNOTATIONS = (
    *(names.ADMISSION_GATED_BY_ANNOTATION, names.PLACEMENT_PROFILE_ANNOTATION),
    *(*names.JOINT_TRAITS, *run_names.RUN_TRAITS, run_time_names.EXPECTED_SECONDS_ANNOTATION),
)


def _speaks(annotation: str) -> bool:
    return annotation in _ANNOTATIONS or annotation.startswith(names.PROVISIONING_REQUEST_ANNOTATION_PREFIX)


def positive(obj: JSON | None, *path: str) -> int | None:
    """Return the integer at `path` if it is 1 or more; None otherwise."""
    found = whole(obj, *path)
    return found if found is not None and found > 0 else None
