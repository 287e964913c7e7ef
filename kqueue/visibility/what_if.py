"""Answers what other policy, priorities or nodes would change, on a copy of the whole state.

The planner decides about every waiting workload twice, in the order of cycles: on the present state and on the changed
one.  The differences are the answer.  Nothing is written.

    POST whatifs     {"spec": {"quotas": [...], "drains": [...], "ends": [...], "addNodes": [...],
                               "priorities": [...], "objects": [...], "when": false}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import what_if as api
from kqueue.core.future.question import StartQuestion
from kqueue.core.planned_state import PlannedState
from kqueue.core.quantity import parse_quantity
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.spares import Spare
from kqueue.core.topology.result import Path
from kqueue.core.why import PlanSequence, PolicyChange, changed, drained_workloads, has_domain, nodes_like
from kqueue.core.workload import Admitted, Head, Snapshot
from kqueue.documents import TooMuchError, check_json
from kqueue.errors import ConfigError
from kqueue.model.pending import Pending
from kqueue.state.quota_cache import QuotaCache
from kqueue.visibility.pacing import PlanningBudget, QuestionTurns, RequestPace, stepped
from kqueue.visibility.params import only
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.start_question import StartQuestions
from kqueue.visibility.start_times import NoAnswer
from kqueue.visibility.what_if_answer import (
    Leaving,
    WhatIfDecisions,
    audience_of,
    compared,
    shown_differences,
    shown_end,
    shown_queues,
    uses,
)
from kqueue.visibility.what_if_lines import TriedLine, class_of, prioritised, tried_line, with_returned
from kqueue.visibility.what_if_times import StartTimesOfStates, TimesCompared
from kqueue.visibility.what_if_turns import DecidedTurns
from kqueue.visibility.what_if_world import (
    ProposalReader,
    Side,
    active_queues,
    dissolve,
    proposed_side,
    stopped_workloads,
)

_PLAN_SECONDS = 1.5
"""Limit of the planner's own time for each of the two states."""
_FIELDS = {"nominalQuota": "nominal", "borrowingLimit": "borrowing_limit", "lendingLimit": "lending_limit"}
_decode = msgspec.json.Decoder(api.WhatIfQuestion).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfTimes:
    """What `spec.when` needs: the reader of questions, and what answers them."""

    questions: StartQuestions
    computer: StartTimesOfStates


