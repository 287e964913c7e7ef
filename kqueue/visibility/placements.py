"""How well a workload that does not exist here would stand now: the answer for a manager that chooses among clusters.

The planner decides about the workload as a cycle would, on a snapshot of the moment, and nothing is reserved.  Each
question costs one look, and some more to count how many such workloads fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import placement as api
from kqueue.api.wire.meta import ObjectMeta
from kqueue.clock import utc_text
from kqueue.core import quota
from kqueue.core.decision import Admit, Decision, Preempt, Wait
from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Target
from kqueue.core.topology.result import LevelQuality
from kqueue.core.why import Trials
from kqueue.core.why.quality import pods_left
from kqueue.core.workload import Admission, Head, TopologyView
from kqueue.errors import ConfigError
from kqueue.visibility.explained import Audience
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.params import only
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.question import JSON, AuthorizedQuestion

_NAME = "placement-question"
"""Name and UID of the workload in question, which no object has."""
_MOST_POD_SETS, _MOST_PODS = 8, 2**31 - 1
_MOST_ROOM = 16
"""Workloads up to which the room is counted."""
_ROOM_SECONDS = 0.1
_NAMED = 5
"""Workloads to preempt that are named."""
_NEVER = frozenset({BlockerKind.EXCEEDS_MAX_QUOTA, BlockerKind.RESOURCE_NOT_COVERED})
_decode = msgspec.json.Decoder(api.PlacementQuestion).decode


@dataclass(slots=True, kw_only=True)
class _Outlook:
    """The findings about the workload."""

    queue: str = ""
    decision: Decision | None = None
    held_back: str = ""
    """Why no cycle would try it now; empty: one would."""
    ahead: int = 0
    room: int = 0
    borrows: bool = False
    domains: JSON = field(default_factory=dict)
    """The domains that it would use, as they are shown; empty: it would use none."""


class PlacementView:
    """The view `placements`, to which a question is posted."""

    def __init__(self, prospects: Prospects) -> None:
        self._prospects, self._clock = prospects, prospects.clock
        self._turn = asyncio.Lock()

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the Placement of the workload in the body of the question.

        Raises:
            ConfigError, InvalidObjectError: the question cannot be read.
        """
        only(asked.params, "fieldManager", "fieldValidation")
        obj = _workload(asked, self._clock.now())
        async with self._turn:  # one at a time, so that each takes about as long
            found = await self._outlook(obj, RequestPace(self._clock))
        readable = {asked.namespace}
        targets = found.decision.targets[:_NAMED] if isinstance(found.decision, Preempt) else ()
        for namespace in sorted({target.admitted.key.partition("/")[0] for target in targets} - readable):
            if await asked.reads(namespace):
                readable.add(namespace)
        return self._shown(asked.namespace, found, targets, Audience(readable))

    async def _outlook(self, obj: wire.Workload, pace: RequestPace) -> _Outlook:
        """Find out what a cycle would decide about the workload now."""
        prospects = self._prospects
        found = _Outlook(queue=prospects.cluster_queue(obj))
        held = next(prospects.hindrances(obj, found.queue), None)
        if held is not None:
            found.held_back = held.message
            return found
        head = prospects.head(obj, found.queue)
        found.ahead = await prospects.ahead(prospects.pending(obj), found.queue, pace)
        world = await prospects.world({found.queue}, {head.uid}, pace, with_holders=False)
        trials = Trials(world, {found.queue})
        await pace.step()
        found.decision = (trials.admits(head) if trials.might_fit(head) else None) or trials.decide(head)
        await pace.step()
        if isinstance(found.decision, Admit):
            found.borrows = _borrows(world, found.decision.admission)
            found.domains = _domains(found.decision, world.snapshot.topologies)
            found.room = await self._room(trials, head, pace)
        found.held_back = prospects.holds(found.queue, found.ahead)
        return found

    async def _room(self, trials: Trials, head: Head, pace: RequestPace) -> int:
        """Count how many such workloads fit, up to a number and a time."""
        began, room = self._clock.monotonic(), 1
        for count in trials.room(head, _MOST_ROOM):
            room = count
            if self._clock.monotonic() - began > _ROOM_SECONDS:
                break
            await pace.step()
        return room

    # --- the answer ----------------------------------------------------------------------------------------------

    def _shown(self, namespace: str, found: _Outlook, targets: Sequence[Target], audience: Audience) -> JSON:
        decision = found.decision
        shown: JSON = {
            "kind": api.KIND,
            "metadata": {"namespace": namespace},
            "asOf": self._prospects.as_of(),
            "clusterQueue": found.queue,
            "waitingAhead": found.ahead,
        }
        match decision:
            case Admit():
                shown |= {"start": "Now", "message": "it fits", "room": found.room, "borrows": found.borrows}
                shown |= found.domains
            case Preempt():
                count = len(decision.targets)
                shown |= {
                    "start": "AfterPreemption",
                    "message": f"it would preempt {count} workload{'s' if count != 1 else ''}",
                    "preempts": count,
                    "preempted": [audience.workload(target.admitted) for target in targets],
                }
            case Wait():
                shown |= {
                    "start": "Never" if never(decision.blockers) else "Later",
                    "message": audience.brief(decision.blockers),
                }
                if decision.retry_at is not None:
                    shown["at"] = utc_text(decision.retry_at)
        if found.held_back:
            shown |= {"start": "Later", "message": found.held_back}
        return shown


