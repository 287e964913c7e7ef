"""BatchProcess: processes of several types that start together, with their pods, service and status."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from kqueue.api.batch_limits import MOST_PODS, MOST_PROCESSES
from kqueue.api.fields import DNS_LABEL_PATTERN, Bool, Conditions, Count, PositiveCount, ResourceList, Time
from kqueue.api.model import ATOMIC, ApiModel, Column, Resource, Served
from kqueue.api.names import (
    KQUEUE_API_VERSION,
    KQUEUE_GROUP,
    KQUEUE_VERSION,
    QUEUE_NAME_LABEL,
    WORKSPACE_API_VERSION,
    WORKSPACE_GROUP,
    WORKSPACE_VERSION,
)
from kqueue.api.workload import PodTemplate

PodCount = Annotated[int, Field(strict=True, ge=0, le=MOST_PODS)]
RestartPolicy = Literal["Never", "OnFailure"]
ProcessName = Annotated[str, Field(min_length=1, max_length=30, pattern=DNS_LABEL_PATTERN)]


class BatchPodGroup(ApiModel):
    """The number of pods that the gang has, and that must start together."""

    replicas: Annotated[int, Field(strict=True, ge=1, le=MOST_PODS)] | None = None
    """Number of pods; must be the sum of all processes.  Absent: that sum."""
    min_available: Annotated[int, Field(strict=True, ge=1, le=MOST_PODS)] | None = None
    """Number of pods that must start together.  Absent: all of them."""
    timeout_seconds: PositiveCount | None = None
    """Seconds from the creation until this number of pods must be scheduled; then the BatchProcess fails.  Absent: it
    waits without end."""


class ContainerResources(ApiModel):
    """Resources of the container `main`."""

    limits: ResourceList | None = None
    """Most that the container may use."""
    requests: ResourceList | None = None
    """Amounts that are reserved for the container; absent amounts are those of the limits."""


class ContainerVariable(ApiModel):
    """An environment variable, as in a container."""

    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the variable."""


class SimpleProcess(ApiModel):
    """Pods of one type."""

    name: ProcessName | None = None
    """Name of the process type; absent: process-N, where N is its place in the list, from 0 on."""
    replicas: PodCount = 1
    """Number of pods."""
    min_available: PodCount | None = None
    """Number of pods of this type that must start together with the rest.  Absent: all of them, or 0 where
    spec.podGroup.minAvailable is set."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Image of the container `main`; absent: spec.image."""
    command: Annotated[tuple[str, ...], ATOMIC] = ()
    """Entry point of the container `main`."""
    args: Annotated[tuple[str, ...], ATOMIC] = ()
    """Arguments of the entry point."""
    env: Annotated[tuple[ContainerVariable, ...], Field(max_length=256), ATOMIC] = ()
    """Environment variables of the container `main`."""
    working_dir: Annotated[str, Field(max_length=4096)] | None = None
    """Working directory of the container `main`."""
    resources: ContainerResources | None = None
    """Resources of the container `main`."""
    restart_policy: RestartPolicy | None = None
    """Whether the kubelet restarts containers that fail; absent: spec.restartPolicy."""
    template: PodTemplate | None = None
    """Pod template; the fields above go into its first container."""


class SuccessPolicy(ApiModel):
    """When the BatchProcess is complete."""

    processes: Annotated[tuple[str, ...], Field(max_length=MOST_PROCESSES), ATOMIC] = ()
    """Process types whose pods count; empty: all."""
    operator: Literal["All", "Any"] = "All"
    """All: every started pod of these types has succeeded.  Any: one of them has."""


class FailurePolicy(ApiModel):
    """The reaction to failed pods."""

    backoff_limit: Count = 6
    """Failures until the BatchProcess fails."""
    restart: Literal["Member", "Gang", "None"] = "Member"
    """Member: the failed pod is created again.  Gang: all pods are.  None: the BatchProcess fails."""


class BatchNetwork(ApiModel):
    """Addresses of the pods."""

    enabled: Bool | None = None
    """Whether a headless Service gives each pod an address.  Absent: yes, if there is more than one pod."""


class BatchProcessSpec(ApiModel):
    """The processes, and how they start and end."""

    suspend: Bool = False
    """Ends all pods and keeps new ones from starting while it is true."""
    pod_group: BatchPodGroup | None = None
    """The number of pods that start together."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Image of processes that name none."""
    restart_policy: RestartPolicy = "Never"
    """Whether the kubelet restarts containers that fail."""
    simple_processes: Annotated[tuple[SimpleProcess, ...], Field(min_length=1, max_length=MOST_PROCESSES), ATOMIC]
    """Process types, in the order of ranks."""
    success_policy: SuccessPolicy | None = None
    """When the BatchProcess is complete; absent: when all pods have succeeded."""
    failure_policy: FailurePolicy | None = None
    """The reaction to failed pods; absent: a failed pod is created again, up to six times in all."""
    network: BatchNetwork | None = None
    """Addresses of the pods."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds after the end until the BatchProcess is deleted; absent: never."""
    active_deadline_seconds: PositiveCount | None = None
    """Longest execution time in seconds; then it is stopped for good."""


