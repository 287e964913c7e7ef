"""When a workload may preempt others: its priority class, and the state of its claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kqueue.core.decision import Outcome, Preempt, Wait
from kqueue.core.explain import BlockerKind
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Admitted, Claim, Flavor, Snapshot
from tests.builders import GPU, make_head, make_queue, plan
from tests.unit.core.preemption_cases import GPUS, LOWER, cohort, leaf, runs
from tests.unit.core.test_cycle_preemption import decide, quotas_of, wants

OLD, NEW = runs("old", "team", 2), runs("new", "team", 2)


def full(*running: Admitted, claim: Claim | None = None) -> Snapshot:
    """Queue `team` with quota for 2, all of it in use."""
    snapshot = quotas_of([cohort("all", leaf("team", nominal=2))], running, [make_queue("team", preempts_own=LOWER)])
    return replace(snapshot, claims=(claim,) if claim is not None else ())


def claimed(*victims: Admitted) -> Claim:
    """What `high` was promised when these workloads were preempted for it."""
    left = {victim.uid: (victim.queue, victim.key) for victim in victims}
    return Claim(key="default/high", uid="high", queue="team", usage={GPUS: 2}, victims=left)


@pytest.mark.parametrize("never", [False, True])
@pytest.mark.parametrize(
    ("snapshot", "result"),
    [
        pytest.param(lambda: full(NEW), "preempts new", id="no claim"),
        pytest.param(lambda: full(NEW, claim=claimed(OLD)), "preempts new", id="a claim that others have taken"),
        pytest.param(
            lambda: full(replace(OLD, evicted=True), claim=claimed(OLD)), "Deferred", id="its victims still leave"
        ),
        pytest.param(lambda: full(claim=claimed(OLD)), "admitted", id="its victims have left"),
    ],
)
@pytest.mark.mechanism("3.23")
def test_conditions_of_a_preemption_g5_21(snapshot: Callable[[], Snapshot], result: str, never: bool) -> None:
    """A claim whose victims leave is kept, and nobody else goes; a class that never preempts starts no preemption."""
    high = replace(wants("high", "team", 2, priority=9), never_preempts=never)
    expected = "NoCandidates" if never and result.startswith("preempts") else result
    assert decide(snapshot(), high) == {"high": expected}


def test_a_workload_that_never_preempts_says_so_g5_21() -> None:
    (decision,) = plan(full(NEW), [replace(wants("high", "team", 2, priority=9), never_preempts=True)])
    assert isinstance(decision, Wait)
    assert decision.outcome is Outcome.NO_CANDIDATES
    assert decision.message.startswith("2 nvidia.com/gpu of flavor gpu asked")
    assert "its priority class never preempts" in decision.details
    assert [b.kind for b in decision.blockers] == [BlockerKind.QUOTA, BlockerKind.NEVER_PREEMPTS]


def test_a_workload_that_never_preempts_takes_the_next_flavor_g5_21() -> None:
    """The first flavor could only be had by preemption, so it is no choice; for others it is."""

    def two_flavors() -> Snapshot:
        columns = {FlavorResource(flavor, GPU): 2 for flavor in ("gpu", "spare")}
        spec = make_queue("team", flavors=("gpu", "spare"), preempts_own=LOWER, preempt_before_next_flavor=True)
        found = quotas_of([cohort("all", leaf("team", nominal=columns))], [NEW], [spec])
        return replace(found, flavors={name: Flavor(name=name) for name in ("gpu", "spare")})

    head = make_head("high", queue="team", pods=1, gpus=2, required=None, priority=9)
    (usual,) = plan(two_flavors(), [head])
    assert isinstance(usual, Preempt)
    assert decide(two_flavors(), replace(head, never_preempts=True)) == {"high": "admitted"}
