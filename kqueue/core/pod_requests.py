"""Requests of a pod on its node, from the requests of its containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.quantity import saturating_add

Amounts = Mapping[str, int]
"""Amounts by resource name; cpu in milli, everything else in base units."""


@dataclass(frozen=True, slots=True)
class ContainerRequests:
    """One container's amounts.  `sidecar`: an init container that keeps running (restartPolicy Always)."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False
    name: str = ""

    def effective(self) -> dict[str, int]:
        """Requests, and limits where a request is missing."""
        return {**self.limits, **self.requests}


@dataclass(frozen=True, slots=True)
class PodResources:
    """The requests of the parts of a pod.  `level`: the requests of the pod as a whole; None: it has none."""

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
    """A pod's total requests, without `pods`.

    The larger of what runs together (containers and sidecars) and the peak of the init phase, where each init container
    runs beside the sidecars started before it.  Pod-level requests replace that sum for the resources they name, and
    pod-level limits stand in where no container says anything.  Overhead comes on top.

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
