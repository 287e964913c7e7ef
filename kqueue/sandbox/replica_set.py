"""The simulated ReplicaSet controller: keeps the number of pods.  Left out: adoption by selector, minReadySeconds."""

from __future__ import annotations

from collections.abc import Sequence

from kqueue.clock import Clock
from kqueue.sandbox.api import Api, Object
from kqueue.sandbox.job_status import is_active, is_ready
from kqueue.sandbox.json_object import is_deleting
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.owner_loop import OwnerLoop
from kqueue.sandbox.replicas import PodWriter, controlled_by, each, pod_from

KIND = "ReplicaSet"


class ReplicaSetController:
    """Creates missing pods, and deletes surplus pods."""

    def __init__(self, api: Api, *, replica_sets: Mirror, pods: Mirror, clock: Clock) -> None:
        self._writer = PodWriter(api, pods)
        self._sets = OwnerLoop(
            "replica set",
            self._look,
            api=api,
            owners=replica_sets,
            owned=pods,
            owner_of=controlled_by(KIND),
            clock=clock,
        )
        self.loop = self._sets.loop
        self.run = self._sets.run

    async def _look(self, replica_set: Object) -> None:
        if is_deleting(replica_set):
            return
        spec = replica_set["spec"]
        active = self._active(replica_set)
        try:
            missing = spec["replicas"] - len(active)
            pod = pod_from(spec["template"], replica_set, KIND)
            await each([pod] * missing, self._writer.create)
            await each(surplus(active, -missing), self._writer.delete)
        finally:
            await self._write_status(replica_set)

    def _active(self, replica_set: Object) -> list[Object]:
        return [pod for pod in self._sets.owned_by(replica_set) if is_active(pod)]

    async def _write_status(self, replica_set: Object) -> None:
        active = self._active(replica_set)
        ready = sum(map(is_ready, active))
        wanted = {
            "observedGeneration": replica_set["metadata"].get("generation"),
            "replicas": len(active),
            "fullyLabeledReplicas": len(active) or None,
            "readyReplicas": ready or None,
            "availableReplicas": ready or None,
        }
        await self._sets.write_status(replica_set, wanted)


def surplus(active: Sequence[Object], number: int) -> list[Object]:
    """Return the `number` pods to delete: first pods without a node, then pods not ready, then the youngest."""
    order = sorted(active, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", reverse=True)
    order.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), is_ready(pod)))
    return order[: max(0, number)]
