"""Stops pods that name a queued object as their controller although that object's controller did not create them.

The webhook refuses such pods; this reconciler finds pods that were created while the webhook did not answer.  Two kinds
of pods certainly run without quota: pods of an owner whose controller never creates pods, and pods that appeared while
their owner had no quota.  Pods of an owner with quota keep running: kqueue cannot distinguish them from pods of its
controller.  The requests of these pods beyond the owner's admission are charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.excess_pods import ExcessPods
from kqueue.controllers.manager import Manager
from kqueue.controllers.owner_workloads import OwnerWorkloads
from kqueue.controllers.owners import Owners, make_owners
from kqueue.controllers.record import Reporter
from kqueue.controllers.short_stop import PodStop
from kqueue.errors import ForbiddenError
from kqueue.jobs.ancestry import Ancestor, AncestryError, makes
from kqueue.kinds import OWNERS
from kqueue.model import CustomOwner, PodView
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store, split_key

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]
_POD = ("", "Pod")
_LOOK_AGAIN = 1.0
"""Seconds until a new pod is reconciled again if no watch has reported the Workload of its owner yet."""
_YOUNG = timedelta(seconds=30)
"""The age of a pod from which the reconciler no longer waits for its owner's Workload."""


class ForgedPods:
    """The reconciler of running pods that name a custom controller.  Keys are namespace/name."""

    def __init__(
        self,
        *,
        pods: Store[PodView],
        owners: Owners,
        workloads: OwnerWorkloads,
        manages: Callable[[str], bool],
        clock: Clock,
        stop: PodStop,
        excess: ExcessPods | None = None,
    ) -> None:
        """Create the reconciler.

        Args:
            pods: the watch of pods.
            owners: finds the owners of pods.
            workloads: finds the Workloads of owners.
            manages: returns whether pods of a namespace are managed.
            clock: gives the age of pods.
            stop: ends pods that run without quota.
            excess: charges pods beyond the admission of their owner; None: such pods are not charged.
        """
        self._pods, self._owners, self._workloads, self._excess = pods, owners, workloads, excess
        self._manages, self._clock, self._pod_stop = manages, clock, stop

    async def reconcile(self, key: str) -> Result:
        """Stop the pod if it certainly runs without quota."""
        view = self._pods.get(key)
        claim = view.custom_owner if view is not None else None
        if claim is None or not self._manages(split_key(key)[0]):
            return await self._follow_others(key)
        try:
            return await self._look(key, claim)
        except AncestryError:
            return Result()  # an owner is gone, and the API server deletes the pod
        except ForbiddenError as e:
            _log.warning("pod is not checked: its owners cannot be read", pod=key, error=str(e))
            return Result()

    async def _look(self, key: str, claim: CustomOwner) -> Result:
        child = _as_child(key, claim)
        owner = await self._owners.queued_controller(child)
        if owner is not None and not makes((owner.gvk.group, owner.gvk.kind), _POD):
            await self._stop(key, claim, f"{owner.gvk.kind} {owner.name} makes no pods", queue=_queue_of(owner))
            return Result()
        top = (await self._owners.lineage(child, _POD)).ancestor
        if top is None or _is_queued_through_pods(top) or claim.pod_is_queued:
            return Result()
        known = self._workloads.known(top)
        if not known:
            young = self._clock.now() - claim.pod_created < _YOUNG
            return Result(requeue_after=_LOOK_AGAIN if young else None)
        if _came_unpaid(claim, known) and _came_unpaid(claim, await self._workloads.read(top, known)):
            await self._stop(key, claim, f"{top.gvk.kind} {top.name} holds no quota", queue=_queue_of(top))
        elif self._excess is not None:
            self._excess.add(key, top.uid)
            self._excess.weigh(top.uid, known)
        return Result()

    async def _follow_others(self, key: str) -> Result:
        """Reconcile another pod of the owner after this pod has ended, so that the charge for excess pods follows."""
        owner = self._excess.remove(key) if self._excess is not None else None
        other = self._excess.any_of(owner) if self._excess is not None and owner is not None else None
        return await self.reconcile(other) if other is not None else Result()

    def pods_of(self, workload: wire.Workload) -> Iterable[str]:
        """Yield one pod of each owner of the Workload that has running pods: the usage of the owner may have
        changed.
        """
        if self._excess is not None:
            found = (self._excess.any_of(owner.uid) for owner in workload.metadata.owner_references)
            yield from (pod for pod in found if pod is not None)

    async def _stop(self, key: str, claim: CustomOwner, why: str, *, queue: str) -> None:
        """End the pod, unless the API server has another owner for it than the watch."""
        message = f"It ran without quota: {why}; take the controller out of metadata.ownerReferences"
        if await self._pod_stop.end_if(key, lambda pod: pod.custom_owner == claim, queue=queue, message=message):
            _log.warning("pod stopped: it ran without quota", pod=key, reason=why)


