"""Leader election: at most one leads, whatever the network does, and somebody leads soon again."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.clock import FakeClock, SystemClock
from kqueue.errors import (
    AlreadyExistsError,
    ConfigError,
    ConflictError,
    KqueueError,
    NotFoundError,
    UnreachableError,
)
from kqueue.runtime import leader, process_mark
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.leader import ElectionSettings, LeaderElection, unique_identity
from kqueue.runtime.resources import ResourceType
from tests.unit.runtime.conftest import eventually, running
from tests.unit.runtime.fake_server import FakeServer

Json = dict[str, Any]


class Shelf:
    """The one lease, as an API server keeps it."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.has_namespace = True

    def store(self, lease: Json) -> Json:
        self.version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    @property
    def spec(self) -> Json:
        assert self.lease is not None
        spec: Json = self.lease["spec"]
        return spec


class Door:
    """One candidate's way to the shelf.

    `fault` is what its network does: "" nothing, "hang", "refuse", or "lose" (acts, but the answer is lost).
    """

    def __init__(self, shelf: Shelf) -> None:
        self.shelf, self.fault = shelf, ""
        self.requests = 0

    async def get_json(
        self, resource: ResourceType, name: str, namespace: str | None = None, *, lane: Lane = Lane.JOBS
    ) -> Json:
        await self._pass()
        if self.shelf.lease is None:
            raise NotFoundError("no lease", status=404)
        return self._answer(self.shelf.lease)

    async def create(
        self, resource: ResourceType, obj: Any, namespace: str | None = None, *, lane: Lane = Lane.JOBS
    ) -> Json:
        await self._pass()
        if not self.shelf.has_namespace:
            raise NotFoundError(f"create lease: namespaces {namespace!r} not found", status=404)
        if self.shelf.lease is not None:
            raise AlreadyExistsError("there is one", status=409)
        return self._answer(self.shelf.store(obj))

    async def replace(self, resource: ResourceType, obj: Any, *, lane: Lane = Lane.JOBS) -> Json:
        await self._pass()
        if self.shelf.lease is None:
            raise NotFoundError("no lease", status=404)
        if obj["metadata"]["resourceVersion"] != self.shelf.lease["metadata"]["resourceVersion"]:
            raise ConflictError("newer", status=409)
        return self._answer(self.shelf.store(obj))

    async def _pass(self) -> None:
        self.requests += 1
        if self.fault == "hang":
            await asyncio.Event().wait()
        if self.fault == "refuse":
            raise UnreachableError("refused")

    def _answer(self, lease: Json) -> Json:
        if self.fault == "lose":
            raise UnreachableError("reset")
        return lease


class Candidate:
    """A process that competes, and what became of it."""

    def __init__(
        self,
        name: str,
        shelf: Shelf,
        clock: FakeClock,
        ended_for: Callable[[str], float | None] = lambda _: None,
        **more: Any,
    ) -> None:
        self.door, self.name = Door(shelf), name
        self.terms = 0
        self.at_work = False
        self.linger = 0.0
        self.clock = clock
        self.aborted = False
        settings_ = ElectionSettings(namespace="ns", name="l", identity=name, **more)
        self.election = LeaderElection(
            self.door, settings_, clock=clock, chance=random.Random(name), abort=self._abort, ended_for=ended_for
        )

    def _abort(self) -> None:
        self.aborted = True
        self.at_work = False

    async def lead(self) -> None:
        self.terms += 1
        self.at_work = True
        try:
            await asyncio.Event().wait()
        finally:
            try:
                if self.linger:
                    await self.clock.sleep(self.linger)
            finally:
                self.at_work = False

    def run(self, when: asyncio.Event | None = None) -> Any:
        return self.election.run(self.lead, when=when)


async def pass_time(clock: FakeClock, seconds: float, *candidates: Candidate) -> None:
    """Let `seconds` go by; at no moment may two be at work."""
    await clock.advance(0)
    for _ in range(round(seconds * 4)):
        await clock.advance(0.25)
        assert sum(c.at_work for c in candidates) <= 1, [c.name for c in candidates if c.at_work]
        assert all(c.at_work for c in candidates if c.election.leading)


