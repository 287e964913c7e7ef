"""Preemption that goes round in circles: when it is one, and who is safe from whom then."""

from __future__ import annotations

import pytest

from kqueue.state.preemptions import Preemptions

ABOVE_EACH_OTHER = ["a>c", "b>a", "c>b"]
"""Each makes room for itself at the cost of the next, all around."""


def told(*steps: str) -> Preemptions:
    """What is remembered after steps such as `a>b`: a makes b leave and is admitted; `a>b!`: it is not."""
    preemptions = Preemptions()
    for step in steps:
        preemptor, victim = step.removesuffix("!").split(">")
        preemptions.evicts(preemptor, [victim])
        if not step.endswith("!"):
            preemptions.admitted(preemptor)
    return preemptions


@pytest.mark.parametrize(
    ("steps", "is_safe"),
    [
        pytest.param([], False, id="nobody ever left"),
        pytest.param(["a>b!"], False, id="it left once"),
        pytest.param(["a>b!", "a>b!"], True, id="it left twice, in vain"),
        pytest.param(["a>b!", "a>c!"], False, id="another one left"),
        pytest.param(["a>b", "a>b"], False, id="it left twice, and each time the preemptor got in"),
        pytest.param(["a>b", "b>a", "a>b"], True, id="the preemptor had to leave for it in between"),
        pytest.param(["a>b", "c>a", "a>b"], False, id="the preemptor had to leave for somebody else"),
        pytest.param(["a>b", "c>a", "b>c", "a>b"], True, id="or for one that had to leave for it"),
        pytest.param(["a>b", "c>a", "b>c"], False, id="once around is no circle yet"),
        pytest.param(["a>b", "b>d", "d>e", "a>b"], False, id="those whom it made leave are not the preemptor"),
    ],
)
def test_who_left_in_vain_is_safe(steps: list[str], is_safe: bool) -> None:
    """Whether b is safe from a."""
    assert told(*steps).is_safe("b", "a") is is_safe


def test_a_circle_of_three_ends_in_its_second_round() -> None:
    """The third eviction of the second round is that of one who is not safe yet; after it all three are."""
    preemptions = told(*ABOVE_EACH_OTHER, *ABOVE_EACH_OTHER)

    assert [preemptions.is_safe(victim, preemptor) for preemptor, victim in ("ac", "ba", "cb")] == [True] * 3
    assert preemptions.loops == 3


def test_an_eviction_that_was_not_made_does_not_count() -> None:
    """It was told, and could not be written."""
    preemptions = told("a>b", "b>a", "a>b")
    preemptions.not_evicted("a", "b")

    assert not preemptions.is_safe("b", "a")
