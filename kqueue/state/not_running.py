"""Released pods that do not run: the pod has no gate, no node runs it, and its Workload is admitted.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.model import PodView

SILENT = "no scheduler has tried the pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRunning:
    """A released pod that no node runs."""

    key: str
    """namespace/name."""
    since: datetime
    """The later of the admission and the last change of the pod's condition PodScheduled."""
    message: str
    """The message of the scheduler, or SILENT."""


def not_running(
    workload: wire.Workload,
    views: Iterable[PodView],
    *,
    controllers: Collection[str] | None,
    now: datetime,
    after: timedelta,
) -> list[NotRunning]:
    """Return the pods of `views` that were released at least `after` ago and do not run, the longest wait first.

    `controllers`: UIDs of the Workload's owners, and of the Jobs that these owners created.  Pods of other controllers
    do not count, because any user may write the name of a Workload onto a pod.  None: the controllers are not known,
    and a pod of any controller counts.
    """
    admitted = model.since(workload, names.CONDITION_ADMITTED)
    if admitted is None or not model.is_admitted(workload) or model.is_over(workload):
        return []
    owners = {owner.uid for owner in workload.metadata.owner_references}
    found = [
        NotRunning(key=view.key, since=max(admitted, pod.since), message=pod.message or SILENT)
        for view in views
        if (pod := view.unbound) is not None
        and (pod.uid in owners or (bool(pod.controller) if controllers is None else pod.controller in controllers))
    ]
    return sorted((pod for pod in found if now - pod.since >= after), key=lambda pod: (pod.since, pod.key))


def sentences(pods: Iterable[NotRunning]) -> list[tuple[str, int]]:
    """Return the messages of schedulers about the pods with the number of pods, the most frequent message first."""
    return Counter(pod.message for pod in pods).most_common()
