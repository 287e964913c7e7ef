"""The store: indexes, handlers and those who wait."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from kqueue.runtime.store import Store, object_key, split_key

Pod = tuple[str, str]
"""(node, phase)"""


def pods() -> Store[Pod]:
    """A store with pods by node."""
    store: Store[Pod] = Store("pods")
    store.add_index("node", lambda pod: [pod[0]] if pod[0] else [])
    return store


@pytest.mark.parametrize(
    ("namespace", "name", "key"),
    [pytest.param("a", "b", "a/b", id="namespaced"), pytest.param("", "b", "b", id="cluster-scoped")],
)
def test_keys_go_both_ways(namespace: str, name: str, key: str) -> None:
    """A key holds namespace and name, and gives them back."""
    assert object_key(namespace, name) == key
    assert split_key(key) == (namespace, name)


def test_indexes_follow_every_change() -> None:
    """An object moves between index values, leaves with its deletion, and empty values hold nothing."""
    store = pods()
    store.put("a/1", ("n1", "Running"))
    store.put("a/2", ("n1", "Running"))
    store.put("a/3", ("", "Pending"))

    store.put("a/1", ("n2", "Running"))
    store.remove("a/2")
    store.remove("a/9")

    assert store.by_index("node", "n1") == []
    assert store.by_index("node", "n2") == [("n2", "Running")]
    assert store.keys_by_index("node", "n2") == ["a/1"]
    assert store.by_index("node", "") == []


def test_an_index_added_late_knows_what_is_there() -> None:
    """Objects that came before the index are in it."""
    store = pods()
    store.put("a/1", ("n1", "Running"))

    store.add_index("phase", lambda pod: [pod[1]])

    assert store.by_index("phase", "Running") == [("n1", "Running")]


def test_a_late_subscriber_hears_of_what_is_there() -> None:
    """Whoever subscribes sees the same world as one who had subscribed at the start."""
    store = pods()
    store.put("a/1", ("n1", "Running"))
    heard: list[tuple[Pod | None, Pod | None]] = []

    store.subscribe(lambda old, new: heard.append((old, new)))
    store.remove("a/1")

    assert heard == [(None, ("n1", "Running")), (("n1", "Running"), None)]


async def test_waiting_ends_when_the_condition_holds() -> None:
    """`until` returns the first state that satisfies it, after the handlers have run."""
    store = pods()
    heard: list[Pod | None] = []
    store.subscribe(lambda old, new: heard.append(new))
    running = asyncio.ensure_future(store.until("a/1", lambda pod: pod is not None and pod[1] == "Running"))
    gone = asyncio.ensure_future(store.until("a/2", lambda pod: pod is None))
    await asyncio.sleep(0)

    store.put("a/1", ("n1", "Pending"))
    await asyncio.sleep(0)
    assert not running.done()
    store.put("a/1", ("n1", "Running"))

    assert await running == ("n1", "Running")
    assert await gone is None
    assert heard[-1] == ("n1", "Running")


def test_an_object_that_cannot_be_filed_stops_nobody_and_leaves_the_lists() -> None:
    """It is in the store and in no list; its next version is filed, and its end is no trouble either."""
    store: Store[int] = Store()
    told: list[int | None] = []
    store.add_index("tenth", lambda n: [10 // n])
    store.subscribe(lambda _old, new: told.append(new))
    with structlog.testing.capture_logs():
        for n in (5, 0, 2):
            store.put("a", n)
            store.put("b", 5)
            assert "b" in store.keys_by_index("tenth", 2)
            assert ("a" in store.keys_by_index("tenth", 2)) is (n == 5)
        store.put("a", 0)
        store.remove("a")

    assert told == [5, 5, 0, 5, 2, 5, 0, None]
    assert store.keys_by_index("tenth", 5) == []
