"""Carries out a plan of all kinds.

Pods have no controller that would create them again, so the simulated user does: it recreates lost pods of each group
when a step, or the end of a plan, demands it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from kqueue.api import names
from kqueue.errors import AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox.api import DEPLOYMENTS, JOB_SETS, JOBS, PODS, STATEFUL_SETS, GroupVersionResource, Object
from tests.sim import kinds_invariants
from tests.sim.actor import Actor, BrokenWorldError
from tests.sim.invariants import is_over
from tests.sim.kinds import Group, gang_of_workload, group_of, job_set, pod, serving, workload_of_group
from tests.sim.objects import GPU, NAMESPACE, WORKLOADS
from tests.sim.plan import End, Plan, Step
from tests.sim.reading import Invariant
from tests.sim.world import World, condition, is_true

_GLANCE_SECONDS = 2.0
_FAIL_AT_ONCE = {
    "metadata": {"annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: "0", sandbox_names.FAIL_ANNOTATION: "true"}}
}


@dataclass(slots=True)
class _Means:
    """The objects that the users of a world want."""

    pods: dict[str, Object] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)


class KindsActor(Actor):
    """One plan of all kinds on one world."""

    always, at_rest = kinds_invariants.ALWAYS, kinds_invariants.AT_REST
    at_any_moment: ClassVar[tuple[Invariant, ...]] = kinds_invariants.AT_ANY_MOMENT
    """Invariants that are checked every few seconds."""
    named = "kinds"

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan)
        self.means = _Means()

    async def _do(self, step: Step) -> None:
        """Do a step with an additional check in between, because pods end within seconds."""
        await super()._do(replace(step, seconds=0))
        left = step.seconds
        while left > 0:
            await self.world.pass_time(min(left, _GLANCE_SECONDS))
            left -= _GLANCE_SECONDS
            self.check(self.at_any_moment)

    # --- what there is

    def _resource_of(self, name: str) -> GroupVersionResource:
        return next(
            (kind for kind in (JOB_SETS, DEPLOYMENTS, STATEFUL_SETS, PODS) if self.world.find(kind, name)), JOBS
        )

    def members(self, group: str) -> list[Object]:
        """Return all pods of a group, sorted by name."""
        return members_of(self.world, group)

    def _end(self, name: str) -> End:
        if name in self.means.groups:
            return self._end_of_group(name)
        kind = self._resource_of(name)
        found = self.world.find(kind, name)
        if found is None or kind == JOBS:
            return super()._end(name)
        if is_true(found, "Completed"):
            return End.COMPLETE
        phase = (found.get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            return End.COMPLETE if phase == "Succeeded" else End.FAILED
        return End.FAILED if is_true(found, "Failed") else End.WAITING

    def _end_of_group(self, name: str) -> End:
        """Return the end in the group's Workload, because succeeded pods may be deleted with their node.

        After the end a user may delete the Workload: then the pods tell it.
        """
        pods = self.members(name)
        if not pods:
            return End.GONE
        wanted, workload = self.means.groups[name].starts, workload_of_group(self.world, name)
        if workload is None:
            succeeded = [not _is_lost(each) and each["status"].get("phase") == "Succeeded" for each in pods]
            return End.COMPLETE if all(succeeded) and len(pods) >= wanted else End.WAITING
        finished = condition(workload, names.CONDITION_FINISHED)
        complete = finished is not None and self.means.groups[name].is_whole(finished["message"])
        return End.COMPLETE if complete else End.WAITING

    async def repair(self) -> None:
        for name in self.plan.ends:
            if name.startswith("server"):
                await self.delete_job(name)
        await super().repair()

    async def end(self) -> None:
        await super().end()
        found = list(kinds_invariants.left_of(self.world, [n for n, end in self.plan.ends.items() if end is End.GONE]))
        if found:
            raise BrokenWorldError(self._replay(found))

    async def restore(self) -> None:
        """Restore as in other worlds, and recreate lost pods."""
        await super().restore()
        await self.give_back_pods()
        for name in self.means.groups:
            if self.plan.ends[name] is End.GONE and self.members(name):
                await self._delete_workload_of(name)  # it may have been made when its pods were going already

    # --- what users do

    async def _create(self, resource: GroupVersionResource, name: str, obj: Object) -> None:
        try:
            await self.world.api.create(resource, obj, namespace=NAMESPACE)
        except (ForbiddenError, InvalidError) as e:
            self.world.refused[name] = str(e)

    async def submit_job_set(self, name: str, **settings: Any) -> None:
        """A user creates a JobSet."""
        await self._create(JOB_SETS, name, job_set(name, **settings))

    async def submit_pod(self, name: str, **settings: Any) -> None:
        """A user creates a pod."""
        self.means.pods[name] = pod(name, **settings)
        await self._create(PODS, name, pod(name, **settings))

    async def submit_group(
        self,
        name: str,
        *,
        roles: tuple[int, ...],
        ranked: bool,
        fast: bool,
        body: dict[str, Any],
        missing: int = 0,
        odd: Object | None = None,
    ) -> None:
        """A user creates the pods of a group; some are `missing`, or (`odd`) the last one contradicts the others."""
        group = Group(roles=roles, ranked=ranked, fast=fast, body=body, complete=not missing and odd is None)
        self.means.groups[name] = group
        for number in range(len(roles) - missing):
            obj = group.member(name, number)
            if odd is not None and number == len(roles) - 1:
                for where, changed in odd.items():
                    obj["metadata"][where] |= changed
            await self._create(PODS, name, obj)

    async def mend_group(self, name: str) -> None:
        """Delete pods that contradict the others, and create the group's missing pods from now on."""
        group = self.means.groups[name]
        meant = group.member(name, 0)["metadata"]
        total = names.POD_GROUP_TOTAL_COUNT_ANNOTATION
        for each in self.members(name):
            meta = each["metadata"]
            queues = {found["labels"][names.QUEUE_NAME_LABEL] for found in (meta, meant)}
            if len(queues) > 1 or meta["annotations"][total] != meant["annotations"][total]:
                await self._delete_pod(meta["name"])
        group.complete = True
        await self._complete(name)

    async def give_back_pods(self) -> None:
        """Recreate pods that were evicted or lost, or have failed."""
        for name, obj in self.means.pods.items():
            found = self.world.find(PODS, name)
            if found is None:
                with contextlib.suppress(AlreadyExistsError):
                    await self._create(PODS, name, obj)
            elif found["status"].get("phase") == "Failed" and self.plan.ends[name] is not End.FAILED:
                await self._delete_pod(name)
        for name in self.means.groups:
            await self._complete(name)

    async def _complete(self, name: str) -> None:
        group = self.means.groups[name]
        if not group.complete or is_true(workload_of_group(self.world, name), names.CONDITION_FINISHED):
            return
        there = [each for each in self.members(name) if not _is_lost(each)]
        parts = Counter(each["metadata"]["labels"]["part"] for each in there)
        playing = Counter(_gpus_of(each) for each in there)
        wanted = Counter(group.roles)
        for number, gpus in sorted(enumerate(group.roles), key=lambda entry: parts[str(entry[0])]):
            if playing[gpus] < wanted[gpus]:
                playing[gpus] += 1
                await self._create(PODS, name, group.member(name, number))

    async def serve(self, name: str, kind: str, **settings: Any) -> None:
        """A user creates a Deployment or StatefulSet."""
        resource = DEPLOYMENTS if kind == "Deployment" else STATEFUL_SETS
        await self._create(resource, name, serving(kind, name, **settings))

    async def scale(self, name: str, replicas: int) -> None:
        """A user changes the number of replicas."""
        self.world.disturbed.add(name)
        self.world.disturb_all()
        with contextlib.suppress(ForbiddenError):
            await self._patch(self._resource_of(name), name, {"spec": {"replicas": replicas}})

    async def delete_job(self, name: str) -> None:
        """A user deletes an object of any kind."""
        self.means.pods.pop(name, None)
        if name in self.means.groups:
            self.means.groups[name].complete = False
            for each in self.members(name):
                await self._delete_pod(each["metadata"]["name"])
            await self._delete_workload_of(name)  # while there is one its pods are held for those that replace them
            return
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(self._resource_of(name), name, namespace=NAMESPACE)

    async def _delete_pod(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(PODS, name, namespace=NAMESPACE)

    async def suspend_job(self, name: str) -> None:
        """A user suspends an object, if its kind can be suspended."""
        await self._suspend(name, suspend=True)

    async def start_job_by_hand(self, name: str) -> None:
        """A user un-suspends an object without admission."""
        await self._suspend(name, suspend=False)

    async def _suspend(self, name: str, *, suspend: bool) -> None:
        self.world.disturbed.add(name)
        if not suspend:
            self.world.let_out.add(name)
        kind = self._resource_of(name)
        if kind in (JOBS, JOB_SETS):
            with contextlib.suppress(ForbiddenError):
                await self._patch(kind, name, {"spec": {"suspend": suspend}})

    async def delete_workload(self, name: str) -> None:
        """A user deletes the object's Workload, or one of several."""
        self.world.disturbed.add(name)
        found = [
            w
            for w in self.world.objects(WORKLOADS)
            if name in (_first_owner(w), w["metadata"]["name"], gang_of_workload(w))
        ]
        for workload in found[:1]:
            await self._delete_workload(workload["metadata"]["name"])

    async def _delete_workload_of(self, group: str) -> None:
        found = workload_of_group(self.world, group)
        if found is not None:
            await self._delete_workload(found["metadata"]["name"])

    async def _delete_workload(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(WORKLOADS, name, namespace=NAMESPACE)

    def _member(self, group: str, number: int) -> str | None:
        self.world.disturbed.add(group)
        there = [each["metadata"]["name"] for each in self.members(group) if not is_over(each)]
        return there[number % len(there)] if there else None

    async def lose_member(self, name: str, number: int) -> None:
        """Another client deletes a pod of a group."""
        found = self._member(name, number)
        if found is not None:
            await self._delete_pod(found)

    async def lose_pod(self, name: str) -> None:
        """Another client deletes a single pod; its user creates it again."""
        self.world.disturbed.add(name)
        await self._delete_pod(name)

    async def fail_member(self, name: str, number: int) -> None:
        """A pod of a group fails as soon as it runs."""
        found = self._member(name, number)
        if found is not None:
            await self._patch(PODS, found, _FAIL_AT_ONCE)

    async def add_excess(self, name: str) -> None:
        """A user creates one pod more than the group's size."""
        if self.members(name):
            self.world.disturbed.add(name)
            await self._create(PODS, name, self.means.groups[name].member(name, 0))

    async def take_gate(self, name: str) -> None:
        """A user removes the admission gate of a waiting pod."""
        self.world.disturbed.add(name)
        self.world.let_out.add(name)
        found = self.world.find(PODS, (self._member(name, 0) or "") if name in self.means.groups else name)
        if found is not None:
            left = [gate for gate in found["spec"].get("schedulingGates") or () if gate["name"] != names.ADMISSION_GATE]
            await self._patch(PODS, found["metadata"]["name"], {"spec": {"schedulingGates": left}})


def members_of(world: World, group: str) -> list[Object]:
    """All pods of a group, in the order of their names."""
    return [each for each in world.objects(PODS) if group_of(each) == group]


def _is_lost(pod: Object) -> bool:
    """Whether a pod failed, is being deleted before its success, or succeeded only because of its deletion."""
    if not pod["metadata"].get("deletionTimestamp"):
        return bool(pod["status"].get("phase") == "Failed")
    return pod["status"].get("phase") != "Succeeded" or is_true(pod, names.CONDITION_POD_TERMINATION_TARGET)


def _gpus_of(pod: Object) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"].get(GPU, 0))


def _first_owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or ()
    return str(owners[0]["name"]) if owners else ""
