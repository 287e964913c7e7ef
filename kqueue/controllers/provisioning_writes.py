"""Creates and deletes ProvisioningRequests and their pod templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import provisioning as api
from kqueue.clock import Clock
from kqueue.controllers.resources import POD_TEMPLATES, PROVISIONING_REQUESTS, WORKLOADS
from kqueue.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KqueueError,
    NotFoundError,
)
from kqueue.jobs.fields import JSON, objects, text
from kqueue.jobs.kind import Refused
from kqueue.jobs.provisioning.meaning import Facts
from kqueue.jobs.provisioning.naming import request_name, template_name
from kqueue.jobs.provisioning.wanted import (
    ProvisionedPods,
    provisioned_pods,
    request_object,
    request_reference,
    template_object,
    workload_reference,
)
from kqueue.runtime.client import Client, Propagation
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.store import Store, object_key

_ECHO_TIMEOUT = 60.0
"""Seconds after which the event of a deletion counts as lost."""


class NotCreatedError(KqueueError):
    """A request for nodes cannot be created as things are.  The text says why."""


class ProvisioningWrites:
    """Writes requests and pod templates.  Every step may be repeated."""

    def __init__(
        self,
        client: Client,
        templates: Store[api.OwnedObject],
        *,
        flavor: Callable[[str], wire.ResourceFlavor | None],
        clock: Clock,
    ) -> None:
        """`templates` are the known pod templates; `flavor` returns a ResourceFlavor by name."""
        self._client, self._templates, self._flavor = client, templates, flavor
        self._deleted: OwnWrites[str, None] = OwnWrites(clock, _ECHO_TIMEOUT)
        """UIDs of requests whose deletion the watch has not reported yet."""
        self._created: OwnWrites[str, None] = OwnWrites(clock, _ECHO_TIMEOUT)
        """Keys of requests whose creation the watch has not reported yet."""
        self._complete: OwnWrites[str, None] = OwnWrites(clock, _ECHO_TIMEOUT)
        """UIDs of requests whose pod templates were written, which their watch may not have reported yet."""

    def present(self, requests: Iterable[api.ProvisioningRequest]) -> list[api.ProvisioningRequest]:
        """Return the requests that are not being deleted."""
        return [
            request
            for request in requests
            if request.metadata.deletion_timestamp is None and request.metadata.uid not in self._deleted
        ]

    def observe(self, request: api.ProvisioningRequest, *, gone: bool) -> None:
        """Take in an event of a request."""
        self._created.forget(object_key(request.metadata.namespace, request.metadata.name))
        if gone:
            self._deleted.forget(request.metadata.uid)

    def lost_template(self, request: api.ProvisioningRequest) -> None:
        """Take in that a pod template of a request is gone."""
        self._complete.forget(request.metadata.uid)

    async def delete(self, request: api.ProvisioningRequest) -> None:
        """Delete a request; its pod templates go with it."""
        meta = request.metadata
        try:
            await self._client.delete(
                PROVISIONING_REQUESTS, meta.name, meta.namespace, uid=meta.uid, propagation=Propagation.BACKGROUND
            )
        except (NotFoundError, ConflictError):
            return  # it is gone, or another object has its name by now
        self._deleted.remember(meta.uid, None)

    async def create(self, facts: Facts, attempt: int) -> str:
        """Create the request of an attempt with its pod templates; return its name, empty: it is there already.

        Raises:
            NotCreatedError: the API server refuses it, its name is taken, or template and flavor contradict each other.
        """
        workload, config = facts.workload, facts.config
        assert config is not None
        name = request_name(workload.metadata.name, facts.entry.name, attempt)
        key = object_key(workload.metadata.namespace, name)
        if key in self._created:
            return ""
        pods = await self._pods(facts)
        if not pods:
            return ""
        for one in pods:
            await self._put_template(name, workload, one, workload_reference(workload))
        try:
            made = await self._client.create(PROVISIONING_REQUESTS, request_object(name, workload, config, pods))
        except AlreadyExistsError:
            await self._check_owner(name, workload)
            return ""
        except (InvalidError, ForbiddenError) as e:
            raise NotCreatedError(str(e)) from e
        self._created.remember(key, None)
        await self._adopt(msgspec.convert(made, api.ProvisioningRequest), pods)
        return name

    async def mend_templates(self, facts: Facts, request: api.ProvisioningRequest) -> None:
        """Create pod templates of a request that are missing, and make the request their owner.

        Raises:
            NotCreatedError: as in `create`.
        """
        wanted = [one.pod_template_ref.name for one in request.spec.pod_sets]
        if request.metadata.uid in self._complete or all(self._is_owned(name, request) for name in wanted):
            return
        pods = await self._pods(facts)
        named = [one for one in pods if template_name(request.metadata.name, one.name) in wanted]
        for one in named:
            key = object_key(request.metadata.namespace, template_name(request.metadata.name, one.name))
            if key not in self._templates:
                await self._put_template(request.metadata.name, facts.workload, one, request_reference(request))
        await self._adopt(request, [one for one in named if not self._is_owned_by(one, request)])

    # --- pod templates -------------------------------------------------------------------------------------------

    def _is_owned(self, template: str, request: api.ProvisioningRequest) -> bool:
        found = self._templates.get(object_key(request.metadata.namespace, template))
        return found is not None and any(owner.uid == request.metadata.uid for owner in found.metadata.owner_references)

    def _is_owned_by(self, pods: ProvisionedPods, request: api.ProvisioningRequest) -> bool:
        return self._is_owned(template_name(request.metadata.name, pods.name), request)

    async def _pods(self, facts: Facts) -> Sequence[ProvisionedPods]:
        """Return the pods to request nodes for; none if the workload is gone or has changed."""
        meta, config = facts.workload.metadata, facts.config
        assert config is not None
        try:
            whole = await self._client.get_json(WORKLOADS, meta.name, meta.namespace)
        except NotFoundError:
            return ()
        if text(whole, "metadata", "uid") != meta.uid or "admission" not in whole.get("status", {}):
            return ()
        flavors: dict[str, JSON] = {}
        for held in objects(whole, "status", "admission", "podSetAssignments"):
            for name in held.get("flavors", {}).values():
                flavor = self._flavor(name)
                if flavor is None:
                    raise NotCreatedError(f"ResourceFlavor {name} not found")
                flavors[name] = msgspec.to_builtins(flavor)
        found = provisioned_pods(whole, config, flavors)
        if isinstance(found, Refused):
            raise NotCreatedError(str(found))
        return found

    async def _put_template(self, request: str, workload: wire.Workload, pods: ProvisionedPods, owner: JSON) -> None:
        """Create a pod template, in the place of one that an earlier try left behind."""
        made = template_object(request, workload, pods, owner)
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        try:
            await self._client.create(POD_TEMPLATES, made)
            return
        except (InvalidError, ForbiddenError) as e:
            raise NotCreatedError(str(e)) from e
        except AlreadyExistsError:
            pass
        there = await self._client.get_json(POD_TEMPLATES, name, namespace)
        owners = objects(there, "metadata", "ownerReferences")
        if not any(_is_ours(one, request, workload) for one in owners):
            raise NotCreatedError(f"PodTemplate {namespace}/{name} exists already and belongs to somebody else")
        await self._client.delete(POD_TEMPLATES, name, namespace, uid=text(there, "metadata", "uid"))
        await self._client.create(POD_TEMPLATES, made)

    async def _adopt(self, request: api.ProvisioningRequest, pods: Iterable[ProvisionedPods]) -> None:
        """Make a request the owner of its pod templates."""
        meta = request.metadata
        self._complete.remember(meta.uid, None)
        patch = {"metadata": {"ownerReferences": [request_reference(request)]}}
        for one in pods:
            try:
                await self._client.patch(POD_TEMPLATES, template_name(meta.name, one.name), patch, meta.namespace)
            except NotFoundError:
                continue  # it was deleted by hand; the next look creates it again

    async def _check_owner(self, name: str, workload: wire.Workload) -> None:
        """Raise NotCreatedError unless the request of this name is the workload's."""
        namespace = workload.metadata.namespace
        try:
            there = await self._client.get_json(PROVISIONING_REQUESTS, name, namespace)
        except NotFoundError:
            raise NotCreatedError(f"ProvisioningRequest {namespace}/{name} was just being deleted") from None
        owners = [text(one, "uid") for one in objects(there, "metadata", "ownerReferences")]
        if workload.metadata.uid not in owners:
            raise NotCreatedError(f"ProvisioningRequest {namespace}/{name} exists already and belongs to somebody else")
        if there["metadata"].get("deletionTimestamp"):
            raise NotCreatedError(f"ProvisioningRequest {namespace}/{name} is still being deleted")


def _is_ours(owner: Mapping[str, Any], request: str, workload: wire.Workload) -> bool:
    """Whether the owner of a pod template is the workload, or its request of this name, which may be gone."""
    if text(owner, "kind") == api.KIND:
        return text(owner, "name") == request
    return text(owner, "uid") == workload.metadata.uid
