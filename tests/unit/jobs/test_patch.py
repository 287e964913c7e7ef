"""Merge patches: what they say is what they do."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kqueue.jobs.patch import apply_merge_patch, merge_patch

KEYS = st.sampled_from("abc")
LEAVES = st.one_of(st.integers(0, 1), st.booleans(), st.text("x", max_size=1), st.lists(st.integers(0, 1), max_size=2))
VALUES = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


def same(a: Any, b: Any) -> bool:
    """Equal, and `True` is not `1`."""
    return repr(sorted_json(a)) == repr(sorted_json(b))


def sorted_json(value: Any) -> Any:
    return {k: sorted_json(value[k]) for k in sorted(value)} if isinstance(value, dict) else value


@given(OBJECTS, OBJECTS)
def test_a_patch_leads_from_one_state_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Applied to the old state it gives the new one, and from there it is empty."""
    patch = merge_patch(old, new)

    assert same(apply_merge_patch(old, patch), new)
    assert merge_patch(new, apply_merge_patch(old, patch)) == {}


@given(OBJECTS)
def test_nothing_to_change_is_an_empty_patch(state: dict[str, Any]) -> None:
    """So that nothing is written."""
    assert merge_patch(state, state) == {}


def test_nulls_are_absent() -> None:
    """As for the API server."""
    assert merge_patch({"a": None, "b": {"c": 1}}, {"b": {"c": None}}) == {"b": {"c": None}}
