"""Which workloads are planned jointly: the placement profile of the nearest object that names one."""

from __future__ import annotations

from collections.abc import Callable

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.topology.placers import JOINT
from kqueue.state.quota_cache import QuotaCache


class JointProfiles:
    """Resolves the profile `joint` for workloads."""

    def __init__(
        self, quota: QuotaCache, *, profile_of_flavor: Callable[[str], str | None], default: bool = False
    ) -> None:
        """Take the quota cache; `profile_of_flavor` returns the profile that the Topology of a flavor names, None: it
        names none, or the flavor has no Topology.  `default` decides where no object names a profile.
        """
        self._quota, self._profile_of_flavor, self._default = quota, profile_of_flavor, default

    def is_joint(self, obj: wire.Workload, queue: str) -> bool:
        """Whether a Workload of a ClusterQueue is planned jointly.

        The first of these that names a profile decides: the Workload; the ClusterQueue; its Cohorts, the nearest first;
        the Topologies of its flavors, if all of them name the same one.
        """
        named = self._profile(obj, queue)
        return self._default if named is None else named == JOINT

    def _profile(self, obj: wire.Workload, queue: str) -> str | None:
        own = model.profile_name(obj.metadata)
        if own is not None:
            return own
        found = self._quota.queue_object(queue)
        if found is None:
            return None
        of_queue = model.profile_name(found.metadata)
        if of_queue is not None:
            return of_queue
        return self._of_cohorts(queue) or self._of_topologies(queue)

    def _of_cohorts(self, queue: str) -> str | None:
        node = self._quota.node_of(queue)
        above = node.parent if node is not None else None
        while above is not None:
            cohort = self._quota.cohort_object(above.name)
            named = model.profile_name(cohort.metadata) if cohort is not None else None
            if named is not None:
                return named
            above = above.parent
        return None

    def _of_topologies(self, queue: str) -> str | None:
        spec = self._quota.queue_spec(queue)
        flavors = {flavor for group in spec.groups for flavor in group.flavors} if spec is not None else set()
        named = {self._profile_of_flavor(flavor) for flavor in sorted(flavors)} - {None}
        return named.pop() if len(named) == 1 else None
