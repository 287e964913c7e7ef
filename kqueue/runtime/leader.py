"""Leader election by Lease: one replica decides, the others keep their caches up to date.

Two replicas must never lead at the same time.  Three rules ensure this:

- Every write of the lease carries the resourceVersion it was read at, so of two competing writes only one succeeds.
- A follower does not compare written times (clocks differ); it notes on its own monotonic clock when the record last
  *changed*, and takes over only after a full lease duration without change.  Where the process of the holder has
  certainly ended, which is visible on its own machine, a follower takes over once all requests of the holder must have
  arrived.
- A leader that has not renewed for `renew_deadline` stops leading by itself, whatever the reason.  That deadline is
  shorter than the lease, and it counts from the moment before the last successful renewal was *sent*.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

import structlog

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, ConfigError, ConflictError, KqueueError, NotFoundError
from kqueue.runtime.backoff import pause_after
from kqueue.runtime.deadline import cancel_and_wait, within
from kqueue.runtime.lane import Lane
from kqueue.runtime.process_mark import ended_for, own_mark
from kqueue.runtime.resources import LEASES, ResourceType

_log = structlog.get_logger(__name__)

Json = dict[str, Any]

_RELEASE_ATTEMPTS = 3
"""Attempts to release the lease; each further one follows a change of the lease."""


class LeaseApi(Protocol):
    """The methods of a client that the election uses; `kqueue.runtime.client.Client` has them."""

    async def get_json(
        self, resource: ResourceType, name: str, namespace: str | None = None, *, lane: Lane = Lane.JOBS
    ) -> Json:
        """Read one object."""
        ...

    async def create(
        self, resource: ResourceType, obj: Any, namespace: str | None = None, *, lane: Lane = Lane.JOBS
    ) -> Json:
        """Create an object."""
        ...

    async def replace(self, resource: ResourceType, obj: Any, *, lane: Lane = Lane.JOBS) -> Json:
        """Write an object at the resourceVersion that it carries."""
        ...


def unique_identity() -> str:
    """Return host name, mark of the process where the system has one, and a random part.

    No two processes have the same identity, not even a process and its successor.
    """
    return "_".join(filter(None, (socket.gethostname(), own_mark(), str(uuid.uuid4()))))


def _holder_ended_for(identity: str) -> float | None:
    """Return for how many seconds the process with this `unique_identity` has certainly been gone from this machine.

    None when this is not certain.
    """
    parts = identity.rsplit("_", 2)
    return ended_for(parts[1]) if len(parts) == 3 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """The lease, and its times in seconds.  The defaults equal those of Kueue and of client-go."""

    namespace: str
    name: str
    identity: str
    """Identity of the process, which must be unique; see `unique_identity`."""
    lease_duration: float = 15.0
    """A follower waits so long without a change of the record.  Whole seconds, because the lease has whole seconds."""
    renew_deadline: float = 10.0
    """A leader that has not renewed for so long stops leading."""
    retry_period: float = 2.0
    """Time between renewals, and between a follower's reads of the lease."""

    def __post_init__(self) -> None:
        """Refuse times with which two replicas could lead.

        Raises:
            ConfigError: a time is out of order.
        """
        if not 0 < self.retry_period < self.renew_deadline < self.lease_duration:
            raise ConfigError(
                "leaderElection: retryPeriod < renewDeadline < leaseDuration must hold, found "
                f"{self.retry_period:g} s, {self.renew_deadline:g} s, {self.lease_duration:g} s"
            )
        if self.lease_duration < 1 or self.lease_duration % 1:
            raise ConfigError(f"leaderElection.leaseDuration: must be whole seconds, found {self.lease_duration:g} s")


@dataclass(frozen=True, slots=True)
class _Observed:
    """The record of a holder, which changed at `since` on our own clock."""

    record: Json
    since: float
    ended_at: float | None = None
    """When the process of the holder had certainly ended, on our own clock; None while this is unknown."""


def _stop_process() -> None:
    os._exit(1)


