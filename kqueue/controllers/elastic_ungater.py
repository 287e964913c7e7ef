"""Releases pods of elastic jobs: as many as the newest admitted slice has, the first by name; the others stay gated.

All slices of a job share its pods.  Which pods are released follows from what is there alone, and each patch holds only
for the version of the pod that was looked at, so two who decide on the same picture release the same pods.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.first_look import FirstLook
from kqueue.controllers.resources import PODS
from kqueue.controllers.topology_ungater import PATCHES_AT_ONCE, Expectations
from kqueue.errors import ConflictError, KqueueError, NotFoundError, ServerError, UnreachableError
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.store import Store, split_key
from kqueue.state import from_api
from kqueue.state.from_api import ElasticPod, PodView

_log = structlog.get_logger(__name__)

ELASTIC_INDEX = "elastic"
CHAIN_INDEX = "slices"
_LOOK_AGAIN = 1.0
"""Seconds until releases that were not seen yet are asked about again."""


class ElasticUngater:
    """Reconciles what the slices of one job share: namespace/name of the first one (`from_api.siblings_key`)."""

    def __init__(
        self,
        *,
        client: Client,
        workloads: Store[wire.Workload],
        newest: Callable[[str], wire.Workload | None],
        pods: Store[PodView],
        clock: Clock,
        expectation_timeout: float = 60.0,
        on_released: Callable[[wire.Workload, int], None] = lambda _workload, _pods: None,
    ) -> None:
        """`newest(key)` is a Workload with our own last write; `on_released(workload, pods)` is told of pods at the
        moment of their release.
        """
        self._client, self._workloads, self._newest, self._pods = client, workloads, newest, pods
        self._expectations = Expectations(clock, expectation_timeout)
        self._first_look = FirstLook(
            client,
            pods,
            of=lambda view: view.elastic,
            on_behind=lambda pod: self._expectations.expect(pod.siblings, pod.uid),
        )
        self._on_released = on_released
        pods.add_index(ELASTIC_INDEX, _siblings_of)
        workloads.add_index(CHAIN_INDEX, _chain_of)

    def begin(self) -> None:
        """This process begins to lead: what was on its way is another's past, and is read from the API server."""
        self._expectations.clear()
        self._first_look.begin()

    def observe_pod(self, old: PodView | None, new: PodView | None) -> str | None:
        """Take in a pod event; what to look at, None when no elastic job is concerned."""
        before = old.elastic if old is not None else None
        after = new.elastic if new is not None else None
        if before is not None and (after is None or after.uid != before.uid):
            self._expectations.observed(before.siblings, before.uid)
        if after is not None:
            self._expectations.observe(after.siblings, after)
        seen = after or before
        return (seen.siblings or None) if seen is not None else None

    @staticmethod
    def is_elastic(workload: wire.Workload) -> bool:
        """Whether the Workload is a slice of an elastic job."""
        return bool(_chain_of(workload))

    def slices(self, siblings: str) -> list[wire.Workload]:
        """All Workloads of an elastic job, finished ones, too."""
        return list(self._workloads.by_index(CHAIN_INDEX, siblings))

    def standing(self, siblings: str) -> Mapping[str, int]:
        """Per pod set, the released pods that have not ended."""
        return Counter(pod.pod_set for pod in self._alive(siblings) if not pod.gated)

    async def reconcile(self, siblings: str) -> Result:
        """Release what may be released."""
        workload = self._active(siblings)
        if workload is None:
            return Result()
        if not self._expectations.satisfied(siblings):
            return Result(requeue_after=_LOOK_AGAIN)
        chosen = _chosen(workload, self._alive(siblings))
        namespace = split_key(siblings)[0]
        if chosen and self._first_look.due(namespace):
            await self._first_look.take(namespace)
            return await self.reconcile(siblings)
        failed = await self._release_all(workload, chosen) if chosen else []
        if failed:
            raise failed[0]
        return Result()

    def _alive(self, siblings: str) -> list[ElasticPod]:
        views = self._pods.by_index(ELASTIC_INDEX, siblings)
        return sorted((v.elastic for v in views if v.elastic is not None), key=lambda pod: pod.key)

    def _active(self, siblings: str) -> wire.Workload | None:
        """The newest slice whose pods may run; None: there is none."""
        known = (self._newest(key) for key in self._workloads.keys_by_index(CHAIN_INDEX, siblings))
        running = [w for w in known if w is not None and _may_run(w)]
        replaced = {from_api.replaced_key(w) for w in running}
        running = [w for w in running if from_api.workload_key(w) not in replaced] or running
        return max(running, key=lambda w: (str(w.metadata.creation_timestamp), w.metadata.uid), default=None)

    async def _release_all(
        self, workload: wire.Workload, chosen: Iterable[tuple[ElasticPod, Patch]]
    ) -> list[KqueueError]:
        """Send the patches, some at a time; those that failed."""
        todo, failed, siblings = iter(chosen), list[KqueueError](), from_api.siblings_key(workload)

        async def work() -> None:
            for pod, patch in todo:
                if self._active(siblings) is None:
                    return  # it was told to leave meanwhile
                error = await self._release(pod, patch)
                if error is None:
                    self._on_released(workload, 1)
                elif not isinstance(error, NotFoundError):
                    failed.append(error)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(PATCHES_AT_ONCE):
                tasks.create_task(work())
        return failed

    async def _release(self, pod: ElasticPod, patch: Patch) -> KqueueError | None:
        """Send one patch; why the pod was not released, None when it was."""
        namespace, name = split_key(pod.key)
        self._expectations.expect(pod.siblings, pod.uid)
        try:
            await self._client.patch(PODS, name, patch, namespace, lane=Lane.UNGATE)
        except KqueueError as e:
            seen = self._pods.get(pod.key)
            same = (
                seen is not None and seen.elastic is not None and seen.elastic.resource_version == pod.resource_version
            )
            if same and isinstance(e, ConflictError | ServerError | UnreachableError):
                self._expectations.doubt(pod.siblings, pod.uid, pod.resource_version)  # it may have come through
            else:
                self._expectations.observed(pod.siblings, pod.uid)
            return e
        return None


