"""Runs BatchProcesses of Brain++ workspaces: each is copied to a BatchProcess of kqueue, and the status back.

The copy belongs to the original, and is deleted with it.  Manifests of workspaces need no change: the image and the
queue come from an annotation and a label of the namespace.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from kqueue.api import gang_names
from kqueue.clock import Clock
from kqueue.controllers.group_objects import view_of, watch_group_objects
from kqueue.controllers.handlers import enqueue_namespace
from kqueue.controllers.manager import Manager
from kqueue.controllers.raw import RawObject, status_writer
from kqueue.controllers.resources import BATCH_PROCESSES, WORKSPACE_BATCH_PROCESSES
from kqueue.errors import AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError
from kqueue.jobs.fields import JSON, mapping, text
from kqueue.jobs.gang.batch_copies import copy_of, follow, is_copy_of, status_back
from kqueue.jobs.gang.batch_end import expires, written_end
from kqueue.jobs.gang.batch_process import FRAMEWORK
from kqueue.jobs.gang.batch_status import REASON_INVALID, QueueHindrance, invalid_status
from kqueue.jobs.meaning import same
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.runtime.client import Client, Propagation
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store, object_key, split_key

_log = structlog.get_logger(__name__)


class BatchCopier:
    """The reconciler of BatchProcesses of workspaces.  Keys are namespace/name of original and copy."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        originals: StatusWriter[JSON],
        copies: Store[JSON],
        image_of: Callable[[str], str],
        manages: Callable[[str], bool],
    ) -> None:
        """Take the image of a namespace in `image_of`; empty: it names none."""
        self._client, self._clock, self._originals, self._copies = client, clock, originals, copies
        self._image_of, self._manages = image_of, manages

    async def reconcile(self, key: str) -> Result:
        """Take the next step for one BatchProcess of a workspace."""
        namespace = split_key(key)[0]
        original = self._originals.newest(key)
        if original is None or mapping(original, "metadata").get("deletionTimestamp") or not self._manages(namespace):
            return Result()
        copy = self._copies.get(key)
        ended = written_end(original) is not None
        wanted = copy_of(original, image=self._image_of(namespace))
        if copy is None:
            return await self._retain(original) if ended else await self._create(key, wanted)
        if not is_copy_of(copy, original):
            name = split_key(key)[1]
            message = f"BatchProcess {name} of {BATCH_PROCESSES.group} exists; delete it, or name one differently"
            await self._refuse(key, message)
            return Result()
        change = {} if ended else follow(copy, wanted)
        if change and not await self._change(key, change):
            return Result()
        await self._write(key, lambda now: status_back(copy, now))
        return await self._retain(original)

    async def _create(self, key: str, wanted: JSON) -> Result:
        try:
            await self._client.create(BATCH_PROCESSES, wanted)
        except AlreadyExistsError:
            return Result()  # the watch will report it soon
        except (ForbiddenError, InvalidError) as e:
            await self._refuse(key, str(e))
            return Result()
        _log.info("batch process of a workspace copied", batch_process=key)
        return Result()

    async def _change(self, key: str, change: Patch) -> bool:
        """Change the copy; return whether the API server took the change."""
        namespace, name = split_key(key)
        try:
            await self._client.patch(BATCH_PROCESSES, name, change, namespace)
        except (ForbiddenError, InvalidError) as e:
            await self._refuse(key, str(e))
            return False
        except NotFoundError:
            return False  # the watch will report it soon
        return True

    async def _refuse(self, key: str, message: str) -> None:
        hindrance = QueueHindrance(REASON_INVALID, message)
        await self._write(key, lambda now: invalid_status(now, hindrance, self._clock.now()))

    async def _write(self, key: str, wanted: Callable[[JSON], JSON]) -> None:
        def change(now: JSON) -> Patch | None:
            before, after = mapping(now, "status"), wanted(now)
            return None if same(before, after) else {"status": merge_patch(before, after)}

        await self._originals.write(key, change)

    async def _retain(self, original: JSON) -> Result:
        """Delete the original so long after its end as it says; the copy has no such time."""
        due = expires(original)
        if due is None:
            return Result()
        left = (due - self._clock.now()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        metadata = mapping(original, "metadata")
        try:
            await self._client.delete(
                WORKSPACE_BATCH_PROCESSES,
                text(metadata, "name"),
                text(metadata, "namespace"),
                uid=text(metadata, "uid"),
                propagation=Propagation.BACKGROUND,
            )
        except NotFoundError:
            return Result()
        return Result()


def setup(manager: Manager) -> None:
    """Add the copier, where the dialect of BatchProcesses is on; it waits for the kind of workspaces to be served."""
    if FRAMEWORK not in manager.switches.gangs:
        return
    copies = manager.shared(watch_group_objects).store(BATCH_PROCESSES)
    if copies is None:
        return
    watch = manager.watches.watch(
        WORKSPACE_BATCH_PROCESSES, RawObject, lambda obj: view_of(WORKSPACE_BATCH_PROCESSES, obj)
    )
    copier = BatchCopier(
        manager.client,
        manager.clock,
        originals=status_writer(manager.client, WORKSPACE_BATCH_PROCESSES, watch.store),
        copies=copies,
        image_of=lambda namespace: _image_of(manager, namespace),
        manages=manager.manages,
    )
    controller = manager.controller("batch_process_copies", copier.reconcile)
    _subscribe(manager, controller, originals=watch.store, copies=copies)


def _image_of(manager: Manager, namespace: str) -> str:
    found = manager.watches.namespaces.store.get(namespace)
    return found.metadata.annotations.get(gang_names.BATCH_IMAGE_ANNOTATION, "") if found is not None else ""


def _subscribe(manager: Manager, controller: Controller, *, originals: Store[JSON], copies: Store[JSON]) -> None:
    def on_object(old: JSON | None, new: JSON | None) -> None:
        metadata = mapping(new if new is not None else old, "metadata")
        key = object_key(text(metadata, "namespace"), text(metadata, "name"))
        if key in originals:
            controller.enqueue(key)

    originals.subscribe(on_object)
    copies.subscribe(on_object)
    manager.watches.namespaces.subscribe(enqueue_namespace(controller, originals))