def never(blockers: Sequence[Blocker]) -> bool:
    """Whether a workload with these blockers cannot start, whatever other workloads do."""
    return bool(blockers) and all(b.never or b.kind in _NEVER for b in blockers)


def _workload(asked: AuthorizedQuestion, now: datetime) -> wire.Workload:
    """Return the workload of a question, as a queue would see it if it were created now.

    Raises:
        ConfigError: the body cannot be read.
    """
    try:
        question = _decode(asked.body)
    except (msgspec.DecodeError, RecursionError) as e:
        raise ConfigError(f"the question cannot be read; send a {api.KIND} with the spec of a Workload: {e}") from e
    pod_sets = question.spec.pod_sets
    if question.metadata.namespace not in ("", asked.namespace):
        raise ConfigError("metadata.namespace must be that of the path")
    if not 1 <= len(pod_sets) <= _MOST_POD_SETS or len({each.name for each in pod_sets}) != len(pod_sets):
        raise ConfigError(f"spec.podSets must have 1 to {_MOST_POD_SETS} entries with different names")
    if not all(0 <= each.count <= _MOST_PODS for each in pod_sets):
        raise ConfigError(f"spec.podSets: a count must be from 0 to {_MOST_PODS}")
    return wire.Workload(
        metadata=ObjectMeta(
            name=_NAME,
            uid=_NAME,
            namespace=asked.namespace,
            generation=1,
            annotations=question.metadata.annotations,
            creation_timestamp=now,
        ),
        spec=replace(question.spec, active=True, preemption_gates=()),
    )


def _borrows(world: PlannedState, admission: Admission) -> bool:
    """Whether the ClusterQueue would use more than its own quota."""
    node = world.snapshot.nodes[admission.queue]
    return node.parent is not None and any(
        amount and quota.plus(node.usage.get(column, 0), amount) > node.quota(column).nominal
        for column, amount in admission.usage().items()
    )


def _domains(decision: Admit, topologies: Mapping[str, TopologyView]) -> JSON:
    """Return used domains and the fewest possible, over all searches, the level of the first one, and the pods that
    its domains could still hold.
    """
    asked = [p.request.topology for p in decision.head.pod_sets]
    named = {level for request in asked for level in (request.required, request.preferred) if level}
    counted = [_level(quality.levels, named) for quality in decision.quality if quality.levels]
    if not counted:
        return {}
    used, level = sum(one.used for one in counted), counted[0].level
    shown: JSON = {
        "level": level,
        "domains": used,
        "fewestDomains": min(used, sum(one.lower_bound for one in counted)),
    }
    left = _pods_left(decision, topologies, level)
    return shown if left is None else {**shown, "podsLeft": left}


def _pods_left(decision: Admit, topologies: Mapping[str, TopologyView], level: str) -> int | None:
    """Return how many more pods the used domains could hold; None: not known.  Pod sets in other flavors than the first
    placed one are left out.
    """
    placed = [each for each in decision.admission.pod_sets if each.topology is not None and each.topology.domains]
    flavors = [next((f for f in each.flavors.values() if f in topologies), "") for each in placed]
    if not placed or not flavors[0]:
        return None
    places = {e.name: e.topology for e, f in zip(placed, flavors, strict=True) if f == flavors[0] and e.topology}
    requests = [pod_set.request for pod_set in decision.head.pod_sets]
    return pods_left(topologies[flavors[0]], requests, places, level)


def _level(levels: Sequence[LevelQuality], named: set[str]) -> LevelQuality:
    """Return the level that the workload names, else the lowest one."""
    return next((one for one in levels if one.level in named), levels[-1])
