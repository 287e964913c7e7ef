"""Explains one Workload: why it waits, where it runs, why it was evicted, how it ended.

The reasons of a pending Workload are computed for each question, on a snapshot of the moment, in pieces of some
milliseconds with turns of the event loop between them.  The search for changes that would start it has a time limit;
the answer says when it was reached.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.core.decision import Admit, Preempt
from kqueue.core.explain import Blocker
from kqueue.core.mention import mentioned
from kqueue.core.order_keys import DEFAULT_PROFILE_NAME
from kqueue.core.topology.node import HOSTNAME
from kqueue.core.why import Alternative, ChangeSearch, Look, OtherQueue, PlannedState, Trials, WhatIf, look
from kqueue.core.why.changes import Change
from kqueue.core.workload import Head
from kqueue.errors import ConfigError, InvalidObjectError, NotFoundError
from kqueue.model.pending import Pending
from kqueue.runtime.store import object_key
from kqueue.state.joint_history import JointHistory
from kqueue.state.not_running import NotRunning
from kqueue.visibility import budgets, explained, remedies, workload_state
from kqueue.visibility.explained import Audience
from kqueue.visibility.pacing import PLANNING_STRETCH_SECONDS, RequestPace
from kqueue.visibility.params import only
from kqueue.visibility.prospects import alternatives
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.remedies import stops_of
from kqueue.visibility.running import RunningPlaces, pods_not_running
from kqueue.visibility.sources import Freshness, Known, PlanningSource
from kqueue.visibility.workload_state import Hindrance, State

KIND = "Explanation"
_SEARCH_SECONDS = 0.15
"""Time limit of the search for changes, without the turns of other tasks."""
_MOST_SPARES = 256
"""Limit of left-out nodes of a flavor that the search considers."""
_LINE_STEP = 500
_NODES_NAMED = 3
"""Nodes that a sentence names; it counts the others."""
_MOST_RIVALS = 32
"""Limit of workloads that are tried earlier and are planned together with each change."""


class WorkloadExplainer:
    """The view `workloads/explanation`."""

    def __init__(
        self,
        *,
        known: Known,
        planning: PlanningSource,
        held_back: Callable[[wire.Workload], Iterable[Hindrance]],
        clock: Clock,
        freshness: Freshness,
        not_running: Callable[[wire.Workload], Sequence[NotRunning]] = lambda _workload: (),
        search_seconds: float = _SEARCH_SECONDS,
    ) -> None:
        """`held_back` returns the reasons that keep a Workload out of its queue, `not_running` the released pods of a
        Workload that do not run.  Searches end after `search_seconds`.
        """
        self._known, self._workloads, self._local_queues = known, known.workloads, known.local_queues
        self._cache, self._queues, self._planning = known.cache, known.queues, planning
        self._held_back = held_back
        self._clock, self._leads, self._silence = clock, freshness.leads, freshness.silence
        self._stale_after, self._search_seconds = freshness.stale_after, search_seconds
        self._running, self._not_running = RunningPlaces(known.cache), not_running
        self._turn = asyncio.Lock()

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the Explanation of the Workload `asked.name`.  `whatIf=false` skips the search for changes.

        Raises:
            NotFoundError: there is no such Workload.
            ConfigError: a parameter is wrong.
        """
        only(asked.params, "whatIf")
        with_search = _yes_or_no(asked.params, "whatIf", default=True)
        key = object_key(asked.namespace, asked.name)
        if key not in self._workloads:
            raise NotFoundError(f'workloads.kueue.x-k8s.io "{asked.name}" not found', status=404)
        async with self._turn:  # one explanation at a time, so that each takes about as long
            obj = self._workloads.get(key)
            if obj is None:
                raise NotFoundError(f'workloads.kueue.x-k8s.io "{asked.name}" not found', status=404)
            pace = RequestPace(self._clock, stretch=PLANNING_STRETCH_SECONDS)
            state = workload_state.state_of(obj)
            waits = await self._why(obj, pace, with_search=with_search) if state in workload_state.WAITS else None
            placed = await self._running.placement(obj, pace) if obj.status.admission is not None else None
            if placed is not None and state is State.RUNNING:
                placed |= pods_not_running(self._not_running(obj), self._clock.now())
        audience = await _audience(asked, waits)
        return self._shown(obj, state, waits, placed, audience)

    # --- findings ------------------------------------------------------------------------------------------------

    async def _why(self, obj: wire.Workload, pace: RequestPace, *, with_search: bool) -> _Why:
        """Find all reasons that a Workload waits."""
        now = self._clock.now()
        local = self._local_queues.get(model.local_queue_key(obj))
        queue = (local.spec.cluster_queue or "") if local is not None else ""
        held_by = self._planning.held_by()
        why = _Why(
            workload=obj,
            queue=queue,
            now=now,
            held_back=self._held(obj, now),
            seen=self._seen(now),
            held_by=held_by,
            queue_object=self._cache.quota.queue_object,
            silent=self._silent_hosts(),
            joint=self._planning.joint,
        )
        item = await self._stand_in_line(obj, why, pace)
        if not queue or self._cache.quota.queue_object(queue) is None or self._planning.is_parent(obj):
            return why
        try:
            head = self._planning.heads.make(obj, item, queue=queue, now=now)
        except InvalidObjectError as e:
            why.held_back.append({"kind": names.REASON_MISCONFIGURED, "message": str(e)})
            return why
        for _ in self._cache.ledger.build_steps():
            await pace.step()
        for _ in self._cache.held.view_steps():
            await pace.step()
        others = alternatives(self._known, self._planning, obj, item, queue=queue, clock=self._clock)
        rivals = await self._rivals_of(item, {queue, *(other.head.queue for other in others)}, now, pace)
        await self._investigate(why, head, others, rivals, pace, with_search=with_search)
        return why

    async def _rivals_of(
        self, item: Pending | None, queues: Collection[str], now: datetime, pace: RequestPace
    ) -> dict[str, list[Head]]:
        """Return the workloads that are tried before this one, in order, by the ClusterQueue in which it would wait.

        Every ClusterQueue tries one workload in each cycle, so the list has, of each other ClusterQueue, one workload
        more than there are ahead of this one. A ClusterQueue with more than some dozens of them is left out.
        """
        found: dict[str, list[Head]] = {}
        for queue in queues if item is not None else ():
            assert item is not None
            await pace.step()
            ahead = self._ahead(queue, item)
            if len(ahead) > _MOST_RIVALS:
                continue
            tried = [(1 + place, queue, other) for place, other in enumerate(ahead)]
            for name in self._queues.names():
                if name != queue and self._cache.quota.inactive(name) is None:
                    first = heapq.nsmallest(
                        1 + len(ahead), self._queues.waiting(name), key=partial(self._queues.rank, name)
                    )
                    tried += [(1 + place, name, other) for place, other in enumerate(first) if other.key != item.key]
                    await pace.step()
            if len(tried) <= _MOST_RIVALS:
                tried.sort(key=lambda one: (one[0], -one[2].priority, one[2].timestamp, one[2].key))
                found[queue] = [head for _, name, other in tried if (head := self._head_of(other, name, now))]
        return found

    def _ahead(self, queue: str, item: Pending) -> list[Pending]:
        """Return the workloads before this one in a ClusterQueue, in their order."""
        if queue not in self._queues.names():
            return []
        rank = partial(self._queues.rank, queue)
        own = rank(item)
        return sorted((o for o in self._queues.waiting(queue) if o.key != item.key and rank(o) < own), key=rank)

    def _head_of(self, item: Pending, queue: str, now: datetime) -> Head | None:
        """Return a waiting workload as the planner's input; None if it cannot be tried."""
        obj = self._workloads.get(item.key)
        if obj is None or any(True for _ in self._held_back(obj)):
            return None
        try:
            return self._planning.heads.make(obj, item, queue=queue, now=now)
        except InvalidObjectError:
            return None

    def _held(self, obj: wire.Workload, now: datetime) -> list[JSON]:
        found = [hindrance.shown() for hindrance in self._held_back(obj)]
        return [*found, *workload_state.held_back(obj, now)]

    def _silent_hosts(self) -> dict[str, str]:
        """Return nodes that are not ready, by host name: deleted pods do not end there."""
        nodes = self._cache.ledger.nodes
        return {node.labels.get(HOSTNAME, name): name for name, node in nodes.items() if not node.ready}

    def _seen(self, now: datetime) -> JSON:
        """Return time and origin of the state in an answer, and notes about it."""
        cache, silence = self._cache, self._silence()
        seen: JSON = {
            "time": utc_text(now, digits=3),
            "generation": cache.generation,
            "nodesGeneration": cache.ledger.generation,
            "leading": self._leads(),
        }
        notes = []
        if silence > self._stale_after:
            notes.append(f"the API server has been silent for {silence:.0f} s, so this may be old")
        if not self._leads():
            notes.append(
                "this replica does not decide: it does not know when workloads were tried, nor preemptors' reservations"
            )
        return {**seen, "notes": notes} if notes else seen

    async def _stand_in_line(self, obj: wire.Workload, why: _Why, pace: RequestPace) -> Pending | None:
        """Write the Workload's position into `why`.  Return its entry in the queues; None when it is in no queue."""
        key = model.workload_key(obj)
        home = self._queues.home(key)
        if home is None:
            return None
        waiting = self._queues.waiting(home)
        item = next((other for other in waiting if other.key == key), None)
        if item is None:
            return None
        own, before, in_local, local_before = self._queues.rank(home, item), 0, 0, 0
        for number, other in enumerate(waiting):
            if number % _LINE_STEP == 0:
                await pace.step()
                if not self._queues.knows(home):
                    return item
            earlier = self._queues.rank(home, other) < own
            before += earlier
            if other.local_queue == item.local_queue:
                in_local += 1
                local_before += earlier
        strict = self._queues.is_strict(home)
        spec = self._cache.quota.queue_spec(home)
        profile = spec.plugin_profile if spec is not None else DEFAULT_PROFILE_NAME
        by = "priority and age" if profile == DEFAULT_PROFILE_NAME else f"profile {profile}"
        if self._queues.goes_by_usage(home):
            by = f"use, {by}"
        why.position = {
            "clusterQueue": home,
            "place": before + 1,
            "of": len(waiting),
            "placeInLocalQueue": local_before + 1,
            "ofInLocalQueue": in_local,
            "order": by,
            **budgets.shown(self._cache.budgets.accounts(home, item.local_queue)),
        }
        if self._leads():  # a follower tries no workload, so it parks none
            to_be_tried = self._is_to_be_tried(home, key)
            why.position["line"] = "to be tried" if to_be_tried else "set aside until something changes"
        if strict and before:
            why.position["strict"] = True
            why.first = min(waiting, key=lambda other: self._queues.rank(home, other)).key
        why.last_tried = self._last_tried(obj, home, item)
        return item

    def _is_to_be_tried(self, home: str, key: str) -> bool:
        flying = self._queues.in_flight(home)
        return self._queues.is_active(key) or (flying is not None and flying.key == key)

    def _last_tried(self, obj: wire.Workload, home: str, item: Pending) -> JSON:
        tried = self._planning.tries.of(item.key, home, item.shape)
        if tried is None:
            return {"known": False, "message": self._never_tried(obj)}
        if tried.key != item.key and _is_older(tried.at, obj):
            return {"known": False, "message": self._never_tried(obj)}
        cache, nodes = self._cache.generation - tried.generation, self._cache.ledger.generation - tried.nodes
        ago = max(0, int((self._clock.now() - tried.at).total_seconds()))
        shown: JSON = {
            "known": True,
            "time": utc_text(tried.at, digits=3),
            "secondsAgo": ago,
            "cycle": tried.cycle,
            "generation": tried.generation,
            "nodesGeneration": tried.nodes,
            "changesSince": max(0, cache, nodes),  # many changes count in both
            "reason": tried.reason,
        }
        if tried.key != item.key:
            shown["byEqual"] = True  # another workload of the same form, with the same outcome
        return shown

    def _never_tried(self, obj: wire.Workload) -> str:
        if not self._leads():
            return "this replica does not try workloads; the one that leads does"
        told = workload_state.told(obj, self._clock.now())
        if told is not None and told["reason"] != names.REASON_PENDING_EVALUATION:
            return "this controller has not tried it alone; its status has the reason of an earlier or equal try"
        return "it has not been tried since it was created, or since this controller began to lead"

    async def _investigate(
        self,
        why: _Why,
        head: Head,
        others: Sequence[Alternative],
        rivals: Mapping[str, Sequence[Head]],
        pace: RequestPace,
        *,
        with_search: bool,
    ) -> None:
        """Find the blockers, and search for changes that would let the workload start, on one snapshot."""
        cache = self._cache
        why.seen = self._seen(self._clock.now())  # no event is handled between this line and the snapshot
        queues = {head.queue, *(other.head.queue for other in others)}
        queues |= {rival.queue for some in rivals.values() for rival in some}
        asked = {head.uid, *(rival.uid for some in rivals.values() for rival in some)}
        world = PlannedState(
            snapshot=cache.snapshot(queues, self._planning.claims()),
            rules=self._planning.rules(self._clock.now(), asked),
            holders=cache.held.views(),
            spares=[spare for flavor in cache.ledger.flavors() for spare in cache.ledger.spares(flavor, _MOST_SPARES)],
            hooks=self._planning.hooks,
        )
        await pace.step()
        trials, found = Trials(world, queues), Look()
        why.look = found
        for _ in look(head, world, trials, found):
            await pace.step()
        if with_search:
            why.search = ChangeSearch(head, world, trials, found, others, rivals)
            why.stopped = await self._search(why.search.steps(), pace)

    async def _search(self, steps: Iterator[None], pace: RequestPace) -> bool:
        """Search until the end or the time limit; return whether the limit was reached."""
        spent, since = 0.0, self._clock.monotonic()
        for _ in steps:
            spent += self._clock.monotonic() - since
            if spent > self._search_seconds:
                return True
            await pace.step()
            since = self._clock.monotonic()
        return False

    # --- the answer ----------------------------------------------------------------------------------------------

    def _shown(
        self, obj: wire.Workload, state: State, waits: _Why | None, placed: JSON | None, audience: Audience
    ) -> JSON:
        now = self._clock.now()
        shown: JSON = {
            "kind": KIND,
            "metadata": {
                "name": obj.metadata.name,
                "namespace": obj.metadata.namespace,
                "uid": obj.metadata.uid,
            },
            "state": str(state),
            "summary": "",
            "asOf": waits.seen if waits is not None else self._seen(now),
            "localQueue": obj.spec.queue_name or "",
        }
        owners = [f"{owner.kind.lower()}/{owner.name}" for owner in obj.metadata.owner_references if owner.controller]
        if owners:
            shown["owner"] = owners[0]
        told = workload_state.told(obj, now)
        if told is not None and state in workload_state.WAITS:
            shown["told"] = told
        if waits is not None:
            shown["pending"] = waits.shown(audience)
        if left := self._cache.requests.unjudged(obj):
            shown["unjudged"] = list(left)
        if placed is not None:
            shown["running"] = placed
        waiting = workload_state.waits_for_checks(obj)
        if waiting and state is State.RESERVED:
            shown["waitsForChecks"] = waiting
        for name, part in (
            ("evictions", workload_state.evictions(obj, now)),
            ("finished", workload_state.finished(obj, now)),
        ):
            if part is not None:
                shown[name] = part
        held = obj.status.admission
        shown |= self._planning.parts_of(obj, held.cluster_queue if held is not None else waits.queue if waits else "")
        shown["summary"] = summary(state, shown)
        return shown


