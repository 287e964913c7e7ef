"""The policies of a round, and the traits of its workloads, from the objects of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.joint.registry import DEFAULT_POLICIES, PolicySpec, looks_at_use
from kqueue.core.joint.round_policies import PolicyInput
from kqueue.core.joint.statistics import NO_STATISTICS, NodeStatistics
from kqueue.core.joint.traits import Traits
from kqueue.core.workload import Head, Snapshot

_INTERFERENCE = "interference"


class PolicyReader:
    """Finds the policies of ClusterQueues, and what Workloads tell them."""

    def __init__(
        self,
        specs: Sequence[PolicySpec],
        newest: Callable[[str], wire.Workload | None],
        queue_object: Callable[[str], wire.ClusterQueue | None],
    ) -> None:
        """Take the policies of the configuration; ClusterQueues may name others."""
        self._specs, self._newest, self._queue_object = tuple(specs), newest, queue_object
        self.statistics: Callable[[], NodeStatistics] = lambda: NO_STATISTICS
        """Returns the measured use of the moment; asked only for rounds with a policy that looks at it."""

    def have_say(self, queues: Iterable[str]) -> bool:
        """Whether policies choose places for workloads of any of these ClusterQueues, so that one workload alone is
        worth a round.
        """
        return any((self._of(queue) or self._specs) != DEFAULT_POLICIES for queue in queues)

    def read(self, batch: Mapping[str, Sequence[Head]], snapshot: Snapshot) -> PolicyInput:
        """Return the policies of a batch.  Traits of running workloads and measured use are read if a policy looks at
        them.
        """
        of_queue = {queue: specs for queue in batch if (specs := self._of(queue)) is not None}
        every = [*self._specs, *(spec for some in of_queue.values() for spec in some)]
        if all(spec in DEFAULT_POLICIES for spec in every):
            return PolicyInput(specs=self._specs)
        traits = self._traits((head.uid, head.key) for heads in batch.values() for head in heads)
        if any(spec.name == _INTERFERENCE for spec in every):
            traits |= self._traits((w.uid, w.key) for some in snapshot.admitted.values() for w in some.values())
        statistics = self.statistics() if looks_at_use(every) else NO_STATISTICS
        return PolicyInput(specs=self._specs, of_queue=of_queue, traits=traits, statistics=statistics)

    def _traits(self, workloads: Iterable[tuple[str, str]]) -> dict[str, Traits]:
        found: dict[str, Traits] = {}
        for uid, key in workloads:
            obj = self._newest(key)
            traits = model.traits_of(obj.metadata) if obj is not None else None
            if traits is not None:
                found[uid] = traits
        return found

    def _of(self, queue: str) -> tuple[PolicySpec, ...] | None:
        obj = self._queue_object(queue)
        return model.joint_policies(obj.metadata)[0] if obj is not None else None