def _as_child(key: str, claim: CustomOwner) -> JSON:
    """Return the part of the pod that is needed to follow its owners."""
    namespace, name = split_key(key)
    owner = {"apiVersion": claim.api_version, "kind": claim.kind, "name": claim.name, "uid": claim.uid}
    return {"metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner | {"controller": True}]}}


def _queue_of(owner: Ancestor) -> str:
    """Return the LocalQueue that an owner names, as namespace/name; empty: it names none."""
    return f"{owner.namespace}/{owner.queue_name}" if owner.queue_name else ""


def _came_unpaid(claim: CustomOwner, workloads: Sequence[wire.Workload]) -> bool:
    """Whether the pod was created while none of its owner's Workloads had quota, and none has had quota since.

    An older pod may have had quota: a kind whose adapter cannot count the remaining pods releases its quota before the
    last of them has ended.
    """
    since = [_unpaid_since(w) for w in workloads]
    return bool(since) and all(time is not None and claim.pod_created >= time for time in since)


def _unpaid_since(workload: wire.Workload) -> datetime | None:
    """Return the time since which a Workload has had no quota; None: it has quota, is finished, or the time is not
    known.

    Pods of a finished job may keep running, because some operators keep them for their logs.
    """
    if any(model.condition_true(workload, k) for k in (names.CONDITION_QUOTA_RESERVED, names.CONDITION_FINISHED)):
        return None
    lost = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if model.condition(workload.status.conditions, names.CONDITION_EVICTED) is None:
        return workload.metadata.creation_timestamp  # it has never had quota
    return lost.last_transition_time if lost is not None else None


def _is_queued_through_pods(owner: Ancestor) -> bool:
    row = OWNERS.get((owner.gvk.group, owner.gvk.kind))
    return row is not None and row.through_pods


def setup(manager: Manager) -> None:
    """Add the reconciler of pods that run under a custom controller.  Each pod is reconciled when it begins to run."""
    watches = manager.watches
    forged = ForgedPods(
        pods=watches.pods.store,
        owners=manager.shared(make_owners),
        workloads=OwnerWorkloads(manager.client, watches.workloads.store),
        manages=manager.manages,
        clock=manager.clock,
        stop=PodStop(manager.client, manager.recorder(Reporter.GATES), manager.short_stop),
        excess=ExcessPods(
            pods=watches.pods.store,
            holding=manager.cache.held.holding,
            charge=lambda pod, queue, amounts: manager.charge_pod(pod, queue, amounts),
            release=lambda pod: manager.release_pod(pod),
        ),
    )
    controller = manager.controller("forged_pods", forged.reconcile, workers=4)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        before, after = (view and (view.custom_owner, view.bound) for view in (old, new))
        seen = new if new is not None else old
        if seen is not None and before != after and any(v is not None and v.custom_owner for v in (old, new)):
            controller.enqueue(seen.key)

    def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
        for pod in forged.pods_of(new) if new is not None else ():
            controller.enqueue(pod)

    watches.pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
