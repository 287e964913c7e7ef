"""Finds out whether a controller leads, which would add gates and finalizers again."""

from __future__ import annotations

from kqueue.clock import Clock
from kqueue.config.process import LeaderElectionSettings
from kqueue.errors import NotFoundError
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import LEASES

_LOOK_SECONDS = 1.0
_LONGEST = 60.0
"""Limit of the time that a Lease is watched, in seconds, whatever duration it has."""


async def holder_in(client: Client, namespace: str, name: str, clock: Clock, *, duration: float = 15.0) -> str:
    """Return the holder of the Lease; empty without a holder.

    Clocks differ, so written times are not compared: a holder counts if it renews the Lease during the check, which
    takes the Lease's own duration (`duration`, in seconds, if it has none).

    Raises:
        ApiError: the Lease cannot be read.
    """
    first = await _record(client, namespace, name)
    holder = str(first.get("holderIdentity") or "")
    if not holder:
        return ""
    said = first.get("leaseDurationSeconds")
    until = clock.monotonic() + min(float(said) if isinstance(said, int) else duration, _LONGEST)
    while clock.monotonic() < until:
        await clock.sleep(_LOOK_SECONDS)
        now = await _record(client, namespace, name)
        if not now.get("holderIdentity"):
            return ""
        if now != first:
            return str(now["holderIdentity"])
    return ""


async def leader_of(client: Client, election: LeaderElectionSettings, clock: Clock) -> str:
    """Return the holder of the Lease of these settings; empty: no controller leads.  As `holder_in`."""
    return await holder_in(
        client,
        election.resource_namespace,
        election.resource_name,
        clock,
        duration=election.lease_duration.total_seconds(),
    )


async def _record(client: Client, namespace: str, name: str) -> dict[str, object]:
    try:
        lease = await client.get_json(LEASES, name, namespace, lane=Lane.LEASE)
    except NotFoundError:
        return {}
    return lease.get("spec") or {}
