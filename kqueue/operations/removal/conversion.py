"""Definitions without kqueue's conversion webhook: objects are stored in v1beta2 first, and then v1beta1 is not served.

Served without the webhook, v1beta1 would lose every field that has another name there.
"""

from __future__ import annotations

from typing import Any

from kqueue.api.names import OLDER_VERSION
from kqueue.controllers.leftovers import Left, Leftover
from kqueue.errors import ConflictError, KqueueError, NotFoundError, ServerError, TooManyRequestsError
from kqueue.manager.conversion import CONVERTED, DEFINITIONS, definition_of
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from webhooks.configuration import KEPT_BY, is_ours

JSON = dict[str, Any]
_ATTEMPTS = 5
"""Tries to store an object anew while other clients write to it."""


async def store_anew(client: Client) -> int:
    """Store every object in v1beta2 that may be stored in v1beta1, while the webhooks still answer.  Return how many.

    Raises:
        KqueueError: the webhooks do not answer; the text has the remedy.
        ApiError: the API server refused.
    """
    count = 0
    for kind in CONVERTED:
        found = await _definition(client, kind)
        stored = ((found or {}).get("status") or {}).get("storedVersions") or []
        if found is None or OLDER_VERSION not in stored:
            continue
        try:
            for obj in await client.list_json(kind):
                count += await _store(client, kind, obj["metadata"])
        except (ServerError, TooManyRequestsError) as e:
            raise KqueueError(
                f"{kind.plural} may be stored in {OLDER_VERSION}, and cannot be converted: {e}; start the webhooks, "
                "and run this again"
            ) from e
        left = [version for version in stored if version != OLDER_VERSION]
        body = {"metadata": {"uid": found["metadata"]["uid"]}, "status": {"storedVersions": left}}
        await client.patch(DEFINITIONS, definition_of(kind), body, subresource="status")
    return count


async def _store(client: Client, kind: ResourceType, metadata: JSON) -> bool:
    """Write an object as it is; return False if it is gone."""
    for attempt in range(_ATTEMPTS):
        try:
            await client.patch(kind, metadata["name"], {}, metadata.get("namespace"))
        except NotFoundError:
            return False
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return True
    raise AssertionError("the last attempt returns or raises")


async def conversions(client: Client) -> list[Leftover]:
    """Return the definitions that name kqueue's conversion webhook."""
    found = []
    for kind in CONVERTED:
        definition = await _definition(client, kind)
        if definition is not None and _is_left(definition):
            found.append(_leftover(definition))
    return found


async def drop_conversion(client: Client, name: str, uid: str) -> None:
    """Remove the webhook from a definition.  One that is gone, or has none any more, counts as done.

    Raises:
        KqueueError: objects may be stored in v1beta1, which nobody could read then; the text has the remedy.
        ApiError: the API server refused, or another writer was faster (ConflictError).
    """
    found = await client.get_json(DEFINITIONS, name)
    metadata, spec = found["metadata"], found["spec"]
    if metadata["uid"] != uid or (spec.get("conversion") or {}).get("strategy") != "Webhook":
        return
    if OLDER_VERSION in ((found.get("status") or {}).get("storedVersions") or []):
        raise KqueueError(
            f"objects may be stored in {OLDER_VERSION}: start the webhooks, run kqueue uninstall --release --stop, "
            "and the objects are stored anew before the webhooks stop"
        )
    versions = [{**each, "served": each["served"] and each["name"] != OLDER_VERSION} for each in spec["versions"]]
    marks = {"uid": uid, "resourceVersion": metadata["resourceVersion"], "labels": {KEPT_BY: None}}
    changed = {"conversion": {"strategy": "None", "webhook": None}, "versions": versions}
    await client.patch(DEFINITIONS, name, {"metadata": marks, "spec": changed})


async def _definition(client: Client, kind: ResourceType) -> JSON | None:
    try:
        return await client.get_json(DEFINITIONS, definition_of(kind))
    except NotFoundError:
        return None


def _is_left(definition: JSON) -> bool:
    """Whether the webhook of a definition is, or was, kqueue's: the chart or the webhooks put a label on it."""
    conversion = definition["spec"].get("conversion") or {}
    return conversion.get("strategy") == "Webhook" and is_ours(definition["metadata"])


def _leftover(definition: JSON) -> Leftover:
    metadata = definition["metadata"]
    client = definition["spec"]["conversion"]["webhook"]["clientConfig"]
    service = client.get("service")
    target = f"Service {service['namespace']}/{service['name']}" if service else str(client.get("url", ""))
    return Leftover(
        left=Left.CONVERSION,
        resource=DEFINITIONS,
        namespace="",
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        ours=(target,),
    )
