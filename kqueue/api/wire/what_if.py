"""Question of the view `whatifs`: changes of policy and of nodes that an administrator thinks about."""

from __future__ import annotations

from typing import Any, Final

from kqueue.api.wire.meta import Struct

KIND: Final = "WhatIf"
PLURAL: Final = "whatifs"
MOST_BYTES: Final = 512 * 1024
MOST_CHANGES: Final = 64
"""Changes of one question, of all kinds together."""
MOST_QUEUES: Final = 20_000
"""ClusterQueues of a cluster about which questions are answered."""
MOST_QUEUES_WHEN: Final = 2_000
"""The same for questions about start times."""
MOST_NODES: Final = 10_000
"""Added nodes of one question."""


class QuotaSetting(Struct, frozen=True, kw_only=True):
    """One number of a ClusterQueue's quota.

    Args:
        column: flavor and resource, as in `h100.nvidia.com/gpu`.
        field: `nominalQuota`, `borrowingLimit` or `lendingLimit`.
        value: an amount as in a manifest.
    """

    cluster_queue: str
    column: str
    value: str
    field: str = "nominalQuota"


class AddedNodes(Struct, frozen=True, kw_only=True):
    """More nodes like one that exists, in a domain (its path with slashes, without the host)."""

    like: str
    count: int
    domain: str


class PrioritySetting(Struct, frozen=True, kw_only=True):
    """Another value of a WorkloadPriorityClass."""

    name: str
    value: int


class WhatIfSpec(Struct, frozen=True, kw_only=True):
    """All changes together; `quotas` and the others are made on the state with `objects`.

    Args:
        drains: paths of domains with slashes.
        ends: workloads with quota that end now, each as namespace/name of its Workload.
        objects: manifests of ClusterQueues, Cohorts, ResourceFlavors and LocalQueues, each in the place of the object
            of its name.
        when: whether the answer has the start times with and without the changes.
    """

    quotas: tuple[QuotaSetting, ...] = ()
    drains: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    add_nodes: tuple[AddedNodes, ...] = ()
    priorities: tuple[PrioritySetting, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()
    when: bool = False


class WhatIfQuestion(Struct, frozen=True, kw_only=True):
    """The posted object."""

    spec: WhatIfSpec
