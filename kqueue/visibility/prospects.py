"""The planner's inputs for workloads that do not exist: as if their queue saw them for the first time now.

Nothing is created, reserved or remembered by a question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.core import quota
from kqueue.core.planned_state import PlannedState
from kqueue.core.why import Alternative
from kqueue.core.workload import Admission, Head, Snapshot
from kqueue.errors import InvalidObjectError
from kqueue.model.pending import Pending
from kqueue.state.namespaces import namespace_problem
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.question import JSON
from kqueue.visibility.sources import Freshness, Known, PlanningSource
from kqueue.visibility.workload_state import Hindrance

_LINE_STEP = 500
_MOST_SPARES = 256
"""Limit of left-out nodes of a flavor that a search for changes considers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """The sources of answers about workloads that do not exist.

    Args:
        held_back: returns the reasons that keep a Workload out of its queue.
        pending: returns the entry that a Workload would have in the queues.
    """

    known: Known
    planning: PlanningSource
    held_back: Callable[[wire.Workload], Iterable[Hindrance]]
    pending: Callable[[wire.Workload], Pending]
    clock: Clock
    freshness: Freshness

    def cluster_queue(self, obj: wire.Workload) -> str:
        """Return the ClusterQueue of the Workload's LocalQueue; empty: there is none."""
        local = self.known.local_queues.get(model.local_queue_key(obj))
        return (local.spec.cluster_queue or "") if local is not None else ""

    def hindrances(self, obj: wire.Workload, queue: str) -> Iterator[Hindrance]:
        """Yield the reasons why no cycle would try the Workload now."""
        found = False
        for hindrance in self.held_back(obj):
            found = True
            yield hindrance
        if not found and self.known.cache.quota.queue_spec(queue) is None:
            yield Hindrance(names.REASON_MISCONFIGURED, f"ClusterQueue {queue or '(none)'} does not exist")

    def holds(self, queue: str, ahead: int) -> str:
        """Return what keeps a workload from starting although it fits; empty: nothing does."""
        if self.known.queues.is_strict(queue) and ahead:
            return f"ClusterQueue {queue} is StrictFIFO, and {ahead} are before it"
        if self.planning.held_by():
            return "pods of another workload must be ready before the next admission"
        return ""

    async def ahead(self, item: Pending, queue: str, pace: RequestPace) -> int:
        """Count the workloads of the ClusterQueue that are tried before it."""
        queues = self.known.queues
        if not queues.knows(queue):
            return 0
        own, before = queues.rank(queue, item), 0
        for number, other in enumerate(queues.waiting(queue)):
            if number % _LINE_STEP == 0:
                await pace.step()
                if not queues.knows(queue):
                    return before
            before += queues.rank(queue, other) < own
        return before

    def head(self, obj: wire.Workload, queue: str) -> Head:
        """Return the Workload as the planner's input.

        Raises:
            InvalidObjectError: its requests cannot be read.
        """
        return self.planning.heads.make(obj, None, queue=queue, now=self.clock.now())

    async def world(
        self, queues: Collection[str], asked: Collection[str], pace: RequestPace, *, with_holders: bool
    ) -> PlannedState:
        """Return the state of the moment for heads with the UIDs `asked` in these ClusterQueues.

        `with_holders`: with what explanations need besides, the workloads with usage and the nodes that are left out.
        """
        cache = self.known.cache
        for _ in cache.ledger.build_steps():
            await pace.step()
        if with_holders:
            for _ in cache.held.view_steps():
                await pace.step()
        for _ in cache.copy_steps(queues):
            await pace.step()
        ledger = cache.ledger
        spares = [s for flavor in ledger.flavors() for s in ledger.spares(flavor, _MOST_SPARES)] if with_holders else []
        return PlannedState(
            snapshot=cache.snapshot(set(queues), self.planning.claims()),
            rules=self.planning.rules(self.clock.now(), asked),
            holders=cache.held.views() if with_holders else (),
            spares=spares,
            hooks=self.planning.hooks,
        )

    def as_of(self) -> JSON:
        """Return the time and the version of the state in an answer."""
        return {
            "time": utc_text(self.clock.now(), digits=3),
            "generation": self.known.cache.generation,
            "leading": self.freshness.leads(),
        }


def alternatives(
    known: Known, planning: PlanningSource, obj: wire.Workload, item: Pending | None, *, queue: str, clock: Clock
) -> list[Alternative]:
    """Return the Workload as a head of other active LocalQueues of its namespace, of other ClusterQueues."""
    namespace, found = obj.metadata.namespace, list[Alternative]()
    labels = known.namespace_labels(namespace)
    for local in sorted(known.local_queues.values(), key=lambda local: local.metadata.name):
        other = local.spec.cluster_queue
        if local.metadata.namespace != namespace or not other or other == queue:
            continue
        if local.spec.stop_policy != names.STOP_NONE or known.cache.quota.inactive(other) is not None:
            continue
        spec = known.cache.quota.queue_object(other)
        if spec is None or namespace_problem(namespace, labels, spec) is not None:
            continue
        try:
            head = planning.heads.make(obj, item, queue=other, now=clock.now())
        except InvalidObjectError:
            continue
        found.append(Alternative(local_queue=local.metadata.name, head=head))
    return found


def borrowed(snapshot: Snapshot, admission: Admission) -> Mapping[quota.FlavorResource, int]:
    """Return what a charged admission uses beyond the quota of its ClusterQueue, by column."""
    node = snapshot.nodes[admission.queue]
    if node.parent is None:
        return {}
    beyond = {c: min(amount, quota.borrowed(node, c)) for c, amount in admission.usage().items()}
    return {column: amount for column, amount in beyond.items() if amount > 0}
