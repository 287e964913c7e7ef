"""`kqueue place`: what is valid but hardly meant so is told beside the answer, and refused with --strict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kqueue.cli.placing.run import Answer, run
from tests.unit.cli.place_documents import (
    HOST,
    JSON,
    ask,
    failure,
    make_document,
    make_host,
    make_pods,
    problems,
)

ONE_HOST = {"levels": [HOST], "domains": [{"values": ["h1"], "count": 2}]}
TAKEN = {"requests": {"cpu": 1}, "count": 1}
TOO_MANY = 10_000


def ask_strictly(document: Any) -> Answer:
    """The answer of --strict."""
    return run(json.dumps(document).encode(), strict=True)


def remarks(answer: Answer) -> dict[str, str]:
    """Remarks by pointer."""
    assert len({remark.path for remark in answer.remarks}) == len(answer.remarks)
    return {remark.path: remark.text for remark in answer.remarks}


def pods_with(count: int = 4, **request: Any) -> list[JSON]:
    """One pod set with this topology request."""
    return [make_pods(count, topologyRequest=request)]


def layers(*slices: tuple[str, int]) -> list[JSON]:
    """Slice layers as a request lists them."""
    return [{"topology": level, "size": size} for level, size in slices]


def pair(first: JSON, second: JSON, *, counts: tuple[int, int] = (1, 3)) -> list[JSON]:
    """Two pod sets of one group."""
    return [
        make_pods(count, name, groupName="g", topologyRequest=request)
        for count, name, request in zip(counts, ("leader", "workers"), (first, second), strict=True)
    ]


REQUEST = "/podSets/0/topologyRequest"
LIST = "podsetSliceRequiredTopologyConstraints"


def _row(document: JSON, at: str, said: str, *, because: str) -> Any:
    return pytest.param(document, at, said, id=because)


AMOUNTS = [
    _row(
        make_document(make_host("b1/r1/h1", cpu="10000E")), "/nodes/0/allocatable/cpu",
        "'10000E' is cut to 9223372036854775807m, the largest amount: write no more",
        because="more cpu than there are numbers for",
    ),
    _row(
        make_document(pods=[make_pods(1, requests={"example.com/gpu": 2**63})]), "/podSets/0/requests/example.com~1gpu",
        "9223372036854775808 is cut to 9223372036854775807, the largest amount: write no more",
        because="one device more than there are numbers for",
    ),
    _row(
        make_document(usage={"pods": [{"node": "node-h1", "requests": {"memory": "1e400"}}]}),
        "/usage/pods/0/requests/memory", "'1e400' is cut to 9223372036854775807", because="a large exponent",
    ),
]  # fmt: skip

POD_SETS = [
    _row(make_document(pods=[make_pods(0)]), "/podSets/0/count", "0 pods: the pod set is skipped; write how many there are, or leave it out", because="no pods"),
    _row(make_document(pods=pods_with(3, podSetSliceRequiredTopology="rack", podSetSliceSize=2)), f"{REQUEST}/podSetSliceSize", "2 does not divide count 3: 1 pod is not placed; make the count a multiple of the slice size", because="a pod that fills no slice"),
    _row(make_document(pods=[make_pods(8, slices=[("rack", 3)])]), f"{REQUEST}/{LIST}/0/size", "3 does not divide count 8: 2 pods are not placed; make the count a multiple of the slice size", because="two pods that fill no slice"),
    _row(make_document(pods=pods_with(required="rack", podSetSliceSize=2)), f"{REQUEST}/podSetSliceSize", "without podSetSliceRequiredTopology there are no slices; name their level, or drop the size", because="a slice size without a level"),
    _row(make_document(pods=pods_with(podSetSliceSize=2, **{LIST: layers(("rack", 4))})), f"{REQUEST}/podSetSliceSize", f"{LIST} stands beside it and is what counts; keep one of them", because="both ways to ask for slices"),
    _row(make_document(pods=pods_with(required="block", preferred="rack")), f"{REQUEST}/preferred", "required stands beside it and decides the level; keep one of them", because="required and preferred"),
    _row(make_document(pods=pods_with(preferred="rack", unconstrained=True)), f"{REQUEST}/unconstrained", "preferred stands beside it and decides the level", because="preferred and unconstrained"),
]  # fmt: skip

CLUSTER = [
    _row(make_document("b1/r1/h1", {**make_host("b1/r1/h2"), "labels": {HOST: "h2", "block": "b1"}}), "/nodes/1/labels/rack", "node 'node-h2' is left out of the topology, because it lacks the label of this level: label it, or keep such nodes out by flavor.nodeLabels", because="a node without the label of a level"),
    _row(make_document(usage={"pods": [{"node": "node-x", "requests": {}}]}), "/usage/pods/0/node", "nodes has no 'node-x': what this pod takes does not count; correct the name, or leave the pod out", because="a pod on an unknown node"),
    _row(make_document(usage={"tas": [{**TAKEN, "values": ["node-h1"]}]}), "/usage/tas/0/values", f"no node has the label {HOST} 'node-h1': this usage does not count; correct the values, or leave the entry out", because="the name of a node in the place of its host name"),
    _row(make_document(usage={"otherFlavors": [{**TAKEN, "values": ["h9"]}]}), "/usage/otherFlavors/0/values", f"no node has the label {HOST} 'h9'", because="another flavor on an unknown host"),
    _row(make_document(topology={"levels": ["block", "rack"]}, usage={"tas": [{**TAKEN, "values": ["b1", "r9"]}]}), "/usage/tas/0/values", "no node has the labels block 'b1', rack 'r9'", because="usage of an unknown rack"),
]  # fmt: skip


def _replacing(*unhealthy: str, **changes: Any) -> JSON:
    """A pod set on host h1, some nodes of which have failed."""
    pods = make_pods(2, assignment=ONE_HOST, **changes)
    return make_document(pods=[pods], workload={"unhealthyNodes": list(unhealthy)})


REPLACEMENTS = [
    _row(_replacing("h9"), "/workload/unhealthyNodes/0", "'h9' is neither a node nor a host of any assignment: nothing is replaced; correct the name", because="an unknown failed node"),
    _row(_replacing("h1", "h2"), "/workload/unhealthyNodes/1", "only the first node is replaced; leave the others out, and ask for each", because="a second failed node"),
    _row(make_document(workload={"unhealthyNodes": ["h1"]}), "/podSets/0/assignment", "without an assignment there is nothing to replace, and the pod set is skipped; write where its pods are, or leave it out", because="a replacement of pods that are nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "at", "said"), AMOUNTS + POD_SETS + CLUSTER + REPLACEMENTS)
def test_what_is_passed_over_is_told_and_refused_when_strict(document: JSON, at: str, said: str) -> None:
    """The answer is the same as without the remark: a valid one.  With --strict it is the error at the same pointer."""
    answer = ask(document)
    assert answer.code in (0, 1)
    assert "error" not in answer.document
    assert remarks(answer).keys() == {at}
    assert remarks(answer)[at].startswith(said)
    strict = ask_strictly(document)
    assert (strict.code, strict.remarks) == (2, ())
    assert problems(strict) == remarks(answer)


WRONG_REQUESTS = [
    pytest.param(pods_with(required="row"), "LevelNotFound", f"{REQUEST}/required", f"the topology has no level 'row'; write one of block, rack, {HOST}", id="an unknown required level"),
    pytest.param(pods_with(preferred="row"), "LevelNotFound", f"{REQUEST}/preferred", "the topology has no level 'row'", id="an unknown preferred level"),
    pytest.param(pods_with(unconstrained=False), "LevelNotSpecified", REQUEST, "no level is asked for; write required or preferred with a level, or unconstrained: true", id="no level"),
    pytest.param(pods_with(podSetSliceRequiredTopology="row", podSetSliceSize=2), "SliceLevelNotFound", f"{REQUEST}/podSetSliceRequiredTopology", "the topology has no level 'row'", id="an unknown slice level"),
    pytest.param(pods_with(podSetSliceRequiredTopology="rack"), "SliceSizeMissing", f"{REQUEST}/podSetSliceSize", "slices have a level but no size; write how many pods each of them has", id="no slice size"),
    pytest.param(pods_with(required="rack", podSetSliceRequiredTopology="block", podSetSliceSize=2), "SliceLevelAbovePodSetLevel", f"{REQUEST}/podSetSliceRequiredTopology", "slices of level block are wider than rack, the level of the pod set; write rack or a narrower one", id="slices wider than the pod set"),
    pytest.param(pods_with(3, **{LIST: layers(("rack", 4))}), "CountBelowSliceSize", f"{REQUEST}/{LIST}/0/size", "one slice has 4 pods, and 3 are to be placed; write a smaller size, or more pods", id="less than a slice"),
    pytest.param(pods_with(**{LIST: layers(("rack", 4), ("row", 2))}), "InnerLevelNotFound", f"{REQUEST}/{LIST}/1/topology", "the topology has no level 'row'", id="an unknown inner level"),
    pytest.param(pods_with(**{LIST: layers(("block", 4), ("rack", 2), ("rack", 1))}), "InnerLevelNotLower", f"{REQUEST}/{LIST}/2/topology", "rack is not narrower than rack, the layer before it; order layers by width", id="a layer on the level of the one before"),
    pytest.param(pods_with(**{LIST: layers(("block", 4), (HOST, 2), ("rack", 1))}), "InnerLevelNotLower", f"{REQUEST}/{LIST}/2/topology", f"rack is not narrower than {HOST}", id="a layer wider than the one before"),
    pytest.param(pods_with(**{LIST: layers(("block", 4), ("rack", 2), (HOST, 3))}), "InnerSizeNotDivisor", f"{REQUEST}/{LIST}/2/size", "3 does not divide 2, the size of the layer before it; write a divisor", id="layers that do not divide"),
    pytest.param([make_pods(1, nodeSelector={"good": "x", "bad/": "x"})], "InvalidNodeSelector", "/podSets/0/nodeSelector/bad~1", "bad/=x is not a valid label", id="a bad key of a node selector"),
    pytest.param([make_pods(1, nodeSelector={"good": "x"}, updates=[{}, {"nodeSelector": {"k": "-"}}])], "InvalidNodeSelector", "/podSets/0/updates/1/nodeSelector/k", "k=- is not a valid label", id="a bad value that an update adds"),
    pytest.param([make_pods(1, nodeSelector={f"k{i}": "v" for i in range(TOO_MANY)})], "InvalidNodeSelector", "/podSets/0/nodeSelector", f"{TOO_MANY} labels are too many", id="a node selector without end"),
    pytest.param([make_pods(1, nodeAffinity={"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}, {"matchExpressions": [{"key": "k", "operator": "Is"}]}]}})], "InvalidNodeAffinity", "/podSets/0/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/1", "k: unknown operator 'Is'", id="an unknown operator"),
    pytest.param([make_pods(1, nodeAffinity={"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * TOO_MANY}})], "InvalidNodeAffinity", "/podSets/0/nodeAffinity", f"{TOO_MANY} terms and expressions are too many", id="node affinity without end"),
    pytest.param([make_pods(1, nodeSelector={"k": "a"}, updates=[{"nodeSelector": {"k": "b"}}])], "InvalidPodSetUpdate", "/podSets/0/updates/0/nodeSelector/k", "the updates give node selector k two values, 'a' and 'b'; keep one of them", id="an update against the template"),
    pytest.param([make_pods(1, updates=[{"labels": {"k": "a"}}, {"labels": {"k": "b"}}])], "InvalidPodSetUpdate", "/podSets/0/updates/1/labels/k", "the updates give label k two values", id="updates against each other"),
    pytest.param(pair({"required": "rack"}, {"required": "block"}), "InvalidGroup", "/podSets/1/topologyRequest/required", "pod set 'leader' of the same group has 'rack' here, this one 'block': write the same", id="a group of two minds"),
    pytest.param(pair({"preferred": "rack"}, {}), "InvalidGroup", "/podSets/1/topologyRequest/preferred", "pod set 'leader' of the same group has 'rack' here, this one null", id="a group with one preference"),
    pytest.param(pair({}, {}, counts=(2, 3)), "InvalidGroup", "/podSets/1/count", "2 and 3 pods are in one group: one of the two, the leader, must have 1", id="a group without a leader"),
    pytest.param([make_pods(1, name, topologyRequest={"podSetGroupName": "g"}) for name in "abc"], "InvalidGroup", "/podSets/2/topologyRequest/podSetGroupName", "3 pod sets are in this group, which may have 2", id="a group of three"),
]  # fmt: skip


@pytest.mark.parametrize(("pods", "code", "at", "said"), WRONG_REQUESTS)
def test_a_request_that_no_cluster_could_fulfil_has_a_place(pods: list[JSON], code: str, at: str, said: str) -> None:
    """The answer has the code alone; the remark names what to change, and --strict refuses it."""
    document = make_document(pods=pods)
    answer = ask(document)
    assert answer.code == 1
    assert failure(answer, pods[0]["name"])["code"] == code
    assert remarks(answer).keys() == {at}
    assert remarks(answer)[at].startswith(said)
    assert problems(ask_strictly(document)) == remarks(answer)
