"""Items in order have the same items in the same order as a sorted list, whatever comes and goes."""

from __future__ import annotations

import random

import pytest

from kqueue.runtime import sorted_items
from kqueue.runtime.sorted_items import SortedItems


@pytest.mark.parametrize("seed", range(20))
def test_items_are_those_of_a_sorted_list(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(sorted_items, "_FULL", 4)
    draw, items, expected = random.Random(seed), SortedItems[tuple[int]](), set[tuple[int]]()
    for _ in range(300):
        item = (draw.randrange(60),)
        if item in expected:
            items.remove(item)
            expected.remove(item)
        else:
            items.add(item)
            expected.add(item)
        assert (list(items), len(items)) == (sorted(expected), len(expected))


@pytest.mark.parametrize("present", [[], [1], [1, 3, 5, 7, 9, 11]])
@pytest.mark.parametrize("missing", [0, 4, 12])
def test_an_item_that_is_not_there_cannot_be_removed(
    monkeypatch: pytest.MonkeyPatch, present: list[int], missing: int
) -> None:
    monkeypatch.setattr(sorted_items, "_FULL", 4)
    items = SortedItems[tuple[int]]()
    for number in present:
        items.add((number,))
    with pytest.raises(KeyError):
        items.remove((missing,))
    assert list(items) == [(number,) for number in present]
