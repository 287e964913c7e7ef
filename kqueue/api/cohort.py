"""Cohort: ClusterQueues and other cohorts that lend to each other."""

from __future__ import annotations

from typing import ClassVar

from kqueue.api.fields import ObjectName
from kqueue.api.model import ApiModel, Resource, Served
from kqueue.api.quota import FairSharing, FairSharingStatus, ResourceGroups


class CohortSpec(ApiModel):
    """Parent and own quota of the cohort."""

    parent_name: ObjectName | None = None
    """Cohort above; absent makes this one a root.  The object above may be missing.  A cycle stops admission in the
    whole tree until it is removed."""
    resource_groups: ResourceGroups = ()
    """Quota that belongs to the cohort itself, for all of its members, on top of theirs.  Limits are those towards the
    parent."""
    fair_sharing: FairSharing | None = None
    """Weight against the other members of the parent, where fair sharing is on."""


class CohortStatus(ApiModel):
    """How the cohort is doing."""

    fair_sharing: FairSharingStatus | None = None
    """How fair sharing sees this cohort; absent while fair sharing is off."""


class Cohort(Resource):
    """ClusterQueues and cohorts that lend unused quota to each other."""

    served: ClassVar = Served(plural="cohorts", short_names=("co",))
    kind: str = "Cohort"
    """Kind of the object."""
    spec: CohortSpec = CohortSpec()
    """Parent and own quota of the cohort."""
    status: CohortStatus = CohortStatus()
    """How the cohort is doing."""
