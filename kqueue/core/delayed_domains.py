"""Domains for workloads with quota whose admission checks are ready, in the flavors that they have, without preemption.

Source: the compatible system's second pass (delayed topology requests).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.charging import charge_domains
from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Profile
from kqueue.core.topology.result import Misfit, Placement, usage_of
from kqueue.core.topology_blockers import topology_blocker
from kqueue.core.workload import Admission, PodSet, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """A workload with quota that needs domains.

    `pod_sets` are its requests with the additions of its checks, `avoided` hosts on which it failed repeatedly.
    """

    key: str
    admission: Admission
    pod_sets: tuple[PodSet, ...]
    avoided: frozenset[str] = frozenset()
    profile: Profile = DEFAULT_PROFILE


def choose_domains(snapshot: Snapshot, delayed: Delayed) -> dict[str, TopologyAssignment] | tuple[Blocker, ...]:
    """Return the domains by pod set, which are charged to the snapshot; or why there are none.

    Hosts on which the workload failed repeatedly are avoided, unless it fits nowhere else.
    """
    requests, gone = _requests(snapshot, delayed)
    if gone:
        return gone
    answers = _placed(snapshot, requests, delayed, delayed.avoided)
    if delayed.avoided and any(isinstance(answer, Misfit) for answer in answers.values()):
        answers = _placed(snapshot, requests, delayed, frozenset())
    blockers = tuple(_blockers(snapshot, answers))
    if blockers:
        return blockers
    found: dict[str, TopologyAssignment] = {}
    for flavor, answer in answers.items():
        if isinstance(answer, Placement):
            charge_domains(flavor, usage_of(answer), snapshot.topologies)
            found |= {pod_set.name: pod_set.assignment for pod_set in answer.pod_sets}
    return found


def _blockers(snapshot: Snapshot, answers: Mapping[str, Placement | Misfit]) -> Iterator[Blocker]:
    for flavor, answer in answers.items():
        if isinstance(answer, Misfit):
            yield topology_blocker(flavor, answer, unusable=snapshot.topologies[flavor].unusable)


def _placed(
    snapshot: Snapshot, requests: Mapping[str, Sequence[PodSetRequest]], delayed: Delayed, avoided: frozenset[str]
) -> dict[str, Placement | Misfit]:
    capacities = {flavor: snapshot.topologies[flavor].capacity for flavor in requests}
    asked = {flavor: [request.avoiding(avoided) for request in some] for flavor, some in requests.items()}
    return place_workload(capacities, asked, profile=delayed.profile)


def _requests(snapshot: Snapshot, delayed: Delayed) -> tuple[dict[str, list[PodSetRequest]], tuple[Blocker, ...]]:
    """Return the requests that wait for domains, by topology flavor; or the flavors whose nodes are not known."""
    wanted = {pod_set.name: pod_set.request for pod_set in delayed.pod_sets}
    found: dict[str, list[PodSetRequest]] = {}
    gone: list[Blocker] = []
    for held in delayed.admission.pod_sets:
        if not held.waits_for_domains:
            continue
        flavors = sorted(set(held.flavors.values()))
        flavor = next((name for name in flavors if name in snapshot.topologies), None)
        if flavor is None:
            detail = f"the nodes of flavor {', '.join(flavors)} are not known, it or its Topology is gone"
            gone.append(Blocker(kind=BlockerKind.TOPOLOGY, flavor=flavors[0] if flavors else "", detail=detail))
            continue
        found.setdefault(flavor, []).append(replace(wanted[held.name], count=held.count))
    return found, tuple(gone)
