"""Requests for the controller's summaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.operations.grants import SUMMARIES, needs, quotas_in
from kqueue.operations.questions import ask, path
from kqueue.runtime.client import Client

JSON = dict[str, Any]
_API = (names.KQUEUE_VISIBILITY_GROUP, "v1alpha1")

_INLINE = " (inline)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyQuery:
    """The Topology and the part of it to show; empty fields mean the default."""

    name: str = ""
    flavor: str = ""
    level: str = ""
    domain: str = ""
    limit: int = 200


async def topologies(client: Client, query: TopologyQuery) -> JSON:
    """Return one Topology, or all; a single Topology is returned as if it had been named.

    Raises:
        NotFoundError: there is no such Topology, flavor or domain.
        NotServedError: the API is not served.
        ForbiddenError: the user may not see topologies; the message names the role to request.
        ApiError: another failure.
    """
    with needs(SUMMARIES):
        return await _topologies(client, query)


async def _topologies(client: Client, query: TopologyQuery) -> JSON:
    found = {"flavor": query.flavor, "level": query.level, "domain": query.domain}
    params = {"limit": str(query.limit), **{name: value for name, value in found.items() if value}}
    where = path(*_API, "topologysummaries")
    if query.name.endswith(_INLINE):  # no name for a path: shown with its flavor
        return await ask(client, where, {**params, "flavor": query.name.removesuffix(_INLINE)})
    if query.name:
        return await ask(client, path(*_API, "topologysummaries", query.name), params)
    answer = await ask(client, where, params)
    if len(answer["items"]) == 1 and not query.level:
        levels = answer["items"][0]["levels"]
        answer = await ask(client, where, {**params, "level": levels[max(0, len(levels) - 2)]})
    return answer


async def queues(client: Client, namespace: str = "") -> JSON:
    """Return all queues; with a namespace its LocalQueues, too, for users with rights in one namespace.

    Raises:
        NotServedError: the API is not served.
        ForbiddenError: the user may not see all queues; the message names the role to request.
        ApiError: another failure.
    """
    with needs(SUMMARIES, "kqueue quota shows the LocalQueues of a namespace without this role."):
        return await ask(client, path(*_API, "queuesummaries"), {"namespace": namespace} if namespace else None)


async def quotas(client: Client, namespace: str, name: str = "", limit: int = 20) -> JSON:
    """Return the quota of all LocalQueues of a namespace, or of one, with at most `limit` waiting workloads of each.

    Raises:
        NotFoundError: there is no such LocalQueue.
        NotServedError: the API is not served.
        ForbiddenError: the user may not see them; the message names the role to request.
        ApiError: another failure.
    """
    params = {"limit": str(limit), **({"localQueue": name} if name else {})}
    with needs(quotas_in(namespace)):
        return await ask(client, path(*_API, "namespaces", namespace, "queuequotas"), params)
