"""The simulated Deployment controller: one ReplicaSet per template; the newest one replaces the others step by step.

Left out: clean-up of old ReplicaSets, roll-back, progress deadlines, and proportional scaling during a roll-out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError
from kqueue.kube.conditions import with_conditions
from kqueue.sandbox.api import REPLICA_SETS, Api, Object
from kqueue.sandbox.json_object import controller_reference, is_deleting, key_of, split_key, stamp
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.owner_loop import OwnerLoop
from kqueue.sandbox.replicas import controlled_by, template_hash

HASH_LABEL = "pod-template-hash"
KIND = "Deployment"


class DeploymentController:
    """Creates ReplicaSets and distributes the replicas among them."""

    def __init__(self, api: Api, *, deployments: Mirror, replica_sets: Mirror, clock: Clock) -> None:
        self._api, self._clock, self._replica_sets = api, clock, replica_sets
        self._deployments = OwnerLoop(
            "deployment",
            self._look,
            api=api,
            owners=deployments,
            owned=replica_sets,
            owner_of=controlled_by(KIND),
            clock=clock,
        )
        self.loop = self._deployments.loop
        self.run = self._deployments.run

    async def _look(self, deployment: Object) -> None:
        if is_deleting(deployment):
            return
        wanted = new_replica_set(deployment)
        newest = wanted["metadata"]["name"]
        if not deployment["spec"].get("paused"):
            await self._make(wanted)
            sets = self._sets(deployment)
            for replica_set, replicas in zip(sets, shares(deployment, sets, newest), strict=True):
                if replica_set["spec"]["replicas"] != replicas:
                    await self._scale(replica_set, replicas)
        await self._write_status(deployment, newest)

    def _sets(self, deployment: Object) -> list[Object]:
        return [s for s in self._deployments.owned_by(deployment) if not is_deleting(s)]

    async def _make(self, wanted: Object) -> None:
        metadata = wanted["metadata"]
        key = key_of(wanted)
        if self._replica_sets.get(key) is not None:
            return
        try:
            made = await self._api.create(REPLICA_SETS, wanted, namespace=metadata["namespace"])
        except AlreadyExistsError:
            made = self._api.get(REPLICA_SETS, metadata["name"], namespace=metadata["namespace"])
        self._replica_sets.remember(made)

    async def _scale(self, replica_set: Object, replicas: int) -> None:
        namespace, name = split_key(key_of(replica_set))
        patch = {"spec": {"replicas": replicas}}
        self._replica_sets.remember(await self._api.patch(REPLICA_SETS, name, patch, namespace=namespace))

    async def _write_status(self, deployment: Object, newest: str) -> None:
        sets, status = self._sets(deployment), deployment.get("status") or {}
        ready, replicas = _sum(sets, "readyReplicas"), deployment["spec"]["replicas"]
        enough = ready >= replicas - bounds(deployment)[1]
        available = {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"{ready} of {replicas} replicas are available",
        }
        wanted = {
            "observedGeneration": deployment["metadata"].get("generation"),
            "replicas": _sum(sets, "replicas") or None,
            "updatedReplicas": _sum([s for s in sets if s["metadata"]["name"] == newest], "replicas") or None,
            "readyReplicas": ready or None,
            "availableReplicas": ready or None,
            "unavailableReplicas": max(0, _sum(sets, "replicas") - ready) or None,
            "conditions": with_conditions(status.get("conditions") or (), [available], stamp(self._clock.now())),
        }
        await self._deployments.write_status(deployment, wanted)


def new_replica_set(deployment: Object) -> Object:
    """Return the ReplicaSet of the Deployment's present template, with 0 replicas."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    mark = {HASH_LABEL: template_hash(template)}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), **mark}
    selector = spec["selector"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{mark[HASH_LABEL]}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference({**deployment, "apiVersion": "apps/v1", "kind": KIND})],
        },
        "spec": {
            "replicas": 0,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **mark}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }


def shares(deployment: Object, sets: Sequence[Object], newest: str) -> list[int]:
    """Return replicas of each ReplicaSet, in their order: the newest grows and the others shrink, within the bounds.

    Never more pods than `maxSurge` above the replicas, never fewer ready ones than `maxUnavailable` below.
    """
    wanted = deployment["spec"]["replicas"]
    now = {s["metadata"]["name"]: s["spec"]["replicas"] for s in sets}
    ready = {s["metadata"]["name"]: (s.get("status") or {}).get("readyReplicas") or 0 for s in sets}
    exist = {s["metadata"]["name"]: (s.get("status") or {}).get("replicas") or 0 for s in sets}
    old = [name for name in now if name != newest]
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        left = sum(now[name] + exist[name] for name in old)
        return [0 if name != newest else (now[name] if left else wanted) for name in now]
    surge, unavailable = bounds(deployment)
    room = wanted + surge - sum(now.values())
    grown = min(wanted, now[newest] + max(0, room))
    spare = sum(now.values()) - (wanted - unavailable) - max(0, now[newest] - ready[newest])
    result = {**now, newest: grown}
    for broken in (True, False):  # pods that are not ready are removed first
        for name in sorted(old):
            most = max(0, result[name] - ready[name]) if broken else result[name]
            gone = max(0, min(spare, most))
            result[name] -= gone
            spare -= gone
    return list(result.values())


def bounds(deployment: Object) -> tuple[int, int]:
    """Return the numbers behind `maxSurge` and `maxUnavailable`; at least one of them is above 0."""
    replicas = deployment["spec"]["replicas"]
    rolling: Mapping[str, object] = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = _amount(rolling.get("maxSurge", 0), replicas, up=True)
    unavailable = _amount(rolling.get("maxUnavailable", 0), replicas, up=False)
    return surge, unavailable if surge or unavailable else 1


def _amount(written: object, of: int, *, up: bool) -> int:
    if isinstance(written, str) and written.endswith("%"):
        share = int(written[:-1]) * of
        return -(-share // 100) if up else share // 100
    return int(str(written))


def _sum(sets: Sequence[Object], field: str) -> int:
    return sum((s.get("status") or {}).get(field) or 0 for s in sets)
