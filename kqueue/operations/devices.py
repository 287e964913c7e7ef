"""The devices of the cluster for commands that plan with the objects of the API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue import model
from kqueue.api.wire import devices as wire
from kqueue.controllers import resources
from kqueue.core.topology.node import PodFacts
from kqueue.errors import NotFoundError
from kqueue.operations.grants import DEVICES, needs
from kqueue.operations.reading import readable
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.state.device_hosts import DeviceHosts
from kqueue.state.devices import DeviceObjects

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDevices:
    """The objects of resource.k8s.io."""

    templates: Sequence[JSON] = ()
    classes: Sequence[JSON] = ()
    slices: Sequence[JSON] = ()
    claims: Sequence[JSON] = ()


NO_CLUSTER_DEVICES = ClusterDevices()


async def read_devices(client: Client) -> ClusterDevices:
    """Return all objects of the group with the rights of the client's user; a cluster that does not serve them has
    none.

    Raises:
        ForbiddenError: the user may not list one of the kinds; the message names the missing grant.
        ApiError: another failure.
    """
    with needs(DEVICES):
        return ClusterDevices(
            templates=await _listed(client, resources.RESOURCE_CLAIM_TEMPLATES),
            classes=await _listed(client, resources.DEVICE_CLASSES),
            slices=await _listed(client, resources.RESOURCE_SLICES),
            claims=await _listed(client, resources.RESOURCE_CLAIMS),
        )


async def _listed(client: Client, kind: ResourceType) -> Sequence[JSON]:
    try:
        return await client.list_json(kind)
    except NotFoundError:
        return ()


def load_objects(found: ClusterDevices, objects: DeviceObjects, remark: Callable[[str], None]) -> None:
    """Put the templates, classes and slices into `objects`.

    `remark` is called with a sentence for each object that cannot be read.
    """
    objects.without_budget()
    for device_class in readable(found.classes, wire.DeviceClass, remark):
        objects.on_class(None, device_class)
    for each in readable(found.slices, wire.ResourceSlice, remark):
        objects.on_slice(None, model.device_slice(each))
    for template in readable(found.templates, wire.ResourceClaimTemplate, remark):
        objects.on_template(None, template)


def load_hosts(found: ClusterDevices, hosts: DeviceHosts, remark: Callable[[str], None]) -> None:
    """Put the claims into `hosts` and count the devices there, after the templates, classes and slices were loaded."""
    hosts.refresh()
    for claim in readable(found.claims, wire.ResourceClaim, remark):
        hosts.on_claim(None, model.claim_view(claim))


def load_pods(
    bound: Mapping[str, PodFacts],
    expected: Sequence[str],
    hosts: DeviceHosts,
    on_pod: Callable[[str, PodFacts | None], object],
) -> None:
    """Put the pods of nodes, and the pods of Workloads that have no node yet, into `hosts`.

    `on_pod` is called with each pod that a node runs.
    """
    for key in expected:
        hosts.on_pod(key, expected=True)
    for key, facts in bound.items():
        on_pod(key, facts)
        hosts.on_pod(key, expected=False)
    for key, facts in bound.items():
        on_pod(key, facts)  # with all pods known, each has its own part of shared claims and devices
