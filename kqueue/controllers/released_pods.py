"""Reads the released pods from the API server, once per namespace after this process becomes the leader.

An earlier leader may have released pods whose change the watch has not reported yet.  Its expectations are lost with
it.  With the watch alone, this process would release other pods to the same places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from kqueue.api.wire import core as wire_core
from kqueue.controllers.resources import PODS
from kqueue.model import PodView, pod_view
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.store import Store

_log = structlog.get_logger(__name__)

PAGE_SIZE = 500
_AT_ONCE = 100
"""The number of pods compared before the event loop runs other tasks: about 3 ms."""


class _PageMeta(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _PodPage(msgspec.Struct):
    metadata: _PageMeta
    items: list[wire_core.Pod] | None = None


class WatchedPod(Protocol):
    """A pod that has or had a gate."""

    @property
    def key(self) -> str:
        """namespace/name."""
        ...

    @property
    def uid(self) -> str:
        """The pod's UID."""
        ...

    @property
    def gated(self) -> bool:
        """Whether the pod still has the gate."""
        ...

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended."""
        ...


Pod = TypeVar("Pod", bound=WatchedPod)


class FirstLook(Generic[Pod]):
    """Finds released pods that the watch does not show as released yet, and reports each of them."""

    def __init__(
        self,
        client: Client,
        pods: Store[PodView],
        *,
        of: Callable[[PodView], Pod | None],
        on_behind: Callable[[Pod], None],
    ) -> None:
        """Take the functions; `of` returns a pod in the form of the gate's controller; None: the gate does not concern
        the pod.

        `on_behind` is called with each released pod that the watch has not reported yet.
        """
        self._client, self._pods, self._of, self._on_behind = client, pods, of, on_behind
        self._done: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._gone: set[str] = set()
        pods.subscribe(self._observe)

    def begin(self) -> None:
        """Make every namespace due again: another process may have led meanwhile."""
        self._done.clear()

    def due(self, namespace: str) -> bool:
        """Whether the namespace has not been read since this process leads."""
        return namespace not in self._done

    async def take(self, namespace: str) -> None:
        """Read the namespace.  All callers that arrive meanwhile share one read.

        Raises:
            ApiError: the list failed; the namespace is still due.
        """
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            if not self.due(namespace):
                return
            try:
                behind = await self._compare(namespace)
            finally:
                self._locks.pop(namespace, None)  # absent after a failed read; waiting callers have the lock
                if not self._locks:
                    self._gone.clear()
            self._done.add(namespace)
            if behind:
                _log.info("released pods that the watch has yet to bring", namespace=namespace, pods=behind)

    async def _compare(self, namespace: str) -> int:
        """Read all pods; return the number of released pods whose change or end the watch has not reported."""
        params, behind = {"limit": str(PAGE_SIZE)}, 0
        while True:
            answer = await self._client.list_page(PODS, namespace, params=params, lane=Lane.WATCH)
            page = msgspec.json.decode(answer, type=_PodPage)
            for number, pod in enumerate(page.items or (), start=1):
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                found = self._of(pod_view(pod))
                if found is not None and not found.gated and not found.terminal and self._is_behind(found):
                    self._on_behind(found)
                    behind += 1
            if not page.metadata.token:
                return behind
            params["continue"] = page.metadata.token

    def _is_behind(self, released: Pod) -> bool:
        view = self._pods.get(released.key)
        seen = self._of(view) if view is not None else None
        known = seen is not None and seen.uid == released.uid and not seen.gated
        return not known and released.uid not in self._gone

    def _observe(self, old: PodView | None, new: PodView | None) -> None:
        """Record pods that disappear during a list: they are in the list, and no further event will come."""
        before = self._of(old) if self._locks and old is not None else None
        if before is None:
            return
        after = self._of(new) if new is not None else None
        if after is None or after.uid != before.uid:
            self._gone.add(before.uid)
