"""The preparation of a round: the flavors that each workload may have, their units, and the policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kqueue.core.joint.batch import Batch
from kqueue.core.joint.patience import Withheld, withheld
from kqueue.core.joint.registry import DEFAULT_POLICIES
from kqueue.core.joint.round_policies import PolicyInput, RoundPolicies
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit, unit_of
from kqueue.core.joint.world import Choice, World
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.workload import Head


@dataclass(slots=True, kw_only=True)
class Preparation:
    """The facts that all candidates of a round share.

    Args:
        start: the world before the round.
        batch: the workloads; those that rather wait may not use the domains for which they wait.
        choices: by UID, the flavors that a workload may have, in their order.
        unit_of: the unit of each flavor with a topology that the batch requests.
        waited: seconds by UID, as policies count them.
        policies: None: profiles alone choose places.
    """

    start: World
    batch: Batch
    choices: Mapping[str, list[Choice]]
    unit_of: Mapping[str, Unit]
    waited: Mapping[str, int]
    how: JointOrder
    policies: RoundPolicies | None = None
    withheld: Withheld = field(default_factory=Withheld)

    @property
    def counts_shares(self) -> bool:
        """Whether the policies of any flavor count shares of ClusterQueues."""
        return self.policies is not None and self.policies.count_shares


def prepare(start: World, batch: Batch, waited: Mapping[str, int], how: JointOrder, given: PolicyInput) -> Preparation:
    """Prepare a round; `start` must not change afterwards.  Raises PolicyFailedError."""
    choices = {head.uid: list(start.choices(head)) for head in batch.heads()}
    units = units_of(start, choices.values())
    found = Preparation(start=start, batch=batch, choices=choices, unit_of=units, waited=waited, how=how)
    if given.specs == DEFAULT_POLICIES and not given.of_queue:
        return found
    queues: dict[str, set[str]] = defaultdict(set)
    for head in batch.heads():
        for choice in choices[head.uid]:
            for flavor in choice.requests:
                queues[flavor].add(head.queue)
    policies = RoundPolicies(
        given=given,
        start=start.snapshot,
        queues={flavor: frozenset(some) for flavor, some in sorted(queues.items())},
        unit_of=units,
    )
    limited, kept_back = withheld(policies, batch, waited, choices)
    return replace(
        found,
        batch=limited,
        choices={
            head.uid: list(start.choices(head)) if head.uid in kept_back.opens else choices[head.uid]
            for head in limited.heads()
        },
        waited={head.uid: _waiting(policies, head, choices[head.uid], waited) for head in limited.heads()},
        how=JointOrder.PRIORITY if policies.by_value else how,
        policies=policies,
        withheld=kept_back,
    )


def _waiting(policies: RoundPolicies, head: Head, choices: Sequence[Choice], waited: Mapping[str, int]) -> int:
    """Return the seconds of waiting that count for a workload, by the policies of its first flavor."""
    seconds = waited.get(head.uid, 0)
    for choice in choices:
        for flavor, requests in choice.requests.items():
            return policies.of(flavor).waiting(policies.judged(head, requests[0], flavor, waited=seconds))
    return seconds


def units_of(start: World, choices: Iterable[Sequence[Choice]]) -> dict[str, Unit]:
    """Return the unit of each flavor with a topology that these workloads request."""
    requests: dict[str, list[PodSetRequest]] = {}
    for some in choices:
        for choice in some:
            for flavor, pod_sets in choice.requests.items():
                requests.setdefault(flavor, []).extend(pod_sets)
    found = {
        flavor: unit_of(pod_sets, start.snapshot.topologies[flavor].capacity)
        for flavor, pod_sets in sorted(requests.items())
    }
    return {flavor: unit for flavor, unit in found.items() if unit is not None}
