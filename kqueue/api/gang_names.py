"""Labels and annotations of gangs: those of other projects, and those of kqueue alone."""

from __future__ import annotations

from typing import Final

# ---- Names of the gangs of other projects ----------------------------------------------------------------------------

POD_GROUP_X_K8S_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""On pods: the PodGroup of the coscheduling plugin that they are in."""
VOLCANO_GROUP_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""On pods: the PodGroup of Volcano that they are in; the first one that is set counts."""
VOLCANO_TASK_ANNOTATION: Final = "volcano.sh/task-spec"
"""On pods of a PodGroup of Volcano: the task, which is the role."""
VOLCANO_WAITING_TIME_ANNOTATION: Final = "volcano.sh/sla-waiting-time"
"""On PodGroups of Volcano: has no effect."""
COSCHEDULING_NAME_LABEL: Final = "pod-group.scheduling.x-k8s.io/name"
"""On pods: the group that they start with.  A form of other schedulers; read where its dialect is on."""
COSCHEDULING_MIN_AVAILABLE_LABEL: Final = "pod-group.scheduling.x-k8s.io/min-available"
"""On pods of a group by labels: the number of pods that must start together."""

# ---- Names of gangs of ours alone ------------------------------------------------------------------------------------

GANG_QUEUE_LABEL: Final = "kqueue.dev/gang-queue"
"""On namespaces: the LocalQueue of gangs for which neither their pods nor their group object names one."""
MAX_SCHEDULE_TIME_ANNOTATION: Final = "kqueue.dev/max-schedule-time-seconds"
"""On PodGroups: the longest time in seconds from the admission until the quorum has nodes."""
BATCH_PROCESS_LABEL: Final = "kqueue.dev/batch-process"
"""On pods of a BatchProcess and on its Service: the BatchProcess's name."""
BATCH_PROCESS_TYPE_LABEL: Final = "kqueue.dev/process"
"""On pods of a BatchProcess: the process type."""
BATCH_PROCESS_INDEX_LABEL: Final = "kqueue.dev/process-index"
"""On pods of a BatchProcess: the number of the pod within its process type, from 0 on."""
BATCH_PROCESS_RANK_LABEL: Final = "kqueue.dev/rank"
"""On pods of a BatchProcess: the number of the pod within the BatchProcess, from 0 on."""
BATCH_PROCESS_ATTEMPT_ANNOTATION: Final = "kqueue.dev/attempt"
"""On pods of a BatchProcess: how often the pod was created again, from 0 on."""
BATCH_PROCESS_FAILURES_ANNOTATION: Final = "kqueue.dev/failures"
"""On pods of a BatchProcess: how many pods have failed before in its place, or with `restart: Gang` in all places."""
BATCH_IMAGE_ANNOTATION: Final = "kqueue.dev/batch-image"
"""On namespaces: the image of BatchProcesses of Brain++ workspaces that name none."""
GANG_ANNOTATION: Final = "kqueue.dev/gang"
"""On Workloads of gangs in other dialects than Kueue's: FRAMEWORK:NAME, the dialect and the gang's name."""
GANG_SINCE_ANNOTATION: Final = "kqueue.dev/gang-since"
"""On Workloads of gangs and of pods beyond a quorum: the creation of the group object, or of the first member that was
seen."""
GANG_UID_ANNOTATION: Final = "kqueue.dev/gang-uid"
"""On Workloads of gangs and of pods beyond a quorum: the UID of the group object, or of the first member that was
seen."""
OBJECT_QUEUE_ANNOTATION: Final = "kqueue.dev/group-object-queue"
"""On Workloads of gangs with a group object: the LocalQueue that the object named and the members have followed; may be
empty.
"""
GIVEN_QUEUE_ANNOTATION: Final = "kqueue.dev/given-queue"
"""On pods of gangs that named no LocalQueue: the one that kqueue gave them, by their group object or namespace."""
EXTRA_OF_ANNOTATION: Final = "kqueue.dev/extra-of"
"""On Workloads of pods beyond a quorum: the name of the Workload that counts the quorum of their gang."""
GANG_TOPOLOGY_ANNOTATION: Final = "kqueue.dev/gang-topology"
"""On Workloads of gangs: "together" where the group object names the topology level, so that one domain of the level is
for all roles.
"""
TOGETHER: Final = "together"
SCHEDULE_TIMEOUT_ANNOTATION: Final = "kqueue.dev/schedule-timeout-seconds"
"""On pods of a group by labels: seconds after the admission within which these pods must be scheduled."""
EXTRA_ANNOTATION: Final = "kqueue.dev/extra"
"""On pods of gangs, written by kqueue where the pod is beyond the quorum and is queued alone: "true", or "early" while
the quorum has not started.
"""
EXTRA: Final = "true"
EARLY_EXTRA: Final = "early"
"""The pod may reserve quota, and is not released before its quorum has started."""
MIN_RESOURCES_ANNOTATION: Final = "kqueue.dev/min-resources"
"""On Workloads of gangs: `minResources` of the group object as JSON, the amounts that must be free before it starts."""
QUORUM_SCHEDULED_ANNOTATION: Final = "kqueue.dev/quorum-scheduled"
"""On Workloads of gangs: the time of the admission after which the quorum had nodes, which ended its deadline."""

# ---- Reasons of condition Evicted on Workloads of gangs --------------------------------------------------------------

REASON_GANG_SCHEDULE_TIMEOUT: Final = "GangScheduleTimeout"
"""The quorum was not scheduled within its deadline."""
REASON_GANG_REJECTED: Final = "GangRejected"
"""Too many members of the quorum cannot be scheduled."""
REASON_GANG_MADE_WAY: Final = "GangMadeWay"
"""A flavor was kept for it, and a workload of higher priority was admitted there."""
