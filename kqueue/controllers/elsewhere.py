"""Workloads of this cluster that another cluster runs, and whether their jobs still hold anything there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.check_answers import is_of
from kqueue.controllers.manager import Manager
from kqueue.jobs.multikueue.answers import ClusterAnswer


class Elsewhere:
    """Answers for all owners of a process; the controller of MultiKueue sets one of them."""

    def __init__(self, check: Callable[[str], wire.AdmissionCheck | None]) -> None:
        """`check` finds an AdmissionCheck."""
        self._check = check
        self.runs: Callable[[wire.Workload], bool] = lambda _workload: False
        """Whether a Workload's job may run on a cluster that can be reached.  A lost one must not hold quota here."""
        self.answers: Callable[[wire.Workload], Awaitable[Mapping[str, ClusterAnswer]]] | None = None
        """Returns what each cluster says about a Workload that waits for one of them; None: nothing is sent away."""

    def ask(self, workload: wire.Workload) -> bool:
        """Return the answer as it is now."""
        return self.runs(workload)

    def is_sent(self, workload: wire.Workload) -> bool:
        """Whether other clusters alone may run a Workload; its pods keep their gates here.

        The name of the cluster counts, too: a check may be deleted by mistake while its jobs run there.
        """
        entries = workload.status.admission_checks
        return bool(workload.status.cluster_name) or any(
            is_of(self._check(entry.name), names.MULTIKUEUE_CONTROLLER) for entry in entries
        )


def make_elsewhere(manager: Manager) -> Elsewhere:
    """Return the answers of a process."""
    return Elsewhere(manager.watches.checks.store.get)
