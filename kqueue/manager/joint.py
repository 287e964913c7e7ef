"""Joint placement in a controller process: its rounds, and which workloads take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.controllers.defrag_proposals import make_searches
from kqueue.controllers.gate_sweeper import SIBLINGS_INDEX
from kqueue.controllers.plan_watches import budgets_watch
from kqueue.controllers.usage_metrics import KnownObjects, UsageMetrics, UseSettings
from kqueue.controllers.watches import Watches
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, NoPlan
from kqueue.core.joint.ortools_flow import ortools_version
from kqueue.core.topology.placers import JOINT, place_joint_by
from kqueue.core.workload import Claim
from kqueue.manager import rules
from kqueue.manager.controller_manager import ControllerManager
from kqueue.model.moving import has_move_wishes
from kqueue.observe import Metrics
from kqueue.observe.joint_metrics import UnitsOfFlavor
from kqueue.scheduling.joint.process import PlanningProcess
from kqueue.scheduling.joint.rounds import JointRounds
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.state.joint_history import RoundRecord
from kqueue.state.joint_profiles import JointProfiles
from kqueue.state.statistics import StatisticsStore
from kqueue.visibility.joint_rounds import JointSource

_log = structlog.get_logger(__name__)

_GATE = "JointPlacement"
_WISHES = "move wishes"
"""The index of Workloads whose users say something about moves or checkpoints."""


def make_rounds(manager: ControllerManager, loop: SchedulingLoop) -> JointRounds | None:
    """Let the loop plan workloads jointly; None: the feature gate is off."""
    joint, watches = manager.config.joint, manager.watches
    place_joint_by(joint.within)
    if not manager.config.enabled(_GATE):
        _GateRemark(default=joint.default).watch(watches)
        return None

    def profile_of_flavor(name: str) -> str | None:
        flavor = watches.flavors.store.get(name)
        topology = watches.topologies.store.get(flavor.spec.topology_name or "") if flavor is not None else None
        return model.profile_name(topology.metadata) if topology is not None else None

    profiles = JointProfiles(manager.cache.quota, profile_of_flavor=profile_of_flavor, default=joint.default)
    planner = PlanningProcess()
    rounds = loop.plan_jointly(planner, profiles.is_joint, rules.round_settings(joint))
    workloads = watches.workloads.store
    workloads.add_index(_WISHES, lambda obj: (True,) if has_move_wishes(obj.metadata) else ())
    budgets = manager.shared(budgets_watch) if joint.rescheduling.migration != "Never" else None
    rounds.read_running(
        lambda: workloads.keys_by_index(_WISHES, True),
        history=lambda: manager.moves.history(manager.clock.now()),
        budgets=lambda: tuple(budgets.store.values()) if budgets is not None else (),
    )
    manager.shared(make_searches).by = _Searcher(planner, rounds, loop)
    report = _RoundReport(manager.metrics, planner)
    rounds.on_end, rounds.on_stale = report.ended, manager.metrics.joint.stale_entry
    rounds.on_gains = report.gained
    manager.metrics.joint_paused(lambda: rounds.is_paused)
    _measure_use(manager, rounds)
    solver = ortools_version()
    if solver is None:
        _log.warning("joint placement plans without bounds, because OR-tools is missing; install kqueue[flow]")
    else:
        _log.info("joint placement is on", ortools=solver)
    return rounds


def _measure_use(manager: ControllerManager, rounds: JointRounds) -> None:
    """Let policies see measured use, which is read while this process leads and a policy looks at it."""
    section, watches = manager.config.joint.statistics, manager.watches
    if section.source == "none":
        return
    interval = section.interval.total_seconds()
    store = StatisticsStore(interval=interval, samples=section.samples, clock=manager.clock.monotonic)

    def workload_of(siblings: str) -> wire.Workload | None:
        return next(iter(watches.workloads.store.by_index(SIBLINGS_INDEX, siblings)), None)

    usage = UsageMetrics(
        manager.client,
        store,
        KnownObjects(is_node=watches.nodes.store.__contains__, pod=watches.pods.store.get, workload=workload_of),
        settings=UseSettings(
            interval=interval,
            bandwidth_metric=section.bandwidth_metric,
            specs=rules.round_settings(manager.config.joint).policies,
        ),
        clock=manager.clock,
        count=manager.metrics.joint,
    )
    watches.cluster_queues.subscribe(usage.wanted.on_cluster_queue)
    watches.nodes.subscribe(lambda old, new: store.nodes.forget(old.name) if old is not None and new is None else None)
    manager.background += usage.runs
    rounds.look_at_use(store.statistics, usage.summary)


class _Searcher:
    """Searches for moves in the process that plans rounds, while it plans none."""

    def __init__(self, planner: PlanningProcess, rounds: JointRounds, loop: SchedulingLoop) -> None:
        self._planner, self._rounds, self._loop = planner, rounds, loop

    def is_free(self) -> bool:
        """Whether no round is being planned, and none is carried out."""
        return not self._rounds.is_planning and not self._rounds.goes_on

    def claims(self) -> tuple[Claim, ...]:
        """Return the room that is kept for workloads that preempt others."""
        return self._loop.planning.claims()

    async def search(self, question: DefragQuestion) -> DefragPlan | NoPlan:
        """Return the answer of the process.  Raises RoundFailedError: it has failed."""
        return await self._planner.search(question)


class _RoundReport:
    """Reports the end of rounds as metrics."""

    def __init__(self, metrics: Metrics, planner: PlanningProcess) -> None:
        self._metrics, self._planner, self._starts = metrics.joint, planner, 1
        self._drift, self._resyncs = metrics.drift, 0

    def ended(self, record: RoundRecord) -> None:
        """Report a round."""
        self._metrics.round_ended(record.result, record.seconds)
        for _ in range(self._starts, self._planner.starts):
            self._metrics.worker_restarted()
        self._starts = max(self._starts, self._planner.starts)
        if self._planner.resyncs > self._resyncs:
            self._drift("joint-state", self._planner.resyncs - self._resyncs)
            self._resyncs = self._planner.resyncs
        plan = record.plan
        if plan is None:
            return
        self._metrics.planned(
            UnitsOfFlavor(
                one.flavor, one.bound, one.units, one.greedy_units, one.gap / 1000 if one.gap is not None else None
            )
            for one in plan.flavors
        )
        if plan.drifts:
            self._drift("joint-tables", len(plan.drifts))
        for policy in plan.failed_policies:
            self._metrics.policy_failed(policy)

    def gained(self, record: RoundRecord) -> None:
        """Report what moves would gain in a round."""
        self._metrics.moves_gain({flavor: gain.points for flavor, gain in record.gains.items()})


def joint_source(rounds: JointRounds | None, leads: Callable[[], bool]) -> JointSource:
    """Return joint placement of this process, for views; `rounds` is None if the feature gate is off."""
    return JointSource(
        history=rounds.history if rounds is not None else None,
        solver=ortools_version(),
        is_paused=lambda: rounds is not None and rounds.is_paused,
        leads=leads,
        use=lambda: rounds.use_summary() if rounds is not None else None,
    )


class _Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the object."""
        ...


class _GateRemark:
    """Says once in the log that the profile `joint` means best fit, because the feature gate is off."""

    def __init__(self, *, default: bool) -> None:
        self._is_said = False
        if default:
            self._say("the setting joint.default")

    def watch(self, watches: Watches) -> None:
        """Look at all objects that may name a profile."""
        watches.workloads.subscribe(lambda _old, new: self._look("Workload", new))
        watches.cluster_queues.subscribe(lambda _old, new: self._look("ClusterQueue", new))
        watches.cohorts.subscribe(lambda _old, new: self._look("Cohort", new))
        watches.topologies.subscribe(lambda _old, new: self._look("Topology", new))

    def _look(self, kind: str, obj: _Named | None) -> None:
        if not self._is_said and obj is not None and model.profile_name(obj.metadata) == JOINT:
            self._say(f"{kind} {obj.metadata.name}")

    def _say(self, by: str) -> None:
        self._is_said = True
        _log.warning("profile joint means best fit, because the feature gate is off", gate=_GATE, named_by=by)
