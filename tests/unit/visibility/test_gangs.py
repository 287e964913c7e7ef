"""The view of gangs: which gangs a question gets, whom they are shown to, and where their pods are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.errors import ConfigError, NotFoundError
from kqueue.jobs.gang.value import GangRef
from kqueue.runtime.store import Store
from kqueue.visibility.gangs import GangViews
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.running import RunningPlaces
from tests.unit.visibility.worlds import Place, asked, workload

PG, LABELS = "scheduling.x-k8s.io/podgroup", "kqueue.dev/coscheduling-labels"


class Source:
    """Gangs by key; the keys of group objects that no queue has begin with `strange`."""

    def __init__(self, *keys: str, gone: Sequence[str] = (), workload: JSON | None = None) -> None:
        """`workload`: the part of the overview about the Workload of every gang."""
        self._keys, self._gone, self._workload = keys, gone, workload
        self.refreshed = 0

    async def refresh(self) -> None:
        self.refreshed += 1

    def keys(self, namespace: str, *, strangers: bool) -> Sequence[str]:
        inside = [key for key in self._keys if namespace in ("", key.partition("/")[0])]
        return [key for key in inside if strangers or not GangRef.of_key(key).name.startswith("strange")]

    def overview(self, key: str) -> JSON | None:
        ref = GangRef.of_key(key)
        metadata = {"name": ref.name, "namespace": ref.namespace}
        found: JSON = {"metadata": metadata, "framework": ref.framework, "queue": "main"}
        return None if key in self._gone else found | ({"workload": self._workload} if self._workload else {})


def views(source: Source | None, place: Place | None = None, *workloads: wire.Workload) -> GangViews:
    place, store = place or Place(), Store[wire.Workload]()
    for one in workloads:
        store.put(f"{one.metadata.namespace}/{one.metadata.name}", one)
    pending = PendingWorkloads(
        queues=place.queues, workloads=store, local_queues=Store[wire.LocalQueue](), clock=place.clock
    )
    return GangViews(source, workloads=store, pending=pending, places=RunningPlaces(place.cache), clock=place.clock)


def question(
    namespace: str = "",
    one: str = "",
    params: Mapping[str, str] | None = None,
    *,
    reads: Callable[[str], bool] = lambda _: True,
) -> AuthorizedQuestion:
    """A question for `one` gang, or for a list."""
    return replace(asked(one, reads=reads), namespace=namespace, params=params or {})


def named(answer: JSON) -> list[str]:
    return [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in answer["items"]]


@pytest.mark.parametrize(
    ("namespace", "params", "shown"),
    [
        pytest.param("a", {}, ["a/x", "a/y"], id="of a namespace"),
        pytest.param("", {}, ["a/x", "a/y", "b/x"], id="of all"),
        pytest.param("", {"name": "x"}, ["a/x", "b/x"], id="of a name"),
        pytest.param("", {"framework": LABELS}, ["a/y"], id="of a form"),
        pytest.param("a", {"name": "strange"}, ["a/strange"], id="a group object without a queue, by its name only"),
        pytest.param("c", {}, [], id="of a namespace without gangs"),
    ],
)
async def test_a_list_has_the_gangs_of_the_question(namespace: str, params: dict[str, str], shown: list[str]) -> None:
    source = Source(f"a/{PG}:x", f"a/{LABELS}:y", f"b/{PG}:x", f"a/{PG}:strange")
    answer = await views(source).every(question(namespace, params=params))
    assert named(answer) == shown
    assert (answer["left"], answer["hidden"], source.refreshed) == (0, 0, 1)


async def test_a_long_list_says_how_many_are_left() -> None:
    answer = await views(Source(*(f"a/{PG}:x{number}" for number in range(5)))).every(
        question("a", params={"limit": "2"})
    )
    assert named(answer) == ["a/x0", "a/x1"]
    assert answer["left"] == 3


async def test_gangs_of_namespaces_that_the_user_may_not_read_are_counted() -> None:
    """Names of groups are names of Workloads."""
    view = views(Source(f"a/{PG}:x", f"b/{PG}:secret", "b/also-secret"))

    def own(namespace: str) -> bool:
        return namespace == "a"

    everywhere = await view.every(question(reads=own))
    elsewhere = await view.every(question("b", reads=own))
    assert (named(everywhere), everywhere["hidden"]) == (["a/x"], 2)
    assert (elsewhere["items"], elsewhere["hidden"]) == ([], 2)
    with pytest.raises(NotFoundError):
        await view.one(question("b", "secret", reads=own))


async def test_a_gang_that_ends_during_the_question_is_left_out() -> None:
    view = views(Source(f"a/{PG}:x", f"a/{PG}:y", gone=[f"a/{PG}:x"]))
    assert named(await view.every(question("a"))) == ["a/y"]
    with pytest.raises(NotFoundError):
        await view.one(question("a", "x"))


async def test_a_name_of_two_forms_needs_the_form() -> None:
    view = views(Source(f"a/{PG}:x", f"a/{LABELS}:x"))
    with pytest.raises(ConfigError, match="add the parameter framework"):
        await view.one(question("a", "x"))
    assert (await view.one(question("a", "x", {"framework": PG})))["framework"] == PG


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "many"}, {"nmae": "x"}])
async def test_wrong_parameters_are_refused(params: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        await views(Source()).every(question("a", params=params))


async def test_without_kinds_of_pods_there_are_no_gangs() -> None:
    view = views(None)
    assert (await view.every(question("a")))["items"] == []
    with pytest.raises(NotFoundError):
        await view.one(question("a", "x"))


async def test_one_gang_shows_the_domains_above_the_hosts() -> None:
    """The assignment has hosts only; the cache knows their racks."""
    place = Place()
    held = workload("w", "b0-r0-h0", "b0-r0-h1", "b0-r1-h0", namespace="a")
    place.cache.held.on_workload("a/w", held)
    hosts = [{"domain": host, "pods": 1} for host in ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0")]
    view = views(Source(f"a/{PG}:x", workload={"name": "w", "domains": hosts}), place, held)

    one = await view.one(question("a", "x"))
    (by_name,) = (await view.every(question("a", params={"name": "x"})))["items"]
    (listed,) = (await view.every(question("a")))["items"]

    racks = [{"domain": "b0/r0", "pods": 2}, {"domain": "b0/r1", "pods": 1}]
    assert one["workload"]["domains"] == by_name["workload"]["domains"] == racks
    assert listed["workload"]["domains"] == hosts


@pytest.mark.parametrize(
    ("workload", "position"),
    [
        pytest.param({"name": "w"}, {"inLocalQueue": 2, "inClusterQueue": 3}, id="it waits"),
        pytest.param({"name": "w", "clusterQueue": "team"}, None, id="it has quota"),
        pytest.param({"name": "held"}, None, id="it is in no queue"),
    ],
)
async def test_a_waiting_gang_has_its_position(workload: JSON, position: JSON | None) -> None:
    """From 1, in lists and alone; workloads of other namespaces are part of the second number."""
    place = Place()
    for local_queue in ("a/main", "b/main"):
        place.queues.set_local_queue(local_queue, "team")
    place.wait("b/other", local_queue="b/main", since=90)
    place.wait("a/first", local_queue="a/main", since=50)
    place.wait("a/w", local_queue="a/main", since=10)
    view = views(Source(f"a/{PG}:x", workload=workload), place)
    (listed,) = (await view.every(question("a")))["items"]
    assert listed.get("position") == (await view.one(question("a", "x"))).get("position") == position
