"""Ends pods that are pinned to a host on which they can never run, so that their job creates new pods."""

from __future__ import annotations

from kqueue.api import names
from kqueue.clock import Clock
from kqueue.controllers.record import ObjectReference, Recorder
from kqueue.controllers.resources import PODS
from kqueue.errors import NotFoundError
from kqueue.model import GangPod
from kqueue.runtime.client import Client
from kqueue.runtime.store import split_key
from kqueue.state import status


class PinnedPods:
    """Fails pods in the API server, with an event on each."""

    def __init__(self, *, client: Client, recorder: Recorder, clock: Clock) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock

    async def end(self, pod: GangPod, host: str) -> None:
        """Set the pod's phase to Failed, unless the pod is gone or has a node by now.

        Raises:
            ApiError: the pod could not be read or written; ConflictError: it changed in between.
        """
        namespace, name = split_key(pod.key)
        message = f"The pod was pinned to node {host}, which has failed or is not its place any more"
        try:
            now = await self._client.get_json(PODS, name, namespace)
            if now["metadata"]["uid"] != pod.uid or now["spec"].get("nodeName"):
                return
            added = {
                "type": "TerminatedByKueue",
                "status": "True",
                "reason": "UnschedulableOnAssignedNode",
                "message": message,
                "lastTransitionTime": status.Stamp(self._clock.now()).text,
            }
            conditions = [*now.get("status", {}).get("conditions", ()), added]
            patch = {
                "metadata": {"resourceVersion": now["metadata"]["resourceVersion"]},
                "status": {"phase": "Failed", "conditions": conditions},
            }
            await self._client.patch(PODS, name, patch, namespace, subresource="status")
        except NotFoundError:
            return
        reference = ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid)
        self._recorder.record(reference, reason=names.EVENT_POD_TERMINATED_BY_KUEUE, message=message)
