"""Ends pods that run without quota within seconds, whatever grace period they request.

An admitted pod keeps its own grace period, and its quota until its end.  A pod that was never admitted would otherwise
use capacity that is reserved for other workloads as long as its user likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.controllers.record import ObjectReference, Recorder
from kqueue.controllers.resources import PODS
from kqueue.errors import ConflictError, KqueueError, NotFoundError
from kqueue.jobs import pod_view
from kqueue.jobs.fields import mapping, objects, text, whole
from kqueue.model import PodView
from kqueue.model import pod_view as pod_facts
from kqueue.runtime.client import Client
from kqueue.runtime.store import split_key

STOP_SECONDS = 5
"""Grace period of pods that run without quota: enough to close files."""


ChargePod = Callable[[str, str], None]
"""Charges a running pod (namespace/name) to a LocalQueue (namespace/name) until the pod has ended."""


def charges_nothing(_pod: str, _local_queue: str) -> None:
    """Charge nothing: for pods whose jobs are in no queue."""


class ShortStop:
    """Ends pods, and charges them to their queue until they have ended, because they take its capacity."""

    def __init__(self, client: Client, charge: ChargePod = charges_nothing) -> None:
        self._client, self._charge = client, charge

    async def end_pod(self, key: str, uid: str, *, queue: str) -> bool:
        """Delete a pod, or shorten the grace period of a pod that is being deleted; return False if it is gone.

        `queue` is the LocalQueue (namespace/name) to charge; empty: none is charged.
        """
        if queue:
            self._charge(key, queue)
        namespace, name = split_key(key)
        try:
            await self._client.delete(PODS, name, namespace, uid=uid, grace_seconds=STOP_SECONDS)
        except (NotFoundError, ConflictError):
            return False
        return True

    def charge(self, key: str, *, queue: str) -> None:
        """Charge a pod that ends soon, as `end_pod` does."""
        if queue:
            self._charge(key, queue)

    async def end_pods(self, namespace: str, *, labels: Mapping[str, str], top: str, queue: str) -> list[str]:
        """End all pods of a job that are bound to nodes; return the names of pods that were not ending already.

        Args:
            namespace: the job's namespace.
            labels: the labels of the job's pods; no effect without a label or if a value is empty.
            top: a UID that one of the pod's controllers must have; empty: other objects are between job and pods.
            queue: as in `end_pod`.

        Raises:
            KqueueError: the first error of a pod that could not be ended, after all pods were tried.
        """
        if not labels or not all(labels.values()):
            return []
        chosen = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        ended: list[str] = []
        failed: list[KqueueError] = []
        for pod in _running(await self._client.list_json(PODS, namespace, label_selector=chosen), top):
            name, uid = text(pod, "metadata", "name"), text(pod, "metadata", "uid")
            if _ends_soon(pod):
                self.charge(f"{namespace}/{name}", queue=queue)
                continue
            try:
                if await self.end_pod(f"{namespace}/{name}", uid, queue=queue):
                    ended.append(name)
            except KqueueError as e:
                failed.append(e)
        if failed:
            raise failed[0]
        return ended


class PodStop:
    """Ends single pods that run without quota, and records an event on each pod that it ends."""

    def __init__(self, client: Client, recorder: Recorder, short_stop: ShortStop | None = None) -> None:
        """Take the client and the recorder; `short_stop` None: ended pods are charged to no queue."""
        self._client, self._recorder = client, recorder
        self._short_stop = short_stop or ShortStop(client)

    async def end(self, key: str, uid: str, *, queue: str, message: str) -> bool:
        """End the pod with this UID; return whether it existed.  `queue` is as in `ShortStop.end_pod`."""
        if not await self._short_stop.end_pod(key, uid, queue=queue):
            return False
        namespace, name = split_key(key)
        self._recorder.record(
            ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=uid),
            reason=names.EVENT_STOPPED,
            message=message,
            warning=True,
        )
        return True

    async def end_if(self, key: str, is_meant: Callable[[PodView], bool], *, queue: str, message: str) -> bool:
        """End the pod if the API server's version of it passes `is_meant`; return whether it was ended.

        Raises:
            ApiError: the pod could not be read or deleted.
        """
        namespace, name = split_key(key)
        try:
            pod = await self._client.get(PODS, name, namespace, decode=wire_core.Pod)
        except NotFoundError:
            return False
        return is_meant(pod_facts(pod)) and await self.end(key, pod.metadata.uid, queue=queue, message=message)


def _running(pods: Iterable[Mapping[str, Any]], top: str) -> Iterable[Mapping[str, Any]]:
    """Yield the pods that are bound, have not ended, and have a controller (with UID `top`, unless that is empty)."""
    for pod in pods:
        owners = [r for r in objects(pod, "metadata", "ownerReferences") if r.get("controller") is True]
        if not text(pod, "spec", "nodeName") or pod_view.is_terminated(pod) or not owners:
            continue
        if not top or any(text(owner, "uid") == top for owner in owners):
            yield pod


def _ends_soon(pod: Mapping[str, Any]) -> bool:
    grace = whole(mapping(pod, "metadata"), "deletionGracePeriodSeconds")
    return pod_view.is_deleting(pod) and grace is not None and grace <= STOP_SECONDS
