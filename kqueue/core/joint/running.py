"""Running workloads in a network: classes that keep their places, and may be stopped or moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

from kqueue.core.charging import own_domains
from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.classes import NO_LEVEL, ClassInput, GangShape, PodClass, Stay, classes_of
from kqueue.core.joint.costs import STAYS
from kqueue.core.joint.moving import RunningGang
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.lost_work import NO_CHECKPOINTS, Checkpoints
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, TopologyRequest, resolve
from kqueue.core.topology.result import DomainUsage, Misfit
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Head, PodSet, TopologyView


@value(kw_only=True)
class RunningInput:
    """The facts about running workloads that a round needs beyond its state.

    Args:
        checkpoints: by UID, of the workloads whose users say something about them.
        movable: the workloads that may be moved now; empty: moves are not considered.
    """

    checkpoints: Mapping[str, Checkpoints] = field(default_factory=dict)
    movable: tuple[RunningGang, ...] = ()


NOTHING_RUNS = RunningInput()


def lost_by(workload: Admitted, checkpoints: Mapping[str, Checkpoints], now: datetime) -> int:
    """Return the seconds that each pod of a running workload loses when it stops."""
    since = workload.admitted_at
    running = max(0, (now - since) // timedelta(seconds=1)) if since is not None else 0
    return checkpoints.get(workload.uid, NO_CHECKPOINTS).lost(running)


def units_of_running(
    workload: Admitted, unit_of: Mapping[str, Unit], topologies: Mapping[str, TopologyView]
) -> dict[str, int]:
    """Return the units of the pods of a running workload, by flavor; flavors without a unit are left out."""
    found = {}
    for flavor, usage in own_domains(workload, topologies):
        unit = unit_of.get(flavor)
        if unit is not None:
            found[flavor] = sum(_units(unit, one) * one.count for one in usage)
    return found


def stopped_classes(
    workload: Admitted, flavor: str, topologies: Mapping[str, TopologyView], unit: Unit, *, lost: int
) -> list[PodClass]:
    """Return the classes of a running workload that may be stopped, and not moved: one for each size of pod.

    Their rank is `STAYS`; the caller gives them another one.
    """
    tree = topologies[flavor].tree
    member = RankedWorkload(head=_head(workload, ()), rank=STAYS, waited=lost)
    sizes: dict[tuple[tuple[str, int], ...], list[DomainUsage]] = {}
    for one in dict(own_domains(workload, topologies)).get(flavor, ()):
        if _units(unit, one):
            sizes.setdefault(tuple(sorted(one.requests.items())), []).append(one)
    total = sum(_units(unit, one) * one.count for some in sizes.values() for one in some)
    quota = workload.usage.get(FlavorResource(flavor, unit.resource), 0)
    found = []
    for usage in sizes.values():
        stay = _there(tree, [(tree.leaf_of(one.values), _units(unit, one) * one.count) for one in usage])
        units = sum(stay.values())
        if units:
            form = _form(usage, tree, units, quota * units // total)
            found.append(PodClass(queue=workload.queue, rank=STAYS, form=form, members=[member], stay=Stay(units=stay)))
    return found


def _units(unit: Unit, usage: DomainUsage) -> int:
    return usage.requests.get(unit.resource, 0) // unit.size


def _there(tree: Tree, places: Sequence[tuple[int | None, int]]) -> dict[int, int]:
    """Return units by leaf; leaves that are gone are left out."""
    found: dict[int, int] = {}
    for leaf, units in places:
        if leaf is not None and units:
            found[leaf] = found.get(leaf, 0) + units
    return found


def _form(usage: Sequence[DomainUsage], tree: Tree, units: int, quota: int) -> GangShape:
    pods = PodSetRequest(
        name="running",
        count=sum(one.count for one in usage),
        requests=usage[0].requests,
        topology=TopologyRequest(unconstrained=True),
    )
    resolved = resolve(pods, tree.levels, DEFAULT_PROFILE)
    assert not isinstance(resolved, Misfit), "pods that may be anywhere name no level"
    return GangShape(
        workers=pods, leader=None, resolved=resolved, units=units, quota=quota, level=NO_LEVEL, required=False
    )


def movable_classes(
    gang: RunningGang, workload: Admitted, flavor: str, tree: Tree, unit: Unit, *, points: int
) -> list[PodClass] | None:
    """Return the classes of a running workload that may move, at so many points for each unit.

    None: it cannot be told apart where its pods are, or they have no units.  Its quota stays as it is, so the classes
    count none.
    """
    requests = gang.requests[flavor]
    member = RankedWorkload(head=_head(workload, requests), rank=STAYS, waited=gang.lost)
    found = []
    given = ClassInput(ranked=member, requests=requests, quota={})
    for one in classes_of([given], tree.levels, unit, JointOrder.STRICT):
        places = [
            (tree.leaf_of(path[-1:] if tree.is_hostname else path), count * unit.of_pod(pods))
            for pods in one.form.pods
            for path, count in gang.places.get(pods.name, ())
        ]
        stay = _there(tree, places)
        if sum(stay.values()) != one.form.units:
            return None
        found.append(replace(one, rank=STAYS, stay=Stay(units=stay, move=points)))
    return found or None


def _head(workload: Admitted, requests: Sequence[PodSetRequest]) -> Head:
    return Head(
        key=workload.key,
        uid=workload.uid,
        queue=workload.queue,
        priority=workload.priority,
        timestamp=workload.timestamp,
        pod_sets=tuple([PodSet(request=request, quota_requests={}) for request in requests]),
    )
