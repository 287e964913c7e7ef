"""Why workloads wait, told beside the loop: each hears the newest reason only, and so many are told at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.value import value
from kqueue.core.workload import PodSet
from kqueue.scheduling.writes import Writes
from kqueue.state import from_api, status

_log = structlog.get_logger(__name__)


class WaitObserver(Protocol):
    """Who wants to know what workloads were told.  Calls must return at once and must not raise."""

    def waits(self, workload: wire.Workload, *, reason: str, message: str) -> None:
        """A try ended without admission, and what the workload says about it has changed."""
        ...


@value()
class Why:
    """The outcome of a try.

    Args:
        reason: for programs.
        message: for people.
        pod_sets: what the workload asked for; None: that could not be read.
        gated: it could preempt others, if its preemption gates were open.
    """

    reason: str
    message: str
    pod_sets: tuple[PodSet, ...] | None = None
    gated: bool = False

    def requests(self) -> dict[str, dict[str, int]] | None:
        """What each pod set costs in quota."""
        if self.pod_sets is None:
            return None
        return {
            p.name: {resource: amount * p.request.count for resource, amount in p.quota_requests.items()}
            for p in self.pod_sets
        }


class Waits:
    """The reasons for waiting that are still to be written."""

    def __init__(
        self,
        *,
        writes: Writes,
        is_held: Callable[[str], bool],
        observer: WaitObserver,
        clock: Clock,
        at_once: int,
    ) -> None:
        """`is_held` says whether a workload holds quota; `at_once`: so many writes, the rest waits its turn."""
        self._writes, self._is_held, self._observer, self._clock = writes, is_held, observer, clock
        self._at_once, self._writers = at_once, 0
        self._untold: dict[str, Why] = {}
        """By workload; those that are being written, too."""
        self._line: deque[str] = deque()

    def tell(self, key: str, obj: wire.Workload, why: Why, *, briefly: bool = False) -> None:
        """Let a workload say why it waits, unless it does, or is admitted before its turn comes.

        `briefly`: the reason counts, and whoever says it already is not told this message.
        """
        if key in self._untold:
            self._untold[key] = why
        elif not _says(obj, why, briefly=briefly):
            self._untold[key] = why
            self._line.append(key)
            if self._writers < self._at_once:
                self._writers += 1
                self._writes.spawn(self._write())

    async def _write(self) -> None:
        while self._line:
            key = self._line.popleft()
            try:
                await self._write_newest(key)
            except Exception:  # noqa: BLE001 - the boundary that keeps one workload from silencing the others
                _log.exception("the reason for waiting could not be told on a bug", workload=key)
            del self._untold[key]
        self._writers -= 1

    async def _write_newest(self, key: str) -> None:
        """Write until no other reason has come meanwhile."""
        why = None
        while why is not self._untold[key]:
            why = self._untold[key]
            written = await self._writes.tell(key, partial(self._change, key, why), what="the reason for waiting")
            if written is not None:
                _log.info("workload waits", workload=key, reason=why.reason, message=why.message)
                self._observer.waits(written, reason=why.reason, message=why.message)

    def _change(self, key: str, why: Why, obj: wire.Workload) -> status.Patch | None:
        if self._is_held(key):
            return None  # admitted since: an old reason must not go over it
        return status.wait(
            obj,
            reason=why.reason,
            message=why.message,
            stamp=status.Stamp(self._clock.now()),
            requests=why.requests(),
            gated=why.gated,
            queued=True,
        )


def _says(obj: wire.Workload, why: Why, *, briefly: bool) -> bool:
    """Whether the workload says already that it waits, and for this reason."""
    told = from_api.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if told is None or (told.status, told.reason) != ("False", why.reason):
        return False
    if why.gated and not from_api.condition_true(obj, names.CONDITION_BLOCKED_ON_PREEMPTION_GATES):
        return False
    return briefly or (status.without_place(told.message) == status.cut(why.message) and _knows_of_no_admission(obj))


def _knows_of_no_admission(obj: wire.Workload) -> bool:
    admitted = from_api.condition(obj.status.conditions, names.CONDITION_ADMITTED)
    return admitted is not None and (admitted.status, admitted.reason) == ("False", names.REASON_NO_RESERVATION)
