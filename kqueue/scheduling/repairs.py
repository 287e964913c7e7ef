"""The second pass of admitted workloads that lost hosts: the search for other hosts, and the write of the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.hooks import NO_HOOKS
from kqueue.core.host_replacement import HostsNotReplaced, HostsReplaced, replace_hosts
from kqueue.core.topology import uses_host
from kqueue.core.topology.request import DEFAULT_PROFILE
from kqueue.core.workload import Damaged, Snapshot
from kqueue.isolation import isolated
from kqueue.scheduling.context import Context
from kqueue.scheduling.second_tries import SecondTries, without_refused
from kqueue.state import failures, host_status, status
from kqueue.state.charge import Charge
from kqueue.state.near_gang import NearGang

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DamagedWorkload:
    """A workload with failed hosts, and the object that it was read from."""

    obj: wire.Workload
    damaged: Damaged

    @property
    def key(self) -> str:
        """Its namespace/name."""
        return self.damaged.key

    def same(self, now: wire.Workload | None) -> bool:
        """Whether a decision on the object is still valid for its present version `now`."""
        then = self.obj
        return (
            now is not None
            and now.metadata.uid == then.metadata.uid
            and model.is_placed(now)
            and now.status.admission == then.status.admission
            and now.status.finished_pods == then.status.finished_pods
            and now.status.unhealthy_nodes == then.status.unhealthy_nodes
        )


class Repairs:
    """The second pass of workloads with failed hosts."""

    def __init__(self, context: Context, tries: SecondTries, host_of: Callable[[str], str | None]) -> None:
        """`host_of` returns a node's host name."""
        self._cache, self._tries = context.state.cache, tries
        self._writer, self._writes = context.writer, context.writes
        self._observer, self._clock, self._host_of = context.observer, context.clock, host_of
        self._fail_fast, self._skips_pod_owned = context.settings.fail_fast, context.settings.skips_pod_owned
        self._hooks = context.settings.hooks
        self._near_gang = NearGang(self._cache.ledger, self._writer.newest)

    def read(self, key: str) -> DamagedWorkload | None:
        """Return the workload with its failed hosts; None if it has none, or is being evicted or deleted."""
        obj = self._writer.newest(key)
        if obj is None or not obj.status.unhealthy_nodes or not model.is_placed(obj):
            return None
        if self._cache.held.is_part(key):
            return None  # the hosts of the workload that it is a part of are replaced
        admission = self._cache.requests.admission(obj)
        listed = {node.name for node in obj.status.unhealthy_nodes}
        failed = listed | {host for name in listed if (host := self._host_of(name)) is not None}
        if admission is None or not any(p.topology and uses_host(p.topology, failed) for p in admission.pod_sets):
            return None
        topology_only = self._cache.quota.is_topology_only(admission.queue)
        head = self._cache.requests.head(obj, queue=admission.queue, topology_only=topology_only, last_tried={})
        spec = self._cache.quota.queue_spec(admission.queue)
        damaged = Damaged(
            key=key,
            uid=head.uid,
            admission=admission,
            pod_sets=self._near_gang.pod_sets(obj, head.pod_sets),
            failed=frozenset(failed),
            avoided=failures.avoided(obj, self._clock.now()),
            profile=(spec.profile if spec is not None else DEFAULT_PROFILE).with_algorithm(head.algorithm),
        )
        return DamagedWorkload(obj, damaged)

    def begin(self, snapshot: Snapshot, lost: DamagedWorkload) -> bool:
        """Find other hosts and begin to write them; return True if they were found."""
        key = lost.key
        with isolated(partial(self._tries.look_later, key)):
            keeps = self._skips_pod_owned and model.is_owned_by_one_pod(lost.obj)
            found = HostsReplaced(lost.damaged, {}) if keeps else self._found(snapshot, lost.damaged)
            if isinstance(found, HostsNotReplaced):
                self._writes.spawn(self._give_up(lost, found), ended=partial(self._tries.settle, key, None))
                return False
            admission = self._cache.requests.admission(host_status.with_hosts(lost.obj, found.assignments))
            if admission is None or self._cache.held.holding(key) is None or not lost.same(self._writer.newest(key)):
                self._tries.try_again(key)
                return False
            charge = self._cache.held.moved(key, admission) if found.assignments else None
            with charge or nullcontext():
                work = self._write_hosts(lost, found, charge)
                self._writes.spawn(work, ended=partial(self._tries.settle, key, charge))
            return True
        return False

    def _found(self, snapshot: Snapshot, damaged: Damaged) -> HostsReplaced | HostsNotReplaced:
        """Find other hosts, without those that plugins refuse."""
        profile = self._cache.quota.plugin_profile(damaged.admission.queue)
        hooks = self._hooks.get(profile, NO_HOOKS)
        pod_sets = without_refused(snapshot, damaged.admission, damaged.pod_sets, hooks)
        return replace_hosts(snapshot, replace(damaged, pod_sets=pod_sets))

    async def _write_hosts(self, lost: DamagedWorkload, found: HostsReplaced, charge: Charge | None) -> None:
        """Write the new hosts, unless the workload has changed since the decision."""
        key = lost.damaged.key

        def change(obj: wire.Workload) -> status.Patch | None:
            return host_status.replace_hosts(obj, found.assignments) if lost.same(obj) else None

        written = await self._writes.commit(key, change, doing="its failed hosts were being replaced")
        if charge is not None:
            charge.confirm(written)
        self._tries.drop(key)
        if found.stays:
            self._observer.hosts_not_replaced(written, message=found.stays)
        _log.info(
            "failed hosts are replaced",
            workload=key,
            hosts=[node.name for node in lost.obj.status.unhealthy_nodes],
            pod_sets=sorted(found.assignments),
            stays=found.stays,
        )

    async def _give_up(self, lost: DamagedWorkload, found: HostsNotReplaced) -> None:
        """Evict the workload, or try again later if the obstacle may pass or failing fast is off."""
        key = lost.damaged.key
        if found.may_pass or not self._fail_fast:
            _log.info("failed hosts are not replaced yet", workload=key, message=found.message)
            self._tries.failed(key)
            self._observer.hosts_not_replaced(lost.obj, message=found.message)
            return
        hosts = ", ".join(node.name for node in lost.obj.status.unhealthy_nodes)
        message = f"No replacement for the pods on failed nodes {hosts}: {found.message}"

        def change(obj: wire.Workload) -> status.Patch | None:
            if not lost.same(obj):
                return None
            stamp = status.Stamp(self._clock.now())
            return status.evict(obj, reason=names.REASON_NODE_FAILURES, message=message, stamp=stamp)

        written = await self._writes.try_write(key, change, what="the eviction")
        if written is None:
            self._tries.try_again(key)
            return
        self._tries.drop(key)
        _log.info("workload evicted", workload=key, reason=names.REASON_NODE_FAILURES, message=message)
        self._observer.hosts_not_replaced(written, message=message)
