"""Jobs of this cluster that another cluster runs: whether they still hold anything there."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import Manager


class Elsewhere:
    """Answers for all owners of a process; the controller of MultiKueue sets the answer."""

    def __init__(self) -> None:
        self.runs: Callable[[wire.Workload], bool] = lambda _workload: False
        """Whether a Workload's job may run on a cluster that can be reached.  A lost one must not hold quota here."""

    def ask(self, workload: wire.Workload) -> bool:
        """Return the answer as it is now."""
        return self.runs(workload)


def make_elsewhere(_manager: Manager) -> Elsewhere:
    """Return the answers of a process."""
    return Elsewhere()
