"""`kqueue place`: what counts as usage, which nodes are in the tree, every failure with its facts, optional output."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.place_documents import (
    HOST,
    JSON,
    LEVELS,
    ask,
    failure,
    make_document,
    make_host,
    make_pods,
    statuses,
    where,
)

MARKER = "kueue.x-k8s.io/podset-required-topology"
ONE_HOST = ("b1/r1/h1",)


def affinity(operator: str, *values: str, key: str = "disk") -> JSON:
    expression = {"key": key, "operator": operator, "values": list(values)}
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    }


def wish(weight: int, value: str) -> JSON:
    expression = {"key": "disk", "operator": "In", "values": [value]}
    term = {"weight": weight, "preference": {"matchExpressions": [expression]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [term]}


def assigned(**counts: int) -> JSON:
    return {"levels": [HOST], "domains": [{"values": [host], "count": count} for host, count in counts.items()]}


# --- which nodes count -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"ready": False, "unschedulable": True}, "notReady", id="a node that is not ready"),
        pytest.param({"unschedulable": True, "labels": {"pool": "x"}}, "unschedulable", id="a cordoned node"),
        pytest.param({"labels": {"pool": "x"}}, "flavorLabels", id="a node of another flavor"),
    ],
)
def test_a_node_is_left_out_for_its_first_reason(changes: JSON, reason: str) -> None:
    """It is counted under that reason, and its pods and usage are ignored."""
    gone = make_host("b1/r1/gone", **{"labels": {"pool": "tas"}, **changes})
    document = make_document(
        make_host("b1/r1/h1", labels={"pool": "tas"}),
        gone,
        flavor={"nodeLabels": {"pool": "tas"}},
        usage={
            "pods": [{"node": "node-gone", "requests": {"cpu": 4}}],
            "tas": [{"values": ["gone"], "requests": {"cpu": 4}, "count": 1}],
        },
        pods=[make_pods(8)],
    )
    answer = ask(document)
    assert answer.document["tree"] == {"leaves": 1, "ignoredNodes": {reason: 1}}
    assert where(answer) == {"h1": 8}


def test_a_node_without_a_level_is_left_out_and_an_empty_value_is_none() -> None:
    """Empty label values are values."""
    lacking = make_host("b1/r1/h9")
    del lacking["labels"]["rack"]
    answer = ask(make_document(make_host("b1//h1"), lacking, pods=[make_pods(9)]))
    assert answer.document["tree"] == {"leaves": 1, "ignoredNodes": {"missingLevel": 1}}


@pytest.mark.parametrize(
    ("mode", "pods", "tree"),
    [
        pytest.param(
            "drop", 8, {"leaves": 1, "ignoredNodes": {"duplicateHostname": 1}}, id="the second node is dropped"
        ),
        pytest.param("merge", 12, {"leaves": 1, "ignoredNodes": {}}, id="both nodes are one host"),
    ],
)
def test_two_nodes_of_one_host_name(mode: str, pods: int, tree: JSON) -> None:
    """The smaller node name gives the host its place."""
    twin = {**make_host("b2/r7/h1", cpu=4), "name": "node-h1-twin"}
    document = make_document("b1/r1/h1", twin, pods=[make_pods(pods)], algorithm={"duplicateHostnames": mode})
    document["output"] = {"paths": True}
    answer = ask(document)
    assert answer.document["tree"] == tree
    assert answer.document["podSets"][0]["assignment"]["domains"] == [
        {"values": ["h1"], "count": pods, "path": ["b1", "r1", "h1"]}
    ]
    assert ask({**document, "podSets": [make_pods(pods + 1)]}).code == 1


def test_a_node_without_pods_holds_none() -> None:
    """The resource `pods` has no default."""
    node = make_host("b1/r1/h1")
    node["allocatable"] = {"cpu": "8"}
    assert failure(ask(make_document(node)))["excluded"] == {"resources": {"pods": 1}}


def test_a_topology_without_hosts_sums_its_nodes_and_looks_at_no_node() -> None:
    """Domains of the lowest level are written with all values; taints and selectors do not matter there."""
    tainted = make_host("b1/r1/h2", taints=[{"key": "k", "effect": "NoSchedule"}])
    document = make_document(
        "b1/r1/h1",
        tainted,
        topology={"levels": ["block", "rack"]},
        usage={"tas": [{"values": ["b1", "r1"], "requests": {"cpu": 1}, "count": 6}]},
        pods=[make_pods(10, nodeSelector={"disk": "none has it"})],
    )
    assert where(ask(document)) == {"b1/r1": 10}
    assert ask({**document, "podSets": [make_pods(11)]}).code == 1


# --- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "algorithm", "left"),
    [
        pytest.param({"pods": [{"node": "node-h1", "requests": {"cpu": "1500m"}}]}, {}, 6, id="a running pod"),
        pytest.param(
            {"pods": [{"node": "node-h1", "requests": {"cpu": 4}, "phase": "Failed"}]}, {}, 8, id="a failed pod"
        ),
        pytest.param({"pods": [{"node": "", "requests": {"cpu": 4}}]}, {}, 8, id="a pod on no node"),
        pytest.param({"pods": [{"node": "other", "requests": {"cpu": 4}}]}, {}, 8, id="a pod on an unknown node"),
        pytest.param(
            {"pods": [{"node": "node-h1", "requests": {"cpu": 4}, "annotations": {MARKER: ""}}]},
            {},
            8,
            id="a marked pod",
        ),
        pytest.param(
            {"pods": [{"node": "node-h1", "requests": {"cpu": 4}}]}, {"simulateEmpty": True}, 4, id="pods stay"
        ),
        pytest.param({"tas": [{"values": ["h1"], "requests": {"cpu": 2}, "count": 3}]}, {}, 2, id="a placed workload"),
        pytest.param(
            {"tas": [{"values": ["h1"], "requests": {"cpu": 2}, "count": 3}]}, {"simulateEmpty": True}, 8, id="all gone"
        ),
        pytest.param({"tas": [{"values": ["h7"], "requests": {"cpu": 2}, "count": 3}]}, {}, 8, id="an unknown domain"),
        pytest.param(
            {"otherFlavors": [{"values": ["h1"], "requests": {"cpu": 2}, "count": 3}]}, {}, 2, id="another flavor"
        ),
        pytest.param(
            {"otherFlavors": [{"values": ["h1"], "requests": {"cpu": 2}, "count": 3}]},
            {"overlappingFlavors": False},
            8,
            id="another flavor that does not overlap",
        ),
        pytest.param(
            {"pods": [{"node": "node-h1", "requests": {}}] * 107}, {}, 3, id="pods take room without requests"
        ),
        pytest.param(
            {"tas": [{"values": ["h1"], "requests": {"cpu": "8E"}, "count": 9}]}, {}, 0, id="more than there is"
        ),
    ],
)
def test_usage_lowers_what_fits(usage: JSON, algorithm: JSON, left: int) -> None:
    """As many pods as the host has left fit, and not one more."""
    document = make_document(*ONE_HOST, usage=usage, algorithm=algorithm)
    assert failure(ask({**document, "podSets": [make_pods(left + 1)]}))["fit"] == left
    if left:
        assert where(ask({**document, "podSets": [make_pods(left)]})) == {"h1": left}


def test_other_flavors_count_on_shared_hosts_only() -> None:
    """Where domains are racks, usage of other flavors is no usage of these."""
    other = {"values": ["r1"], "requests": {"cpu": 1}, "count": 8}
    document = make_document(*ONE_HOST, topology={"levels": ["rack"]}, usage={"otherFlavors": [other]})
    assert where(ask({**document, "podSets": [make_pods(8)]})) == {"r1": 8}


# --- profiles and switches -------------------------------------------------------------------------------------------

FOUR_HOSTS = (
    make_host("b1/r1/a", cpu=3),
    make_host("b1/r1/b", cpu=3),
    make_host("b1/r1/c", cpu=2),
    make_host("b1/r1/d", cpu=1),
)


@pytest.mark.parametrize(
    ("pods", "algorithm", "placed"),
    [
        pytest.param(make_pods(7, required="rack"), {}, {"a": 3, "b": 3, "d": 1}, id="required is best fit"),
        pytest.param(
            make_pods(7, unconstrained=True), {}, {"a": 3, "b": 1, "c": 2, "d": 1}, id="unconstrained is least"
        ),
        pytest.param(make_pods(7), {}, {"a": 3, "b": 1, "c": 2, "d": 1}, id="no request at all is unconstrained"),
        pytest.param(
            make_pods(7), {"unconstrainedProfile": "BestFit"}, {"a": 3, "b": 3, "d": 1}, id="unconstrained by best fit"
        ),
        pytest.param(
            make_pods(7, required="rack"),
            {"profile": "LeastFreeCapacity", "unconstrainedProfile": "BestFit"},
            {"a": 3, "b": 1, "c": 2, "d": 1},
            id="least for everything",
        ),
        pytest.param(make_pods(2, preferred="auto"), {}, {"c": 2}, id="auto is the lowest level"),
        pytest.param(
            make_pods(4, preferred="rack"),
            {"profile": "balanced"},
            {"a": 2, "c": 2},
            id="balanced spreads preferred pods",
        ),
        pytest.param(
            make_pods(4, required="rack"), {"profile": "balanced"}, {"a": 3, "d": 1}, id="but not required ones"
        ),
    ],
)
def test_profiles_decide_how_hosts_are_filled(pods: JSON, algorithm: JSON, placed: dict[str, int]) -> None:
    """The values of `algorithm` reach the search."""
    assert where(ask(make_document(*FOUR_HOSTS, pods=[pods], algorithm=algorithm))) == placed


UNEVEN = (make_host("b1/r1/h1", cpu=19), make_host("b1/r1/h2", cpu=10), make_host("b1/r1/h3", cpu=10))


@pytest.mark.parametrize(
    ("algorithm", "pods", "placed", "proven"),
    [
        pytest.param({}, make_pods(20, required="rack"), {"h1": 19, "h2": 1}, None, id="best fit proves nothing"),
        pytest.param(
            {"profile": "optimal"},
            make_pods(20, required="rack"),
            {"h2": 10, "h3": 10},
            True,
            id="least surplus, proven",
        ),
        pytest.param(
            {"profile": "optimal", "searchLimit": 0},
            make_pods(20, required="rack"),
            {"h1": 19, "h2": 1},
            False,
            id="nothing may be looked at, so best fit stands, unproven",
        ),
        pytest.param(
            {"profile": "optimal"},
            make_pods(20),
            {"h2": 10, "h3": 10},
            None,
            id="unconstrained pods are not searched",
        ),
    ],
)
def test_optimal_placements_say_whether_they_are_proven(
    algorithm: JSON, pods: JSON, placed: dict[str, int], proven: bool | None
) -> None:
    """Two hosts either way; the smaller ones leave less behind."""
    answer = ask(make_document(*UNEVEN, pods=[pods], algorithm=algorithm))
    assert where(answer) == placed
    assert answer.document["podSets"][0].get("proven") is proven


@pytest.mark.parametrize(
    ("algorithm", "host"),
    [
        pytest.param({}, "h1", id="a wish does not matter by default"),
        pytest.param({"preferredNodeAffinity": True}, "h2", id="with the switch it comes first"),
    ],
)
def test_preferred_node_affinity_needs_its_switch(algorithm: JSON, host: str) -> None:
    """Two equal hosts, one with the wished label."""
    hosts = (make_host("b1/r1/h1"), make_host("b1/r1/h2", labels={"disk": "ssd"}))
    pods = make_pods(1, nodeAffinity=wish(10, "ssd"), required="rack")
    assert where(ask(make_document(*hosts, pods=[pods], algorithm=algorithm))) == {host: 1}


@pytest.mark.parametrize(
    ("changes", "placed"),
    [
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {"h2": 1}, id="a node selector"),
        pytest.param({"updates": [{"nodeSelector": {"disk": "ssd"}}]}, {"h2": 1}, id="a node selector of an update"),
        pytest.param({"nodeAffinity": affinity("In", "ssd", "nvme")}, {"h2": 1}, id="required node affinity"),
        pytest.param({"tolerations": [{"operator": "Exists"}], "cpu": 9}, {"h3": 1}, id="a toleration"),
        pytest.param({"updates": [{"tolerations": [{"key": "k", "operator": "Exists"}]}], "cpu": 9}, {"h3": 1}, id="of an update"),
        pytest.param({"updates": [{"nodeSelector": {"disk": "ssd"}}, {"labels": {"a": "1"}}, {"labels": {"a": "1"}}]}, {"h2": 1}, id="equal updates"),
    ],
)  # fmt: skip
def test_a_template_chooses_its_nodes(changes: JSON, placed: dict[str, int]) -> None:
    """h2 has a disk, h3 is large and tainted."""
    hosts = (
        make_host("b1/r1/h1"),
        make_host("b1/r1/h2", labels={"disk": "ssd"}),
        make_host("b1/r1/h3", cpu=16, taints=[{"key": "k", "value": "v", "effect": "NoExecute"}]),
    )
    assert where(ask(make_document(*hosts, pods=[make_pods(1, **changes)]))) == placed


def test_tolerations_of_the_flavor_hold_for_every_pod_set() -> None:
    """They are added to those of the template."""
    node = make_host("b1/r1/h1", taints=[{"key": "k", "effect": "NoSchedule"}])
    document = make_document(node, flavor={"tolerations": [{"key": "k", "operator": "Exists"}]})
    assert where(ask(document)) == {"h1": 1}
    assert failure(ask({**document, "flavor": {}}))["excluded"] == {"taints": {"k:NoSchedule": 1}}


def test_the_list_of_slice_layers_wins_over_the_older_pair() -> None:
    """The pair counts where there is no list, or an empty one."""
    request = {"required": "rack", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 5}
    key = "podsetSliceRequiredTopologyConstraints"
    layers = [{"topology": HOST, "size": 3}]
    listed = make_document(pods=[make_pods(12, topologyRequest={**request, key: layers})])
    assert where(ask(listed)) == {"h1": 6, "h2": 6}
    paired = make_document(pods=[make_pods(12, topologyRequest={**request, key: []})])
    assert sum(where(ask(paired)).values()) == 10


# --- failures --------------------------------------------------------------------------------------------------------

UPDATES: JSON = {"updates": [{"labels": {"b": "1", "a": "1"}}, {"labels": {"b": "2", "a": "2"}}]}
RACK: JSON = {"required": "rack"}


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        pytest.param(
            make_pods(1, unconstrained=False), {"code": "LevelNotSpecified"}, id="unconstrained false names no level"
        ),
        pytest.param(
            make_pods(1, topologyRequest={"podSetSliceSize": 2}),
            {"code": "LevelNotSpecified"},
            id="a size without a level",
        ),
        pytest.param(make_pods(1, required="row"), {"code": "LevelNotFound", "level": "row"}, id="an unknown level"),
        pytest.param(
            make_pods(1, required="auto"), {"code": "LevelNotFound", "level": "auto"}, id="auto is for preferred"
        ),
        pytest.param(
            make_pods(2, slices=[("row", 2)]),
            {"code": "SliceLevelNotFound", "level": "row"},
            id="an unknown slice level",
        ),
        pytest.param(
            make_pods(4, slices=[("rack", 4), ("row", 2)]),
            {"code": "InnerLevelNotFound", "level": "row"},
            id="an unknown inner level",
        ),
        pytest.param(
            make_pods(2, required="rack", slices=[("block", 2)]),
            {"code": "SliceLevelAbovePodSetLevel", "sliceLevel": "block", "level": "rack"},
            id="slices wider than the pod set",
        ),
        pytest.param(
            make_pods(2, topologyRequest={"podSetSliceRequiredTopology": "rack"}),
            {"code": "SliceSizeMissing"},
            id="a slice level without a size",
        ),
        pytest.param(
            make_pods(2, topologyRequest={"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0}),
            {"code": "SliceSizeMissing"},
            id="a slice size of nothing",
        ),
        pytest.param(
            make_pods(2, slices=[("rack", 4)]),
            {"code": "CountBelowSliceSize", "count": 2, "size": 4},
            id="fewer pods than a slice",
        ),
        pytest.param(
            make_pods(4, slices=[("rack", 4), ("rack", 2)]),
            {"code": "InnerLevelNotLower", "level": "rack", "previousLevel": "rack"},
            id="an inner layer at the level of the outer one",
        ),
        pytest.param(
            make_pods(4, slices=[("rack", 4), (HOST, 3)]),
            {"code": "InnerSizeNotDivisor", "size": 3, "previousSize": 4},
            id="an inner size that does not divide",
        ),
        pytest.param(
            make_pods(17, required="rack"),
            {
                "code": "NoFit",
                "topology": "default",
                "level": "rack",
                "unit": "pod",
                "fit": 16,
                "total": 17,
                "totalNodes": 4,
                "excluded": {},
            },
            id="more pods than a rack holds",
        ),
        pytest.param(
            make_pods(40, preferred="rack"),
            {
                "code": "NoFit",
                "topology": "default",
                "level": "block",
                "unit": "pod",
                "fit": 32,
                "total": 40,
                "totalNodes": 4,
                "excluded": {},
            },
            id="preferred pods climb to the top before they give up",
        ),
        pytest.param(
            make_pods(20, required="rack", slices=[(HOST, 4)]),
            {
                "code": "NoFit",
                "topology": "default",
                "level": "rack",
                "unit": "slice",
                "fit": 4,
                "total": 5,
                "totalNodes": 4,
                "excluded": {},
            },
            id="slices are counted, not pods",
        ),
        pytest.param(
            make_pods(36, required="block", slices=[("rack", 12), (HOST, 6)]),
            {
                "code": "NoFit",
                "topology": "default",
                "level": "block",
                "unit": "slice",
                "fit": 2,
                "total": 3,
                "layers": [{"level": "rack", "fit": 2, "total": 3}, {"level": HOST, "fit": 4, "total": 6}],
                "totalNodes": 4,
                "excluded": {},
            },
            id="with inner layers each layer is told",
        ),
        pytest.param(
            make_pods(36, preferred="rack", slices=[("rack", 12), (HOST, 6)]),
            {
                "code": "NoFit",
                "topology": "default",
                "level": "block",
                "unit": "slice",
                "fit": 2,
                "total": 3,
                "layers": [{"level": "rack", "fit": 2, "total": 3}, {"level": HOST, "fit": 4, "total": 6}],
                "totalNodes": 4,
                "excluded": {},
            },
            id="also where slices may be spread",
        ),
        pytest.param(
            make_pods(1, cpu=9, nodeSelector={"disk": "none"}),
            {
                "code": "NoFit",
                "topology": "default",
                "level": HOST,
                "unit": "pod",
                "fit": 0,
                "total": 1,
                "totalNodes": 4,
                "excluded": {"nodeSelector": 4},
            },
            id="what a selector excludes",
        ),
        pytest.param(
            make_pods(1, nodeAffinity=affinity("In", "ssd")),
            {
                "code": "NoFit",
                "topology": "default",
                "level": HOST,
                "unit": "pod",
                "fit": 0,
                "total": 1,
                "totalNodes": 4,
                "excluded": {"affinity": 4},
            },
            id="what affinity excludes",
        ),
        pytest.param(
            make_pods(1, **UPDATES),
            {
                "code": "InvalidPodSetUpdate",
                "detail": "pod set main: the updates give label a two values, '1' and '2'",
            },
            id="updates that contradict each other",
        ),
        pytest.param(
            make_pods(1, nodeSelector={"a": "1"}, updates=[{"nodeSelector": {"a": "2"}}], required="row"),
            {
                "code": "InvalidPodSetUpdate",
                "detail": "pod set main: the updates give node selector a two values, '1' and '2'",
            },
            id="an update against the template, told before an unknown level",
        ),
        pytest.param(
            make_pods(1, nodeSelector={"a": "no label value!"}),
            {"code": "InvalidNodeSelector", "detail": "a=no label value! is not a valid label"},
            id="a selector that no label can have",
        ),
        pytest.param(
            make_pods(1, nodeAffinity=affinity("Near", "ssd")),
            {"code": "InvalidNodeAffinity", "detail": "disk: unknown operator 'Near'"},
            id="an unknown operator",
        ),
    ],
)
def test_a_failure_has_its_code_and_facts(pods: JSON, why: JSON) -> None:
    """Two racks of two hosts with eight cpu each."""
    answer = ask(make_document(pods=[pods]))
    assert answer.code == 1
    assert failure(answer) == why
    assert list(failure(answer)) == list(why)


def test_a_request_at_the_edge_of_what_can_be_counted_is_a_misfit() -> None:
    """One pod more than the largest number is still the largest number."""
    answer = ask(make_document(pods=[make_pods(1, requests={"pods": "10E", "cpu": "10E"})]))
    assert failure(answer)["excluded"] == {"resources": {"cpu": 4}}


def test_a_cluster_without_usable_nodes_has_no_domains() -> None:
    """The level is there, but nothing of it."""
    answer = ask(make_document(make_host("b1/r1/h1", ready=False), pods=[make_pods(1, required="rack")]))
    assert failure(answer) == {"code": "NoDomainsAtLevel", "level": "rack"}
    assert ask({**make_document(), "nodes": []}).document["tree"] == {"leaves": 0, "ignoredNodes": {}}


@pytest.mark.parametrize(
    ("members", "detail"),
    [
        pytest.param(
            [make_pods(1, "a"), make_pods(2, "b"), make_pods(1, "c")],
            "a group has at most 2 pod sets, this one has 3",
            id="three members",
        ),
        pytest.param(
            [make_pods(2, "a"), make_pods(3, "b")],
            "one pod set of a group must have 1 pod, these have 2 and 3",
            id="two large members",
        ),
        pytest.param(
            [make_pods(1, "a", required="rack"), make_pods(3, "b", preferred="rack")],
            "a and b must ask for the same required or preferred level",
            id="members that ask for different things",
        ),
    ],
)
def test_a_group_is_checked_before_it_is_placed(members: list[JSON], detail: str) -> None:
    """All members fail alike, even where one of them has contradicting updates, too."""
    pods = [{**pod_set, **UPDATES, "groupName": "7"} for pod_set in members]
    answer = ask(make_document(pods=pods))
    assert [entry["failure"] for entry in answer.document["podSets"]] == [
        {"code": "InvalidGroup", "group": "7", "detail": detail}
    ] * len(members)


@pytest.mark.parametrize(
    ("leader", "workers", "code"),
    [
        pytest.param(UPDATES, {}, "InvalidPodSetUpdate", id="the leader's updates"),
        pytest.param(
            UPDATES, {"nodeSelector": {"a": "!"}}, "InvalidNodeSelector", id="the workers' selector before them"
        ),
        pytest.param(
            {"nodeSelector": {"a": "!"}, **UPDATES}, {}, "InvalidPodSetUpdate", id="updates before the selector"
        ),
        pytest.param(
            {"nodeSelector": {"a": "!"}}, UPDATES, "InvalidPodSetUpdate", id="the workers' updates before all"
        ),
        pytest.param(UPDATES, {"count": 99}, "InvalidPodSetUpdate", id="updates before the search"),
    ],
)
def test_the_workers_are_judged_before_the_leader(leader: JSON, workers: JSON, code: str) -> None:
    """Both members carry the first failure in the order of checks."""
    pods = [make_pods(1, "leader", groupName="g", **RACK, **leader), make_pods(2, "workers", groupName="g", **RACK)]
    answer = ask(make_document(pods=[pods[0], {**pods[1], **workers}]))
    assert {failure(answer, name)["code"] for name in ("leader", "workers")} == {code}


def test_a_group_is_placed_where_its_first_member_stands() -> None:
    """Members may stand apart; what comes after a failure is not evaluated, and pod sets without pods are skipped."""
    pods = [
        make_pods(1, "leader", groupName="g", **RACK),
        make_pods(30, "between"),
        make_pods(5, "workers", groupName="g", **RACK),
        make_pods(0, "nothing", groupName="g"),
        make_pods(1, "late"),
    ]
    answer = ask(make_document(pods=pods))
    assert statuses(answer) == {
        "leader": "Placed",
        "between": "Failed",
        "workers": "Placed",
        "nothing": "Skipped",
        "late": "NotEvaluated",
    }


def test_pod_sets_without_pods_are_no_failure() -> None:
    """Nothing to place is placed."""
    answer = ask(make_document(pods=[make_pods(0)]))
    assert (answer.code, answer.document["placed"], statuses(answer)) == (0, True, {"main": "Skipped"})


# --- together --------------------------------------------------------------------------------------------------------

TOGETHER = {"together": True}


def test_pod_sets_that_share_a_level_are_in_one_domain_of_it() -> None:
    """Each for itself would take the tighter rack; what does not ask for the level is placed for itself, afterwards."""
    hosts = (make_host("b1/r1/h1", cpu=4), make_host("b1/r2/h2", cpu=6))
    pods = [make_pods(1, "servers", **RACK), make_pods(3, "logs"), make_pods(4, "workers", **RACK)]

    answer = ask(make_document(*hosts, pods=pods, workload=TOGETHER))
    apart = ask(make_document(*hosts, pods=pods))

    assert [where(answer, name) for name in ("servers", "workers", "logs")] == [{"h2": 1}, {"h2": 4}, {"h1": 3}]
    assert where(apart, "servers") == {"h1": 1}


def test_a_failure_is_that_of_all_pod_sets_that_share_a_level() -> None:
    """It counts their pods, and names them."""
    hosts = (make_host("b1/r1/h1", cpu=4), make_host("b1/r2/h2", cpu=4))
    pods = [make_pods(1, "servers", **RACK), make_pods(4, "workers", **RACK), make_pods(1, "late")]

    answer = ask(make_document(*hosts, pods=pods, workload=TOGETHER))

    assert statuses(answer) == {"servers": "Failed", "workers": "Failed", "late": "NotEvaluated"}
    why = failure(answer, "workers")
    assert (why["code"], why["fit"], why["total"], why["together"]) == ("NoFit", 4, 5, ["servers", "workers"])


def test_contradicting_updates_of_pod_sets_that_share_a_level_are_told_first() -> None:
    """Whichever pod set has them."""
    pods = [make_pods(1, "servers", **RACK), make_pods(40, "workers", **RACK, **UPDATES)]
    assert failure(ask(make_document(pods=pods, workload=TOGETHER)), "servers")["code"] == "InvalidPodSetUpdate"


def test_a_pod_set_that_lost_all_hosts_returns_to_the_domain_of_the_others() -> None:
    """The tightest host is in another rack."""
    hosts = (make_host("b1/r1/h1", ready=False), make_host("b1/r1/h2", cpu=9), make_host("b1/r2/h3", cpu=1))
    lost, stays = (
        make_pods(1, "lost", assignment=assigned(h1=1), **RACK),
        make_pods(1, "stays", assignment=assigned(h2=1), **RACK),
    )

    answer = ask(make_document(*hosts, pods=[lost, stays], workload={"unhealthyNodes": ["h1"], **TOGETHER}))

    assert where(answer, "lost") == {"h2": 1}


# --- replacement -----------------------------------------------------------------------------------------------------


def repair(*pods: JSON, node: str = "h1", **changes: Any) -> JSON:
    """Four hosts in two racks, of which h1 (node-h1) failed."""
    hosts = (make_host("b1/r1/h1", ready=False), "b1/r1/h2", "b1/r2/h3", "b1/r2/h4")
    changes.setdefault("workload", {"unhealthyNodes": [node, "h2"]})
    return make_document(*hosts, pods=list(pods), **changes)


@pytest.mark.parametrize("node", [pytest.param("h1", id="host name"), pytest.param("node-h1", id="node name")])
def test_a_failed_host_is_replaced_by_either_of_its_names(node: str) -> None:
    """The pods of the others stay, and are listed as usage; the answer repeats the entry.  Only the first one counts."""
    pods = make_pods(6, required="rack", assignment=assigned(h1=4, h2=2))
    usage = {"tas": [{"values": ["h2"], "requests": {"cpu": 1}, "count": 2}]}
    answer = ask(repair(pods, node=node, usage=usage, output={"remaining": True}))
    assert answer.document["remaining"][0]["resources"]["cpu"] == 2000
    entry = answer.document["podSets"][0]
    assert where(answer) == {"h2": 6}
    assert (entry["kept"], entry["replacement"]) == (
        False,
        {"node": node, "domains": [{"values": ["h2"], "count": 4}]},
    )
    assert (
        "quality" not in ask({**repair(make_pods(6, assignment=assigned(h1=6))), "output": {"quality": True}}).document
    )


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        pytest.param({}, {"h2": 2, "gone": 1}, id="no pod is on the failed host"),
        pytest.param({"ownedBySinglePod": True}, {"h1": 2}, id="a single pod owns it"),
    ],
)
def test_what_needs_no_replacement_is_kept_unchecked(changes: JSON, held: dict[str, int]) -> None:
    """Even domains that the tree has not; their path is what is written."""
    workload = {"unhealthyNodes": ["h1"], **changes}
    answer = ask(
        repair(make_pods(3, required="row", assignment=assigned(**held)), workload=workload, output={"paths": True})
    )
    entry = answer.document["podSets"][0]
    assert (entry["kept"], where(answer)) == (True, held)
    last = list(held)[-1]
    assert entry["assignment"]["domains"][-1]["path"] == [last]


def test_a_single_pod_is_replaced_without_the_switch() -> None:
    """`skipPodOwned` off."""
    document = repair(
        make_pods(1, assignment=assigned(h1=1)),
        workload={"unhealthyNodes": ["h1"], "ownedBySinglePod": True},
        algorithm={"skipPodOwned": False},
    )
    assert ask(document).document["podSets"][0]["kept"] is False


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        pytest.param(
            make_pods(3, assignment=assigned(h1=2, gone=1)),
            {"code": "StaleAssignment", "domain": "gone"},
            id="another host is gone, too",
        ),
        pytest.param(
            make_pods(2, assignment=assigned(h1=2), topologyRequest={"podSetSliceRequiredTopology": "rack"}, **UPDATES),
            {"code": "SliceSizeMissing"},
            id="a missing slice size comes before the updates",
        ),
        pytest.param(
            make_pods(2, assignment=assigned(h1=2), required="row", **UPDATES),
            {
                "code": "InvalidPodSetUpdate",
                "detail": "pod set main: the updates give label a two values, '1' and '2'",
            },
            id="the updates come before the level",
        ),
        pytest.param(
            make_pods(2, assignment=assigned(h1=2), required="row"),
            {"code": "LevelNotFound", "level": "row"},
            id="a level that is gone",
        ),
        pytest.param(
            make_pods(3, assignment=assigned(h1=3), slices=[("rack", 4)]),
            {"code": "NoReplacement", "node": "h1"},
            id="less than a slice is left",
        ),
    ],
)
def test_a_replacement_that_fails_says_why(pods: JSON, why: JSON) -> None:
    """Every later pod set is not evaluated, even one that needs no replacement."""
    answer = ask(repair(pods, make_pods(1, "next", assignment=assigned(h2=1))))
    assert failure(answer) == why
    assert statuses(answer) == {"main": "Failed", "next": "NotEvaluated"}


def test_replacements_see_each_other_and_pass_over_what_has_no_assignment() -> None:
    """Pod sets stand alone there, whatever group they are in; simulateEmpty does not free anything."""
    usage = {"tas": [{"values": [host], "requests": {"cpu": 1}, "count": 7} for host in ("h2", "h3")]}
    document = repair(
        make_pods(1, "a", assignment=assigned(h1=1), groupName="g", **RACK),
        make_pods(0, "b", assignment=assigned(h1=1)),
        make_pods(5, "c"),
        make_pods(1, "d", assignment=assigned(h1=1), groupName="g", unconstrained=True),
        usage=usage,
        algorithm={"simulateEmpty": True},
        output={"remaining": True},
    )
    answer = ask(document)
    assert statuses(answer) == {"a": "Placed", "b": "Skipped", "c": "Skipped", "d": "Placed"}
    assert [where(answer, name) for name in "ad"] == [{"h2": 1}, {"h3": 1}]
    assert [leaf["resources"]["cpu"] for leaf in answer.document["remaining"]] == [0, 0, 8000]


# --- elastic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "algorithm", "placed"),
    [
        pytest.param(6, {"elasticSlices": True}, {"h2": 5, "h4": 1}, id="more pods: the old ones stay"),
        pytest.param(2, {"elasticSlices": True}, {"h2": 2}, id="fewer pods: the last ones leave"),
        pytest.param(6, {}, {"h1": 6}, id="without the switch all are placed anew"),
    ],
)
def test_an_elastic_pod_set_keeps_its_places(count: int, algorithm: JSON, placed: dict[str, int]) -> None:
    """Its former pods are not listed as usage, and are subtracted from what remains."""
    pods = make_pods(count, previousAssignment=assigned(h2=3, h4=1), unconstrained=True)
    hosts = (make_host("b1/r1/h1"), make_host("b1/r1/h2", cpu=5), "b1/r1/h4")
    answer = ask(make_document(*hosts, pods=[pods], algorithm=algorithm, output={"remaining": True, "quality": True}))
    assert where(answer) == placed
    assert ("quality" in answer.document["podSets"][0]) is not bool(algorithm)
    free = {leaf["values"][0]: leaf["resources"]["cpu"] for leaf in answer.document["remaining"]}
    total = {"h1": 8, "h2": 5, "h4": 8}
    assert free == {host: 1000 * (cpu - placed.get(host, 0)) for host, cpu in total.items()}


def test_contradicting_updates_do_not_matter_where_nothing_is_searched() -> None:
    """An elastic pod set that does not grow is not looked at."""
    pods = make_pods(2, previousAssignment=assigned(h2=3), unconstrained=True, **UPDATES)
    document = make_document(pods=[pods], algorithm={"elasticSlices": True})
    assert where(ask(document)) == {"h2": 2}
    assert failure(ask({**document, "podSets": [{**pods, "count": 4}]}))["code"] == "InvalidPodSetUpdate"


def test_what_a_leader_keeps_is_not_looked_at_either() -> None:
    """Only its workers are searched."""
    kept: JSON = {"previousAssignment": assigned(h1=1), "groupName": "g", "unconstrained": True}
    leader, workers = make_pods(1, "leader", **kept, **UPDATES), make_pods(3, "workers", **kept)
    document = make_document(pods=[leader, workers], algorithm={"elasticSlices": True})
    assert statuses(ask(document)) == {"leader": "Placed", "workers": "Placed"}
    document["podSets"] = [make_pods(1, "leader", groupName="g", unconstrained=True, **UPDATES), workers]
    assert failure(ask(document), "workers")["code"] == "InvalidPodSetUpdate"


# --- optional output -------------------------------------------------------------------------------------------------


def test_paths_and_encodings_are_added_on_request() -> None:
    """`path` has all levels; v1beta1 is the plain form, v1beta2 the compressed one."""
    document = make_document(pods=[make_pods(9, required="rack")])
    plain = ask(document).document["podSets"][0]
    assert set(plain) == {"name", "status", "assignment"}
    assert plain["assignment"]["domains"][0] == {"values": ["h1"], "count": 8}
    full = ask({**document, "output": {"paths": True, "encoding": "v1beta1"}}).document["podSets"][0]
    assert full["assignment"]["domains"][0] == {"values": ["h1"], "count": 8, "path": ["b1", "r1", "h1"]}
    assert full["topologyAssignment"] == plain["assignment"]
    nothing = {**repair(make_pods(1, assignment=assigned())), "output": {"encoding": "v1beta2"}}
    assert "topologyAssignment" not in ask(nothing).document["podSets"][0]  # the compressed form needs a domain
    packed = ask({**document, "output": {"encoding": "v1beta2"}}).document["podSets"][0]
    assert packed["topologyAssignment"]["slices"][0]["domainCount"] == 2


def test_quality_is_what_is_used_against_what_is_needed() -> None:
    """Slices that are kept together use more hosts than the pods would need."""
    hosts = (make_host("b1/r1/h1", cpu=3), make_host("b1/r1/h2", cpu=3), make_host("b1/r2/h3", cpu=4))
    pods = make_pods(6, preferred="rack", slices=[(HOST, 2)])
    answer = ask(make_document(*hosts, pods=[pods], output={"quality": True}))
    assert where(answer) == {"h1": 2, "h3": 4}
    assert answer.document["podSets"][0]["quality"] == [
        {"level": "block", "used": 1, "lowerBound": 1},
        {"level": "rack", "used": 2, "lowerBound": 2},
        {"level": HOST, "used": 2, "lowerBound": 2},
    ]


def test_remaining_is_what_each_leaf_has_left() -> None:
    """Resources that a node has or that are used there; below zero where more is used than there is."""
    document = make_document(
        "b1/r2/h2",
        "b1/r1/h1",
        pods=[make_pods(2, required="rack"), make_pods(99, "too-many")],
        usage={
            "pods": [{"node": "node-h2", "requests": {"cpu": "9", "gpu": "0"}}],
            "tas": [
                {"values": ["h1"], "requests": {"memory": "1Ki"}, "count": 3},
                {"values": ["h1"], "requests": {"gpu": 1}, "count": 0},
            ],
        },
        output={"remaining": True},
    )
    assert ask(document).document["remaining"] == [
        {"values": ["h1"], "resources": {"cpu": 6000, "memory": -3072, "pods": 105}},
        {"values": ["h2"], "resources": {"cpu": -1000, "pods": 109}},
    ]
    document["algorithm"] = {"simulateEmpty": True}
    assert ask(document).document["remaining"][0] == {"values": ["h1"], "resources": {"cpu": 6000, "pods": 108}}


def test_remaining_of_racks_is_written_with_all_levels() -> None:
    """Several nodes in one leaf."""
    document = make_document(topology={"levels": LEVELS[:2]}, pods=[make_pods(9)], output={"remaining": True})
    assert ask(document).document["remaining"] == [
        {"values": ["b1", "r1"], "resources": {"cpu": 7000, "pods": 211}},
        {"values": ["b1", "r2"], "resources": {"cpu": 16000, "pods": 220}},
    ]
