"""Shared code of controllers of replicas: owners of pods, pods from templates, creation and deletion."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from kqueue.errors import AlreadyExistsError, NotFoundError
from kqueue.sandbox.api import PODS, Api, Object
from kqueue.sandbox.json_object import controller_of, controller_reference, key_of, split_key
from kqueue.sandbox.mirror import Mirror

_T = TypeVar("_T")
_MOST_AT_ONCE = 64
_HASH_LENGTH = 10


def controlled_by(kind: str) -> Callable[[Object], str | None]:
    """Return an index function: the UID of an object's controller of that kind of group `apps`, or None."""

    def uid(obj: Object) -> str | None:
        owner = controller_of(obj)
        if owner is None or owner.get("kind") != kind or not str(owner.get("apiVersion", "")).startswith("apps/"):
            return None
        return str(owner["uid"])

    return uid


def owner_key(obj: Object) -> str:
    """Return the key of an object's controller, which must exist."""
    owner = controller_of(obj) or {}
    return f"{obj['metadata']['namespace']}/{owner.get('name')}"


def template_hash(template: Object) -> str:
    """Return a hash of a template, ten characters."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:_HASH_LENGTH]


def pod_from(
    template: Object, owner: Object, kind: str, *, name: str = "", labels: Mapping[str, str] | None = None
) -> Object:
    """Return a pod from a template, controlled by `owner`; without `name` the API server generates one."""
    metadata, owned = template.get("metadata") or {}, owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **({"name": name} if name else {"generateName": f"{owned['name']}-"}),
            "namespace": owned["namespace"],
            "labels": {**(metadata.get("labels") or {}), **(labels or {})},
            "annotations": dict(metadata.get("annotations") or {}),
            "finalizers": list(metadata.get("finalizers") or ()),
            "ownerReferences": [controller_reference({**owner, "apiVersion": "apps/v1", "kind": kind})],
        },
        "spec": dict(template.get("spec") or {}),
    }


class PodWriter:
    """Creates and deletes pods; the mirror gets the API server's answers at once."""

    def __init__(self, api: Api, pods: Mirror) -> None:
        self._api, self._pods = api, pods

    async def create(self, pod: Object) -> None:
        """Create a pod; an existing pod of that name is no error."""
        namespace = pod["metadata"]["namespace"]
        try:
            self._pods.remember(await self._api.create(PODS, pod, namespace=namespace))
        except AlreadyExistsError:
            self._pods.remember(self._api.get(PODS, pod["metadata"]["name"], namespace=namespace))

    async def delete(self, pod: Object) -> None:
        """Delete a pod; a missing pod is no error."""
        namespace, name = split_key(key_of(pod))
        try:
            await self._api.delete(PODS, name, namespace=namespace)
            self._pods.remember(self._api.get(PODS, name, namespace=namespace))
        except NotFoundError:
            self._pods.forget(pod)


async def each(items: Sequence[_T], work: Callable[[_T], Awaitable[Any]]) -> None:
    """Do `work` for all items in batches of 1, 2, 4, ..., so that a refusal happens a few times, not a thousand.

    The first error is raised when the rest of its batch is done.
    """
    done, batch = 0, 1
    while done < len(items):
        results = await asyncio.gather(*(work(item) for item in items[done : done + batch]), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        done, batch = done + batch, min(batch * 2, _MOST_AT_ONCE)
