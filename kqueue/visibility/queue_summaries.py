"""Summaries of all queues: quota, usage, borrowing, waiting workloads and times, and why a queue is inactive.

    GET queuesummaries[?clusterQueue=NAME][&namespace=NS][&limit=N]

Items are ClusterQueues by name.  `cohorts` has the tree above them.  `localQueues` has the queues that forward to them:
of all namespaces if the user may read all Workloads, else of `namespace` if the user may read Workloads there.

Amounts are texts as Kubernetes writes them.  `used` is the usage of admitted workloads, `reserved` of all workloads
with a reservation; `borrowed` is the part of the reservation above the nominal quota, and `available` the amount that
one more workload could get now, borrowing included, without preemption.  `gangs` has the numbers of gangs by stage; the
ones that are not admitted count at the ClusterQueue to which their LocalQueue forwards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.core import quota
from kqueue.core.fair_share import dominant_share
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.jobs.gang.stage import GangStage
from kqueue.runtime.store import split_key
from kqueue.state.cache import Cache
from kqueue.state.held import QueueHoldings
from kqueue.state.queues import Queues
from kqueue.visibility.catalog import OUR_API_VERSION
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.params import only, whole
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.quota_columns import columns_of, entry

KIND, ITEM_KIND = "QueueSummaryList", "QueueSummary"
MOST_QUEUES = 5000
"""Limit of ClusterQueues, and of LocalQueues, in one answer."""
_FEW = 500
"""Waiting workloads that are read between two yields to the event loop."""


GangStages = Mapping[tuple[str, str, GangStage], int]
"""Numbers of gangs by LocalQueue (namespace/name), ClusterQueue of the admission (empty: none), and stage."""
_SHOWN_STAGES = tuple(stage for stage in GangStage if stage is not GangStage.FINISHED)


class QueueSummaries:
    """Answers for all queues."""

    def __init__(
        self,
        *,
        cache: Cache,
        queues: Queues,
        local_queues: Callable[[], Iterable[wire.LocalQueue]],
        clock: Clock,
        fair_sharing: bool = False,
        gangs: Callable[[], Awaitable[GangStages]] | None = None,
    ) -> None:
        """`fair_sharing`: shares decide the order of workloads, so the answer has them.

        `gangs`: None: no pods are queued.
        """
        self._cache, self._queues, self._clock, self._gangs = cache, queues, clock, gangs
        self._local_queues, self._fair_sharing = local_queues, fair_sharing

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the list.

        Raises:
            ConfigError: a parameter cannot be read.
        """
        only(asked.params, "clusterQueue", "namespace", "limit")
        limit = whole(asked.params, "limit", default=MOST_QUEUES, most=MOST_QUEUES)
        wanted, namespace = asked.params.get("clusterQueue", ""), asked.params.get("namespace", "")
        everywhere = await asked.reads("")
        there = everywhere or (bool(namespace) and await asked.reads(namespace))
        pace, now = RequestPace(self._clock), self._clock.now()
        found = sorted(name for name in self._cache.quota.queue_names() if wanted in ("", name))
        items, stages = [], await self._gangs_by_queue()
        for name in found[:limit]:
            item = await self._cluster_queue(name, now, pace, names_shown=everywhere)
            if item is not None:
                items.append(item | {"gangs": {stage.value: stages[name][stage] for stage in _SHOWN_STAGES}})
        return {
            "kind": KIND,
            "metadata": {},
            "generatedAt": utc_text(now),
            "items": items,
            "left": max(0, len(found) - limit),
            "cohorts": [cohort async for cohort in self._cohorts(pace)] if not wanted else [],
            "localQueues": await self._locals(wanted, namespace, limit, pace) if there else [],
        }

    # --- ClusterQueues -----------------------------------------------------------------------------------------

    async def _cluster_queue(self, name: str, now: datetime, pace: RequestPace, *, names_shown: bool) -> JSON | None:
        """Return one ClusterQueue; None if it was deleted after its name was read."""
        longest = await self._longest_wait(name, now, pace)
        obj, node = self._cache.quota.queue_object(name), self._cache.quota.node_of(name)
        if obj is None or node is None:
            return None
        held, idle = self._cache.held.held_in(name), self._cache.quota.inactive(name)
        active, inadmissible = self._queues.counts(name)
        if idle is not None:
            active, inadmissible = 0, active + inadmissible
        summary: JSON = {
            "kind": ITEM_KIND,
            "apiVersion": OUR_API_VERSION,
            "metadata": {"name": name},
            "cohort": node.parent.name if node.parent is not None else "",
            "path": self._cache.quota.path_of(name),
            "active": idle is None,
            "stopPolicy": obj.spec.stop_policy,
            "queueingStrategy": obj.spec.queueing_strategy,
            "pending": {"active": active, "inadmissible": inadmissible},
            "reserving": held.reserving,
            "admitted": held.admitted,
            "resources": [_column(node, column, held) for column in columns_of(obj)],
        }
        if idle is not None:
            summary |= {"reason": idle.reason, "message": idle.message}
        if longest is not None:
            seconds, key = longest
            summary["longestWaitSeconds"] = seconds
            if names_shown:
                summary["longestWaiting"] = key
        return summary | self._share(node)

    async def _gangs_by_queue(self) -> Mapping[str, Counter[GangStage]]:
        """Return the numbers of gangs of each ClusterQueue by stage."""
        numbers = defaultdict[str, Counter[GangStage]](Counter)
        stages = await self._gangs() if self._gangs is not None else {}
        homes = {(q.metadata.namespace, q.metadata.name): q.spec.cluster_queue for q in self._local_queues()}
        for (local_queue, admitted_by, stage), number in stages.items():
            home = admitted_by or homes.get(split_key(local_queue)) or ""
            numbers[home][stage] += number
        return numbers

    async def _longest_wait(self, name: str, now: datetime, pace: RequestPace) -> tuple[int, str] | None:
        """Return the seconds and the name of the workload that has waited longest; None when no workload waits."""
        oldest: tuple[datetime, str] | None = None
        for number, item in enumerate(self._queues.waiting(name)):
            if number % _FEW == 0:
                await pace.step()
            if oldest is None or (item.timestamp, item.key) < oldest:
                oldest = item.timestamp, item.key
        if oldest is None:
            await pace.step()
            return None
        return max(0, int((now - oldest[0]).total_seconds())), oldest[1]

    def _share(self, node: QuotaNode) -> JSON:
        return {"weightedShare": dominant_share(node).weighted_share()} if self._fair_sharing else {}

    # --- cohorts and LocalQueues -------------------------------------------------------------------------------

    async def _cohorts(self, pace: RequestPace) -> AsyncIterator[JSON]:
        """Yield each cohort with quota and usage of its subtree, parents before children."""
        for name in self._in_tree_order():
            await pace.step()
            node = self._cache.quota.cohort_node(name)
            if node is None:
                continue
            below = [child for child in node.walk() if not child.is_cohort]
            used = quota.total([child.usage for child in below])
            yield {
                "name": name,
                "parent": node.parent.name if node.parent is not None else "",
                "clusterQueues": len(below),
                "resources": [_subtree(node, column, used) for column in sorted({*node.subtree, *used})],
                **self._share(node),
            }

    def _in_tree_order(self) -> list[str]:
        names = self._cache.quota.cohort_names()
        depth = {n: sum(1 for _ in node.path_to_root()) for n in names if (node := self._cache.quota.cohort_node(n))}
        return sorted(depth, key=lambda name: (depth[name], name))

    async def _locals(self, wanted: str, namespace: str, limit: int, pace: RequestPace) -> list[JSON]:
        found = [
            queue
            for queue in self._local_queues()
            if namespace in ("", queue.metadata.namespace) and wanted in ("", queue.spec.cluster_queue)
        ]
        found.sort(key=lambda queue: (queue.metadata.namespace, queue.metadata.name))
        shown = []
        for queue in found[:limit]:
            await pace.step()
            key, cluster_queue = f"{queue.metadata.namespace}/{queue.metadata.name}", queue.spec.cluster_queue or ""
            held = self._cache.held.held_through(key, cluster_queue)
            shown.append(
                {
                    "namespace": queue.metadata.namespace,
                    "name": queue.metadata.name,
                    "clusterQueue": cluster_queue,
                    "stopPolicy": queue.spec.stop_policy,
                    "pending": self._queues.local_count(key),
                    "reserving": held.reserving,
                    "admitted": held.admitted,
                }
            )
        return shown


def _column(node: QuotaNode, column: FlavorResource, held: QueueHoldings) -> JSON:
    own, reserved = node.quota(column), held.reserved.get(column, 0)
    return entry(
        column,
        {
            "nominal": own.nominal,
            "borrowingLimit": own.borrowing_limit,
            "lendingLimit": own.lending_limit,
            "reserved": reserved,
            "used": held.used.get(column, 0),
            "borrowed": max(0, quota.minus(reserved, own.nominal)),
            "available": max(0, quota.available(node, column)),
        },
    )


def _subtree(node: QuotaNode, column: FlavorResource, used: Usage) -> JSON:
    return entry(
        column,
        {
            "nominal": node.quota(column).nominal,
            "quota": node.subtree.get(column, 0),
            "reserved": used.get(column, 0),
        },
    )
