"""Releases pods of elastic jobs: as many as the newest admitted slice has, the first by name.  Other pods stay gated.

All slices of a job share its pods.  The choice of pods follows only from the present objects, and each patch applies
only to the version of the pod that was read.  So two processes that see the same objects release the same pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.elastic_counts import is_elastic, newest_running, room
from kqueue.controllers.elastic_excess import ElasticExcess
from kqueue.controllers.manager import Manager
from kqueue.controllers.plugin_releases import make_release_hooks
from kqueue.controllers.pod_releases import Patch, PodRelease, PodReleases
from kqueue.controllers.record import Reporter
from kqueue.controllers.release_hooks import NO_RELEASE_HOOKS, ReleaseHooks
from kqueue.controllers.short_stop import PodStop
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.errors import KqueueError
from kqueue.model import ElasticPod, PodView
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store, split_key

ELASTIC_INDEX = "elastic"
CHAIN_INDEX = "slices"
_LOOK_AGAIN = 1.0
"""Seconds until a job is reconciled again whose releases the watch has not reported yet."""


class ElasticUngater:
    """The reconciler of elastic jobs.  Keys are namespace/name of the job's first slice (`model.siblings_key`)."""

    def __init__(
        self,
        *,
        workloads: Store[wire.Workload],
        book: WorkloadBook,
        pods: Store[PodView],
        releases: PodReleases[ElasticPod],
        excess: ElasticExcess,
        on_released: Callable[[wire.Workload, int], None] = lambda _workload, _pods: None,
    ) -> None:
        """Index Workloads and pods.

        Args:
            workloads: the watch of Workloads; gets CHAIN_INDEX.
            book: finds Workloads, including kqueue's own last writes.
            pods: the watch of pods; gets ELASTIC_INDEX.
            releases: sends the patches of pods of elastic jobs.
            excess: stops pods that run beyond the admission.
            on_released: called with the Workload and the number of pods whose gate was removed.
        """
        self._workloads, self._book, self._pods = workloads, book, pods
        self._releases, self._excess = releases, excess
        self._on_released = on_released
        pods.add_index(ELASTIC_INDEX, _siblings_of)
        workloads.add_index(CHAIN_INDEX, _chain_of)

    def begin(self) -> None:
        """Forget all releases when this process begins to lead: the API server is read before the next release."""
        self._releases.begin()

    def observe_pod(self, old: PodView | None, new: PodView | None) -> str | None:
        """Follow a pod event; return the key to reconcile, None: the pod belongs to no elastic job."""
        seen = self._releases.observe(old, new)
        return (seen.siblings or None) if seen is not None else None

    def slices(self, siblings: str) -> list[wire.Workload]:
        """Return all Workloads of an elastic job, finished ones included."""
        return list(self._workloads.by_index(CHAIN_INDEX, siblings))

    def standing(self, siblings: str) -> Mapping[str, int]:
        """Return, per pod set, the number of released pods that have not ended."""
        return Counter(pod.pod_set for pod in self._alive(siblings) if not pod.gated)

    async def reconcile(self, siblings: str) -> Result:
        """Release the pods that the newest admitted slice covers, after excess pods were stopped."""
        workload = self._active(siblings)
        if workload is None:
            return Result()
        if not self._releases.is_settled(siblings):
            return Result(requeue_after=_LOOK_AGAIN)
        if await self._excess.stop(workload, self.slices(siblings), lambda: self._alive(siblings)):
            return Result(requeue_after=_LOOK_AGAIN)
        chosen = _chosen(workload, self._alive(siblings))
        namespace = split_key(siblings)[0]
        if chosen and self._releases.is_unread(namespace):
            await self._releases.read(namespace)
            return await self.reconcile(siblings)
        pause = await self._releases.pause_before(workload) if chosen else None
        if pause is not None:
            return Result(requeue_after=pause)
        failed = await self._release_all(workload, chosen) if chosen else []
        if failed:
            raise failed[0]
        return Result()

    def _alive(self, siblings: str) -> list[ElasticPod]:
        views = self._pods.by_index(ELASTIC_INDEX, siblings)
        return sorted((v.elastic for v in views if v.elastic is not None), key=lambda pod: pod.key)

    def _active(self, siblings: str) -> wire.Workload | None:
        """Return the newest slice whose pods may run; None: there is none."""
        known = (self._book.newest(key) for key in self._workloads.keys_by_index(CHAIN_INDEX, siblings))
        return newest_running(w for w in known if w is not None)

    async def _release_all(
        self, workload: wire.Workload, chosen: Sequence[PodRelease[ElasticPod]]
    ) -> list[KqueueError]:
        """Send the patches; return the errors of failed patches.  Ends early when no slice is admitted."""
        siblings = model.siblings_key(workload)
        return await self._releases.send_all(
            workload,
            chosen,
            goes_on=lambda: self._active(siblings) is not None,
            on_released=lambda _choice: self._on_released(workload, 1),
        )


