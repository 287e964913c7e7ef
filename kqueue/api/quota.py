"""Quota as ClusterQueues and Cohorts state it, and usage as they report it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kqueue.api.fields import Int64, ObjectName, Quantity
from kqueue.api.model import ATOMIC, ApiModel, Rule, keyed


class ResourceQuota(ApiModel):
    """Quota of one resource in one flavor."""

    name: str
    """Resource, such as cpu, memory or nvidia.com/gpu."""
    nominal_quota: Quantity
    """How much of it belongs to this queue or cohort."""
    borrowing_limit: Quantity | None = None
    """How much more may be borrowed from the cohort; absent means no limit.  Needs a cohort."""
    lending_limit: Quantity | None = None
    """How much of the nominal quota others may borrow; absent means all of it.  Needs a cohort."""


class FlavorQuotas(ApiModel):
    """Quota of all covered resources in one flavor."""

    name: ObjectName
    """ResourceFlavor that the quota is for."""
    resources: Annotated[tuple[ResourceQuota, ...], Field(min_length=1, max_length=64), keyed("name")]
    """Quota per resource: exactly the covered resources, in their order."""


class ResourceGroup(ApiModel):
    """Resources that a pod set gets from one flavor together."""

    rules = (
        Rule(
            cel="self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            message="every flavor must list as many resources as coveredResources",
            holds=lambda g: all(len(f.resources) == len(g.covered_resources) for f in g.flavors),
        ),
    )
    covered_resources: Annotated[tuple[str, ...], Field(min_length=1, max_length=64), ATOMIC]
    """Resources of this group.  A resource belongs to one group only."""
    flavors: Annotated[tuple[FlavorQuotas, ...], Field(min_length=1, max_length=64), keyed("name")]
    """Flavors in the order to try.  A flavor belongs to one group only."""


ResourceGroups = Annotated[tuple[ResourceGroup, ...], Field(max_length=16), ATOMIC]


class FairSharing(ApiModel):
    """How much counts as fair against others of the same cohort."""

    weight: Quantity = 1
    """Share compared with the siblings' weights; 0 gives everything back first.  Not below 0, nor between 0 and 2n."""


class FairSharingStatus(ApiModel):
    """How fair sharing sees this object."""

    weighted_share: Int64
    """Largest ratio of borrowed to lendable resources, times 1000, divided by the weight.  0 means that nothing is
    borrowed; 9223372036854775807 that the weight is 0 and something is."""


class ResourceUsage(ApiModel):
    """Usage of one resource in one flavor."""

    name: str
    """Resource."""
    total: Quantity = 0
    """How much is used."""
    borrowed: Quantity = 0
    """How much of it is above the nominal quota."""


class FlavorUsage(ApiModel):
    """Usage of one flavor."""

    name: ObjectName
    """ResourceFlavor."""
    resources: Annotated[tuple[ResourceUsage, ...], Field(max_length=64), keyed("name")]
    """Usage per resource."""


FlavorUsages = Annotated[tuple[FlavorUsage, ...], Field(max_length=64), keyed("name")]
