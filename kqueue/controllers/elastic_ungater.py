"""Releases pods of elastic jobs: as many as the newest admitted slice has, the first by name; the others stay gated.

All slices of a job share its pods.  Which pods are released follows from what is there alone, and each patch holds only
for the version of the pod that was looked at, so two who decide on the same picture release the same pods.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import structlog
from cachetools import TTLCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.first_look import FirstLook
from kqueue.controllers.manager import Manager
from kqueue.controllers.record import ObjectReference, Recorder, Reporter
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.controllers.short_stop import ShortStop
from kqueue.controllers.topology_ungater import PATCHES_AT_ONCE
from kqueue.errors import ConflictError, KqueueError, NotFoundError, ServerError, UnreachableError
from kqueue.model import ElasticPod, PodView
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.own_writes import PendingReleases
from kqueue.runtime.store import Store, split_key

_log = structlog.get_logger(__name__)

ELASTIC_INDEX = "elastic"
CHAIN_INDEX = "slices"
_REMEMBERED = 10_000
_LOOK_AGAIN = 1.0
"""Seconds until releases that were not seen yet are asked about again."""


class ElasticUngater:
    """Reconciles what the slices of one job share: namespace/name of the first one (`model.siblings_key`)."""

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
        recorder: Recorder | None = None,
        short_stop: ShortStop | None = None,
    ) -> None:
        """`newest(key)` is a Workload with our own last write; `on_released(workload, pods)` is told of pods at the
        moment of their release; `recorder` of those that are stopped.  `short_stop` is as in `JobWrites`.
        """
        self._recorder, self._clock = recorder, clock
        self._seen_beyond: TTLCache[str, float] = TTLCache(_REMEMBERED, 60.0, clock.monotonic)
        """Since when pods of a job are known to run beyond what was admitted: seconds of the clock."""
        self._client, self._workloads, self._newest, self._pods = client, workloads, newest, pods
        self._short_stop = short_stop or ShortStop(client)
        self._releases = PendingReleases(clock, expectation_timeout)
        self._first_look = FirstLook(
            client,
            pods,
            of=lambda view: view.elastic,
            on_behind=lambda pod: self._releases.expect(pod.siblings, pod.uid),
        )
        self._on_released = on_released
        pods.add_index(ELASTIC_INDEX, _siblings_of)
        workloads.add_index(CHAIN_INDEX, _chain_of)

    def begin(self) -> None:
        """This process begins to lead: what was on its way is another's past, and is read from the API server."""
        self._releases.clear()
        self._first_look.begin()

    def observe_pod(self, old: PodView | None, new: PodView | None) -> str | None:
        """Take in a pod event; what to look at, None when no elastic job is concerned."""
        before = old.elastic if old is not None else None
        after = new.elastic if new is not None else None
        if before is not None and (after is None or after.uid != before.uid):
            self._releases.observed(before.siblings, before.uid)
        if after is not None:
            self._releases.observe(after.siblings, after)
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
        if not self._releases.satisfied(siblings):
            return Result(requeue_after=_LOOK_AGAIN)
        if await self._stop_beyond(siblings, workload):
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
        return _newest_of([w for w in known if w is not None and _may_run(w)])

    # --- pods that somebody else has released ------------------------------------------------------------------

    async def _stop_beyond(self, siblings: str, workload: wire.Workload) -> bool:
        """Stop released pods beyond what was admitted, at the second look; True when there were any.

        Our watches may be behind: the Workloads are read before a pod is stopped, and events of pods that have ended
        have a second to arrive.
        """
        if not _beyond(workload, _most_wanted(self.slices(siblings)), self._alive(siblings)):
            self._seen_beyond.pop(siblings, None)
            return False
        if self._clock.monotonic() - self._seen_beyond.setdefault(siblings, self._clock.monotonic()) < _LOOK_AGAIN:
            return True
        now = await self._read(workload)
        runs = _newest_of([w for w in now if _may_run(w)])
        if runs is None:
            return False
        beyond = _beyond(runs, _most_wanted(now), self._alive(siblings))
        for pod in beyond:
            if await self._short_stop.end_pod(pod.key, pod.uid, queue=model.local_queue_key(runs)):
                self._tell_stopped(runs, pod)
        return bool(beyond)

    async def _read(self, workload: wire.Workload) -> list[wire.Workload]:
        """All Workloads of the job, as the API server has them."""
        owner = model.controller_of(workload.metadata)
        if owner is None:
            return []
        chosen = f"{names.JOB_UID_LABEL}={owner[1]}"
        found = await self._client.list_json(WORKLOADS, workload.metadata.namespace, label_selector=chosen)
        return [msgspec.convert(obj, wire.Workload) for obj in found]

    def _tell_stopped(self, workload: wire.Workload, pod: ElasticPod) -> None:
        key = model.workload_key(workload)
        _log.warning("pod of an elastic job stopped: it ran without quota", pod=pod.key, workload=key)
        if self._recorder is None:
            return
        namespace, name = split_key(pod.key)
        self._recorder.record(
            ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid),
            reason=names.EVENT_STOPPED,
            message=f"It ran beyond what Workload {key} was admitted with: leave gate {names.ELASTIC_JOB_GATE} on pods",
            warning=True,
        )

    async def _release_all(
        self, workload: wire.Workload, chosen: Iterable[tuple[ElasticPod, Patch]]
    ) -> list[KqueueError]:
        """Send the patches, some at a time; those that failed."""
        todo, failed, siblings = iter(chosen), list[KqueueError](), model.siblings_key(workload)

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
        self._releases.expect(pod.siblings, pod.uid)
        try:
            await self._client.patch(PODS, name, patch, namespace, lane=Lane.UNGATE)
        except KqueueError as e:
            seen = self._pods.get(pod.key)
            same = (
                seen is not None and seen.elastic is not None and seen.elastic.resource_version == pod.resource_version
            )
            if same and isinstance(e, ConflictError | ServerError | UnreachableError):
                self._releases.doubt(pod.siblings, pod.uid, pod.resource_version)  # it may have come through
            else:
                self._releases.observed(pod.siblings, pod.uid)
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
    return [model.siblings_key(workload)] if sliced else []


