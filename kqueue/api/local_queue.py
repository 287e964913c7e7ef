"""LocalQueue: the door to a ClusterQueue in one namespace."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from kqueue.api.cluster_queue import StopPolicy
from kqueue.api.fields import Conditions, Int32, Int64, ObjectName, Quantity, ResourceList, Time
from kqueue.api.model import ApiModel, Column, Resource, Rule, Served, keyed
from kqueue.api.quota import FairSharing


class LocalQueueSpec(ApiModel):
    """Where the workloads of a namespace go."""

    cluster_queue: (
        Annotated[
            ObjectName,
            Rule(cel="self == oldSelf", message="clusterQueue cannot be changed; create another LocalQueue instead"),
        ]
        | None
    ) = None
    """ClusterQueue that the workloads of this queue go to.  Cannot be changed."""
    stop_policy: StopPolicy = "None"
    """None runs the queue, Hold admits nothing new, HoldAndDrain also evicts what runs."""
    fair_sharing: FairSharing | None = None
    """Weight against the other LocalQueues of the ClusterQueue, where the order follows past usage."""


class LocalResourceUsage(ApiModel):
    """Usage of one resource in one flavor."""

    name: str
    """Resource."""
    total: Quantity = 0
    """How much is used."""


class LocalFlavorUsage(ApiModel):
    """Usage of one flavor."""

    name: ObjectName
    """ResourceFlavor."""
    resources: Annotated[tuple[LocalResourceUsage, ...], Field(max_length=64), keyed("name")]
    """Usage per resource."""


LocalFlavorUsages = Annotated[tuple[LocalFlavorUsage, ...], Field(max_length=64), keyed("name")]


class AdmissionFairSharingStatus(ApiModel):
    """Past usage, of which the older part counts less."""

    consumed_resources: ResourceList
    """Past usage per resource."""
    last_update: Time
    """When this was last brought up to date."""


class LocalFairSharingStatus(ApiModel):
    """How fair sharing sees this queue."""

    weighted_share: Int64
    """Share that is compared with other queues; larger means later."""
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """Past usage, where the order follows it."""


class LocalQueueStatus(ApiModel):
    """Usage, number of workloads, and whether the queue can be used."""

    conditions: Conditions = ()
    """Condition Active: whether workloads of this queue can be admitted, and what is missing if not."""
    pending_workloads: Int32 = 0
    """Workloads that wait."""
    reserving_workloads: Int32 = 0
    """Workloads that hold quota and have not finished."""
    admitted_workloads: Int32 = 0
    """Workloads that were admitted and have not finished."""
    flavors_reservation: LocalFlavorUsages = ()
    """Quota reserved by all workloads of this queue, running or about to."""
    flavors_usage: LocalFlavorUsages = ()
    """Quota used by admitted workloads of this queue."""
    fair_sharing: LocalFairSharingStatus | None = None
    """How fair sharing sees this queue; absent while it is off."""


class LocalQueue(Resource):
    """The door to a ClusterQueue in one namespace: jobs name it in the label kueue.x-k8s.io/queue-name."""

    served: ClassVar = Served(
        plural="localqueues",
        namespaced=True,
        short_names=("queue", "queues", "lq"),
        columns=(
            Column(name="ClusterQueue", path=".spec.clusterQueue", description="ClusterQueue that it leads to"),
            Column(
                name="Pending Workloads",
                path=".status.pendingWorkloads",
                type="integer",
                description="Workloads that wait",
            ),
            Column(
                name="Admitted Workloads",
                path=".status.admittedWorkloads",
                type="integer",
                description="Workloads that were admitted and have not finished",
            ),
        ),
    )
    kind: str = "LocalQueue"
    """Kind of the object."""
    spec: LocalQueueSpec = LocalQueueSpec()
    """Where the workloads go."""
    status: LocalQueueStatus = LocalQueueStatus()
    """How many wait and run, and what they use."""
