"""Answers what other quotas, priorities or nodes would change, on a copy of the whole state.

The planner decides about every waiting workload twice, in the order of cycles: on the present state and on the changed
one.  The differences are the answer.  Nothing is written.

    POST whatifs     {"spec": {"quotas": [...], "drains": [...], "addNodes": [...], "priorities": [...]}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import msgspec

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import what_if as api
from kqueue.core.decision import Admit, Preempt, Wait
from kqueue.core.fair_share import dominant_share
from kqueue.core.planned_state import PlannedState
from kqueue.core.quantity import format_quantity, parse_quantity
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.spares import Spare
from kqueue.core.topology.result import Path
from kqueue.core.why import PlanSequence, PolicyChange, changed, drained_workloads, has_domain, nodes_like
from kqueue.core.workload import Admitted, Head, Snapshot
from kqueue.documents import TooMuchError, check_json
from kqueue.errors import ConfigError, InvalidObjectError
from kqueue.model.pending import Pending
from kqueue.visibility.explained import Audience
from kqueue.visibility.pacing import PlanningBudget, QuestionTurns, RequestPace, stepped
from kqueue.visibility.params import only
from kqueue.visibility.placements import never
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.question import JSON, AuthorizedQuestion

_PLAN_SECONDS = 1.5
"""Limit of the planner's own time for each of the two states."""
_LISTED = 100
"""Workloads of each list that are shown; the others are counted."""
_QUEUES_LISTED = 200
_STEP = 500
_FIELDS = {"nominalQuota": "nominal", "borrowingLimit": "borrowing_limit", "lendingLimit": "lending_limit"}
_STARTS = ("Now", "AfterPreemption")
_decode = msgspec.json.Decoder(api.WhatIfQuestion).decode


@dataclass(slots=True, kw_only=True)
class _Line:
    """The workloads that a ClusterQueue tries, the first one first."""

    queue: str
    items: list[tuple[Pending, wire.Workload]]
    is_strict: bool