def _may_run(workload: wire.Workload) -> bool:
    """Holds quota, all its checks are ready, and it is neither over nor told to leave."""
    return (
        workload.status.admission is not None
        and model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        and model.condition_true(workload, names.CONDITION_ADMITTED)
        and not model.condition_true(workload, names.CONDITION_EVICTED)
        and not model.is_over(workload)
        and workload.spec.active
        and workload.metadata.deletion_timestamp is None
    )


def _newest_of(running: Sequence[wire.Workload]) -> wire.Workload | None:
    """The one that replaces the others; None: there is none."""
    replaced = {model.replaced_key(w) for w in running}
    last = [w for w in running if model.workload_key(w) not in replaced] or running
    return max(last, key=lambda w: (str(w.metadata.creation_timestamp), w.metadata.uid), default=None)


def _most_wanted(workloads: Iterable[wire.Workload]) -> Mapping[str, int]:
    """Per pod set, the pods that the job asks for, admitted or not."""
    found: dict[str, int] = {}
    for workload in workloads:
        if not model.is_over(workload):
            for pod_set in workload.spec.pod_sets:
                found[pod_set.name] = max(found.get(pod_set.name, 0), pod_set.count)
    return found


def _beyond(workload: wire.Workload, wanted: Mapping[str, int], pods: Iterable[ElasticPod]) -> list[ElasticPod]:
    """Pods that no gate holds any more although there are as many as may run: those that are released last.

    None of a pod set that asks for no more than it has: the job is being made smaller, and its own controller chooses.
    """
    admitted = _admitted(workload)
    room = Counter(_room(workload))
    found: list[ElasticPod] = []
    for pod in pods:  # the first by name keep their places, as at their release
        if pod.gates or pod.deleting or wanted.get(pod.pod_set, 0) <= admitted.get(pod.pod_set, 0):
            continue
        room[pod.pod_set] -= 1
        if room[pod.pod_set] < 0:
            found.append(pod)
    return found


def _chosen(workload: wire.Workload, pods: Iterable[ElasticPod]) -> list[tuple[ElasticPod, Patch]]:
    """Which pods to release, and how.  Those that another gate of ours still holds come when that is gone: there may be
    more of them than places, and both gates must go for the same pods.
    """
    owner = model.controller_of(workload.metadata)
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
    """Per pod set, how many pods may run: what was admitted, less what it has given back."""
    ended = dict(model.ended_pods(workload))
    counts = {p.name: p.count for p in workload.spec.pod_sets}
    return {name: min(counts[name] - ended.get(name, 0), most) for name, most in _admitted(workload).items()}


def _admitted(workload: wire.Workload) -> Mapping[str, int]:
    """Per pod set, what it asks for now, and never more than was admitted."""
    assert workload.status.admission is not None
    most = {a.name: a.count for a in workload.status.admission.pod_set_assignments}
    return {
        p.name: p.count if (count := most[p.name]) is None else min(p.count, count)
        for p in workload.spec.pod_sets
        if p.name in most
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


_FIRST_PODS = 0.05
"""Seconds in which pods of one job gather."""


def make_elastic_ungater(manager: Manager) -> ElasticUngater:
    """The elastic ungater of a process.  Reconcilers of jobs read the slices that it knows."""
    return ElasticUngater(
        client=manager.client,
        workloads=manager.watches.workloads.store,
        newest=manager.workload_writer.newest,
        pods=manager.watches.pods.store,
        clock=manager.clock,
        expectation_timeout=manager.timings.expectation_timeout,
        on_released=manager.counter.on_elastic_released,
        recorder=manager.recorder(Reporter.GATES),
        short_stop=manager.short_stop,
    )


def setup(manager: Manager) -> None:
    """Add the elastic ungater, whatever the feature gate says: pods that were gated before it was off are released."""
    ungater = manager.shared(make_elastic_ungater)
    manager.on_lead.append(ungater.begin)
    controller = manager.controller("elastic_ungater", ungater.reconcile, workers=8)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        siblings = ungater.observe_pod(old, new)
        if siblings is not None:
            controller.enqueue(siblings, after=_FIRST_PODS)

    def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is not None and ungater.is_elastic(new):
            controller.enqueue(model.siblings_key(new))

    manager.watches.pods.subscribe(on_pod)
    manager.watches.workloads.subscribe(on_workload)
