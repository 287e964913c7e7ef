"""PodGroup of the coscheduling plugin (`scheduling.x-k8s.io`), with the fields that kqueue adds to its status."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from kqueue.api.fields import Conditions, Count, Int32, PositiveCount, ResourceList, Time
from kqueue.api.model import ApiModel, Column, Resource, Served
from kqueue.api.names import POD_GROUP_API_VERSION, POD_GROUP_GROUP, POD_GROUP_VERSION


class PodGroupSpec(ApiModel):
    """The number of pods that start together."""

    min_member: Int32 | None = None
    """Number of pods that must start together; absent or 0: one."""
    min_resources: ResourceList | None = None
    """Amounts that must be free before the pods start."""
    schedule_timeout_seconds: PositiveCount | None = None
    """Seconds from the start until this number of pods must have a node; then all are stopped and queued again."""


class PodGroupStatus(ApiModel):
    """The state of the group."""

    phase: Annotated[str, Field(max_length=32)] | None = None
    """Pending, Scheduling, Running, Unknown, Finished or Failed."""
    occupied_by: Annotated[str, Field(max_length=4096)] | None = None
    """UID of the object whose pods are in the group; empty: none."""
    running: Count = 0
    """Pods that run."""
    succeeded: Count = 0
    """Pods that have succeeded."""
    failed: Count = 0
    """Pods that have failed and still exist."""
    scheduled: Count = 0
    """Pods that have a node, or have succeeded."""
    schedule_start_time: Time | None = None
    """Time of the last release of the pods."""
    message: Annotated[str, Field(max_length=32768)] | None = None
    """Why the group waits, or why it was stopped last."""
    conditions: Conditions = ()
    """Conditions Queued, Scheduled and Ready."""


class PodGroup(Resource):
    """Pods with the label scheduling.x-k8s.io/pod-group that start together."""

    served: ClassVar = Served(
        group=POD_GROUP_GROUP,
        version=POD_GROUP_VERSION,
        plural="podgroups",
        namespaced=True,
        short_names=("pg", "pgs"),
        columns=(
            Column(name="Phase", path=".status.phase", description="State of the group"),
            Column(name="MinMember", path=".spec.minMember", type="integer", description="Pods that start together"),
            Column(name="Running", path=".status.running", type="integer", description="Pods that run"),
            Column(name="Succeeded", path=".status.succeeded", type="integer", description="Pods that have succeeded"),
            Column(name="Failed", path=".status.failed", type="integer", description="Pods that have failed"),
            Column(name="Age", path=".metadata.creationTimestamp", type="date", description="Time since creation"),
            Column(
                name="Scheduled", path=".status.scheduled", type="integer", description="Pods with a node", wide=True
            ),
            Column(name="OccupiedBy", path=".status.occupiedBy", description="UID of the pods' owner", wide=True),
            Column(name="Message", path=".status.message", description="Why it waits", wide=True),
        ),
    )
    api_version: str = POD_GROUP_API_VERSION
    """Group and version of this representation of the object."""
    kind: str = "PodGroup"
    """Kind of the object."""
    spec: PodGroupSpec = PodGroupSpec()
    """The number of pods that start together."""
    status: PodGroupStatus = PodGroupStatus()
    """The state of the group."""
