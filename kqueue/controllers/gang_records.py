"""The records of gangs of a process: their group objects, members and Workloads put together, for status and views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.gang_crowd import MembersSeen, Need, need_of
from kqueue.controllers.gang_occupants import Occupants, make_occupants
from kqueue.controllers.gang_workloads import GangWorkloads, make_gang_workloads, started_by
from kqueue.controllers.manager import Manager
from kqueue.controllers.pod_writes import GROUP_INDEX, PodWrites, make_pod_writes, watch_pods
from kqueue.controllers.raw import JSON
from kqueue.controllers.topology_levels import watch_levels
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.controllers.workload_steps import as_json
from kqueue.jobs.gang.dialect import GangRules
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.match import counts_of
from kqueue.jobs.gang.members import in_order, parted, runnable, without
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.gang.occupants import Occupation
from kqueue.jobs.gang.record import gang_of
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import Gang, GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.registry import timeouts_for
from kqueue.runtime.store import Store


class GangRecords:
    """Makes records of gangs.  Its only memory is the first member of each gang, while the gang has members."""

    def __init__(
        self,
        *,
        pods: Store[ManagedPod],
        writes: PodWrites,
        gangs: GangWorkloads,
        book: WorkloadBook,
        rules: Callable[[], GangRules],
        clock: Clock,
        occupants: Occupants,
    ) -> None:
        self.gangs, self.occupants, self._pods, self._writes, self._book = gangs, occupants, pods, writes, book
        self.rules, self._clock = rules, clock
        self._first: dict[str, tuple[str, datetime]] = {}
        """UID and creation of the first member that was seen, by gang; not of Kueue's groups."""
        pods.subscribe(self._observe)

    def _observe(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            if ":" not in pod.group:
                continue
            if pod is new and pod.group not in self._first:
                self._first[pod.group] = pod.uid, pod.created
            if not self._pods.count_by_index(GROUP_INDEX, pod.group):
                self._first.pop(pod.group, None)

    def first(self, key: str) -> tuple[str, datetime] | None:
        """Return UID and creation of the first member that this process has seen; None: the gang has no members."""
        return self._first.get(key)

    def extras_of(self, workload: wire.Workload) -> int:
        """Return the number of present members beyond the quorum that a Workload counts: those that wait, and are not
        queued alone yet; 0 for a Workload of no gang with such members.
        """
        metadata = workload.metadata
        if gang_names.GANG_ANNOTATION not in metadata.annotations:
            return 0
        key = gang_of_workload(metadata.namespace, metadata.name, metadata.annotations)
        quorum = sum(pod_set.count for pod_set in workload.spec.pod_sets)
        if self._pods.count_by_index(GROUP_INDEX, key) <= quorum:
            return 0
        return max(0, self._writes.waiting(key) - quorum)

    def workload(self, key: str) -> JSON | None:
        """Return the Workload that counts the gang's base; None: there is none."""
        workload_key = self.gangs.key_of(key)
        found = self._book.newest(workload_key) if workload_key else None
        return as_json(found) if found is not None else None

    def look(self, key: str) -> MembersSeen:
        """Return the newest known versions of the members that decide, whatever owner they have."""
        return self._writes.look(key, partial(self._need, key))

    def _need(self, key: str, first: Sequence[ManagedPod]) -> Need:
        """Return the number of members that a gang starts together; `first` are some of them, in order."""
        obj, workload, ref = self.gangs.object_of(key), self.workload(key), GangRef.of_key(key)
        counts = counts_of(workload) if workload is not None else {}
        members, _ = parted(first)
        wish = dialect_of(ref.framework).spec(ref, obj, members, self.rules()) if members or obj is not None else None
        return need_of(wish, counts, total=members[0].total if members and is_of_kueue(key) else None)

    def members(self, key: str) -> Sequence[ManagedPod]:
        """Return the newest known versions of the members that decide, without those that an earlier group object of
        the name has started, and without pods of another owner than the occupant.
        """
        return self._of_present(key, self.look(key).members)

    def _of_present(self, key: str, found: Sequence[ManagedPod]) -> Sequence[ManagedPod]:
        for workload in self.gangs.earlier(key):
            found = without(found, started_by(workload, found))
        found = without(found, self.gangs.left_over(key, found))
        return without(found, self.occupation(key, found).refused)

    def occupation(self, key: str, members: Sequence[ManagedPod]) -> Occupation:
        """Return the occupant of the gang's group, and the members that are refused."""
        return self.occupants.of(key, in_order(members), self.gangs.object_of(key))

    def of(self, key: str) -> Gang | None:
        """Return the record of a gang; None: it has neither a group object nor a member nor a Workload."""
        ref, look = GangRef.of_key(key), self.look(key)
        members, unseen = self._of_present(key, look.members), look.unseen.counts
        obj, workload = self.gangs.object_of(key), self.workload(key)
        if obj is None and workload is None and not members:
            return None
        now, first = self._clock.now(), self._first.get(key)
        return gang_of(ref, obj, members, workload, self.rules(), now=now, first=first, unseen=unseen)

    def shortage(self, key: str) -> str:
        """Return how many members the gang needs and has, as a sentence."""
        gang = self.of(key)
        have = len(runnable(gang.members)) + gang.unseen.present if gang is not None else 0
        return f"{gang.quorum if gang is not None else 0} pods are needed, {have} are there"


def make_gang_records(manager: Manager) -> GangRecords | None:
    """Return the records of a process; None: no pods are queued."""
    watch, writes = manager.shared(watch_pods), manager.shared(make_pod_writes)
    if watch is None or writes is None:
        return None
    switches, timeouts = manager.switches, timeouts_for(manager.config)
    levels = manager.shared(watch_levels) if switches.topology else lambda: None
    return GangRecords(
        pods=watch.store,
        writes=writes,
        gangs=manager.shared(make_gang_workloads),
        book=manager.workload_writer,
        rules=lambda: GangRules(switches=switches, timeouts=timeouts, levels=levels()),
        clock=manager.clock,
        occupants=manager.shared(make_occupants),
    )