async def test_one_of_two_leads_and_keeps_leading() -> None:
    """The first becomes leader and renews; the second waits."""
    clock, shelf = FakeClock(), Shelf()
    a, b = Candidate("a", shelf, clock), Candidate("b", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        async with running(b.run()):
            await pass_time(clock, 120, a, b)
            holders = (a.election.holder, b.election.holder)

    assert (a.terms, b.terms) == (1, 0)
    assert holders == ("a", "a")


async def test_the_record_reads_as_other_clients_expect() -> None:
    """UTC microseconds, whole seconds, and a transition for each new holder."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 5, a)
        spec = shelf.spec

    assert spec["holderIdentity"] == "a"
    assert spec["leaseDurationSeconds"] == 15
    assert spec["leaseTransitions"] == 0
    assert spec["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert datetime.fromisoformat(spec["renewTime"]) > datetime.fromisoformat(spec["acquireTime"])


async def test_a_clean_end_hands_over_at_once() -> None:
    """The lease is released, and the successor does not wait for it to expire."""
    clock, shelf = FakeClock(), Shelf()
    a, b = Candidate("a", shelf, clock), Candidate("b", shelf, clock)

    async with running(b.run()):
        async with running(a.run()):
            await pass_time(clock, 10, a, b)
            first = [c for c in (a, b) if c.at_work]
        await pass_time(clock, 3, a, b)
        second = [c for c in (a, b) if c.at_work]
        transitions = shelf.spec["leaseTransitions"]

    assert len(first) == 1
    assert second == [b]
    assert transitions == (1 if first == [a] else 0)


async def test_a_lost_answer_to_a_renewal_does_not_keep_the_lease() -> None:
    """The release conflicts with the renewal, finds that the lease is its own, and is written on top of it."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        a.door.fault = "lose"
        before = shelf.version
        while shelf.version == before:
            await clock.advance(0.25)
        a.door.fault = ""

    assert shelf.spec["holderIdentity"] == ""


async def test_a_lease_of_another_is_not_released() -> None:
    """Somebody else took it, and the leader ends before it has heard of that."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        shelf.store({**(shelf.lease or {}), "spec": {**shelf.spec, "holderIdentity": "b"}})

    assert shelf.spec["holderIdentity"] == "b"


@pytest.mark.parametrize("fault", ["hang", "refuse", "lose"])
async def test_a_leader_that_cannot_renew_stops_before_another_starts(fault: str) -> None:
    """Whether requests hang, fail or lose their answers: leading work ends first, then the other takes over."""
    clock, shelf = FakeClock(), Shelf()
    a, b = Candidate("a", shelf, clock), Candidate("b", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        async with running(b.run()):
            await pass_time(clock, 5, a, b)
            a.door.fault = fault
            await pass_time(clock, 12, a, b)
            stopped = not a.at_work
            if fault == "lose":  # its writes did arrive, so the lease was kept alive until it stopped
                a.door.fault = "hang"
            await pass_time(clock, 30, a, b)
            a.door.fault = ""
            await pass_time(clock, 60, a, b)

    assert stopped
    assert (a.terms, b.terms) == (1, 1)
    assert not a.aborted


async def test_a_short_outage_costs_nothing() -> None:
    """Renewals that fail for less than the deadline do not end the term."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        for _ in range(5):
            a.door.fault = "hang"
            await pass_time(clock, 5, a)
            a.door.fault = ""
            await pass_time(clock, 5, a)

    assert a.terms == 1


async def test_a_lost_answer_to_a_renewal_is_no_loss() -> None:
    """After the conflict with its own write the leader recognises its lease."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        a.door.fault = "lose"
        await pass_time(clock, 3, a)
        a.door.fault = ""
        await pass_time(clock, 30, a)

    assert a.terms == 1


async def test_a_lost_answer_to_the_first_claim_is_no_wait() -> None:
    """A candidate that finds itself in the lease takes it, without waiting for its own claim to expire."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)
    a.door.fault = "lose"

    async with running(a.run()):
        await pass_time(clock, 1, a)
        a.door.fault = ""
        await pass_time(clock, 5, a)
        at_work = a.at_work

    assert at_work


async def test_written_times_do_not_matter() -> None:
    """A lease whose holder's clock is years off is respected as long as it changes, and not longer."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)
    shelf.store({"metadata": {"name": "l", "namespace": "ns"}, "spec": {
        "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "1999-01-01T00:00:00.000000Z"}})  # fmt: skip

    async with running(a.run()):
        for minute in range(5):
            await pass_time(clock, 14, a)
            renewed = {**shelf.spec, "renewTime": f"1999-01-01T00:0{minute}:30.000000Z"}
            shelf.store({**(shelf.lease or {}), "spec": renewed})
        respected = not a.at_work
        await pass_time(clock, 20, a)
        taken = a.at_work

    assert respected
    assert taken
    assert shelf.spec["leaseTransitions"] == 1


async def test_a_deleted_lease_is_made_again() -> None:
    """Somebody's `kubectl delete lease` does not cost the leader its term."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        shelf.lease = None
        await pass_time(clock, 30, a)

        assert shelf.spec["holderIdentity"] == "a"
    assert a.terms == 1


async def test_a_namespace_that_is_missing_is_told_with_its_remedy() -> None:
    """Whoever makes it need not start the process again."""
    clock, shelf = FakeClock(), Shelf()
    shelf.has_namespace = False
    a = Candidate("a", shelf, clock)

    with structlog.testing.capture_logs() as logs:
        async with running(a.run()):
            await pass_time(clock, 10, a)
            told = [line["error"] for line in logs if line["event"] == "lease not reachable"]
            shelf.has_namespace = True
            await pass_time(clock, 30, a)

            assert a.at_work
    assert told
    assert all("create the namespace, or correct leaderElection.resourceNamespace" in error for error in told)


async def test_a_usurped_leader_stops_at_once() -> None:
    """When the record names another, leading work is cancelled at the next renewal, not at the deadline."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        shelf.store({**(shelf.lease or {}), "spec": {**shelf.spec, "holderIdentity": "x"}})
        await pass_time(clock, 3, a)
        at_work = a.at_work

    assert not at_work


async def test_work_that_does_not_stop_ends_the_process() -> None:
    """If cancelled work lingers until others may take the lease, the process is stopped."""
    clock, shelf = FakeClock(), Shelf()
    a, b = Candidate("a", shelf, clock), Candidate("b", shelf, clock)
    a.linger = 60

    async with running(a.run()):
        await pass_time(clock, 1, a)
        async with running(b.run()):
            a.door.fault = "hang"
            await pass_time(clock, 60, a, b)

    assert a.aborted
    assert b.terms == 1


async def test_slow_shutdown_keeps_the_lease_meanwhile() -> None:
    """Leading work that takes its time to end is not overtaken: the lease is renewed until it has."""
    clock, shelf = FakeClock(), Shelf()
    a, b = Candidate("a", shelf, clock), Candidate("b", shelf, clock)
    a.linger = 60

    run = asyncio.ensure_future(a.run())
    await pass_time(clock, 1, a)
    async with running(b.run()):
        await pass_time(clock, 1, a, b)
        run.cancel()
        await pass_time(clock, 70, a, b)
        await asyncio.gather(run, return_exceptions=True)

    assert not a.aborted
    assert b.terms == 1


async def test_leading_is_false_as_soon_as_the_deadline_is_past() -> None:
    """Even before anything has noticed, a process that was stopped for long does not count itself as leader."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async with running(a.run()):
        await pass_time(clock, 1, a)
        before = a.election.leading
        clock._elapsed += 11  # the process was stopped: time went by, nothing ran
        after = a.election.leading

    assert (before, after) == (True, False)


async def test_the_error_of_the_work_is_raised_and_the_lease_released() -> None:
    """A crash of the leading work frees the lease for the next."""
    clock, shelf = FakeClock(), Shelf()
    a = Candidate("a", shelf, clock)

    async def lead() -> None:
        raise KqueueError("crashed")

    with pytest.raises(KqueueError, match="crashed"):
        await a.election.run(lead)

    assert shelf.spec["holderIdentity"] == ""


@pytest.mark.parametrize(
    "times",
    [
        pytest.param({"lease_duration": 10.0, "renew_deadline": 10.0}, id="deadline-not-below-duration"),
        pytest.param({"renew_deadline": 2.0, "retry_period": 2.0}, id="retry-not-below-deadline"),
        pytest.param({"retry_period": 0.0}, id="no-retry-period"),
        pytest.param({"lease_duration": 15.5}, id="fraction-of-a-second"),
    ],
)
def test_times_that_would_let_two_lead_are_refused(times: dict[str, float]) -> None:
    """The error names the section of the configuration file."""
    with pytest.raises(ConfigError, match="leaderElection"):
        ElectionSettings(namespace="ns", name="l", identity=unique_identity(), **times)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["", "", "hang", "refuse", "lose"]), st.integers(1, 20)),
        max_size=15,
    )
)
def test_never_two_and_finally_one(steps: list[tuple[int, str, int]]) -> None:
    """Three candidates, any sequence of network faults: never two at work, and one in the end."""

    async def play() -> None:
        clock, shelf = FakeClock(), Shelf()
        crowd = [Candidate(name, shelf, clock) for name in "abc"]
        async with running(*(c.run() for c in crowd)):
            for who, fault, seconds in steps:
                crowd[who].door.fault = fault
                await pass_time(clock, seconds, *crowd)
            for c in crowd:
                c.door.fault = ""
            await pass_time(clock, 40, *crowd)
            assert sum(c.at_work for c in crowd) == 1

    asyncio.run(play())


