"""Keeps the webhook configurations at the API server correct.

A configuration that kqueue created, or that the chart created empty for kqueue, carries a label and is written as a
whole.  In a configuration of another author only `caBundle` is written, in each entry that leads to kqueue.  Both are
written only where they differ from what is wanted, and several replicas may write at once.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from kqueue.config import Configuration
from kqueue.errors import AlreadyExistsError, ConflictError, ForbiddenError, InvalidError, NotFoundError, ServerError
from kqueue.jobs.registry import declared_for
from kqueue.runtime.client import Client, PatchType
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.rotation import split_authorities
from webhooks.configuration import WebhookEndpoint, WebhookScope, is_ours, webhook_configurations

JSON = dict[str, Any]
_GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS: Mapping[str, ResourceType] = {
    kind: ResourceType(_GROUP, "v1", f"{kind.lower()}s", kind, namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
_ATTEMPTS = 5
"""Most reads and writes of one object while another writer changes it, too."""

_log = structlog.get_logger(__name__)


class Registrar:
    """Writes the two configurations.  `url` empty: the API server reaches the webhooks through the Service."""

    def __init__(self, client: Client, configuration: Configuration, *, url: str = "", inject: bool = True) -> None:
        """`inject`: whether the authority is written into configurations of other authors."""
        self._client, self._configuration, self._url, self._inject = client, configuration, url, inject

    async def bring(self, ca_bundle: bytes, default_queues: Sequence[str] = ()) -> bool:
        """Correct both configurations.  Return whether one was written.

        `ca_bundle` is PEM, in any order: it is written sorted, so that replicas agree.  `default_queues`: namespaces
        with a LocalQueue named `default`.

        Raises:
            ApiError: the API server refused, or another writer wrote at every attempt.
        """
        configuration = self._configuration
        target = target_of(configuration, self._url, ca_bundle)
        scope = WebhookScope(
            frameworks=configuration.integrations.frameworks,
            own_namespace=configuration.namespace,
            managed=configuration.namespace_selector,
            without_queue=configuration.manage_jobs_without_queue_name,
            default_queues=default_queues,
            declared=declared_for(configuration),
        )
        written = [
            await retried(partial(self._once, wanted, target)) for wanted in webhook_configurations(target, scope)
        ]
        if any(written):
            _log.info("webhooks are registered", url=self._url or target.service, default_queues=len(default_queues))
        return any(written)

    async def _once(self, wanted: JSON, target: WebhookEndpoint) -> bool:
        resource, name = CONFIGURATIONS[wanted["kind"]], wanted["metadata"]["name"]
        try:
            found = await self._client.get_json(resource, name)
        except NotFoundError:
            await self._create(resource, wanted)
            return True
        metadata = found["metadata"]
        if is_ours(metadata):
            if covers(found.get("webhooks") or [], wanted["webhooks"]):
                return False
            lock = {"resourceVersion": metadata["resourceVersion"]}
            await self._client.patch(resource, name, {"metadata": lock, "webhooks": wanted["webhooks"]})
            return True
        operations = injection(found, target) if self._inject else []
        if operations:
            await self._client.patch(resource, name, operations, content_type=PatchType.JSON)
        return bool(operations)

    async def _create(self, resource: ResourceType, wanted: JSON) -> None:
        try:
            await self._client.create(resource, wanted)
        except ForbiddenError as e:
            name = wanted["metadata"]["name"]
            raise ForbiddenError(
                f"{resource.kind} {name} is not there, and we may not create it; `helm upgrade` makes it again: {e}",
                status=e.status,
                reason=e.reason,
            ) from e


def target_of(configuration: Configuration, url: str, ca_bundle: bytes) -> WebhookEndpoint:
    """Return where the API server reaches the webhooks, and the authorities (PEM), sorted, so that replicas agree."""
    return WebhookEndpoint(
        ca_bundle=b"".join(sorted(split_authorities(ca_bundle))),
        url=url,
        service=configuration.internal_cert_management.webhook_service_name,
        namespace=configuration.namespace,
    )


async def retried(once: Callable[[], Awaitable[bool]]) -> bool:
    """Return the result of one read and write, tried again while another writer is faster.

    Raises:
        ApiError: the API server refused, or another writer wrote at every attempt.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return await once()
        except (AlreadyExistsError, ConflictError, NotFoundError, InvalidError, ServerError):
            # Another writer was faster.  API servers answer a failed test of a JSON patch as invalid, or with 500.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def injection(found: JSON, target: WebhookEndpoint) -> list[JSON]:
    """Return the JSON patch that writes the authority into every entry that leads to kqueue; empty where none lacks it.

    A test of the entry's name precedes each write, so that the patch fails when the list was changed meanwhile.
    """
    authority = base64.b64encode(target.ca_bundle).decode()
    operations: list[JSON] = []
    for index, webhook in enumerate(found.get("webhooks") or []):
        at = f"/webhooks/{index}"
        if target.is_asked_by(webhook) and webhook["clientConfig"].get("caBundle") != authority:
            operations.append({"op": "test", "path": f"{at}/name", "value": webhook["name"]})
            operations.append({"op": "add", "path": f"{at}/clientConfig/caBundle", "value": authority})
    return operations


def covers(found: Any, wanted: Any) -> bool:
    """Whether the stored object contains the wanted one.  Fields that the API server adds do not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(key in found and covers(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)
