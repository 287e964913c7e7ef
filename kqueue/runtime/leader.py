"""Leader election by Lease: one replica decides, the others stay warm.

What must never happen is that two lead.  Three rules see to it:

- Every write of the lease carries the resourceVersion it was read at, so of two who try only one wins.
- A follower does not compare written times (clocks differ); it notes on its own monotonic clock when the record last
  *changed*, and takes over only after a full lease duration without change.  A holder whose process has certainly
  ended, which can be seen on its own machine, is followed as soon as what it sent must have arrived.
- A leader that has not renewed for `renew_deadline`, for whatever reason, stops leading by itself.  That deadline is
  shorter than the lease, and it counts from before the last good renewal was *sent*.
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
"""Writes that give the lease back: each but the first after the lease has changed."""


class LeaseApi(Protocol):
    """What election needs of a client; `kqueue.runtime.client.Client` has it."""

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
    """Host name, mark of the process where there is one, and a random part.

    No two processes share it, nor a process with its own successor.
    """
    return "_".join(filter(None, (socket.gethostname(), own_mark(), str(uuid.uuid4()))))


def _holder_ended_for(identity: str) -> float | None:
    """Seconds for which the process with an identity of `unique_identity` has certainly been gone from this machine.

    None when that is not certain.
    """
    parts = identity.rsplit("_", 2)
    return ended_for(parts[1]) if len(parts) == 3 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """Which lease, and its times in seconds.  The defaults are those of Kueue and of client-go."""

    namespace: str
    name: str
    identity: str
    """Must be unique to the process; see `unique_identity`."""
    lease_duration: float = 15.0
    """A follower waits this long without a change of the record.  Written in whole seconds, so give whole ones."""
    renew_deadline: float = 10.0
    """A leader that has not renewed for this long stops leading."""
    retry_period: float = 2.0
    """Time between renewals, and between looks at somebody else's lease."""

    def __post_init__(self) -> None:
        """Refuse times that would let two lead.

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
    """Somebody's record as we last saw it change, at `since` on our own clock."""

    record: Json
    since: float
    ended_at: float | None = None
    """When the process of the holder had certainly ended, on our own clock; None while nothing is known of that."""


def _stop_process() -> None:
    os._exit(1)


