"""Numbers and phase of a gang: every row of the table of phases, and every change between two phases."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kqueue.jobs.gang.counts import PHASE_EDGES, PhaseFacts, gang_counts, member_counts, next_phase, wanted_phase
from kqueue.jobs.gang.value import GangPhase, MemberCounts
from kqueue.jobs.pod_view import ManagedPod
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import condition, done, failed, group_workload, member, running

PENDING, SCHEDULING, RUNNING, UNKNOWN, FAILED, FINISHED = GangPhase
EXTRA = {"kqueue.dev/extra": "true"}
NO_NODE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def facts(
    *, admitted: bool = True, lost: bool = False, hindered: bool = False, present: int = 2, **numbers: int
) -> PhaseFacts:
    """Those of a gang with quorum 2; `lost`: a member has failed and was not replaced."""
    counts = MemberCounts(present=present, **numbers)
    return PhaseFacts(quorum=2, counts=counts, admitted=admitted, failed=lost, hindered=hindered)


# --- the table


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(FINISHED, facts(admitted=False, running=2), FINISHED, id="1-finished-stays"),
        pytest.param(RUNNING, facts(succeeded=2), FINISHED, id="1-all-succeeded"),
        pytest.param(RUNNING, facts(succeeded=2, admitted=False), FINISHED, id="1-comes-before-2"),
        pytest.param(RUNNING, facts(succeeded=2, running=1, present=3), RUNNING, id="1-an-extra-runs-on"),
        pytest.param(RUNNING, facts(succeeded=1, running=1), RUNNING, id="1-one-of-two"),
        pytest.param(RUNNING, facts(admitted=False, running=2), PENDING, id="2-not-admitted"),
        pytest.param(RUNNING, facts(admitted=False, lost=True), PENDING, id="2-comes-before-3"),
        pytest.param(RUNNING, facts(lost=True, running=2, present=3), FAILED, id="3-comes-before-4"),
        pytest.param(RUNNING, facts(lost=True, hindered=True), FAILED, id="3-comes-before-5"),
        pytest.param(SCHEDULING, facts(running=2), RUNNING, id="4-the-quorum-runs"),
        pytest.param(SCHEDULING, facts(running=1, succeeded=1), RUNNING, id="4-some-have-succeeded"),
        pytest.param(RUNNING, facts(running=2, hindered=True, present=3), RUNNING, id="4-comes-before-5"),
        pytest.param(SCHEDULING, facts(scheduled=1, hindered=True), UNKNOWN, id="5-from-scheduling"),
        pytest.param(RUNNING, facts(scheduled=1, hindered=True), UNKNOWN, id="5-from-running"),
        pytest.param(UNKNOWN, facts(scheduled=1, hindered=True), UNKNOWN, id="5-stays"),
        pytest.param(PENDING, facts(scheduled=1, hindered=True), SCHEDULING, id="5-not-from-pending"),
        pytest.param(FAILED, facts(scheduled=1, hindered=True), SCHEDULING, id="5-not-from-failed"),
        pytest.param(SCHEDULING, facts(scheduled=2, hindered=True), SCHEDULING, id="5-not-once-scheduled"),
        pytest.param(SCHEDULING, facts(scheduled=1), SCHEDULING, id="5-not-without-a-cause"),
        pytest.param(PENDING, facts(), SCHEDULING, id="6-released"),
        pytest.param(RUNNING, facts(scheduled=2, running=1), SCHEDULING, id="6-a-replacement-is-bound"),
    ],
)
def test_the_first_rule_that_holds_counts(before: GangPhase, now: PhaseFacts, expected: GangPhase) -> None:
    """G3.13, row by row."""
    assert wanted_phase(before, now) is expected


HINDERED, LOST, NOT_ADMITTED = facts(hindered=True), facts(lost=True), facts(admitted=False)
RUNS, STARTS, ENDED = facts(running=2), facts(scheduled=2), facts(succeeded=2)


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        (None, NOT_ADMITTED, PENDING),
        (PENDING, STARTS, SCHEDULING),
        (SCHEDULING, RUNS, RUNNING),
        (SCHEDULING, HINDERED, UNKNOWN),
        (SCHEDULING, LOST, FAILED),
        (SCHEDULING, NOT_ADMITTED, PENDING),
        (SCHEDULING, ENDED, FINISHED),
        (UNKNOWN, STARTS, SCHEDULING),
        (UNKNOWN, RUNS, RUNNING),
        (UNKNOWN, LOST, FAILED),
        (UNKNOWN, NOT_ADMITTED, PENDING),
        (RUNNING, HINDERED, UNKNOWN),
        (RUNNING, LOST, FAILED),
        (RUNNING, ENDED, FINISHED),
        (RUNNING, STARTS, SCHEDULING),
        (RUNNING, NOT_ADMITTED, PENDING),
        (FAILED, STARTS, SCHEDULING),
        (FAILED, RUNS, RUNNING),
        (FAILED, NOT_ADMITTED, PENDING),
    ],
)
@pytest.mark.mechanism("4.5")
def test_every_change_of_the_phase(before: GangPhase | None, now: PhaseFacts, after: GangPhase) -> None:
    """G3.15, edge by edge."""
    assert next_phase(before, now) is after
    assert after in PHASE_EDGES[before]


def all_facts() -> list[PhaseFacts]:
    """Every mix of numbers up to a quorum of 2 and an extra."""
    numbers = product(range(4), range(4), range(4))
    mixes = [(r, s, b) for r, s, b in numbers if r + s <= 3 and r + s <= b]
    return [
        facts(admitted=a, lost=f, hindered=h, present=3, running=r, succeeded=s, scheduled=b)
        for (r, s, b), a, f, h in product(mixes, (True, False), (True, False), (True, False))
    ]


def test_no_other_change_occurs_and_the_wanted_phase_is_reached() -> None:
    """G3.15: whatever is seen, a client sees edges of the table alone; G3.13 holds after at most three writes."""
    seen = set()
    for before, now in product((None, *GangPhase), all_facts()):
        phase = before
        for _ in range(3):
            after = next_phase(phase, now)
            assert after == phase or after in PHASE_EDGES[phase]
            seen |= {(phase, after)} if after != phase else set()
            phase = after
        assert phase is not None
        assert wanted_phase(phase, now) is phase
    assert seen == {(before, after) for before, edges in PHASE_EDGES.items() for after in edges}


# --- from the objects


def of_dialect(pod: ManagedPod) -> ManagedPod:
    """The member in a dialect that has extras."""
    return replace(pod, group="team/example.com/gangs:g")


def counted(*pods: ManagedPod, before: GangPhase | None = RUNNING, workload: JSON | None = None, **roles: int) -> Any:
    """The gang's state; `roles` of its admitted Workload, two pods of role `r` where nothing is said."""
    admitted = group_workload(roles or {"r": 2}, condition("Admitted"))
    return gang_counts(
        [of_dialect(pod) for pod in pods], workload or admitted, quorum=sum(roles.values()) or 2, before=before
    )


