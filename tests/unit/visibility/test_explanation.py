"""The explanation of one Workload, whatever its state: never empty, never stale without saying so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.blockers import Blockers
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS
from kqueue.core.workload import Claim
from kqueue.errors import ConfigError, NotFoundError
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.not_running import NotRunning
from kqueue.state.variants import VariantRules
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.queue_quotas import QueueQuotas
from kqueue.visibility.sources import Freshness
from kqueue.visibility.workload_state import Hindrance
from tests.unit.controllers.builders import (
    condition,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    reserved,
)
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.state import families
from tests.unit.visibility.worlds import explainer_of

HOST = "kubernetes.io/hostname"


class Desk:
    """A world with a scheduling loop, and somebody who asks about its Workloads."""

    def __init__(self, *objects: Any, settings: LoopSettings | None = None, **more: Any) -> None:
        self.world = world = Scheduled(*objects, settings=settings)
        self.leads, self.silent, self.readable = True, 0.0, {"ns"}
        blockers = Blockers(local_queues=world.local_queues, cache=world.cache, namespace_labels=world.namespaces.get)

        def held_back(obj: wire.Workload) -> Iterator[Hindrance]:
            return (Hindrance(blocked.reason, blocked.message, blocked.command) for blocked in blockers.all(obj))

        self.explainer = explainer_of(
            world,
            held_back=held_back,
            freshness=Freshness(leads=lambda: self.leads, silence=lambda: self.silent),
            **more,
        )

    async def ask(self, name: str = "a", **params: str) -> JSON:
        async def reads(namespace: str) -> bool:
            return namespace in self.readable

        answer = await self.explainer.view(AuthorizedQuestion(namespace="ns", name=name, params=params, reads=reads))
        assert answer["summary"]
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
        return plain


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def build(*objects: Any, **more: Any) -> Desk:
        desks.append(Desk(*objects, **more))
        return desks[-1]

    yield build
    for desk in desks:
        await desk.world.close()


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_one_that_waits_for_quota_says_who_holds_it_and_what_would_help(make: Callable[..., Desk]) -> None:
    """Six of ten cpus are held by another one of the namespace."""
    desk = make()
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a", cpus=5))
    await desk.world.cycle()
    desk.world.sync()
    answer = await desk.ask()

    assert (answer["kind"], answer["state"]) == ("Explanation", "Pending")
    assert answer["summary"] == "It waits: 5 cpu of flavor default asked, ClusterQueue team has 4 free"
    pending = answer["pending"]
    kinds = [blocker["kind"] for blocker in pending["blockers"]]
    assert kinds == ["Quota", "NoCandidates"]
    assert pending["blockers"][0] | {"message": ""} == {
        "kind": "Quota",
        "podSet": "main",
        "flavor": "default",
        "resource": "cpu",
        "asked": "5",
        "free": "4",
        "message": "",
    }
    (flavor,) = pending["flavors"]
    (column,) = flavor["quota"]
    assert column["heldBy"]["workloads"] == [
        {"namespace": "ns", "name": "b", "clusterQueue": "team", "priority": 0, "amount": "6"}
    ]
    ifs = [what_if["if"] for what_if in pending["wouldStartIf"]]
    assert ifs == [
        "workload ns/b ended",
        "ClusterQueue team had a nominalQuota of 11 instead of 10 for cpu in flavor default",
    ]
    assert pending["wouldStartIf"][0]["then"]["clusterQueue"] == "team"
    assert pending["search"] == {"complete": True}
    assert answer["told"]["reason"] == "WaitingForQuota"


def runs_since(since: datetime, name: str, *, cpus: int, namespace: str = "ns", **notes: str) -> JSON:
    """A Workload of low priority that was admitted then; `notes` are annotations of kqueue.dev."""
    running = make_workload(name, cpus=cpus, priority=-1, status=reserved(condition("Admitted"), cpus=cpus))
    running["status"]["conditions"][-1]["lastTransitionTime"] = utc_text(since)
    running["metadata"] |= {
        "namespace": namespace,
        "annotations": {f"kqueue.dev/{key.replace('_', '-')}": value for key, value in notes.items()},
    }
    return running


async def test_a_preemption_is_told_with_the_work_that_it_loses(make: Callable[..., Desk]) -> None:
    """Two of the three victims may be read; the third counts, and nothing is said of its run."""
    queue = make_cluster_queue(preemption={"withinClusterQueue": "LowerPriority"})
    desk = make((CLUSTER_QUEUES, queue), (LOCAL_QUEUES, make_local_queue()))
    since = desk.world.clock.now() - timedelta(hours=2)
    saved = utc_text(since + timedelta(hours=1))
    desk.world.add(
        runs_since(since, "b", cpus=3),
        runs_since(since, "c", cpus=3, last_checkpoint=saved),
        runs_since(since, "d", cpus=3, namespace="other"),
        make_workload("a", cpus=10),
    )

    answer = await desk.ask()
    now = answer["pending"]["now"]
    desk.readable.add("other")
    read = (await desk.ask())["pending"]["now"]

    assert now["targetCount"] == 3
    assert now["lost"] == {"podSeconds": 7260 + 3660, "pods": 2, "message": "1h31m of 2 pods"}
    assert "by preempting 3 workloads, losing 1h31m of 2 pods" in answer["summary"]
    assert read["lost"] == {"podSeconds": 7260 * 2 + 3660, "pods": 3, "message": "1h41m of 3 pods"}


async def test_the_time_from_which_a_protected_workload_may_be_preempted(make: Callable[..., Desk]) -> None:
    queue = make_cluster_queue(preemption={"withinClusterQueue": "LowerPriority"})
    queue["metadata"]["annotations"] = {"kqueue.dev/longest-minimum-runtime": "1h"}
    desk = make((CLUSTER_QUEUES, queue), (LOCAL_QUEUES, make_local_queue()))
    since = desk.world.clock.now()
    desk.world.add(runs_since(since, "b", cpus=6, minimum_runtime="20m"), make_workload("a", cpus=6))

    now = (await desk.ask())["pending"]["now"]

    assert now["at"] == utc_text(since + timedelta(minutes=20))


async def test_a_quota_that_follows_nodes_is_shown_as_resolved(make: Callable[..., Desk]) -> None:
    queue = make_cluster_queue(cpus=10)
    queue["metadata"]["annotations"] = {
        "kqueue.dev/quota-from-capacity": "default/cpu=50%",
        "kqueue.dev/resolved-quota": "default/cpu=4",
    }
    desk = make((CLUSTER_QUEUES, queue), (LOCAL_QUEUES, make_local_queue()))
    desk.world.add(make_workload("a", cpus=5))

    (flavor,) = (await desk.ask())["pending"]["flavors"]

    assert [column["nominal"] for column in flavor["quota"]] == ["4"]


async def test_when_it_was_tried_last_and_on_which_state(make: Callable[..., Desk]) -> None:
    """What has changed since is counted."""
    desk = make()
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a", cpus=5))
    await desk.world.cycle()
    await desk.world.clock.advance(7)
    answer = await desk.ask()

    tried = answer["pending"]["lastTried"]
    assert (tried["known"], tried["secondsAgo"], tried["reason"]) == (True, 7, "WaitingForQuota")
    assert (tried["changesSince"], tried["generation"]) == (0, answer["asOf"]["generation"])

    desk.world.client.put(RESOURCE_FLAVORS, make_flavor("other"))
    desk.world.sync()
    assert (await desk.ask())["pending"]["lastTried"]["changesSince"] > 0


async def test_one_that_was_never_tried_says_so(make: Callable[..., Desk]) -> None:
    """No cycle has run yet, and it would fit."""
    desk = make()
    desk.world.add(make_workload())
    answer = await desk.ask()

    assert answer["pending"]["lastTried"]["known"] is False
    assert "not been tried" in answer["pending"]["lastTried"]["message"]
    assert answer["pending"]["now"]["outcome"] == "Admit"
    assert answer["summary"] == "It fits now, and is tried next: it is number 1 of 1 in ClusterQueue team"


async def test_a_try_of_an_equal_counts_and_is_told_apart(make: Callable[..., Desk]) -> None:
    """Two of one form: the younger is parked by the try of the older."""
    desk = make()
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a", cpus=5))
    desk.world.add(make_workload("c", cpus=5, minute=5))
    await desk.world.cycle()
    pending = (await desk.ask("c"))["pending"]

    assert pending["lastTried"]["byEqual"] is True
    assert (pending["position"]["place"], pending["position"]["of"]) == (2, 2)
    assert pending["position"]["line"] == "set aside until something changes"


async def test_the_place_counts_all_in_the_queue_and_those_of_the_own_door(make: Callable[..., Desk]) -> None:
    """Three before it in the ClusterQueue, one of them through its own LocalQueue."""
    desk = make((LOCAL_QUEUES, make_local_queue("side")))
    desk.world.add(*(make_workload(f"s{i}", queue="side", minute=i) for i in range(2)))
    desk.world.add(make_workload("m", minute=3), make_workload("a", minute=4))
    position = (await desk.ask())["pending"]["position"]

    assert (position["place"], position["of"]) == (4, 4)
    assert (position["placeInLocalQueue"], position["ofInLocalQueue"]) == (2, 2)


async def test_all_answers_count_the_same_places(make: Callable[..., Desk]) -> None:
    """Explanations and quotas from 1; the compatible API, which `kqueue list` adds 1 to, from 0."""
    desk = make((LOCAL_QUEUES, make_local_queue("side")))
    world, names = desk.world, ("a", "b", "c", "d")
    world.add(*(make_workload(n, queue="side" if i % 2 else "main", minute=i) for i, n in enumerate(names)))
    pending = PendingWorkloads(
        queues=world.queues, workloads=world.workloads, local_queues=world.local_queues, clock=world.clock
    )
    quotas = QueueQuotas(
        cache=world.cache,
        queues=world.queues,
        pending=pending,
        local_queues=world.local_queues.values,
        clock=world.clock,
    )

    async def reads(_namespace: str) -> bool:
        return True

    explained = {n: (await desk.ask(n))["pending"]["position"] for n in names}
    listed = await pending.places("team")
    shown = (await quotas.view(AuthorizedQuestion(namespace="ns", name="", params={}, reads=reads)))["items"]
    waiting = {one["name"]: one for item in shown for one in item["waiting"]}

    assert {n: (p["place"], p["placeInLocalQueue"]) for n, p in explained.items()} == {
        "a": (1, 1), "b": (2, 1), "c": (3, 2), "d": (4, 2),
    }  # fmt: skip
    for place in listed:
        name = place.item.key.partition("/")[2]
        at = place.in_cluster_queue + 1, place.in_local_queue + 1
        assert at == (explained[name]["place"], explained[name]["placeInLocalQueue"])
        assert at == (waiting[name]["positionInClusterQueue"], waiting[name]["position"])
    assert len(listed) == len(waiting) == 4


async def test_in_a_strict_queue_those_in_front_hold_it_back(make: Callable[..., Desk]) -> None:
    """It would fit, and is not tried before the one in front."""
    desk = make((CLUSTER_QUEUES, make_cluster_queue(queueingStrategy="StrictFIFO")))
    desk.world.add(make_workload("b", cpus=20), make_workload("a", cpus=1, minute=1))
    await desk.world.cycle()
    (held,) = (await desk.ask())["pending"]["heldBackBy"]

    assert held["kind"] == "StrictFIFO"
    assert "ClusterQueue team is StrictFIFO, and ns/b is first" in held["message"]


@pytest.mark.parametrize(
    ("objects", "workload", "kinds", "words"),
    [
        pytest.param(
            [(LOCAL_QUEUES, make_local_queue(stopPolicy="Hold"))],
            make_workload(),
            ["Suspended"],
            "LocalQueue main is stopped",
            id="its LocalQueue is stopped",
        ),
        pytest.param(
            [], make_workload(queue="nowhere"), ["Misconfigured"], "nowhere does not exist", id="no LocalQueue"
        ),
        pytest.param(
            [(LOCAL_QUEUES, make_local_queue(cluster_queue="gone"))],
            make_workload(),
            ["Misconfigured"],
            "ClusterQueue gone",
            id="no ClusterQueue",
        ),
        pytest.param(
            [],
            make_workload(metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": "x.dev/budget"}}),
            ["AdmissionGated"],
            "Held back by x.dev/budget",
            id="a gate of its own",
        ),
        pytest.param(
            [(LOCAL_QUEUES, make_local_queue(stopPolicy="Hold"))],
            make_workload(
                metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": "x.dev/budget"}}, active=False
            ),
            ["Suspended", "Deactivated", "AdmissionGated"],
            "LocalQueue main is stopped",
            id="all of it at once",
        ),
        pytest.param(
            [],
            make_workload(status={"requeueState": {"count": 2, "requeueAt": "2026-01-01T00:10:00Z"}}),
            ["BackOff"],
            "not tried before 2026-01-01T00:10:00Z; it was sent back 2 times",
            id="a back-off",
        ),
        pytest.param(
            [],
            make_workload(
                status={
                    "conditions": [condition("QuotaReserved", "False", "OnHold", "held by hand")],
                }
            ),
            ["OnHold"],
            "held by hand",
            id="on hold",
        ),
        pytest.param(
            [],
            make_workload(cpus="many"),
            ["Misconfigured"],
            "many",
            id="requests that cannot be read",
        ),
    ],
)
async def test_what_else_holds_it_back(
    make: Callable[..., Desk], objects: list[Any], workload: JSON, kinds: list[str], words: str
) -> None:
    """All of it, each with a sentence; the first is the summary."""
    desk = make(*objects)
    desk.world.add(workload)
    answer = await desk.ask()

    held = answer["pending"]["heldBackBy"]
    assert list(dict.fromkeys(one["kind"] for one in held)) == kinds
    assert words in held[0]["message"]
    assert held[0]["message"] in answer["summary"]


async def test_another_queue_of_the_namespace_is_a_way_out(make: Callable[..., Desk]) -> None:
    """One has the quota, one is stopped, one leads to the same ClusterQueue."""
    desk = make(
        (CLUSTER_QUEUES, make_cluster_queue("roomy", cpus=100)),
        (LOCAL_QUEUES, make_local_queue("free", cluster_queue="roomy")),
        (LOCAL_QUEUES, make_local_queue("closed", cluster_queue="roomy", stopPolicy="Hold")),
        (LOCAL_QUEUES, make_local_queue("same")),
    )
    desk.world.add(make_workload(cpus=50))
    pending = (await desk.ask())["pending"]

    changes = [one["change"] for one in pending["wouldStartIf"]]
    quota = {"flavor": "default", "resource": "cpu", "nominalQuota": "50", "insteadOf": "10"}
    assert changes == [
        {"kind": "OtherQueue", "localQueue": "free", "clusterQueue": "roomy"},
        {"kind": "MoreQuota", "clusterQueue": "team", "quotas": [quota]},
    ]


# --- who may read what -----------------------------------------------------------------------------------------------


async def test_others_are_named_only_to_those_who_may_read_them(make: Callable[..., Desk]) -> None:
    """The one that holds the quota lives in another namespace."""
    other = {**make_local_queue(), "metadata": {"name": "main", "namespace": "secret"}}
    desk = make((LOCAL_QUEUES, other))
    desk.world.namespaces["secret"] = {}
    holder = make_workload("hidden", metadata={"namespace": "secret"}, status=reserved(cpus=6))
    desk.world.add(holder, make_workload("a", cpus=5))
    answer = await desk.ask()

    assert "hidden" not in str(answer).replace("'hidden': True", "")
    assert "secret" not in str(answer)
    assert answer["pending"]["wouldStartIf"][0]["if"] == "a workload of another namespace ended"
    (flavor,) = answer["pending"]["flavors"]
    assert flavor["quota"][0]["heldBy"]["workloads"] == [{"hidden": True, "amount": "6"}]

    desk.readable.add("secret")
    assert (await desk.ask())["pending"]["wouldStartIf"][0]["if"] == "workload secret/hidden ended"


async def test_one_that_waits_for_the_pods_of_another_names_it_only_to_those_who_may_read_it(
    make: Callable[..., Desk],
) -> None:
    """Nobody is admitted before the pods of that one are ready."""
    desk = make(settings=LoopSettings(block_admission=True))
    other = {**make_local_queue(), "metadata": {"name": "main", "namespace": "secret"}}
    desk.world.client.put(LOCAL_QUEUES, other)
    desk.world.namespaces["secret"] = {}
    desk.world.add(make_workload("hidden", metadata={"namespace": "secret"}, status=reserved()), make_workload())
    (held,) = (await desk.ask())["pending"]["heldBackBy"]
    assert held["kind"] == "WaitingForPodsReady"
    assert "a workload of another namespace" in held["message"]

    desk.readable.add("secret")
    (held,) = (await desk.ask())["pending"]["heldBackBy"]
    assert "secret/hidden" in held["message"]


async def test_one_that_makes_room_for_another_names_it_only_to_those_who_may_read_it(
    make: Callable[..., Desk],
) -> None:
    """Its place is kept for a preemptor of another namespace, for which it had to leave."""
    desk = make()
    desk.world.namespaces["secret"] = {}
    other = {**make_local_queue(), "metadata": {"name": "main", "namespace": "secret"}}
    desk.world.client.put(LOCAL_QUEUES, other)
    desk.world.add(make_workload("preemptor", metadata={"namespace": "secret"}), make_workload())
    desk.world.preemptions.begin(
        Claim(
            key="secret/preemptor",
            uid="uid-of-preemptor",
            queue="team",
            usage={},
            victims={"uid-of-a": ("team", "ns/a")},
        )
    )
    blocker = (await desk.ask())["pending"]["blockers"][0]
    assert blocker["kind"] == "Yields"
    assert blocker["message"] == "it was preempted for a workload of ClusterQueue team, which is admitted first"

    desk.readable.add("secret")
    assert "secret/preemptor" in (await desk.ask())["pending"]["blockers"][0]["message"]


# --- what an answer is made of ---------------------------------------------------------------------------------------


async def test_an_answer_says_how_old_what_it_is_made_of_may_be(make: Callable[..., Desk]) -> None:
    """A replica that does not decide, and an API server that is silent."""
    desk = make()
    desk.world.add(make_workload())
    assert "notes" not in (await desk.ask())["asOf"]

    desk.leads, desk.silent = False, 500.0
    answer = await desk.ask()

    assert answer["asOf"]["leading"] is False
    assert "line" not in answer["pending"]["position"]
    old, follows = answer["asOf"]["notes"]
    assert "silent for 500 s" in old
    assert "does not decide" in follows
    assert "does not try workloads" in answer["pending"]["lastTried"]["message"]


async def test_a_search_that_ran_out_of_time_says_what_it_has_left_out(make: Callable[..., Desk]) -> None:
    """No time at all is given to it."""
    desk = make(search_seconds=-1.0)
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a", cpus=5))
    search = (await desk.ask())["pending"]["search"]

    assert search["complete"] is False
    assert "time limit" in search["message"]
    assert search["notSearched"]


async def test_the_search_can_be_left_out(make: Callable[..., Desk]) -> None:
    """For those who want the blockers only."""
    desk = make()
    desk.world.add(make_workload("a", cpus=50))
    pending = (await desk.ask(whatIf="false"))["pending"]

    assert pending["blockers"]
    assert "wouldStartIf" not in pending


async def test_wrong_questions_are_refused(make: Callable[..., Desk]) -> None:
    """No such Workload; no such parameter; no such value."""
    desk = make()
    desk.world.add(make_workload())
    with pytest.raises(NotFoundError, match="nobody"):
        await desk.ask("nobody")
    with pytest.raises(ConfigError, match="depth"):
        await desk.ask(depth="3")
    with pytest.raises(ConfigError, match="true or false"):
        await desk.ask(whatIf="perhaps")


async def test_asking_changes_nothing(make: Callable[..., Desk]) -> None:
    """The next cycle decides as it would have; a snapshot that somebody else has is left alone."""
    desk = make()
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a", cpus=5))
    before = (desk.world.cache.generation, desk.world.free(), desk.world.queues.position("ns/a"))
    await desk.ask()

    assert (desk.world.cache.generation, desk.world.free(), desk.world.queues.position("ns/a")) == before
    assert desk.world.cache.audits.audit() == []
    assert await desk.world.cycle() is False


# --- running, evicted, finished --------------------------------------------------------------------------------------


def racks(*names: str) -> list[Any]:
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]
    return [
        (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": levels}}),
        (RESOURCE_FLAVORS, make_flavor(topologyName="dc")),
    ]


def put_node(desk: Desk, name: str, rack: str, *, cpus: int = 4, **spec: Any) -> None:
    body = {
        "metadata": {"name": name, "labels": {"rack": rack, HOST: name}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": str(cpus), "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    desk.world.intake.on_node(None, model.node_facts(msgspec.convert(body, wire_core.Node)))


async def test_one_that_runs_says_where_and_how_good_that_is(make: Callable[..., Desk]) -> None:
    """Two pods in two racks, where one would hold both."""
    desk = make(*racks())
    for name, rack in (("h1", "r1"), ("h2", "r1"), ("h3", "r2")):
        put_node(desk, name, rack)
    status = reserved(cpus=4, pods=2)
    status["admission"]["podSetAssignments"][0]["topologyAssignment"] = {
        "levels": [HOST],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "h", "roots": ["1", "3"]}}],
                "podCounts": {"universal": 1},
            }
        ],
    }
    desk.world.add(make_workload(cpus=4, pods=2, status=status))
    answer = await desk.ask()

    assert answer["state"] == "Running"
    assert "pending" not in answer
    (pod_set,) = answer["running"]["podSets"]
    assert pod_set["placement"]["levels"] == [
        {"level": "rack", "domains": 2, "fewestPossible": 1},
        {"level": HOST, "domains": 2, "fewestPossible": 2},
    ]
    assert pod_set["placement"]["domains"] == [{"domain": ["r1"], "pods": 1}, {"domain": ["r2"], "pods": 1}]
    assert "2 of rack" in answer["summary"]
    assert "lost" not in pod_set["placement"]


async def test_pods_that_do_not_run_are_shown_with_the_sentence_of_the_scheduler(make: Callable[..., Desk]) -> None:
    """In the summary, and with names and the time."""
    since = datetime(2020, 1, 1, tzinfo=UTC)
    pods = [NotRunning(key=f"ns/p{number}", since=since, message="no free ports") for number in range(12)]
    desk = make(not_running=lambda _workload: pods)
    desk.world.add(make_workload(cpus=4, status=reserved(cpus=4)))
    answer = await desk.ask()

    shown = answer["running"]["podsNotRunning"]
    assert (shown["count"], shown["time"]) == (12, "2020-01-01T00:00:00Z")
    assert shown["pods"] == [f"p{number}" for number in range(10)]
    assert shown["sentences"] == [{"message": "no free ports", "pods": 12}]
    assert answer["summary"].endswith(f"12 pods do not run for {shown['secondsAgo']} s: no free ports")


async def test_hosts_that_are_gone_are_named(make: Callable[..., Desk]) -> None:
    """One of two hosts of an admitted workload is no part of the topology."""
    desk = make(*racks())
    put_node(desk, "h1", "r1")
    status = reserved(cpus=4, pods=2)
    values = {"individual": {"prefix": "h", "roots": ["1", "7"]}}
    slices = [{"domainCount": 2, "valuesPerLevel": [values], "podCounts": {"universal": 1}}]
    status["admission"]["podSetAssignments"][0]["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    desk.world.add(make_workload(cpus=4, pods=2, status=status))
    (pod_set,) = (await desk.ask())["running"]["podSets"]

    assert (pod_set["placement"]["lost"], pod_set["placement"]["lostHosts"]) == (1, ["h7"])


async def test_one_that_borrows_says_what(make: Callable[..., Desk]) -> None:
    """Its queue uses more than its own ten cpus."""
    desk = make(
        (CLUSTER_QUEUES, make_cluster_queue(cohortName="all")),
        (CLUSTER_QUEUES, make_cluster_queue("lender", cohortName="all")),
    )
    desk.world.add(make_workload(cpus=12, status=reserved(cpus=12)))
    (borrowed,) = (await desk.ask())["running"]["borrows"]

    assert borrowed == {
        "flavor": "default",
        "resource": "cpu",
        "usedByIt": "12",
        "usedByQueue": "12",
        "nominal": "10",
        "borrowedByQueue": "2",
        "from": "cohort all",
    }


async def test_one_that_was_evicted_says_by_whom_by_which_rule_and_when_it_returns(make: Callable[..., Desk]) -> None:
    """Preempted, its pods are gone, and it waits again."""
    desk = make()
    conditions = [
        condition("Evicted", reason="Preempted", message="Makes room for ns/other"),
        condition("Preempted", reason="InClusterQueue", message="Makes room for ns/other"),
        condition("QuotaReserved", "False", reason="Pending"),
    ]
    stats = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]}
    desk.world.add(make_workload(status={"conditions": conditions, "schedulingStats": stats}))
    answer = await desk.ask()

    evicted = answer["evictions"]
    assert (answer["state"], evicted["reason"], evicted["rule"]) == ("Evicted", "Preempted", "InClusterQueue")
    assert evicted["message"] == "Makes room for ns/other"
    assert evicted["counts"] == [{"reason": "Preempted", "count": 2}]
    assert evicted["returns"] == "it is back in its queue"
    assert answer["summary"].startswith("It was evicted, and waits again: ")


async def test_one_that_is_leaving_says_when_it_comes_back(make: Callable[..., Desk]) -> None:
    """Its pods have not ended yet."""
    desk = make()
    desk.world.add(make_workload(status=reserved(condition("Admitted"), condition("Evicted", reason="Preempted"))))
    answer = await desk.ask()

    assert answer["state"] == "Leaving"
    assert answer["evictions"]["returns"] == "it comes back when its pods have ended"


async def test_one_that_has_quota_and_waits_for_checks_names_them(make: Callable[..., Desk]) -> None:
    """Two checks, one of which is ready."""
    desk = make()
    states = [
        {"name": name, "state": state, "message": "", "lastTransitionTime": "2025-12-31T00:00:00Z"}
        for name, state in (("budget", "Pending"), ("licence", "Ready"))
    ]
    desk.world.add(make_workload(status=reserved(condition("Admitted", "False"), admissionChecks=states)))
    answer = await desk.ask()

    assert answer["state"] == "Reserved"
    assert answer["summary"] == "It has quota in ClusterQueue team and waits for admission checks: budget"


async def test_one_whose_checks_are_ready_waits_for_domains(make: Callable[..., Desk]) -> None:
    """Its nodes were made, and no domain has room yet."""
    desk = make()
    ready = {"name": "nodes", "state": "Ready", "message": "", "lastTransitionTime": "2025-12-31T00:00:00Z"}
    status = reserved(condition("Admitted", "False"), admissionChecks=[ready])
    status["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = "Pending"
    desk.world.add(make_workload(status=status))
    answer = await desk.ask()

    assert answer["state"] == "Reserved"
    assert answer["summary"].startswith("It has quota in ClusterQueue team and waits for domains")


async def test_one_that_has_finished_says_how(make: Callable[..., Desk]) -> None:
    """It has nothing more to wait for."""
    desk = make()
    desk.world.add(
        make_workload(status={"conditions": [condition("Finished", reason="Failed", message="a pod failed")]})
    )
    answer = await desk.ask()

    assert (answer["state"], answer["summary"]) == ("Finished", "It has finished: a pod failed")
    assert answer["finished"]["reason"] == "Failed"


async def test_a_cordoned_node_is_a_way_out(make: Callable[..., Desk]) -> None:
    """The pod fits on no host that takes pods, and on the cordoned one."""
    desk = make(*racks())
    put_node(desk, "h1", "r1", cpus=2)
    put_node(desk, "h2", "r1", cpus=8, unschedulable=True)
    desk.world.add(make_workload(cpus=8))
    pending = (await desk.ask())["pending"]

    assert [one["if"] for one in pending["wouldStartIf"]] == ["node h2 was uncordoned"]
    levels = pending["flavors"][0]["levels"]
    assert [level["level"] for level in levels] == ["rack", HOST]


async def test_a_workload_that_is_gone_when_its_turn_comes_is_not_found(make: Callable[..., Desk]) -> None:
    """Questions are answered one after the other."""
    desk = make()
    desk.world.add(make_workload())
    async with desk.explainer._turn:
        question = asyncio.create_task(desk.ask())
        await asyncio.sleep(0)
        desk.world.workloads.remove("ns/a")
    with pytest.raises(NotFoundError):
        await question


async def test_a_change_names_the_workloads_that_take_the_room_first(make: Callable[..., Desk]) -> None:
    """Number 2 of 2 starts with the room for both, and not with the room for one; number 1 needs nothing more."""
    desk = make()
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a0", cpus=5), make_workload("a", cpus=5))
    await desk.world.cycle()
    desk.world.sync()
    answers = [(await desk.ask(name))["pending"] for name in ("a", "a0")]
    second, first = sorted(answers, key=lambda answer: -answer["position"]["place"])

    assert all("alsoNeeded" not in one for one in first["wouldStartIf"])
    ends, quota = second["wouldStartIf"]
    assert (ends["if"], "alsoNeeded" in ends) == ("workload ns/b ended", False)
    assert quota["alsoNeeded"] == ["room for ns/a, which would start first and take the room"]


async def test_with_too_many_ahead_their_number_is_what_is_also_needed(make: Callable[..., Desk]) -> None:
    desk = make()
    desk.world.add(make_workload("b", status=reserved(cpus=6)))
    desk.world.add(*(make_workload(f"w{n}", cpus=5, minute=n) for n in range(40)))
    await desk.world.cycle()
    desk.world.sync()
    found = (await desk.ask("w39"))["pending"]["wouldStartIf"]

    assert found
    assert all(
        one["alsoNeeded"]
        == [
            "after 39 others in ClusterQueue team, if they leave the room",
            "workloads that wait in other ClusterQueues leave the room",
        ]
        for one in found
    )


async def test_one_that_fits_and_is_not_first_is_promised_nothing(make: Callable[..., Desk]) -> None:
    """What the other one takes may be what it needs."""
    desk = make()
    desk.world.add(make_workload("b", cpus=8), make_workload("a", cpus=8, minute=1))
    answer = await desk.ask()

    assert answer["pending"]["now"]["outcome"] == "Admit"
    assert answer["summary"] == (
        "It would fit now; 1 other workload of ClusterQueue team may take the room before: it is number 2 of 2 in "
        "ClusterQueue team"
    )


async def test_a_stopped_queue_comes_first_with_its_command(make: Callable[..., Desk]) -> None:
    """Of both queues; every change needs the same commands."""
    hold: dict[str, Any] = {"stopPolicy": "Hold"}
    desk = make((LOCAL_QUEUES, make_local_queue(**hold)), (CLUSTER_QUEUES, make_cluster_queue(**hold)))
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a", cpus=5))
    answer = await desk.ask()
    commands = ["kqueue resume localqueue main -n ns", "kqueue resume clusterqueue team"]

    assert [held.get("command") for held in answer["pending"]["heldBackBy"]] == commands
    assert answer["summary"] == (
        "It is not tried now: LocalQueue main is stopped (stopPolicy Hold); run: kqueue resume localqueue main -n ns"
    )
    assert all(one["commands"][:2] == commands for one in answer["pending"].get("wouldStartIf", ()))


async def test_the_try_of_an_equal_that_is_older_is_not_its_own(make: Callable[..., Desk]) -> None:
    """The equal one was refused, and deleted, before this one was created."""
    desk = make()
    desk.world.add(make_workload("b", status=reserved(cpus=6)), make_workload("a", cpus=5))
    await desk.world.cycle()
    desk.world.client.drop(WORKLOADS, "ns/a")
    await desk.world.clock.advance(198)
    created = utc_text(desk.world.clock.now())
    desk.world.add(make_workload("c", cpus=5, metadata={"creationTimestamp": created}))
    tried = (await desk.ask("c"))["pending"]["lastTried"]

    assert tried["known"] is False
    assert "secondsAgo" not in tried


async def test_one_that_got_quota_again_is_not_said_to_be_evicted_now(make: Callable[..., Desk]) -> None:
    """Reason and time of the condition are those of the reservation that ended the eviction."""
    desk = make()
    evicted = condition("Evicted", "False", reason="QuotaReserved", message="Previously: Makes room for ns/other")
    desk.world.add(make_workload(status=reserved(condition("Admitted"), evicted)))
    evictions = (await desk.ask())["evictions"]

    assert (evictions["current"], evictions["message"]) == (False, "Makes room for ns/other")
    assert "reason" not in evictions


# --- concurrent admission --------------------------------------------------------------------------------------------


async def test_a_parent_tells_of_its_variants(make: Callable[..., Desk]) -> None:
    """Each with its state and why it waits; the parent itself is not tried, so nothing is said of its flavors."""
    flavors = ("reserved", "spot", "on-demand")
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    queue = make_cluster_queue(cpus=dict.fromkeys(flavors, 3), concurrentAdmissionPolicy=policy)
    desk = make(
        *((RESOURCE_FLAVORS, make_flavor(name)) for name in flavors),
        (CLUSTER_QUEUES, queue),
        settings=LoopSettings(variants=VariantRules()),
    )
    forged = families.variant_json("on-demand", cpus=9)
    desk.world.add(families.parent_json(), families.variant_json("reserved"), forged)
    await desk.world.cycle()
    await desk.world.cycle()
    desk.world.sync()

    answer = await desk.ask(families.PARENT)

    assert answer["variants"] == [
        {
            "flavor": "reserved",
            "name": "job-sample-variant-reserved-e80b8",
            "state": "Pending",
            "reason": "ExceedsMaxQuota",
            "message": answer["variants"][0]["message"],
        },
        {"flavor": "spot", "state": "Missing"},
        {"flavor": "on-demand", "state": "Missing"},
    ]
    assert "4 cpu of flavor reserved asked" in answer["variants"][0]["message"]
    assert "flavors" not in answer["pending"]
    assert "variants" not in await desk.ask(forged["metadata"]["name"])


async def test_a_running_parent_tells_of_its_variants(make: Callable[..., Desk]) -> None:
    """With its own placement."""
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    queue = make_cluster_queue(cpus={"spot": 4, "on-demand": 4}, concurrentAdmissionPolicy=policy)
    flavors = ((RESOURCE_FLAVORS, make_flavor(name)) for name in ("spot", "on-demand"))
    desk = make(*flavors, (CLUSTER_QUEUES, queue), settings=LoopSettings(variants=VariantRules()))
    desk.world.add(
        families.parent_json(families.admitted("spot")), families.variant_json("spot", families.admitted("spot"))
    )

    answer = await desk.ask(families.PARENT)

    assert answer["state"] == "Running"
    assert answer["running"]["podSets"][0]["flavors"] == {"cpu": "spot"}
    assert [(one["flavor"], one["state"]) for one in answer["variants"]] == [
        ("spot", "Running"),
        ("on-demand", "Missing"),
    ]
