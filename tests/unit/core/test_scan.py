"""Where the next scan of flavors begins."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kqueue.core.decision import Outcome, Wait
from kqueue.core.explain import WaitReason
from kqueue.core.scan import Attempt, ScanMemory, ScanRules, is_round, remembered
from kqueue.core.workload import Head, LastTried
from tests.builders import START

FIRST: LastTried = {("main", "cpu"): 0}
THEN = Attempt(uid="u", queue="team", shape="s", version="v", generation=5, cycle=10)
LATER, NEXT = THEN.cycle + 2, THEN.cycle + 1

HEAD = Head(key="ns/w", uid="u", queue="team", priority=0, timestamp=START, pod_sets=())

KEPT, LOST = ScanRules(), ScanRules(keeps_progress=False)


def at(**changes: Any) -> Attempt:
    """A try on what has changed since."""
    return dataclasses.replace(THEN, **changes)


@pytest.mark.parametrize(
    ("now", "rules", "outdated"),
    [
        pytest.param(at(cycle=LATER), KEPT, False, id="nothing has changed since"),
        pytest.param(at(cycle=LATER, generation=6), KEPT, True, id="a workload has left since"),
        pytest.param(at(cycle=NEXT, generation=6), KEPT, False, id="in the next cycle what has left does not count"),
        pytest.param(at(generation=6), KEPT, False, id="nor in the same one"),
        pytest.param(at(cycle=NEXT, generation=6), LOST, True, id="without progress kept it does"),
        pytest.param(at(cycle=LATER), LOST, False, id="without progress kept, nothing has changed since"),
        pytest.param(at(cycle=NEXT, shape="t"), KEPT, True, id="it asks for something else"),
        pytest.param(at(cycle=LATER, version="w"), KEPT, False, id="it has changed, and asks for the same"),
        pytest.param(at(cycle=NEXT, version="w"), LOST, True, id="without progress kept any change counts"),
        pytest.param(
            at(cycle=NEXT, shape="t", version="w"),
            ScanRules(by_shape=False),
            False,
            id="what is asked for cannot be told, and counts as the same",
        ),
        pytest.param(
            at(cycle=LATER, shape="t", generation=6),
            ScanRules(by_shape=False),
            True,
            id="which does not go over what has left",
        ),
        pytest.param(at(cycle=LATER, generation=4), KEPT, False, id="a generation of a shorter history"),
        pytest.param(at(uid="w"), KEPT, True, id="another workload of that name"),
        pytest.param(at(queue="other"), KEPT, True, id="another ClusterQueue, with other flavors"),
    ],
)
def test_what_is_remembered_becomes_outdated(now: Attempt, rules: ScanRules, outdated: bool) -> None:
    """The scan begins at the first flavor when an earlier one may serve again, or something else is asked for."""
    assert ScanMemory(THEN, FIRST).is_outdated(now, rules) is outdated


BEFORE = ScanMemory(THEN, {("main", "cpu"): 3})
ANEW = ScanMemory(at(cycle=NEXT), FIRST, frozenset({frozenset(BEFORE.last_tried.items())}))


@pytest.mark.parametrize(
    ("outcome", "rules", "left"),
    [
        pytest.param(Outcome.NO_CANDIDATES, KEPT, ANEW, id="nobody may be preempted"),
        pytest.param(Outcome.NO_FIT, KEPT, ANEW, id="no flavor serves one of its groups, while others found theirs"),
        pytest.param(Outcome.SKIPPED, KEPT, ANEW, id="another one took it"),
        pytest.param(Outcome.SKIPPED, LOST, None, id="another one took it, and progress is not kept"),
        pytest.param(Outcome.NO_CANDIDATES, LOST, ANEW, id="without progress kept a try is remembered, too"),
        pytest.param(Outcome.DEFERRED, KEPT, None, id="it waits for who leaves"),
        pytest.param(Outcome.GATED, KEPT, None, id="it may preempt nobody yet"),
        pytest.param(Outcome.HELD, KEPT, BEFORE, id="it would have been admitted, and is when its turn comes"),
        pytest.param(Outcome.YIELDS, KEPT, BEFORE, id="it was not looked at for another one's sake"),
        pytest.param(Outcome.REFUSED, KEPT, BEFORE, id="it was not looked at for its queue's sake"),
        pytest.param(Outcome.BROKEN, KEPT, BEFORE, id="it was not looked at for a bug"),
    ],
)
def test_what_a_try_leaves_behind(outcome: Outcome, rules: ScanRules, left: ScanMemory | None) -> None:
    """Only a try that came to nothing in its flavors goes on behind them."""
    wait = Wait(head=HEAD, outcome=outcome, reason=WaitReason.WAITING_FOR_QUOTA, blockers=(), last_tried=FIRST)

    assert remembered(wait, at(cycle=NEXT), BEFORE, rules) == left


def test_a_scan_that_found_nothing_is_not_remembered() -> None:
    """The next one begins at the first flavor, whatever was remembered before."""
    wait = Wait(head=HEAD, outcome=Outcome.NO_FIT, reason=WaitReason.EXCEEDS_MAX_QUOTA, blockers=())

    assert remembered(wait, THEN, BEFORE) is None


def tried(**indices: int) -> Wait:
    """A try of pod sets that ended at these flavors."""
    ends = {(name, "cpu"): index for name, index in indices.items()}
    return Wait(
        head=HEAD, outcome=Outcome.NO_CANDIDATES, reason=WaitReason.WAITING_FOR_QUOTA, blockers=(), last_tried=ends
    )


@pytest.mark.parametrize(
    ("ends", "rounds"),
    [
        pytest.param([{"main": 0}, {"main": 1}, {"main": -1}], [False] * 3, id="one pod set comes to its last flavor"),
        pytest.param(
            [{"main": 0, "more": 0}, {"main": -1, "more": 1}, {"main": 0, "more": -1}, {"main": -1, "more": 0}],
            [False] * 4,
            id="one begins again while the other one has more",
        ),
        pytest.param(
            [{"main": -1, "more": 0}, {"main": 0}, {"main": -1, "more": 0}],
            [False, False, True],
            id="one fails whenever the other one goes on",
        ),
        pytest.param([{"main": 0}, {"main": -1}, {"main": 0}, {"main": -1}], [False] * 4, id="a scan that was over"),
    ],
)
def test_a_scan_that_comes_back_to_where_it_was_is_over(ends: list[dict[str, int]], rounds: list[bool]) -> None:
    """It must not stay at the head of its queue for ever; what it has come by is looked at once."""
    memory, found = None, []
    for end in ends:
        found.append(is_round(tried(**end), memory))
        memory = remembered(tried(**end), THEN, memory)

    assert found == rounds
    assert (memory is None) is (rounds[-1] or not tried(**ends[-1]).has_more_flavors)
