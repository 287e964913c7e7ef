"""Plans for worlds with custom kinds, and the actor that carries them out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

from kqueue.api import names
from kqueue.errors import ForbiddenError, InvalidError
from kqueue.sandbox.api import PODS, GroupVersionResource, Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.custom import (
    ENDLESS,
    FIRST,
    KINDS,
    RUNTIMES,
    adapter_of,
    kind_of,
    made,
    resource_of,
    runtime,
    selector_of,
)
from tests.sim.invariants import is_over
from tests.sim.kinds_plan import KindsDraft
from tests.sim.objects import NAMESPACE
from tests.sim.plan import GPU_QUEUES, Actions, Draft, End, Plan
from tests.sim.reading import Breaches, Invariant, holds
from tests.sim.world import World, is_true, owner_of


class CustomDraft(KindsDraft):
    """A plan for a world with custom kinds of one sort."""

    def __init__(self, seed: int | str, which: Sequence[str] = FIRST) -> None:
        super().__init__(seed)
        self.which = tuple(which)

    def custom(self, *, endless: bool = False) -> None:
        """Submit an object of a custom kind that ends, or only when it is deleted."""
        c, gpus = self.chance, self.chance.choice((1, 2, 4, 8))
        topology = c.choice((RACK_LABEL, RACK_LABEL, BLOCK_LABEL))
        seconds = 100_000 if endless else c.choice((1, 3, 10, 30))
        settings = {"queue": c.choice(GPU_QUEUES), "pods": c.randint(1, min(32 // gpus, 6)), "gpus": gpus}
        settings |= {"topology": topology, "run_seconds": seconds, "priority": c.choice(("", "", "high", "low"))}
        prefix = c.choice(self.which)
        ends = not endless and prefix not in ENDLESS
        self._made("submit_custom", prefix, End.COMPLETE if ends else End.GONE, **settings)


_ACTIONS: Actions = (
    (Draft.good_job, 6),
    (CustomDraft.custom, 30),
    (lambda d: d.custom(endless=True), 4),
    (Draft.hold, 4),
    (lambda d: d.add("resume"), 5),
    (Draft.quota, 3),
    (lambda d: d.delete_job(), 4),
    (lambda d: d.on_a_job("suspend_job"), 3),
    (lambda d: d.on_a_job("start_job_by_hand"), 3),
    (lambda d: d.on_a_job("delete_workload"), 3),
    (lambda d: d.add("wait"), 6),
    (lambda d: d.add("rest"), 2),
    (
        lambda d: d.add(
            "kill",
            at_write=d.chance.choice((0, 1, 1, 2, 3, 5)),
            after=d.chance.random() < 0.5,
            down=d.chance.choice((0, 3, 30)),
        ),
        8,
    ),
)


def draw_custom(seed: int | str, which: Sequence[str] = FIRST, *, steps: int = 40) -> Plan:
    """Return the plan of a seed."""
    return CustomDraft(f"{seed}/custom", which).draw(steps, _ACTIONS)


def custom_objects(world: World) -> list[tuple[str, Object]]:
    """Return all objects of custom kinds, each with its name."""
    found = [o for kind in KINDS.values() for o in world.api.every(resource_of(kind))]
    return [(o["metadata"]["name"], o) for o in found if kind_of(o["metadata"]["name"]) is not None and not owner_of(o)]


def custom_objects_run_exactly_when_admitted(world: World) -> Breaches:
    """An object that has not ended is suspended and without pods unless its Workload is admitted."""
    for name, obj in custom_objects(world):
        kind = kind_of(name)
        assert kind is not None
        adapter, workload = adapter_of(kind), world.workload_of(name)
        if adapter.finished(obj) is not None or obj["metadata"].get("deletionTimestamp"):
            continue
        admitted = workload is not None and holds(workload) and not is_true(workload, names.CONDITION_EVICTED)
        if admitted == adapter.is_suspended(obj):
            yield f"{name} is {'' if admitted else 'not '}admitted and {'' if admitted else 'not '}suspended"
        if not admitted and (left := [p["metadata"]["name"] for p in pods_of(world, obj) if not is_over(p)]):
            yield f"{name} has pods without being admitted: {left}"


def pods_of(world: World, obj: Object) -> list[Object]:
    """Return the pods of a custom object."""
    return world.api.list(PODS, namespace=NAMESPACE, labels=selector_of(obj["metadata"]["name"], obj))


def custom_pods_have_quota(world: World) -> Breaches:
    """A running pod belongs to an object with quota, except objects that users started by hand."""
    for name, obj in custom_objects(world):
        workload = world.workload_of(name)
        if name in world.let_out or (workload is not None and holds(workload)):
            continue
        for pod in pods_of(world, obj):
            if (pod.get("status") or {}).get("phase") == "Running":
                yield f"pod {pod['metadata']['name']} runs and {name} holds no quota"


class CustomActor(Actor):
    """One plan on a world with custom kinds."""

    always: ClassVar[tuple[Invariant, ...]] = (*invariants.ALWAYS, custom_pods_have_quota)
    at_rest: ClassVar[tuple[Invariant, ...]] = (*invariants.AT_REST, custom_objects_run_exactly_when_admitted)
    named = "custom"

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan)
        self.submitted: dict[str, Object] = {}
        """The specs that users wrote."""

    async def submit_custom(self, name: str, **settings: Any) -> None:
        """A user creates an object of a custom kind."""
        obj = made(name, **settings)
        self.submitted[name] = obj["spec"]
        if name.startswith("trainjob"):
            about = {key: settings[key] for key in ("gpus", "topology", "run_seconds")}
            kind = GroupVersionResource(RUNTIMES.group, RUNTIMES.version, RUNTIMES.plural)
            await self.world.api.create(kind, runtime(name, **about))
        try:
            await self.world.api.create(self._resource(name), obj, namespace=NAMESPACE)
        except (ForbiddenError, InvalidError) as e:
            self.world.refused[name] = str(e)

    async def delete_job(self, name: str) -> None:
        """A user deletes an object of any kind."""
        if kind_of(name) is None:
            await super().delete_job(name)
            return
        if self.world.find(self._resource(name), name) is not None:
            await self.world.api.delete(self._resource(name), name, namespace=NAMESPACE)

    async def suspend_job(self, name: str) -> None:
        """A user suspends an object, in any state."""
        await self._flag(name, suspend=True)

    async def start_job_by_hand(self, name: str) -> None:
        """A user un-suspends an object without admission."""
        self.world.let_out.add(name)
        await self._flag(name, suspend=False)

    async def repair(self) -> None:
        for name, end in self.plan.ends.items():
            if end is End.GONE and kind_of(name) is not None:
                await self.delete_job(name)
        await super().repair()

    def _resource(self, name: str) -> GroupVersionResource:
        kind = kind_of(name)
        assert kind is not None
        return resource_of(kind)

    async def _flag(self, name: str, *, suspend: bool) -> None:
        kind = kind_of(name)
        if kind is None:
            await (super().suspend_job(name) if suspend else super().start_job_by_hand(name))
            return
        self.world.disturbed.add(name)
        patch: Any = suspend
        for step in reversed(adapter_of(kind).held_by.split(".")):
            patch = {step: patch}
        with contextlib.suppress(ForbiddenError):
            await self._patch(resource_of(kind), name, patch)

    def _end(self, name: str) -> End:
        kind = kind_of(name)
        if kind is None:
            return super()._end(name)
        found = self.world.find(resource_of(kind), name)
        if found is None:
            return End.GONE
        ended = adapter_of(kind).finished(found)
        if ended is None:
            return End.WAITING
        return End.COMPLETE if ended.success else End.FAILED
