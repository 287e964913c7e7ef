"""Counters, gauges and histograms count as the client library's do."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from kqueue.observe import family

BUCKETS = (0.1, 1.0, 2.5, 40960.0)
NUMBERS = st.one_of(st.sampled_from(BUCKETS), st.integers(0, 10**7), st.floats(0, 1e9))
CHANGES = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", 'q"uote']), NUMBERS), max_size=12)


def page(kinds: Any, change: Callable[[Any, Any, Any], None]) -> list[str]:
    """What the library's own writer makes of three families, `_created` left out."""
    registry = CollectorRegistry()
    named = ("queue", "reason")
    change(
        kinds.Counter("c_total", "Counts", named, registry=registry),
        kinds.Gauge("g", "Shows", named, registry=registry),
        kinds.Histogram("h", "Sorts", named, registry=registry, buckets=BUCKETS),
    )
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(CHANGES, st.sampled_from(["none", "one", "by label"]))
def test_samples_are_those_of_the_client_library(changes: list[tuple[str, str, float]], removed: str) -> None:
    """For any numbers and labels, in the same order, also after children were removed."""

    def change(counter: Any, gauge: Any, histogram: Any) -> None:
        for queue, reason, number in changes:
            counter.labels(queue, reason).inc(number)
            gauge.labels(queue, reason).set(number)
            histogram.labels(queue, reason).observe(number)
        for each in (counter, gauge, histogram):
            if removed == "one":
                each.remove("a", "x")
            elif removed == "by label":
                each.remove_by_labels({"queue": "a"})

    assert page(family, change) == page(prometheus_client, change)


def test_families_without_labels_are_their_own_child() -> None:
    def of(kinds: Any) -> bytes:
        registry = CollectorRegistry()
        kinds.Counter("c_total", "Counts", registry=registry).inc()
        kinds.Gauge("g", "Shows", registry=registry).set(2)
        kinds.Histogram("h", "Sorts", registry=registry).observe(0.3)
        return b"\n".join(line for line in generate_latest(registry).splitlines() if b"_created" not in line)

    assert of(family) == of(prometheus_client)


def test_labels_are_texts() -> None:
    """A value of an enumeration and its text are one child."""

    class Reason(StrEnum):
        FULL = "full"

    counter = family.Counter("c_total", "Counts", ("reason",))
    for reason in (Reason.FULL, "full", 7, "7", 7):
        counter.labels(reason).inc()
    (metric,) = counter.collect()
    assert [(sample.labels, sample.value) for sample in metric.samples] == [
        ({"reason": "full"}, 2.0),
        ({"reason": "7"}, 3.0),
    ]
    assert {type(sample.labels["reason"]) for sample in metric.samples} == {str}


@pytest.mark.parametrize("values", [(), ("a",), ("a", "b", "c")])
def test_a_wrong_number_of_labels_is_refused(values: tuple[str, ...]) -> None:
    gauge = family.Gauge("g", "Shows", ("queue", "reason"))
    with pytest.raises(ValueError, match=r"g has labels \('queue', 'reason'\)"):
        gauge.labels(*values)
    with pytest.raises(ValueError, match="g has labels"):
        gauge.remove(*values)


def test_a_family_without_a_registry_is_on_no_page() -> None:
    registry = CollectorRegistry()
    family.Gauge("shown", "Shows", registry=registry)
    family.Gauge("hidden", "Shows")
    assert b"hidden" not in generate_latest(registry)
