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
    """Makes metrics and events of it.  Calls must return at once and must not raise."""

    def reserved(self, workload: wire.Workload, admission: Admission, *, decision: Admit) -> None:
        """Quota was reserved, and the write is done; `workload` is as written."""
        ...

    def replaced(self, workload: wire.Workload, *, by: str) -> None:
        """A slice of an elastic job came to its end, because a newer one (namespace/name and UID) took over."""
        ...


class RepairObserver(Protocol):
    """Makes metrics and events of it.  Calls must return at once and must not raise."""

    def hosts_not_replaced(self, workload: wire.Workload, *, message: str) -> None:
        """No other hosts were found for failed ones; it is tried again, or the workload was evicted."""
        ...


class EvictionObserver(Protocol):
    """Makes metrics and events of it.  Calls must return at once and must not raise."""

    def preempted(
        self, workload: wire.Workload, *, target: Target, queue: str, preemptor: wire.Workload, message: str
    ) -> None:
        """The eviction of a victim was written; `workload` is as written, `queue` the preemptor's."""
        ...

    def preemption_loop(self, preemptor: wire.Workload, *, queue: str, victims: Sequence[Mention]) -> None:
        """The preemptor has made the same workloads leave before, and was not admitted since."""
        ...


class TroubleObserver(Protocol):
    """Makes metrics and events of it.  Calls must return at once and must not raise."""

    def quarantined(self, workload: wire.Workload, *, queue: str, message: str) -> None:
        """The quarantine of a workload was written; `queue` is the ClusterQueue in which it waited, if any."""
        ...


class WaitObserver(Protocol):
    """Observes the reasons that were written.  Calls must return at once and must not raise."""

    def waits(self, workload: wire.Workload, *, reason: str, message: str) -> None:
        """A try ended without admission, and what the workload says about it has changed."""
        ...


class Observer(AdmissionObserver, RepairObserver, EvictionObserver, WaitObserver, TroubleObserver, Protocol):
    """Makes metrics and events of what the loop did.  Calls must return at once and must not raise."""

    def cycle_ended(
        self, *, seconds: float, success: bool, robbed: Mapping[str, int], phases: Mapping[Phase, float]
    ) -> None:
        """One cycle with at least one head has ended; `success`: something was admitted.

        `robbed`: per ClusterQueue that had a head, how many of these had found workloads to preempt and got nothing.
        `phases`: seconds spent in each, without those in which the event loop had its turn.
        """
        ...

    def retargeted(self, queue: str, result: Retargeted) -> None:
        """Earlier entries had taken some of the targets of a preemptor of this ClusterQueue."""
        ...
