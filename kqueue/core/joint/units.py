"""Units: the one commodity in which a round measures a flavor.

Of each flavor, the unit resource is the one of which the batch requests the largest part of what is free.  One unit is
the greatest common divisor of all requests of that resource.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import PODS
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.value import value


@value()
class Unit:
    """The unit of one flavor: `size` of `resource`."""

    resource: str
    size: int

    def of_pod(self, request: PodSetRequest) -> int:
        """Return the units of one pod; 0: it requests none of the unit resource."""
        return request.requests.get(self.resource, 0) // self.size

    def of(self, requests: Iterable[PodSetRequest]) -> int:
        """Return the units of all pods of these pod sets."""
        return sum(self.of_pod(request) * request.count for request in requests)


def unit_of(requests: Sequence[PodSetRequest], capacity: Capacity) -> Unit | None:
    """Return the unit for these pod sets of a batch on a flavor; None: no pod requests any resource.

    Of resources with equal parts the first by name counts.  A resource that is nowhere free counts only where no other
    one is free, because one workload that asks for it would leave all others without units.
    """
    asked: dict[str, int] = defaultdict(int)
    size: dict[str, int] = {}
    for request in requests:
        for resource, amount in request.requests.items():
            if amount and resource != PODS:
                asked[resource] += amount * request.count
                size[resource] = gcd(size.get(resource, 0), amount)
    best: tuple[str, int, int] | None = None
    for resource in sorted(asked):
        row = capacity.row(resource)
        free = int(row.clip(0).sum()) if row is not None else 0
        if best is None or (free and (not best[2] or asked[resource] * best[2] > best[1] * free)):
            best = resource, asked[resource], free
    return Unit(best[0], size[best[0]]) if best is not None else None


def units(pod_sets: Mapping[str, Sequence[PodSetRequest]], of_flavor: Mapping[str, Unit]) -> int:
    """Return the units of a workload's pod sets, by flavor; flavors without a unit count 0."""
    return sum(of_flavor[flavor].of(requests) for flavor, requests in pod_sets.items() if flavor in of_flavor)
