"""The dialects of gangs, by framework."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from kqueue.jobs.fields import JSON, mapping, text
from kqueue.jobs.gang.batch_dialect import BatchProcesses
from kqueue.jobs.gang.coscheduling_labels import CoschedulingLabels
from kqueue.jobs.gang.dialect import Dialect
from kqueue.jobs.gang.group_object import queue_of
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.kueue_groups import KueueGroups
from kqueue.jobs.gang.podgroup_k8s import KubernetesPodGroups
from kqueue.jobs.gang.podgroup_volcano import VolcanoPodGroups
from kqueue.jobs.gang.podgroup_x_k8s import CoschedulingPodGroups
from kqueue.jobs.gang.value import GangMembership
from kqueue.jobs.switches import JobFeatures

_dialects: dict[str, Dialect] = {}
"""By framework, in the order in which they count for a pod that says several groups."""


def register(dialect: Dialect) -> None:
    """Add a dialect at the start of a process.  Raises ValueError when its framework is registered already."""
    if dialect.framework in _dialects:
        raise ValueError(f"{dialect.framework} is registered already")
    _dialects[dialect.framework] = dialect


def dialect_of(framework: str) -> Dialect:
    """Return the dialect.  Raises KeyError for a framework that has none."""
    return _dialects[framework]


def switched_on(frameworks: Collection[str]) -> tuple[str, ...]:
    """Return the frameworks of `integrations.frameworks` that are dialects, in the order in which they count.

    Kueue's groups are always among them: kinds that are queued through their pods use them, too.
    """
    return tuple(name for name in _dialects if name in frameworks or name == KUEUE_GROUPS)


def frameworks() -> tuple[str, ...]:
    """Return the frameworks of all dialects, in the order in which they count."""
    return tuple(_dialects)


def framework_of_kind(group: str, kind: str) -> str:
    """Return the framework of the dialect whose group objects have this kind; empty: no dialect's have."""
    for framework, dialect in _dialects.items():
        if any((each.group, each.kind) == (group, kind) for each in dialect.kinds):
            return framework
    return ""


def named_queue(framework: str, obj: JSON | None, is_queue: Callable[[str], bool]) -> str:
    """Return the LocalQueue that a group object names by its label, or by a field of its kind; empty: it names none.

    `is_queue`: returns whether a LocalQueue namespace/name exists; a field that names no LocalQueue does not count.
    """
    if obj is None:
        return ""
    proposed = "" if queue_of(obj) else dialect_of(framework).proposed_queue(obj)
    found = proposed if proposed and is_queue(f"{text(obj, 'metadata', 'namespace')}/{proposed}") else ""
    return queue_of(obj) or found


def dialects(switches: JobFeatures) -> tuple[Dialect, ...]:
    """Return the dialects that are on, in the order in which they count."""
    return tuple(_dialects[framework] for framework in switches.gangs)


@cache
def _marks(frameworks: tuple[str, ...]) -> frozenset[str]:
    """Return the marks of all these dialects, so that pods outside gangs cost the same with few and many dialects."""
    return frozenset().union(*(_dialects[framework].marks for framework in frameworks))


def membership(pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
    """Return the gang that counts for the pod: that of the first dialect in which it is in one; None: no gang."""
    marks, metadata = _marks(switches.gangs), mapping(pod, "metadata")
    parts = mapping(metadata, "labels"), mapping(metadata, "annotations"), mapping(pod, "spec")
    if all(map(marks.isdisjoint, parts)):
        return None
    for framework in switches.gangs:
        found = _dialects[framework].membership(pod, switches)
        if found is not None:
            return found
    return None


register(KueueGroups())
register(KubernetesPodGroups())
register(CoschedulingPodGroups())
register(CoschedulingLabels())
register(VolcanoPodGroups())
register(BatchProcesses())
