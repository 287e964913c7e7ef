"""The simulated StatefulSet controller: numbered pods, created and replaced in order or all at once.

Both pod management policies, start ordinals, revisions, rolling updates with a partition and `OnDelete` work as in
Kubernetes.  Left out: volume claims, minReadySeconds, clean-up of old revisions, and `maxUnavailable`.
"""

from __future__ import annotations

import contextlib

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, NotFoundError
from kqueue.sandbox import stateful_plan
from kqueue.sandbox.api import CONTROLLER_REVISIONS, Api, Object
from kqueue.sandbox.json_object import controller_reference, is_deleting
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.owner_loop import OwnerLoop
from kqueue.sandbox.replicas import PodWriter, controlled_by, each, template_hash


class StatefulSetController:
    """Runs StatefulSets.  ControllerRevisions keep the templates of former revisions for pods that need them."""

    def __init__(self, api: Api, *, stateful_sets: Mirror, pods: Mirror, clock: Clock) -> None:
        self._api, self._writer = api, PodWriter(api, pods)
        self._sets = OwnerLoop(
            "stateful set",
            self._look,
            api=api,
            owners=stateful_sets,
            owned=pods,
            owner_of=controlled_by(stateful_plan.KIND),
            clock=clock,
        )
        self.loop = self._sets.loop
        self.run = self._sets.run

    async def _look(self, stateful_set: Object) -> None:
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
        numbered = {stateful_plan.ordinal_of(pod): pod for pod in self._sets.owned_by(stateful_set)}
        return {ordinal: pod for ordinal, pod in sorted(numbered.items()) if ordinal is not None}

    async def _revision(self, stateful_set: Object) -> str:
        """Return the name of the present template's revision, created if it was missing."""
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
        """Return a new pod; below the partition it has the current revision, else the update."""
        revision = current if ordinal < stateful_plan.partition(stateful_set) else update
        kept = self._api.get(CONTROLLER_REVISIONS, revision, namespace=stateful_set["metadata"]["namespace"])
        return stateful_plan.new_pod(stateful_set, kept["data"]["spec"]["template"], ordinal, revision)

    async def _write_status(self, stateful_set: Object, update: str) -> None:
        wanted = stateful_plan.status(stateful_set, self._sets.owned_by(stateful_set), update)
        await self._sets.write_status(stateful_set, wanted)
