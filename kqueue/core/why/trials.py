"""The planner on a changed copy of a snapshot: tests whether a workload would start."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kqueue.core import flavors
from kqueue.core.claims import Claims
from kqueue.core.decision import Admit, Decision, Wait
from kqueue.core.mention import Mention
from kqueue.core.nomination import FITS, NominatedHead, Nominator
from kqueue.core.placed_entries import quality_of, with_domains
from kqueue.core.plan_cache import PlanCache
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Findings, simulate
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.slices import flavors_to_keep, places_to_keep, without_older
from kqueue.core.spares import Spare
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.result import Placement
from kqueue.core.why.sequence import PlanSequence
from kqueue.core.workload import Admission, Admitted, Head, Snapshot
from kqueue.errors import PluginError


class Trials:
    """Tests of heads of some ClusterQueues.

    `might_fit` checks quota and domains on a copy that is changed and rolled back: it is cheap and called often.
    `starts` and `decide` run the planner itself on a copy of their own, so they decide as a cycle.
    """

    def __init__(self, world: PlannedState, queues: Collection[str]) -> None:
        """Take the state, and the ClusterQueues of all heads that will be tested."""
        self._world, self._queues = world, frozenset(queues)
        self.scratch: Snapshot = world.copied(queues)
        """The snapshot of `might_fit`, with the claims of other preemptors charged."""
        self._claims = Claims(self.scratch, self.scratch.claims)
        self._cache = PlanCache()
        self.asked = 0
        """The number of runs of the planner."""

    def decide(self, head: Head) -> Decision:
        """Return the decision of a cycle that tried this head alone now."""
        self.asked += 1
        return PlanSequence(self._world, self._world.copied(self._queues)).decide(head)

    def admits(self, head: Head) -> Admit | None:
        """Return the admission of all of the head if a cycle would decide so now, without domains; cheaper than
        `decide`.
        """
        entry = self.starts(head)
        if entry is None:
            return None
        admission = Admission(queue=head.queue, pod_sets=with_domains(entry), known_usage=entry.usage)
        return Admit(head=head, admission=admission, quality=tuple(quality_of(entry)))

    def starts(
        self,
        head: Head,
        *,
        ended: Collection[Admitted] = (),
        returned: Collection[Spare] = (),
        quotas: Mapping[str, Mapping[FlavorResource, Quota]] | None = None,
    ) -> NominatedHead | None:
        """Return the nomination of the head if these workloads had ended, these nodes had come back, and these
        ClusterQueues had these quotas.

        None: it would not start at once, or not as a whole.
        """
        self.asked += 1
        copy = self._world.copied(self._queues, ended=ended, returned=returned, quotas=quotas)
        claims, spec = Claims(copy, copy.claims), copy.queues.get(head.queue)
        if spec is None or head.problem or claims.because_of(head) is not None:
            return None
        nominator = Nominator(copy, claims, Findings(self._world.rules), self._cache.demands, self._world.hooks)
        try:
            if nominator.hooks_of(head).screened(head) is not None:
                return None
            entry = nominator.nominate(head, spec.profile.with_algorithm(head.algorithm))
        except PluginError:
            return None
        return entry if entry.result is FITS and _is_whole(entry, head) else None

    def first_takers(
        self,
        head: Head,
        rivals: Sequence[Head],
        *,
        ended: Collection[Admitted] = (),
        returned: Collection[Spare] = (),
        quotas: Mapping[str, Mapping[FlavorResource, Quota]] | None = None,
    ) -> Generator[None, None, tuple[Mention, ...]]:
        """Return the rivals that would start first after the same changes and use the resources that the head needs;
        empty: the head starts nevertheless.

        Rivals are planned one by one in this order, each on the capacity left by earlier rivals: one step each.
        """
        following = self._following(self._world.copied(self._queues, ended=ended, returned=returned, quotas=quotas))
        takers: list[Mention] = []
        for rival in rivals:
            self.asked += 1
            if not isinstance(following.decide(rival), Wait):
                takers.append(Mention(rival.key, rival.queue))
            yield
        self.asked += 1
        starts = not isinstance(following.decide(head), Wait)
        return () if starts else tuple(takers)

    def room(self, head: Head, most: int) -> Iterator[int]:
        """Yield 1, 2, ... for each further head equal to this one that starts without preemption, up to `most`."""
        following = self._following(self._world.copied(self._queues))
        for count in range(1, most + 1):
            one = replace(head, key=f"{head.key}/{count}", uid=f"{head.uid}/{count}")
            self.asked += 1
            if not isinstance(following.decide(one), Admit):
                return
            yield count

    def _following(self, copy: Snapshot) -> PlanSequence:
        return PlanSequence(self._world, copy, self._cache)

    @contextmanager
    def without(self, ended: Collection[Admitted]) -> Iterator[None]:
        """Release the usage of these workloads from `scratch` inside the block."""
        with simulate(self.scratch) as simulation:
            for workload in ended:
                simulation.dismiss(workload)
            yield

    def might_fit(self, head: Head, snapshot: Snapshot | None = None) -> bool:
        """Whether quota and domains for the whole workload are free, without preemption.

        `snapshot`: a snapshot with other domains, used in place of `scratch`.
        """
        self.asked += 1
        now = snapshot if snapshot is not None else self.scratch
        spec = now.queues.get(head.queue)
        if spec is None or head.problem:
            return False
        with self._claims.without(head.uid), without_older(head, now):
            assignment = flavors.assign(
                head,
                now,
                fair=self._world.rules.fair is not None,
                pinned=flavors_to_keep(head),
                demands=self._cache.demands,
            )
            if assignment.mode is not flavors.FIT:
                return False
            if not assignment.places:
                return True
            answers = place_workload(
                {name: now.topologies[name].capacity for name in assignment.places},
                assignment.places,
                profile=spec.profile.with_algorithm(head.algorithm),
                explain=False,
                previous=places_to_keep(head),
            )
            return all(isinstance(answer, Placement) for answer in answers.values())


def _is_whole(entry: NominatedHead, head: Head) -> bool:
    counts = {pod_set.name: pod_set.count for pod_set in entry.assignment.pod_sets}
    return all(counts.get(pod_set.name) == pod_set.request.count for pod_set in head.pod_sets)
