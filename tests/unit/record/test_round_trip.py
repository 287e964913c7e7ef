"""A recorded question, read back, has the same answers byte for byte."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.record.answer import answer
from kqueue.record.decoding import CycleDecoder, RecordedCycle
from kqueue.record.encoding import CycleEncoder
from kqueue.record.entries import Cycle, Pieces, from_text
from tests.unit.record.recorded import cycles


def _read(decoder: CycleDecoder, texts: list[bytes]) -> RecordedCycle:
    *pieces, last = map(from_text, texts)
    for entry in pieces:
        assert isinstance(entry, Pieces)
        decoder.pieces(entry)
    assert isinstance(last, Cycle)
    decoder.follow(last)
    return decoder.cycle(last)


def _assert_equal_answers(seed: int, number: int) -> set[str]:
    encoder, decoder = CycleEncoder(), CycleDecoder()
    kinds: set[str] = set()
    for captured in cycles(seed, number):
        recorded = _read(decoder, list(encoder.entries(captured)))
        again = [answer(decision) for decision in recorded.question.decisions(next_head=recorded.next_head)]
        assert again == recorded.answers, f"seed {seed}, cycle {captured.number}"
        assert recorded.unknown == []
        kinds |= {json.loads(text)["decision"] for text in again}
    return kinds


@given(seed=st.integers(0, 1_000_000), number=st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_any_world_is_decided_again_as_it_was(seed: int, number: int) -> None:
    _assert_equal_answers(seed, number)


def test_admissions_preemptions_and_waits_are_decided_again() -> None:
    """Among these worlds is each kind of decision, and fair sharing in every other one."""
    kinds = {kind for seed in range(6) for kind in _assert_equal_answers(seed, 6)}
    assert kinds == {"Admit", "Preempt", "Wait"}


def test_a_cycle_in_which_nothing_changed_has_no_pieces() -> None:
    """A second plan on the same world costs a text that does not grow with the world."""
    encoder = CycleEncoder()
    (captured,) = cycles(3, 1)
    first = list(encoder.entries(captured))
    (second,) = encoder.entries(captured)
    entry = from_text(second)
    assert isinstance(entry, Cycle)
    assert (entry.slots, entry.usage, entry.free, entry.admitted) == ({}, {}, {}, {})
    assert len(second) < sum(map(len, first)) / 4
