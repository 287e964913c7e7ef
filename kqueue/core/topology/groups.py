"""Pod sets that are placed together, and the rules for their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kqueue.core.topology.request import PodSetRequest
from kqueue.core.topology.result import Misfit, MisfitCode, PodSetPlacement


@dataclass(frozen=True, slots=True)
class Group:
    """Pod sets that share one domain: workers, and at most one leader pod."""

    name: str | None
    members: tuple[PodSetRequest, ...]
    """The pod sets, in request order."""
    workers: PodSetRequest
    """The pod set that was the larger one when it had all its pods, the first of equals."""
    leader: PodSetRequest | None
    """The other pod set; None: the group has only one."""

    @classmethod
    def of(cls, name: str | None, members: Sequence[PodSetRequest]) -> Group:
        """Return these pod sets as a group."""
        if len(members) == 1:
            return cls(name, tuple(members), members[0], None)
        workers = max(members, key=lambda member: member.count + member.ended)
        leader = next((member for member in members if member is not workers), None)
        return cls(name, tuple(members), workers, leader)


def in_order(pod_sets: Sequence[PodSetRequest], placed: Mapping[str, PodSetPlacement]) -> tuple[PodSetPlacement, ...]:
    """Return the placed pod sets in the order of the request, without pod sets that are not placed."""
    return tuple(placed[pod_set.name] for pod_set in pod_sets if pod_set.name in placed)


def groups_of(pod_sets: Sequence[PodSetRequest]) -> list[Group]:
    """Return the groups in order of first appearance; pod sets without pods are in no group."""
    if len(pod_sets) == 1:
        return [Group.of(pod_sets[0].group, pod_sets)] if pod_sets[0].count > 0 else []
    members: dict[tuple[str | None, int], list[PodSetRequest]] = {}
    for i, pod_set in enumerate(pod_sets):
        if pod_set.count > 0:
            members.setdefault((pod_set.group, -1 if pod_set.group is not None else i), []).append(pod_set)
    return [Group.of(name, group) for (name, _), group in members.items()]


def of_group(misfit: Misfit, group: Group) -> Misfit:
    """Return the misfit for the group: all members fail together and the first is named, unless one pod set's template
    is the cause.
    """
    at_fault = misfit.code in (MisfitCode.INVALID_NODE_SELECTOR, MisfitCode.INVALID_NODE_AFFINITY)
    return replace(misfit, pod_set=misfit.pod_set if at_fault else group.members[0].name, group=group.name)


def problem_of(group: Sequence[PodSetRequest]) -> str | None:
    """Return why these pod sets cannot share a domain at any capacity; None: they can."""
    if len(group) == 1:
        return None
    if len(group) > 2:
        return f"a group has at most 2 pod sets, this one has {len(group)}"
    first, second = group
    if 1 not in (first.count, second.count):
        return f"one pod set of a group must have 1 pod, these have {first.count} and {second.count}"
    if (first.topology.required, first.topology.preferred) != (second.topology.required, second.topology.preferred):
        return f"{first.name} and {second.name} must ask for the same required or preferred level"
    return None
