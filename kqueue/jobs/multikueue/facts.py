"""The facts on which the steps for one workload depend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.config.dispatchers import DISPATCHER_ALL_AT_ONCE
from kqueue.jobs.fields import JSON
from kqueue.jobs.multikueue.answers import ClusterAnswer
from kqueue.jobs.multikueue.sets import ANYWHERE, SetPlace

ROUND = timedelta(minutes=5)
"""Time after which the incremental dispatcher adds clusters.  Source: Kueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """One worker cluster, and the copy of the workload on it.

    Args:
        cluster: name of the MultiKueueCluster.
        is_offered: the config of the check names it; others only keep what they run.
        is_connected: all that follows is its present state; False: nothing is known.
        lost_since: when the connection ended; None: it has not, or nobody has noticed it yet.
        workload: the copy; None: there is none.
        is_leaving: the copy is being deleted, so its conditions do not count any more.
        is_barred: the other groups of the workload's owner are on another cluster, or choose one first.
        is_taken: an object that this manager did not make has the name of the copy, or of the job's.
        job: the copy of the job, or of any pod of a group; None: there is none.
        runs: copies of the job have not ended, as far as their watch tells.
        is_partial: copies of pods of the group are missing, or copies are left of pods that are gone, or the copy of
            the job lacks an edit, or the size of its slice.
    """

    cluster: str
    is_offered: bool = True
    is_connected: bool = True
    lost_since: datetime | None = None
    workload: wire.Workload | None = None
    is_leaving: bool = False
    is_barred: bool = False
    is_taken: bool = False
    job: JSON | None = None
    runs: bool = False
    is_partial: bool = False

    @property
    def has_copies(self) -> bool:
        """Whether anything of the workload is on the cluster, as far as it is known."""
        return self.is_connected and (self.workload is not None or self.job is not None)

    @property
    def is_free(self) -> bool:
        """Whether a copy may be created on the cluster, or is there."""
        return self.is_offered and self.is_connected and not self.is_taken and not self.is_barred

    def since(self, kind: str) -> datetime | None:
        """Return the time since which a condition of the copy has been true; None: it is not true, or has no time."""
        copy = self.counted
        return model.since(copy, kind) if copy is not None else None

    def is_true(self, kind: str) -> bool:
        """Whether a condition of the copy is true."""
        copy = self.counted
        return copy is not None and model.condition_true(copy, kind)

    @property
    def counted(self) -> wire.Workload | None:
        """Return the copy whose conditions count; None: there is none, or it leaves."""
        return self.workload if self.is_connected and not self.is_leaving else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicy:
    """The settings of MultiKueue.

    Args:
        dispatcher: who names the clusters for a workload; a name that is not ours: another controller.
        step: clusters that the incremental dispatcher adds per round.
        keeps_order: the incremental dispatcher follows the order of the config, not the alphabet.
        lost_after: time after which the work on a silent cluster counts as lost.
        orchestrates_preemption: one cluster after the other may preempt for a workload.
        patience: time after which the dispatcher of the best domain asks again, and adds a cluster.
        answer_within: time after which a cluster that was asked counts as one that does not answer.
    """

    dispatcher: str = DISPATCHER_ALL_AT_ONCE
    step: int = 3
    keeps_order: bool = True
    lost_after: timedelta = timedelta(minutes=15)
    orchestrates_preemption: bool = False
    patience: timedelta = timedelta(seconds=30)
    answer_within: timedelta = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiKueueFacts:
    """One workload with a MultiKueue check.

    Args:
        workload: the manager's Workload.
        entry: its check.
        remotes: the clusters of the config in its order, then others that have copies or admitted the workload.
        problem: why no worker cluster can run the job; empty: one can.
        is_elastic: the workload is a slice of an elastic job.
        forwards: edits of a job that runs reach its copy.
        is_replaced: another slice has the quota of the job by now, and the copy of the job is that slice's.
        stands_behind: the slice that it is to replace has the quota, and the copy of the job is that slice's.
        place: where the workload may go because of the other groups of its owner.
        inherited: the cluster of the slice that it has replaced; empty: none, or the workload was evicted since.
        now: the present time.
        answers: what clusters say about the workload, where the dispatcher asks them.
        sent_at: when the dispatcher that asks sent the workload to a cluster last; None: not known.
    """

    workload: wire.Workload
    entry: wire.AdmissionCheckState
    remotes: Sequence[Remote]
    policy: DispatchPolicy
    now: datetime
    problem: str = ""
    is_elastic: bool = False
    forwards: bool = False
    is_replaced: bool = False
    stands_behind: bool = False
    place: SetPlace = ANYWHERE
    inherited: str = ""
    answers: Mapping[str, ClusterAnswer] = field(default_factory=dict)
    sent_at: datetime | None = None

    def is_true(self, kind: str) -> bool:
        """Whether a condition of the workload is true."""
        return model.condition_true(self.workload, kind)

    @property
    def holds_quota(self) -> bool:
        """Whether the manager has reserved quota."""
        return self.is_true(names.CONDITION_QUOTA_RESERVED)

    @property
    def is_evicted(self) -> bool:
        """Whether the manager takes the quota back."""
        return self.is_true(names.CONDITION_EVICTED)

    @property
    def is_deleted(self) -> bool:
        """Whether the workload is being deleted."""
        return self.workload.metadata.deletion_timestamp is not None

    @property
    def other_checks(self) -> Sequence[wire.AdmissionCheckState]:
        """The workload's checks of other controllers."""
        return [entry for entry in self.workload.status.admission_checks if entry.name != self.entry.name]

    def remote(self, cluster: str | None) -> Remote | None:
        """Return a cluster by name; None: it is not known."""
        return next((remote for remote in self.remotes if remote.cluster == cluster), None)
