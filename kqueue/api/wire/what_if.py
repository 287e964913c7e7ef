"""Question of the view `whatifs`: changes of policy and of nodes that an administrator thinks about."""

from __future__ import annotations

from typing import Final

from kqueue.api.wire.meta import Struct

KIND: Final = "WhatIf"
PLURAL: Final = "whatifs"
MOST_BYTES: Final = 64 * 1024
MOST_CHANGES: Final = 64
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
    """All changes together; `drains` are paths of domains with slashes."""

    quotas: tuple[QuotaSetting, ...] = ()
    drains: tuple[str, ...] = ()
    add_nodes: tuple[AddedNodes, ...] = ()
    priorities: tuple[PrioritySetting, ...] = ()


class WhatIfQuestion(Struct, frozen=True, kw_only=True):
    """The posted object."""

    spec: WhatIfSpec
