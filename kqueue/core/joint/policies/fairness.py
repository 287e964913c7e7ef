"""Policy `fairness`: ClusterQueues get shares of a flavor by their weights."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.core.joint.policy import BasePolicy


class FairnessPolicy(BasePolicy):
    """Shares by weight, among workloads of one priority; inside a share, the longest waiting count more.

    `weights` are by ClusterQueue, in thousandths; others have the weight of their fair sharing.
    """

    by_value = True

    def __init__(self, weights: Mapping[str, int] | None = None) -> None:
        self._weights = dict(weights or {})

    def weight(self, queue: str, otherwise: int) -> int:
        """Return the weight of a ClusterQueue in billionths; `otherwise`: that of its fair sharing."""
        own = self._weights.get(queue)
        return otherwise if own is None else own * 1_000_000
