"""Carries out a plan of gangs; the simulated user creates lost members again until the quorum has succeeded."""

from __future__ import annotations

import contextlib
from typing import Any

from kqueue.api import gang_names, names
from kqueue.controllers.gang_status import EVENT_CONTESTED
from kqueue.errors import AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError
from kqueue.sandbox.api import EVENTS, PODS, Object
from tests.sim import gang_invariants
from tests.sim.gang_forms import FORMS, BatchGroup, LabelledGroup, ObjectGroup
from tests.sim.gangs import base_workload, is_gated
from tests.sim.invariants import is_over
from tests.sim.kinds import BATCHES, base_of, group_object_of, group_of, is_extra
from tests.sim.kinds_actor import KindsActor, members_of
from tests.sim.objects import NAMESPACE, WORKLOADS
from tests.sim.plan import End, Step
from tests.sim.world import is_true

SILENT_SECONDS = 700
"""Seconds after which kqueue writes a status again that others had gone on writing."""


_MOST = 6
"""Members that start together for which every queue has room once everything is repaired."""


class GangActor(KindsActor):
    """One plan of gangs on one world."""

    always, at_rest = gang_invariants.ALWAYS, gang_invariants.AT_REST
    at_any_moment = gang_invariants.AT_ANY_MOMENT
    named = "gangs"

    async def _do(self, step: Step) -> None:
        self._disturb()
        await super()._do(step)
        self._disturb()

    def _disturb(self) -> None:
        """Positions of gangs and their extras follow from the age of pods, which users delete and create."""
        for workload in self.world.objects(WORKLOADS):
            if base_of(workload) or (workload["metadata"].get("annotations") or {}).get(gang_names.GANG_ANNOTATION):
                self.world.disturbed.add(gang_invariants.name_in_order(workload))

    # --- what there is

    def _end_of_group(self, name: str) -> End:
        """Return the end of the quorum once no member beyond it is left over, too."""
        if isinstance(self.means.groups[name], BatchGroup):
            return self._end_of_batch(name)
        end = super()._end_of_group(name)
        base = base_workload(self.world, name)
        if end is not End.GONE and self._object_is_missing(name):
            return End.WAITING
        if self._object_has_ended(name) or (end is End.GONE and is_true(base, names.CONDITION_FINISHED)):
            return End.COMPLETE  # the pods may have gone with their nodes, and a user may have deleted the Workload
        if not isinstance(self.means.groups[name], LabelledGroup):
            return end
        if base is None and self._has_ended(name):
            return self._end_of_later_run(name)
        return End.WAITING if end is End.COMPLETE and self._open(name) else end

    def _open(self, name: str) -> list[Object]:
        return [each for each in self.members(name) if not is_over(each)]

    def _end_of_later_run(self, name: str) -> End:
        """Return the end of a gang that has succeeded and lost its Workload; members that a user has created since make
        another run only if they are as many as the quorum.
        """
        waits = [each for each in self._open(name) if is_gated(each) and not is_extra(each)]
        too_few = len(waits) < self.means.groups[name].starts
        return End.COMPLETE if too_few and len(waits) == len(self._open(name)) else End.WAITING

    def _end_of_batch(self, name: str) -> End:
        found = self.world.find(BATCHES, name)
        if found is None:
            return End.GONE
        ends = [end for kind, end in (("Complete", End.COMPLETE), ("Failed", End.FAILED)) if is_true(found, kind)]
        return ends[0] if ends else End.WAITING

    def _object_is_missing(self, name: str) -> bool:
        """Whether the group object of a gang was deleted, and its user has not created it again yet."""
        return isinstance(self.means.groups[name], ObjectGroup) and group_object_of(self.world, name) is None

    def members(self, group: str) -> list[Object]:
        """Return all pods of a group, without those that an earlier group object of its name has started."""
        return [each for each in members_of(self.world, group) if not self._is_of_earlier_object(each)]

    def _is_of_earlier_object(self, pod: Object) -> bool:
        started = (pod["metadata"].get("annotations") or {}).get(names.WORKLOAD_ANNOTATION, "")
        owner = self.world.history.started_for(started) if started else ""
        found = group_object_of(self.world, group_of(pod))
        return bool(owner) and found is not None and owner != found["metadata"]["uid"]

    async def _complete(self, name: str) -> None:
        """Create lost members again; where others have succeeded beyond the quorum, one more in a lost member's place."""
        gang = self.means.groups[name]
        if isinstance(gang, BatchGroup):
            return
        if isinstance(gang, ObjectGroup) and gang.complete:
            await self._create_object(name)
        if isinstance(gang, LabelledGroup) and self._has_ended(name):
            return
        await super()._complete(name)
        waits = is_true(base_workload(self.world, name), names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
        if gang.complete and waits and all(is_over(each) for each in self.members(name)):
            await self._create(PODS, name, gang.member(name, 0))

    def _why(self, name: str) -> str:
        """Return the members of a gang and its Workload, for a failing test."""
        if name not in self.means.groups:
            return super()._why(name)
        pods = [
            (pod["metadata"]["name"], pod["status"].get("phase"), is_extra(pod), "deletionTimestamp" in pod["metadata"])
            for pod in self.members(name)
        ]
        base = base_workload(self.world, name)
        return f" (members {pods}, Workload {base and base['status'].get('conditions')})"

    # --- what users do

    async def submit_gang(
        self,
        name: str,
        *,
        roles: tuple[int, ...],
        quorum: int,
        ranked: bool,
        body: dict[str, Any],
        odd: dict[str, str] | None = None,
        refused: str | None = None,
        form: str = "labels",
        late: bool = False,
    ) -> None:
        """A user creates the members of a gang; the last one has (`odd`) other labels, or first a `refused` quorum.

        `form`: a key of `FORMS`.  `late`: the group object is created after the members.
        """
        complete = quorum <= len(roles) and (odd is None or names.QUEUE_NAME_LABEL not in odd)
        gang = FORMS[form](roles=roles, quorum=quorum, ranked=ranked, body=body, complete=complete)
        self.means.groups[name] = gang
        if isinstance(gang, ObjectGroup) and not late:
            await self._create_object(name)
        for number in range(len(roles)) if form != "batch" else ():
            last = number == len(roles) - 1
            if last and refused is not None:
                wrong = gang.member(name, number, **{gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: refused})
                await self._create(PODS, name, wrong)
                assert name in self.world.refused, f"a quorum of {refused!r} was accepted"
            await self._create(PODS, name, gang.member(name, number, **(odd or {}) if last else {}))
        if late:
            await self._create_object(name)

    async def _create_object(self, name: str) -> None:
        gang = self.means.groups[name]
        assert isinstance(gang, ObjectGroup)
        with contextlib.suppress(AlreadyExistsError):
            await self._create(gang.resource, name, gang.group_object(name))

    async def _delete_object(self, name: str) -> None:
        gang = self.means.groups[name]
        assert isinstance(gang, ObjectGroup)
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(gang.resource, name, namespace=NAMESPACE)

    async def delete_job(self, name: str) -> None:
        """A user deletes an object of any kind; of a gang its members, its Workload, and its group object."""
        gang = self.means.groups.get(name)
        if isinstance(gang, BatchGroup):
            await self._delete_object(name)
            return
        await super().delete_job(name)
        for each in members_of(self.world, name):  # those of earlier group objects, too
            await self._delete_pod(each["metadata"]["name"])
        if isinstance(gang, ObjectGroup):
            await self._delete_object(name)

    async def renew_object(self, name: str, *, at_once: bool) -> None:
        """A user deletes the PodGroup of a gang that has not ended, and creates it again, at once or later."""
        gang = self.means.groups.get(name)
        if isinstance(gang, ObjectGroup) and not isinstance(gang, BatchGroup) and not self._has_ended(name):
            await self._delete_object(name)
            if at_once:
                await self._create_object(name)

    async def change_quorum(self, name: str, share: float) -> None:
        """A user changes the quorum in a group object; while quota is held that of a BatchProcess stays."""
        gang = self.means.groups.get(name)
        if not isinstance(gang, ObjectGroup) or self._has_ended(name):
            return
        before, gang.quorum = gang.quorum, max(1, round(share * min(len(gang.roles), _MOST)))
        try:
            found = group_object_of(self.world, name)
            if found is not None:
                await self.world.api.patch(gang.resource, name, {"spec": gang.spec()}, namespace=NAMESPACE)
        except (ForbiddenError, InvalidError):
            assert isinstance(gang, BatchGroup)
            gang.quorum = before

    async def suspend_batch(self, name: str, *, suspend: bool) -> None:
        """A user suspends a BatchProcess, or resumes it."""
        if isinstance(self.means.groups.get(name), BatchGroup):
            await self._patch(BATCHES, name, {"spec": {"suspend": suspend}})

    async def write_status(self, name: str, phase: str, times: int) -> None:
        """Another controller writes the status of a group object, some `times` in turn with kqueue."""
        gang = self.means.groups.get(name)
        if not isinstance(gang, ObjectGroup):
            return
        for _ in range(times):
            status: Object = {"phase": phase, "running": 99}
            if not isinstance(gang, BatchGroup):
                status["conditions"] = []
            await self._patch(gang.resource, name, {"status": status}, subresource="status")
            if times > 1:
                await self.world.pass_time(3)

    async def repair(self) -> None:
        """Undo what keeps gangs from running, and wait until no status is contested any more."""
        for name, gang in self.means.groups.items():
            if isinstance(gang, BatchGroup):
                await self.suspend_batch(name, suspend=False)
        await super().repair()
        if any(event["reason"] == EVENT_CONTESTED for event in self.world.objects(EVENTS)):
            await self.world.pass_time(SILENT_SECONDS)

    async def mend_gang(self, name: str) -> None:
        """Delete members in another queue, and create missing members from now on."""
        gang = self.means.groups[name]
        assert isinstance(gang, LabelledGroup)
        for each in self.members(name):
            if each["metadata"]["labels"][names.QUEUE_NAME_LABEL] != gang.body["queue"]:
                await self._delete_pod(each["metadata"]["name"])
        gang.roles = (*gang.roles, *gang.roles[:1] * max(0, gang.quorum - len(gang.roles)))
        gang.complete = True
        await self._complete(name)

    async def deactivate(self, name: str) -> None:
        """An administrator deactivates the Workload of a gang."""
        found = base_workload(self.world, name)
        if found is not None and not is_true(found, names.CONDITION_FINISHED):
            await self._patch(WORKLOADS, found["metadata"]["name"], {"spec": {"active": False}})

    async def add_excess(self, name: str) -> None:
        """A user creates one member more than planned, also after the deletion of a finished Workload."""
        if isinstance(self.means.groups[name], BatchGroup):
            return
        if not is_true(base_workload(self.world, name), names.CONDITION_FINISHED) and not self._object_has_ended(name):
            await super().add_excess(name)

    def _has_ended(self, name: str) -> bool:
        """Whether the quorum of a gang has succeeded; after that its user may have deleted the Workload."""
        base = base_workload(self.world, name)
        succeeded = sum(each["status"].get("phase") == "Succeeded" for each in self.members(name))
        gone = base is None and succeeded >= self.means.groups[name].starts
        return gone or is_true(base, names.CONDITION_FINISHED) or self._object_has_ended(name)

    def _object_has_ended(self, name: str) -> bool:
        """Whether the gang has a group object that shows its end, so that it takes no more members."""
        status = (group_object_of(self.world, name) or {}).get("status") or {}
        return status.get("phase") in ("Finished", "Completed")

    async def take_gate(self, name: str) -> None:
        """A user removes the admission gate of a waiting member, of the quorum or beyond it."""
        self.world.let_out.update(each["metadata"]["name"] for each in self.members(name) if is_extra(each))
        await super().take_gate(name)
