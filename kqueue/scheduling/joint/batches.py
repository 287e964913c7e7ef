"""The batch of a round: waiting workloads of the ClusterQueues that are planned jointly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.joint.registry import DEFAULT_POLICIES, PolicySpec
from kqueue.core.workload import Head
from kqueue.errors import InvalidObjectError
from kqueue.scheduling.context import Context
from kqueue.scheduling.joint.policies import PolicyReader
from kqueue.scheduling.planning import PlanMaker
from kqueue.state.namespaces import namespace_problem

_TURN = 0.005
"""Seconds of work after which the event loop gets a turn."""

IsJoint = Callable[[wire.Workload, str], bool]
"""Whether a Workload in a ClusterQueue is planned jointly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The largest numbers of workloads and pods of a round, and of workloads of one ClusterQueue in it."""

    workloads: int = 1_000
    per_queue: int = 100
    pods: int = 50_000


class BatchReader:
    """Finds the workloads of the next round."""

    def __init__(
        self,
        context: Context,
        planning: PlanMaker,
        namespace_labels: Callable[[str], Mapping[str, str] | None],
        is_joint: IsJoint,
        specs: Sequence[PolicySpec] = DEFAULT_POLICIES,
    ) -> None:
        self._clock, self._newest = context.clock, context.writer.newest
        self._planning, self._labels, self._is_joint = planning, namespace_labels, is_joint
        state = context.state
        self._queues, self._cache, self._quarantine = state.queues, state.cache, state.quarantine
        self._preemptions = state.preemptions
        self.policies = PolicyReader(specs, context.writer.newest, state.cache.quota.queue_object)
        """The policies of ClusterQueues."""

    def first(self, queue: str) -> str | None:
        """Return the first workload of a ClusterQueue if it takes part in rounds; None: it does not."""
        keys, _ = self._queues.front(queue, 1)
        return keys[0] if keys and self._head(queue, keys[0]) is not None else None

    async def read(self, queues: list[str], limits: BatchLimits) -> dict[str, tuple[Head, ...]]:
        """Return the workloads of these ClusterQueues, each in its order; the queues take turns."""
        lines = {queue: self._line(queue, limits.per_queue) for queue in queues}
        found: dict[str, list[Head]] = {queue: [] for queue in queues}
        number, pods, since = 0, 0, self._clock.monotonic()
        while lines and number < limits.workloads and pods < limits.pods:
            for queue in list(lines):
                head = next(lines[queue], None)
                if head is None:
                    del lines[queue]
                    continue
                found[queue].append(head)
                number += 1
                pods += sum(pod_set.request.count for pod_set in head.pod_sets)
            if self._clock.monotonic() - since > _TURN:
                await self._clock.sleep(0)
                since = self._clock.monotonic()
        return {queue: tuple(heads) for queue, heads in found.items() if heads}

    def _line(self, queue: str, most: int) -> Iterator[Head]:
        """Yield the workloads of a ClusterQueue that take part; in a strict queue, those before the first that does
        not.
        """
        keys, _ = self._queues.front(queue, most)
        for key in keys:
            head = self._head(queue, key)
            if head is not None:
                yield head
            elif self._queues.is_strict(queue):
                return

    def _head(self, queue: str, key: str) -> Head | None:
        """Return a workload as the planner's input; None: it takes no part in rounds.

        Workloads that an ordinary cycle must decide take no part: those with a claim, slices of elastic jobs, gangs
        with least resources, pods beyond the quorum of a gang, and workloads that the cycle would refuse.
        """
        obj = self._newest(key)
        if obj is None or not model.is_queueable(obj) or not self._is_joint(obj, queue):
            return None
        if key in self._quarantine or self._preemptions.claim_of(obj.metadata.uid) is not None:
            return None
        namespace = obj.metadata.namespace
        if namespace_problem(namespace, self._labels(namespace), self._cache.quota.queue_object(queue)) is not None:
            return None
        try:
            head = self._planning.heads.make(obj, None, queue=queue, now=self._clock.now())
        except InvalidObjectError:
            return None
        special = (
            head.replaces is not None
            or head.least
            or head.extra_of
            or head.variant
            or head.problem
            or head.plugin_problem
        )
        return None if special else head
