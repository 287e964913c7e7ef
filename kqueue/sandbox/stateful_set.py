"""The simulated StatefulSet controller: numbered pods, made and replaced in order or all at once.

Both pod management policies, start ordinals, revisions, rolling updates with a partition and `OnDelete` work as in
Kubernetes.  Left out: volume claims, minReadySeconds, clean-up of old revisions, and `maxUnavailable`.
"""

from __future__ import annotations

import contextlib

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, NotFoundError
from kqueue.sandbox import stateful_plan
from kqueue.sandbox.api import CONTROLLER_REVISIONS, STATEFUL_SETS, Api, Object
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.job_status import changed_fields
from kqueue.sandbox.json_object import controller_reference, is_deleting, key_of, split_key, uid_of
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.replicas import PodWriter, controlled_by, each, owner_key, template_hash

_PODS = "stateful set"


class StatefulSetController:
    """Runs StatefulSets.  Templates of revisions that pods still need are kept in ControllerRevisions."""

    def __init__(self, api: Api, *, stateful_sets: Mirror, pods: Mirror, clock: Clock) -> None:
        self._api, self._stateful_sets, self._pods = api, stateful_sets, pods
        self._writer = PodWriter(api, pods)
        self._owner = controlled_by(stateful_plan.KIND)
        self.loop = ControllerLoop("stateful set", self._reconcile, clock=clock)
        pods.add_index(_PODS, self._owner)
        stateful_sets.on_change(self._on_stateful_set)
        pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Run StatefulSets until cancelled."""
        await self._stateful_sets.synced.wait()
        await self._pods.synced.wait()
        await self.loop.run()

    def _on_stateful_set(self, old: Object | None, new: Object | None) -> None:
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
            stateful_set = self._api.get(STATEFUL_SETS, name, namespace=namespace)
        except NotFoundError:
            return
        if is_deleting(stateful_set):
            return
        update = await self._revision(stateful_set)
        current = (stateful_set.get("status") or {}).get("currentRevision") or update
        found = stateful_plan.plan(stateful_set, self._numbered(stateful_set), update)
        try:
            await each(found.delete, self._writer.delete)
            pods = [self._new_pod(stateful_set, ordinal, current, update) for ordinal in found.create]
            await each(pods, self._writer.create)
        finally:
            await self._write_status(stateful_set, update)

    def _numbered(self, stateful_set: Object) -> dict[int, Object]:
        numbered = {stateful_plan.ordinal_of(pod): pod for pod in self._present(stateful_set)}
        return {ordinal: pod for ordinal, pod in sorted(numbered.items()) if ordinal is not None}

    def _present(self, stateful_set: Object) -> list[Object]:
        return list(self._pods.by(_PODS, uid_of(stateful_set)).values())

    async def _revision(self, stateful_set: Object) -> str:
        """Name of the revision of the template as it is now; it exists afterwards."""
        metadata, template = stateful_set["metadata"], stateful_set["spec"]["template"]
        name = f"{metadata['name']}-{template_hash(template)}"
        owner = controller_reference({**stateful_set, "apiVersion": "apps/v1", "kind": stateful_plan.KIND})
        revision = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": name, "namespace": metadata["namespace"], "ownerReferences": [owner]},
            "data": {"spec": {"template": template}},
            "revision": metadata.get("generation", 1),
        }
        try:
            self._api.get(CONTROLLER_REVISIONS, name, namespace=metadata["namespace"])
        except NotFoundError:
            with contextlib.suppress(AlreadyExistsError):
                await self._api.create(CONTROLLER_REVISIONS, revision, namespace=metadata["namespace"])
        return name

    def _new_pod(self, stateful_set: Object, ordinal: int, current: str, update: str) -> Object:
        """Below the partition pods are made as they were."""
        revision = current if ordinal < stateful_plan.partition(stateful_set) else update
        kept = self._api.get(CONTROLLER_REVISIONS, revision, namespace=stateful_set["metadata"]["namespace"])
        return stateful_plan.new_pod(stateful_set, kept["data"]["spec"]["template"], ordinal, revision)

    async def _write_status(self, stateful_set: Object, update: str) -> None:
        wanted = stateful_plan.status(stateful_set, self._present(stateful_set), update)
        changes = changed_fields(stateful_set.get("status") or {}, wanted)
        if changes:
            namespace, name = split_key(key_of(stateful_set))
            written = await self._api.patch(
                STATEFUL_SETS, name, {"status": changes}, namespace=namespace, subresource="status"
            )
            self._stateful_sets.remember(written)
