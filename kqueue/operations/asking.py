"""Commands ask the controller here: through the API server, as whoever the kubeconfig says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kqueue.errors import ApiError, ForbiddenError, NotFoundError, NotServedError, ServerError
from kqueue.kube.conditions import condition

if TYPE_CHECKING:
    from kqueue.runtime.client import Client
    from kqueue.runtime.resources import ResourceType

JSON = dict[str, Any]
_UNAVAILABLE = 503


def path(*parts: str) -> str:
    """The path below `/apis/` to ask at; each part is quoted, so names of users cannot lead elsewhere."""
    return "/apis/" + "/".join(quote(part, safe="") for part in parts)


async def ask(client: Client, path: str, params: Mapping[str, str] | None = None) -> JSON:
    """What the controller answers at `path`, which begins with `/apis/GROUP/VERSION/`.

    Raises:
        NotFoundError: the API is there, and knows nothing of that name.
        NotServedError: nobody serves the API, or whoever does is not reached; says why, and what to do.
        ApiError: another failure, such as ForbiddenError; the text is the API server's.
    """
    group, version = path.split("/")[2:4]
    try:
        return await client.get_path(path, params, resource=_resource(path))
    except NotFoundError:
        if await _is_served(client, group, version):
            raise
        raise NotServedError(
            f"the API server knows no {group}/{version}: no kqueue controller has registered it.  Is one running, with "
            "the feature gate VisibilityOnDemand on?  One outside of the cluster needs --visibility-url "
            "'https://localhost:{port}'"
        ) from None
    except ServerError as e:
        if e.status != _UNAVAILABLE:
            raise
        why = await _why_unavailable(client, group, version)
        raise NotServedError(
            f"the API server does not reach who serves {group}/{version}; is a kqueue controller running?  {why or e}"
        ) from e


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
        return True  # something is there: what it said of the question itself tells more
    return True


async def _why_unavailable(client: Client, group: str, version: str) -> str:
    """What the API server has noted about it; empty when the user may not read that, or nothing is noted."""
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
