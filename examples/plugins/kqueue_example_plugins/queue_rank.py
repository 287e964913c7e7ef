"""An order: workloads of some LocalQueues go first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kqueue.core.queued import Queued


class QueueRank:
    """A plugin of point `order`.  `args` has `queues`: names of LocalQueues as namespace/name, the first one first."""

    name = "queue-rank"

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._ranks = {queue: rank for rank, queue in enumerate(args.get("queues", ()))}

    def key(self, item: Queued) -> int:
        """Return the place of the workload's LocalQueue in the list; all other queues share the last place."""
        return self._ranks.get(item.local_queue, len(self._ranks))