@dataclass(slots=True, kw_only=True)
class _Verdict:
    """The decision about one workload."""

    key: str
    queue: str
    start: str
    message: str = ""
    victims: tuple[Admitted, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """The decisions about all waiting workloads in one state."""

    verdicts: dict[str, _Verdict] = field(default_factory=dict)
    planned: int = 0
    of: int = 0
    queues: dict[str, JSON] = field(default_factory=dict)
    """Use and share of each ClusterQueue afterwards."""

    def start(self, key: str) -> str:
        """Return how the workload starts; empty: it was not planned."""
        found = self.verdicts.get(key)
        return found.start if found is not None else ""

    def victims(self) -> dict[str, tuple[Admitted, _Verdict]]:
        """Return the workloads that would be preempted, with the verdict on their preemptor."""
        return {victim.key: (victim, verdict) for verdict in self.verdicts.values() for victim in verdict.victims}


class WhatIfView:
    """The view `whatifs`, to which a question is posted."""

    def __init__(self, prospects: Prospects, *, plan_seconds: float = _PLAN_SECONDS) -> None:
        """`plan_seconds` bounds the planner's time for each of the two states."""
        self._prospects, self._clock, self._plan_seconds = prospects, prospects.clock, plan_seconds
        self._turns = QuestionTurns()

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the WhatIf of the changes in the body of the question.

        Raises:
            ConfigError: the question cannot be read, or names something that does not exist.
            TooManyRequestsError: the user has another question of this kind.
        """
        only(asked.params, "fieldManager", "fieldValidation")
        spec = _read(asked)
        with self._turns.place_of(asked.user):
            async with self._turns.turn():
                return await self._answer(asked, spec)

    async def _answer(self, asked: AuthorizedQuestion, spec: api.WhatIfSpec) -> JSON:
        prospects, known = self._prospects, self._prospects.known
        budget = PlanningBudget(self._clock, self._plan_seconds)
        queues = {name for name in known.queues.names() if known.cache.quota.inactive(name) is None}
        lines = [await self._line(queue, budget) for queue in sorted(queues)]
        uids = {obj.metadata.uid for line in lines for _, obj in line.items}
        world = await prospects.world(queues, uids, budget.pace, with_holders=True)
        as_of = prospects.as_of()
        change = self._change(spec, world)
        await budget.pace.step()
        drained: list[Admitted] = []
        for workload in drained_workloads(world, change.drained):
            if workload is None:
                await budget.pace.step()
            else:
                drained.append(workload)
        after_world = await stepped(changed(world, change, queues, drained), budget.pace)
        before = await self._outcome(world, lines, queues, {})
        prioritised = self._prioritised(spec)
        again = [await self._with_drained(line, drained) for line in lines]
        after = await self._outcome(after_world, again, queues, prioritised)
        found = await _compared(before, after, drained, budget.pace)
        audience = await _audience(asked, drained, found)
        return {
            "kind": api.KIND,
            "metadata": {},
            "asOf": as_of,
            **_differences(found, after, drained, audience),
            "queues": _queues(world.snapshot, after_world.snapshot, before, after),
            **_finished(before, after),
        }

    # --- the changes -------------------------------------------------------------------------------------------------

    def _change(self, spec: api.WhatIfSpec, world: PlannedState) -> PolicyChange:
        drained = frozenset(_path(drain) for drain in spec.drains)
        for drain in spec.drains:
            if not has_domain(world.snapshot, _path(drain)):
                raise ConfigError(f"spec.drains: no topology has the domain {drain!r}; kqueue topology prints them")
        quotas: dict[str, dict[FlavorResource, Quota]] = {}
        for setting in spec.quotas:
            _set(setting, world.snapshot, quotas)
        added = tuple(spare for n, nodes in enumerate(spec.add_nodes) for spare in _added(n, nodes, world.snapshot))
        priorities: dict[str, int] = {}
        values = {setting.name: setting.value for setting in spec.priorities}
        for workload in world.holders if values else ():
            obj = self._prospects.known.workloads.get(workload.key)
            value = values.get(_class_of(obj)) if obj is not None else None
            if value is not None:
                priorities[workload.key] = value
        return PolicyChange(quotas=quotas, drained=drained, added=added, priorities=priorities)

    def _prioritised(self, spec: api.WhatIfSpec) -> Mapping[str, int]:
        return {setting.name: setting.value for setting in spec.priorities}

    # --- the lines ---------------------------------------------------------------------------------------------------

    async def _line(self, queue: str, budget: PlanningBudget) -> _Line:
        """Return the workloads that wait in a ClusterQueue and that a cycle would try, in order."""
        known, ranked = self._prospects.known, list[tuple[object, Pending]]()
        for number, item in enumerate(known.queues.waiting(queue)):
            if number % _STEP == 0:
                await budget.pace.step()
            if not known.queues.knows(queue):
                return _Line(queue=queue, items=[], is_strict=False)  # it was deleted meanwhile
            ranked.append((known.queues.rank(queue, item), item))
        ranked.sort(key=itemgetter(0))
        items: list[tuple[Pending, wire.Workload]] = []
        for number, (_, item) in enumerate(ranked):
            obj = known.workloads.get(item.key)
            if obj is not None and not any(True for _ in self._prospects.held_back(obj)):
                items.append((item, obj))
            if number % 100 == 0:
                await budget.pace.step()
        is_strict = known.queues.knows(queue) and known.queues.is_strict(queue)
        return _Line(queue=queue, items=items, is_strict=is_strict)

    async def _with_drained(self, line: _Line, drained: Sequence[Admitted]) -> _Line:
        """Return a line with workloads that had to leave, at the places that they would get."""
        known, found = self._prospects.known, list(line.items)
        for workload in drained:
            obj = known.workloads.get(workload.key)
            if workload.queue == line.queue and obj is not None:
                found.append((self._prospects.pending(obj), obj))
        if len(found) == len(line.items) or not known.queues.knows(line.queue):
            return line
        found.sort(key=lambda entry: known.queues.rank(line.queue, entry[0]))
        return replace(line, items=found)

    async def _outcome(
        self, world: PlannedState, lines: Sequence[_Line], queues: set[str], priorities: Mapping[str, int]
    ) -> _Outcome:
        """Decide about all workloads of the lines, in turns as cycles do.

        Behind one that waits, those of its ClusterQueue with the same shape wait, too; in a StrictFIFO one, all.
        """
        budget = PlanningBudget(self._clock, self._plan_seconds)
        sequence, found = PlanSequence(world, world.copied(queues)), _Outcome()
        found.of = sum(len(line.items) for line in lines)
        waited: dict[tuple[str, str], _Verdict] = {}
        since = self._clock.monotonic()
        for line, item, obj in _turns(lines, priorities):
            if not budget.is_left:
                break
            shape = (line.queue, "" if line.is_strict else item.shape)
            known = waited.get(shape)
            if known is not None:
                behind = "behind one that waits in a StrictFIFO queue" if line.is_strict else known.message
                start = "Later" if line.is_strict else known.start
                found.verdicts[item.key] = _Verdict(key=item.key, queue=line.queue, start=start, message=behind)
            else:
                verdict = self._verdict(sequence, line, item, obj, priorities)
                found.verdicts[item.key] = verdict
                if verdict.start not in _STARTS:
                    waited[shape] = verdict
            found.planned += 1
            since = await budget.step(since)
        found.queues = {name: _use(sequence.snapshot.nodes[name]) for name in queues if name in world.snapshot.nodes}
        return found

    def _verdict(
        self,
        sequence: PlanSequence,
        line: _Line,
        item: Pending,
        obj: wire.Workload,
        priorities: Mapping[str, int],
    ) -> _Verdict:
        try:
            head = self._head(line, item, obj, priorities)
        except InvalidObjectError as e:
            return _Verdict(key=item.key, queue=line.queue, start="Never", message=str(e))
        match sequence.decide(head):
            case Admit():
                return _Verdict(key=item.key, queue=line.queue, start="Now")
            case Preempt(targets=targets):
                victims = tuple(target.admitted for target in targets)
                return _Verdict(key=item.key, queue=line.queue, start="AfterPreemption", victims=victims)
            case Wait(blockers=blockers) as wait:
                start = "Never" if never(blockers) else "Later"
                return _Verdict(key=item.key, queue=line.queue, start=start, message=wait.message)

    def _head(self, line: _Line, item: Pending, obj: wire.Workload, priorities: Mapping[str, int]) -> Head:
        planning, now = self._prospects.planning, self._clock.now()
        head = planning.heads.make(obj, item, queue=line.queue, now=now)
        value = priorities.get(_class_of(obj))
        return head if value is None else replace(head, priority=value)


def _class_of(obj: wire.Workload) -> str:
    """Return the WorkloadPriorityClass of a Workload; empty: it has none."""
    named = obj.spec.priority_class_ref
    return named.name if named is not None and named.kind == names.WORKLOAD_PRIORITY_CLASS_KIND else ""


def _turns(lines: Sequence[_Line], priorities: Mapping[str, int]) -> Iterator[tuple[_Line, Pending, wire.Workload]]:
    """Yield all workloads in the order in which cycles try them: of each ClusterQueue the first ones, then the second
    ones and so on; in one turn the higher priority first, then the older one.
    """
    entries: list[tuple[_Line, list[tuple[int, Pending, wire.Workload]]]] = []
    for line in lines:
        found = [
            (priorities.get(_class_of(obj), item.priority) if priorities else item.priority, item, obj)
            for item, obj in line.items
        ]
        if priorities:
            found.sort(key=lambda entry: -entry[0])  # a stable sort: equal ones keep their order
        entries.append((line, found))
    for turn in range(max((len(found) for _, found in entries), default=0)):
        heads = [(line, *found[turn]) for line, found in entries if turn < len(found)]
        heads.sort(key=lambda head: (-head[1], head[2].timestamp, head[2].key))
        yield from ((line, item, obj) for line, _, item, obj in heads)


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(asked: AuthorizedQuestion) -> api.WhatIfSpec:
    try:
        check_json(asked.body)
        spec = _decode(asked.body).spec
    except (msgspec.DecodeError, TooMuchError, RecursionError, UnicodeDecodeError) as e:
        raise ConfigError(f"the question cannot be read; send a {api.KIND} with a spec: {e}") from e
    changes = len(spec.quotas) + len(spec.drains) + len(spec.add_nodes) + len(spec.priorities)
    if not 1 <= changes <= api.MOST_CHANGES:
        raise ConfigError(f"spec has {changes} changes; a question has 1 to {api.MOST_CHANGES}")
    nodes = sum(added.count for added in spec.add_nodes)
    if nodes > api.MOST_NODES or any(added.count < 1 for added in spec.add_nodes):
        raise ConfigError(f"spec.addNodes: each count must be at least 1, and all together at most {api.MOST_NODES}")
    return spec


def _path(domain: str) -> Path:
    return tuple(part for part in domain.split("/") if part)


def _added(number: int, added: api.AddedNodes, snapshot: Snapshot) -> Iterator[Spare]:
    fresh = [f"{added.like}-added-{number}-{i}" for i in range(added.count)]
    found = nodes_like(snapshot, added.like, _path(added.domain), fresh)
    if not found:
        raise ConfigError(
            f"spec.addNodes[{number}]: no topology has node {added.like!r} with domains as {added.domain!r}; give the "
            "path of the level above the hosts, as kqueue topology prints it"
        )
    yield from found


def _set(setting: api.QuotaSetting, snapshot: Snapshot, quotas: dict[str, dict[FlavorResource, Quota]]) -> None:
    """Add a setting to `quotas`.

    Raises:
        ConfigError: there is no such queue, column, field or amount.
    """
    node, what = snapshot.nodes.get(setting.cluster_queue), f"clusterqueue/{setting.cluster_queue}"
    if node is None:
        raise ConfigError(f"{what}: there is no ClusterQueue of this name that admits")
    columns = {f"{column.flavor}.{column.resource}": column for column in node.quotas}
    column = columns.get(setting.column)
    if column is None:
        raise ConfigError(f"{what}: has no quota {setting.column!r}; it has {', '.join(sorted(columns)) or 'none'}")
    field_ = _FIELDS.get(setting.field)
    if field_ is None:
        raise ConfigError(f"{what}: {setting.field!r} must be one of {', '.join(_FIELDS)}")
    try:
        amount = parse_quantity(setting.value, column.resource)
    except ValueError as e:
        raise ConfigError(f"{what}.{setting.column}: {e}") from e
    if amount < 0:
        raise ConfigError(f"{what}.{setting.column}: {setting.value} is negative; an amount is 0 or more")
    of_queue = quotas.setdefault(setting.cluster_queue, {})
    quota = of_queue.get(column, node.quota(column))
    of_queue[column] = replace(quota, **{field_: amount})


# --- the answer ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Changed:
    """The workloads whose fate differs: lists of what is shown, and their whole lengths."""

    counts: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, list[_Verdict]] = field(default_factory=dict)
    victims: list[tuple[Admitted, _Verdict]] = field(default_factory=list)

    def count(self, name: str, verdict: _Verdict) -> None:
        """Add a verdict to a list."""
        self.counts[name] += 1
        if len(self.verdicts[name]) < _LISTED:
            self.verdicts[name].append(verdict)


_LISTS = ("starts", "startsNoLonger", "neverStarts")


async def _compared(before: _Outcome, after: _Outcome, drained: Sequence[Admitted], pace: RequestPace) -> _Changed:
    """Return the workloads whose fate differs."""
    found = _Changed(dict.fromkeys(_LISTS, 0), {name: [] for name in _LISTS})
    left = {workload.key for workload in drained}
    for number, (key, verdict) in enumerate(after.verdicts.items()):
        if number % _STEP == 0:
            await pace.step()
        old = before.start(key)
        if verdict.start == "Never" and old != "Never":
            found.count("neverStarts", verdict)
        if key in left or not old:
            continue
        if verdict.start in _STARTS and old not in _STARTS:
            found.count("starts", verdict)
        elif verdict.start not in _STARTS and old in _STARTS:
            found.count("startsNoLonger", verdict)
    await pace.step()
    known = before.victims()
    found.victims = [entry for key, entry in after.victims().items() if key not in known]
    found.counts["evicted"] = len(drained) + len(found.victims)
    return found


async def _audience(asked: AuthorizedQuestion, drained: Sequence[Admitted], found: _Changed) -> Audience:
    keys = [workload.key for workload in drained[:_LISTED]]
    keys += [verdict.key for some in found.verdicts.values() for verdict in some]
    keys += [key for victim, verdict in found.victims[:_LISTED] for key in (victim.key, verdict.key)]
    readable: set[str] = set()
    for namespace in sorted({key.partition("/")[0] for key in keys}):
        if await asked.reads(namespace):
            readable.add(namespace)
    return Audience(readable)


def _differences(found: _Changed, after: _Outcome, drained: Sequence[Admitted], audience: Audience) -> JSON:
    evicted = [_drained(workload, after, audience) for workload in drained[:_LISTED]]
    evicted += [
        audience.workload(victim, reason="Preempted", by=_named(verdict, audience))
        for victim, verdict in found.victims[: _LISTED - len(evicted)]
    ]
    lists = {name: [_named(verdict, audience) for verdict in found.verdicts[name]] for name in _LISTS}
    return {"counts": found.counts, **lists, "evicted": evicted}


def _drained(workload: Admitted, after: _Outcome, audience: Audience) -> JSON:
    """Return a workload of a drained domain, and when it would start again."""
    found = after.verdicts.get(workload.key)
    again = {"again": found.start, **({"message": found.message} if found.message else {})} if found else {}
    if found is not None and not audience.may_name(workload.key):
        again.pop("message", None)
    return audience.workload(workload, reason="Drained", **again)


def _named(verdict: _Verdict, audience: Audience) -> JSON:
    shown: JSON = {"clusterQueue": verdict.queue, "start": verdict.start}
    if not audience.may_name(verdict.key):
        return {**shown, "hidden": True}
    namespace, _, name = verdict.key.partition("/")
    shown = {"namespace": namespace, "name": name, **shown}
    if verdict.message:
        shown["message"] = verdict.message
    if verdict.victims:
        shown["preempts"] = len(verdict.victims)
    return shown


def _use(node: QuotaNode) -> JSON:
    return {"used": dict(node.usage), "share": dominant_share(node).weighted_share() if node.parent is not None else 0}


def _queues(now: Snapshot, later: Snapshot, before: _Outcome, after: _Outcome) -> list[JSON]:
    """Return quota, use and share of each ClusterQueue: now, and with and without the change once waiting workloads
    have started; those that differ most first.
    """
    found: list[tuple[int, JSON]] = []
    for name in sorted(after.queues):
        old, new = before.queues[name], after.queues[name]
        resources, differences = [], int(old["share"] != new["share"])
        for column in sorted(now.nodes[name].quotas):
            resource = column.resource
            amounts = {
                "nominal": now.nodes[name].quota(column).nominal,
                "nominalAfter": later.nodes[name].quota(column).nominal,
                "used": now.nodes[name].usage.get(column, 0),
                "usedWithout": old["used"].get(column, 0),
                "usedWith": new["used"].get(column, 0),
            }
            differences += (amounts["usedWithout"] != amounts["usedWith"]) + (
                amounts["nominal"] != amounts["nominalAfter"]
            )
            shown = {key: format_quantity(amount, resource) for key, amount in amounts.items()}
            resources.append({"flavor": column.flavor, "resource": resource, **shown})
        shares = {"shareWithout": old["share"], "shareWith": new["share"]}
        found.append((-differences, {"clusterQueue": name, **shares, "resources": resources}))
    return [one for _, one in sorted(found, key=lambda entry: entry[0])[:_QUEUES_LISTED]]


def _finished(before: _Outcome, after: _Outcome) -> JSON:
    if before.planned == before.of and after.planned == after.of:
        return {"finished": True}
    planned = (
        f"{before.planned} of {before.of} waiting workloads without the change, {after.planned} of {after.of} with it"
    )
    return {"finished": False, "message": f"not finished: the planner's time sufficed for {planned}"}
