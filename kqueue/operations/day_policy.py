"""A recorded day under a policy: the quota, flavors and rules of the record, or those of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.config import Configuration, Timings
from kqueue.config.load import read_text
from kqueue.core import quota
from kqueue.core.backfill.mode import BackfillMode
from kqueue.core.backfill.plans import LineRule, nearest_rule
from kqueue.core.charging import charge_domains
from kqueue.core.decision import SecondLooks
from kqueue.core.future.question import DrainBounds, Line, StartQuestion, WaitingWorkload, WorkloadRun
from kqueue.core.lost_work import RunLimits
from kqueue.core.ordering import OrderRules
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology.request import DEFAULT_PROFILE, Profile
from kqueue.core.workload import Admitted, Flavor, Head, QueueSpec, Snapshot, TopologyView
from kqueue.documents import load_yaml
from kqueue.errors import ConfigError
from kqueue.manager import rules as configured
from kqueue.record.day import RecordedDay
from kqueue.record.entries import piece_hash, to_text
from kqueue.record.plain import Writers

_STRICT = "StrictFIFO"
_SECOND = timedelta(seconds=1)
_MOST = 1_000_000
"""Workloads of a day: more than any record of its default size has."""
_TRIES = 100_000_000
_REMEDY = "give --policy the path of a YAML file with ClusterQueues, Cohorts or ResourceFlavors"
_FORMS: Mapping[str, type[wire.ClusterQueue] | type[wire.Cohort] | type[wire.ResourceFlavor]] = {
    names.CLUSTER_QUEUE_KIND: wire.ClusterQueue,
    names.COHORT_KIND: wire.Cohort,
    names.RESOURCE_FLAVOR_KIND: wire.ResourceFlavor,
}


@dataclass(frozen=True, slots=True)
class DayPolicy:
    """Objects and settings that replace those of a record; an empty policy is that of the record.

    Args:
        configuration: its fair sharing, order and placement replace those of the record; None: they stay.
    """

    cluster_queues: tuple[wire.ClusterQueue, ...] = ()
    cohorts: tuple[wire.Cohort, ...] = ()
    flavors: tuple[wire.ResourceFlavor, ...] = ()
    configuration: Configuration | None = None


def read_policy(path: Path, configuration: Configuration | None) -> DayPolicy:
    """Return the policy of a file.  Raises ConfigError: it is no such file."""
    try:
        documents = load_yaml(read_text(path, remedy=_REMEDY))
        objects = [_object(document, number) for number, document in enumerate(documents, start=1)]
    except (yaml.YAMLError, ValueError) as e:
        raise ConfigError(f"{path}: {e}; {_REMEDY}") from e
    return DayPolicy(
        tuple(one for one in objects if isinstance(one, wire.ClusterQueue)),
        tuple(one for one in objects if isinstance(one, wire.Cohort)),
        tuple(one for one in objects if isinstance(one, wire.ResourceFlavor)),
        configuration,
    )


def _object(document: Any, number: int) -> wire.ClusterQueue | wire.Cohort | wire.ResourceFlavor:
    kind = document.get("kind") if isinstance(document, dict) else None
    form = _FORMS.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise ValueError(f"document {number} is of kind {kind!r:.60}")
    return msgspec.convert(document, form, strict=False)


@dataclass(slots=True)
class _Node:
    quotas: Mapping[FlavorResource, Quota]
    weight: int
    cohort: str | None


@dataclass(slots=True)
class _World:
    """The policy of a day while it is put together."""

    specs: dict[str, QueueSpec]
    flavors: dict[str, Flavor]
    queues: dict[str, _Node] = field(default_factory=dict)
    cohorts: dict[str, _Node] = field(default_factory=dict)
    strict: set[str] = field(default_factory=set)
    modes: dict[str, BackfillMode | None] = field(default_factory=dict)
    """The modes of backfill of ClusterQueues and Cohorts of the policy, by kind and name."""


def question_of(day: RecordedDay, policy: DayPolicy) -> StartQuestion:
    """Return the question whose answer is the day under the policy.  Raises ConfigError: the policy has mistakes."""
    world = _world(day, policy)
    nodes = _nodes(world)
    running = {uid: one for uid, one in day.running.items() if one.queue in nodes}
    topologies = {
        name: TopologyView(view.name, view.tree, view.capacity.fork(), view.unusable)
        for name, view in day.topologies.items()
    }
    admitted: dict[str, dict[str, Admitted]] = {}
    for one in running.values():
        admitted.setdefault(one.queue, {})[one.key] = one
        for column, amount in one.usage.items():
            quota.add_usage(nodes[one.queue], column, amount)
        for flavor, domains in one.domains.items():
            charge_domains(flavor, domains, topologies)
    snapshot = Snapshot(
        queues=world.specs, nodes=nodes, flavors=world.flavors, topologies=topologies, admitted=admitted
    )
    rules, order, looks = _rules(day, policy, world)
    return StartQuestion(
        state=PlannedState(snapshot=snapshot, rules=rules, holders=tuple(running.values())),
        lines=tuple(_lines(day, world, nodes)),
        running={uid: _running(day, one) for uid, one in running.items()},
        order=order,
        looks=looks,
        bounds=DrainBounds(horizon=max(1, (day.end - day.begin) // _SECOND), tries=_TRIES, workloads=_MOST),
        line_of={name: rule for name, node in nodes.items() if (rule := _line_of(world, node)) is not None},
    )


def _line_of(world: _World, node: QuotaNode) -> LineRule | None:
    names_up = (_kind_and_name(one) for one in node.path_to_root())
    return nearest_rule((name, world.modes.get(name)) for name in names_up)


def _kind_and_name(node: QuotaNode) -> str:
    return f"{names.COHORT_KIND if node.is_cohort else names.CLUSTER_QUEUE_KIND}/{node.name}"


# --- quota and rules


def _world(day: RecordedDay, policy: DayPolicy) -> _World:
    profile = configured.profile(policy.configuration.enabled) if policy.configuration is not None else None
    strict = {name for name, is_strict in day.strict.items() if is_strict}
    world = _World(specs=_specs(day.specs, profile), flavors=dict(day.flavors), strict=strict)
    for root in day.roots.values():
        for node in root.walk():
            known = world.cohorts if node.is_cohort else world.queues
            known[node.name] = _Node(node.quotas, node.weight, node.parent.name if node.parent is not None else None)
    for flavor in policy.flavors:
        world.flavors[flavor.metadata.name] = model.flavor(flavor)
    for cohort in policy.cohorts:
        spec, name = cohort.spec, cohort.metadata.name
        _refuse(f"Cohort {name}", model.cohort_problem(cohort))
        quotas, weight = model.quotas(spec.resource_groups)[0], model.weight(spec.fair_sharing)[0]
        world.cohorts[name] = _Node(quotas, weight, spec.parent_name)
        world.modes[f"{names.COHORT_KIND}/{name}"] = model.backfill_mode(cohort.metadata.annotations)
    for queue in policy.cluster_queues:
        _take_queue(world, queue, profile or DEFAULT_PROFILE)
    return world


def _specs(specs: Mapping[str, QueueSpec], profile: Profile | None) -> dict[str, QueueSpec]:
    """Return recorded specs; a profile replaces that of ClusterQueues which choose none themselves."""
    if profile is None:
        return dict(specs)
    return {name: replace(spec, profile=profile) for name, spec in specs.items()}


def _take_queue(world: _World, queue: wire.ClusterQueue, profile: Profile) -> None:
    name, before = queue.metadata.name, world.specs.get(queue.metadata.name)
    spec, quotas, problem = model.queue_spec(
        queue,
        before.profile if before is not None else profile,
        ignores_undeclared=before is not None and before.ignores_undeclared,
        fungible=before is None or before.fungible,
    )
    _refuse(f"ClusterQueue {name}", problem)
    world.specs[name] = spec
    world.queues[name] = _Node(quotas, model.weight(queue.spec.fair_sharing)[0], queue.spec.cohort_name)
    world.modes[f"{names.CLUSTER_QUEUE_KIND}/{name}"] = model.backfill_mode(queue.metadata.annotations)
    world.strict.discard(name)
    if queue.spec.queueing_strategy == _STRICT:
        world.strict.add(name)


def _refuse(what: str, problem: str) -> None:
    if problem:
        raise ConfigError(f"{what}: {problem}")


def _nodes(world: _World) -> dict[str, QuotaNode]:
    """Return the ClusterQueues in new quota trees."""
    cohorts: dict[str, QuotaNode] = {}

    def cohort(name: str, below: tuple[str, ...] = ()) -> QuotaNode:
        if name in below:
            raise ConfigError(f"Cohort {name} is its own ancestor; change a parentName")
        if name not in cohorts:
            spec = world.cohorts.get(name, _Node({}, quota.QuotaNode(name).weight, None))
            node = QuotaNode(name, is_cohort=True, quotas=spec.quotas, weight=spec.weight)
            if spec.cohort is not None:
                _link(node, cohort(spec.cohort, (*below, name)))
            cohorts[name] = node
        return cohorts[name]

    queues: dict[str, QuotaNode] = {}
    for name, spec in sorted(world.queues.items()):
        queues[name] = QuotaNode(name, quotas=spec.quotas, weight=spec.weight)
        if spec.cohort is not None:
            _link(queues[name], cohort(spec.cohort))
    for root in {id(node.root): node.root for node in queues.values()}.values():
        quota.rebuild(root)
    return queues


def _link(node: QuotaNode, parent: QuotaNode) -> None:
    node.parent = parent
    parent.children.append(node)


def _rules(day: RecordedDay, policy: DayPolicy, world: _World) -> tuple[Rules, OrderRules, SecondLooks]:
    rules = replace(day.rules, now=day.begin, limits=RunLimits.of(world.specs.values()), spared={})
    if policy.configuration is None:
        return rules, day.order, day.question.looks
    settings = configured.loop_settings(policy.configuration, Timings())
    return replace(rules, fair=settings.fair, within_nominal=settings.within_nominal), settings.order, settings.looks


# --- workloads


def _lines(day: RecordedDay, world: _World, nodes: Mapping[str, QuotaNode]) -> Iterable[Line]:
    waiting: dict[str, list[tuple[tuple[int, datetime, str], WaitingWorkload]]] = {}
    for uid, arrival in day.arrivals.items():
        head = replace(arrival.head, last_tried={}, replaces=None)
        if head.queue in nodes and head.queue in world.specs:
            one = WaitingWorkload(
                head=head,
                run_time=day.run_time(uid, head.queue),
                shape=_shape(head),
                not_before=arrival.at if arrival.at > day.begin else None,
            )
            waiting.setdefault(head.queue, []).append(((-head.priority, head.timestamp, uid), one))
    for queue, some in sorted(waiting.items()):
        some.sort(key=lambda pair: pair[0])
        yield Line(queue=queue, is_strict=queue in world.strict, workloads=tuple(one for _, one in some))


_WRITE_HEAD = Writers(canonical=True).of(Head)


def _shape(head: Head) -> str:
    """Return a text that workloads of a ClusterQueue share whose tries have the same result."""
    plain = _WRITE_HEAD(head)
    for name in ("key", "uid", "timestamp", "variant"):
        del plain[name]
    return piece_hash(to_text(plain))


def _running(day: RecordedDay, one: Admitted) -> WorkloadRun:
    arrival = day.heads.get(one.uid)
    run_time = day.run_time(one.uid, one.queue)
    waits = (
        WaitingWorkload(head=arrival.head, run_time=run_time, shape=_shape(arrival.head))
        if arrival is not None
        else None
    )
    elapsed = max(0, (day.begin - one.admitted_at) // _SECOND) if one.admitted_at is not None else 0
    return WorkloadRun(run_time=run_time, elapsed=elapsed, waits_as=waits)
