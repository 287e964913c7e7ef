"""Makes the views that explain a Workload, and place one of another cluster, by what the scheduling loop goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.blockers import Blockers
from kqueue.controllers.elsewhere import make_elsewhere
from kqueue.manager import rules
from kqueue.manager.backfill import make_guess
from kqueue.manager.proposals import proposal_source
from kqueue.manager.proposing import HeldBackUnder
from kqueue.state.defrag.stored import open_plan_for
from kqueue.state.heads import Heads
from kqueue.visibility.clusters import ClusterExplainer
from kqueue.visibility.explanation import WorkloadExplainer
from kqueue.visibility.placements import PlacementView
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.sources import Freshness, Known, PlanningSource
from kqueue.visibility.workload_state import Hindrance

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The state of this process that explanations and placements read."""

    known: Known
    planning: PlanningSource
    held_back: Callable[[wire.Workload], Iterator[Hindrance]]
    held_back_under: HeldBackUnder
    freshness: Freshness


def make_explainer(operator: Operator) -> WorkloadExplainer:
    """Return an explainer that reads the state of this process."""
    sources = sources_of(operator)
    return WorkloadExplainer(
        known=sources.known,
        planning=sources.planning,
        held_back=sources.held_back,
        not_running=operator.manager.not_running,
        clock=operator.clock,
        freshness=sources.freshness,
    )


def make_cluster_explainer(operator: Operator) -> ClusterExplainer:
    """Return an explainer that also tells what other clusters say, where this process sends workloads away."""
    elsewhere = operator.manager.shared(make_elsewhere)
    return ClusterExplainer(
        make_explainer(operator).view,
        operator.watches.workloads.store,
        lambda: elsewhere.answers if operator.ready.is_set() else None,
    )


def make_placements(operator: Operator) -> PlacementView:
    """Return the view that says how a workload of another cluster would stand here."""
    return PlacementView(make_prospects(operator))


def make_prospects(operator: Operator) -> Prospects:
    """Return the planner's inputs for workloads that do not exist."""
    sources, order = sources_of(operator), rules.loop_settings(operator.config, operator.timings).queue_order
    return Prospects(
        known=sources.known,
        planning=sources.planning,
        held_back=sources.held_back,
        pending=lambda workload: operator.manager.cache.requests.pending(workload, order),
        clock=operator.clock,
        freshness=sources.freshness,
    )


def _heads(operator: Operator) -> Heads:
    manager = operator.manager
    settings = replace(
        rules.loop_settings(operator.config, operator.timings),
        policy_of=manager.preemption_policy,
        guess_of=manager.shared(make_guess),
    )
    return Heads(manager.cache, manager.workload_writer.newest, settings.head_options)


def sources_of(operator: Operator) -> Sources:
    """Return what explanations, placements and start times read in this process."""
    manager, watches, loop = operator.manager, operator.watches, operator.loop
    proposals = proposal_source(operator)
    blockers = Blockers(
        local_queues=watches.local_queues.store, cache=manager.cache, namespace_labels=manager.namespace_labels
    )

    def held_back(workload: wire.Workload, blockers: Blockers = blockers) -> Iterator[Hindrance]:
        quarantined = manager.quarantine.get(model.workload_key(workload))
        if quarantined is not None:
            yield Hindrance(names.REASON_QUARANTINED, quarantined.message)
        variants, queue = loop.planning.heads.variants, blockers.cluster_queue(workload)
        if variants is not None and queue is not None:
            kept_out = variants.kept_out(workload, queue.metadata.name)
            if kept_out is not None:
                yield Hindrance(kept_out.reason, kept_out.message)
        for blocked in blockers.all(workload):
            yield Hindrance(blocked.reason, blocked.message, blocked.command)

    def silence() -> float:
        served = [watch.age() for watch in watches.all() if not watch.missing]
        return max(served, default=0.0)

    return Sources(
        known=Known(
            workloads=watches.workloads.store,
            local_queues=watches.local_queues.store,
            cache=manager.cache,
            queues=manager.queues,
            namespace_labels=manager.namespace_labels,
        ),
        planning=PlanningSource(
            heads=_heads(operator),
            tries=manager.tries,
            rules=loop.planning.rules,
            claims=loop.planning.claims,
            held_by=loop.planning.held_by,
            hooks=manager.plugins.hooks,
            joint=operator.rounds.history if operator.rounds is not None else None,
            starts=manager.start_plans,
            plan_for=lambda key: open_plan_for(proposals.plans(), key, operator.clock.now()),
        ),
        held_back=held_back,
        held_back_under=lambda local_queues, quota: partial(held_back, blockers=blockers.under(local_queues, quota)),
        freshness=Freshness(
            leads=operator.ready.is_set, silence=silence, stale_after=operator.timings.watch_stale_after
        ),
    )
