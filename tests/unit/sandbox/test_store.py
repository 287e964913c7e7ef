from __future__ import annotations

import pytest

from kqueue.errors import GoneError
from kqueue.sandbox.api import Object
from kqueue.sandbox.store import ObjectStore, StoreChange, Versions, copied


def obj(name: str, namespace: str = "a", **data: str) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def names(store: ObjectStore, version: int) -> list[str]:
    return [record.name for record in store.at(version)]


def after(cursor: StoreChange) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while cursor.next is not None:
        cursor = cursor.next
        assert cursor.record is not None
        found.append((cursor.type, cursor.record.name))
    return found


def test_every_change_has_a_version_of_its_own_across_stores() -> None:
    """One counter serves all stores, and each object carries the version of its last change."""
    versions = Versions()
    pods, jobs = ObjectStore(versions), ObjectStore(versions)

    seen = [pods.put(obj("p")).version, jobs.put(obj("j")).version, pods.put(obj("p")).version]

    assert seen == sorted(set(seen))
    record = pods.get("a", "p")
    assert record is not None
    assert record.obj["metadata"]["resourceVersion"] == str(seen[2])


def test_records_come_by_namespace_and_name() -> None:
    """The order is that of keys, however objects came."""
    store = ObjectStore(Versions())
    for name, namespace in (("z", "b"), ("b", "a"), ("a", "b"), ("a", "a")):
        store.put(obj(name, namespace))

    assert [(r.namespace, r.name) for r in store.records()] == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "z")]
    assert [r.name for r in store.records("b")] == ["a", "z"]


def test_a_cursor_sees_what_came_after_it() -> None:
    """Additions, changes and deletions follow a cursor in order, each once."""
    store = ObjectStore(Versions())
    store.put(obj("old"))
    cursor = store.tail

    store.put(obj("p"))
    store.put(obj("p", x="1"))
    store.remove(copied(obj("p", x="1")))

    assert after(cursor) == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


def test_a_version_finds_its_cursor() -> None:
    """A watcher that comes back with a version gets exactly the changes after it, even if the version is not ours."""
    versions = Versions()
    store, other = ObjectStore(versions), ObjectStore(versions)
    first = store.put(obj("a")).version
    between = other.put(obj("x")).version
    store.put(obj("b"))

    assert after(store.cursor_at(first)) == [("ADDED", "b")]
    assert after(store.cursor_at(between)) == [("ADDED", "b")]
    assert after(store.cursor_at(versions.current)) == []


def test_the_past_can_be_listed() -> None:
    """At an old version there are the objects of then: later ones are not, deleted ones still are."""
    store = ObjectStore(Versions())
    store.put(obj("a", x="1"))
    version = store.put(obj("b")).version
    store.put(obj("a", x="2"))
    store.put(obj("c"))
    store.remove(obj("b"))

    assert names(store, version) == ["a", "b"]
    assert store.at(version)[0].obj["data"] == {"x": "1"}


@pytest.mark.parametrize("ask", ["cursor_at", "at"])
def test_what_the_log_forgot_is_gone(ask: str) -> None:
    """A version from before the log, or from the future of another server, is answered 410."""
    store = ObjectStore(Versions(), log_length=2)
    first = store.put(obj("a")).version
    for name in "bcd":
        store.put(obj(name))

    for version in (first, 10_000):
        with pytest.raises(GoneError) as caught:
            getattr(store, ask)(version)
        assert caught.value.status == 410


async def test_whoever_waits_is_woken_by_the_next_change() -> None:
    """A future of `changed` is done once something happened."""
    store = ObjectStore(Versions())
    future = store.changed()

    store.put(obj("a"))

    assert future.done()


def test_a_record_is_encoded_once() -> None:
    """The bytes of an object are made at first use and kept."""
    store = ObjectStore(Versions())
    record = store.put(obj("a"))

    assert record.encoded is record.encoded
    assert store.tail.line.startswith(b'{"type":"ADDED","object":{"metadata"')


def test_a_store_does_not_claim_to_know_what_was_before_it() -> None:
    """Objects of an earlier store of the kind are gone; who resumes from then must list again to learn it."""
    versions = Versions()
    ObjectStore(versions).put(obj("p"))
    before = versions.current
    ObjectStore(versions).put(obj("other"))

    late = ObjectStore(versions)

    with pytest.raises(GoneError, match="too old"):
        late.cursor_at(before)
    assert after(late.cursor_at(versions.current)) == []
