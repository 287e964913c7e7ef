"""All kinds that are served in v1beta1, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kqueue.api.v1beta1.alike import ALIKE
from kqueue.api.v1beta1.cluster_queue import CLUSTER_QUEUE
from kqueue.api.v1beta1.cohort import COHORT
from kqueue.api.v1beta1.editing import OlderKind
from kqueue.api.v1beta1.local_queue import LOCAL_QUEUE
from kqueue.api.v1beta1.multikueue_cluster import MULTIKUEUE_CLUSTER
from kqueue.api.v1beta1.workload import WORKLOAD

OLDER_KINDS: Final[Mapping[str, OlderKind]] = {
    each.kind: each for each in (CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, MULTIKUEUE_CLUSTER, WORKLOAD, *ALIKE)
}
