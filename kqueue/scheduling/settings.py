"""Settings of the scheduling loop, from the configuration file and the fixed times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kqueue.api.wire import kueue as wire
from kqueue.core.backfill.plans import LineRule
from kqueue.core.decision import ALL_LOOKS, SecondLooks
from kqueue.core.future.run_time import NOT_KNOWN, RunTime
from kqueue.core.hooks import HooksByProfile
from kqueue.core.ordering import DEFAULT_RULES, OrderRules
from kqueue.core.preemption import SharingStrategy
from kqueue.core.scan import DEFAULT_SCAN, ScanRules
from kqueue.model import DEFAULT_ORDER, QueueOrder
from kqueue.scheduling.recording import PlanRecorder
from kqueue.state.heads import HeadOptions
from kqueue.state.requeueing import DEFAULT_GANG_BACKOFF, RequeueBackoff
from kqueue.state.variants import VariantRules


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Times in seconds."""

    window_min: float = 0.020
    window_max: float = 0.250
    """Bounds of the window in which the next cycle begins under load; see `WritePace`."""
    yield_after: float = 0.020
    """Time after which a running plan yields to the event loop."""
    in_flight: int = 64
    """Concurrent writes of admissions."""
    reasons_at_once: int = 8
    """Concurrent writes of reasons for waiting.  Few, so that a slow API server spends most of its time on admissions;
    a workload that is admitted meanwhile needs no reason."""
    details_after: float = 5.0
    """Seconds after which changed details of the same reason for waiting are written."""
    elastic: bool = False
    """A workload may name another one that it replaces: it takes over quota and hosts, and the other one ends."""
    fail_fast: bool = True
    """A workload whose failed hosts cannot be replaced at the first try is evicted."""
    skips_pod_owned: bool = True
    """A workload that ends with its one pod keeps its place when the host fails."""
    fair: tuple[SharingStrategy, ...] | None = None
    """The strategies of preemption by fair sharing; None: fair sharing is off."""
    within_nominal: bool = True
    """With fair sharing, a ClusterQueue within its nominal quota reclaims it whatever the shares are."""
    order: OrderRules = DEFAULT_RULES
    queue_order: QueueOrder = DEFAULT_ORDER
    block_admission: bool = False
    """No workload is admitted until the pods of all workloads with quota are ready."""
    waits_for_ready: bool = False
    """`waitForPodsReady` is on: the patch that reserves quota says PodsReady=False, too."""
    scan: ScanRules = DEFAULT_SCAN
    """Rules for remembering the end of a scan of flavors."""
    preemption_gates: bool = False
    """A workload with a closed preemption gate does not preempt."""
    variants: VariantRules | None = None
    """Rules of the variants of concurrent admission; None: Workloads of others are as all others are."""
    looks: SecondLooks = ALL_LOOKS
    """The nominations that are repeated in the same cycle."""
    gang_backoff: RequeueBackoff = DEFAULT_GANG_BACKOFF
    """The pauses of gangs that made way for another workload."""
    hooks: HooksByProfile = field(default_factory=dict)
    """Plugins by the profile that a ClusterQueue names."""
    policy_of: Callable[[str], str | None] = lambda _name: None
    """Returns the preemptionPolicy of a PriorityClass; None: there is none."""
    budgeted: Callable[[], frozenset[str]] = frozenset
    """Returns the UIDs of workloads with pods under a budget that allows no disruption."""
    line_of: Callable[[str], LineRule | None] = lambda _queue: None
    """Returns the line of a ClusterQueue for backfill by time; None: it has none."""
    run_time_of: Callable[[wire.Workload], RunTime] = lambda _obj: NOT_KNOWN
    """Returns the run time of a Workload."""
    guess_of: Callable[[wire.Workload], int | None] = lambda _obj: None
    """Returns the guessed seconds of a Workload's run, where a line asks for it; None: not known."""
    recorder: PlanRecorder | None = None
    """Records every plan; None: plans are not recorded."""

    @property
    def head_options(self) -> HeadOptions:
        """The settings on which heads depend."""
        return HeadOptions(
            elastic=self.elastic,
            preemption_gates=self.preemption_gates,
            variants=self.variants,
            order=self.queue_order,
            policy_of=self.policy_of,
            guess_of=self.guess_of,
        )
