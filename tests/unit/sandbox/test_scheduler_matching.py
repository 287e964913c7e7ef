from __future__ import annotations

from typing import Any

import pytest

from kqueue.kube.taints import untolerated_taint
from kqueue.sandbox.matching import named_node, node_shape, pod_requests, selects, taint_of, toleration_of
from kqueue.sandbox.node_table import NodeTable, NoFit, PodFit
from tests.unit.sandbox.simulated_world import make_pod

LABELS = {"zone": "a", "rack": "7", "gpu": ""}


def affinity(*terms: Any) -> dict[str, Any]:
    """A pod spec's affinity with these required terms."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A term with one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, True, id="asks-nothing"),
        pytest.param({"nodeSelector": {"zone": "a", "gpu": ""}}, True, id="selector-matches"),
        pytest.param({"nodeSelector": {"zone": "a", "rack": "8"}}, False, id="one-key-of-the-selector-differs"),
        pytest.param({"nodeSelector": {"missing": ""}}, False, id="empty-value-is-not-a-missing-key"),
        pytest.param(affinity(rule("zone", "In", "b", "a")), True, id="in"),
        pytest.param(affinity(rule("zone", "NotIn", "a")), False, id="not-in"),
        pytest.param(affinity(rule("missing", "NotIn", "a")), True, id="not-in-accepts-a-missing-key"),
        pytest.param(affinity(rule("gpu", "Exists")), True, id="exists"),
        pytest.param(affinity(rule("gpu", "DoesNotExist")), False, id="does-not-exist"),
        pytest.param(affinity(rule("rack", "Gt", "6")), True, id="greater"),
        pytest.param(affinity(rule("rack", "Lt", "7")), False, id="less"),
        pytest.param(affinity(rule("zone", "Gt", "6")), False, id="text-compares-with-nothing"),
        pytest.param(affinity(rule("zone", "In", "b"), rule("rack", "In", "7")), True, id="one-term-is-enough"),
        pytest.param(affinity({}), False, id="empty-term-matches-nothing"),
        pytest.param(affinity(), False, id="no-terms-match-nothing"),
        pytest.param(affinity(rule("zone", "Sometimes")), False, id="unknown-operator-matches-nothing"),
        pytest.param(
            affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True, id="name"
        ),
        pytest.param(
            {"nodeSelector": {"zone": "b"}, **affinity(rule("zone", "In", "a"))}, False, id="selector-and-affinity"
        ),
    ],
)
def test_selectors_and_affinity_choose_nodes(spec: dict[str, Any], want: bool) -> None:
    """Both must accept; expressions of a term are joined by and, terms by or."""
    assert selects(make_pod(**spec), "n1", LABELS) is want


@pytest.mark.parametrize(
    ("tolerations", "taint", "want"),
    [
        pytest.param([], {"key": "a", "effect": "NoSchedule"}, False, id="nothing-tolerated"),
        pytest.param([], {"key": "a", "effect": "PreferNoSchedule"}, True, id="soft-taints-do-not-count"),
        pytest.param([{"operator": "Exists"}], {"key": "a", "effect": "NoExecute"}, True, id="tolerates-everything"),
        pytest.param(
            [{"key": "a", "value": "x"}], {"key": "a", "value": "x", "effect": "NoSchedule"}, True, id="equal"
        ),
        pytest.param([{"key": "a"}], {"key": "a", "value": "x", "effect": "NoSchedule"}, False, id="other-value"),
        pytest.param([{"key": "a", "operator": "Exists"}], {"key": "b", "effect": "NoSchedule"}, False, id="other-key"),
        pytest.param(
            [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
            {"key": "a", "effect": "NoSchedule"},
            False,
            id="other-effect",
        ),
        pytest.param(
            [{"key": "a", "operator": "Gt", "value": "1"}],
            {"key": "a", "value": "2", "effect": "NoSchedule"},
            False,
            id="comparing-operators-tolerate-nothing",
        ),
        pytest.param([{}], {"key": "a", "effect": "NoSchedule"}, False, id="empty-toleration-tolerates-nothing"),
    ],
)
def test_tolerations_cover_taints(tolerations: list[Any], taint: dict[str, str], want: bool) -> None:
    """Key, value and effect must fit; NoSchedule and NoExecute keep new pods away."""
    assert (untolerated_taint([taint_of(taint)], [*map(toleration_of, tolerations)]) is None) is want


def container(policy: str | None = None, **requests: str) -> dict[str, Any]:
    """A container that asks for these resources."""
    return {"resources": {"requests": requests}, **({"restartPolicy": policy} if policy else {})}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"containers": [container(cpu="1"), container(cpu="500m")]}, {"cpu": 1500}, id="containers-add-up"
        ),
        pytest.param(
            {"initContainers": [container(cpu="3")], "containers": [container(cpu="1")]}, {"cpu": 3000}, id="init-peak"
        ),
        pytest.param(
            {"initContainers": [container("Always", cpu="1"), container(cpu="2")], "containers": [container(cpu="1")]},
            {"cpu": 3000},
            id="init-beside-a-sidecar",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}, id="overhead-on-top"
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}}, {"cpu": 4000}, id="pod-level"
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}, {"nvidia.com/gpu": 8}, id="limits"
        ),
        pytest.param({"containers": [{}]}, {}, id="asks-for-nothing"),
    ],
)
def test_pods_take_what_kubernetes_says_they_take(spec: dict[str, Any], want: dict[str, int]) -> None:
    """Sum or peak, plus overhead, and one of `pods`."""
    assert pod_requests({"spec": spec}) == {**want, "pods": 1}


def test_equal_rules_have_equal_shapes() -> None:
    """The order of keys does not matter, the rules do."""
    one = make_pod(nodeSelector={"a": "1", "b": "2"})
    same = make_pod("other", nodeSelector={"b": "2", "a": "1"})
    assert node_shape(one) == node_shape(same) != node_shape(make_pod())


def test_a_pod_of_a_daemon_set_names_its_node() -> None:
    """Only a single term with a single name counts."""
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert named_node(make_pod(**affinity(fields))) == "n1"
    assert named_node(make_pod(**affinity(fields, fields))) is None
    assert named_node(make_pod()) is None


def make_node(name: str, *, gpus: int = 8, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node with ten cores and `gpus` devices."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "10", "memory": "1Gi", "pods": "4", "nvidia.com/gpu": str(gpus)}},
    }


def test_the_emptiest_node_is_taken_and_ties_go_to_the_older() -> None:
    """Pods spread, and equal tables give equal answers."""
    table = NodeTable()
    for name in ("a", "b"):
        table.set_node(make_node(name))
    found = []
    for uid in "12345678":
        fit = PodFit.of(make_pod(gpus=1))
        node = table.find(fit)
        assert isinstance(node, str)
        table.charge(node, uid, fit.requests)
        found.append(node)

    assert found == ["a", "b"] * 4
    assert table.find(PodFit.of(make_pod())) == NoFit(2, (("Too many pods", 2),))


def test_a_misfit_counts_nodes_by_cause() -> None:
    """Every node is in one cause of rules, or in the resources that it lacks."""
    table, here = NodeTable(), {"zone": "a"}
    table.set_node(make_node("cordoned", labels=here, unschedulable=True))
    table.set_node(make_node("tainted", labels=here, taints=[{"key": "spot", "value": "x", "effect": "NoSchedule"}]))
    table.set_node(make_node("small", labels=here, gpus=2))
    table.set_node(make_node("elsewhere", labels={"zone": "b"}))

    found = table.find(PodFit.of(make_pod(gpus=4, nodeSelector={"zone": "a"})))
    assert isinstance(found, NoFit)
    assert found.message() == (
        "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint {spot: x}, 1 node(s) were unschedulable, 1 Insufficient nvidia.com/gpu."
    )


def test_usage_outlives_the_node_object() -> None:
    """A node that is deleted and made anew is as full as its pods make it; released pods make room again."""
    table = NodeTable()
    fit = PodFit.of(make_pod(gpus=8))
    table.charge("n", "early", fit.requests)
    table.set_node(make_node("n"))
    assert isinstance(table.find(fit), NoFit)

    table.remove_node("n")
    table.set_node(make_node("other"))
    table.set_node(make_node("n"))
    assert table.find(fit) == "other"
    assert table.release("n", "early")
    assert not table.release("n", "early")
    table.charge("other", "late", fit.requests)
    assert table.find(fit) == "n"


def test_only_changes_that_matter_are_reported() -> None:
    """A heartbeat is no news to the scheduler; a label is."""
    table = NodeTable()
    assert table.set_node(make_node("n"))
    beat = make_node("n")
    beat["status"]["conditions"] = [{"type": "Ready", "lastHeartbeatTime": "now"}]
    assert not table.set_node(beat)
    assert table.set_node(make_node("n", labels={"zone": "b"}))
    assert table.find(PodFit.of(make_pod(nodeSelector={"zone": "b"}))) == "n"
