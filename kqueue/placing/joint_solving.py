"""Runs a joint placement: the plan of one round, and why each workload that is left out has no place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from kqueue.core import flavors, quota
from kqueue.core.explain import BlockerKind
from kqueue.core.flavors import FIT
from kqueue.core.joint.batch import Batch
from kqueue.core.joint.exact import ExactInput, ExactWorkload, exact_solver
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import JointPlan, PlannedWorkload, hint_of
from kqueue.core.joint.policy_set import PolicySet
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.round_policies import PolicyInput
from kqueue.core.joint.score import worth
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.topology import (
    PODS,
    Capacity,
    DomainUsage,
    Misfit,
    Placement,
    PodSetPlacement,
    Tree,
    place_workload,
    usage_of,
)
from kqueue.core.topology.result import Path
from kqueue.core.workload import Admitted, Flavor, Head, PodSet, QueueSpec, ResourceGroup, Snapshot, TopologyView
from kqueue.placing.joint_queues import unlisted
from kqueue.placing.joint_values import STRICT_FIFO, AskedWorkload, JointCase, RunningWorkload
from kqueue.placing.solving import counted_usage, note_usage, used_resources

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""Any time: only the seconds that workloads have waited count."""


class JointStatus(StrEnum):
    """The result for a workload, in one word."""

    PLACED = "Placed"
    LEFT = "Left"
    """It would fit alone, and workloads before it have its room."""
    DEFERRED = "Deferred"
    """It waits for a better place, as a policy wants."""
    FAILED = "Failed"
    """It would not even fit alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoQuota:
    """The first column of quota without enough for a workload."""

    queue: str
    resource: str
    asked: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOutcome:
    """The result for one workload.

    Args:
        failure: None if it is placed, or left out for the order of its queue alone.
    """

    planned: PlannedWorkload
    asked: AskedWorkload
    status: JointStatus
    placements: Mapping[str, PodSetPlacement]
    failure: Misfit | NoQuota | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSolution:
    """The result of a joint placement; `outcomes` are in the order of the document.

    Args:
        ignored: nodes left out of the tree, by reason.
        before: the free capacity before the plan.
        capacity: the free capacity after it.
        used: per written domain, the resources with usage.
        exact_units: of the optimum; None: it was not asked for, or not found within its limit.
    """

    case: JointCase
    tree: Tree
    ignored: Mapping[str, int]
    plan: JointPlan
    has_solver: bool
    before: Capacity
    capacity: Capacity
    used: Mapping[Path, set[str]]
    outcomes: tuple[WorkloadOutcome, ...]
    exact_units: int | None = None

    @property
    def placed(self) -> bool:
        """Whether all workloads are placed."""
        return all(outcome.status is JointStatus.PLACED for outcome in self.outcomes)

    @property
    def order(self) -> JointOrder:
        """The order that was in force: policies may let value decide among workloads of one priority."""
        specs = [spec for spec in self.case.policies if spec.name not in self.plan.failed_policies]
        return JointOrder.PRIORITY if PolicySet(specs).by_value else self.case.settings.order

    @property
    def unit(self) -> Unit | None:
        """The unit in which the plan counts; None: no pod has units."""
        return next((flavor.unit for flavor in self.plan.flavors), None)

    def units_of(self, outcome: WorkloadOutcome) -> int:
        """Return the units of all pods of a workload; the plan does not count those for which there is no quota."""
        if outcome.planned.units or self.unit is None:
            return outcome.planned.units
        return self.unit.of([pod_set.request for pod_set in outcome.asked.pod_sets])


def solve(case: JointCase) -> JointSolution:
    """Plan all workloads of the case together."""
    snapshot, heads = _snapshot(case), {workload.name: _head(case, i) for i, workload in enumerate(case.workloads)}
    lines: dict[str, list[Head]] = {}
    for head in sorted(heads.values(), key=lambda h: (-h.priority, h.timestamp, h.uid)):
        lines.setdefault(head.queue, []).append(head)
    strict = frozenset(queue.name for queue in case.queues if queue.strategy == STRICT_FIFO)
    found = solver()
    state = PlannedState(snapshot=snapshot, rules=Rules(now=_NOW))
    plan = plan_round(
        RoundInput(
            state=state,
            batch=Batch(queues={name: tuple(line) for name, line in lines.items()}, strict=strict),
            waited={heads[workload.name].uid: workload.waited for workload in case.workloads},
            settings=case.settings,
            solver=found,
            policies=_policies(case, heads),
        )
    )
    by_uid = {one.head.uid: one for one in plan.workloads}
    before, after = state.copied(lines), state.copied(lines)
    placements = {one.head.uid: _charged(one, after, case) for one in plan.workloads if one.admitted is not None}
    outcomes = [
        _outcome(case.workloads[i], by_uid[head.uid], placements.get(head.uid, {}), before, after)
        for i, head in enumerate(heads.values())
    ]
    (start,), (view,) = before.topologies.values(), after.topologies.values()
    used = used_resources(view.tree, case.cluster.foreign, _counted_usage(case))
    for placed in placements.values():
        note_usage(used, usage_of(Placement(tuple(placed.values()))))
    return JointSolution(
        case=case,
        tree=view.tree,
        ignored=case.members.ignored,
        plan=plan,
        has_solver=found is not None,
        before=start.capacity,
        capacity=view.capacity,
        used=used,
        outcomes=tuple(outcomes),
        exact_units=_optimum(case, plan, before) if case.exact else None,
    )


def _policies(case: JointCase, heads: Mapping[str, Head]) -> PolicyInput:
    """Return the policies, and what the workloads tell them."""
    traits = {heads[workload.name].uid: workload.traits for workload in case.workloads}
    traits |= {_running_uid(i): workload.traits for i, workload in enumerate(case.running)}
    return PolicyInput(specs=case.policies, traits=traits, statistics=case.statistics)


def _running_uid(number: int) -> str:
    return f"running-{number:05}"


def _optimum(case: JointCase, plan: JointPlan, before: Snapshot) -> int | None:
    """Return the units of the best plan."""
    solver = exact_solver()
    assert solver is not None, "it was installed when the document was read"
    waited = {workload.name: workload.waited for workload in case.workloads}
    (view,) = before.topologies.values()
    workloads = []
    for one in plan.workloads:
        (pod_set,) = one.head.pod_sets
        request = pod_set.request
        taken = {FlavorResource(case.cluster.flavor, r): n * request.count for r, n in request.requests.items()}
        taken[FlavorResource(case.cluster.flavor, PODS)] = request.count
        planned = one.admitted.domains.values() if one.admitted is not None else ()
        workloads.append(
            ExactWorkload(
                queue=one.head.queue,
                rank=one.rank,
                units=one.units,
                worth=worth(one.units, case.settings.order, waited[one.head.key]),
                request=request,
                usage=taken,
                planned={usage.values: usage.count for some in planned for usage in some},
            )
        )
    strict = frozenset(queue.name for queue in case.queues if queue.strategy == STRICT_FIFO)
    return solver(ExactInput(workloads=workloads, capacity=view.capacity, nodes=before.nodes, strict=strict))


def _snapshot(case: JointCase) -> Snapshot:
    """Return the cluster of the case with its queues; each covers all resources that any workload requests."""
    cluster, name = case.cluster, case.cluster.flavor
    tree = Tree(
        topology=cluster.topology, levels=cluster.levels, leaves=case.members.leaves, tolerations=cluster.tolerations
    )
    capacity = Capacity.of(tree, foreign=cluster.foreign, usage=_counted_usage(case))
    asked = {r for w in case.workloads for p in w.pod_sets for r in p.request.requests}
    taken = {r for w in case.running for p in w.pods for r in p.request.requests}
    resources = sorted({PODS, *asked, *taken, *(r for queue in case.queues for r in queue.quota)})
    nodes: dict[str, QuotaNode] = {}
    cohorts: dict[str, QuotaNode] = {}
    for queue in case.queues:
        node = nodes[queue.name] = QuotaNode(queue.name, weight=queue.weight)
        node.quotas = {FlavorResource(name, r): queue.quota.get(r, unlisted(queue.cohort)) for r in resources}
        if queue.cohort is not None:
            cohort = cohorts.setdefault(queue.cohort, QuotaNode(queue.cohort, is_cohort=True))
            node.parent = cohort
            cohort.children.append(node)
    for workload in case.running:
        _note_quota(nodes[workload.queue].usage, name, workload)
    for root in [*cohorts.values(), *(node for node in nodes.values() if node.parent is None)]:
        quota.rebuild(root)
    spec = QueueSpec(name="", groups=(ResourceGroup(tuple(resources), (name,)),), profile=case.switches.profile)
    flavor = Flavor(
        name=name, node_labels=cluster.node_labels, tolerations=cluster.tolerations, topology=cluster.topology
    )
    return Snapshot(
        queues={queue.name: _named(spec, queue.name) for queue in case.queues},
        nodes=nodes,
        flavors={name: flavor},
        topologies={name: TopologyView(cluster.topology, tree, capacity)},
        admitted=_admitted(case),
    )


def _admitted(case: JointCase) -> dict[str, dict[str, Admitted]]:
    """Return the running workloads by queue and name; none of them is preempted."""
    found: dict[str, dict[str, Admitted]] = {}
    for i, workload in enumerate(case.running):
        found.setdefault(workload.queue, {})[workload.name] = Admitted(
            key=workload.name,
            uid=_running_uid(i),
            queue=workload.queue,
            local_queue=workload.queue,
            priority=0,
            timestamp=_NOW,
            reserved_at=_NOW,
            evicted=False,
            usage={},
            domains={case.cluster.flavor: tuple([usage for pods in workload.pods for usage in pods.usage()])},
        )
    return found


def _note_quota(usage: dict[FlavorResource, int], flavor: str, workload: RunningWorkload) -> None:
    """Add what a running workload takes of the quota of its queue."""
    for pods in workload.pods:
        for resource, amount in {**pods.request.requests, PODS: 1}.items():
            column = FlavorResource(flavor, resource)
            usage[column] = quota.plus(usage.get(column, 0), amount * pods.assignment.count)


def _counted_usage(case: JointCase) -> tuple[DomainUsage, ...]:
    running = [usage for workload in case.running for pods in workload.pods for usage in pods.usage()]
    return (*counted_usage(case.cluster, case.switches), *running)


def _named(spec: QueueSpec, name: str) -> QueueSpec:
    return QueueSpec(name=name, groups=spec.groups, profile=spec.profile)


def _head(case: JointCase, number: int) -> Head:
    """Return a workload of the case; its UID has its place in the document, which decides between equal ones."""
    asked = case.workloads[number]
    pod_sets = [
        PodSet(
            request=pod_set.request,
            quota_requests=pod_set.request.requests,
            asks_topology=not pod_set.request.topology.implied,
        )
        for pod_set in asked.pod_sets
    ]
    return Head(
        key=asked.name,
        uid=f"{number:05}",
        queue=asked.queue,
        priority=asked.priority,
        timestamp=_NOW - timedelta(seconds=asked.waited),
        pod_sets=tuple(pod_sets),
        algorithm=asked.profile,
    )


def _charged(one: PlannedWorkload, after: Snapshot, case: JointCase) -> dict[str, PodSetPlacement]:
    """Return the pod sets of an admitted workload with their domains, and charge them."""
    assert one.admitted is not None
    planned = one.admitted
    found = place_workload(
        {flavor: after.topologies[flavor].capacity for flavor in planned.requests},
        planned.requests,
        profile=case.switches.profile.with_algorithm(one.head.algorithm),
        measure=case.output.quality,
        hint=hint_of(planned),
    )
    node = after.nodes[one.head.queue]
    for column, amount in planned.usage.items():
        quota.add_usage(node, column, amount)
    placements: dict[str, PodSetPlacement] = {}
    for flavor, answer in found.items():
        assert isinstance(answer, Placement), f"{one.head.key}: the checked plan does not fit"
        after.topologies[flavor].capacity.charge(usage_of(answer))
        placements |= {pod_set.name: pod_set for pod_set in answer.pod_sets}
    return placements


def _outcome(
    asked: AskedWorkload,
    planned: PlannedWorkload,
    placements: Mapping[str, PodSetPlacement],
    before: Snapshot,
    after: Snapshot,
) -> WorkloadOutcome:
    failure, status = None, JointStatus.PLACED
    if planned.admitted is None and planned.is_deferred:
        status = JointStatus.DEFERRED
    elif planned.admitted is None:
        alone = _failure(planned.head, before)
        status = JointStatus.LEFT if alone is None else JointStatus.FAILED
        failure = alone or _failure(planned.head, after)
    return WorkloadOutcome(planned=planned, asked=asked, status=status, placements=placements, failure=failure)


def _failure(head: Head, snapshot: Snapshot) -> Misfit | NoQuota | None:
    """Return why a workload cannot be admitted in this state; None: it can."""
    assignment = flavors.assign(head, snapshot)
    if assignment.mode is not FIT:
        short = next((b for b in assignment.blockers if b.kind is not BlockerKind.TOPOLOGY and b.resource), None)
        if short is not None:
            available = max(
                0, quota.available(snapshot.nodes[head.queue], FlavorResource(short.flavor, short.resource))
            )
            return NoQuota(queue=head.queue, resource=short.resource, asked=short.asked, available=available)
    requests = assignment.places
    if assignment.mode is not FIT:  # the request itself is the reason
        (flavor,) = snapshot.topologies
        requests = {flavor: [pod_set.request for pod_set in head.pod_sets if pod_set.request.count]}
    if not requests:
        return None
    found = place_workload(
        {flavor: snapshot.topologies[flavor].capacity for flavor in requests},
        requests,
        profile=snapshot.queues[head.queue].profile.with_algorithm(head.algorithm),
    )
    return next((answer for answer in found.values() if isinstance(answer, Misfit)), None)
