"""What is remembered of tries, for people who ask."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kqueue.state import tries as module
from kqueue.state.tries import Tries, Try
from tests.unit.state.life import NOON


def make_try(key: str, *, after: float = 0) -> Try:
    return Try(key=key, at=NOON + timedelta(seconds=after), cycle=1, generation=7, nodes=3, reason="R")


def test_the_last_try_is_the_own_one_or_that_of_an_equal_whichever_is_later() -> None:
    """Who is parked by the try of an equal is told of that one."""
    tries = Tries()
    tries.note(make_try("ns/a"), "team", "shape")
    tries.note(make_try("ns/b", after=5), "team", "shape")

    assert tries.of("ns/a", "team", "shape") == make_try("ns/b", after=5)
    assert tries.of("ns/c", "team", "shape") == make_try("ns/b", after=5)
    assert tries.of("ns/a", "other", "shape") == make_try("ns/a")
    assert tries.of("ns/c", "team", "another shape") is None


def test_the_oldest_tries_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the number of workloads that ever were."""
    monkeypatch.setattr(module, "_MOST", 2)
    monkeypatch.setattr(module, "_MOST_SHAPES", 1)
    tries = Tries()
    for number, key in enumerate(["ns/a", "ns/b", "ns/a", "ns/c"]):
        tries.note(make_try(key, after=number), "team", key)

    assert tries.of("ns/b", "team", "ns/b") is None
    assert tries.of("ns/a", "team", "other") == make_try("ns/a", after=2)
    assert tries.of("ns/x", "team", "ns/c") == make_try("ns/c", after=3)
