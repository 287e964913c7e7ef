"""The message of a workload that waits: short, the cause first, true at its time, and with the command for the rest."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.state import waiting

AT = datetime(2026, 1, 1, 12, 34, 56, tzinfo=UTC)
LONG = "n" * 253


@pytest.mark.parametrize(
    ("key", "cause", "at", "want"),
    [
        pytest.param("ns/a", "no room", None, "no room; see kqueue explain a -n ns", id="a cause"),
        pytest.param("ns/a", "no room", AT, "no room (2026-01-01 12:34Z); see kqueue explain a -n ns", id="of a moment"),
        pytest.param(f"ns/{LONG}", "no room", None, "no room; see kqueue explain", id="a name that has no room"),
        pytest.param(
            "ns/a", "word " * 50, None, f"{'word ' * 33}word…; see kqueue explain a -n ns", id="cut at a word"
        ),
    ],
)  # fmt: skip
def test_a_message_is_cause_time_and_command(key: str, cause: str, at: datetime | None, want: str) -> None:
    assert waiting.message(key, cause, at=at) == want


@given(cause=st.text(max_size=400), name=st.text("abc", min_size=1, max_size=253), dated=st.booleans())
def test_no_message_is_longer_than_it_may_be(cause: str, name: str, dated: bool) -> None:
    """Whatever the cause says and the workload is called."""
    text = waiting.message(f"ns/{name}", cause, at=AT if dated else None)

    assert len(text) <= waiting.MOST
    assert "; see kqueue explain" in text


@pytest.mark.parametrize("cause", ["no room", "8 cpu asked (7 free)", "none; see kqueue place"])
@pytest.mark.parametrize("at", [None, AT])
def test_the_cause_is_read_from_the_message(cause: str, at: datetime | None) -> None:
    assert waiting.cause_of(waiting.message("ns/a", cause, at=at)) == cause


def test_a_message_of_another_writer_is_its_own_cause() -> None:
    assert waiting.cause_of("couldn't assign flavors") == "couldn't assign flavors"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("q has 3 free", "q has 0 free", True),
        ("q has 3Gi free", "q has 512Mi free", True),
        ("q has 1500m free", "q has 2 free", True),
        ("none (2026-01-01 12:34Z)", "none (2027-01-01 00:00Z)", True),
        ("the best rack b1/r2 has room for 3", "the best rack b1/r4 has room for 0", True),
        ("waits for ns/job-1", "waits for ns/job-2", False),
        ("q has 3 cpu free", "q has 3 memory free", False),
        ("q2 has 3 free", "q3 has 3 free", False),
        ("node-1 is cordoned", "node-2 is cordoned", False),
    ],
)
def test_figures_times_and_the_best_domain_make_no_other_cause(one: str, other: str, same: bool) -> None:
    assert waiting.is_same_cause(f"{one}; see kqueue explain a -n ns", other) is same