class LeaderElection:
    """Competes for a lease; runs the leading work while, and only while, it holds it.

    `run(lead)` calls `lead()` each time leadership is won and cancels it when leadership is lost; after a loss it
    competes again.  `lead` must rebuild what it acts on from the API first, and must end soon when cancelled: if it
    does not end before others may take the lease, the process is stopped (`abort`), because a restart heals and two
    leaders do not.
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
        """`on_change` is told True before `lead` is called and False after it has ended.

        `ended_for` says for how many seconds the process of a holder, by its identity, has certainly been gone; None
        when that is not certain.
        """
        self._api, self._settings, self._clock = api, settings, clock
        self._chance = chance or random.Random()
        self._on_change, self._abort, self._ended_for = on_change, abort, ended_for
        self._held: Json | None = None  # the lease as we last wrote it; None when we do not hold it
        self._renewed_at = 0.0
        self._observed: _Observed | None = None
        self._heard_at = clock.monotonic()
        self._failure = ""
        self._request_timeout = max(settings.renew_deadline / 3, 0.001)  # a hang leaves time for two more tries

    @property
    def leading(self) -> bool:
        """Whether we hold the lease at this moment, by the clock.

        True only within the renew deadline, even if this process was stopped meanwhile and has not noticed yet: check
        it before a write that must not come from a former leader.
        """
        return self._held is not None and self._clock.monotonic() < self._lead_until

    @property
    def holder(self) -> str:
        """Who holds the lease as far as we know; empty when nobody does."""
        if self._held is not None:
            return self._settings.identity
        return _spec(self._observed.record).get("holderIdentity") or "" if self._observed else ""

    def trouble(self) -> str | None:
        """For readiness: why we cannot lead, or could not if the leader went; None when all is well.

        A leader renews; a follower looks at the lease again and again.
        """
        leads = self._held is not None
        limit = self._settings.renew_deadline * 2 / 3 if leads else 2 * self._settings.lease_duration
        age = self._clock.monotonic() - (self._renewed_at if leads else self._heard_at)
        if age <= limit:
            return None
        because = f": {self._failure}" if self._failure else ""
        return f"the lease has not been {'renewed' if leads else 'seen'} for {age:.0f} s{because}"

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]], *, when: asyncio.Event | None = None) -> None:
        """Compete until `lead` returns by itself, or until cancelled.  Then the lease is released.

        Before `when` is set the lease is watched and not taken: so a lease that nobody renews runs out while this
        process is still getting ready.  None: it may be taken at once.

        Errors of `lead` are raised, after the lease was released.
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
        """Return when the lease is ours; it is taken only when `ready` is set."""
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
        """One look at the lease; take it if it is free, expired, or ours already.  True when it is ours.

        Without `take` it is only looked at.
        """
        try:
            lease = await self._request(self._read())
        except NotFoundError:
            return await self._take(None) if take else False
        self._observe(lease)
        if not take:
            return False
        holder = _spec(lease).get("holderIdentity") or ""
        # Ours although we do not know: the answer to our own acquiring write was lost.
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
            _log.info("lease observed", lease=self._settings.name, holder=now.get("holderIdentity") or "nobody")

    def _look_for_the_holder(self) -> None:
        """Note since when the process of the holder has been gone, which only a process on its machine can find out."""
        seen = self._observed
        if seen is None or seen.ended_at is not None:
            return
        holder = _spec(seen.record).get("holderIdentity") or ""
        if holder and (seconds := self._ended_for(holder)) is not None:
            self._observed = replace(seen, ended_at=self._clock.monotonic() - seconds)
            _log.info("the holder of the lease has ended on this machine", lease=self._settings.name, holder=holder)

    def _time_to_expiry(self) -> float:
        """Seconds until the observed record is a full duration old; its own duration counts, not ours.

        A holder whose process has ended sends nothing any more: what it sent before has as long to arrive as what a
        leader sent before it gave up, which is the lease less the renew deadline.
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
        """Write ourselves into the lease (None: create it).  False when somebody was faster."""
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
        self._tell(True)
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
            await self._end(work)  # still renewing, if we leave of our own will
            await cancel_and_wait(renewing)
            self._tell(False)

    async def _end(self, work: asyncio.Future[None]) -> None:
        """Cancel the leading work, and see that it ends before others may take the lease."""
        guard = asyncio.ensure_future(self._guard())
        try:
            await cancel_and_wait(work)
        finally:
            await cancel_and_wait(guard)

    async def _guard(self) -> None:
        margin = (self._settings.lease_duration - self._settings.renew_deadline) / 5  # others' clocks run, too
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
        """One renewal.  `_held` is None afterwards if somebody else holds the lease."""
        assert self._held is not None
        asked_at = self._clock.monotonic()
        try:
            wanted = _claimed(self._held, self._settings, self._clock.now())
            self._hold(await self._request(self._write(wanted)), asked_at)
        except ConflictError:
            await self._look_again()
        except NotFoundError:  # somebody deleted it: make it again, unless another was faster
            if not await self._take(None):
                await self._look_again()

    async def _look_again(self) -> None:
        """After a conflict: still ours (an answer of ours was lost, or it was annotated), or somebody else's?"""
        lease = await self._request(self._read())
        if _spec(lease).get("holderIdentity") == self._settings.identity:
            self._held = lease  # renewed with this version at the next turn
        else:
            self._held = None
            self._observe(lease)

    def _hold(self, lease: Json, asked_at: float) -> None:
        self._held, self._renewed_at, self._observed = lease, asked_at, None
        self._heard_at, self._failure = asked_at, ""

    async def _release(self) -> None:
        """Give the lease back, so that a successor need not wait.  Best effort: it expires anyway."""
        held, self._held = self._held, None
        try:
            for _ in range(_RELEASE_ATTEMPTS):
                if held is None:
                    return
                try:
                    await self._request(self._write(self._released(held)))
                except ConflictError:  # a renewal whose answer did not come, or an annotation
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
        # One second: the successor takes it at once, and an old client that reads the field still finds a valid one.
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
        """Every request has its own time limit: a hung connection must not use up the whole deadline."""
        return await within(self._clock, self._request_timeout, call)

    def _read(self) -> Coroutine[Any, Any, Json]:
        return self._api.get_json(LEASES, self._settings.name, self._settings.namespace, lane=Lane.LEASE)

    def _write(self, lease: Json) -> Coroutine[Any, Any, Json]:
        return self._api.replace(LEASES, lease, lane=Lane.LEASE)

    def _tell(self, leading: bool) -> None:
        if self._on_change is not None:
            self._on_change(leading)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _claimed(lease: Json | None, settings: ElectionSettings, now: datetime) -> Json:
    """The lease as it reads when we hold it from now on; None makes a new one."""
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
    """Kubernetes' MicroTime: UTC with exactly six digits of a second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
