"""The answers behind the views of the page, asked through the API server with the rights of the page's user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.api.wire import what_if
from kqueue.clock import Clock
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.kube.conditions import condition, is_true
from kqueue.operations.grants import START_TIMES, SUMMARIES, WHAT_IFS, needs, workloads_in
from kqueue.operations.questions import ask, path, post
from kqueue.page.life import life
from kqueue.page.trends import Trends
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType

JSON = dict[str, Any]
Line = tuple[str, int, str]
"""A line of an explanation: text, depth of its indentation, style."""
MOST_WORKLOADS = 20_000
"""Workloads in one answer; the answer leaves out the newest beyond it, and has their number."""
TREND_SECONDS = 30.0
"""Seconds between two points of the trends."""
_API = (names.KQUEUE_VISIBILITY_GROUP, "v1alpha1")
_EVENTS = ResourceType("", "v1", "events", "Event")
_MAPS_AFTER, _MOST_MAPS = 60, 4
"""Seconds after which the maps are read again for trends, and the limit of Topologies whose maps are read."""


class ClusterViews:
    """The views of one cluster, for one user."""

    def __init__(
        self,
        client: Client,
        lines: Callable[[JSON], Iterable[Line]],
        *,
        what_if_lines: Callable[[JSON], Iterable[Line]],
        clock: Clock,
    ) -> None:
        """Take what puts an Explanation and a WhatIf into the lines of the commands `kqueue explain` and `what-if`."""
        self._client, self._lines, self._what_if_lines, self._clock = client, lines, what_if_lines, clock
        self._trends, self._maps_at = Trends(), -_MAPS_AFTER

    async def queues(self) -> JSON:
        """Return the ClusterQueues and Cohorts: QueueSummaryList.

        Raises:
            ApiError: the user has no right to them, or the API server does not answer.
        """
        with needs(SUMMARIES):
            return await ask(self._client, path(*_API, "queuesummaries"), {"limit": "5000"})

    async def topologies(self) -> JSON:
        """Return all Topologies with their widest level: TopologySummaryList."""
        with needs(SUMMARIES):
            return await ask(self._client, path(*_API, "topologysummaries"))

    async def topology_map(self, name: str) -> JSON:
        """Return one Topology leaf by leaf: TopologyMap."""
        with needs(SUMMARIES):
            return await ask(self._client, path(*_API, "topologymaps", name))

    async def explanation(self, namespace: str, name: str) -> JSON:
        """Return the Explanation of a Workload, and its lines for people.

        Raises:
            NotFoundError: there is no such Workload.
            ApiError: the user has no right to it, or the API server does not answer.
        """
        found = await ask(self._client, path(*_API, "namespaces", namespace, "workloads", name, "explanation"))
        return {"explanation": found, "lines": list(self._lines(found))}

    async def workloads(self, namespace: str | None = None) -> JSON:
        """Return a row for each Workload of a namespace, or of all, the oldest first."""
        found = await self._client.list_json(WORKLOADS, namespace)
        found.sort(key=_created)
        left = max(0, len(found) - MOST_WORKLOADS)
        return {"items": [workload_row(obj) for obj in found[:MOST_WORKLOADS]], "left": left}

    async def start_times(self) -> JSON:
        """Return when the waiting workloads start: StartTimeList.

        Raises:
            ApiError: the user has no right to the start times of all namespaces, or the API server does not answer.
        """
        with needs(START_TIMES):
            return await ask(self._client, path(*_API, "starttimes"))

    async def trends(self) -> JSON:
        """Add a point to the trends, and return them.  Maps are read once a minute only.

        Raises:
            ApiError: the user has no right to queues, or the API server does not answer.
        """
        now = int(self._clock.now().timestamp())
        queues, maps = await self.queues(), dict[str, JSON]()
        if now - self._maps_at >= _MAPS_AFTER:
            self._maps_at = now
            topologies = (await self.topologies())["items"][:_MOST_MAPS]
            for name in [topology["metadata"]["name"] for topology in topologies]:
                maps[name] = await self.topology_map(name)
        self._trends.add(now, queues, maps)
        return self._trends.answer()

    async def life(self, namespace: str, name: str) -> JSON:
        """Return a Workload's moments and states; without its events, and `problem`, where the user may not read them.

        Raises:
            NotFoundError: there is no such Workload.
            ApiError: the user has no right to it, or the API server does not answer.
        """
        with needs(workloads_in(namespace)):
            obj = await self._client.get_json(WORKLOADS, name, namespace)
        selector = f"involvedObject.kind={names.WORKLOAD_KIND},involvedObject.name={name}"
        try:
            events = await self._client.list_json(_EVENTS, namespace, field_selector=selector)
        except ForbiddenError as e:
            return {**life(obj, ()), "problem": f"events are not shown: {e}"}
        return life(obj, events)

    async def what_if(self, spec: JSON) -> JSON:
        """Return the answer to a question about changes, which writes nothing, and its lines for people.

        Raises:
            ApiError: the question is wrong, the user has no right to ask it, or the API server does not answer.
        """
        with needs(WHAT_IFS):
            found = await post(self._client, what_if.PLURAL, what_if.KIND, {"spec": spec})
        return {"whatIf": found, "lines": list(self._what_if_lines(found))}

    async def one(self, feed: str) -> JSON:
        """Return the answer behind a feed (`queues`, `topologies`, `workloads`, `starts`, `trends`, `map/NAME`).

        It is without the time at which it was made, so that equal states are equal answers.

        Raises:
            NotFoundError: there is no such feed.
        """
        answer = await self._one(feed)
        for part in (answer, *answer.get("items", ())):
            part.pop("generatedAt", None)
        return answer

    async def _one(self, feed: str) -> JSON:
        kind, _, name = feed.partition("/")
        match kind, bool(name):
            case "queues", False:
                return await self.queues()
            case "topologies", False:
                return await self.topologies()
            case "workloads", False:
                return await self.workloads()
            case "starts", False:
                return await self.start_times()
            case "trends", False:
                return await self.trends()
            case "map", True:
                return await self.topology_map(name)
        raise NotFoundError(f"the page has no view {feed!r}")


def _created(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = obj.get("metadata") or {}
    return str(meta.get("creationTimestamp", "")), str(meta.get("namespace", "")), str(meta.get("name", ""))


def workload_row(obj: Mapping[str, Any]) -> JSON:
    """Return the part of a Workload that a table shows.  Any field of the object may be missing or odd."""
    meta, spec, status = (_mapping(obj.get(part)) for part in ("metadata", "spec", "status"))
    state, since, message = _state(obj, spec)
    pod_sets = spec.get("podSets")
    owners = meta.get("ownerReferences")
    owner = _mapping(owners[0]) if isinstance(owners, list) and owners else {}
    return {
        "namespace": str(meta.get("namespace", "")),
        "name": str(meta.get("name", "")),
        "owner": f"{owner['kind']}/{owner['name']}" if {"kind", "name"} <= owner.keys() else "",
        "queue": str(spec.get("queueName", "")),
        "clusterQueue": str(_mapping(status.get("admission")).get("clusterQueue", "")),
        "priority": spec.get("priority", 0),
        "pods": _pods(pod_sets if isinstance(pod_sets, list) else ()),
        "created": str(meta.get("creationTimestamp", "")),
        "state": state,
        "since": since,
        "message": message,
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pods(pod_sets: Sequence[Any]) -> int:
    counts = (_mapping(pod_set).get("count", 1) for pod_set in pod_sets)
    return sum(count for count in counts if isinstance(count, int))


_STATES = (
    ("Finished", names.CONDITION_FINISHED),
    ("Running", names.CONDITION_PODS_READY),
    ("Admitted", names.CONDITION_ADMITTED),
    ("Reserved", names.CONDITION_QUOTA_RESERVED),
)
"""States of a Workload, the furthest first, and the condition of each."""


def _state(obj: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the state, the time of its beginning, and the message of its condition."""
    state, found = "Pending" if spec.get("active", True) else "Stopped", condition(obj, names.CONDITION_QUOTA_RESERVED)
    for name, kind in _STATES:
        if is_true(obj, kind) and (name != "Running" or is_true(obj, names.CONDITION_ADMITTED)):
            state, found = name, condition(obj, kind)
            break
    shown = found or {}
    return state, str(shown.get("lastTransitionTime", "")), str(shown.get("message", ""))
