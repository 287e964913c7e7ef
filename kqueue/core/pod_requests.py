"""Requests of a pod on its node, from the requests of its containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.quantity import saturating_add

Amounts = Mapping[str, int]
"""Amounts by resource name; cpu in milli, everything else in base units."""


@dataclass(frozen=True, slots=True)
class ContainerRequests:
    """The amounts of one container.  `sidecar`: an init container that keeps running (restartPolicy Always)."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False
    name: str = ""

    def effective(self) -> dict[str, int]:
        """Return the requests, with the limit for each resource without a request."""
        return {**self.limits, **self.requests}


@dataclass(frozen=True, slots=True)
class PodResources:
    """The requests of the parts of a pod.  `level`: the requests of the pod as a whole; None: the pod has none."""

    containers: tuple[ContainerRequests, ...] = ()
    init_containers: tuple[ContainerRequests, ...] = ()
    level: ContainerRequests | None = None
    overhead: Amounts = field(default_factory=dict)

    def total(self) -> dict[str, int]:
        """Return the total requests of one pod; see `pod_requests`."""
        return pod_requests(self.containers, self.init_containers, pod_level=self.level, overhead=self.overhead)


def pod_requests(
    containers: Iterable[ContainerRequests],
    init_containers: Sequence[ContainerRequests] = (),
    *,
    pod_level: ContainerRequests | None = None,
    overhead: Amounts | None = None,
) -> dict[str, int]:
    """Return a pod's total requests, without `pods`.

    The total is the larger of two sums: all containers and sidecars, and the peak of the init phase, in which each init
    container runs beside the sidecars started before it.  Pod-level requests replace the total for the resources that
    they name; pod-level limits apply to resources that no container names.  Overhead is added.

    Sums saturate at 64 bits.  Source: Kubernetes, pod resource accounting (KEP-753, KEP-2837).
    """
    running: dict[str, int] = {}
    for container in containers:
        _add(running, container.effective())
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        step = container.effective()
        if container.sidecar:
            _add(running, step)
            _add(sidecars, step)
            step = dict(sidecars)
        else:
            _add(step, sidecars)
        for resource, amount in step.items():
            peak[resource] = max(peak.get(resource, 0), amount)
    total = {r: max(running.get(r, 0), peak.get(r, 0)) for r in {**running, **peak}}
    if pod_level is not None:
        total = {**pod_level.limits, **total, **pod_level.requests}
    _add(total, overhead or {})
    return total


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        total[resource] = saturating_add(total.get(resource, 0), amount)
