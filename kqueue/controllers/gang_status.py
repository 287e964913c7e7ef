"""Writes the status of group objects, and records the events of their gangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqueue.api import names
from kqueue.clock import Clock
from kqueue.controllers.gang_records import GangRecords, make_gang_records
from kqueue.controllers.gang_room import GangRoom, RoomLook, make_gang_room
from kqueue.controllers.gathering import Gathering
from kqueue.controllers.group_events import GroupEvents, make_group_events
from kqueue.controllers.group_objects import GroupObjects
from kqueue.controllers.manager import Manager
from kqueue.controllers.namespace_queue import has_queue
from kqueue.controllers.pod_writes import watch_pods
from kqueue.controllers.raw import JSON, key_of, status_writer
from kqueue.controllers.status_pace import StatusPace
from kqueue.errors import ConflictError
from kqueue.jobs.fields import condition_of, mapping, objects, text
from kqueue.jobs.gang.dialect import Dialect
from kqueue.jobs.gang.overview import assigned_domains
from kqueue.jobs.gang.record import counts_of_gang, object_uid
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.status import dropped_fields, is_changed_by_others, status_patch
from kqueue.jobs.gang.value import Gang, GangCounts, GangPhase, GangRef, GangState
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.status_writer import StatusWriter

EVENT_SCHEDULED, EVENT_RUNNING, EVENT_FINISHED = "Scheduled", "Running", "Finished"
EVENT_QUORUM_CHANGED = "QuorumChanged"
EVENT_MEMBER_FAILED, EVENT_EXTRA_STARTED, EVENT_CONTESTED = "MemberFailed", "ExtraStarted", "StatusContested"
_NEXT = 0.05
_MOST_DOMAINS = 4
"""Domains that an event names."""
_CONTESTS, _WITHIN, _SILENT = 3, 60.0, 600.0
"""Changes of a status by others within so many seconds, after which kqueue leaves the status alone for so long."""


@dataclass(slots=True)
class _Memory:
    """The last write of one object's status, and the changes by others since."""

    uid: str
    phase: GangPhase | None = None
    """The phase of a gang whose status another controller owns."""
    written: dict[str, Any] = field(default_factory=dict)
    """Fields as kqueue wrote them; empty: none, or others have changed them and kqueue has noticed."""
    pace: StatusPace = field(default_factory=StatusPace)
    contests: list[float] = field(default_factory=list)
    silent_until: float = float("-inf")


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a gang with its group object."""

    dialect: Dialect
    resource: ResourceType
    obj: JSON
    gang: Gang
    counts: GangCounts
    workload: JSON | None
    occupant: str
    has_room: bool

    @property
    def status(self) -> Mapping[str, Any]:
        """The status of the object, as the watch has it."""
        return mapping(self.obj, "status")


class GangStatusReconciler:
    """Keeps the status of group objects; keys are keys of gangs.

    A change of the phase is written at once, other changes at the pace of `StatusPace`.  Its memory only
    saves writes and notices other writers: after a restart the status is computed again from the objects.
    """

    def __init__(
        self,
        records: GangRecords,
        *,
        client: Client,
        events: GroupEvents,
        clock: Clock,
        window: Callable[[], float],
        is_ours: Callable[[str, JSON], bool],
        room: GangRoom | None = None,
    ) -> None:
        """Take the parts; `is_ours(framework, obj)` returns whether a group object without members is in a queue of
        kqueue.  Without `room` no status says that there is room for pods.
        """
        self._room = room
        self._records, self._objects, self._client = records, records.gangs.objects, client
        self._events, self._clock, self._window, self._is_ours = events, clock, window, is_ours
        self._writers: dict[ResourceType, StatusWriter[JSON]] = {}
        self._dropped: dict[ResourceType, set[str]] = {}
        """Fields that the server does not keep, by kind and version."""
        self._memories: dict[str, _Memory] = {}
        self._news: dict[str, list[tuple[str, str, bool]]] = {}
        """Events on the group object that are not recorded yet: reason, message and whether it is a warning."""

    def observe(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        """Note members that fail, and extras that start."""
        if old is None or new is None or not GroupObjects.may_have(new.group):
            return
        if new.phase == "Failed" and old.phase != "Failed":
            self._note(new.group, EVENT_MEMBER_FAILED, f"pod {new.name} failed: {_failure(new)}", warning=True)
        if new.extra and old.gated and not new.gated:
            self._note(new.group, EVENT_EXTRA_STARTED, f"pod {new.name} runs beyond the quorum", warning=False)

    def _note(self, key: str, reason: str, message: str, *, warning: bool) -> None:
        self._news.setdefault(key, []).append((reason, message, warning))

    async def reconcile(self, key: str) -> Result:
        """Write the status of one group object if it differs from the wanted one."""
        ref = GangRef.of_key(key)
        members = self._records.members(key)
        await self._records.occupants.learn(key, members)
        holder = self._records.occupation(key, members).holder
        obj, resource, gang = self._objects.get(ref), self._objects.resource(ref), self._records.of(key)
        news = self._news.pop(key, [])
        if obj is None or resource is None or gang is None:
            self._memories.pop(key, None)
            return Result()
        workload, dialect = self._records.workload(key), dialect_of(ref.framework)
        if dialect.makes_workloads or not (gang.members or workload is not None or self._is_ours(ref.framework, obj)):
            return Result()
        self._tell_other_quorum(obj, gang)
        memory = self._memory(key, obj)
        before = dialect.phase(obj) if dialect.writes_status else memory.phase
        counts = counts_of_gang(gang, workload, before=before)
        room = self._room.look(gang, obj, workload) if self._room is not None else RoomLook()
        occupant = holder.uid if holder is not None else ""
        look = _Look(dialect, resource, obj, gang, counts, workload, occupant, room.found)
        for reason, message, warning in news:
            left = f"; {counts.present} of {len(gang.members)} are left" if reason == EVENT_MEMBER_FAILED else ""
            self._event(obj, reason, message + left, warning=warning)
        result = await self._write(look, memory) if dialect.writes_status else self._follow(look, memory)
        return Result(requeue_after=room.again) if result.requeue_after is None else result

    def _memory(self, key: str, obj: JSON) -> _Memory:
        found = self._memories.get(key)
        if found is None or found.uid != object_uid(obj):
            found = self._memories[key] = _Memory(object_uid(obj))
        return found

    def _follow(self, look: _Look, memory: _Memory) -> Result:
        """Record events of a gang whose status another controller owns; its first phase is no event."""
        before, memory.phase = memory.phase, look.counts.phase
        if before is not None:
            if memory.phase is not before:
                self._report(look)
                return Result(requeue_after=_NEXT)  # the next phase on the way may follow at once
            return Result()
        while memory.phase is not before:
            before, memory.phase = memory.phase, self._phase_after(look, memory.phase)
        return Result()

    @staticmethod
    def _phase_after(look: _Look, before: GangPhase) -> GangPhase:
        return counts_of_gang(look.gang, look.workload, before=before).phase

    # --- the status

    async def _write(self, look: _Look, memory: _Memory) -> Result:
        now, gang = self._clock.monotonic(), look.gang
        if self._is_contested(look, memory, now):
            return Result(requeue_after=memory.silent_until - now)
        patch = self._patch(look, look.status)
        if not patch:
            return Result()
        left = memory.pace.left(now, self._window())
        if left > 0 and "phase" not in patch:
            return Result(requeue_after=left)

        def change(newest: JSON) -> JSON | None:
            if object_uid(newest) != gang.uid or look.dialect.phase(newest) != look.dialect.phase(look.obj):
                return None  # the watch will bring the newer object, and the phase is computed from it
            found = self._patch(look, mapping(newest, "status"))
            return {"status": found} if found else None

        try:
            answer = await self._writer(look.resource).write(key_of(look.obj), change)
        except ConflictError:
            return Result(requeue_after=self._window())
        if answer is None:
            return Result()
        self._dropped.setdefault(look.resource, set()).update(dropped_fields(patch, answer))
        status = mapping(answer, "status")
        memory.pace.note(now, self._window(), state="phase" in patch)
        memory.written = {name: status.get(name) for name in patch | memory.written}
        if look.dialect.phase(look.obj) is not look.counts.phase:
            self._report(look)
        return Result()

    def _patch(self, look: _Look, status: Mapping[str, Any]) -> JSON:
        state = GangState(
            gang=look.gang,
            counts=look.counts,
            workload=look.workload,
            status=status,
            has_room=look.has_room,
            occupant=look.occupant,
            now=self._clock.now(),
        )
        return status_patch(look.dialect.report(state), status, dropped=self._dropped.get(look.resource, ()))

    def _writer(self, resource: ResourceType) -> StatusWriter[JSON]:
        store = self._objects.store(resource)
        assert store is not None, "the object was found in the store"
        if resource not in self._writers:
            self._writers[resource] = status_writer(self._client, resource, store)
        return self._writers[resource]

    def _is_contested(self, look: _Look, memory: _Memory, now: float) -> bool:
        """Whether kqueue leaves the status to another writer for now; count the changes of others."""
        if now < memory.silent_until:
            return True
        newest = self._writer(look.resource).newest(key_of(look.obj))
        status, dropped = mapping(newest, "status"), self._dropped.get(look.resource, ())
        if not memory.written or not is_changed_by_others(memory.written, status, ignored=dropped):
            return False
        memory.written = {}
        memory.contests = [*(at for at in memory.contests if at > now - _WITHIN), now]
        if len(memory.contests) < _CONTESTS:
            return False
        memory.contests, memory.silent_until = [], now + _SILENT
        message = "another controller writes this status; let only one of them manage the group"
        self._event(look.obj, EVENT_CONTESTED, message, warning=True)
        return True

    # --- events

    def _report(self, look: _Look) -> None:
        """Record the event of a new phase."""
        counts, workload, quorum = look.counts, look.workload, look.gang.quorum
        if counts.phase is GangPhase.SCHEDULING:
            queue = text(workload, "status", "admission", "clusterQueue")
            message = f"{quorum} pods were released together by ClusterQueue {queue}"
            self._event(look.obj, EVENT_SCHEDULED, f"{message}{_where(workload)}")
        elif counts.phase is GangPhase.RUNNING:
            message = f"{counts.running} of {counts.present} pods run; the quorum is {quorum}"
            self._event(look.obj, EVENT_RUNNING, message)
        elif counts.phase is GangPhase.FINISHED:
            self._event(look.obj, EVENT_FINISHED, f"{counts.succeeded} pods succeeded")
        elif counts.phase is GangPhase.PENDING:
            evicted = condition_of(workload, names.CONDITION_EVICTED, "True")
            if evicted:
                self._event(look.obj, text(evicted, "reason"), text(evicted, "message"), warning=True)

    def _tell_other_quorum(self, obj: JSON, gang: Gang) -> None:
        """Tell that a quorum which differs from the admitted one counts later."""
        wish = gang.wish
        if wish is not None and gang.is_admitted and wish.quorum != gang.quorum:
            message = f"{wish.quorum_field} {wish.quorum} counts from the next admission on"
            self._events.tell(obj, reason=EVENT_QUORUM_CHANGED, message=message)

    def _event(self, obj: JSON, reason: str, message: str, *, warning: bool = False) -> None:
        self._events.record(obj, reason=reason, message=message, warning=warning)


def _where(workload: JSON | None) -> str:
    """Return the domains of the pods for a message; empty: none are assigned."""
    domains = assigned_domains(workload)
    shown = [f"{one['domain']} ({one['pods']})" for one in domains[:_MOST_DOMAINS]]
    more = [f"{len(domains) - _MOST_DOMAINS} more"] if len(domains) > _MOST_DOMAINS else []
    return f"; domains: {', '.join([*shown, *more])}" if shown else ""


def _failure(pod: ManagedPod) -> str:
    """Return why a pod failed: its reason, that of a container, or its message."""
    status = mapping(pod.obj, "status")
    ended = (mapping(container, "state", "terminated") for container in objects(status, "containerStatuses"))
    reasons = (text(state, "reason") for state in ended if state.get("exitCode"))
    words = (text(status, "reason"), *reasons, text(status, "message"))
    return next((word for word in words if word), "its containers ended with an error")


def setup(manager: Manager) -> None:
    """Add the reconciler, where a dialect with group objects is on."""
    watch, records = manager.shared(watch_pods), manager.shared(make_gang_records)
    if watch is None or records is None:
        return
    watches = manager.watches
    timings = manager.timings
    reconciler = GangStatusReconciler(
        records,
        client=manager.client,
        events=manager.shared(make_group_events),
        clock=manager.clock,
        window=lambda: timings.status_refresh_loaded if manager.is_loaded() else timings.status_refresh_window,
        is_ours=lambda framework, obj: has_queue(manager, framework, obj),
        room=make_gang_room(manager),
    )
    controller = manager.controller("gang_status", reconciler.reconcile, workers=4)
    gathering = Gathering(controller.enqueue, manager.clock)

    def add(key: str) -> None:
        if GroupObjects.may_have(key):
            gathering.add(key)

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        reconciler.observe(old, new)
        for pod in filter(None, (old, new)):
            add(pod.group)

    def on_object(key: str) -> None:
        add(key)

    def on_workload(old: Any, new: Any) -> None:
        workload = new if new is not None else old
        for key in records.gangs.gang_of(workload):
            add(key)

    watch.subscribe(on_pod)
    records.gangs.objects.subscribe(on_object)
    watches.workloads.subscribe(on_workload)