class LeaderElection:
    """Competes for a lease, and runs the leading work only while this process holds the lease.

    `run(lead)` calls `lead()` each time leadership is won and cancels it when leadership is lost; after a loss it
    competes again.  `lead` must first rebuild its state from the API, and must end soon when cancelled.  If `lead` has
    not ended when other replicas may take the lease, the process is stopped (`abort`): a restart is harmless, two
    leaders are not.
    """

    def __init__(
        self,
        api: LeaseApi,
        settings: ElectionSettings,
        *,
        clock: Clock,
        chance: random.Random | None = None,
        on_change: Callable[[bool], None] | None = None,
        abort: Callable[[], None] = _stop_process,
        ended_for: Callable[[str], float | None] = _holder_ended_for,
    ) -> None:
        """`on_change` gets True before `lead` is called and False after it has ended.

        `ended_for` returns for how many seconds the process with an identity has certainly been gone; None when this
        is not certain.
        """
        self._api, self._settings, self._clock = api, settings, clock
        self._chance = chance or random.Random()
        self._on_change, self._abort, self._ended_for = on_change, abort, ended_for
        self._held: Json | None = (
            None  # the lease as this process last wrote it; None while this process does not hold it
        )
        self._renewed_at = 0.0
        self._observed: _Observed | None = None
        self._heard_at = clock.monotonic()
        self._failure = ""
        self._request_timeout = max(settings.renew_deadline / 3, 0.001)  # a hang leaves time for two more tries

    @property
    def leading(self) -> bool:
        """Whether this process holds the lease at this moment, by the clock.

        True only within the renew deadline, even if the process was suspended in between.  Check this before a write
        that must not come from a former leader.
        """
        return self._held is not None and self._clock.monotonic() < self._lead_until

    @property
    def holder(self) -> str:
        """Return the last known holder of the lease; empty when the lease is free."""
        if self._held is not None:
            return self._settings.identity
        return _spec(self._observed.record).get("holderIdentity") or "" if self._observed else ""

    def trouble(self) -> str | None:
        """Return, for readiness, why this process cannot lead or could not take over; None: it can.

        A leader must renew the lease in time, a follower must read it in time.
        """
        leads = self._held is not None
        limit = self._settings.renew_deadline * 2 / 3 if leads else 2 * self._settings.lease_duration
        age = self._clock.monotonic() - (self._renewed_at if leads else self._heard_at)
        if age <= limit:
            return None
        because = f": {self._failure}" if self._failure else ""
        return f"the lease has not been {'renewed' if leads else 'seen'} for {age:.0f} s{because}"

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]], *, when: asyncio.Event | None = None) -> None:
        """Compete until `lead` returns by itself, or until cancelled.  Then release the lease.

        Before `when` is set the lease is watched and not taken, so that a lease without renewals expires while this
        process still starts.  None: the lease may be taken at once.

        Errors of `lead` are raised after the release of the lease.
        """
        try:
            while True:
                await self._acquire(when or _set_event())
                if await self._lead(lead):
                    return
        finally:
            await self._release()

    # --- following

    async def _acquire(self, ready: asyncio.Event) -> None:
        """Return when this process holds the lease; the lease is taken only after `ready` is set."""
        failures = 0
        while True:
            pause = self._settings.retry_period * self._chance.uniform(1.0, 1.2)
            try:
                if await self._try_to_acquire(take=ready.is_set()):
                    return
                failures, self._heard_at = 0, self._clock.monotonic()
                if ready.is_set():
                    pause = min(pause, max(0.001, self._time_to_expiry()))
            except (KqueueError, TimeoutError) as e:
                failures += 1
                self._failure = str(e) or type(e).__name__
                cap = self._settings.lease_duration
                pause = max(pause, pause_after(failures, base=pause, cap=cap, chance=self._chance))
                _log.warning("lease not reachable", lease=self._settings.name, error=str(e) or type(e).__name__)
            await self._rest(pause, ready)

    async def _rest(self, seconds: float, ready: asyncio.Event) -> None:
        """Pause, but no longer than until `ready` is set."""
        if ready.is_set():
            await self._clock.sleep(seconds)
            return
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(ready.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                await cancel_and_wait(wait)

    async def _try_to_acquire(self, *, take: bool) -> bool:
        """Read the lease; take it if it is free, expired, or ours already.  Return whether this process holds it.

        Without `take` the lease is only read.
        """
        try:
            lease = await self._request(self._read())
        except NotFoundError:
            return await self._take(None) if take else False
        self._observe(lease)
        if not take:
            return False
        holder = _spec(lease).get("holderIdentity") or ""
        # The lease is ours already: the answer to our own acquiring write was lost.
        if holder in {"", self._settings.identity} or self._time_to_expiry() <= 0:
            return await self._take(lease)
        return False

    def _observe(self, lease: Json) -> None:
        before = _spec(self._observed.record) if self._observed else None
        now = _spec(lease)
        if before == now:
            self._look_for_the_holder()
            return
        self._observed = _Observed(lease, self._clock.monotonic())
        self._look_for_the_holder()
        if before is None or before.get("holderIdentity") != now.get("holderIdentity"):
            _log.info("lease observed", lease=self._settings.name, holder=now.get("holderIdentity") or "none")

    def _look_for_the_holder(self) -> None:
        """Record when the process of the holder ended; only a process on the same machine can know this."""
        seen = self._observed
        if seen is None or seen.ended_at is not None:
            return
        holder = _spec(seen.record).get("holderIdentity") or ""
        if holder and (seconds := self._ended_for(holder)) is not None:
            self._observed = replace(seen, ended_at=self._clock.monotonic() - seconds)
            _log.info("the holder of the lease has ended on this machine", lease=self._settings.name, holder=holder)

    def _time_to_expiry(self) -> float:
        """Return the seconds until the lease may be taken: the full duration in the record, not in our settings.

        A holder whose process has ended sends no more requests.  Its last requests may arrive for as long as those of a
        leader that gave up: the lease duration less the renew deadline.
        """
        if self._observed is None:
            return 0.0
        if (ended_at := self._observed.ended_at) is not None:
            arrived = ended_at + self._settings.lease_duration - self._settings.renew_deadline
            return min(self._time_to_full_duration(), arrived - self._clock.monotonic())
        return self._time_to_full_duration()

    def _time_to_full_duration(self) -> float:
        assert self._observed is not None
        duration = _spec(self._observed.record).get("leaseDurationSeconds") or self._settings.lease_duration
        return float(self._observed.since + duration - self._clock.monotonic())

    async def _take(self, lease: Json | None) -> bool:
        """Write this process into the lease (None: create it).  False when another process was faster."""
        asked_at = self._clock.monotonic()
        wanted = _claimed(lease, self._settings, self._clock.now())
        write = self._write(wanted) if lease else self._api.create(LEASES, wanted, lane=Lane.LEASE)
        try:
            self._hold(await self._request(write), asked_at)
        except (ConflictError, AlreadyExistsError):
            return False
        except NotFoundError as e:
            if lease is not None:
                raise
            raise KqueueError(f"{e}; create the namespace, or correct leaderElection.resourceNamespace") from e
        return True

    # --- leading

    @property
    def _lead_until(self) -> float:
        return self._renewed_at + self._settings.renew_deadline

    async def _lead(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `lead` while the lease can be renewed.  True if it returned by itself, False if leadership was lost."""
        _log.info("leadership won", lease=self._settings.name, identity=self._settings.identity)
        self._notify(True)
        work = asyncio.ensure_future(lead())
        renewing = asyncio.ensure_future(self._keep_renewing())
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return True
            _log.error("leadership lost", lease=self._settings.name, identity=self._settings.identity)
            return False
        finally:
            await self._end(work)  # the renewals still run when the leading work returned by itself
            await cancel_and_wait(renewing)
            self._notify(False)

    async def _end(self, work: asyncio.Future[None]) -> None:
        """Cancel the leading work, and ensure that it ends before other replicas may take the lease."""
        guard = asyncio.ensure_future(self._guard())
        try:
            await cancel_and_wait(work)
        finally:
            await cancel_and_wait(guard)

    async def _guard(self) -> None:
        margin = (
            self._settings.lease_duration - self._settings.renew_deadline
        ) / 5  # the clocks of other replicas run meanwhile
        while (left := self._renewed_at + self._settings.lease_duration - margin - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        _log.critical("leading work did not stop in time, the process ends", lease=self._settings.name)
        self._abort()

    async def _keep_renewing(self) -> None:
        """Renew again and again; return when leadership is lost."""
        while self._held is not None:
            await self._clock.sleep(min(self._settings.retry_period, self._lead_until - self._clock.monotonic()))
            left = self._lead_until - self._clock.monotonic()
            if left <= 0:
                _log.warning("renew deadline passed", lease=self._settings.name)
                self._held = None
                return
            try:
                await within(self._clock, left, self._renew())
            except (KqueueError, TimeoutError) as e:
                self._failure = str(e) or type(e).__name__
                _log.warning("lease not renewed", lease=self._settings.name, error=str(e) or type(e).__name__)

    async def _renew(self) -> None:
        """Renew once.  `_held` is None afterwards if another process holds the lease."""
        assert self._held is not None
        asked_at = self._clock.monotonic()
        try:
            wanted = _claimed(self._held, self._settings, self._clock.now())
            self._hold(await self._request(self._write(wanted)), asked_at)
        except ConflictError:
            await self._look_again()
        except NotFoundError:  # the lease was deleted: create it again, unless another process was faster
            if not await self._take(None):
                await self._look_again()

    async def _look_again(self) -> None:
        """Check after a conflict whether the lease is still ours: an answer was lost, or the lease was annotated."""
        lease = await self._request(self._read())
        if _spec(lease).get("holderIdentity") == self._settings.identity:
            self._held = lease  # the next renewal uses this version
        else:
            self._held = None
            self._observe(lease)

    def _hold(self, lease: Json, asked_at: float) -> None:
        self._held, self._renewed_at, self._observed = lease, asked_at, None
        self._heard_at, self._failure = asked_at, ""

    async def _release(self) -> None:
        """Release the lease, so that a successor need not wait.  Best effort, because the lease expires anyway."""
        held, self._held = self._held, None
        try:
            for _ in range(_RELEASE_ATTEMPTS):
                if held is None:
                    return
                try:
                    await self._request(self._write(self._released(held)))
                except ConflictError:  # a renewal without an answer, or an annotation
                    lease = await self._request(self._read())
                    held = lease if _spec(lease).get("holderIdentity") == self._settings.identity else None
                else:
                    _log.info("lease released", lease=self._settings.name)
                    return
            error = f"it changed before each of {_RELEASE_ATTEMPTS} attempts"
        except (KqueueError, TimeoutError) as e:
            error = str(e) or type(e).__name__
        _log.warning("lease not released, it will expire", lease=self._settings.name, error=error)

    def _released(self, held: Json) -> Json:
        # One second: the successor takes the lease at once, and the field stays valid for old clients.
        return {
            **held,
            "spec": {
                **_spec(held),
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "renewTime": _micro(self._clock.now()),
            },
        }

    # --- underneath

    async def _request(self, call: Coroutine[Any, Any, Json]) -> Json:
        """Send a request with its own time limit, so that a hung connection does not use up the whole deadline."""
        return await within(self._clock, self._request_timeout, call)

    def _read(self) -> Coroutine[Any, Any, Json]:
        return self._api.get_json(LEASES, self._settings.name, self._settings.namespace, lane=Lane.LEASE)

    def _write(self, lease: Json) -> Coroutine[Any, Any, Json]:
        return self._api.replace(LEASES, lease, lane=Lane.LEASE)

    def _notify(self, leading: bool) -> None:
        if self._on_change is not None:
            self._on_change(leading)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _claimed(lease: Json | None, settings: ElectionSettings, now: datetime) -> Json:
    """Return the lease with this process as the holder from now on; None makes a new lease."""
    before = _spec(lease) if lease else {}
    ours = before.get("holderIdentity") == settings.identity
    spec = {
        **before,
        "holderIdentity": settings.identity,
        "leaseDurationSeconds": int(settings.lease_duration),
        "renewTime": _micro(now),
        "acquireTime": before.get("acquireTime") if ours else _micro(now),
        "leaseTransitions": (before.get("leaseTransitions") or 0) + (1 if lease and not ours else 0),
    }
    if lease:
        return {**lease, "spec": spec}
    meta = {"name": settings.name, "namespace": settings.namespace}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": spec}


def _spec(lease: Json) -> Json:
    spec: Json = lease.get("spec") or {}
    return spec


def _micro(moment: datetime) -> str:
    """Return a time as Kubernetes' MicroTime: UTC with exactly six digits of a second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
