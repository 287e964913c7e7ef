"""Orders of profiles: built-in keys, and keys of plugins."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.config import plugins as settings
from kqueue.core.order_keys import BUILT_IN_KEYS, BUILT_IN_PROFILES, LAST, ProfileOrder, built_in_order, comparable
from kqueue.core.queued import Queued, QueuedGang
from kqueue.errors import PluginError
from tests.builders import START


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def queued(
    uid: str, *, created: float = 0, gang: str = "", since: float = 0, tried: float | None = None, **more: Any
) -> Queued:
    return Queued(
        key=f"ns/{uid}",
        uid=uid,
        queue="team",
        local_queue="ns/main",
        timestamp=at(created),
        created=at(created),
        first_try=None if tried is None else at(tried),
        gang=QueuedGang(key=f"ns/{gang}", since=at(since), uid=gang) if gang else None,
        **{"priority": 0, **more},
    )


def in_order(profile: str, *items: Queued) -> list[str]:
    order = built_in_order(profile)
    return [item.uid for item in sorted(items, key=lambda item: order.place(item).keys)]


def test_names_in_the_configuration_are_those_of_the_core() -> None:
    assert tuple(BUILT_IN_KEYS) == settings.BUILT_IN_KEYS
    assert tuple(BUILT_IN_PROFILES) == settings.BUILT_IN_PROFILES


@pytest.mark.parametrize("profile", BUILT_IN_PROFILES)
@given(numbers=st.lists(st.tuples(st.integers(-5, 5), st.booleans(), st.integers(0, 9)), min_size=2, max_size=12))
def test_higher_priority_goes_first_in_any_mix(profile: str, numbers: list[tuple[int, bool, int]]) -> None:
    """Row 0.5."""
    items = [
        queued(f"u{n}", priority=priority, created=age, gang=f"g{n}" if grouped else "", since=age)
        for n, (priority, grouped, age) in enumerate(numbers)
    ]
    by_uid = {item.uid: item.priority for item in items}
    found = [by_uid[uid] for uid in in_order(profile, *items)]
    assert found == sorted(found, reverse=True)


@pytest.mark.mechanism("4.10")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(queued("z", priority=1, created=9), queued("a", created=1), id="priority"),
        pytest.param(queued("z", created=9), queued("a", gang="g", since=1), id="without a group before a group"),
        pytest.param(
            queued("z", gang="g", since=1, created=9), queued("a", gang="h", since=2), id="creation of the group"
        ),
        pytest.param(queued("z", gang="g", created=1), queued("a", gang="g", created=2), id="creation of the pod"),
        pytest.param(queued("a", created=1), queued("b", created=1), id="UID"),
    ],
)
def test_pod_group_goes_by_its_keys_g3_39(first: Queued, second: Queued) -> None:
    """Row 4.10: each key decides alone, and the ones after it do not matter."""
    assert in_order("pod-group", second, first) == [first.uid, second.uid]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(queued("a", priority=1, created=9), queued("z", created=1), id="priority"),
        pytest.param(queued("a", gang="g", since=1, created=9), queued("z", created=2), id="a group by its own time"),
        pytest.param(queued("a", created=9, tried=10), queued("z", created=1, tried=11), id="first attempts"),
        pytest.param(queued("z", created=1), queued("a", created=1), id="greater UID"),
        pytest.param(queued("ab", created=1), queued("a", created=1), id="longer UID of the same beginning"),
        pytest.param(queued("a", gang="y"), queued("z", gang="x"), id="greater UID of the group"),
    ],
)
def test_back_to_back_goes_by_its_keys_g3_39_g3_40(first: Queued, second: Queued) -> None:
    assert in_order("back-to-back", second, first) == [first.uid, second.uid]


@pytest.mark.mechanism("0.8")
@given(seed=st.integers(0, 10**6))
def test_members_of_groups_never_interleave(seed: int) -> None:
    """Row 0.8: entries of one group stand in a row, also where all times are equal."""
    chance = random.Random(seed)
    items = [queued(f"u{n}", gang=chance.choice("abc"), created=chance.randrange(3)) for n in range(9)]
    chance.shuffle(items)
    gangs = {item.uid: item.gang.uid if item.gang else "" for item in items}
    found = [gang for gang, _ in groupby(in_order("back-to-back", *items), key=gangs.__getitem__)]
    assert found == sorted(set(gangs.values()), reverse=True)


@pytest.mark.mechanism("0.8")
@given(
    uids=st.lists(st.text(alphabet="abcdef0123456789-", min_size=1, max_size=36), min_size=2, max_size=8, unique=True)
)
def test_uids_descend_g3_39(uids: list[str]) -> None:
    assert in_order("back-to-back", *(queued(uid) for uid in uids)) == sorted(uids, reverse=True)


@pytest.mark.mechanism("0.16")
def test_keys_of_plugins_and_built_in_keys_combine_g5_19() -> None:
    """Row 0.16, in the core."""
    deadline = {"a": 3, "b": 1, "c": 2}
    order = ProfileOrder(
        [BUILT_IN_KEYS["priority"], lambda item: comparable(deadline[item.uid]), BUILT_IN_KEYS["timestamp"]]
    )
    items = [queued("a"), queued("b", created=5), queued("c", priority=1)]
    assert sorted(items, key=lambda i: order.place(i).keys) == [items[2], items[1], items[0]]


def test_a_workload_whose_key_fails_goes_last_and_says_why_g5_14() -> None:
    def failing(item: Queued) -> Any:
        if item.uid == "bad":
            raise PluginError("plugin acme failed: KeyError: 'x'")
        return comparable(1)

    order = ProfileOrder([failing])
    bad, good = order.place(queued("bad")), order.place(queued("good"))
    assert bad.keys > good.keys
    assert (bad.problem, good.problem) == ("plugin acme failed: KeyError: 'x'", "")


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        pytest.param(comparable(1), comparable(1.5), id="numbers"),
        pytest.param(comparable("a"), comparable("b"), id="texts"),
        pytest.param(comparable(10**9), comparable(""), id="of different types"),
        pytest.param(comparable("zzz"), LAST, id="no key"),
    ],
)
def test_all_keys_of_plugins_compare(smaller: Any, larger: Any) -> None:
    """A plugin that mixes types breaks no queue."""
    assert smaller < larger


@pytest.mark.parametrize(
    ("key", "error"),
    [
        pytest.param(None, TypeError, id="None"),
        pytest.param((1,), TypeError, id="a tuple"),
        pytest.param(float("nan"), ValueError, id="NaN"),
    ],
)
def test_other_keys_are_refused(key: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="the key is"):
        comparable(key)


@pytest.mark.parametrize("profile", ["back-to-back"])
def test_extras_stand_right_behind_their_gang_g3_39(profile: str) -> None:
    """Row 0.8: between the gangs of one time, nothing comes between a gang and its further pods."""
    gang, other = (queued(f"base-{name}", gang=name, since=1) for name in ("y", "z"))
    extras = [
        replace(queued(f"extra-{n}", created=9), gang=QueuedGang(key="ns/y", since=at(1), uid="y", extra=True))
        for n in range(2)
    ]
    single = queued("x", created=1)
    found = in_order(profile, *extras, single, gang, other)
    assert found == ["base-z", "base-y", "extra-0", "extra-1", "x"]
