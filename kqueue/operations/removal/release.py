"""Releasing leftovers.  Every step may be repeated, so a release that was killed can be run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from kqueue.controllers.leftovers import Left, Leftover, Seen, of_job, of_object, of_pod
from kqueue.errors import ConflictError, KqueueError, NotFoundError, UnauthorizedError, UnreachableError
from kqueue.operations.removal.conversion import drop_conversion
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane

AT_ONCE = 16
"""Concurrent writes."""
_WHOLE = (Left.WEBHOOKS, Left.API_SERVICES)
"""Leftovers that are deleted as a whole."""
_ATTEMPTS = 5
"""Tries per object, if other clients write to it meanwhile."""


@dataclass(slots=True)
class RemovalOutcome:
    """The released objects and the failures."""

    released: list[Leftover] = field(default_factory=list)
    failed: list[tuple[Leftover, str]] = field(default_factory=list)
    """Objects that could not be released, with the cause."""


async def release(
    client: Client,
    found: Iterable[Leftover],
    *,
    leave_gated: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> RemovalOutcome:
    """Release webhook configurations and definitions first, then pods, then the owners of pods.

    A refusal of one object does not stop the others. `progress` is called after each object with done and total.

    Raises:
        UnreachableError, UnauthorizedError: no further request can succeed; released objects stay released.
    """
    todo = [leftover for leftover in found if leftover.left.releasable]
    outcome = RemovalOutcome()

    async def work(queue: Iterator[Leftover]) -> None:
        for leftover in queue:
            try:
                await _release(client, leftover, leave_gated=leave_gated)
                outcome.released.append(leftover)
            except (UnreachableError, UnauthorizedError):
                raise
            except KqueueError as e:
                outcome.failed.append((leftover, str(e)))
            progress(len(outcome.released) + len(outcome.failed), len(todo))

    for _kind, same in groupby(todo, key=lambda leftover: leftover.resource):  # kind by kind
        await _together(work, list(same))
    return outcome


async def _together(work: Callable[[Iterator[Leftover]], Coroutine[Any, Any, None]], batch: Sequence[Leftover]) -> None:
    queue = iter(batch)
    tasks = [asyncio.create_task(work(queue)) for _ in range(min(AT_ONCE, len(batch)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _release(client: Client, leftover: Leftover, *, leave_gated: bool) -> None:
    """Release one object. An object that is gone, or that another client released, counts as released."""
    now: Leftover | None = leftover
    for attempt in range(_ATTEMPTS):
        if now is None:
            return
        try:
            await _write(client, now)
        except NotFoundError:
            return
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
            now = await _again(client, leftover, leave_gated=leave_gated)
        else:
            return


async def _write(client: Client, leftover: Leftover) -> None:
    if leftover.left in _WHOLE:
        await client.delete(leftover.resource, leftover.name, uid=leftover.uid)
        return
    if leftover.left is Left.CONVERSION:
        await drop_conversion(client, leftover.name, leftover.uid)
        return
    namespace = leftover.namespace or None
    await client.patch(leftover.resource, leftover.name, leftover.patch(), namespace, lane=Lane.UNGATE)


async def _again(client: Client, leftover: Leftover, *, leave_gated: bool) -> Leftover | None:
    """Return kqueue's remaining changes to the object; None: none, or another object has the name."""
    if leftover.left is Left.CONVERSION:
        return leftover  # it is read again before it is written
    namespace = leftover.namespace or None
    try:
        seen = await client.get(leftover.resource, leftover.name, namespace, decode=Seen)
    except NotFoundError:
        return None
    if seen.metadata.uid != leftover.uid:
        return None
    if leftover.left is Left.HELD_POD:
        return of_pod(leftover.resource, seen, leave_gated=leave_gated)
    if leftover.left is Left.HELD_TEMPLATE:
        again = of_job(leftover.resource, seen, waits_for_us=False)
        return next((found for found in again if found.left is Left.HELD_TEMPLATE), None)
    return leftover if leftover.left in _WHOLE else of_object(leftover.resource, seen)
