"""The end of a try in a second pass, and the nodes that plugins refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from kqueue.core.hooks import ProfileHooks
from kqueue.core.workload import Admission, PodSet, Snapshot
from kqueue.errors import KqueueError
from kqueue.state.charge import Charge
from kqueue.state.second_pass import SecondPass

_log = structlog.get_logger(__name__)


class SecondTries:
    """Ends the tries of workloads in their second pass: each ends for good, or is repeated."""

    def __init__(self, second_pass: SecondPass) -> None:
        self._second_pass = second_pass

    def settle(self, key: str, charge: Charge | None, error: BaseException | None) -> None:
        """End a write: unless it succeeded, charge what the workload had before, and try the workload again."""
        if charge is not None:
            charge.settle()
        if isinstance(error, KqueueError):
            _log.info("the result of a second pass was not written", workload=key, error=str(error))
            self.try_again(key)
        elif isinstance(error, Exception):
            self.look_later(key, error)
        elif error is not None:
            self.try_again(key)

    def look_later(self, key: str, error: Exception) -> None:
        """Record a bug: the workload keeps what it has and is tried again after a pause that grows."""
        _log.error("the second pass failed on a bug", workload=key, exc_info=error)
        self._second_pass.failed(key)

    def try_again(self, key: str) -> None:
        """Try a workload again that has changed since it was read."""
        self._second_pass.drop(key)
        self._second_pass.ask(key)

    def failed(self, key: str) -> None:
        """Try a workload again after a pause that grows with its tries."""
        self._second_pass.failed(key)

    def drop(self, key: str) -> None:
        """End the second pass of a workload."""
        self._second_pass.drop(key)


def without_refused(
    snapshot: Snapshot, admission: Admission, pod_sets: Sequence[PodSet], hooks: ProfileHooks
) -> tuple[PodSet, ...]:
    """Return the pod sets without the nodes that plugins refuse."""
    if not hooks.filters_nodes:
        return tuple(pod_sets)
    flavors_of = {held.name: held.flavors.values() for held in admission.pod_sets}
    found: list[PodSet] = []
    for pod_set in pod_sets:
        views = [view for flavor in flavors_of.get(pod_set.name, ()) if (view := snapshot.topologies.get(flavor))]
        request = pod_set.request
        if views:
            request = hooks.without_refused(request, pod_set, views[0].tree)
        found.append(replace(pod_set, request=request))
    return tuple(found)
