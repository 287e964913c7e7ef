"""Nodes and Topologies as the API server has them, for the label doctor."""

from __future__ import annotations

import asyncio
from typing import Any

from kqueue.controllers.resources import NODES, RESOURCE_FLAVORS, TOPOLOGIES
from kqueue.errors import NotFoundError
from kqueue.kube.names import HOSTNAME_LABEL
from kqueue.operations.grants import NODE_LABELS, needs
from kqueue.operations.node_labels.values import LabelledNode, Levels
from kqueue.runtime.client import Client


async def read_nodes(client: Client, selector: str = "") -> list[LabelledNode]:
    """Return all nodes that a label selector matches.

    Raises:
        ForbiddenError: the user may not list nodes; the message names the missing grant.
        ApiError: another failure.
    """
    with needs(NODE_LABELS):
        nodes = await client.list_json(NODES, label_selector=selector)
    return [LabelledNode(n["metadata"]["name"], n["metadata"].get("labels") or {}) for n in nodes]


async def read_topologies(client: Client, name: str = "") -> list[Levels]:
    """Return the Topologies, or the one of this name, each with the flavors that use it; inline ones, too.

    Raises:
        NotFoundError: no Topology has this name, or kqueue's kinds are not installed.
        ForbiddenError: the user may not list them; the message names the missing grant.
        ApiError: another failure.
    """
    with needs(NODE_LABELS):
        topologies, flavors = await asyncio.gather(client.list_json(TOPOLOGIES), client.list_json(RESOURCE_FLAVORS))
    found = [_topology(obj, flavors) for obj in topologies]
    found += [
        _inline(flavor) for flavor in flavors if (flavor.get("spec") or {}).get("topology") and not _named(flavor)
    ]
    found = [topology for topology in found if name in ("", topology.name)]
    if name and not found:
        raise NotFoundError(f"Topology {name} not found; kubectl get topologies lists all")
    return found


def _topology(obj: dict[str, Any], flavors: list[dict[str, Any]]) -> Levels:
    name = obj["metadata"]["name"]
    users = [flavor for flavor in flavors if _named(flavor) == name]
    return Levels(name=name, levels=_levels(obj["spec"]), selectors=tuple(map(_selector, users)))


def _inline(flavor: dict[str, Any]) -> Levels:
    name = f"{flavor['metadata']['name']} (inline)"
    return Levels(name=name, levels=_levels(flavor["spec"]["topology"]), selectors=(_selector(flavor),))


def _levels(spec: dict[str, Any]) -> tuple[str, ...]:
    return tuple(level["nodeLabel"] for level in spec.get("levels") or ()) or (HOSTNAME_LABEL,)


def _named(flavor: dict[str, Any]) -> str:
    return str((flavor.get("spec") or {}).get("topologyName") or "")


def _selector(flavor: dict[str, Any]) -> dict[str, str]:
    return dict((flavor.get("spec") or {}).get("nodeLabels") or {})
