"""Counts objects of kinds that are not queued although they carry the queue label: each starts without quota.

These objects are listed by label and page by page at intervals.  They are not watched, because most clusters have none
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from kqueue.api import names
from kqueue.clock import Clock
from kqueue.controllers.manager import Manager
from kqueue.errors import ForbiddenError, KqueueError, NotFoundError
from kqueue.jobs.ancestry import OwnerKind
from kqueue.jobs.unmanaged import kinds_not_queued, names_of_loose, remedy
from kqueue.runtime.client import Client
from kqueue.runtime.deadline import within
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType

_log = structlog.get_logger(__name__)

_LIST_SECONDS = 60.0
"""The timeout for the list of one kind, in seconds."""


class UnmanagedCensus:
    """Reports the number of labelled objects of each kind that is not queued."""

    def __init__(
        self,
        client: Client,
        kinds: Sequence[OwnerKind],
        *,
        clock: Clock,
        interval: float,
        report: Callable[[str, int], None],
    ) -> None:
        """Take the client and the kinds; `interval` is the number of seconds between two counts; `report` is called
        with a kind and its number, 0 included.
        """
        self._client, self._kinds, self._clock, self._interval = client, kinds, clock, interval
        self._report = report
        self._told: dict[str, int] = {}
        """The last number of each kind, so that only a change is logged."""
        self._refused: set[str] = set()
        """Kinds that may not be listed, so that a missing right is logged once."""

    async def run(self) -> None:
        """Count all kinds now and after each pause, until cancelled."""
        while True:
            for kind in self._kinds:
                await self.look(kind)
            await self._clock.sleep(self._interval)

    async def look(self, kind: OwnerKind) -> None:
        """Count one kind.  A kind that cannot be listed keeps its last number."""
        gvk = kind.gvk
        resource = ResourceType(gvk.group, gvk.version, kind.resource, gvk.kind)
        listed = self._client.list_json(resource, label_selector=names.QUEUE_NAME_LABEL, lane=Lane.WORDS)
        try:
            loose = names_of_loose(await within(self._clock, _LIST_SECONDS, listed))
        except NotFoundError:
            loose = []  # the kind is not installed
        except ForbiddenError as e:
            if gvk.kind not in self._refused:
                self._refused.add(gvk.kind)
                _log.warning("labelled objects may not be listed", kind=gvk.kind, error=str(e))
            return
        except (KqueueError, TimeoutError) as e:
            _log.debug("labelled objects could not be counted", kind=gvk.kind, error=str(e))
            return
        if not loose and gvk.kind not in self._told:
            return
        self._report(gvk.kind, len(loose))
        if loose and self._told.get(gvk.kind) != len(loose):
            _log.warning(
                "objects name a queue and start without quota, because their kind is switched off",
                kind=gvk.kind,
                objects=len(loose),
                example=loose[0],
                remedy=remedy(gvk),
            )
        self._told[gvk.kind] = len(loose)


def setup(manager: Manager) -> None:
    """Add the count of objects that name a queue although their kind is off; it runs beside the controllers."""
    census = UnmanagedCensus(
        manager.client,
        kinds_not_queued(manager.config.integrations),
        clock=manager.clock,
        interval=manager.timings.unmanaged_interval,
        report=manager.metrics.unmanaged_labelled,
    )
    manager.background.append(census.run)
