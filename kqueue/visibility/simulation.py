"""Simulates the creation of objects: the answer says what would become of them now.

The objects become Workloads by the code of admission.  The planner decides about one after the other on a snapshot
of the moment, each on the capacity that earlier ones leave; nothing is written, reserved or remembered.

    POST namespaces/NAMESPACE/simulations     {"spec": {"manifests": [...], "copies": 1, "queue": ""}}

A question costs a bounded number of objects, pods and seconds, and one user has one question at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import simulation as api
from kqueue.core.decision import Admit, Decision, Outcome, Preempt, Wait
from kqueue.core.planned_state import PlannedState
from kqueue.core.quantity import format_quantity
from kqueue.core.topology.summary import domains_above_hosts
from kqueue.core.why import ChangeSearch, Look, PlanSequence, Trials, look
from kqueue.core.workload import Admission, Head, Snapshot
from kqueue.documents import TooMuchError, check_json
from kqueue.errors import ConfigError, ForbiddenError
from kqueue.jobs.drafts import DraftWorkload
from kqueue.visibility import explained, remedies
from kqueue.visibility.explained import Audience
from kqueue.visibility.pacing import PlanningBudget, QuestionTurns, stepped
from kqueue.visibility.params import only
from kqueue.visibility.placements import never
from kqueue.visibility.prospects import Prospects, alternatives, borrowed
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.workload_state import Hindrance

_PLAN_SECONDS = 0.3
"""Limit of the planner's own time for one question, without the turns of other tasks."""
_SEARCH_SECONDS = 0.15
"""Limit of the search for changes within it."""
_EXPLAINED = 4
"""Workloads whose blockers and changes are looked for; the others have the message of the decision."""
_DOMAINS_SHOWN, _VICTIMS_SHOWN = 20, 20
_decode = msgspec.json.Decoder(api.SimulationQuestion).decode


@dataclass(frozen=True, slots=True)
class Creatable:
    """Group, version and plural of a kind whose objects the user must be allowed to create."""

    group: str
    version: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """The Workloads of a question, and what the webhooks warned of."""

    workloads: Sequence[DraftWorkload]
    warnings: Sequence[str] = ()


class Drafter(Protocol):
    """Makes Workloads of manifests as admission does."""

    def kinds_of(self, manifests: Sequence[Mapping[str, Any]]) -> Sequence[Creatable]:
        """Return the kinds of the manifests, each once.

        Raises:
            ConfigError: one is of a kind that is not queued.
        """
        ...

    async def drafts(self, asked: AuthorizedQuestion, spec: api.SimulationSpec) -> Drafts:
        """Return the Workloads that the manifests would get.

        Raises:
            ConfigError: the webhooks would refuse one, or it would not be queued; names all such manifests.
        """
        ...


StartTimes = Callable[[AuthorizedQuestion, Sequence[tuple[wire.Workload, Head]]], Awaitable[Mapping[str, JSON]]]
"""Returns the start times of heads of Workloads that do not exist, if all of them were created now.

By UID, as the field `startTime` of explanations has them; a missing one is not known.
"""


@dataclass(slots=True, kw_only=True)
class _Planned:
    """One Workload of the question, with its copies, and the findings about it."""

    draft: DraftWorkload
    obj: wire.Workload
    queue: str
    hindrances: list[Hindrance] = field(default_factory=list)
    ahead: int = 0
    rank: tuple[Any, ...] = ()
    head: Head | None = None
    runs: list[_Run] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Run:
    """Consecutive copies with the same outcome.  Its details are those of the first one."""

    start: str
    copies: int = 1
    decision: Decision | None = None
    message: str = ""
    borrowed: list[JSON] = field(default_factory=list)
    places: list[JSON] = field(default_factory=list)
    state: PlannedState | None = None
    """The state in which it was tried, for a look at its blockers."""
    look: Look | None = None
    search: ChangeSearch | None = None
    stopped: bool = False


