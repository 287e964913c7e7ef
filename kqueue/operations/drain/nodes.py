"""Cordons the nodes of a drain, and uncordons those that it has cordoned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kqueue.api.reservation_names import CORDONED_FOR_ANNOTATION
from kqueue.controllers.resources import NODES
from kqueue.errors import ConflictError, NotFoundError
from kqueue.operations.grants import CORDON, needs
from kqueue.runtime.client import Client

JSON = dict[str, Any]
_ATTEMPTS = 5


async def cordon(client: Client, nodes: Iterable[str], reservation: str) -> list[str]:
    """Cordon these nodes, and return the ones that were not cordoned before.

    The mark and the cordon are one request, so that a call that is cut short leaves no node without its mark.
    """
    return [name for name in nodes if await _changed(client, name, reservation, to=reservation)]


async def uncordon(client: Client, reservation: str, heir: Callable[[JSON], str] = lambda _node: "") -> list[str]:
    """Uncordon the nodes that `cordon` has cordoned for a Reservation, and no others; return their names.

    `heir` returns the name of another Reservation for which a node is cordoned, too: the node stays cordoned, and gets
    the mark of that one.
    """
    with needs(CORDON):
        every = await client.list_json(NODES)
    marked = [(node["metadata"]["name"], heir(node)) for node in every if _mark(node) == reservation]
    return [name for name, to in marked if await _changed(client, name, reservation, to=to)]


async def cordoned(client: Client, nodes: Iterable[str]) -> set[str]:
    """Return the nodes among these that are cordoned, by whomever."""
    wanted = set(nodes)
    with needs(CORDON):
        every = await client.list_json(NODES)
    return {node["metadata"]["name"] for node in every if node["metadata"]["name"] in wanted and _is_cordoned(node)}


async def _changed(client: Client, name: str, reservation: str, *, to: str) -> bool:
    """Write one node under the lock of its version; return whether this call has cordoned or uncordoned it.

    A node that is not cordoned is cordoned with the mark `to`, if that is the Reservation itself.  Else a node with the
    mark of the Reservation gets the mark `to`, and is uncordoned if that is empty.
    """
    cordons = to == reservation
    for left in reversed(range(_ATTEMPTS)):
        try:
            with needs(CORDON):
                node = await client.get_json(NODES, name)
                was = _is_cordoned(node)
                if was if cordons else _mark(node) != reservation:
                    return False
                meta = {
                    "resourceVersion": node["metadata"].get("resourceVersion"),
                    "annotations": {CORDONED_FOR_ANNOTATION: to or None},
                }
                stays = cordons or (bool(to) and was)
                await client.patch(NODES, name, {"metadata": meta, "spec": {"unschedulable": stays or None}})
                return was is not stays
        except NotFoundError:
            return False
        except ConflictError:
            if not left:
                raise
    raise AssertionError("the last attempt raises")


def _is_cordoned(node: JSON) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _mark(node: JSON) -> str | None:
    mark: str | None = (node["metadata"].get("annotations") or {}).get(CORDONED_FOR_ANNOTATION)
    return mark
