"""The gangs of a process, for the view of gangs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kqueue.api.wire import kueue as wire
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key
from kqueue.controllers.manager import Manager
from kqueue.controllers.namespace_queue import has_queue
from kqueue.controllers.raw import JSON
from kqueue.controllers.workload_steps import as_json
from kqueue.jobs.gang.overview import overview
from kqueue.jobs.gang.value import GangRef
from kqueue.manager.gang_census import GangCensus, make_gang_census
from kqueue.runtime.store import Store, split_key


class GangOverviews:
    """`GangSource` from the census and the records of gangs."""

    def __init__(
        self, census: GangCensus, *, workloads: Store[wire.Workload], has_queue: Callable[[str, JSON], bool]
    ) -> None:
        """Take the Workloads with their index of owners; `has_queue(framework, obj)`: whether its gang is queued."""
        self._census, self._workloads, self._has_queue = census, workloads, has_queue

    async def refresh(self) -> None:
        """Read the gangs that have changed."""
        await self._census.refresh()

    def keys(self, namespace: str, *, strangers: bool) -> Sequence[str]:
        """Return the keys of gangs, as `GangSource` says."""
        keys = self._census.keys(namespace)
        return keys if strangers else [key for key in keys if self._is_queued(key)]

    def _is_queued(self, key: str) -> bool:
        if self._census.is_counted(key):
            return True
        obj = self._census.records.gangs.object_of(key)
        return obj is not None and self._has_queue(GangRef.of_key(key).framework, obj)

    def overview(self, key: str) -> JSON | None:
        """Return the overview of a gang; None: it does not exist any more."""
        records = self._census.records
        gang = records.of(key)
        if gang is None:
            return None
        owners = (owner_key("", "Pod", *split_key(pod.key)) for pod in gang.extras)
        extras = [as_json(workload) for owner in owners for workload in self._workloads.by_index(OWNER_INDEX, owner)]
        obj, workload = records.gangs.object_of(key), records.workload(key)
        return overview(gang, obj, workload, extras, rules=records.rules())


def make_gang_overviews(manager: Manager) -> GangOverviews | None:
    """Return the gangs of a process; None: no pods are queued."""
    census = manager.shared(make_gang_census)
    if census is None:
        return None
    return GangOverviews(census, workloads=manager.watches.workloads.store, has_queue=partial(has_queue, manager))