def test_what_is_counted() -> None:
    """G3.11, 1.1: extras, too; a member that is deleted before it was bound is not present."""
    pods = [
        member("gated"), member("released", gated=False), member("bound", gated=False, node="n"), running("runs"),
        running("leaves", deleted=0), done("ended"), failed("failed"), member("gone", deleted=0),
        member("no-node", gated=False, status=NO_NODE), running("extra", annotations=EXTRA, role="s"),
    ]  # fmt: skip
    assert member_counts(pods) == MemberCounts(
        present=8, released=7, scheduled=5, running=2, succeeded=1, failed=1, unschedulable=1
    )
    found = counted(*pods)
    assert found.by_role["s"] == MemberCounts(present=1, released=1, scheduled=1, running=1)
    assert (found.running, found.by_role["r"].running) == (2, 1)


@pytest.mark.parametrize(
    ("pods", "phase"),
    [
        pytest.param([running("a"), running("b")], RUNNING, id="runs"),
        pytest.param([running("a"), failed("b")], FAILED, id="a-base-member-failed"),
        pytest.param([running("a"), failed("b"), member("c")], SCHEDULING, id="a-failed-one-was-replaced"),
        pytest.param([running("a"), running("b"), failed("c", annotations=EXTRA)], RUNNING, id="an-extra-failed"),
        pytest.param([running("a")], UNKNOWN, id="gone"),
        pytest.param([running("a"), member("b", gated=False, status=NO_NODE)], UNKNOWN, id="unschedulable"),
        pytest.param(
            [running("a"), member("b", gated=False), member("c", gated=False, status=NO_NODE, annotations=EXTRA)],
            SCHEDULING,
            id="an-extra-is-unschedulable",
        ),
        pytest.param([running("a"), running("b", annotations=EXTRA)], RUNNING, id="an-extra-counts-for-the-quorum"),
        pytest.param([done("a"), done("b")], FINISHED, id="ended"),
    ],
)
def test_the_phase_of_members(pods: list[ManagedPod], phase: GangPhase) -> None:
    """G3.16, G3.30: an extra that fails or waits changes no phase, and one that runs counts."""
    assert counted(*pods).phase is phase


def test_the_phase_looks_at_each_role() -> None:
    """A member too many of one role takes no place of another."""
    pods = [running("a"), running("b"), failed("c", role="s")]
    assert counted(*pods, r=1, s=1).phase is FAILED


def test_words_are_those_of_the_workload() -> None:
    """Of its eviction, else of the reservation that it waits for; none where it is admitted."""
    waits = condition("QuotaReserved", "False", reason="WaitingForQuota", message="no room")
    stopped = condition("Evicted", reason="Preempted", message="somebody needs it")
    two = {"r": 2}
    for workload, words in (
        (group_workload(two, waits), ("WaitingForQuota", "no room")),
        (group_workload(two, waits, stopped), ("Preempted", "somebody needs it")),
        (group_workload(two, condition("Admitted"), condition("QuotaReserved")), ("", "")),
    ):
        found = counted(member("a"), member("b"), workload=workload)
        assert (found.reason, found.message) == words
        assert found.phase is (PENDING if words[0] else SCHEDULING)


def test_a_gang_without_a_workload_waits() -> None:
    found = gang_counts([member("a"), member("b")], None, quorum=2, before=None)
    assert (found.phase, found.reason) == (PENDING, "")
