"""Waiting for a better place: workloads that may not use the domains that cost more than they would rather wait for.

The domains are withheld before anything is planned, so the bound, the search and the plan of ordinary cycles all keep
to them.  Costs never keep a unit waiting; only withheld domains do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kqueue.core.joint.batch import Batch
from kqueue.core.joint.costs import WAIT_MAX
from kqueue.core.joint.policy import NEVER
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.joint.round_policies import RoundPolicies
from kqueue.core.joint.world import Choice
from kqueue.core.topology.request import GangDomains
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints, Tree
from kqueue.core.workload import Head, PodSet

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Withheld:
    """The workloads for which domains are withheld.

    Args:
        opens: by UID, the seconds after which the next domain opens; None: none ever does.
    """

    opens: dict[str, int | None] = field(default_factory=dict)


def withheld(
    policies: RoundPolicies,
    batch: Batch,
    waited: Mapping[str, int],
    choices: Mapping[str, Sequence[Choice]],
) -> tuple[Batch, Withheld]:
    """Return the batch with workloads that may use only the domains for which they need not wait."""
    found = Withheld()
    queues = {
        queue: tuple([_limited(policies, head, waited.get(head.uid, 0), choices[head.uid], found) for head in heads])
        for queue, heads in batch.queues.items()
    }
    return (replace(batch, queues=queues) if found.opens else batch), found


def _limited(policies: RoundPolicies, head: Head, waited: int, choices: Sequence[Choice], found: Withheld) -> Head:
    """Return the workload, without the domains for which it rather waits."""
    flavors = sorted({flavor for choice in choices for flavor in choice.requests})
    levels = {policies.start.topologies[flavor].tree.levels for flavor in flavors}
    if len(levels) != 1 or not any(policies.of(flavor).has_say for flavor in flavors):
        return head  # paths of one topology say nothing about another
    paths: dict[str, set[Path]] = {}
    opens: list[int] = []
    is_limited = False
    for choice in choices:
        for flavor, requests in choice.requests.items():
            view = policies.view(flavor, policies.start.topologies[flavor])
            for request in requests:
                pods = policies.judged(head, request, flavor, waited=waited)
                costs = _costs(policies, pods, view)
                patience = policies.of(flavor).patience(pods, view)
                is_open = costs != NEVER if patience is None else costs <= patience
                paths.setdefault(request.name, set()).update(_paths(view.tree, is_open))
                if not is_open.all() and request.within is None:
                    is_limited = True
                    later = costs[~is_open & (costs != NEVER)]
                    when = _opens(policies, flavor, pods, view, int(later.min())) if len(later) else None
                    opens += [when] if when is not None else []
    if not is_limited:
        return head
    found.opens[head.uid] = min(opens, default=None)
    (tree_levels,) = levels
    return replace(head, pod_sets=tuple([_within(p, paths.get(p.name), tree_levels) for p in head.pod_sets]))


def _costs(policies: RoundPolicies, pods: JudgedPods, view: WorldView) -> Ints:
    """Return the cost of each leaf: that of its domain of the level that the pods ask for."""
    level = pods.level if pods.level >= 0 else view.tree.lowest
    costs = policies.of(view.flavor).domains(pods, level, view, in_search=True)
    return costs[view.tree.domain_of(level)]


def _opens(policies: RoundPolicies, flavor: str, pods: JudgedPods, view: WorldView, cost: int) -> int | None:
    """Return the seconds after which the patience reaches a cost; None: it never does."""

    def is_open(seconds: int) -> bool:
        patience = policies.of(flavor).patience(replace(pods, waited=pods.waited + seconds), view)
        return patience is None or patience >= cost

    if not is_open(WAIT_MAX):
        return None
    least, most = 0, WAIT_MAX
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if is_open(middle) else (middle + 1, most)
    return least


def _paths(tree: Tree, is_open: Mask) -> set[Path]:
    """Return the widest domains of which all leaves are open."""
    found: set[Path] = set()
    left = is_open.copy()
    for level, starts in enumerate(tree.first_leaf):
        whole = np.flatnonzero(np.logical_and.reduceat(left, starts)) if len(starts) else starts
        found.update(tree.path_of(level, int(domain)) for domain in whole)
        left &= ~np.isin(tree.domain_of(level), whole)
    return found


def _within(pod_set: PodSet, paths: set[Path] | None, levels: tuple[str, ...]) -> PodSet:
    if paths is None or pod_set.request.within is not None:
        return pod_set
    domains = GangDomains(levels=levels, paths=tuple(sorted(paths)))
    return replace(pod_set, request=replace(pod_set.request, within=domains))
