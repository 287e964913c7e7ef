"""The steps of a drain.  Each finds out how far an earlier call has come, so that any call may be cut short.

Reservation ──► plan of moves ──► from its begin on: nodes without workloads are cordoned ──► the domain is empty
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqueue.clock import Clock, api_time, utc_text
from kqueue.controllers.resources import RESERVATIONS
from kqueue.errors import ConfigError, ForbiddenError, KqueueError, NotFoundError
from kqueue.operations.defrag import storing
from kqueue.operations.defrag.reading import read_objects, state_of
from kqueue.operations.drain.nodes import cordon, cordoned, uncordon
from kqueue.operations.drain.survey import DrainSurvey, survey
from kqueue.operations.drain.target import LASTS, DrainTarget, drain_of, is_of, reservation_object, target_of
from kqueue.operations.grants import RESERVATION_EDITOR, needs
from kqueue.runtime.client import Client
from kqueue.state.defrag.view import DefragState

JSON = dict[str, Any]
_FIRST_LOOK, _LAST_LOOK, _GROWTH = 2.0, 30.0, 1.5
"""Seconds between two looks at a drain: they grow while nothing changes, because each look reads all objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainWish:
    """The wish of the caller; of a field that is None or empty the present value stays.

    Args:
        domain: the path of the domain; `topology` its Topology.
        by: when the domain is to be free.
        until: when the drain ends.
        queue: the ClusterQueue that may use the domain.
        cordons: whether nodes are cordoned.
        moves: whether the plan of moves is approved.
    """

    domain: str
    topology: str = ""
    by: datetime | None = None
    until: datetime | None = None
    queue: str = ""
    cordons: bool = True
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainState:
    """How far a drain is.

    Args:
        reservation: the Reservation as it is stored.
        plan: the name of the open DefragmentationPlan for the domain; empty: there is none.
        proposed: whether that plan waits for an approval.
        cordoned: the nodes of the domain that are cordoned.
        remarks: what could not be done, and the remedy.
    """

    target: DrainTarget
    reservation: JSON
    survey: DrainSurvey
    plan: str = ""
    proposed: bool = False
    cordoned: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no workload of others runs there, and its time has begun."""
        return not self.survey.workloads

    def has_begun(self, now: datetime) -> bool:
        """Whether the domain is to be free by now."""
        begins = api_time(self.reservation["spec"]["from"])
        return begins is not None and begins <= now

    def is_done(self, now: datetime, *, cordons: bool) -> bool:
        """Whether nothing is left to do."""
        missing = cordons and not self.cordoned.issuperset(self.survey.nodes)
        return self.has_begun(now) and self.is_empty and not missing

    def as_json(self) -> JSON:
        """Return the state as a command prints it."""
        return {
            "reservation": self.reservation,
            "nodes": list(self.survey.nodes),
            "cordoned": sorted(self.cordoned),
            "workloads": [one.as_json() for one in self.survey.workloads],
            "plan": self.plan or None,
            "remarks": list(self.remarks),
        }


async def drain(client: Client, wish: DrainWish, clock: Clock) -> DrainState:
    """Reserve the domain, store a plan of moves, and cordon what is empty once the drain has begun.

    Raises:
        ConfigError: the wish contradicts itself, or the domain cannot be reserved.
        NotFoundError: there is no such domain.
        ApiError: a request failed; a further call goes on from there.
    """
    now = clock.now()
    state = state_of(await read_objects(client), now)
    target = target_of(state.cache, wish.domain, wish.topology)
    with needs(RESERVATION_EDITOR):
        stored = await client.list_json(RESERVATIONS)
    found = next((obj for obj in stored if obj["metadata"]["name"] == target.name), None)
    others = [obj for obj in stored if obj is not found]
    if wish.queue and wish.queue not in state.cache.quota.queues:
        raise NotFoundError(f"--for: there is no ClusterQueue {wish.queue}; kqueue list clusterqueue has the names")
    if found is not None and not is_of(found, target):
        raise ConfigError(f"Reservation {target.name} exists, and is about another domain: delete it, and drain again")
    wanted = _wanted(target, found, wish, now)
    told = survey(state, target, wanted, others)
    if told.problem:
        raise ConfigError(f"{target} cannot be reserved: {told.problem}")
    reservation = await _reserve(client, found, wanted)
    remarks = list(state.remarks)
    plan, proposed = await _plan(client, target, told, now, remarks, approves=wish.moves)
    marked: set[str] = set()
    try:
        if not wish.cordons:
            pass
        elif _cordons_at(reservation, now):
            await cordon(client, told.empty, target.name)
            marked = await cordoned(client, told.nodes)
        elif found is not None:
            freed = await uncordon(client, target.name, _heir(state, target, others, now))
            if freed:
                remarks.append(f"uncordoned, because the drain asks for no cordons now: {', '.join(freed)}")
    except ForbiddenError as e:
        remarks.append(f"nodes are not cordoned: {e}")
    return DrainState(
        target=target,
        reservation=reservation,
        survey=told,
        plan=plan,
        proposed=proposed,
        cordoned=frozenset(marked),
        remarks=tuple(dict.fromkeys(remarks)),
    )


async def wait(
    client: Client, wish: DrainWish, clock: Clock, *, limit: float, on_change: Callable[[DrainState], None]
) -> DrainState:
    """Drain until the domain is empty and its nodes are cordoned, for `limit` seconds at most.

    `on_change` is called with the first state, and with each that differs.  The last one is returned.
    """
    end = clock.monotonic() + limit
    before: tuple[Any, ...] | None = None
    pause = _FIRST_LOOK
    while True:
        found = await drain(client, wish, clock)
        now = clock.now()
        present = (found.survey.fates, found.cordoned, found.has_begun(now), found.plan)
        if present != before:
            on_change(found)
            before, pause = present, _FIRST_LOOK
        cordons = wish.cordons and not found.reservation["spec"].get("clusterQueue")
        left = end - clock.monotonic()
        if found.is_done(now, cordons=cordons) or left <= 0:
            return found
        await clock.sleep(min(pause, left))
        pause = min(_LAST_LOOK, pause * _GROWTH)


async def undo(client: Client, domain: str, topology: str, clock: Clock) -> tuple[DrainTarget, list[str], bool]:
    """End a drain: uncordon the nodes that it has cordoned, and delete its Reservation.

    Returns the domain, the nodes that were uncordoned, and whether there was a Reservation.  Raises as `drain`.
    """
    state: DefragState = state_of(await read_objects(client), clock.now())
    target = target_of(state.cache, domain, topology)
    with needs(RESERVATION_EDITOR):
        others = await client.list_json(RESERVATIONS)
    nodes = await uncordon(client, target.name, _heir(state, target, others, state.now))
    with needs(RESERVATION_EDITOR):
        try:
            stored = await client.get_json(RESERVATIONS, target.name)
            await client.delete(RESERVATIONS, target.name, uid=stored["metadata"].get("uid"))
        except NotFoundError:
            return target, nodes, False
    return target, nodes, True


def _cordons_at(reservation: JSON, now: datetime) -> bool:
    """Whether a drain cordons nodes at a time: it is for maintenance, has begun, and has not ended."""
    spec = reservation.get("spec") or {}
    begins, ends = api_time(spec.get("from")), api_time(spec.get("to"))
    return begins is not None and ends is not None and begins <= now < ends and not spec.get("clusterQueue")


def _heir(state: DefragState, target: DrainTarget, others: Iterable[JSON], now: datetime) -> Callable[[JSON], str]:
    """Return a function from a node to the name of another drain that cordons it now; empty: there is none."""
    found = [drain_of(other) for other in others if _cordons_at(other, now)]
    drains = [one for one in found if one is not None and one != target]
    topologies = state.cache.quota.topologies()

    def heir(node: JSON) -> str:
        labels = node["metadata"].get("labels") or {}
        for one in drains:
            path = tuple(labels.get(level, "") for level in topologies.get(one.topology, ()))
            if path[: len(one.domain)] == one.domain:
                return one.name
        return ""

    return heir


def _wanted(target: DrainTarget, found: JSON | None, wish: DrainWish, now: datetime) -> JSON:
    """Return the Reservation that is to be: what the wish leaves out stays as it is.  Raises ConfigError."""
    spec = (found or {}).get("spec") or {}
    ended = (api_time(spec.get("to")) or now) <= now
    begins = wish.by or (api_time(spec.get("from")) if not ended else None) or now
    ends = wish.until or (api_time(spec.get("to")) if not ended else None) or begins + LASTS
    queue = wish.queue or (str(spec.get("clusterQueue") or "") if not ended else "")
    if ends <= begins:
        raise ConfigError(f"the drain would end at {utc_text(ends)}, and begin at {utc_text(begins)}: set --until")
    if ends <= now:
        raise ConfigError(f"--until {utc_text(ends)} is over")
    made = reservation_object(target, begins, ends, queue)
    return {**found, "spec": {**spec, **made["spec"]}} if found is not None else made


async def _reserve(client: Client, found: JSON | None, wanted: JSON) -> JSON:
    with needs(RESERVATION_EDITOR):
        if found is None:
            return await client.create(RESERVATIONS, wanted)
        if found.get("spec") == wanted["spec"]:
            return found
        version = {"resourceVersion": found["metadata"].get("resourceVersion")}
        return await client.patch(
            RESERVATIONS, wanted["metadata"]["name"], {"metadata": version, "spec": wanted["spec"]}
        )


async def _plan(
    client: Client, target: DrainTarget, told: DrainSurvey, now: datetime, remarks: list[str], *, approves: bool
) -> tuple[str, bool]:
    """Store the plan of moves, unless an open one for the domain exists.

    Returns its name (empty: there is none), and whether it waits for an approval.
    """
    try:
        existing = await storing.plans(client)
        mine = [one for one in existing if tuple((one.get("status") or {}).get("domain") or ()) == target.domain]
        open_ones = [one for one in mine if storing.phase_of(one, now) in ("Proposed", "Approved", "Running")]
        if open_ones:
            plan = open_ones[0]
        elif told.plan is not None:
            plan = await storing.save(client, told.plan)
        else:
            return "", False
        name = str(plan["metadata"]["name"])
        proposed = storing.phase_of(plan, now) == "Proposed"
        if approves and proposed:
            await storing.approve(client, name, "", now)
        return name, proposed and not approves
    except KqueueError as e:
        remarks.append(f"no plan of moves is stored: {e}")
        return "", False
