"""Importing pods: Workload, admission, labels, in an order that may be interrupted anywhere and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from kqueue.operations.importing.plan import ImportStep
from kqueue.runtime.client import Client
from kqueue.state import status
from kqueue.state.conditions import Stamp


class Importer:
    """Imports pods, a few at a time; a failure is reported and does not stop the others."""

    def __init__(self, client: Client, clock: Clock, tell: Callable[[ImportStep, str], None]) -> None:
        """`tell` is called with each pod and its error; the text is empty after a success."""
        self._client, self._clock, self._tell = client, clock, tell
        self.imported = self.failed = 0

    async def run(self, steps: Sequence[ImportStep], *, at_once: int) -> None:
        """Import all pods; return when the last one is done."""
        left = list(reversed(steps))

        async def work() -> None:
            while left:
                await self._import(left.pop())

        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(left))):
                group.create_task(work())

    async def _import(self, step: ImportStep) -> None:
        try:
            await self._do(step)
        except ApiError as e:
            self.failed += 1
            self._tell(step, str(e))
        else:
            self.imported += 1
            self._tell(step, "")

    async def _do(self, step: ImportStep) -> None:
        """Write Workload, admission and then the label.

        The label is last: if the import ends early and a controller starts, the controller would stop a pod that has
        the label but no admitted Workload.
        """
        meta = step.pod["metadata"]
        namespace, name = meta["namespace"], str(step.workload["metadata"]["name"])
        stored = await self._created(step.workload, name, namespace)
        workload = msgspec.convert(stored, wire.Workload, strict=False)
        patch = status.reserve(workload, step.admission, wanted=(), stamp=Stamp(self._clock.now()))
        if patch is not None:
            versioned = {**patch, "metadata": {"resourceVersion": workload.metadata.resource_version}}
            await self._client.patch(WORKLOADS, name, versioned, namespace, subresource="status")
        elif workload.status.admission is None:
            raise ConflictError(f"Workload {namespace}/{name} is there and cannot be admitted: it is over or on hold")
        same = {"uid": meta["uid"], "labels": dict(step.labels)}  # the uid refuses another pod of that name
        try:
            await self._client.patch(PODS, meta["name"], {"metadata": same}, namespace)
        except (NotFoundError, ConflictError):
            await self._client.delete(WORKLOADS, name, namespace)  # the pod was deleted meanwhile
            await self._let_go(name, namespace)

    async def _created(self, workload: Mapping[str, Any], name: str, namespace: str) -> dict[str, Any]:
        """Return the Workload, created now or found."""
        if "resourceVersion" not in workload["metadata"]:
            try:
                return await self._client.create(WORKLOADS, workload, namespace)
            except AlreadyExistsError:
                pass  # an earlier attempt whose answer was lost
        return await self._client.get_json(WORKLOADS, name, namespace)

    async def _let_go(self, name: str, namespace: str) -> None:
        """Remove kqueue's finalizer, because no controller runs that would do so."""
        try:
            found = await self._client.get_json(WORKLOADS, name, namespace)
        except NotFoundError:
            return
        kept = [f for f in found["metadata"].get("finalizers") or () if f != names.RESOURCE_IN_USE_FINALIZER]
        version = found["metadata"]["resourceVersion"]
        await self._client.patch(
            WORKLOADS, name, {"metadata": {"finalizers": kept or None, "resourceVersion": version}}, namespace
        )
