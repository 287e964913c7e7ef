"""Keeps the APIServices at the API server correct.

In a cluster the chart or an administrator applies them: kqueue writes only `caBundle`, and only if they refer to its
Service.  Outside of a cluster, where the API server reaches kqueue by a host name, kqueue creates Service and
APIServices with a label, and writes labelled objects as a whole.  Several replicas may write at once.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from kqueue.errors import AlreadyExistsError, ConfigError, ConflictError, InvalidError, NotFoundError, ServerError
from kqueue.runtime.client import Client, PatchType
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.rotation import split_authorities

JSON = dict[str, Any]
SERVICE = "kueue-visibility-server"
"""Name of the Service, and first part of the name that certificates are for."""
API_SERVICES = ResourceType("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
SERVICES = ResourceType("", "v1", "services", "Service")
NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", namespaced=False)
MANAGED_BY, OURSELVES = "app.kubernetes.io/managed-by", "kqueue"
GROUP_PRIORITY, VERSION_PRIORITY = 100, 100
"""Priorities of the compatible system: no other group loses precedence to these, and newer versions are preferred."""
_ATTEMPTS = 5
_URL = re.compile(r"https://([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?):(\{port\}|[0-9]{1,5})/?", re.ASCII)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reached:
    """The address of a kqueue outside of the cluster, for the API server."""

    host: str
    port: int


def reached_at(url: str, port: int) -> Reached:
    """Parse `https://HOST:PORT`, after `{port}` in it is replaced by the port of the server.

    Raises:
        ConfigError: the text has another form.
    """
    found = _URL.fullmatch(url)
    if found is None:
        raise ConfigError(
            f"--visibility-url: {url!r} must be https://HOST:PORT without a path, as in https://localhost:{{port}}; "
            "HOST is a name, because a Service can refer to nothing else"
        )
    return Reached(found[1], port if found[3] == "{port}" else int(found[3]))


class Registration:
    """Keeps the APIServices of some groups and versions."""

    def __init__(
        self, client: Client, group_versions: Iterable[tuple[str, str]], *, namespace: str, reached: Reached | None
    ) -> None:
        """`namespace`: of the Service.  `reached` None: kqueue does not create Service and APIServices."""
        self._client, self._group_versions = client, tuple(group_versions)
        self._namespace, self._reached = namespace, reached

    async def bring(self, authorities: bytes) -> list[str]:
        """Correct the objects.  Return the names of those that were written.

        `authorities` is PEM, in any order: it is written sorted, so that replicas agree.

        Raises:
            ApiError: the API server refused, or another writer wrote at every attempt.
        """
        bundle = base64.b64encode(b"".join(sorted(split_authorities(authorities)))).decode()
        written: list[str] = []
        if self._reached is not None:
            written += await self._made(NAMESPACES, {"metadata": {"name": self._namespace}}, spec=False)
            written += await self._made(SERVICES, self._service(self._reached))
        for group, version in self._group_versions:
            if self._reached is not None:
                wanted = self._api_service(group, version, bundle, self._reached)
                written += await self._made(API_SERVICES, wanted)
            else:
                written += await self._injected(f"{version}.{group}", bundle)
        if written:
            _log.info("aggregated APIs are registered", written=written)
        return written

    async def withdraw(self) -> None:
        """Delete the created objects: without a server for an API the API server cannot delete any namespace.

        Raises:
            ApiError: the API server refused.
        """
        if self._reached is None:
            return
        for group, version in self._group_versions:
            await self._unmade(API_SERVICES, f"{version}.{group}", self._reached)
        await self._unmade(SERVICES, SERVICE, self._reached)

    async def _unmade(self, resource: ResourceType, name: str, reached: Reached) -> None:
        namespace = self._namespace if resource.namespaced else None
        with contextlib.suppress(NotFoundError, ConflictError):  # deleted, or written by another author meanwhile
            found = await self._client.get_json(resource, name, namespace)
            metadata, port = found["metadata"], found["spec"].get("service", {}).get("port", reached.port)
            if (metadata.get("labels") or {}).get(MANAGED_BY) == OURSELVES and port == reached.port:
                await self._client.delete(resource, name, namespace, resource_version=metadata["resourceVersion"])

    # --- ours as a whole

    async def _made(self, resource: ResourceType, wanted: JSON, *, spec: bool = True) -> list[str]:
        for attempt in range(_ATTEMPTS):
            try:
                return await self._make(resource, wanted, spec=spec)
            except (AlreadyExistsError, ConflictError, NotFoundError):
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _make(self, resource: ResourceType, wanted: JSON, *, spec: bool) -> list[str]:
        name = wanted["metadata"]["name"]
        namespace = self._namespace if resource.namespaced else None
        told = [f"{resource.kind} {name}"]
        try:
            found = await self._client.get_json(resource, name, namespace)
        except NotFoundError:
            labels = {MANAGED_BY: OURSELVES}
            metadata = {**wanted["metadata"], "labels": labels, **({"namespace": namespace} if namespace else {})}
            made = {"apiVersion": resource.api_version, "kind": resource.kind, **wanted, "metadata": metadata}
            await self._client.create(resource, made)
            return told
        if not spec or _covers(found.get("spec"), wanted["spec"]):
            return []
        if (found["metadata"].get("labels") or {}).get(MANAGED_BY) != OURSELVES:
            raise ConfigError(
                f"{resource.kind} {name} was created by another tool with another target; delete it, or leave out "
                "--visibility-url"
            )
        lock = {"resourceVersion": found["metadata"]["resourceVersion"]}
        await self._client.patch(resource, name, {"metadata": lock, "spec": wanted["spec"]}, namespace)
        return told

    def _service(self, reached: Reached) -> JSON:
        return {"metadata": {"name": SERVICE}, "spec": {"type": "ExternalName", "externalName": reached.host}}

    def _api_service(self, group: str, version: str, bundle: str, reached: Reached) -> JSON:
        service = {"name": SERVICE, "namespace": self._namespace, "port": reached.port}
        return {
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": GROUP_PRIORITY,
                "versionPriority": VERSION_PRIORITY,
                "service": service,
                "caBundle": bundle,
            },
        }

    # --- objects of other authors

    async def _injected(self, name: str, bundle: str) -> list[str]:
        for attempt in range(_ATTEMPTS):
            try:
                return await self._inject(name, bundle)
            except (ConflictError, InvalidError, ServerError):
                # Another writer was faster.  API servers answer a failed test of a JSON patch as invalid, or with 500.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _inject(self, name: str, bundle: str) -> list[str]:
        try:
            found = await self._client.get_json(API_SERVICES, name)
        except NotFoundError:
            return []  # the chart does not install it
        spec = found.get("spec") or {}
        service = spec.get("service") or {}
        leads_here = (service.get("namespace"), service.get("name")) == (self._namespace, SERVICE)
        if not leads_here or spec.get("insecureSkipTLSVerify") or spec.get("caBundle") == bundle:
            return []
        patch = [
            {"op": "test", "path": "/spec/service/name", "value": SERVICE},
            {"op": "test", "path": "/spec/service/namespace", "value": self._namespace},
            {"op": "add", "path": "/spec/caBundle", "value": bundle},
        ]
        await self._client.patch(API_SERVICES, name, patch, content_type=PatchType.JSON)
        return [f"APIService {name}"]


def _covers(found: Any, wanted: Any) -> bool:
    """Whether the stored object has all wanted fields; fields that the API server added do not matter."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and _covers(found[key], wanted[key]) for key in wanted)
    return bool(found == wanted)