class ProcessStatus(ApiModel):
    """Pods of one type by state."""

    name: str
    """Name of the process type."""
    replicas: Count = 0
    """Number of pods that it has in the end."""
    min_available: Count = 0
    """Number of pods that start with the gang."""
    created: Count = 0
    """Pods that exist."""
    scheduled: Count = 0
    """Pods that have a node, or have succeeded."""
    running: Count = 0
    """Pods that run."""
    succeeded: Count = 0
    """Pods that have succeeded."""
    failed: Count = 0
    """Pods that have failed and still exist."""


class BatchProcessStatus(ApiModel):
    """The state of the gang."""

    observed_generation: Count | None = None
    """Generation of the spec that this status describes."""
    phase: Annotated[str, Field(max_length=32)] | None = None
    """Suspended, Pending, Scheduling, Scheduled, Running, Unknown, Failed or Finished."""
    quorum: Annotated[str, Field(max_length=32)] | None = None
    """Number of pods that start together, and of all pods: 3/4."""
    workload: Annotated[str, Field(max_length=253)] | None = None
    """Name of the Workload."""
    start_time: Time | None = None
    """Time of the first release of pods."""
    scheduled_time: Time | None = None
    """Time at which the quorum was scheduled first."""
    completion_time: Time | None = None
    """Time of the end."""
    suspended_seconds: Count | None = None
    """Seconds for which it was suspended, of suspensions that are over; they do not count for timeoutSeconds."""
    failures: Count | None = None
    """Pods that have failed until now, for backoffLimit."""
    message: Annotated[str, Field(max_length=32768)] | None = None
    """Why it waits, or how it ended."""
    replicas: Count = 0
    """Number of pods that it has in the end."""
    created: Count = 0
    """Pods that exist."""
    scheduled: Count = 0
    """Pods that have a node, or have succeeded."""
    running: Count = 0
    """Pods that run."""
    succeeded: Count = 0
    """Pods that have succeeded."""
    failed: Count = 0
    """Pods that have failed and still exist."""
    processes: Annotated[tuple[ProcessStatus, ...], Field(max_length=MOST_PROCESSES), ATOMIC] = ()
    """The same by process type."""
    conditions: Conditions = ()
    """Conditions Queued, Admitted, Scheduled, Complete, Failed, Suspended and Network."""


class BatchProcess(Resource):
    """Processes of several types that start together: kqueue queues them as one gang, and creates their pods."""

    served: ClassVar = Served(
        group=KQUEUE_GROUP,
        version=KQUEUE_VERSION,
        plural="batchprocesses",
        namespaced=True,
        short_names=("bproc",),
        columns=(
            Column(name="Phase", path=".status.phase", description="State of the gang"),
            Column(name="Quorum", path=".status.quorum", description="Pods that start together, of all pods"),
            Column(name="Running", path=".status.running", type="integer", description="Pods that run"),
            Column(name="Succeeded", path=".status.succeeded", type="integer", description="Pods that have succeeded"),
            Column(name="Failed", path=".status.failed", type="integer", description="Pods that have failed"),
            Column(
                name="Queue",
                path=f".metadata.labels.{QUEUE_NAME_LABEL.replace('.', chr(92) + '.')}",
                description="LocalQueue",
            ),
            Column(name="Age", path=".metadata.creationTimestamp", type="date", description="Time since creation"),
            Column(name="Workload", path=".status.workload", description="Name of the Workload", wide=True),
            Column(name="Message", path=".status.message", description="Why it waits", wide=True),
        ),
    )
    api_version: str = KQUEUE_API_VERSION
    """Group and version of this representation of the object."""
    kind: str = "BatchProcess"
    """Kind of the object."""
    spec: BatchProcessSpec
    """The processes, and how they start and end."""
    status: BatchProcessStatus = BatchProcessStatus()
    """The state of the gang."""


class WorkspaceBatchProcess(BatchProcess):
    """A BatchProcess under the name that Brain++ workspaces give it: kqueue copies it to a BatchProcess of its own, and
    the status back.
    """

    served: ClassVar = replace(
        BatchProcess.served, group=WORKSPACE_GROUP, version=WORKSPACE_VERSION, kind="BatchProcess", short_names=()
    )
    api_version: str = WORKSPACE_API_VERSION
    """Group and version of this representation of the object."""
    kind: str = "BatchProcess"
    """Kind of the object."""