def _siblings_of(view: PodView) -> list[str]:
    """Return the index values of a pod: the key of its job."""
    return [view.elastic.siblings] if view.elastic is not None and view.elastic.siblings else []


def _chain_of(workload: wire.Workload) -> list[str]:
    """Return the index values of a Workload of an elastic job: the key of its pods."""
    return [model.siblings_key(workload)] if is_elastic(workload) else []


def _chosen(workload: wire.Workload, pods: Iterable[ElasticPod]) -> list[PodRelease[ElasticPod]]:
    """Return the pods to release, each with its patch.

    A pod with another gate of kqueue is released when that gate is gone.  There may be more such pods than places, and
    both gates must be removed from the same pods.
    """
    owner = model.controller_of(workload.metadata)
    mine = [p for p in pods if not (owner and p.controller and owner[0] == p.controller[0] and owner != p.controller)]
    left = Counter(room(workload))
    left.subtract(Counter(pod.pod_set for pod in mine if not pod.gated))
    found: list[PodRelease[ElasticPod]] = []
    for pod in mine:
        if not pod.gated or pod.deleting or names.TOPOLOGY_GATE in pod.gates or left[pod.pod_set] <= 0:
            continue
        patch = _patch(workload, pod)
        if patch is not None:
            left[pod.pod_set] -= 1
            found.append(PodRelease(pod, patch))
    return found


def _patch(workload: wire.Workload, pod: ElasticPod) -> Patch | None:
    """Return the merge patch that removes the gate and adds the annotations and selectors of the admission checks.

    The patch applies to the pod's resource version.  None: the pod contradicts a check, so it stays gated.
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
"""Seconds in which the first pods of one job are collected."""


def elastic_releases(
    client: Client,
    pods: Store[PodView],
    clock: Clock,
    *,
    timeout: float = 60.0,
    hooks: ReleaseHooks = NO_RELEASE_HOOKS,
) -> PodReleases[ElasticPod]:
    """Return the sender of patches for pods of elastic jobs; the options are as in `PodReleases`."""
    return PodReleases(
        client=client, pods=pods, of=lambda view: view.elastic, clock=clock, timeout=timeout, hooks=hooks
    )


def make_elastic_ungater(manager: Manager) -> ElasticUngater:
    """Return the elastic ungater of a process.  Reconcilers of jobs read the slices that it knows."""
    client, clock, pods = manager.client, manager.clock, manager.watches.pods.store
    timeout = manager.timings.expectation_timeout
    hooks = manager.shared(make_release_hooks)
    stop = PodStop(client, manager.recorder(Reporter.GATES), manager.short_stop)
    return ElasticUngater(
        workloads=manager.watches.workloads.store,
        book=manager.workload_writer,
        pods=pods,
        releases=elastic_releases(client, pods, clock, timeout=timeout, hooks=hooks),
        excess=ElasticExcess(client=client, stop=stop, clock=clock),
        on_released=manager.counter.on_elastic_released,
    )


def setup(manager: Manager) -> None:
    """Add the elastic ungater even where the feature gate is off: pods that were gated before must be released."""
    ungater = manager.shared(make_elastic_ungater)
    manager.on_lead.append(ungater.begin)
    controller = manager.controller("elastic_ungater", ungater.reconcile, workers=8)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        siblings = ungater.observe_pod(old, new)
        if siblings is not None:
            controller.enqueue(siblings, after=_FIRST_PODS)

    def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is not None and is_elastic(new):
            controller.enqueue(model.siblings_key(new))

    manager.watches.pods.subscribe(on_pod)
    manager.watches.workloads.subscribe(on_workload)