@dataclass(slots=True, kw_only=True)
class _Why:
    """The findings about a Workload that waits."""

    workload: wire.Workload
    queue: str
    now: datetime
    queue_object: Callable[[str], wire.ClusterQueue | None]
    silent: Mapping[str, str]
    """Nodes that are not ready, by host name."""
    held_back: list[JSON]
    seen: JSON
    held_by: str
    """The workload whose pods must be ready first; empty: none."""
    first: str = ""
    """The head of a StrictFIFO queue; empty when the queue is not strict or this workload is the head."""
    position: JSON | None = None
    last_tried: JSON | None = None
    look: Look | None = None
    search: ChangeSearch | None = None
    joint: JointHistory | None = None
    stopped: bool = field(default=False)

    def shown(self, audience: Audience) -> JSON:
        """Return the findings as JSON."""
        shown: JSON = {
            "clusterQueue": self.queue,
            "heldBackBy": [*self.held_back, *self._held_by_others(audience)],
        }
        for name, part in (("position", self.position), ("lastTried", self.last_tried)):
            if part is not None:
                shown[name] = part
        if self.look is not None:
            shown["now"] = explained.decision(self.look, audience, self.now)
            shown["blockers"] = explained.blockers(self.look, self.queue, audience, self._of_rounds(self.look))
            shown["flavors"] = explained.flavors(self.look, audience)
        if self.search is not None:
            shown["wouldStartIf"] = [
                explained.what_if(
                    one,
                    audience,
                    also_needed=self._also_needed(one, audience, shown["heldBackBy"]),
                    commands=self._commands(one, audience, shown["heldBackBy"]),
                )
                for one in self.search.found
            ]
            shown["search"] = explained.search(self.search, stopped=self.stopped)
        return shown

    def _of_rounds(self, look: Look) -> Iterator[Blocker]:
        """Yield the reasons of joint placement."""
        uid = self.workload.metadata.uid
        waits = self.joint.waits_for(uid) if self.joint is not None else None
        if waits is not None:
            yield waits
        last = self.joint.of(uid) if self.joint is not None and not isinstance(look.decision, Admit) else None
        left_out = last.blocker() if last is not None else None
        if left_out is not None:
            yield left_out

    def _also_needed(self, found: WhatIf, audience: Audience, held_back: Sequence[JSON]) -> list[str]:
        """Return conditions besides the change: the end of stops, and capacity for workloads that would start first."""
        needed = [f"this must end: {held['message']}" for held in held_back]
        needed += self._returns(found.change)
        if found.before is not None:
            if found.before:
                who = mentioned(found.before, lambda namespace: audience.may_name(f"{namespace}/"))
                needed.append(f"room for {who}, which would start first and take the room")
            return needed
        ahead = self.position["place"] - 1 if self.position is not None else 0
        if isinstance(found.change, OtherQueue):
            needed.append(f"the workloads ahead in ClusterQueue {found.queue} leave the room")
        elif ahead:
            others = "1 other" if ahead == 1 else f"{ahead} others"
            needed.append(f"after {others} in ClusterQueue {found.queue}, if they leave the room")
        return [*needed, "workloads that wait in other ClusterQueues leave the room"]

    def _returns(self, change: Change) -> Iterator[str]:
        """Name nodes that are not ready, on which pods of workloads to stop would not end."""
        hosts = {usage.values[-1] for w in stops_of(change) for usages in w.domains.values() for usage in usages}
        nodes = sorted(self.silent[host] for host in hosts if host in self.silent)
        if nodes:
            more = f" and {len(nodes) - _NODES_NAMED} more" if len(nodes) > _NODES_NAMED else ""
            names_, are = ", ".join(nodes[:_NODES_NAMED]), "are" if len(nodes) > 1 else "is"
            yield (
                f"node{'s' if len(nodes) > 1 else ''} {names_}{more} {are} not ready: pods there end only when their "
                "node is ready again, or when they are deleted by force"
            )

    def _commands(self, found: WhatIf, audience: Audience, held_back: Sequence[JSON]) -> list[str]:
        """Return commands: end the stops, then make the change; none if the user may not read a workload to stop."""
        resumes = [held["command"] for held in held_back if "command" in held]
        ended = stops_of(found.change)
        if not all(audience.may_name(workload.key) for workload in ended):
            return resumes
        queue = self.queue_object(found.queue)
        return [*resumes, *remedies.stops(ended), *remedies.commands(found.change, workload=self.workload, queue=queue)]

    def _held_by_others(self, audience: Audience) -> Iterator[JSON]:
        if self.position is not None and self.position.get("strict"):
            first = self.first if audience.may_name(self.first) else explained.SOMEBODY
            yield {
                "kind": "StrictFIFO",
                "message": f"ClusterQueue {self.position['clusterQueue']} is StrictFIFO, and {first} is first: the "
                f"workloads behind it wait until it is admitted",
            }
        if self.held_by:
            who = self.held_by if audience.may_name(self.held_by) else explained.SOMEBODY
            yield {
                "kind": names.REASON_WAITING_FOR_PODS_READY,
                "message": f"the pods of {who} must be ready before another workload is admitted",
            }


