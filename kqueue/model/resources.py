"""Resource requests of pods, read from their specs."""

from __future__ import annotations

import sys

from kqueue.api.wire import core as wire_core
from kqueue.api.wire.meta import ResourceList
from kqueue.core.pod_requests import ContainerRequests, PodResources
from kqueue.core.quantity import parse_quantity
from kqueue.errors import FieldError, InvalidObjectError


def amounts(resources: ResourceList, path: str) -> dict[str, int]:
    """Return quantities as integers; cpu in milli, everything else in base units.

    Raises InvalidObjectError for a value that is not a quantity or is negative.
    """
    out: dict[str, int] = {}
    for resource, text in resources.items():
        try:
            value = parse_quantity(text, resource)
        except ValueError as e:
            raise InvalidObjectError("a quantity", [FieldError(f"{path}[{resource}]", str(e), text)]) from e
        if value < 0:
            problem = "must not be negative; write 0 or more"
            raise InvalidObjectError("a quantity", [FieldError(f"{path}[{resource}]", problem, text)])
        out[sys.intern(resource)] = value
    return out


def template_requests(spec: wire_core.PodSpec, path: str) -> dict[str, int]:
    """Return the total requests of one pod of this spec, without `pods`."""
    return pod_resources(spec, path).total()


def pod_resources(spec: wire_core.PodSpec, path: str) -> PodResources:
    """Return the requests of the parts of a pod. Raises InvalidObjectError, with `path` before the field."""

    def read(container: wire_core.Container, where: str) -> ContainerRequests:
        resources = container.resources
        return ContainerRequests(
            amounts(resources.requests, f"{where}.resources.requests"),
            amounts(resources.limits, f"{where}.resources.limits"),
            sidecar=container.restart_policy == "Always",
            name=container.name,
        )

    level = spec.resources
    return PodResources(
        tuple([read(c, f"{path}.containers[{i}]") for i, c in enumerate(spec.containers)]),
        tuple([read(c, f"{path}.initContainers[{i}]") for i, c in enumerate(spec.init_containers)]),
        level=None
        if level is None
        else ContainerRequests(
            amounts(level.requests, f"{path}.resources.requests"), amounts(level.limits, f"{path}.resources.limits")
        ),
        overhead=amounts(spec.overhead, f"{path}.overhead"),
    )
