"""Quota of a ClusterQueue in answers: one entry for each flavor and resource, amounts as Kubernetes writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kqueue.api.wire import kueue as wire
from kqueue.core.quantity import format_quantity
from kqueue.core.quota import FlavorResource
from kqueue.visibility.question import JSON


def columns_of(obj: wire.ClusterQueue) -> Iterator[FlavorResource]:
    """Yield the flavors and resources of a ClusterQueue, in the order of its specification."""
    for group in obj.spec.resource_groups:
        for flavor in group.flavors:
            for resource in flavor.resources:
                yield FlavorResource(flavor.name, resource.name)


def entry(column: FlavorResource, amounts: Mapping[str, int | None]) -> JSON:
    """Return flavor, resource, and the amounts by name; an amount of None is left out."""
    texts = {name: format_quantity(amount, column.resource) for name, amount in amounts.items() if amount is not None}
    return {"flavor": column.flavor, "resource": column.resource, **texts}
