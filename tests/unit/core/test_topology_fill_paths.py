"""One rule, several ways to carry it out: which one is taken depends on how many domains there are, never the answer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.core.topology import Algorithm, filling, search
from kqueue.core.topology.placers import FoundPlacement, Question, greedy
from kqueue.core.topology.result import Misfit
from kqueue.placing.contract import drawn

WAYS = {
    "plain Python, by looking": (10**6, 10**6, 10**6),
    "plain Python, by numpy's minimum": (10**6, 10**6, 0),
    "numpy, in order": (0, 10**6, 0),
    "numpy, equal rooms first": (0, 0, 0),
    "plain Python for few, equal rooms for many": (3, 2, 1),
}
"""What the limits are set to: few domains, many domains, a handful of domains."""


def answer_by(way: str, question: Question, monkeypatch: pytest.MonkeyPatch) -> FoundPlacement | Misfit:
    """The answer with these limits."""
    few, many, handful = WAYS[way]
    with monkeypatch.context() as patch:
        patch.setattr(search, "FEW", few)
        patch.setattr(search, "_MANY", many)
        patch.setattr(filling, "_HANDFUL", handful)
        return greedy(question)


@settings(max_examples=500)
@given(st.integers(0, 2**32), st.booleans())
def test_all_ways_to_fill_domains_have_the_same_answer(seed: int, least: bool) -> None:
    """Best fit and least free capacity, with slices and leaders, on clusters of up to 45 hosts."""
    question = drawn(random.Random(seed))
    if least:
        request = replace(question.request, least=True, algorithm=Algorithm.LEAST_FREE_CAPACITY)
        question = Question(
            tree=question.tree, counts=question.counts, request=request, leaders=question.leaders, steps=question.steps
        )
    monkeypatch = pytest.MonkeyPatch()

    found = {way: answer_by(way, question, monkeypatch) for way in WAYS}

    assert all(answer == found["numpy, in order"] for answer in found.values()), found


def test_the_ways_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits lead to different code: each of its functions is called by some way."""
    called: set[str] = set()
    for name in ("_fill_equal", "_fill_children", "_order"):
        original = getattr(search.PlacementSearch, name)

        def noted(
            self: search.PlacementSearch, *args: object, _name: str = name, _original: object = original, **more: object
        ) -> object:
            called.add(_name)
            return _original(self, *args, **more)  # type: ignore[operator]

        monkeypatch.setattr(search.PlacementSearch, name, noted)
    for seed in range(60):
        for way in WAYS:
            answer_by(way, drawn(random.Random(seed)), monkeypatch)

    assert called == {"_fill_equal", "_fill_children", "_order"}
