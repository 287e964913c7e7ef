"""The values that the reconcilers of all owners of Workloads share: of jobs, single pods, pod groups and
StatefulSets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.record import Recorder
from kqueue.controllers.release_hooks import NO_RELEASE_HOOKS, ReleaseHooks
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.gang.dialect import DEFAULT_TIMEOUTS, ScheduleTimeouts
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.client import Client
from kqueue.runtime.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPolicy:
    """The rules for owners of Workloads, read once from the configuration.

    Args:
        switches: feature gates of job kinds.
        copied: labels and annotations that a Workload gets from its owner.
        explicit: pods are queued by themselves; False: only pods whose parent sets the gate.
        without_queue: owners without a queue name are managed, too.
        requeues: the Workload of a pod that an eviction deleted is queued again.
        fast_release: a pod that is being deleted holds no quota.
        finishes_orphans: a Workload whose pod is gone is finished.
        checks_owner: a Workload with the name of a group is left alone where it is not the group's; False: the group
            takes it over.
        timeouts: deadlines of gangs that name none.
        keep_deactivated: how long owners are kept after kqueue has deactivated them; None: for ever.
        dispatches: jobs that name MultiKueue as their controller are queued, and other clusters run them.
        echo_timeout: seconds after which a reconciler no longer waits for the watch to bring a write.
    """

    switches: JobFeatures = field(default_factory=JobFeatures)
    copied: CopiedKeys = COPIES_NONE
    explicit: bool = True
    without_queue: bool = False
    requeues: bool = False
    fast_release: bool = False
    finishes_orphans: bool = True
    checks_owner: bool = True
    timeouts: ScheduleTimeouts = DEFAULT_TIMEOUTS
    keep_deactivated: timedelta | None = None
    echo_timeout: float = 60.0
    dispatches: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerContext:
    """The clients, stores and rules of a reconciler of owners.

    Args:
        book: finds and writes Workloads, including kqueue's own last writes.
        workloads: the watch of Workloads.
        steps: the steps for the Workload of any owner.
        manages: whether owners of a namespace are managed.
        releases: plugins that take part in releases.
        runs_elsewhere: whether a cluster that can be reached has the job of a Workload that MultiKueue dispatched.
        is_sent: whether other clusters alone may run a Workload.
    """

    client: Client
    book: WorkloadBook
    workloads: Store[wire.Workload]
    steps: WorkloadSteps
    recorder: Recorder
    clock: Clock
    manages: Callable[[str], bool]
    policy: OwnerPolicy
    releases: ReleaseHooks = NO_RELEASE_HOOKS
    runs_elsewhere: Callable[[wire.Workload], bool] = lambda _workload: False
    is_sent: Callable[[wire.Workload], bool] = lambda _workload: False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReports:
    """Callbacks that report the actions of a reconciler of owners.

    Args:
        created: called with the age in seconds of an owner whose Workload was created.
        started: called with a Workload and the number of its pods whose gate was removed.
    """

    created: Callable[[float], None] = lambda _seconds: None
    started: Callable[[wire.Workload, int], None] = lambda _workload, _pods: None


NO_REPORTS = OwnerReports()