Patch = dict[str, object]


def _siblings_of(view: PodView) -> list[str]:
    """Index of pods by what those of one job share."""
    return [view.elastic.siblings] if view.elastic is not None and view.elastic.siblings else []


def _chain_of(workload: wire.Workload) -> list[str]:
    """Index of the Workloads of elastic jobs by what their pods are found by."""
    annotations = workload.metadata.annotations
    sliced = annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION) or annotations.get(names.ELASTIC_JOB_ANNOTATION)
    return [from_api.siblings_key(workload)] if sliced else []


def _may_run(workload: wire.Workload) -> bool:
    """Holds quota, all its checks are ready, and it is neither over nor told to leave."""
    return (
        workload.status.admission is not None
        and from_api.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        and from_api.condition_true(workload, names.CONDITION_ADMITTED)
        and not from_api.condition_true(workload, names.CONDITION_EVICTED)
        and not from_api.is_over(workload)
        and workload.spec.active
        and workload.metadata.deletion_timestamp is None
    )


def _chosen(workload: wire.Workload, pods: Iterable[ElasticPod]) -> list[tuple[ElasticPod, Patch]]:
    """Which pods to release, and how.  Those that another gate of ours still holds come when that is gone: there may be
    more of them than places, and both gates must go for the same pods.
    """
    owner = from_api.controller_of(workload.metadata)
    mine = [p for p in pods if not (owner and p.controller and owner[0] == p.controller[0] and owner != p.controller)]
    room = Counter(_room(workload))
    room.subtract(Counter(pod.pod_set for pod in mine if not pod.gated))
    found: list[tuple[ElasticPod, Patch]] = []
    for pod in mine:
        if not pod.gated or pod.deleting or names.TOPOLOGY_GATE in pod.gates or room[pod.pod_set] <= 0:
            continue
        patch = _patch(workload, pod)
        if patch is not None:
            room[pod.pod_set] -= 1
            found.append((pod, patch))
    return found


def _room(workload: wire.Workload) -> Mapping[str, int]:
    """Per pod set, how many pods may run: what it asks for now, less what it has given back, and never more than was
    admitted.
    """
    assert workload.status.admission is not None
    admitted = {a.name: a.count for a in workload.status.admission.pod_set_assignments}
    ended = dict(from_api.ended_pods(workload))
    return {
        p.name: min(p.count - ended.get(p.name, 0), p.count if (most := admitted[p.name]) is None else most)
        for p in workload.spec.pod_sets
        if p.name in admitted
    }


def _patch(workload: wire.Workload, pod: ElasticPod) -> Patch | None:
    """One merge patch under the pod's resource version: the gate gone, and on it what the admission checks ask for.

    None where the pod says otherwise than a check: it stays gated.
    """
    annotations: dict[str, str] = {}
    selector: dict[str, str] = {}
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if update.name == pod.pod_set:
                wanted = update.annotations
                annotations |= {key: wanted[key] for key in names.CHECKED_POD_ANNOTATIONS if key in wanted}
                selector |= update.node_selector
    for told, there in ((annotations, pod.annotations), (selector, pod.node_selector)):
        if any(there.get(key, value) != value for key, value in told.items()):
            return None
    kept = [{"name": gate} for gate in pod.gates if gate != names.ELASTIC_JOB_GATE]
    patch: Patch = {
        "metadata": {"resourceVersion": pod.resource_version, **({"annotations": annotations} if annotations else {})},
        "spec": {"schedulingGates": kept or None, **({"nodeSelector": selector} if selector else {})},
    }
    return patch
