"""A model of what a cache believes of workloads: initial, assumed, written, added, and gone again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kqueue.api.wire import kueue as wire
from kqueue.core.quota import available
from kqueue.state.charge import Charge
from tests.readings import free_by_node
from tests.unit.state.test_cache import CPU, given_back, holding, make_cache, make_workload, version

NAMES = ("a", "b")
CPUS = 2

State = Literal["initial", "assumed", "written", "added"]


@dataclass(slots=True)
class Subject:
    """One workload: what the API server has, what its watch owes, and what the cache is to believe."""

    name: str
    now: wire.Workload | None = None
    """The object of the API server."""
    events: deque[wire.Workload | None] = field(default_factory=deque)
    """What the watch has not delivered yet, the oldest first; None: the object was deleted."""
    seen: wire.Workload | None = None
    """The last delivered object."""
    state: State = "initial"
    decided: str = ""
    """UID of the object that the assumption is about."""
    decision: Charge | None = None
    """The charge of the last decision; writes of earlier ones may still be under way."""
    written: int = 0
    """Version in which the assumption was stored."""

    @property
    def key(self) -> str:
        return f"ns/{self.name}"


def number(workload: wire.Workload) -> int:
    return int(workload.metadata.resource_version)


def reserves(workload: wire.Workload) -> bool:
    return workload.status.admission is not None and not ended(workload)


def ended(workload: wire.Workload) -> bool:
    return any(c.type == "Finished" and c.status == "True" for c in workload.status.conditions)


class Assumptions(RuleBasedStateMachine):
    """Decisions, their writes, and the watch, in any order that they can have."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = make_cache()
        self.versions = 0
        self.births = 0
        self.subjects = {name: Subject(name) for name in NAMES}
        self.open: list[tuple[Subject, Charge, str]] = []
        """Decisions whose write has not ended, with the UID that each is about."""

    # --- what the API server does

    def _store(self, subject: Subject, obj: wire.Workload | None) -> None:
        if obj is not None:
            self.versions += 1
            uid = subject.now.metadata.uid if subject.now is not None else self._new_uid(subject)
            obj = version(obj, self.versions)
            obj = msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, uid=uid))
        subject.now = obj
        subject.events.append(obj)

    def _new_uid(self, subject: Subject) -> str:
        self.births += 1
        return f"{subject.name}-{self.births}"

    @initialize()
    def begin(self) -> None:
        for subject in self.subjects.values():
            self._store(subject, make_workload(subject.name, cpus=CPUS))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if self.subjects[name].now is not None:
            self._store(self.subjects[name], None)

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        if self.subjects[name].now is None:
            self._store(self.subjects[name], make_workload(name, cpus=CPUS))

    @rule(name=st.sampled_from(NAMES))
    def touch(self, name: str) -> None:
        """Another client changes a field that decides nothing."""
        now = self.subjects[name].now
        if now is not None:
            self._store(self.subjects[name], now)

    @rule(name=st.sampled_from(NAMES))
    def finish(self, name: str) -> None:
        now = self.subjects[name].now
        if now is not None and reserves(now):
            self._store(self.subjects[name], make_workload(name, host="h1", cpus=CPUS, finished=True))

    @rule(name=st.sampled_from(NAMES))
    def give_back(self, name: str) -> None:
        now = self.subjects[name].now
        if now is not None and reserves(now):
            self._store(self.subjects[name], msgspec.structs.replace(now, status=given_back(name).status))

    # --- what the watch does

    @rule(name=st.sampled_from(NAMES), most=st.integers(1, 4))
    def deliver(self, name: str, most: int) -> None:
        """Deliver the next event, or only the last of several: a watch that begins anew skips versions."""
        subject = self.subjects[name]
        if not subject.events:
            return
        for _ in range(min(most, len(subject.events))):
            obj = subject.events.popleft()
        before, subject.seen = subject.seen, obj
        freed = self.cache.held.on_workload(subject.key, obj, before)
        was, subject.state = subject.state, self._believed(subject, obj)
        assert freed == (was != "initial" and subject.state == "initial")

    def _believed(self, subject: Subject, obj: wire.Workload | None) -> State:
        if obj is None or ended(obj):
            return "initial"
        if reserves(obj):
            return "added"
        same = obj.metadata.uid == subject.decided
        if subject.state == "assumed" and same:
            return "assumed"
        if subject.state == "written" and same and number(obj) < subject.written:
            return "written"
        return "initial"

    # --- what the scheduling loop does

    @rule(name=st.sampled_from(NAMES))
    def assume(self, name: str) -> None:
        """Decide about a workload that waits, as far as the watch has told."""
        subject = self.subjects[name]
        seen = subject.seen
        if seen is None or subject.state != "initial" or reserves(seen) or ended(seen):
            return
        decided = msgspec.structs.replace(make_workload(name, host="h1", cpus=CPUS), metadata=seen.metadata)
        charge = self.cache.held.assumed(holding(decided))
        subject.state, subject.decided, subject.decision = "assumed", seen.metadata.uid, charge
        self.open.append((subject, charge, seen.metadata.uid))

    def _store_decision(self, subject: Subject, uid: str) -> wire.Workload | None:
        """Write the decision, unless the object is another one or has changed so that it does not wait any more."""
        now = subject.now
        if now is None or now.metadata.uid != uid or reserves(now) or ended(now):
            return None
        status = make_workload(subject.name, host="h1", cpus=CPUS).status
        self._store(subject, msgspec.structs.replace(now, status=status))
        return subject.now

    def _is_assumed(self, subject: Subject, uid: str) -> bool:
        return (subject.state, subject.decided) == ("assumed", uid)

    @precondition(lambda self: bool(self.open))
    @rule(which=st.integers(0, 2), told=st.sampled_from(["answer", "read", "lost"]), late=st.booleans())
    def write(self, which: int, told: str, late: bool) -> None:
        """End a write: the answer confirms it, or the object is read after the answer was lost, or nothing is known."""
        subject, charge, uid = self.open.pop(which % len(self.open))
        stored = self._store_decision(subject, uid)
        if stored is not None and late:
            self.deliver(name=subject.name, most=4)
        if stored is not None and told != "lost":
            if self._is_assumed(subject, uid):
                subject.state, subject.written = "written", number(stored)
            if told == "answer":
                charge.confirm(stored)
            else:
                self.cache.held.on_answer(subject.key, stored)
        charge.settle()
        if self._is_assumed(subject, uid) and subject.decision is charge:
            subject.state = "initial"

    # --- what must hold

    @invariant()
    def charges_are_those_of_the_model(self) -> None:
        charged = [s.name for s in self.subjects.values() if s.state != "initial"]
        node = self.cache.quota.node_of("team")
        assert node is not None
        free = (available(node, CPU), free_by_node(self.cache.ledger)["h1"]["cpu"])
        assert free == (10_000 - 1_000 * CPUS * len(charged), 8_000 - 1_000 * CPUS * len(charged))

    @invariant()
    def only_what_no_event_has_confirmed_is_assumed(self) -> None:
        for subject in self.subjects.values():
            held = self.cache.held.holding(subject.key)
            assert (held is not None) == (subject.state != "initial")
            if held is not None:
                assert held.assumed == (subject.state in ("assumed", "written"))

    @invariant()
    def sums_equal_their_parts(self) -> None:
        assert self.cache.audits.audit() == []

    def teardown(self) -> None:
        """When every write has ended and the watch has caught up, the cache holds what the API server has."""
        while self.open:
            subject, charge, _ = self.open.pop()
            charge.settle()
            subject.state = "initial" if subject.state == "assumed" else subject.state
        for subject in self.subjects.values():
            while subject.events:
                self.deliver(name=subject.name, most=1)
            held = self.cache.held.holding(subject.key) is not None
            assert held == (subject.now is not None and reserves(subject.now))


@pytest.mark.mechanism("3.11")
def test_the_cache_believes_what_the_model_says() -> None:
    """Row 3.11: a workload is initial, assumed, written, added and gone, whatever becomes of writes and events.

    An assumption ends with the outcome of its write: an expired one is an assumption whose write was lost.
    """
    run_state_machine_as_test(Assumptions, settings=settings(max_examples=150, stateful_step_count=50, deadline=None))
