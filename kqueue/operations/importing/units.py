"""The units of an import: a job with its pods, a group of pods, or a single pod, each imported as a whole.

A pod belongs to the topmost job above it in the chain of controllers.  Where the chain passes through an object of a
kind that kqueue does not read, the labels by which the job's kind selects its pods decide.  A label alone makes no pod
part of a job: any user may write it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from kqueue.jobs import pod_view
from kqueue.jobs.fields import labels_of, objects, text
from kqueue.jobs.gang.compose import Composition, compose
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.registry import dialect_of, membership
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.kind import JobKind
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.switches import JobFeatures

Object = Mapping[str, Any]
Job = tuple[JobKind, Object]

SINGLE_POD = PlainPod()
NO_OBJECTS: Mapping[str, Object] = MappingProxyType({})
_LEVELS = 8
"""Limit of the chain of controllers that is followed upwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportUnit:
    """One job, group of pods, or pod, with its pods that have not ended."""

    kind: JobKind
    obj: Object
    """The job or pod; of a group the first of its pods."""
    pods: tuple[Object, ...]
    group: str = ""
    """Key of the group of pods; empty: it is none."""
    group_name: str = ""
    group_object: Object | None = None
    """The object of the group, or of the group beyond whose quorum the pod is; None: there is none."""
    base: Composition | None = None
    """The quorum of its group, for a pod beyond it."""
    is_extra: bool = False
    """Whether it is a pod of a group that is queued alone."""

    @property
    def is_job(self) -> bool:
        """Whether the unit has an object above its pods."""
        return self.kind is not SINGLE_POD

    @property
    def noun(self) -> str:
        """The kind in tables."""
        return "Pod group" if self.group else self.kind.gvk.kind

    @property
    def namespace(self) -> str:
        """The namespace."""
        return text(self.obj, "metadata", "namespace")

    @property
    def name(self) -> str:
        """The name of the job, group or pod."""
        return self.group_name or text(self.obj, "metadata", "name")


def controller_of(obj: Object) -> Mapping[str, Any]:
    """Return the reference to the object's controller; empty: it has none."""
    return next((o for o in objects(obj, "metadata", "ownerReferences") if o.get("controller") is True), {})


def units_in(
    jobs: Sequence[Job],
    pods: Sequence[Object],
    switches: JobFeatures,
    group_objects: Mapping[str, Object] = NO_OBJECTS,
) -> list[ImportUnit]:
    """Return all units that have pods which have not ended: jobs, then groups, then single pods.

    `group_objects`: the objects of groups by the key of the group.  Pods beyond the quorum of a group are single pods.
    Jobs that have finished or are being deleted are left out with their pods, and single pods that are being deleted.
    """
    tree = _Tree(jobs)
    of_jobs: dict[str, list[Object]] = defaultdict(list)
    of_groups: dict[tuple[str, str], list[Object]] = defaultdict(list)
    alone: list[Object] = []
    for pod in pods:
        if pod_view.is_terminated(pod):
            continue
        top = tree.above(pod)
        if top is not None:
            of_jobs[text(top[1], "metadata", "uid")].append(pod)
        elif (gang := membership(pod, switches)) is not None:
            key = gang_key(gang.framework, text(pod, "metadata", "namespace"), gang.name)
            of_groups[key, gang.name].append(pod)
        elif not pod_view.is_deleting(pod):
            alone.append(pod)
    found = [
        ImportUnit(kind=kind, obj=obj, pods=tuple(of_jobs[uid]))
        for uid, (kind, obj) in tree.jobs.items()
        if uid in of_jobs and not pod_view.is_deleting(obj) and kind.finished(dict(obj)) is None
    ]
    for (key, name), members in of_groups.items():
        found += _of_group(key, name, members, group_objects.get(key), switches)
    return found + [ImportUnit(kind=SINGLE_POD, obj=pod, pods=(pod,)) for pod in alone]


def _of_group(
    key: str, name: str, members: Sequence[Object], obj: Object | None, switches: JobFeatures
) -> Iterator[ImportUnit]:
    """Yield the pods of a group that start together as one unit, and each of the others as one of its own."""
    alone = partial(ImportUnit, kind=SINGLE_POD, group_object=obj, is_extra=True)
    dialect = dialect_of(GangRef.of_key(key).framework)
    if obj is not None and dialect.queues_alone(dict(obj)):
        yield from (alone(obj=pod, pods=(pod,)) for pod in members)
        return
    originals = {text(pod, "metadata", "uid"): pod for pod in members}
    shown = in_order(managed_pod(dict(pod), switches) for pod in members)
    made = compose(shown, switches, group_object=None if obj is None else dict(obj)) if dialect.has_extras else None
    extras = made.extras if isinstance(made, Composition) else ()
    beyond = {pod.uid for pod in extras}
    base = tuple(pod for uid, pod in originals.items() if uid not in beyond)
    yield ImportUnit(kind=SINGLE_POD, obj=base[0], pods=base, group=key, group_name=name, group_object=obj)
    for pod in extras:
        assert isinstance(made, Composition)
        yield alone(obj=originals[pod.uid], pods=(originals[pod.uid],), base=made)


class _Tree:
    """The jobs by UID, and by the labels that select their pods."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = {text(obj, "metadata", "uid"): (kind, obj) for kind, obj in jobs}
        self._keys: set[tuple[str, ...]] = set()
        self._selected: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
        for uid, (kind, obj) in self.jobs.items():
            selector = tuple(sorted(kind.pod_selector(dict(obj)).items()))
            if selector and all(value for _, value in selector):
                self._keys.add(tuple(key for key, _ in selector))
                self._selected[text(obj, "metadata", "namespace"), selector] = uid

    def above(self, pod: Object) -> Job | None:
        """Return the topmost job of a pod; None: no job controls it."""
        parent = text(controller_of(pod), "uid")
        if not parent:
            return None
        if parent not in self.jobs:
            parent = self._by_labels(pod)
        for _ in range(_LEVELS):
            if parent not in self.jobs:
                return None
            above = text(controller_of(self.jobs[parent][1]), "uid")
            if above not in self.jobs:
                return self.jobs[parent]
            parent = above
        return None

    def _by_labels(self, pod: Object) -> str:
        labels, namespace = labels_of(pod), text(pod, "metadata", "namespace")
        for keys in sorted(self._keys):
            selector = tuple((key, labels.get(key, "")) for key in keys)
            if (uid := self._selected.get((namespace, selector))) is not None:
                return uid
        return ""
