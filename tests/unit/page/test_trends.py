"""Trends keep a bounded number of points and series, and measure what the metrics of the same names measure."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kqueue.page.trends import Trends, fragmentation, spread, trends_change
from tests.browser.answers import GPU, queues, topology_map

JSON = dict[str, Any]


def values(answer: JSON, of: str, name: str, resource: str = "") -> list[int | None]:
    (found,) = (one for one in answer["series"] if (one["of"], one["name"], one["resource"]) == (of, name, resource))
    return list(found["values"])


def test_a_point_has_the_numbers_of_each_queue() -> None:
    """Amounts of all flavors add up; a queue without a wait waits for 0 seconds."""
    answer = copy.deepcopy(queues())
    answer["items"][0]["resources"].append({"flavor": "spot", "resource": GPU, "reserved": "4"})
    del answer["items"][1]["longestWaitSeconds"]
    trends = Trends()

    trends.add(100, answer, {})

    found = trends.answer()
    assert found["time"] == [100]
    assert values(found, "waiting", "research") == [3]
    assert values(found, "reserved", "research", GPU) == [100]
    assert (values(found, "wait", "research"), values(found, "wait", "serving")) == ([300], [0])


def test_the_oldest_points_go_and_series_without_numbers_too() -> None:
    """A queue that comes later has no number before, and one that is deleted is forgotten with its last number."""
    first, second = copy.deepcopy(queues()), copy.deepcopy(queues())
    first["items"].pop()
    second["items"].pop(0)
    trends = Trends(points=2)
    trends.add(1, first, {})
    trends.add(2, second, {})
    assert values(trends.answer(), "waiting", "serving") == [None, 3]

    trends.add(3, second, {})

    found = trends.answer()
    assert found["time"] == [2, 3]
    assert {one["name"] for one in found["series"]} == {"serving"}


def test_series_beyond_the_limit_are_counted() -> None:
    """The busiest queues come first; a clock that steps back adds no point."""
    answer = copy.deepcopy(queues())
    answer["items"][1]["admitted"] = 900
    trends = Trends(series=3)

    trends.add(5, answer, {})
    trends.add(4, answer, {})

    found = trends.answer()
    assert found["time"] == [5]
    assert {one["name"] for one in found["series"]} == {"serving"}
    assert found["left"] == 3


def test_a_change_makes_of_the_answer_before_the_answer_after() -> None:
    """Readers that have the first one get the new points alone."""
    trends = Trends(points=3)
    for time in (1, 2, 3):
        trends.add(time, queues(), {"dc": topology_map()})
    before = trends.answer()
    trends.add(4, queues(), {})
    after = trends.answer()

    change = trends_change(before, after)

    assert change is not None
    assert (change["time"], change["dropped"]) == ([4], 1)
    for one, then, added in zip(before["series"], after["series"], change["values"], strict=True):
        assert [*one["values"], *added][change["dropped"] :] == then["values"]
    trends.add(5, {"items": []}, {})
    trends.add(6, {"items": []}, {})
    trends.add(7, {"items": []}, {})
    assert trends_change(after, trends.answer()) is None


@pytest.mark.parametrize(
    ("held", "foreign", "thousandths"),
    [
        pytest.param([0] * 8, [0] * 8, 0, id="empty"),
        pytest.param([8] * 8, [0] * 8, 0, id="nothing is free"),
        pytest.param([4, 0, 0, 0, 0, 0, 0, 0], [0] * 8, 1000 * 12 // 60, id="one rack is partly used"),
        pytest.param([8, 8, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 8, 8, 0, 0], 0, id="whole racks are used"),
        pytest.param([0] * 8, [1, 0] * 4, 1000, id="foreign pods are everywhere"),
    ],
)
def test_fragmentation_is_the_free_part_of_partly_used_racks(
    held: list[int], foreign: list[int], thousandths: int
) -> None:
    """Four racks of two hosts of eight."""
    flavor = topology_map(2, 2, 2)["flavors"][0]
    flavor["leaves"] |= {"held": held, "foreign": foreign}
    flavor["leaves"]["free"] = [8 - own - other for own, other in zip(held, foreign, strict=True)]

    assert fragmentation(flavor) == thousandths


@pytest.mark.parametrize(
    ("holder", "thousandths"),
    [
        pytest.param([-1] * 8, 1000, id="nobody"),
        pytest.param([0, -1, 1, -1, 2, -1, 3, -1], 1000, id="one host each"),
        pytest.param([0, 0, 1, 1, 1, 1, -1, -1], 1000, id="as few racks as possible"),
        pytest.param([0, -1, 0, -1, -1, -1, -1, -1], 2000, id="twice as many"),
        pytest.param([0, 1, 0, 1, 2, 2, -1, -1], 1000 * 5 // 3, id="two of three are spread"),
    ],
)
def test_spread_is_the_racks_in_use_by_the_fewest_possible(holder: list[int], thousandths: int) -> None:
    """Four racks of two hosts."""
    flavor = topology_map(2, 2, 2)["flavors"][0]
    flavor["leaves"]["holder"] = holder

    assert spread(flavor) == thousandths