def summary(state: State, shown: JSON) -> str:
    """Return an explanation in one sentence; never empty."""
    match state:
        case State.FINISHED:
            return f"It has finished: {shown['finished']['message'] or shown['finished']['reason']}"
        case State.RUNNING:
            running = shown["running"]
            admitted = f"It is admitted by ClusterQueue {running['clusterQueue']}{_where(running)}"
            return f"{admitted}{_refused(running['podsNotRunning'])}" if "podsNotRunning" in running else admitted
        case State.RESERVED:
            checks = ", ".join(check["name"] for check in shown.get("waitsForChecks", ()))
            quota = f"It has quota in ClusterQueue {shown['running']['clusterQueue']}"
            if not checks:
                return f"{quota} and waits for domains; its events say why none were found yet"
            return f"{quota} and waits for admission checks: {checks}"
        case State.LEAVING:
            evicted = shown["evictions"]
            return f"It was evicted ({evicted['reason']}) and its pods are ending: {evicted['message']}"
    pending = shown["pending"]
    before = "It was evicted, and waits again: " if state is State.EVICTED else ""
    if pending["heldBackBy"]:
        held = pending["heldBackBy"][0]
        remedy = f"; run: {held['command']}" if "command" in held else ""
        return f"{before}It is not tried now: {held['message']}{remedy}"
    outcome = pending.get("now", {}).get("outcome")
    place = pending.get("position")
    line = f"number {place['place']} of {place['of']} in ClusterQueue {place['clusterQueue']}" if place else ""
    ahead = place["place"] - 1 if place else 0
    others = (
        f"{ahead} other workload{'s' if ahead != 1 else ''} of ClusterQueue {place['clusterQueue']}" if place else ""
    )
    first = f"; {others} may take the room before: it is {line}" if ahead else f": it is {line}" if line else ""
    if outcome == Admit.__name__:
        return f"{before}It would fit now{first}" if ahead else f"{before}It fits now, and is tried next{first}"
    if outcome == Preempt.__name__:
        return f"{before}It would start by {explained.preempting(pending['now'])}{first}"
    if pending.get("now", {}).get("message"):
        return f"{before}It waits: {pending['now']['message']}"
    told = shown.get("told")
    return f"{before}It waits: {told['message'] if told else 'nothing more is known of it yet'}"


