"""The simulated ReplicaSet controller: as many pods as asked for.  Left out: adoption by selector, minReadySeconds."""

from __future__ import annotations

from collections.abc import Sequence

from kqueue.clock import Clock
from kqueue.errors import NotFoundError
from kqueue.sandbox.api import REPLICA_SETS, Api, Object
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.job_status import changed_fields, is_active, is_ready
from kqueue.sandbox.json_object import is_deleting, key_of, split_key, uid_of
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.replicas import PodWriter, controlled_by, each, owner_key, pod_from

KIND = "ReplicaSet"
_PODS = "replica set"


class ReplicaSetController:
    """Makes pods that are missing, and deletes those that are too many."""

    def __init__(self, api: Api, *, replica_sets: Mirror, pods: Mirror, clock: Clock) -> None:
        self._api, self._replica_sets, self._pods = api, replica_sets, pods
        self._writer = PodWriter(api, pods)
        self._owner = controlled_by(KIND)
        self.loop = ControllerLoop("replica set", self._reconcile, clock=clock)
        pods.add_index(_PODS, self._owner)
        replica_sets.on_change(self._on_replica_set)
        pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Run ReplicaSets until cancelled."""
        await self._replica_sets.synced.wait()
        await self._pods.synced.wait()
        await self.loop.run()

    def _on_replica_set(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self.loop.add(key_of(new))

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        if self._owner(pod) is not None:
            self.loop.add(owner_key(pod))

    async def _reconcile(self, key: str) -> None:
        namespace, name = split_key(key)
        try:
            replica_set = self._api.get(REPLICA_SETS, name, namespace=namespace)
        except NotFoundError:
            return
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
        return [pod for pod in self._pods.by(_PODS, uid_of(replica_set)).values() if is_active(pod)]

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
        changes = changed_fields(replica_set.get("status") or {}, wanted)
        if changes:
            namespace, name = split_key(key_of(replica_set))
            written = await self._api.patch(
                REPLICA_SETS, name, {"status": changes}, namespace=namespace, subresource="status"
            )
            self._replica_sets.remember(written)


def surplus(active: Sequence[Object], number: int) -> list[Object]:
    """Who goes first: pods without a node, then those that are not ready, then the youngest."""
    order = sorted(active, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", reverse=True)
    order.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), is_ready(pod)))
    return order[: max(0, number)]
