"""Interfaces through which scheduling reports to metrics and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kqueue.api.wire import kueue as wire
from kqueue.core.decision import Admit, Phase, Retargeted
from kqueue.core.mention import Mention
from kqueue.core.preemption import Target
from kqueue.core.workload import Admission


class AdmissionObserver(Protocol):
    """Reports admissions as metrics and events.  Calls must return at once and must not raise."""

    def reserved(self, workload: wire.Workload, admission: Admission, *, decision: Admit) -> None:
        """Quota was reserved, and the write is done; `workload` is as written."""
        ...

    def replaced(self, workload: wire.Workload, *, by: str) -> None:
        """A workload slice was finished because the newer slice `by` (namespace/name and UID) replaced it."""
        ...


class RepairObserver(Protocol):
    """Reports failed hosts that were not replaced.  Calls must return at once and must not raise."""

    def hosts_not_replaced(self, workload: wire.Workload, *, message: str) -> None:
        """No hosts were found to replace failed ones; the workload is tried again later, or was evicted."""
        ...


class EvictionObserver(Protocol):
    """Reports preemptions as metrics and events.  Calls must return at once and must not raise."""

    def preempted(
        self, workload: wire.Workload, *, target: Target, queue: str, preemptor: wire.Workload, message: str
    ) -> None:
        """The eviction of a victim was written; `workload` is as written, `queue` the preemptor's."""
        ...

    def preemption_loop(self, preemptor: wire.Workload, *, queue: str, victims: Sequence[Mention]) -> None:
        """The preemptor evicted the same workloads before and has not been admitted since."""
        ...


class TroubleObserver(Protocol):
    """Reports quarantines as metrics and events.  Calls must return at once and must not raise."""

    def quarantined(self, workload: wire.Workload, *, queue: str, message: str) -> None:
        """The quarantine of a workload was written; `queue` is the ClusterQueue in which it waited, if any."""
        ...


class WaitObserver(Protocol):
    """Reports reasons for waiting that were written.  Calls must return at once and must not raise."""

    def waits(self, workload: wire.Workload, *, reason: str, message: str) -> None:
        """A try ended without admission, and a new reason or message was written to the Workload."""
        ...


class Observer(AdmissionObserver, RepairObserver, EvictionObserver, WaitObserver, TroubleObserver, Protocol):
    """Reports the work of the loop as metrics and events.  Calls must return at once and must not raise."""

    def cycle_ended(
        self, *, seconds: float, success: bool, robbed: Mapping[str, int], phases: Mapping[Phase, float]
    ) -> None:
        """One cycle with at least one head has ended; `success`: a workload was admitted.

        `robbed`: per ClusterQueue that had a head, the number of its heads that had found workloads to preempt and lost
        them to earlier entries. `phases`: the seconds of each phase, without the turns of the event loop.
        """
        ...

    def retargeted(self, queue: str, result: Retargeted) -> None:
        """Earlier entries had taken some of the targets of a preemptor of this ClusterQueue."""
        ...
