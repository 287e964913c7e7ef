"""A snapshot's view of who holds what stays as it was, and is made only where somebody looks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.workload import Admission, Admitted
from kqueue.state.holding import Holding
from kqueue.state.views import HoldingsByQueue, Views

QUEUES = ("red", "green", "blue")
NOTHING = frozenset[str]()


def make_holding(name: str, queue: str = "red", priority: int = 0) -> Holding:
    return Holding(
        key=f"ns/{name}",
        uid=name,
        local_queue="ns/main",
        admission=Admission(queue=queue, pod_sets=()),
        requests={},
        admitted=True,
        assumed=False,
        priority=priority,
    )


def was_made(holding: Holding) -> bool:
    """Whether the view of a holding was made."""
    return holding._view is not None


def shown(views: Views[Holding], queue: str) -> dict[str, int]:
    return {key: workload.priority for key, workload in views[queue].items()}


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_a_view_shows_what_was_there_when_it_was_taken(seed: int, steps: int) -> None:
    """Whenever it is looked into, and whatever came, changed and left in between: as copies made at once would."""
    chance, holdings = random.Random(seed), HoldingsByQueue[Holding]()
    now: dict[str, dict[str, Holding]] = {queue: {} for queue in QUEUES}
    taken: list[tuple[Views[Holding], dict[str, dict[str, int]]]] = []
    deferred: list[tuple[Mapping[str, Admitted], dict[str, int]]] = []
    for step in range(steps):
        name, queue = f"w{chance.randrange(4)}", chance.choice(QUEUES)
        match chance.randrange(4):
            case 0 | 1:
                now[queue][name] = make_holding(name, queue, step)
                holdings.put(now[queue][name])
            case 2 if name in now[queue]:
                holdings.drop(now[queue].pop(name))
            case _:
                there = {q: {h.key: h.priority for h in of.values()} for q, of in now.items()}
                taken.append((holdings.views(QUEUES, NOTHING), there))
        if taken and chance.random() < 0.5:
            views, there = chance.choice(taken)
            assert shown(views, queue) == there[queue]
        if taken and chance.random() < 0.5:
            views, there = chance.choice(taken)
            deferred.append((views.deferred(queue), there[queue]))
    for made, then in deferred:
        assert {key: workload.priority for key, workload in made.items()} == then
    for views, there in taken:
        assert {queue: shown(views, queue) for queue in views} == there


def test_a_queue_that_does_not_change_is_put_together_once() -> None:
    """Later views have the same object, until something changes; others than those asked for are not there."""
    holdings = HoldingsByQueue[Holding]()
    one = make_holding("one")
    holdings.put(one)
    first, second = holdings.views({"red"}, NOTHING), holdings.views({"red"}, NOTHING)

    assert first["red"] is second["red"]

    holdings.put(replace(one, priority=1))

    assert holdings.views({"red"}, NOTHING)["red"] is not first["red"]
    assert (first.get("blue"), first.get("blue", {}), len(first), list(first)) == (None, {}, 1, ["red"])


def test_a_deferred_view_is_made_by_another_thread() -> None:
    """Nothing is made before; a holding that cannot be read is left out; later changes do not count."""
    holdings, thread = HoldingsByQueue[Holding](), ThreadPoolExecutor(1)
    one, broken, hidden = make_holding("one"), make_holding("broken"), make_holding("hidden")
    object.__setattr__(broken, "admission", None)
    for holding in (one, hidden):
        holdings.put(holding)
    holdings.hide(hidden.key)
    views = holdings.views({"red"}, NOTHING)
    assert views.deferred("red") is holdings.views({"red"}, NOTHING).deferred("red")
    holdings._now["red"][broken.key] = broken
    holdings._deferred.clear()
    later = views.deferred("red")
    holdings.put(replace(one, priority=7))

    assert not was_made(one)
    assert thread.submit(lambda: {key: w.priority for key, w in later.items()}).result(5) == {one.key: 0}
    assert was_made(one)
    assert (len(later), later[one.key].uid) == (1, "one")
    assert shown(holdings.views({"red"}, NOTHING), "red") == {one.key: 7}


def test_views_that_nobody_has_any_more_cost_nothing() -> None:
    """They are forgotten when the next one is taken."""
    holdings = HoldingsByQueue[Holding]()
    for _ in range(9):
        views = holdings.views({"red"}, NOTHING)
    holdings.put(make_holding("one"))

    assert shown(views, "red") == {}
    assert len(holdings._open_views) <= 2
