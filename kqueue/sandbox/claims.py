"""Claims for devices: made for pods from templates, allocated where their pod goes, and given back at its end."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, NotFoundError
from kqueue.sandbox.api import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Api,
    Object,
)
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.devices import DeviceInventory, results_of
from kqueue.sandbox.json_object import controller_reference, is_terminal, key_of, split_key, uid_of
from kqueue.sandbox.mirror import Mirror

NO_CLAIM = "waiting for resource claims to be created"
NO_DEVICES = "cannot allocate all claims"
"""Causes that a pod finds no node."""
_OF_POD = "pod"
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """The nodes on which a pod may run, with the devices that each of its claims gets there."""

    claims: tuple[Object, ...]
    by_node: dict[str, list[list[Object]]]


class SimulatedClaims:
    """Follows pods with claims, and finds devices for them.

    It is the resource claim controller of the cluster, and the part of the scheduler that allocates devices.
    """

    def __init__(self, api: Api, *, pods: Mirror, clock: Clock) -> None:
        self._api, self._pods = api, pods
        self._claims, self._templates = (
            Mirror(api, RESOURCE_CLAIMS, clock),
            Mirror(api, RESOURCE_CLAIM_TEMPLATES, clock),
        )
        self._slices, self._classes = Mirror(api, RESOURCE_SLICES, clock), Mirror(api, DEVICE_CLASSES, clock)
        self.mirrors = [self._claims, self._templates, self._slices, self._classes]
        self.loop = ControllerLoop("resourceclaims", self._reconcile, clock=clock)
        self._inventory: DeviceInventory | None = None
        self._assumed: dict[str, list[tuple[str, list[Object]]]] = {}
        """Devices of claims whose allocation is being written, by UID of the pod."""
        self._wake: Callable[[], None] = lambda: None
        pods.on_change(self._on_pod)
        self._claims.on_change(lambda _old, _new: self._wake())
        self._slices.on_change(lambda _old, _new: self._recount())
        self._classes.on_change(lambda _old, _new: self._recount())

    def on_change(self, wake: Callable[[], None]) -> None:
        """Call `wake` when pods may find devices that did not before."""
        self._wake = wake

    async def run(self) -> None:
        """Work until cancelled."""
        for mirror in (self._pods, *self.mirrors):
            await mirror.synced.wait()
        await self.loop.run()

    def _recount(self) -> None:
        self._inventory = None
        self._wake()

    # --- the scheduler's part ----------------------------------------------------------------------------------

    def plan(self, pod: Object) -> ClaimPlan | str:
        """Return where the pod's claims can be allocated, or the cause that they cannot be anywhere."""
        claims = [self._claims.get(key) if key else None for key in _claim_keys(pod)]
        found = [claim for claim in claims if claim is not None]
        if len(found) < len(claims):
            return NO_CLAIM
        inventory = self._known()
        pinned = {inventory.node_of(claim) for claim in found if results_of(claim)} - {""}
        waiting = [claim for claim in found if not results_of(claim)]
        taken = inventory.taken_by([*self._claims.all().values(), *self._assumed_claims()])
        by_node = {}
        for node in pinned or inventory.nodes():
            made = inventory.allocate(waiting, node, taken) if len(pinned) < 2 else None
            if made is not None:
                by_node[node] = made
        return ClaimPlan(tuple(waiting), by_node) if by_node else NO_DEVICES

    def assume(self, pod: Object, plan: ClaimPlan, node: str) -> None:
        """Keep the devices for the pod until `allocate` has written them, or `forget` is called."""
        keys = (key_of(claim) for claim in plan.claims)
        self._assumed[uid_of(pod)] = list(zip(keys, plan.by_node[node], strict=True))

    def forget(self, uid: str) -> None:
        """Give devices back that were kept for a pod, if they were."""
        if self._assumed.pop(uid, None) is not None:
            self._wake()

    async def allocate(self, pod: Object) -> None:
        """Write the allocation of the pod's claims, and that they are reserved for it.  Raises ApiError."""
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid_of(pod)}
        made = dict(self._assumed.get(uid_of(pod), ()))
        for key in _claim_keys(pod):
            namespace, name = split_key(key)
            claim = self._api.get(RESOURCE_CLAIMS, name, namespace=namespace)
            status = dict(claim.get("status") or {})
            if not results_of(claim):
                status["allocation"] = {"devices": {"results": made[key]}}
            users = [one for one in status.get("reservedFor") or () if one["uid"] != uid_of(pod)]
            status["reservedFor"] = [*users, user]
            lock = {"resourceVersion": claim["metadata"]["resourceVersion"]}
            patch = {"metadata": lock, "status": status}
            written = await self._api.patch(RESOURCE_CLAIMS, name, patch, namespace=namespace, subresource="status")
            self._claims.remember(written)
        self._assumed.pop(uid_of(pod), None)

    def _known(self) -> DeviceInventory:
        if self._inventory is None:
            self._inventory = DeviceInventory(self._slices.all().values(), self._classes.all())
        return self._inventory

    def _assumed_claims(self) -> Iterator[Object]:
        for claims in self._assumed.values():
            for key, results in claims:
                stored = self._claims.get(key)
                if stored is None or not results_of(stored):
                    yield {"status": {"allocation": {"devices": {"results": results}}}}

    # --- the controller's part ---------------------------------------------------------------------------------

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is not None and pod["spec"].get("resourceClaims"):
            self.loop.add(key_of(pod))

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or is_terminal(pod):
            await self._give_back(key)
            return None
        known = {one["name"]: one.get("resourceClaimName") for one in pod["status"].get("resourceClaimStatuses") or ()}
        missing = [
            one
            for one in pod["spec"]["resourceClaims"]
            if "resourceClaimTemplateName" in one and one["name"] not in known
        ]
        namespace, name = split_key(key)
        for one in missing:
            template = self._templates.get(f"{namespace}/{one['resourceClaimTemplateName']}")
            if template is None:
                return _RETRY_SECONDS
            known[one["name"]] = await self._create(pod, one["name"], template)
        if missing:
            statuses = [{"name": claim, "resourceClaimName": made} for claim, made in known.items()]
            patch = {"status": {"resourceClaimStatuses": statuses}}
            self._pods.remember(await self._api.patch(PODS, name, patch, namespace=namespace, subresource="status"))
            self._wake()
        return None

    async def _create(self, pod: Object, name: str, template: Object) -> str:
        digest = hashlib.sha256(f"{uid_of(pod)}/{name}".encode()).hexdigest()[:5]
        made = f"{pod['metadata']['name']}-{name}-{digest}"
        owner = controller_reference({"apiVersion": "v1", "kind": "Pod", **pod})
        namespace = pod["metadata"]["namespace"]
        labels = (template["spec"].get("metadata") or {}).get("labels") or {}
        claim = {
            "metadata": {"name": made, "namespace": namespace, "labels": labels, "ownerReferences": [owner]},
            "spec": template["spec"].get("spec") or {},
        }
        with contextlib.suppress(AlreadyExistsError):  # an earlier attempt, whose pod status was not written
            self._claims.remember(await self._api.create(RESOURCE_CLAIMS, claim, namespace=namespace))
        return made

    async def _give_back(self, pod: str) -> None:
        """Delete the claims that were made for a pod that has ended, and take it off the others."""
        namespace, name = split_key(pod)
        for claim in list(self._claims.all().values()):
            meta, status = claim["metadata"], claim.get("status") or {}
            if meta["namespace"] != namespace:
                continue
            if any((o.get("kind"), o.get("name")) == ("Pod", name) for o in meta.get("ownerReferences") or ()):
                await self._delete(claim)
            elif any(one.get("name") == name for one in status.get("reservedFor") or ()):
                left = [one for one in status["reservedFor"] if one.get("name") != name]
                patch = {"status": {"reservedFor": left, **({} if left else {"allocation": None})}}
                written = await self._api.patch(
                    RESOURCE_CLAIMS, meta["name"], patch, namespace=namespace, subresource="status"
                )
                self._claims.remember(written)

    async def _delete(self, claim: Object) -> None:
        namespace, name = split_key(key_of(claim))
        with contextlib.suppress(NotFoundError):  # the garbage collector may be faster
            await self._api.delete(RESOURCE_CLAIMS, name, namespace=namespace)
        self._claims.forget(claim)


def has_claims(pod: Object) -> bool:
    """Whether the pod claims devices."""
    return bool(pod["spec"].get("resourceClaims"))


def _made(pod: Object) -> dict[str, str | None]:
    """Return the claims that were made for the pod, by their names in its spec."""
    listed = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {one["name"]: one.get("resourceClaimName") for one in listed}


def _claim_keys(pod: Object) -> list[str]:
    """Return namespace/name of the pod's claims; an empty text for one that is not made yet."""
    made, found = _made(pod), list[str]()
    for one in pod["spec"].get("resourceClaims") or ():
        name = one.get("resourceClaimName") or made.get(one["name"])
        found.append(f"{pod['metadata']['namespace']}/{name}" if name else "")
    return found
