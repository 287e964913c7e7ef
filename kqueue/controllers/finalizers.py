"""Keeps flavors, Topologies and AdmissionChecks alive while something uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from kqueue.controllers.queue_status import finalizer_patch
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter


class HasMetadata(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> Any:
        """Name, finalizers, deletion timestamp."""
        ...


T = TypeVar("T", bound=HasMetadata)

_STILL_IN_USE = 10.0
"""Seconds until something that is deleted and in use is looked at again: no event tells of its last user's end."""


class FinalizerReconciler(Generic[T]):
    """Adds our finalizer to objects of one kind, and takes it off a deleted one when nothing uses it any more."""

    def __init__(self, writer: StatusWriter[T], in_use: Callable[[str], bool]) -> None:
        self._writer, self._in_use = writer, in_use

    async def reconcile(self, key: str) -> Result:
        """Bring the finalizer in line.  While something deleted is in use, it is looked at again and again."""
        in_use = self._in_use(key)
        await self._writer.write(key, lambda o: finalizer_patch(o.metadata, in_use=in_use), subresource=None)
        obj = self._writer.newest(key)
        waits = in_use and obj is not None and obj.metadata.deletion_timestamp is not None
        return Result(requeue_after=_STILL_IN_USE if waits else None)
