"""Classes: workloads of a batch that a network does not tell apart."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.topology.groups import groups_of
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Resolved, resolve
from kqueue.core.topology.result import Misfit
from kqueue.core.value import value

NO_LEVEL = -1
"""The level of a gang that may use all domains of the flavor."""


@value(kw_only=True)
class GangShape:
    """The pods of one pod set, or of a leader and its workers, that are placed together.

    Args:
        units: of all pods.
        quota: of all pods, of the quota column of the unit resource; 0: the ClusterQueue does not count it.
        level: the level that they require or prefer; `NO_LEVEL`: none.
    """

    workers: PodSetRequest
    leader: PodSetRequest | None
    resolved: Resolved
    units: int
    quota: int
    level: int
    required: bool

    @property
    def pods(self) -> tuple[PodSetRequest, ...]:
        """The workers, and the leader if there is one."""
        return (self.workers,) if self.leader is None else (self.workers, self.leader)

    def key(self) -> Hashable:
        """Return what a network sees of the pods."""
        leader = None if self.leader is None else self.leader.shape
        return self.workers.shape, self.workers.count, leader, self.resolved, self.quota, self.workers.within


@value(kw_only=True)
class Stay:
    """The places of a running workload, which cost nothing while it stays there.

    Args:
        units: by leaf.
        move: points per unit that a move costs, up to `WAIT_MAX`; None: it may be stopped, and not moved.
    """

    units: Mapping[int, int]
    move: int | None = None


@dataclass(slots=True, kw_only=True)
class PodClass:
    """Equal groups of pods of workloads that are neighbours in the order, or have one rank.

    Args:
        rank: the place of the class in the order; classes of one workload share it.
        members: the workloads, in their order.
        sight: what policies see of them beyond their requests.
        stay: None: the workloads wait.  For a running one the `waited` seconds are those that it loses when it stops.
    """

    queue: str
    rank: int
    form: GangShape
    members: list[RankedWorkload]
    sight: Hashable = ()
    stay: Stay | None = None

    @property
    def demand(self) -> int:
        """The units of all members."""
        return len(self.members) * self.form.units

    @property
    def waited(self) -> int:
        """The seconds of the member that waits longest."""
        return max(one.waited for one in self.members)


@value(kw_only=True)
class ClassInput:
    """A workload, its pod sets in one flavor, and the quota of one pod of each in the unit resource, by name.

    `key`: what policies see of it beyond its requests.
    """

    ranked: RankedWorkload
    requests: Sequence[PodSetRequest]
    quota: Mapping[str, int]
    key: Hashable = ()


def classes_of(inputs: Sequence[ClassInput], levels: tuple[str, ...], unit: Unit, how: JointOrder) -> list[PodClass]:
    """Return the classes of workloads, which come in their order.

    Pods without units, and pod sets that this topology cannot place, are in no class.
    """
    found: list[PodClass] = []
    known: dict[Hashable, list[PodClass]] = {}
    rank, before = 0, None
    for one in inputs:
        forms = forms_of(one.requests, one.quota, levels, unit)
        if not forms:
            continue
        key: Hashable = (one.ranked.head.queue, one.key, *(form.key() for form in forms))
        if how is JointOrder.PRIORITY:
            key = one.ranked.rank, key
        elif key != before:
            known.clear()  # only neighbours in the order are merged
        same = known.get(key)
        if same is not None:
            for pod_class in same:
                pod_class.members.append(one.ranked)
        else:
            rank = one.ranked.rank if how is JointOrder.PRIORITY else rank + 1
            queue = one.ranked.head.queue
            known[key] = [
                PodClass(queue=queue, rank=rank, form=form, members=[one.ranked], sight=one.key) for form in forms
            ]
            found += known[key]
        before = key
    return found


def forms_of(
    requests: Sequence[PodSetRequest], quota: Mapping[str, int], levels: tuple[str, ...], unit: Unit
) -> tuple[GangShape, ...]:
    """Return the gangs of a workload that have units and that this topology can place.

    `quota`: of one pod of each pod set in the unit resource, by name.
    """
    found: list[GangShape] = []
    for group in groups_of(requests):
        resolved = resolve(group.workers, levels, DEFAULT_PROFILE)
        pods = (group.workers, *([group.leader] if group.leader is not None else []))
        units = unit.of(pods)
        if isinstance(resolved, Misfit) or not units:
            continue
        free = resolved.unconstrained and resolved.binding is None
        found.append(
            GangShape(
                workers=group.workers,
                leader=group.leader,
                resolved=resolved,
                units=units,
                quota=sum(quota.get(pod_set.name, 0) * pod_set.count for pod_set in pods),
                level=NO_LEVEL if free else resolved.level,
                required=resolved.binding is not None,
            )
        )
    return tuple(found)
