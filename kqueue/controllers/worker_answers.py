"""Asks worker clusters how a workload would stand there, and keeps their answers for some seconds.

Equal workloads are asked about once.  Workloads that were sent to a cluster since it was asked are subtracted from its
answer.  A cluster that does not answer in time, has no such API, or refuses, counts as unknown; nothing waits longer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import placement as api
from kqueue.clock import Clock
from kqueue.controllers.worker_cluster import WorkerCluster, WorkerLink
from kqueue.errors import ApiError, ForbiddenError, NotFoundError
from kqueue.jobs.multikueue.answers import ClusterAnswer, InFlight, read_answer, unknown
from kqueue.jobs.multikueue.facts import MultiKueueFacts
from kqueue.jobs.multikueue.ranking import asked_clusters
from kqueue.runtime.deadline import cancel_and_wait, within
from kqueue.runtime.lane import Lane
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.resources import ResourceType

_log = structlog.get_logger(__name__)

PLACEMENTS = ResourceType(names.KQUEUE_VISIBILITY_GROUP, "v1alpha1", api.PLURAL, api.KIND)
FRESH_SECONDS = 10.0
"""Seconds for which an answer counts."""
_NOT_SERVED_SECONDS = 60.0
"""Seconds after which a cluster without the API is asked again."""
_MOST = 4096
"""The largest number of kept answers."""
_NOT_SERVED = "it does not serve placements.visibility.kqueue.dev: kqueue there is older, or is another system"

Question = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, and the digest by which equal ones are known."""

    digest: str
    body: Question


async def _post(link: WorkerLink, question: Question) -> Any:
    return await link.client.create(PLACEMENTS, question, lane=Lane.REVIEWS)


