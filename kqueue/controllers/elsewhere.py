"""Jobs of this cluster that another cluster runs: whether they still hold anything there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import Manager
from kqueue.jobs.multikueue.answers import ClusterAnswer


class Elsewhere:
    """Answers for all owners of a process; the controller of MultiKueue sets the answer."""

    def __init__(self) -> None:
        self.runs: Callable[[wire.Workload], bool] = lambda _workload: False
        """Whether a Workload's job may run on a cluster that can be reached.  A lost one must not hold quota here."""
        self.answers: Callable[[wire.Workload], Awaitable[Mapping[str, ClusterAnswer]]] | None = None
        """Returns what each cluster says about a Workload that waits for one of them; None: nothing is sent away."""

    def ask(self, workload: wire.Workload) -> bool:
        """Return the answer as it is now."""
        return self.runs(workload)


def make_elsewhere(_manager: Manager) -> Elsewhere:
    """Return the answers of a process."""
    return Elsewhere()
