"""Charges: what a decision holds is settled once, whatever happens between taking and settling it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqueue import model
from kqueue.state.cache import Cache
from tests.unit.state.test_cache import free, holding, make_cache, make_workload, version

NOTHING, ON_H1, ON_H2 = (10000, 8000), (6000, 4000), (6000, 8000)
"""Free quota, and what is free on host h1."""


def _marked(cache: Cache) -> None:
    cache.held.mark_evicted("ns/a", "ua")


def _marked_and_not_evicted(cache: Cache) -> None:
    _marked(cache)
    cache.held.mark_evicted("ns/a", "ua", evicted=False)


def _pending(cache: Cache) -> None:
    cache.held.on_workload("ns/a", make_workload("a"))


def _deleted(cache: Cache) -> None:
    cache.held.on_workload("ns/a", None)


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda _cache: None, id="nothing happens"),
        pytest.param(_marked, id="a preemptor marks it as its victim"),
        pytest.param(_marked_and_not_evicted, id="it is marked and the eviction fails"),
        pytest.param(_pending, id="an event from before comes"),
        pytest.param(_deleted, id="the workload is deleted"),
    ],
)
def test_what_was_not_written_is_given_back(happens: Callable[[Cache], None]) -> None:
    """Settling twice gives it back once."""
    cache = make_cache()
    charge = cache.held.assumed(holding(make_workload("a", host="h1")))
    happens(cache)
    charge.settle()
    charge.settle()

    assert free(cache) == NOTHING
    assert cache.audits.audit_charges({}) == []
    assert cache.audits.audit() == []


def test_what_was_written_is_kept() -> None:
    """Until its watch tells of it and afterwards."""
    cache, admitted = make_cache(), make_workload("a", host="h1")
    charge = cache.held.assumed(holding(admitted))
    charge.confirm(admitted)
    charge.settle()
    assert free(cache) == ON_H1
    cache.held.on_workload("ns/a", admitted)

    assert free(cache) == ON_H1
    assert cache.audits.audit_charges({"ns/a": admitted}) == []


def test_an_old_charge_gives_nothing_of_a_new_workload_back() -> None:
    """The workload was deleted and made again under its name, and is admitted, before the old write has ended."""
    cache = make_cache()
    old = cache.held.assumed(holding(make_workload("a", host="h1")))
    cache.held.on_workload("ns/a", None)
    cache.held.assumed(holding(make_workload("a", host="h1")))
    old.settle()

    assert free(cache) == ON_H1


@pytest.mark.parametrize("echo", ["before the move fails", "after it"])
def test_a_move_that_fails_goes_back_although_its_admission_was_not_seen_yet(echo: str) -> None:
    """The admission was written, the workload moves to another host at once, and that write fails."""
    cache, admitted = make_cache(), version(make_workload("a", host="h1"), 2)
    charge = cache.held.assumed(holding(admitted))
    charge.confirm(admitted)
    charge.settle()
    admission = model.admission(make_workload("a", host="h2"))
    assert admission is not None
    move = cache.held.moved("ns/a", admission)
    assert free(cache) == ON_H2
    if echo == "before the move fails":
        cache.held.on_workload("ns/a", admitted)
        assert free(cache) == ON_H2
    move.settle()
    assert free(cache) == ON_H1
    if echo == "after it":
        assert cache.audits.audit_charges({"ns/a": version(make_workload("a"), 1)}) == []
        assert free(cache) == ON_H1
        cache.held.on_workload("ns/a", admitted)

    assert free(cache) == ON_H1
    held = cache.held.holding("ns/a")
    assert held is not None
    assert (held.assumed, held.replaces) == (False, None)
    assert cache.audits.audit_charges({"ns/a": admitted}) == []
