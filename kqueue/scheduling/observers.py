"""Interfaces through which scheduling reports to metrics and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kqueue.api.wire import kueue as wire
from kqueue.core.backfill.plans import MoveCause
from kqueue.core.decision import Admit, Phase, Retargeted
from kqueue.core.mention import Mention
from kqueue.core.preemption import Target
from kqueue.core.workload import Admission


class AdmissionObserver(Protocol):
    """Reports admissions as metrics and events.  Calls must return at once and must not raise."""

    def reserved(self, workload: wire.Workload, admission: Admission, *, decision: Admit) -> None:
        """Report that quota was reserved and written; `workload` is the written object."""
        ...

    def replaced(self, workload: wire.Workload, *, by: str) -> None:
        """Report that a workload slice is finished: the newer slice `by` (namespace/name and UID) replaced it."""
        ...


class RepairObserver(Protocol):
    """Reports failed hosts that were not replaced.  Calls must return at once and must not raise."""

    def hosts_not_replaced(self, workload: wire.Workload, *, message: str) -> None:
        """Report that no hosts were found to replace failed ones; the workload is tried later, or was evicted."""
        ...


class DomainsObserver(Protocol):
    """Reports delayed domains that were not found.  Calls must return at once and must not raise."""

    def no_domains(self, workload: wire.Workload, *, message: str) -> None:
        """Report that a workload whose checks are ready has no domains yet; it is tried later."""
        ...


class EvictionObserver(Protocol):
    """Reports preemptions as metrics and events.  Calls must return at once and must not raise."""

    def preempted(
        self, workload: wire.Workload, *, target: Target, queue: str, preemptor: wire.Workload, message: str
    ) -> None:
        """Report a written eviction of a victim; `workload` is the written object, `queue` the preemptor's queue."""
        ...

    def made_way(self, workload: wire.Workload, *, message: str) -> None:
        """Report the written eviction of a gang that made way; `workload` is the written object."""
        ...

    def overran(self, workload: wire.Workload, *, message: str) -> None:
        """Report the written eviction of a workload that ran longer than expected and held up a planned start."""
        ...

    def preemption_loop(self, preemptor: wire.Workload, *, queue: str, victims: Sequence[Mention]) -> None:
        """Report that the preemptor evicted the same workloads before and has not been admitted since."""
        ...


class TroubleObserver(Protocol):
    """Reports quarantines as metrics and events.  Calls must return at once and must not raise."""

    def quarantined(self, workload: wire.Workload, *, queue: str, message: str) -> None:
        """Report a written quarantine; `queue` is the ClusterQueue in which the workload waited, if any."""
        ...


class WaitObserver(Protocol):
    """Reports reasons for waiting that were written.  Calls must return at once and must not raise."""

    def waits(self, workload: wire.Workload, *, reason: str, message: str) -> None:
        """Report a try without admission whose new reason or message was written to the Workload."""
        ...


class StartObserver(Protocol):
    """Reports planned starts as metrics.  Calls must return at once and must not raise."""

    def planned_start_kept(self, queue: str, *, in_time: bool) -> None:
        """Report that a workload of this ClusterQueue has started as it was planned first, or later."""
        ...

    def planned_start_moved(self, queue: str, cause: MoveCause) -> None:
        """Report that the planned start of a workload of this ClusterQueue became later."""
        ...


class Observer(
    StartObserver,
    AdmissionObserver,
    RepairObserver,
    DomainsObserver,
    EvictionObserver,
    WaitObserver,
    TroubleObserver,
    Protocol,
):
    """Reports the work of the loop as metrics and events.  Calls must return at once and must not raise."""

    def cycle_ended(
        self, *, seconds: float, success: bool, robbed: Mapping[str, int], phases: Mapping[Phase, float]
    ) -> None:
        """Report the end of a cycle with at least one head; `success`: a workload was admitted.

        `robbed`: per ClusterQueue that had a head, the number of its heads that had found workloads to preempt and lost
        them to earlier entries. `phases`: the seconds of each phase, without the turns of the event loop.
        """
        ...

    def retargeted(self, queue: str, result: Retargeted) -> None:
        """Report that earlier entries took some of the targets of a preemptor of this ClusterQueue."""
        ...
