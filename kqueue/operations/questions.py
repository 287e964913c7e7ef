"""Sends questions of commands to the controller through the API server, as the kubeconfig's user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kqueue.api import names
from kqueue.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    NotServedError,
    ServerError,
    UnreachableError,
)
from kqueue.kube.conditions import condition

if TYPE_CHECKING:
    from kqueue.runtime.client import Client
    from kqueue.runtime.resources import ResourceType

JSON = dict[str, Any]
_UNAVAILABLE = 503
_AT_ONCE = 5.0
"""Seconds in which an API server that works answers a request for its version."""


def path(*parts: str) -> str:
    """Return a path below `/apis/`; each part is quoted, so that a name typed by a user cannot lead elsewhere."""
    return "/apis/" + "/".join(quote(part, safe="") for part in parts)


async def ask(client: Client, path: str, params: Mapping[str, str] | None = None) -> JSON:
    """Return the controller's answer at `path`, which begins with `/apis/GROUP/VERSION/`.

    Raises:
        NotFoundError: the API is served, and the name is unknown.
        NotServedError: the API is not served, or its server is not reached; the message has cause and remedy.
        ApiError: another failure, such as ForbiddenError; the text is the API server's.
    """
    group, version = path.split("/")[2:4]
    return await _answered(client, group, version, client.get_path(path, params, resource=_resource(path)))


async def post(client: Client, plural: str, kind: str, question: Mapping[str, Any], *, namespace: str = "") -> JSON:
    """Return the controller's answer to a question with a body, which writes nothing; empty `namespace`: to one about
    the whole cluster.  Raises as `ask`.
    """
    from kqueue.runtime.resources import ResourceType

    group, version = names.KQUEUE_VISIBILITY_GROUP, "v1alpha1"
    resource = ResourceType(group, version, plural, kind, namespaced=bool(namespace))
    body = {"apiVersion": f"{group}/{version}", "kind": kind, **question}
    return await _answered(client, group, version, client.create(resource, body, namespace or None))


async def _answered(client: Client, group: str, version: str, answer: Awaitable[JSON]) -> JSON:
    try:
        return await answer
    except NotFoundError:
        if await _is_served(client, group, version):
            raise
        raise NotServedError(
            f"the API server knows no {group}/{version}: no kqueue controller has registered it.  Is one running, with "
            "the feature gate VisibilityOnDemand on?  One outside of the cluster needs --visibility-url "
            "'https://localhost:{port}'"
        ) from None
    except UnreachableError as e:
        from kqueue.runtime.transport import NeverSentError

        if isinstance(e, NeverSentError) or not await _answers(client):
            raise
        raise NotServedError(
            f"the API server answers, and the kqueue controller behind {group}/{version} does not: it may be stopped "
            f"or starved; kqueue doctor and the controller's pods say more ({e})"
        ) from e
    except ServerError as e:
        if e.status != _UNAVAILABLE:
            raise
        why = await _why_unavailable(client, group, version)
        raise NotServedError(
            f"the API server cannot reach the server of {group}/{version}; is a kqueue controller running?  {why or e}"
        ) from e


async def _answers(client: Client) -> bool:
    """Whether the API server itself answers at once."""
    from kqueue.runtime.resources import ResourceType

    version = ResourceType("", "", "", "Info", namespaced=False)
    try:
        async with asyncio.timeout(_AT_ONCE):
            await client.get_path("/version", resource=version)
    except (ApiError, TimeoutError):
        return False
    return True


def _resource(path: str) -> ResourceType:
    from kqueue.runtime.resources import ResourceType

    group, version, *rest = path.split("/")[2:]
    plural = rest[2] if rest[0] == "namespaces" and len(rest) > 2 else rest[0]
    return ResourceType(group, version, plural, "", namespaced=rest[0] == "namespaces")


async def _is_served(client: Client, group: str, version: str) -> bool:
    from kqueue.runtime.resources import ResourceType

    discovery = ResourceType(group, version, "", "APIResourceList", namespaced=False)
    try:
        await client.get_path(f"/apis/{group}/{version}", resource=discovery)
    except NotFoundError:
        return False
    except ApiError:
        return True  # the API is served: its answer to the question says more
    return True


async def _why_unavailable(client: Client, group: str, version: str) -> str:
    """Return the API server's condition about the API; empty when there is none, or the user may not read it."""
    from kqueue.runtime.resources import ResourceType

    services = ResourceType("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
    try:
        found = await client.get_json(services, f"{version}.{group}")
    except (ForbiddenError, NotFoundError, ServerError):
        return ""
    available = condition(found, "Available")
    if available is None or available.get("status") == "True":
        return ""
    return f"{available.get('reason', '')}: {available.get('message', '')}"
