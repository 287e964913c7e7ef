"""The second pass of workloads whose checks are ready: the choice of their domains, and the write of the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import structlog

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.delayed_domains import Delayed, choose_domains
from kqueue.core.explain import Blocker, message
from kqueue.core.hooks import NO_HOOKS
from kqueue.core.topology import TopologyAssignment
from kqueue.core.topology.request import DEFAULT_PROFILE
from kqueue.core.workload import Snapshot
from kqueue.isolation import isolated
from kqueue.scheduling.context import Context
from kqueue.scheduling.second_tries import SecondTries, without_refused
from kqueue.state import delayed_status, failures, status
from kqueue.state.charge import Charge
from kqueue.state.near_gang import NearGang

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DelayedWorkload:
    """A workload that needs domains, and the object that it was read from."""

    obj: wire.Workload
    delayed: Delayed

    def same(self, now: wire.Workload | None) -> bool:
        """Whether a decision on the object is still valid for its present version `now`."""
        then = self.obj
        return (
            now is not None
            and now.metadata.uid == then.metadata.uid
            and model.needs_domains(now)
            and now.status.admission == then.status.admission
            and now.status.admission_checks == then.status.admission_checks
        )


class DelayedDomains:
    """Chooses domains for workloads whose checks are ready."""

    def __init__(self, context: Context, tries: SecondTries) -> None:
        self._cache, self._tries = context.state.cache, tries
        self._writer, self._writes = context.writer, context.writes
        self._observer, self._clock = context.observer, context.clock
        self._hooks = context.settings.hooks
        self._near_gang = NearGang(self._cache.ledger, self._writer.newest)

    def read(self, key: str) -> DelayedWorkload | None:
        """Return the workload with its requests; None if it needs no domains, or not now."""
        obj = self._writer.newest(key)
        if obj is None or not model.needs_domains(obj):
            return None
        admission = self._cache.requests.admission(obj)
        if admission is None:
            return None
        topology_only = self._cache.quota.is_topology_only(admission.queue)
        head = self._cache.requests.head(obj, queue=admission.queue, topology_only=topology_only, last_tried={})
        spec = self._cache.quota.queue_spec(admission.queue)
        pod_sets = self._near_gang.pod_sets(obj, head.pod_sets)
        delayed = Delayed(
            key=key,
            admission=admission,
            pod_sets=delayed_status.with_updates(obj, pod_sets),
            avoided=failures.avoided(obj, self._clock.now()),
            profile=(spec.profile if spec is not None else DEFAULT_PROFILE).with_algorithm(head.algorithm),
        )
        return DelayedWorkload(obj, delayed)

    def begin(self, snapshot: Snapshot, waiting: DelayedWorkload) -> bool:
        """Choose domains and begin to write them; return True if there are some."""
        key = waiting.delayed.key
        with isolated(partial(self._tries.look_later, key)):
            return self._begin(snapshot, waiting, key)
        return False

    def _begin(self, snapshot: Snapshot, waiting: DelayedWorkload, key: str) -> bool:
        delayed = waiting.delayed
        hooks = self._hooks.get(self._cache.quota.plugin_profile(delayed.admission.queue), NO_HOOKS)
        pod_sets = without_refused(snapshot, delayed.admission, delayed.pod_sets, hooks)
        found = choose_domains(snapshot, replace(delayed, pod_sets=pod_sets))
        if isinstance(found, tuple):
            self._fail(waiting, found)
            return False
        admission = self._cache.requests.admission(delayed_status.with_domains(waiting.obj, found))
        if admission is None or self._cache.held.holding(key) is None or not waiting.same(self._writer.newest(key)):
            self._tries.try_again(key)
            return False
        with self._cache.held.moved(key, admission) as charge:
            work = self._write(waiting, found, charge)
            self._writes.spawn(work, ended=partial(self._tries.settle, key, charge))
        return True

    def _fail(self, waiting: DelayedWorkload, blockers: tuple[Blocker, ...]) -> None:
        """Try again later: nodes may still come.  The check's controller ends the wait."""
        key, text = waiting.delayed.key, message(blockers)
        _log.info("no domains for a workload whose checks are ready", workload=key, message=text)
        self._tries.failed(key)
        self._observer.no_domains(waiting.obj, message=text)

    async def _write(self, waiting: DelayedWorkload, found: dict[str, TopologyAssignment], charge: Charge) -> None:
        """Write the domains, unless the workload has changed since the decision.  Its reconciler admits it then."""
        key = waiting.delayed.key

        def change(obj: wire.Workload) -> status.Patch | None:
            return delayed_status.choose_domains(obj, found) if waiting.same(obj) else None

        written = await self._writes.commit(key, change, doing="domains were being chosen for it")
        charge.confirm(written)
        self._tries.drop(key)
        _log.info("domains are chosen", workload=key, domains={name: len(f.domains) for name, f in found.items()})
