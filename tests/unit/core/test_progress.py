"""What preemption promises over many cycles, in random worlds: it gets somewhere, and it comes to an end.

What holds for every single decision is asserted where the model applies it (`cycle_worlds`):

    who is admitted finds its quota and its hosts free in the world as it is
    who left for a preemptor is not admitted before it
    a preemptor whose victims have all left is admitted at its next turn, whatever arrived meanwhile
    nobody leaves twice for the same preemptor, unless that was admitted in between
"""

from __future__ import annotations

import os

import pytest

from kqueue.core.nomination import Nominator
from kqueue.core.preemption import SharingStrategy
from tests.unit.core.cycle_worlds import Model

WORLDS = int(os.environ.get("KQUEUE_PROGRESS_WORLDS", "120"))
BATCH = 20
FAIR = ((SharingStrategy.LTE, SharingStrategy.LTI), (SharingStrategy.LTI,), (SharingStrategy.LTE,))
CALM_MAX = 400
"""Cycles; some sixty workloads can make each other leave for a while."""


def make_model(seed: int) -> Model:
    """Every other world shares fairly."""
    return Model(seed, fair=FAIR[seed // 2 % len(FAIR)] if seed % 2 else None)


def bustle(model: Model, cycles: int) -> None:
    """Workloads come, end, and leave when they were told to, or some time later."""
    for _ in range(cycles):
        for _ in range(model.chance.randint(0, 3)):
            model.arrive()
        if model.one_in(5):
            model.parked.clear()
        model.cycle()
        for uid in model.leaving:
            if model.one_in(3):
                model.release(uid)
        if model.admitted and model.one_in(4):
            model.release(model.chance.choice(sorted(model.admitted)))


def settle(model: Model) -> int:
    """Nothing comes and nothing ends any more; after how many cycles nothing happens any more."""
    for cycle in range(CALM_MAX):
        model.cycle()
        if model.leaving:
            model.release(model.chance.choice(model.leaving))
        elif not model.heads():
            return cycle
    pytest.fail(f"seed {model.seed}: it does not come to rest")


@pytest.mark.parametrize("start", range(0, WORLDS, BATCH))
def test_preemption_gets_somewhere_and_comes_to_an_end(start: int) -> None:
    """After the bustle a world is calm within a bounded number of cycles, and keeps nothing free for anybody."""
    preempted = 0
    for seed in range(start, start + BATCH):
        model = make_model(seed)
        bustle(model, 25)
        settle(model)
        assert model.claims == {}, f"seed {seed}"
        preempted += model.moves
    assert preempted > 10 * BATCH


@pytest.mark.parametrize("start", range(0, WORLDS, BATCH))
def test_a_cycle_asked_twice_decides_alike(start: int) -> None:
    """Decisions follow from the snapshot and the heads, not from the order in which these are named."""
    for seed in range(start, start + BATCH):
        model = make_model(seed)
        bustle(model, 8)
        assert model.decide(model.heads()) == model.decide(model.heads()), f"seed {seed}"


@pytest.mark.parametrize("start", range(0, WORLDS, BATCH))
def test_whom_to_preempt_is_not_asked_twice_in_vain(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What choosing a flavor has found is what looking for targets once more would find."""
    models = [make_model(seed) for seed in range(start, start + BATCH)]
    for model in models:
        bustle(model, 8)
    known = [model.decide(model.heads()) for model in models]
    oracle = Nominator._oracle
    monkeypatch.setattr(Nominator, "_oracle", lambda nominator, head, _asked: oracle(nominator, head, {}))

    assert [model.decide(model.heads()) for model in models] == known
