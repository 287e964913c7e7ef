"""Names of the older version and of its conversion."""

from __future__ import annotations

from typing import Final

from kqueue.api.names import GROUP, OLDER_VERSION

OLDER_API_VERSION: Final = f"{GROUP}/{OLDER_VERSION}"
"""`apiVersion` of objects in that version."""
CONVERT_PATH: Final = "/convert"
"""Path of the webhook that converts objects between the two versions."""
OLD_WORDS: Final = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
"""Field of flavorFungibility to the word of v1beta1 that means MayStopSearch."""
PAST_USAGE: Final = "admissionFairSharingStatus"
"""Field of `status.fairSharing`."""
SOURCE_WORKLOAD_CLASS: Final = "kueue.x-k8s.io/workloadpriorityclass"
"""priorityClassSource: a WorkloadPriorityClass."""
SOURCE_POD_CLASS: Final = "scheduling.k8s.io/priorityclass"
"""priorityClassSource: a PriorityClass of pods."""
