"""Audits of the cache: what was told against what is believed, sums against their parts, events between the steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.api.wire import kueue as wire
from kqueue.core.quota import FlavorResource, potential_available
from kqueue.core.topology import NodeFacts, PodFacts
from kqueue.model import PodView, admission
from kqueue.state.audit import Drift, Recounts
from kqueue.state.cache import Cache
from kqueue.state.cache_audit import Told
from kqueue.state.holding import Holding
from tests.readings import requests_per_pod

HOST = "kubernetes.io/hostname"
CPU = FlavorResource("gpu", "cpu")
CHANGES = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from("abcd"), st.one_of(st.none(), st.tuples(*[st.integers(0, 3)] * 2))),
    max_size=12,
)


@given(
    before=st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 3), st.integers(0, 3))), changes=CHANGES
)
def test_a_recount_ends_at_the_sum_of_what_is_there_then(
    before: dict[str, tuple[int, int]], changes: list[tuple[int, str, tuple[int, int] | None]]
) -> None:
    """Whatever came, changed or went between its steps; what comes to nothing is not there."""
    facts, recounts = dict(before), Recounts[tuple[int, int], int, str](lambda fact: [(fact[0], [("n", fact[1])])])
    with pytest.MonkeyPatch.context() as patch, recounts.open() as recount:
        patch.setattr("kqueue.state.audit.STEP", 1)
        steps = recount.steps(facts)
        for wait, key, fact in changes:
            list(islice(steps, wait))
            old = facts.pop(key, None)
            if fact is not None:
                facts[key] = fact
            recounts.follow(key, old, fact)
        list(steps)
    expected: dict[int, int] = {}
    for place, amount in facts.values():
        expected[place] = expected.get(place, 0) + amount
    assert recount.sums == {place: {"n": amount} for place, amount in expected.items() if amount}


def read(kind: type[Any], **obj: Any) -> Any:
    return msgspec.convert(obj, kind)


def make_workload(
    name: str, *, host: str | None = None, uid: str = "", over: bool = False, cpus: str = "4"
) -> wire.Workload:
    """Pending without a `host`, else admitted there with 4 pods of one cpu."""
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    status: dict[str, Any] = {"conditions": []}
    if host is not None:
        assigned = {
            "levels": [HOST],
            "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": 4}}],
        }
        entry = {"name": "main", "flavors": {"cpu": "gpu"}, "resourceUsage": {"cpu": cpus}, "count": 4}
        status["admission"] = {
            "clusterQueue": "team",
            "podSetAssignments": [{**entry, "topologyAssignment": assigned}],
        }
        status["conditions"] = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    if over:
        status["conditions"].append({"type": "Finished", "status": "True"})
    found: wire.Workload = read(
        wire.Workload,
        metadata={"name": name, "namespace": "ns", "uid": uid or name},
        spec={"queueName": "main", "podSets": [{"name": "main", "count": 4, "template": template}]},
        status=status,
    )
    return found


def make_node(name: str, cpus: int = 8) -> NodeFacts:
    return NodeFacts(name=name, labels={HOST: name}, allocatable={"cpu": cpus * 1000, "pods": 110})


def make_pod(key: str, node: str, cpus: int = 1) -> PodView:
    return PodView(key, bound=PodFacts(node=node, requests=(("cpu", cpus * 1000),)))


class Yard:
    """A cache and what its watches hold."""

    def __init__(self) -> None:
        self.nodes = {name: make_node(name) for name in ("h1", "h2")}
        self.pods = {"ns/p": make_pod("ns/p", "h2"), "ns/gang": PodView("ns/gang")}
        self.workloads = {"ns/a": make_workload("a", host="h1"), "ns/b": make_workload("b")}
        self.cache = self.fed()

    def fed(self) -> Cache:
        """A cache that was told everything that is true now."""
        cache = Cache()
        cache.quota.on_topology(
            "dc", read(wire.Topology, metadata={"name": "dc"}, spec={"levels": [{"nodeLabel": HOST}]})
        )
        cache.on_flavor("gpu", read(wire.ResourceFlavor, metadata={"name": "gpu"}, spec={"topologyName": "dc"}))
        for name, cohort in (("team", "half"), ("other", "whole")):
            quotas = [{"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": "1", "lendingLimit": "1"}]}]
            groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
            spec = {"resourceGroups": groups, "cohortName": cohort}
            cache.quota.on_cluster_queue(name, read(wire.ClusterQueue, metadata={"name": name}, spec=spec))
        cache.quota.on_cohort("half", read(wire.Cohort, metadata={"name": "half"}, spec={"parentName": "whole"}))
        for name, node in self.nodes.items():
            cache.on_node(name, node)
        for key, pod in self.pods.items():
            cache.held.on_pod(key, pod.bound)
        for key, workload in self.workloads.items():
            cache.held.on_workload(key, workload)
        return cache

    def audit(self) -> list[Drift]:
        told = Told(nodes=self.nodes, pods=self.pods, workloads=self.workloads)
        return list(chain(*self.cache.audits.audit_steps(told)))

    def usage(self, cache: Cache) -> list[tuple[str, int]]:
        node = cache.quota.node_of("team")
        assert node is not None
        return [(at.name, at.usage.get(CPU, 0)) for at in node.root.walk()]


def holding(workload: wire.Workload, *, uid: str = "") -> Holding:
    """What a decision to admit this workload assumes."""
    decided = admission(workload)
    assert decided is not None
    return Holding(
        key=f"ns/{workload.metadata.name}",
        uid=uid or workload.metadata.uid,
        local_queue="ns/main",
        admission=decided,
        requests=requests_per_pod(workload),
        admitted=False,
        assumed=True,
    )


def test_nothing_is_found_where_all_events_were_told() -> None:
    """A pending workload and a pod of a gang hold nothing."""
    yard = Yard()
    generation = yard.cache.generation
    assert yard.audit() == []
    assert yard.cache.generation == generation


def miss_a_node(yard: Yard) -> None:
    yard.nodes["h3"] = make_node("h3")


def miss_that_a_node_shrank(yard: Yard) -> None:
    yard.nodes["h2"] = make_node("h2", 4)


def miss_that_a_node_went(yard: Yard) -> None:
    del yard.nodes["h2"]


def miss_a_pod(yard: Yard) -> None:
    yard.pods["ns/q"] = make_pod("ns/q", "h1")


def miss_that_a_pod_ended(yard: Yard) -> None:
    yard.pods["ns/p"] = PodView("ns/p")


def miss_that_a_pod_went(yard: Yard) -> None:
    del yard.pods["ns/p"]


def miss_an_admission(yard: Yard) -> None:
    yard.workloads["ns/b"] = make_workload("b", host="h2")


def miss_another_admission(yard: Yard) -> None:
    yard.workloads["ns/a"] = make_workload("a", host="h2")


def miss_an_eviction(yard: Yard) -> None:
    yard.workloads["ns/a"] = make_workload("a")


def miss_an_end(yard: Yard) -> None:
    yard.workloads["ns/a"] = make_workload("a", host="h1", over=True)


def miss_a_deletion(yard: Yard) -> None:
    del yard.workloads["ns/a"]


def miss_that_another_came_by_the_name(yard: Yard) -> None:
    yard.workloads["ns/b"] = make_workload("b", uid="second")
    with yard.cache.held.assumed(holding(make_workload("b", host="h2"), uid="first")):
        pass


def miss_an_echo(yard: Yard) -> None:
    yard.workloads["ns/b"] = make_workload("b", host="h2")
    with yard.cache.held.assumed(holding(yard.workloads["ns/b"])):
        pass


def spoil_quota(yard: Yard) -> None:
    node = yard.cache.quota.node_of("team")
    assert node is not None
    node.usage[CPU] += 1


def spoil_cohort(yard: Yard) -> None:
    node = yard.cache.quota.node_of("team")
    assert node is not None
    node.root.usage[CPU] = 77


def spoil_foreign_sum(yard: Yard) -> None:
    yard.cache.ledger._foreign["h2"]["cpu"] += 1


@pytest.mark.parametrize(
    ("spoil", "cause", "key"),
    [
        pytest.param(miss_a_node, "node", "h3", id="a node is not known"),
        pytest.param(miss_that_a_node_shrank, "node", "h2", id="a node is smaller than believed"),
        pytest.param(miss_that_a_node_went, "node", "h2", id="a node is gone"),
        pytest.param(miss_a_pod, "foreign-pod", "ns/q", id="a foreign pod is not known"),
        pytest.param(miss_that_a_pod_ended, "foreign-pod", "ns/p", id="a foreign pod has ended"),
        pytest.param(miss_that_a_pod_went, "foreign-pod", "ns/p", id="a foreign pod is gone"),
        pytest.param(miss_an_admission, "workload", "ns/b", id="a workload is admitted and holds nothing"),
        pytest.param(miss_another_admission, "workload", "ns/a", id="a workload is admitted elsewhere"),
        pytest.param(miss_an_echo, "workload", "ns/b", id="what was assumed is true, and nobody said so"),
        pytest.param(miss_an_eviction, "workload", "ns/a", id="a workload holds what it has no more"),
        pytest.param(miss_an_end, "workload", "ns/a", id="a workload has finished"),
        pytest.param(miss_a_deletion, "workload", "ns/a", id="a workload is gone"),
        pytest.param(miss_that_another_came_by_the_name, "workload", "ns/b", id="what was assumed was for another"),
        pytest.param(spoil_quota, "quota", "of ClusterQueue team", id="a wrong sum of a ClusterQueue"),
        pytest.param(spoil_cohort, "quota", "below Cohort whole", id="a wrong sum of a Cohort"),
        pytest.param(spoil_foreign_sum, "foreign-pod", "on h2", id="a wrong sum of the ledger"),
    ],
)
def test_an_audit_names_what_is_wrong_and_heals_it(spoil: Callable[[Yard], None], cause: str, key: str) -> None:
    """The cache believes then what one that was told everything believes, and what waits may be judged again."""
    yard = Yard()
    yard.cache.ledger.snapshot()
    spoil(yard)
    generation = yard.cache.generation

    found = yard.audit()
    assert (found[0].cause, found[0].key) == (cause, key)
    assert yard.cache.generation > generation
    assert yard.audit() == []
    assert yard.cache.ledger.audit(yard.fed().ledger) == []
    assert yard.usage(yard.cache) == yard.usage(yard.fed())


def test_what_followed_from_a_wrong_quota_is_healed_with_it() -> None:
    """Answers that were worked out once are forgotten when what they came from was wrong."""
    yard = Yard()
    node = yard.cache.quota.node_of("team")
    assert node is not None
    right = potential_available(node, CPU)
    node.root.subtree = {CPU: 1}
    for each in node.path_to_root():
        each.cells.clear()
    assert potential_available(node, CPU) != right

    (drift,) = yard.audit()
    assert drift.key == "below Cohort whole"
    assert potential_available(node, CPU) == right


def test_what_is_assumed_is_newer_than_what_was_told() -> None:
    """A decision that is being written stays, although no watch has told of it yet."""
    yard = Yard()
    with yard.cache.held.assumed(holding(make_workload("b", host="h2"))):
        pass
    assert yard.audit() == []
    assert yard.cache.held.holding("ns/b") is not None


def test_a_status_that_cannot_be_read_is_named_and_stops_nobody() -> None:
    """The rest of the audit goes on."""
    yard = Yard()
    yard.workloads["ns/b"] = make_workload("b", host="h2", cpus="much")
    spoil_quota(yard)
    assert [(drift.cause, drift.key) for drift in yard.audit()] == [
        ("workload", "ns/b"),
        ("quota", "of ClusterQueue team"),
    ]


def shrink_a_node(yard: Yard) -> None:
    yard.nodes["h1"] = make_node("h1", 1)
    yard.cache.on_node("h1", yard.nodes["h1"])


def move_a_pod(yard: Yard) -> None:
    yard.pods["ns/p"] = make_pod("ns/p", "h1", 3)
    yard.cache.held.on_pod("ns/p", yard.pods["ns/p"].bound)


def admit(yard: Yard) -> None:
    yard.workloads["ns/b"] = make_workload("b", host="h2")
    yard.cache.held.on_workload("ns/b", yard.workloads["ns/b"])


def assume(yard: Yard) -> None:
    with yard.cache.held.assumed(holding(make_workload("b", host="h2"))):
        pass


def move_a_workload(yard: Yard) -> None:
    yard.workloads["ns/a"] = make_workload("a", host="h2", cpus="3")
    yard.cache.held.on_workload("ns/a", yard.workloads["ns/a"])


def evict(yard: Yard) -> None:
    yard.workloads["ns/a"] = make_workload("a")
    yard.cache.held.on_workload("ns/a", yard.workloads["ns/a"])


def delete_a_workload(yard: Yard) -> None:
    del yard.workloads["ns/a"]
    yard.cache.held.on_workload("ns/a", None)


def delete_a_queue(yard: Yard) -> None:
    yard.cache.quota.on_cluster_queue("team", None)


@pytest.mark.parametrize(
    "change",
    [shrink_a_node, move_a_pod, admit, assume, move_a_workload, evict, delete_a_workload, delete_a_queue],
    ids=lambda change: change.__name__.replace("_", " "),
)
def test_a_change_between_any_two_steps_is_no_drift(
    change: Callable[[Yard], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watches and cache change together; each step compares the present with the present."""
    monkeypatch.setattr("kqueue.state.audit.STEP", 1)
    wait, over = 0, False
    while not over:
        yard = Yard()
        audit = yard.cache.audits.audit_steps(Told(nodes=yard.nodes, pods=yard.pods, workloads=yard.workloads))
        over = len(list(islice(audit, wait))) < wait
        change(yard)
        assert list(chain(*audit)) == []
        wait += 1
    assert wait > 20


@pytest.mark.parametrize(
    ("drift", "text"),
    [
        pytest.param(Drift("node", "h1", None, "x"), "node h1: believed nothing, is x", id="absence is nothing"),
        pytest.param(
            Drift("tree", "f", "a" * 300, ""), f"tree f: believed {'a' * 197}..., is ", id="long values are cut"
        ),
    ],
)
def test_a_drift_fits_into_a_line_of_the_log(drift: Drift, text: str) -> None:
    """Cause, key and both sides."""
    assert str(drift) == text
