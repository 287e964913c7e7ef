"""Workloads that could not start whatever they preempt are not tried at each event, and nothing else changes by it.

A try without success keeps quota from other heads of its cycle unless its ClusterQueue may reclaim from any queue: there
the workload is tried.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kqueue.core.future.drain import Drain
from kqueue.core.future.question import StartQuestion
from kqueue.core.future.remaining import Quantile
from kqueue.core.future.world import FutureWorld
from kqueue.core.workload import Preempts
from tests.recorded_days import make_question


def _question(seed: int, own: Preempts, reclaims: Preempts) -> StartQuestion:
    """Gangs of two priorities in two ClusterQueues of a cohort: three times as many as fit, and they arrive over an hour."""
    made = make_question(seed, 50, queues=2, size=(1, 2, 8), seconds=4 * 3_600)
    specs = {
        name: replace(spec, preempts_own=own, reclaims=reclaims) for name, spec in made.state.snapshot.queues.items()
    }
    return replace(made, state=replace(made.state, snapshot=replace(made.state.snapshot, queues=specs)))


def _drained(question: StartQuestion) -> tuple[dict[str, object], int]:
    drain = Drain(question, Quantile.P50, goes_on=lambda: True)
    return dict(drain.run()), drain.tries


@pytest.mark.parametrize(
    ("own", "reclaims"),
    [
        pytest.param(Preempts.LOWER_PRIORITY, Preempts.NEVER, id="own"),
        pytest.param(Preempts.LOWER_OR_NEWER_EQUAL, Preempts.LOWER_PRIORITY, id="both"),
        pytest.param(Preempts.NEVER, Preempts.ANY, id="reclaim"),
    ],
)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_answer_is_the_same_with_fewer_tries(
    seed: int, own: Preempts, reclaims: Preempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = _question(seed, own, reclaims)
    found, tries = _drained(question)
    monkeypatch.setattr(FutureWorld, "_may_have_quota", lambda *_: True)
    every, all_tries = _drained(question)
    assert found == every
    assert (tries < all_tries) is (reclaims is Preempts.ANY)
