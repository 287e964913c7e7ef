"""Whether this process leads: it competes for the lease, and only the leader writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kqueue.clock import Clock
from kqueue.config import Configuration
from kqueue.observe import Metrics
from kqueue.runtime.client import Client
from kqueue.runtime.leader import ElectionSettings, LeaderElection, unique_identity

Lead = Callable[[], Coroutine[Any, Any, None]]


class Leadership:
    """The lease of one process, and the client that writes while the process leads."""

    def __init__(self, client: Client, config: Configuration, *, clock: Clock, metrics: Metrics) -> None:
        self.client, self.clock = client, clock
        self._election, self._metrics = config.leader_election, metrics
        self.lease: LeaderElection | None = None
        """The lease for which this process competes; None without leader election, and before the first try."""
        self.ready = asyncio.Event()
        """Set when this process leads and works."""
        self.writer = client.fenced(self.may_write)
        """Refuses writes while this process does not lead."""
        if self._election.leader_elect:
            metrics.leading(self._election.resource_name, leads=False)

    def may_write(self) -> bool:
        """Whether this process leads at this moment, by the clock: read before each write.

        A process that was stopped for longer than its lease and goes on does not write, even before it learns that it
        has lost the lease.
        """
        return self.lease.leading if self.lease is not None else not self._election.leader_elect

    def trouble(self) -> str | None:
        """Return the problem with the lease; None: there is none."""
        return self.lease.trouble() if self.lease is not None else None

    async def compete(self, *, sync: Lead, lead: Lead, succeed: Lead) -> None:
        """Lead when this process may.  The caches are filled meanwhile, and the lease is taken when they are full.

        Args:
            sync: returns when the caches are full.
            lead: leads without an election.
            succeed: leads after another process may have led.
        """
        election = self._election
        if not election.leader_elect:
            await sync()
            await lead()
            return
        synced = asyncio.Event()

        async def fill() -> None:
            await sync()
            synced.set()

        self.lease = lease = LeaderElection(
            self.client,
            ElectionSettings(
                name=election.resource_name,
                namespace=election.resource_namespace,
                identity=unique_identity(),
                lease_duration=election.lease_duration.total_seconds(),
                renew_deadline=election.renew_deadline.total_seconds(),
                retry_period=election.retry_period.total_seconds(),
            ),
            clock=self.clock,
            on_change=lambda leads: self._metrics.leading(election.resource_name, leads=leads),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fill())
            await lease.run(succeed, when=synced)
