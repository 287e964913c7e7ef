"""Values that the parts of scheduling share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.backfill.plans import StartPlans
from kqueue.runtime.status_writer import StatusWriter
from kqueue.scheduling.gang_runs import CountExtras, no_extras
from kqueue.scheduling.observers import Observer
from kqueue.scheduling.settings import LoopSettings
from kqueue.scheduling.writes import Writes
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage
from kqueue.state.moves import Moves
from kqueue.state.preemptions import Preemptions
from kqueue.state.quarantine import Quarantine
from kqueue.state.queues import Queues
from kqueue.state.reservations import Reservations
from kqueue.state.second_pass import SecondPass
from kqueue.state.tries import Tries


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingState:
    """The state that scheduling reads and changes; controllers and views share it.

    Args:
        cache: quota, nodes, and the quota and hosts that each workload holds.
        queues: workloads that wait.
        second_pass: workloads that lost hosts, or that need domains after their checks.
        preemptions: the resources that are reserved for preemptors.
        quarantine: workloads on which scheduling fails.
        tries: the last try of each workload.
        fair_usage: the decaying usage of LocalQueues; None: admission does not depend on it.
        moves: what is kept for workloads that plans move; None: no plan is carried out.
        start_plans: the planned starts of workloads.
        reservations: what is kept for Reservations; None: nothing is.
    """

    cache: Cache
    queues: Queues
    second_pass: SecondPass = field(default_factory=SecondPass)
    preemptions: Preemptions = field(default_factory=Preemptions)
    quarantine: Quarantine = field(default_factory=Quarantine)
    tries: Tries = field(default_factory=Tries)
    fair_usage: FairUsage | None = None
    moves: Moves | None = None
    start_plans: StartPlans = field(default_factory=StartPlans)
    reservations: Reservations | None = None


class LookAtParked(Protocol):
    """Queues parked workloads again that resources freed since may help."""

    def __call__(self, *, fitting: bool) -> int:
        """Queue parked workloads again; with `fitting`, only workloads that seem to fit now.

        Returns the largest number of shapes of workloads that one ClusterQueue got back; 0 when none was queued again.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """Functions that answer questions of the scheduling loop.

    Args:
        namespace_labels: labels of a namespace; None when it does not exist.
        host_of: host name of a node; None when it does not exist.
        look_at_parked: called before a round of cycles for all parked workloads, and within a round for parked
            workloads that seem to fit: a workload of lower priority must not take what became free before them.
        extras_of: the number of present pods beyond the quorum that a Workload counts.
    """

    namespace_labels: Callable[[str], Mapping[str, str] | None]
    host_of: Callable[[str], str | None] = lambda _node: None
    look_at_parked: LookAtParked = lambda *, fitting: 0
    extras_of: CountExtras = no_extras


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The objects that all parts of the scheduling loop share."""

    state: SchedulingState
    writer: StatusWriter[wire.Workload]
    writes: Writes
    observer: Observer
    clock: Clock
    settings: LoopSettings
