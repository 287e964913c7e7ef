"""Names that kqueue writes in jobs of single kinds, and in their Workloads."""

from __future__ import annotations

from typing import Final

# ---- Names in jobs of single kinds -----------------------------------------------------------------------------------

COMPONENT_WORKLOAD_INDEX_ANNOTATION: Final = "kueue.x-k8s.io/component-workload-index"
"""On Workloads of composed owners: index of the group of pods, if the owner has several."""
STARTING_ANNOTATION: Final = "kqueue.dev/starting"
"""On a TrainJob while kqueue starts it in two writes: `true` from the first write to the second."""
RUNTIME_PATCH_MANAGER: Final = "kueue.x-k8s.io/manager"
"""Manager of kqueue's entry in the runtime patches of a TrainJob."""
SPARK_START_ANNOTATION: Final = "kqueue.dev/spark-start"
"""On a SparkApplication that was started: `nodeSelector` (it was moved into driver and executor), `driver`, `executor`
(they got a template), separated by commas.  A stop reverts them and removes the annotation.
"""
