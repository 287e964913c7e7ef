"""Plain values are read into the classes that a type names, and everything else is refused with its path."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kqueue.core.lost_work import RunLimits
from kqueue.core.preemption import Rules, SharingStrategy
from kqueue.core.preemption.target import LocalQueueUsage
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Admission, Flavor, PodSetAssignment
from kqueue.kube.taints import Taint
from kqueue.record.plain import UnreadableValueError, Writers, reader

NOW = datetime(2026, 1, 31, 22, 0, 0, 1, tzinfo=UTC)

VALUES = [
    Rules(now=NOW),
    Rules(
        now=NOW,
        fair=(SharingStrategy.LTE,),
        local_queue_usage=LocalQueueUsage(frozenset({"a", "b"}), {"ns/x": 0.1, "ns/y": 1e300}),
        limits=RunLimits(minimum={"q": timedelta(seconds=90, microseconds=7)}, most_lost={"q": 2**63 - 1}),
        spared={"u": ("v", "w")},
        budgeted=frozenset({"z"}),
    ),
    Flavor(name="gpu", node_labels={"é\n": "\u2028"}, taints=(Taint("k", "v"),)),
    Admission(
        queue="q", pod_sets=(PodSetAssignment(name="main", flavors={"cpu": "f"}, usage={"cpu": 2**63 - 1}, count=1),)
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    kind: Any = type(value)
    again = reader(kind)(Writers().of(kind)(value))
    assert again == value
    if isinstance(value, Admission):
        assert again.usage() == {FlavorResource("f", "cpu"): 2**63 - 1}


def test_the_order_of_mappings_is_kept_and_sorted_in_canonical_form() -> None:
    kind: Any = Mapping[FlavorResource, int]
    value = {FlavorResource("b", "x"): 1, FlavorResource("a", "x"): 2}
    assert list(reader(kind)(Writers().of(kind)(value))) == list(value)
    assert Writers(canonical=True).of(kind)(value) == [[["a", "x"], 2], [["b", "x"], 1]]


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        pytest.param([], "an object with the fields of Flavor", id="a-list"),
        pytest.param({}, "the field name of Flavor is missing", id="a-missing-field"),
        pytest.param({"name": "f", "code": "x"}, "Flavor has no field 'code' in this version", id="an-unknown-field"),
        pytest.param({"name": 7}, "name: a text is needed", id="another-type"),
        pytest.param({"name": "f", "node_labels": {"a": 1}}, r"node_labels\[a\]: a text", id="within-a-mapping"),
        pytest.param({"name": "f", "taints": [{"key": "k"}, {}]}, r"taints\[1\]: the field key", id="within-a-list"),
    ],
)
def test_other_values_are_refused_with_their_path(plain: Any, problem: str) -> None:
    with pytest.raises(UnreadableValueError) as raised:
        reader(Flavor)(plain)
    assert raised.match(problem)


@pytest.mark.parametrize("plain", [2**63, -(2**63) - 1, True, 1.5, "1", None])
def test_a_number_beyond_64_bits_is_refused(plain: Any) -> None:
    with pytest.raises(UnreadableValueError, match="64 bits"):
        reader(int)(plain)


@pytest.mark.parametrize("plain", ["2026-01-31T22:00:00", "x", 7, None])
def test_a_time_without_a_zone_is_refused(plain: Any) -> None:
    with pytest.raises(UnreadableValueError, match="time zone"):
        reader(datetime)(plain)