class WorkerAnswers:
    """The answers of all clusters of a manager."""

    def __init__(
        self,
        clusters: Mapping[str, WorkerCluster],
        clock: Clock,
        *,
        on_answer: Callable[[str], object],
        answer_within: timedelta,
        patience: timedelta,
        workloads: Callable[[], Iterable[wire.Workload]],
        post: Callable[[WorkerLink, Question], Awaitable[Any]] = _post,
    ) -> None:
        """`on_answer` is called with the key of each Workload for which a cluster has answered, or has not in time;
        `patience` is the time after which a workload that was sent to a cluster is not counted there any more;
        `workloads` returns those of the manager, of which former processes have sent some.
        """
        self._clusters, self._clock, self._on_answer, self._post = clusters, clock, on_answer, post
        self._seconds = answer_within.total_seconds()
        self._answers: OwnWrites[tuple[str, str], ClusterAnswer] = OwnWrites(clock, FRESH_SECONDS, limit=_MOST)
        """By digest and cluster."""
        self._not_served: OwnWrites[str, None] = OwnWrites(clock, _NOT_SERVED_SECONDS)
        self._waiting: dict[tuple[str, str], set[str]] = {}
        """Keys of the Workloads that wait for an answer, by digest and cluster."""
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._in_flight, self._workloads = InFlight(patience), workloads
        self._has_read = False
        """Whether the workloads that former processes have sent are noted."""

    async def run(self) -> None:
        """End all questions when cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in list(self._tasks.values()):
                await cancel_and_wait(task)

    # --- for decisions -------------------------------------------------------------------------------------------

    def answered(self, facts: MultiKueueFacts) -> MultiKueueFacts:
        """Return the facts with the answers that the decision needs; clusters without a fresh one are asked."""
        uid, now = facts.workload.metadata.uid, facts.now
        self._read_sent()
        for remote in facts.remotes:
            if remote.is_true(names.CONDITION_QUOTA_RESERVED):
                self._in_flight.settled(uid, remote.cluster, now)
        facts = replace(facts, sent_at=self._in_flight.last(uid, now))
        clusters = asked_clusters(facts)
        if not clusters:
            return facts
        asked, key = _question(facts.workload), model.workload_key(facts.workload)
        for cluster in clusters:
            if (asked.digest, cluster) not in self._answers:
                self._ask(asked, cluster).add(key)
        return replace(facts, answers=self._known(asked, facts.workload, clusters))

    def _read_sent(self) -> None:
        """Note, once, the workloads that wait on clusters to which former processes have sent them."""
        if self._has_read:
            return
        self._has_read = True
        now = self._clock.now()
        for workload in self._workloads():
            nominated = workload.status.nominated_cluster_names
            if nominated and model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
                self._in_flight.found(workload.metadata.uid, nominated, _pods(workload), now)

    def decided(self, facts: MultiKueueFacts, nominated: Collection[str]) -> None:
        """Note the clusters to which a workload is sent."""
        self._in_flight.sent(facts.workload.metadata.uid, nominated, _pods(facts.workload), facts.now)

    def _known(self, asked: _Asked, workload: wire.Workload, clusters: Iterable[str]) -> dict[str, ClusterAnswer]:
        """Return the answers that there are, without the room that other workloads on their way there will take."""
        now, found = self._clock.now(), dict[str, ClusterAnswer]()
        for cluster in clusters:
            answer = self._answers.get((asked.digest, cluster))
            if answer is not None:
                since = answer.asked_at or now
                others = self._in_flight.ahead(cluster, workload.metadata.uid, _pods(workload), since, now)
                found[cluster] = answer.charged(others)
        return found

    # --- for people ----------------------------------------------------------------------------------------------

    async def all(self, workload: wire.Workload, clusters: Sequence[str]) -> dict[str, ClusterAnswer]:
        """Return the answer of each of these clusters, after no longer than one of them has to answer."""
        asked = _question(workload)
        for cluster in clusters:
            if (asked.digest, cluster) not in self._answers:
                self._ask(asked, cluster)
        asking = [task for (digest, _), task in self._tasks.items() if digest == asked.digest]
        if asking:
            await asyncio.wait(asking)
        return self._known(asked, workload, clusters)

    # --- questions -----------------------------------------------------------------------------------------------

    def _ask(self, asked: _Asked, cluster: str) -> set[str]:
        """Ask a cluster, unless it is being asked.  Return the Workloads that wait for its answer."""
        place = (asked.digest, cluster)
        if place not in self._tasks:
            self._waiting[place] = set()
            self._tasks[place] = asyncio.create_task(self._asking(asked, cluster), name=f"ask {cluster}")
        return self._waiting[place]

    async def _asking(self, asked: _Asked, cluster: str) -> None:
        place = (asked.digest, cluster)
        try:
            self._answers.remember(place, await self._answer(asked, cluster))
        finally:
            waiting = self._waiting.pop(place, set())
            self._tasks.pop(place, None)
        for key in waiting:
            self._on_answer(key)

    async def _answer(self, asked: _Asked, cluster: str) -> ClusterAnswer:
        """Return the answer of a cluster; unknown, with the reason, if it has none."""
        now, found = self._clock.now(), self._clusters.get(cluster)
        link = found.link if found is not None else None
        if link is None:
            return unknown("it is not connected", now)
        if cluster in self._not_served:
            return unknown(_NOT_SERVED, now)
        try:
            said = await within(self._clock, self._seconds, _awaited(self._post(link, asked.body)))
        except TimeoutError:
            return unknown(f"no answer within {self._seconds:g} s", now)
        except ForbiddenError as e:
            return unknown(f"the user of its kubeconfig needs the right to create {api.PLURAL}: {e}", now)
        except ApiError as e:
            if isinstance(e, NotFoundError) or e.status == 405:
                self._not_served.remember(cluster, None)
                _log.info("worker cluster cannot be asked", cluster=cluster, why=_NOT_SERVED)
                return unknown(_NOT_SERVED, now)
            return unknown(f"it cannot answer: {e}", now)
        return read_answer(said, now)


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


def _pods(workload: wire.Workload) -> int:
    return sum(each.count for each in workload.spec.pod_sets)


def _question(workload: wire.Workload) -> _Asked:
    """Return the question about a Workload: what planning reads of it, without what is its own alone."""
    meta = workload.metadata
    question = api.PlacementQuestion(
        metadata=api.PlacementMetadata(namespace=meta.namespace, annotations=dict(sorted(meta.annotations.items()))),
        spec=workload.spec,
    )
    encoded = msgspec.json.encode(question)
    body: Question = {"apiVersion": PLACEMENTS.api_version, "kind": api.KIND, **msgspec.json.decode(encoded)}
    return _Asked(hashlib.sha256(encoded).hexdigest(), body)