async def test_election_works_over_http(server: FakeServer, client: Client) -> None:
    """The real client and a server: won, renewed at least once, released."""
    settings_ = ElectionSettings(
        namespace="ns", name="l", identity="a", lease_duration=1, renew_deadline=0.9, retry_period=0.02
    )
    election = LeaderElection(client, settings_, clock=SystemClock())

    async def lead() -> None:
        won = server.leases["l"]["spec"]["renewTime"]
        await eventually(lambda: bool(server.leases["l"]["spec"]["renewTime"] > won))

    await election.run(lead)

    assert server.leases["l"]["spec"]["holderIdentity"] == ""
    assert {verb for verb, _, _ in server.requests} == {"get", "create", "update"}


# --- clocks that jump, processes that are stopped, and what readiness says


class Steppable(FakeClock):
    """A clock whose wall time somebody sets, and which may pass while nobody runs."""

    def __init__(self) -> None:
        super().__init__()
        self.step = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.step

    def freeze(self, seconds: float) -> None:
        """The process is stopped for so long: time passes, and no task runs."""
        self._elapsed += seconds


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
async def test_steps_of_the_wall_clock_do_not_matter(days: int) -> None:
    """Neither the leader's nor the follower's: terms go on, and a dead leader is followed within its lease."""
    shelf, clocks = Shelf(), (Steppable(), Steppable())
    a, b = Candidate("a", shelf, clocks[0]), Candidate("b", shelf, clocks[1])

    async def pass_both(seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            for clock in clocks:
                await clock.advance(0.25)
            assert not (a.at_work and b.at_work)

    async with running(a.run()):
        await pass_both(1)
        async with running(b.run()):
            for each in (0, 1):
                clocks[each].step = timedelta(days=days)
                await pass_both(40)
                clocks[each].step = timedelta(0)
                await pass_both(40)
            assert (a.terms, b.terms, a.at_work) == (1, 0, True)
            a.door.fault = "hang"
            clocks[1].step = timedelta(days=days)
            await pass_both(20)
            assert b.at_work


async def test_who_was_stopped_for_longer_than_its_lease_knows_before_anything_of_it_runs() -> None:
    """Whoever asks before a write is told No, also when no timer has had its turn yet; then the term ends."""
    clock, shelf = Steppable(), Shelf()
    a, b = Candidate("a", shelf, clock), Candidate("b", shelf, Steppable())
    async with running(a.run()):
        await pass_time(clock, 1, a)
        leading = [a.election.leading]
        clock.freeze(20)
        leading.append(a.election.leading)
        at_work = [a.at_work]
        async with running(b.run()):
            await b.clock.advance(40)
            at_work.append(b.at_work)
            await clock.advance(1)
            at_work.append(a.at_work)
    assert leading == [True, False]
    assert at_work == [True, True, False]
    assert (a.terms, b.terms) == (1, 1)


@pytest.mark.parametrize(
    ("fault", "seconds", "leads", "trouble"),
    [
        pytest.param("", 60, True, None, id="a leader that renews"),
        pytest.param("refuse", 5, True, None, id="a leader that has missed a renewal"),
        pytest.param("refuse", 9, True, "has not been renewed for", id="a leader that soon has to go"),
        pytest.param("", 60, False, None, id="a follower that looks"),
        pytest.param("refuse", 20, False, None, id="a follower that was not answered for a while"),
        pytest.param("refuse", 60, False, "has not been seen for", id="a follower that could not follow"),
    ],
)
async def test_readiness_says_what_keeps_it_from_its_part(
    fault: str, seconds: float, leads: bool, trouble: str | None
) -> None:
    """With the failure; a follower that sees who leads is ready."""
    clock, shelf = FakeClock(), Shelf()
    other, one = Candidate("other", shelf, clock), Candidate("one", shelf, clock)
    first, second = (one, other) if leads else (other, one)
    async with running(first.run()):
        await pass_time(clock, 1, first)
        async with running(second.run()):
            await pass_time(clock, 3, first, second)
            one.door.fault = fault
            await pass_time(clock, seconds, first, second)
            told = one.election.trouble()

    assert (told is None) is (trouble is None)
    assert trouble is None or (trouble in (told or "") and "refused" in (told or ""))


async def killed(shelf: Shelf, clock: FakeClock) -> None:
    """A leader of the name `dead` renews for the last time now, and gives nothing back."""
    dead = Candidate("dead", shelf, clock)
    async with running(dead.run()):
        await pass_time(clock, 1, dead)
        lease = shelf.lease
    assert lease is not None
    shelf.store(lease)


async def test_a_lease_runs_out_while_its_successor_gets_ready() -> None:
    """It is watched from the start, a look every retry period, and taken as soon as the successor is ready, not before."""
    clock, shelf, ready = FakeClock(), Shelf(), asyncio.Event()
    await killed(shelf, clock)
    late = Candidate("late", shelf, clock)
    async with running(late.run(ready)):
        await pass_time(clock, 40, late)
        assert (late.terms, shelf.spec["holderIdentity"]) == (0, "dead")
        assert 40 / 2.4 <= late.door.requests <= 40 / 2 + 2
        ready.set()
        await pass_time(clock, 0.25, late)
        assert (late.at_work, shelf.spec["holderIdentity"]) == (True, "late")


async def test_a_lease_that_nobody_has_is_not_taken_before_its_taker_is_ready() -> None:
    """Neither made nor taken: whoever leads must be able to work."""
    clock, shelf, ready = FakeClock(), Shelf(), asyncio.Event()
    early = Candidate("early", shelf, clock)
    async with running(early.run(ready)):
        await pass_time(clock, 10, early)
        assert shelf.lease is None
        ready.set()
        await pass_time(clock, 0.25, early)
        assert early.at_work


@pytest.mark.parametrize(
    ("gone_for", "earliest", "latest"),
    [
        pytest.param(0.0, 5.0, 6.0, id="what-it-sent-has-the-margin-between-deadline-and-lease-to-arrive"),
        pytest.param(3.0, 2.0, 3.0, id="time-for-which-it-was-gone-at-the-first-look-counts"),
        pytest.param(4.5, 0.5, 1.5, id="most-of-that-time-may-have-passed"),
        pytest.param(None, 15.0, 18.0, id="a-holder-of-which-nothing-is-known-keeps-its-whole-lease"),
    ],
)
async def test_a_holder_that_has_ended_on_this_machine_is_followed_sooner(
    gone_for: float | None, earliest: float, latest: float
) -> None:
    """Only when its end is certain."""
    clock, shelf = FakeClock(), Shelf()
    await killed(shelf, clock)
    successor = Candidate("next", shelf, clock, ended_for=lambda holder: gone_for if holder == "dead" else None)
    async with running(successor.run()):
        await pass_time(clock, earliest - 0.25, successor)
        assert not successor.at_work
        await pass_time(clock, latest - earliest + 0.25, successor)
        assert successor.at_work


async def test_the_end_of_a_process_shows_in_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that runs is alive; when it has ended its successor on this machine knows, before and after its parent has
    read its exit status, and counts from its own start when the child was gone by then.
    """
    script = (
        "import sys; from kqueue.runtime.leader import unique_identity as u; print(u(), flush=True); sys.stdin.read()"
    )
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    identity = (await asyncio.wait_for(child.stdout.readline(), 30)).decode().strip()
    while_it_ran = process_mark.take_census()
    assert leader._holder_ended_for(identity) is None
    child.kill()
    await asyncio.wait_for(child.wait(), 30)
    assert while_it_ran is not None
    later = replace(while_it_ran, began=while_it_ran.began + 10**9, taken_at=while_it_ran.taken_at - 100)
    monkeypatch.setattr(process_mark, "_at_start", later)
    assert leader._holder_ended_for(identity) == 0.0, "it was there when the processes were counted"
    monkeypatch.setattr(process_mark, "_at_start", replace(later, pids=later.pids - {child.pid}))
    assert (leader._holder_ended_for(identity) or 0.0) >= 100
    assert leader._holder_ended_for(unique_identity()) is None
