"""The LocalQueues of one namespace: quota, use, borrowing, and the places of waiting workloads.

    GET namespaces/NS/queuequotas[?localQueue=NAME][&limit=N]

The question needs rights in the namespace only, so the answer has no names of other namespaces: their usage and
requests in the ClusterQueue are part of sums.  Waiting workloads are named where the user may read the Workloads of the
namespace, at most `limit` of each LocalQueue.

Amounts are texts as Kubernetes writes them.  `reserved` and `used` are amounts of workloads of the LocalQueue; the
other amounts belong to its ClusterQueue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.core import quota
from kqueue.core.fair_share import dominant_share
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.errors import NotFoundError
from kqueue.runtime.store import object_key, split_key
from kqueue.state.cache import Cache
from kqueue.state.held import QueueHoldings
from kqueue.state.queues import Queues
from kqueue.visibility import budgets
from kqueue.visibility.catalog import OUR_API_VERSION
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.params import only, whole
from kqueue.visibility.pending import PendingWorkloads, Place
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.quota_columns import columns_of, entry

KIND, ITEM_KIND = "QueueQuotaList", "QueueQuota"
MOST_QUEUES = 1000
"""Limit of LocalQueues in one answer."""
DEFAULT_WAITING, MOST_WAITING = 20, 1000
"""Named waiting workloads of one LocalQueue: by default, and at most."""
_STEP = 500
"""Places that are read between two yields to the event loop."""


class QueueQuotas:
    """Answers for the LocalQueues of one namespace."""

    def __init__(
        self,
        *,
        cache: Cache,
        queues: Queues,
        pending: PendingWorkloads,
        local_queues: Callable[[], Iterable[wire.LocalQueue]],
        clock: Clock,
        fair_sharing: bool = False,
    ) -> None:
        """`fair_sharing`: the order of admission follows shares, so the answer has them."""
        self._cache, self._queues, self._pending, self._clock = cache, queues, pending, clock
        self._local_queues, self._fair_sharing = local_queues, fair_sharing

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the list, sorted by name.

        Raises:
            ConfigError: a parameter cannot be read.
            NotFoundError: the LocalQueue in the query does not exist.
        """
        only(asked.params, "localQueue", "limit")
        limit = whole(asked.params, "limit", default=DEFAULT_WAITING, most=MOST_WAITING)
        wanted = asked.params.get("localQueue", "")
        found = sorted(
            (one for one in self._local_queues() if one.metadata.namespace == asked.namespace),
            key=lambda one: one.metadata.name,
        )
        found = [one for one in found if wanted in ("", one.metadata.name)]
        if wanted and not found:
            raise NotFoundError(f'localqueues "{wanted}" not found', status=404)
        named, pace = await asked.reads(asked.namespace), RequestPace(self._clock)
        lines = await self._lines(found[:MOST_QUEUES], limit, pace) if named else {}
        return {
            "kind": KIND,
            "metadata": {},
            "generatedAt": utc_text(self._clock.now()),
            "items": [self._item(one, lines) for one in found[:MOST_QUEUES]],
            "left": max(0, len(found) - MOST_QUEUES),
        }

    async def _lines(self, found: Iterable[wire.LocalQueue], limit: int, pace: RequestPace) -> dict[str, list[Place]]:
        """Return the first `limit` places of each of these LocalQueues, by its key; read each ClusterQueue once."""
        lines: dict[str, list[Place]] = {_key(one): [] for one in found}
        for home in sorted({one.spec.cluster_queue or "" for one in found}):
            for number, place in enumerate(await self._pending.places(home)):
                if number % _STEP == 0:
                    await pace.step()
                line = lines.get(place.item.local_queue)
                if line is not None and len(line) < limit:
                    line.append(place)
        return lines

    def _item(self, obj: wire.LocalQueue, lines: dict[str, list[Place]]) -> JSON:
        key, home = _key(obj), obj.spec.cluster_queue or ""
        held = self._cache.held.held_through(key, home)
        item: JSON = {
            "kind": ITEM_KIND,
            "apiVersion": OUR_API_VERSION,
            "metadata": {"name": obj.metadata.name, "namespace": obj.metadata.namespace},
            "clusterQueue": home,
            "stopPolicy": obj.spec.stop_policy,
            **_activity(obj),
            "pending": self._queues.local_count(key),
            "clusterQueuePending": sum(self._queues.counts(home)),
            "reserving": held.reserving,
            "admitted": held.admitted,
            "resources": [],
            **budgets.shown(self._cache.budgets.accounts(home, key)),
        }
        if key in lines:
            item["waiting"] = [_waiting(place) for place in lines[key]]
        return item | self._quota(home, held)

    def _quota(self, home: str, held: QueueHoldings) -> JSON:
        """Return the quota; empty if the ClusterQueue does not exist."""
        obj, node = self._cache.quota.queue_object(home), self._cache.quota.node_of(home)
        if obj is None or node is None:
            return {}
        of_all = self._cache.held.held_in(home)
        resources = [_column(node, column, held, of_all) for column in columns_of(obj)]
        share = {"weightedShare": dominant_share(node).weighted_share()} if self._fair_sharing else {}
        return {"resources": resources, **share}


def _key(obj: wire.LocalQueue) -> str:
    return object_key(obj.metadata.namespace, obj.metadata.name)


def _activity(obj: wire.LocalQueue) -> JSON:
    """Return whether the LocalQueue is active, from its condition; empty without a condition."""
    found = model.condition(obj.status.conditions, names.CONDITION_ACTIVE)
    if found is None:
        return {}
    active = found.status == "True"
    return {"active": active} if active else {"active": active, "reason": found.reason, "message": found.message}


def _column(node: QuotaNode, column: FlavorResource, held: QueueHoldings, of_all: QueueHoldings) -> JSON:
    nominal, reserved = node.quota(column).nominal, of_all.reserved.get(column, 0)
    available = max(0, quota.available(node, column))
    own_free = max(0, quota.minus(nominal, reserved))
    return entry(
        column,
        {
            "nominal": nominal,
            "reserved": held.reserved.get(column, 0),
            "used": held.used.get(column, 0),
            "clusterQueueReserved": reserved,
            "borrowed": max(0, quota.minus(reserved, nominal)),
            "borrowable": max(0, quota.minus(available, own_free)),
            "available": available,
        },
    )


def _waiting(place: Place) -> JSON:
    """Return a waiting workload; positions count from 1, as in explanations."""
    return {
        "name": split_key(place.item.key)[1],
        "position": place.in_local_queue + 1,
        "positionInClusterQueue": place.in_cluster_queue + 1,
        "priority": place.item.priority,
    }
