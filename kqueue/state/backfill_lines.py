"""The lines of backfill: the nearest object with the annotation `kqueue.dev/backfill` decides for a ClusterQueue."""

from __future__ import annotations

from collections.abc import Iterator

from kqueue import model
from kqueue.core.backfill.mode import BackfillMode
from kqueue.core.backfill.plans import LineRule, nearest_rule
from kqueue.state.quota_cache import QuotaCache


class BackfillLines:
    """Resolves the lines of ClusterQueues."""

    def __init__(self, quota: QuotaCache) -> None:
        self._quota = quota
        self._known: dict[str, LineRule | None] = {}
        self._guess = False
        self._generation = -1

    def of(self, queue: str) -> LineRule | None:
        """Return the line of a ClusterQueue: its own, or that of the nearest Cohort above it; None: it has none."""
        self._renew()
        return self._known.get(queue)

    @property
    def guess(self) -> bool:
        """Whether guessed run times count in any line."""
        self._renew()
        return self._guess

    def _renew(self) -> None:
        """Resolve all lines again if the configuration has changed."""
        if self._generation == self._quota.generation:
            return
        self._generation = self._quota.generation
        self._known = {queue: self._resolved(queue) for queue in self._quota.queue_names()}
        self._guess = any(rule is not None and rule.guesses for rule in self._known.values())

    def _resolved(self, queue: str) -> LineRule | None:
        return nearest_rule(self._objects(queue))

    def _objects(self, queue: str) -> Iterator[tuple[str, BackfillMode | None]]:
        """Yield a ClusterQueue and the Cohorts above it, with what they say."""
        found = self._quota.queue_object(queue)
        if found is not None:
            yield f"ClusterQueue/{queue}", model.backfill_mode(found.metadata.annotations)
        node = self._quota.node_of(queue)
        above = node.parent if node is not None else None
        while above is not None:
            cohort = self._quota.cohort_object(above.name)
            yield (
                f"Cohort/{above.name}",
                model.backfill_mode(cohort.metadata.annotations) if cohort is not None else None,
            )
            above = above.parent
