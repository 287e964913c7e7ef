"""Importing units: Workload, admission, marks and labels, in an order that may be interrupted anywhere and repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kqueue import model
from kqueue.api import import_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from kqueue.operations.importing.plan import ImportChange, ImportStep, without_gate
from kqueue.runtime.client import Client
from kqueue.state import status
from kqueue.state.conditions import Stamp

_ATTEMPTS = 8
"""Attempts to change an object that others change at the same time, as kubelets do with the status of pods."""

_GATE = names.ADMISSION_GATED_BY_ANNOTATION
_OPENED = {"metadata": {"annotations": {_GATE: None}}}


def passed_checks(checks: Sequence[str], time: str) -> list[dict[str, Any]]:
    """Return the states of admission checks of a unit that runs: their question has been answered."""
    return [
        {"name": name, "state": names.CHECK_READY, "message": _PASSED, "lastTransitionTime": time} for name in checks
    ]


def with_checks(workload: wire.Workload, states: Sequence[Mapping[str, Any]]) -> wire.Workload:
    """Return the Workload with these states of its admission checks."""
    read = msgspec.convert(states, tuple[wire.AdmissionCheckState, ...], strict=False)
    return replace(workload, status=replace(workload.status, admission_checks=read))


_PASSED = "It ran before it was imported, so the check was not asked"


class Importer:
    """Imports units, a few at a time; a failure is reported and does not stop the others."""

    def __init__(self, client: Client, clock: Clock, tell: Callable[[ImportStep, str], None]) -> None:
        """`tell` is called with each step and its error; the text is empty after a success."""
        self._client, self._clock, self._tell = client, clock, tell
        self.imported = self.failed = 0

    async def run(self, steps: Sequence[ImportStep], *, at_once: int) -> None:
        """Import all units; return when the last one is done."""
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
        """Write Workload, admission, marks of pods, and then the label of the queue.

        The label is last: if the import ends early and a controller starts, the controller would stop a job or pod that
        has the label but no admitted Workload.  A unit that has changed since the plan is not imported.
        """
        namespace, name = step.unit.namespace, str(step.workload["metadata"]["name"])
        stamp = Stamp(self._clock.now())
        marks = {import_names.IMPORTED_ANNOTATION: stamp.text} if step.unit.is_job else {}
        stored = await self._created(step.workload, marks, name, namespace)
        workload = msgspec.convert(without_gate(stored), wire.Workload, strict=False)
        ready = passed_checks(step.checks, stamp.text)
        patch = status.reserve(with_checks(workload, ready), step.admission, wanted=step.checks, stamp=stamp)
        if patch is not None:
            if ready:
                patch["status"]["admissionChecks"] = ready
            versioned = {**patch, "metadata": {"resourceVersion": workload.metadata.resource_version}}
            await self._client.patch(WORKLOADS, name, versioned, namespace, subresource="status")
        elif model.admission(workload, reclaims=False) != step.admission:
            raise ConflictError(f"Workload {namespace}/{name} is there and says something else: delete it")
        if without_gate(stored) is not stored:
            await self._client.patch(WORKLOADS, name, _OPENED, namespace)
        for change in step.changes:
            if obstacle := await self._change(change, namespace):
                await self._client.delete(WORKLOADS, name, namespace, uid=workload.metadata.uid)
                await self._let_go(name, namespace)
                raise ConflictError(f"{obstacle}: run the command again")

    async def _change(self, change: ImportChange, namespace: str) -> str:
        """Make one change; return why it is not to be made any more, empty: it is made."""
        name = str(change.obj["metadata"]["name"])
        for attempt in range(_ATTEMPTS):
            try:
                now = await self._client.get_json(change.resource, name, namespace)
                obstacle = change.obstacle(now)
                patch = change.patch(now)
                if not obstacle and patch:
                    await self._client.patch(change.resource, name, patch, namespace)
            except NotFoundError:
                return f"{change.resource.kind} {name} was deleted meanwhile"
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return obstacle
        raise AssertionError("the last attempt returns or raises")

    async def _created(
        self, workload: Mapping[str, Any], marks: Mapping[str, str], name: str, namespace: str
    ) -> dict[str, Any]:
        """Return the Workload, created now or found, with these annotations unless it is admitted.

        A new one has a gate: a controller that runs with the kind off would admit it elsewhere.
        """
        meta = workload["metadata"]
        if "resourceVersion" not in meta:
            annotations = {**(meta.get("annotations") or {}), **marks, _GATE: import_names.IMPORT_GATE}
            marked = {**workload, "metadata": {**meta, "annotations": annotations}}
            try:
                return await self._client.create(WORKLOADS, marked, namespace)
            except AlreadyExistsError:
                pass  # an earlier attempt whose answer was lost
        found = await self._client.get_json(WORKLOADS, name, namespace)
        if (found.get("status") or {}).get("admission") or not marks:
            return found
        same = {"uid": found["metadata"]["uid"], "annotations": marks}
        return await self._client.patch(WORKLOADS, name, {"metadata": same}, namespace)

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
