"""A plan is a function of values: another process decides the same on a pickled snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kqueue.core.topology import NodeRules, TopologyRequest
from kqueue.core.topology.request import Profile, Shape
from tests.planning_worker import Worker, decide, planning_worker
from tests.unit.core.test_progress import bustle, make_model

WORLDS = 40


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with planning_worker() as made:
        yield made


def test_another_process_decides_the_same(worker: Worker) -> None:
    kinds = set[object]()
    for seed in range(WORLDS):
        model = make_model(seed)
        bustle(model, 8)
        question = model.snapshot(model.claims.values()), model.heads(), model.rules()
        elsewhere = worker.decide(question)
        assert elsewhere == decide(question), f"seed {seed}"
        kinds |= {decision[0] for decision in elsewhere}
    assert kinds == {"admit", "preempt", "wait"}


def _is_known(asked: tuple[object, ...]) -> bool:
    """Whether a value that was sent is found by an equal one that is made here."""
    sent, texts = asked
    made = Shape((("cpu", 1),), NodeRules(selector=(("pool", str(texts)),)))
    return sent == {made: "shape", TopologyRequest(required="rack"): "request", Profile(search_limit=7): "profile"}


def test_what_is_sent_is_found_by_equal_values(worker: Worker) -> None:
    """Some values keep their hash, and hashes of texts differ from process to process."""
    sent = {
        Shape((("cpu", 1),), NodeRules(selector=(("pool", "a"),))): "shape",
        TopologyRequest(required="rack"): "request",
        Profile(search_limit=7): "profile",
    }
    assert worker.call(_is_known, (sent, "a"))
