"""Requests for the controller's summaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.operations.asking import ask, path
from kqueue.operations.grants import SUMMARIES, needs, quotas_in
from kqueue.runtime.client import Client

JSON = dict[str, Any]
_API = (names.KQUEUE_VISIBILITY_GROUP, "v1alpha1")

_INLINE = " (inline)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyQuery:
    """What of which Topology is to be told; empty: whatever is usual."""

    name: str = ""
    flavor: str = ""
    level: str = ""
    domain: str = ""
    limit: int = 200


async def topologies(client: Client, query: TopologyQuery) -> JSON:
    """One Topology, or all; where there is one alone it is told as if it had been named.

    Raises:
        NotFoundError: there is no such Topology, flavor or domain.
        NotServedError: nobody answers.
        ForbiddenError: the user may not see topologies; says what to ask an administrator for.
        ApiError: another failure.
    """
    with needs(SUMMARIES):
        return await _topologies(client, query)


async def _topologies(client: Client, query: TopologyQuery) -> JSON:
    found = {"flavor": query.flavor, "level": query.level, "domain": query.domain}
    params = {"limit": str(query.limit), **{name: value for name, value in found.items() if value}}
    where = path(*_API, "topologysummaries")
    if query.name.endswith(_INLINE):  # no name that a path may have: it is told with the flavor that lists its levels
        return await ask(client, where, {**params, "flavor": query.name.removesuffix(_INLINE)})
    if query.name:
        return await ask(client, path(*_API, "topologysummaries", query.name), params)
    answer = await ask(client, where, params)
    if len(answer["items"]) == 1 and not query.level:
        levels = answer["items"][0]["levels"]
        answer = await ask(client, where, {**params, "level": levels[max(0, len(levels) - 2)]})
    return answer


async def queues(client: Client, namespace: str = "") -> JSON:
    """All queues; with a namespace its LocalQueues, too, for those who may read only there.

    Raises:
        NotServedError: nobody answers.
        ForbiddenError: the user may not see all queues; says what to ask an administrator for.
        ApiError: another failure.
    """
    with needs(SUMMARIES, "kqueue quota shows the LocalQueues of a namespace without this role."):
        return await ask(client, path(*_API, "queuesummaries"), {"namespace": namespace} if namespace else None)


async def quotas(client: Client, namespace: str, name: str = "", limit: int = 20) -> JSON:
    """The quota of all LocalQueues of a namespace, or of one, with at most `limit` waiting workloads of each.

    Raises:
        NotFoundError: there is no such LocalQueue.
        NotServedError: nobody answers.
        ForbiddenError: the user may not see them; says what to ask an administrator for.
        ApiError: another failure.
    """
    params = {"limit": str(limit), **({"localQueue": name} if name else {})}
    with needs(quotas_in(namespace)):
        return await ask(client, path(*_API, "namespaces", namespace, "queuequotas"), params)