class SimulationView:
    """The view `simulations`, to which a question is posted."""

    def __init__(
        self,
        prospects: Prospects,
        drafter: Drafter,
        *,
        start_times: StartTimes | None = None,
        plan_seconds: float = _PLAN_SECONDS,
    ) -> None:
        """`start_times`: what is known about the future; None: nothing.  `plan_seconds` bounds the planner's time."""
        self._prospects, self._drafter, self._clock = prospects, drafter, prospects.clock
        self._start_times, self._plan_seconds = start_times, plan_seconds
        self._turns = QuestionTurns()

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the Simulation of the manifests in the body of the question.

        Raises:
            ConfigError, InvalidObjectError: the question cannot be read or is too large, or a manifest is refused.
            ForbiddenError: the user may not create an object of one of the kinds.
            TooManyRequestsError: the user has another question of this kind.
        """
        only(asked.params, "fieldManager", "fieldValidation")
        with self._turns.place_of(asked.user):
            spec = _read(asked)
            for kind in self._drafter.kinds_of(spec.manifests):
                if not await asked.creates(kind.group, kind.version, kind.resource):
                    what = f"{kind.resource}.{kind.group}".rstrip(".")
                    raise ForbiddenError(
                        f'user "{asked.user}" cannot create {what} in the namespace "{asked.namespace}", and so may '
                        "not ask what would become of one",
                        status=403,
                    )
            drafts = await self._drafter.drafts(asked, spec)
            planned = [self._made(n, draft) for n, draft in enumerate(_copied(drafts.workloads, spec.copies))]
            async with self._turns.turn():
                as_of = await _Course(self._prospects, planned, PlanningBudget(self._clock, self._plan_seconds)).run()
            times = await self._times(asked, planned)
            audience = await _audience(asked, planned)
            return _Answer(self._prospects, audience, times).shown(asked.namespace, as_of, drafts, planned)

    def _made(self, number: int, draft: DraftWorkload) -> _Planned:
        """Return a draft as a queue would see it if it were created now, after those of a smaller number."""
        obj = workload_of(draft, number, self._clock.now())
        return _Planned(draft=draft, obj=obj, queue=self._prospects.cluster_queue(obj))

    async def _times(self, asked: AuthorizedQuestion, planned: Sequence[_Planned]) -> Mapping[str, JSON]:
        """Return the start times of all copies, if one of them waits."""
        if self._start_times is None or not any(run.start == "Later" for one in planned for run in one.runs):
            return {}
        copies = [
            (one.obj, copy) for one in planned if one.head is not None for copy in _copies(one.head, one.draft.copies)
        ]
        return await self._start_times(asked, copies)


def workload_of(draft: DraftWorkload, number: int, now: datetime) -> wire.Workload:
    """Return the Workload of a draft as a queue would see it if it were created now.

    Its name can be that of no object; a larger number is created later.

    Raises:
        ConfigError: the pods cannot be read.
    """
    try:
        obj = msgspec.convert(draft.workload, wire.Workload)
    except msgspec.ValidationError as e:
        raise ConfigError(f"{draft.source} is not valid: {e}") from e
    if not 1 <= len(obj.spec.pod_sets) <= names.MAX_PODSETS:
        most = names.MAX_PODSETS
        raise ConfigError(f"{draft.source} has {len(obj.spec.pod_sets)} pod sets; a workload has 1 to {most}")
    name = f"#{number:04}"
    created = now + timedelta(microseconds=number)
    return replace(
        obj,
        metadata=replace(obj.metadata, name=name, uid=name, generation=1, creation_timestamp=created),
        spec=replace(obj.spec, active=True),
    )


class _Course:
    """Plans the workloads of one question."""

    def __init__(self, prospects: Prospects, planned: Sequence[_Planned], budget: PlanningBudget) -> None:
        self._prospects, self._planned, self._budget = prospects, planned, budget

    async def run(self) -> JSON:
        """Plan all workloads within the budget, and explain those that wait; return time and version of the state."""
        pace, prospects = self._budget.pace, self._prospects
        tried: list[_Planned] = []
        for one in self._planned:
            one.hindrances = list(prospects.hindrances(one.obj, one.queue))
            if one.hindrances:
                one.runs.append(_Run(start="Later", copies=one.draft.copies, message=one.hindrances[0].message))
                continue
            item = prospects.pending(one.obj)
            one.ahead = await prospects.ahead(item, one.queue, pace)
            if prospects.known.queues.knows(one.queue):
                one.rank = prospects.known.queues.rank(one.queue, item)
            one.head = prospects.head(one.obj, one.queue)
            tried.append(one)
        heads = [one.head for one in tried if one.head is not None]
        queues = {head.queue for head in heads}
        others = {one.head.uid: self._others(one) for one in tried[:_EXPLAINED] if one.head is not None}
        queues |= {other.head.queue for found in others.values() for other in found}
        uids = {copy.uid for head, one in zip(heads, tried, strict=True) for copy in _copies(head, one.draft.copies)}
        world = await prospects.world(queues, uids, pace, with_holders=True)
        as_of = prospects.as_of()
        sequence = PlanSequence(world, await stepped(world.copied_steps(queues), pace))
        for one in _in_turns(tried):
            await self._decide(one, sequence, queues)
        for one in tried:
            for run in one.runs:
                if run.state is not None and self._budget.is_left:
                    await self._explain(one, run, queues)
        return as_of

    def _others(self, one: _Planned) -> list[Any]:
        prospects = self._prospects
        return alternatives(prospects.known, prospects.planning, one.obj, None, queue=one.queue, clock=prospects.clock)

    async def _decide(self, one: _Planned, sequence: PlanSequence, queues: set[str]) -> None:
        """Decide about each copy; those behind one that waits wait, too, because they are equal."""
        assert one.head is not None
        budget, hold = self._budget, self._prospects.holds(one.queue, one.ahead)
        since = budget.clock.monotonic()
        for number, head in enumerate(_copies(one.head, one.draft.copies)):
            left = one.draft.copies - number
            if not budget.is_left:
                one.runs.append(_Run(start="NotPlanned", copies=left, message="the planner's time was used up before"))
                return
            if hold:
                one.runs.append(_Run(start="Later", copies=left, message=hold))
                return
            decision = sequence.decide(head)
            since = await budget.step(since)
            if isinstance(decision, Wait):
                start = "Never" if never(decision.blockers) else "Later"
                keeps = decision.outcome is Outcome.DEFERRED  # its claim is charged, and would be in its own way
                state = sequence.state(queues) if not keeps and self._explains_more() else None
                one.runs.append(_Run(start=start, copies=left, decision=decision, state=state))
                return
            start = "Now" if isinstance(decision, Admit) else "AfterPreemption"
            if one.runs and one.runs[-1].start == start:
                one.runs[-1].copies += 1
                continue
            run = _Run(start=start, decision=decision)
            if isinstance(decision, Admit):
                run.borrowed = list(_borrowed(sequence.snapshot, decision.admission))
                run.places = list(_places(sequence.snapshot, decision.admission))
            one.runs.append(run)

    def _explains_more(self) -> bool:
        return sum(run.state is not None for other in self._planned for run in other.runs) < _EXPLAINED

    async def _explain(self, one: _Planned, run: _Run, queues: set[str]) -> None:
        """Find all blockers of copies that wait, and search for changes with which the first one would start."""
        assert one.head is not None
        assert run.state is not None
        budget, since = self._budget, self._budget.clock.monotonic()
        trials, found = Trials(run.state, queues), Look()
        for _ in look(one.head, run.state, trials, found):
            since = await budget.step(since)
        run.look = found
        others = [other for other in self._others(one) if other.head.queue in queues]
        run.search = ChangeSearch(one.head, run.state, trials, found, others)
        until = budget.spent + _SEARCH_SECONDS
        for _ in run.search.steps():
            since = await budget.step(since)
            if budget.spent > until or not budget.is_left:
                run.stopped = True
                return


def _copies(head: Head, copies: int) -> Iterator[Head]:
    """Yield the head as often as its workload is copied, each with a key and UID of its own."""
    for number in range(copies):
        key, uid = copy_uid(head.key, number), copy_uid(head.uid, number)
        yield dataclasses.replace(head, key=key, uid=uid) if number else head


def copy_uid(uid: str, number: int) -> str:
    """Return the UID, or the key, of a copy; 0: the first one."""
    return f"{uid}/{number}" if number else uid


def _in_turns(planned: Sequence[_Planned]) -> list[_Planned]:
    """Return the workloads in the order in which cycles try them: of each ClusterQueue the first ones, the second ones
    and so on.
    """
    turns: dict[str, int] = {}
    found: list[tuple[int, int, int, _Planned]] = []
    for one in sorted(planned, key=lambda one: one.rank):
        turns[one.queue] = turns.get(one.queue, -1) + 1
        assert one.head is not None
        found.append((turns[one.queue], -one.head.priority, len(found), one))
    return [one for *_, one in sorted(found, key=lambda entry: entry[:3])]


def _read(asked: AuthorizedQuestion) -> api.SimulationSpec:
    """Return the question.

    Raises:
        ConfigError: the body cannot be read, or asks about too much.
    """
    try:
        check_json(asked.body)
        question = _decode(asked.body)
    except (msgspec.DecodeError, TooMuchError, RecursionError, UnicodeDecodeError) as e:
        raise ConfigError(f"the question cannot be read; send a {api.KIND} with spec.manifests: {e}") from e
    spec = question.spec
    if question.metadata.namespace not in ("", asked.namespace):
        raise ConfigError("metadata.namespace must be that of the path")
    if not 1 <= len(spec.manifests) <= api.MOST_MANIFESTS:
        raise ConfigError(f"spec.manifests has {len(spec.manifests)} objects; 1 to {api.MOST_MANIFESTS} are possible")
    if not 1 <= spec.copies <= api.MOST_WORKLOADS:
        raise ConfigError(f"spec.copies is {spec.copies}; 1 to {api.MOST_WORKLOADS} are possible")
    return spec


def _copied(drafts: Sequence[DraftWorkload], copies: int) -> list[DraftWorkload]:
    """Return the drafts with all their copies.

    Raises:
        ConfigError: they are too many workloads, or too many pods.
    """
    found = [dataclasses.replace(draft, copies=draft.copies * copies) for draft in drafts if draft.copies]
    workloads = sum(draft.copies for draft in found)
    if workloads > api.MOST_WORKLOADS:
        raise ConfigError(f"these are {workloads} workloads; a question may have {api.MOST_WORKLOADS}: ask about fewer")
    pods = sum(draft.copies * sum(p["count"] for p in draft.workload["spec"]["podSets"]) for draft in found)
    if pods > api.MOST_PODS:
        raise ConfigError(f"these are {pods} pods; a question may have {api.MOST_PODS}: ask about fewer")
    return found


async def _audience(asked: AuthorizedQuestion, planned: Sequence[_Planned]) -> Audience:
    readable, others = {asked.namespace}, set[str]()
    for run in (run for one in planned for run in one.runs):
        others |= explained.namespaces_in(run.look, run.search.found if run.search is not None else [])
        if isinstance(run.decision, Preempt):
            others |= {target.admitted.key.partition("/")[0] for target in run.decision.targets[:_VICTIMS_SHOWN]}
        if isinstance(run.decision, Wait):
            others |= {w.namespace for blocker in run.decision.blockers for w in blocker.workloads}
    for namespace in sorted(others - readable):
        if await asked.reads(namespace):
            readable.add(namespace)
    return Audience(readable)


def _borrowed(snapshot: Snapshot, admission: Admission) -> Iterator[JSON]:
    for column, amount in sorted(borrowed(snapshot, admission).items()):
        shown = format_quantity(amount, column.resource)
        yield {"flavor": column.flavor, "resource": column.resource, "amount": shown}


def _places(snapshot: Snapshot, admission: Admission) -> Iterator[JSON]:
    """Yield flavors, pods and domains of each pod set."""
    for pod_set in admission.pod_sets:
        shown: JSON = {"name": pod_set.name, "count": pod_set.count, "flavors": dict(pod_set.flavors)}
        view = next((snapshot.topologies[f] for f in pod_set.flavors.values() if f in snapshot.topologies), None)
        if pod_set.topology is not None and view is not None:
            domains, _ = domains_above_hosts(view.tree, pod_set.topology)
            shown["domains"] = [{"domain": list(path), "pods": pods} for path, pods in domains[:_DOMAINS_SHOWN]]
            if len(domains) > _DOMAINS_SHOWN:
                shown["moreDomains"] = len(domains) - _DOMAINS_SHOWN
        elif pod_set.waits_for_domains:
            shown["delayed"] = True
        yield shown


@dataclass(frozen=True, slots=True)
class _Answer:
    """Writes the answer for one user."""

    prospects: Prospects
    audience: Audience
    times: Mapping[str, JSON]

    def shown(self, namespace: str, as_of: JSON, drafts: Drafts, planned: Sequence[_Planned]) -> JSON:
        """Return the answer."""
        counts: dict[str, int] = {}
        for run in (run for one in planned for run in one.runs):
            counts[run.start] = counts.get(run.start, 0) + run.copies
        workloads, left = sum(counts.values()), counts.get("NotPlanned", 0)
        shown: JSON = {
            "kind": api.KIND,
            "metadata": {"namespace": namespace},
            "asOf": as_of,
            "startsNow": workloads == counts.get("Now", 0) + counts.get("AfterPreemption", 0),
            "summary": _summary(counts, workloads),
            "counts": counts,
            "workloads": [self._workload(one) for one in planned],
        }
        if left:
            shown["finished"] = False
            shown["message"] = f"not finished: {workloads - left} of {workloads} workloads were planned in time"
        if drafts.warnings:
            shown["warnings"] = list(drafts.warnings)
        return shown

    def _workload(self, one: _Planned) -> JSON:
        shown: JSON = {
            "object": one.draft.source,
            "copies": one.draft.copies,
            "localQueue": one.obj.spec.queue_name or "",
            "clusterQueue": one.queue,
            "priority": one.obj.spec.priority or 0,
            "pods": sum(p.count for p in one.obj.spec.pod_sets),
            "waitingAhead": one.ahead,
            "results": [self._run(one, run) for run in one.runs],
        }
        if one.draft.extras:
            shown["podsBeyondQuorum"] = one.draft.extras
        if one.hindrances:
            shown["heldBackBy"] = [hindrance.shown() for hindrance in one.hindrances]
        return shown

    def _run(self, one: _Planned, run: _Run) -> JSON:
        shown: JSON = {"start": run.start, "copies": run.copies}
        match run.decision:
            case Admit() as decision:
                shown["then"] = explained.admitted(decision)
                shown["podSets"] = run.places
                if run.borrowed:
                    shown["borrows"] = run.borrowed
            case Preempt(targets=targets):
                shown["preempts"] = len(targets)
                shown["preempted"] = [
                    self.audience.workload(target.admitted, reason=str(target.reason))
                    for target in targets[:_VICTIMS_SHOWN]
                ]
            case Wait(blockers=blockers):
                shown["message"] = self.audience.brief(blockers)
        if run.message:
            shown["message"] = run.message
        if run.look is not None:
            shown["blockers"] = explained.blockers(run.look, one.queue, self.audience)
            shown["flavors"] = explained.flavors(run.look, self.audience)
        if run.search is not None:
            shown["wouldStartIf"] = [self._change(found) for found in run.search.found]
            shown["search"] = explained.search(run.search, stopped=run.stopped)
        if one.head is not None and run.start == "Later":
            first = copy_uid(one.head.uid, sum(each.copies for each in one.runs[: one.runs.index(run)]))
            if first in self.times:
                shown["startTime"] = self.times[first]
        return shown

    def _change(self, found: Any) -> JSON:
        """Return a change; commands only for changes of other objects: this workload has none yet."""
        ended = remedies.stops_of(found.change)
        named = all(self.audience.may_name(workload.key) for workload in ended)
        return explained.what_if(found, self.audience, commands=remedies.stops(ended) if named else ())


def _summary(counts: Mapping[str, int], workloads: int) -> str:
    """Return the answer as one sentence."""
    words = {
        "Now": "would start now",
        "AfterPreemption": "would start after preemption",
        "Later": "would wait",
        "Never": "could never start",
        "NotPlanned": "not planned",
    }
    said = [f"{counts[start]} {word}" for start, word in words.items() if counts.get(start)]
    return f"{workloads} workload{'s' if workloads != 1 else ''}: {', '.join(said)}"
