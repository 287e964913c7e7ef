"""Ends pods that run without quota within seconds, whatever grace period they ask for.

A pod that was admitted keeps its own grace period, and its quota that long.  One that was not would hold what was
promised to others for as long as its user likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kqueue.controllers.resources import PODS
from kqueue.errors import ConflictError, KqueueError, NotFoundError
from kqueue.jobs import pod_view
from kqueue.jobs.fields import mapping, objects, text, whole
from kqueue.runtime.client import Client
from kqueue.runtime.store import split_key

STOP_SECONDS = 5
"""Grace period of pods that run without quota: enough to close files, and no reason to run on."""


async def end_pod(client: Client, key: str, uid: str) -> bool:
    """Delete a pod, or shorten the grace period of one that is being deleted; False where it is gone."""
    namespace, name = split_key(key)
    try:
        await client.delete(PODS, name, namespace, uid=uid, grace_seconds=STOP_SECONDS)
    except (NotFoundError, ConflictError):
        return False
    return True


async def end_pods(client: Client, namespace: str, *, labels: Mapping[str, str], top: str) -> list[str]:
    """End all pods of a job that are bound to nodes; their names.

    Args:
        client: what is asked.
        namespace: the job's.
        labels: by which the job's pods are found; without a label or a value nothing is done.
        top: UID that must be among those of the pods' controllers; empty where others stand between job and pods.

    Raises:
        KqueueError: of the first pod that could not be ended; the others were tried.
    """
    if not labels or not all(labels.values()):
        return []
    chosen = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    pods = await client.list_json(PODS, namespace, label_selector=chosen)
    ended: list[str] = []
    failed: list[KqueueError] = []
    for pod in _overstaying(pods, top):
        name, uid = text(pod, "metadata", "name"), text(pod, "metadata", "uid")
        try:
            if await end_pod(client, f"{namespace}/{name}", uid):
                ended.append(name)
        except KqueueError as e:
            failed.append(e)
    if failed:
        raise failed[0]
    return ended


def _overstaying(pods: Iterable[Mapping[str, Any]], top: str) -> Iterable[Mapping[str, Any]]:
    """Those that are bound, have not ended, and are not about to."""
    for pod in pods:
        owners = [r for r in objects(pod, "metadata", "ownerReferences") if r.get("controller") is True]
        if not text(pod, "spec", "nodeName") or pod_view.is_terminated(pod) or not owners:
            continue
        if top and all(text(owner, "uid") != top for owner in owners):
            continue
        grace = whole(mapping(pod, "metadata"), "deletionGracePeriodSeconds")
        if not pod_view.is_deleting(pod) or grace is None or grace > STOP_SECONDS:
            yield pod