class WhatIfView:
    """The view `whatifs`, to which a question is posted."""

    def __init__(
        self,
        prospects: Prospects,
        proposals: ProposalReader,
        *,
        times: WhatIfTimes | None = None,
        has_class: Callable[[str], bool] = lambda _name: True,
        plan_seconds: float = _PLAN_SECONDS,
    ) -> None:
        """`times` None: questions for start times are answered without; `has_class` says whether a
        WorkloadPriorityClass exists; `plan_seconds` bounds the planner's time for each of the two states.
        """
        self._prospects, self._clock, self._plan_seconds = prospects, prospects.clock, plan_seconds
        self._proposals, self._times, self._has_class = proposals, times, has_class
        self._turns = QuestionTurns()

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the WhatIf of the changes in the body of the question.

        Raises:
            ConfigError: the question cannot be read, names something that does not exist, or has an object that would
                be refused.
            TooManyRequestsError: the user has another question of this kind.
        """
        only(asked.params, "fieldManager", "fieldValidation")
        spec = _read(asked)
        with self._turns.place_of(asked.user):
            async with self._turns.turn():
                return await self._answer(asked, spec)

    async def _answer(self, asked: AuthorizedQuestion, spec: api.WhatIfSpec) -> JSON:
        prospects = self._prospects
        queues = len(prospects.known.cache.quota.queues) + len(spec.objects)
        if queues > api.MOST_QUEUES:
            raise ConfigError(f"there are {queues} ClusterQueues; a what-if is answered for up to {api.MOST_QUEUES}")
        budget = PlanningBudget(self._clock, self._plan_seconds)
        objects = await self._proposals.read(spec.objects)
        now = await self._now(budget.pace)
        as_of = prospects.as_of()
        side = await proposed_side(prospects.known, now, objects, self._proposals, budget.pace) if spec.objects else now
        change = await self._change(spec, side.world, budget.pace)
        leaving = [Leaving(workload=one, reason="Stopped") for one in stopped_workloads(now, objects)]
        ended = await self._ended(asked, spec, side.world)
        gone = {one.workload.key for one in leaving} | {workload.key for workload in ended}
        leaving += await self._drained(side.world, change, gone, budget.pace)
        read, side = side, await self._changed(side, change, leaving, ended, budget.pace)
        priorities = {setting.name: setting.value for setting in spec.priorities}
        before = await self._decided(now, {})
        after = await self._decided(side, priorities)
        found = await compared(before, after, leaving, budget.pace)
        times = await self._start_times(now, side, priorities, budget.pace) if spec.when else None
        if not spec.when:  # the child process that computes start times is sent differences to trees that it got before
            for one in (side, read):
                await dissolve(one.world.snapshot.nodes, now.world.snapshot.nodes, budget.pace)
        keys = [*found.keys(), *(times.keys() if isinstance(times, TimesCompared) else ())]
        audience = await audience_of(asked, keys)
        answer = {
            "kind": api.KIND,
            "metadata": {},
            "asOf": as_of,
            **shown_differences(found, after, audience),
            "queues": await shown_queues(before, after, budget.pace),
            **shown_end(before, after),
        }
        if isinstance(times, TimesCompared):
            answer["startTimes"] = times.shown(audience)
        elif times is not None:
            answer["startTimes"] = {"known": False, "message": times.message}
        # The memory of ten thousand ClusterQueues is given back in parts: all of it takes 25 ms.
        del found, before
        await budget.pace.step()
        del after
        await budget.pace.step()
        del read, change, leaving
        await budget.pace.step()
        del side
        await budget.pace.step()
        return answer

    async def _now(self, pace: RequestPace) -> Side:
        """Return the present side."""
        prospects, known = self._prospects, self._prospects.known
        active = await active_queues(known.cache.quota, pace)
        lines: dict[str, TriedLine] = {}
        for queue in (name for name in known.queues.names() if name in active):
            waiting, is_strict = known.queues.waiting(queue), known.queues.is_strict(queue)
            lines[queue] = await tried_line(known, queue, waiting, prospects.held_back, pace, is_strict=is_strict)
            await pace.step()
        uids: set[str] = set()
        for line in lines.values():
            uids.update(obj.metadata.uid for _, obj in line.items)
            await pace.step()
        world = await prospects.world(active, uids, pace, with_holders=True)
        await pace.step()
        queues = frozenset(world.snapshot.queues)
        return Side(world=world, queues=queues, lines={name: line for name, line in lines.items() if name in queues})

    # --- the changes -------------------------------------------------------------------------------------------------

    async def _change(self, spec: api.WhatIfSpec, world: PlannedState, pace: RequestPace) -> PolicyChange:
        drained = frozenset(_path(drain) for drain in spec.drains)
        for drain in spec.drains:
            if not has_domain(world, _path(drain)):
                raise ConfigError(f"spec.drains: no topology has the domain {drain!r}; kqueue topology prints them")
        quotas: dict[str, dict[FlavorResource, Quota]] = {}
        for setting in spec.quotas:
            _set(setting, world.snapshot, quotas)
        added: list[Spare] = []
        for number, nodes in enumerate(spec.add_nodes):
            added += _added(number, nodes, world.snapshot)
            await pace.step()
        priorities: dict[str, int] = {}
        for unknown in (setting.name for setting in spec.priorities if not self._has_class(setting.name)):
            raise ConfigError(
                f"spec.priorities: there is no WorkloadPriorityClass {unknown!r:.260}; kubectl get "
                "workloadpriorityclasses has the names"
            )
        values = {setting.name: setting.value for setting in spec.priorities}
        for workload in world.holders if values else ():
            obj = self._prospects.known.workloads.get(workload.key)
            value = values.get(class_of(obj)) if obj is not None else None
            if value is not None:
                priorities[workload.key] = value
            await pace.step()
        return PolicyChange(quotas=quotas, drained=drained, added=tuple(added), priorities=priorities)

    async def _drained(
        self, world: PlannedState, change: PolicyChange, gone: set[str], pace: RequestPace
    ) -> list[Leaving]:
        """Return the workloads of drained domains that are not gone for another reason."""
        found: list[Leaving] = []
        for workload in drained_workloads(world, change.drained):
            if workload is None:
                await pace.step()
            elif workload.key not in gone:
                found.append(Leaving(workload=workload, reason="Drained"))
        return found

    async def _ended(self, asked: AuthorizedQuestion, spec: api.WhatIfSpec, world: PlannedState) -> list[Admitted]:
        """Return the workloads that the question ends.

        Raises:
            ConfigError: one of them has no quota, or the user may not read its namespace; the message is the same.
        """
        held = {workload.key: workload for workload in world.holders} if spec.ends else {}
        found: dict[str, Admitted] = {}
        for key in spec.ends:
            may_read = await asked.reads(key.partition("/")[0])
            if not may_read or key not in held:
                raise ConfigError(
                    f"spec.ends: no workload {key!r:.200} that you may read has quota; give NAMESPACE/NAME of a "
                    "Workload, as kqueue list workload prints it"
                )
            found[key] = held[key]
        return list(found.values())

    async def _changed(
        self,
        side: Side,
        change: PolicyChange,
        leaving: Sequence[Leaving],
        ended: Sequence[Admitted],
        pace: RequestPace,
    ) -> Side:
        """Return the side after the changes; workloads that leave are in the lines again, and ended ones are not."""
        known, gone = self._prospects.known, [one.workload for one in leaving]
        world = await stepped(changed(side.world, change, side.queues, [*gone, *ended]), pace)
        left = {workload.key for workload in (*gone, *ended)}
        holders = [
            replace(one, priority=change.priorities[one.key]) if one.key in change.priorities else one
            for one in world.holders
            if one.key not in left
        ]
        lines = dict(side.lines)
        for queue in {workload.queue for workload in gone} & side.queues:
            returned: list[tuple[Pending, wire.Workload]] = []
            for workload in gone:
                obj = known.workloads.get(workload.key) if workload.queue == queue else None
                if obj is not None:
                    returned.append((self._prospects.pending(obj), obj))
            line = lines.get(queue) or TriedLine(queue=queue, items=(), is_strict=known.queues.is_strict(queue))
            lines[queue] = await with_returned(known, line, returned, pace)
        return replace(side, world=replace(world, holders=holders), lines=lines)

    # --- decisions ---------------------------------------------------------------------------------------------------

    async def _decided(self, side: Side, priorities: Mapping[str, int]) -> WhatIfDecisions:
        """Decide about all workloads of the lines, in turns as cycles do."""
        budget = PlanningBudget(self._clock, self._plan_seconds)
        copy = await stepped(side.world.copied_steps(side.queues), budget.pace)
        sequence, found = PlanSequence(side.world, copy), WhatIfDecisions()
        found.of = sum(len(line.items) for line in side.lines.values())

        def head_of(queue: str, item: Pending, obj: wire.Workload) -> Head:
            return self._head(queue, item, obj, priorities, side.heads_by)

        lines = [prioritised(line, priorities) for line in side.lines.values()]
        await DecidedTurns(lines, head_of, sequence, found, budget, len(side.queues)).run()
        found.queues = await uses(side.queues, side.world.snapshot, sequence.snapshot, budget.pace)
        await dissolve(copy.nodes, side.world.snapshot.nodes, budget.pace)
        return found

    def _head(
        self,
        queue: str,
        item: Pending,
        obj: wire.Workload,
        priorities: Mapping[str, int],
        heads_by: QuotaCache | None,
    ) -> Head:
        planning, now = self._prospects.planning, self._clock.now()
        head = planning.heads.make(obj, item, queue=queue, now=now, quota=heads_by)
        value = priorities.get(class_of(obj))
        return head if value is None else replace(head, priority=value)

    # --- start times -------------------------------------------------------------------------------------------------

    async def _start_times(
        self, now: Side, side: Side, priorities: Mapping[str, int], pace: RequestPace
    ) -> TimesCompared | NoAnswer:
        if self._times is None:
            return NoAnswer("this process computes no start times")
        queues = max(len(now.queues), len(side.queues))
        if queues > api.MOST_QUEUES_WHEN:
            most = api.MOST_QUEUES_WHEN
            return NoAnswer(f"there are {queues} ClusterQueues; start times of a what-if are computed for up to {most}")
        before = await self._start_question(self._times.questions, now, {}, pace)
        after = await self._start_question(self._times.questions, side, priorities, pace)
        answers = await self._times.computer.of_questions([before, after])
        if isinstance(answers, NoAnswer):
            return answers
        found = TimesCompared(before, after, answers)
        await found.compare(pace)
        return found

    async def _start_question(
        self, questions: StartQuestions, side: Side, priorities: Mapping[str, int], pace: RequestPace
    ) -> StartQuestion:
        lines = (prioritised(side.lines[name], priorities) for name in sorted(side.lines))
        return await questions.of_state(
            side.world,
            ((line.queue, line.is_strict, line.items) for line in lines),
            lambda queue, item, obj: self._head(queue, item, obj, priorities, side.heads_by),
            pace,
        )


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(asked: AuthorizedQuestion) -> api.WhatIfSpec:
    try:
        check_json(asked.body)
        spec = _decode(asked.body).spec
    except (msgspec.DecodeError, TooMuchError, RecursionError, UnicodeDecodeError) as e:
        raise ConfigError(f"the question cannot be read; send a {api.KIND} with a spec: {e}") from e
    changes = sum(map(len, (spec.quotas, spec.drains, spec.ends, spec.add_nodes, spec.priorities, spec.objects)))
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
