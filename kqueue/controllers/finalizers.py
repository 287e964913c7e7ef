"""Prevents the deletion of flavors, Topologies and AdmissionChecks while another object uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from kqueue.api.wire import kueue as wire
from kqueue.controllers import resources as kinds
from kqueue.controllers.handlers import enqueues
from kqueue.controllers.manager import Manager
from kqueue.controllers.queue_status import finalizer_patch
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.status_writer import StatusWriter


class HasMetadata(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> Any:
        """The name, finalizers and deletion timestamp."""
        ...


T = TypeVar("T", bound=HasMetadata)

_STILL_IN_USE = 10.0
"""Seconds until a deleted object in use is read again.  No event reports the end of its last use."""


class FinalizerReconciler(Generic[T]):
    """Adds kqueue's finalizer to objects of one kind, and removes it from a deleted object that is no longer in use."""

    def __init__(self, writer: StatusWriter[T], in_use: Callable[[str], bool]) -> None:
        self._writer, self._in_use = writer, in_use

    async def reconcile(self, key: str) -> Result:
        """Add or remove the finalizer.  A deleted object that is still in use is requeued."""
        in_use = self._in_use(key)
        await self._writer.write(key, lambda o: finalizer_patch(o.metadata, in_use=in_use), subresource=None)
        obj = self._writer.newest(key)
        waits = in_use and obj is not None and obj.metadata.deletion_timestamp is not None
        return Result(requeue_after=_STILL_IN_USE if waits else None)


def setup(manager: Manager) -> None:
    """Add the reconcilers of flavors and Topologies."""
    watches, cache = manager.watches, manager.cache
    flavor = FinalizerReconciler(
        manager.writer(kinds.RESOURCE_FLAVORS, watches.flavors, wire.ResourceFlavor), cache.is_flavor_used
    )
    flavors = manager.controller("resource_flavor", flavor.reconcile, group_kind="ResourceFlavor.kueue.x-k8s.io")
    topology = FinalizerReconciler(
        manager.writer(kinds.TOPOLOGIES, watches.topologies, wire.Topology),
        lambda name: bool(cache.quota.flavors_of_topology(name)),
    )
    topologies = manager.controller("topology", topology.reconcile, group_kind="Topology.kueue.x-k8s.io")
    enqueue_after_changes(manager, flavors, watches.flavors)
    enqueue_after_changes(manager, topologies, watches.topologies)


def enqueue_after_changes(manager: Manager, controller: Controller, watch: Reflector[Any, Any]) -> None:
    """Read an object at each of its events, and all objects of the kind after the configuration changed."""

    async def enqueue_all() -> None:
        for name in watch.store:
            controller.enqueue(name)

    manager.on_configuration.append(enqueue_all)
    watch.subscribe(enqueues(controller))