def _is_older(at: datetime, obj: wire.Workload) -> bool:
    """Whether a time is before the creation of the Workload."""
    created = obj.metadata.creation_timestamp
    return created is not None and at < created


def _refused(pods: JSON) -> str:
    count, first = pods["count"], pods["sentences"][0]
    do = "pod does" if count == 1 else "pods do"
    return f"; {count} {do} not run for {pods['secondsAgo']} s: {first['message']}"


def _where(running: JSON) -> str:
    parts = []
    for pod_set in running["podSets"]:
        placement = pod_set.get("placement")
        if placement:
            used = ", ".join(f"{one['domains']} of {one['level']}" for one in placement["levels"])
            parts.append(f"pod set {pod_set['name']} in {used}")
    return f" ({'; '.join(parts)})" if parts else ""


async def _audience(asked: AuthorizedQuestion, waits: _Why | None) -> Audience:
    """Return which of the workloads in the answer the user may read.  The Workload's own namespace is among them."""
    readable = {asked.namespace}
    if waits is not None:
        found = waits.search.found if waits.search is not None else []
        keys = (waits.held_by, waits.first)
        others = explained.namespaces_in(waits.look, found) | ({key.partition("/")[0] for key in keys} - {""})
        for namespace in sorted(others - readable):
            if await asked.reads(namespace):
                readable.add(namespace)
    return Audience(readable)


def _yes_or_no(params: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = params.get(name, "")
    if text not in ("", "true", "false"):
        raise ConfigError(f"{name}={text[:60]!r} must be true or false")
    return default if not text else text == "true"
