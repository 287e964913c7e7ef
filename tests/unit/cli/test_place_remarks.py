"""`kqueue place`: what is valid but hardly meant so is told beside the answer, and refused with --strict."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.cli import app
from kqueue.placing.run import MOST_LINES, Answer, run
from tests.unit.cli.place_documents import (
    HOST,
    JSON,
    LEVELS,
    ask,
    failure,
    make_document,
    make_host,
    make_pods,
    problems,
    statuses,
    where,
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


def pods_with(count: int = 4, /, **request: Any) -> list[JSON]:
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
        make_document(make_host("b1/r1/h1", cpu=2**63 // 1000 + 1)), "/nodes/0/allocatable/cpu",
        "9223372036854776 is cut to 9223372036854775807m", because="cpu of which there are too many thousandths",
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
    _row(make_document(pods=pods_with(podSetSliceSize=2, **{LIST: layers(("rack", 4))})), f"{REQUEST}/podSetSliceSize", f"{LIST} is set, too, and is used; keep one of them", because="both ways to ask for slices"),
    _row(make_document(pods=pods_with(required="block", preferred="rack")), f"{REQUEST}/preferred", "required is set, too, and decides the level; keep one of them", because="required and preferred"),
    _row(make_document(pods=pods_with(preferred="rack", unconstrained=True)), f"{REQUEST}/unconstrained", "preferred is set, too, and decides the level", because="preferred and unconstrained"),
    _row(make_document(pods=[make_pods(1, "a", required="rack"), make_pods(1, "b", required="block")], workload={"together": True}), "/workload/together", "no two pod sets ask for the same required or preferred level, so it has no effect", because="levels that differ"),
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
    pytest.param(pods_with(required="row"), "LevelNotFound", f"{REQUEST}/required", f"the topology has no level 'row'; its levels are block, rack, {HOST}", id="an unknown required level"),
    pytest.param(pods_with(preferred="row"), "LevelNotFound", f"{REQUEST}/preferred", "the topology has no level 'row'", id="an unknown preferred level"),
    pytest.param(pods_with(required="Racks"), "LevelNotFound", f"{REQUEST}/required", f"the topology has no level 'Racks'; its levels are block, rack, {HOST}; perhaps rack is meant", id="a level that is written almost so"),
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
    pytest.param([make_pods(1, nodeSelector={"bad/": "a"}, updates=[{"nodeSelector": {"bad/": "b"}}])], "InvalidPodSetUpdate", "/podSets/0/updates/0/nodeSelector/bad~1", "the updates give node selector bad/ two values", id="an update against a template that is bad, too"),
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


# --- what is no matter for a remark ----------------------------------------------------------------------------------

GROWN = {"algorithm": {"elasticSlices": True}}


def grown(count: int, held: int, *, size: int = 2, **changes: Any) -> JSON:
    """A workload slice of so many pods, which takes over the place of another."""
    previous = {"levels": [HOST], "domains": [{"values": ["h1"], "count": held}]}
    pods = make_pods(count, slices=[("rack", size)], previousAssignment=previous)
    return make_document("b1/r1/h1", "b1/r1/h2", pods=[pods], **{**GROWN, **changes})


LED = make_document(
    pods=[
        {**pods, "previousAssignment": {"levels": [HOST], "domains": [{"values": ["h1"], "count": 1}]}, **more}
        for pods, more in zip(pair({}, {}), ({"nodeSelector": {"bad/": "x"}}, {}), strict=True)
    ],
    **GROWN,
)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(make_document(), id="a plain input"),
        pytest.param(make_document(pods=[make_pods(99)]), id="pods for which there is no room"),
        pytest.param(make_document(make_host("b1/r1/h1", cpu=2**63 // 1000, labels={"x-y": "z"})), id="the largest amount of cpu"),
        pytest.param(make_document(pods=[make_pods(1, requests={"memory": 2**63 - 1})]), id="the largest amount"),
        pytest.param(make_document({**make_host("b1/r1/h1"), "labels": {}, "ready": False}), id="a failed node without labels"),
        pytest.param(make_document({**make_host("b1/r1/h1"), "labels": {"pool": "other"}}, flavor={"nodeLabels": {"pool": "tas"}}), id="a node of another flavor without labels"),
        pytest.param(make_document(usage={"pods": [{"node": "gone", "requests": {}, "phase": "Failed"}, {"node": "", "requests": {}}, {"node": "gone", "requests": {}, "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}]}), id="pods elsewhere that would not count here either"),
        pytest.param(make_document(make_host("b1/r1/h1", ready=False), usage={"pods": [{"node": "node-h1", "requests": {}}], "tas": [{**TAKEN, "values": ["h1"]}]}), id="usage of a node that is left out"),
        pytest.param(make_document(usage={"tas": [{**TAKEN, "values": ["gone"]}]}, algorithm={"simulateEmpty": True}), id="unknown usage where the cluster is empty"),
        pytest.param(make_document(usage={"tas": [{**TAKEN, "count": 0, "values": ["gone"]}]}), id="unknown usage of no pods"),
        pytest.param(make_document(usage={"otherFlavors": [{**TAKEN, "values": ["gone"]}]}, algorithm={"overlappingFlavors": False}), id="other flavors where they do not count"),
        pytest.param(make_document(topology={"levels": ["rack"]}, usage={"otherFlavors": [{**TAKEN, "values": ["b9", "r9"]}]}), id="other flavors where leaves are racks"),
        pytest.param(make_document(pods=pods_with(required="rack", unconstrained=False)), id="a required level that is not unconstrained"),
        pytest.param(make_document(pods=pods_with(preferred="auto")), id="the lowest level by another name"),
        pytest.param(make_document(topology={"levels": ["rack"]}, pods=[make_pods(1, nodeSelector={"bad/": "x"})]), id="a bad node selector where nobody looks at it"),
        pytest.param(make_document(pods=[make_pods(1, nodeAffinity={"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Is"}]}}]})]), id="a bad preference that does not count"),
        pytest.param(_replacing("node-h1"), id="a failed node by its name"),
        pytest.param(_replacing("h1", slices=[("rack", 2)]), id="a failed host of a slice"),
        pytest.param(_replacing("h1", slices=[("rack", 4)]), id="a failed host of what is less than a slice"),
        pytest.param(LED, id="the template of a leader that has its place"),
        pytest.param(grown(3, 3), id="pods that fill no slice and have their places"),
        pytest.param(grown(5, 3), id="new pods that fill a slice"),
    ],
)  # fmt: skip
def test_nothing_is_told_of_what_counts_as_written(document: JSON) -> None:
    """With --strict the answer is the same."""
    answer = ask(document)
    assert answer.remarks == ()
    assert ask_strictly(document) == answer


def test_a_grown_workload_is_judged_by_its_new_pods() -> None:
    """Four pods are two slices, but three of them are new."""
    answer = ask(grown(4, 1))
    at = f"{REQUEST}/{LIST}/0/size"
    said = "2 does not divide the 3 pods of 4 that are new: 1 pod is not placed; make the new part a multiple of the slice size"
    assert remarks(answer) == {at: said}
    assert where(answer) == {"h1": 3}
    assert remarks(ask(grown(4, 3, size=3)))[at].startswith("one slice has 3 pods, and 1 are to be placed")
    assert remarks(ask(grown(3, 3, algorithm={"elasticSlices": False}))).keys() == {at}


def test_a_bad_preference_has_a_place_where_preferences_count() -> None:
    """Its number is that of the list; without weight it does not count."""
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "-", "operator": "Exists"}]}}
        for weight in (0, 1)
    ]
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    document = make_document(pods=[make_pods(1, nodeAffinity=affinity)], algorithm={"preferredNodeAffinity": True})
    assert remarks(ask(document)).keys() == {
        "/podSets/0/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/1/preference"
    }


def test_the_leader_is_judged_by_its_template_alone() -> None:
    """Its slices are nobody's, and its size is one."""
    leader, workers = pair({"required": "rack", LIST: layers(("row", 5))}, {"required": "rack"})
    document = make_document(pods=[{**leader, "nodeSelector": {"bad/": "x"}}, workers])
    assert remarks(ask(document)).keys() == {"/podSets/0/nodeSelector/bad~1"}


# --- order, cases, limits --------------------------------------------------------------------------------------------


def test_remarks_come_in_the_order_of_the_document() -> None:
    """Lists by their numbers, whoever finds what; all of them also where nothing is placed after a failure."""
    nodes = [make_host(f"b1/r1/h{i}", cpu="1e99") for i in range(11)]
    del nodes[2]["labels"]["rack"]
    pods = [*pods_with(required="row"), make_pods(0, "none"), make_pods(3, "odd", slices=[("rack", 2)])]
    usage = {"tas": [{**TAKEN, "values": ["gone"]}], "pods": [{"node": "gone", "requests": {}}]}
    document = make_document(*nodes, pods=pods, usage=usage)
    answer = ask(dict(reversed(document.items())))
    assert statuses(answer) == {"main": "Failed", "none": "Skipped", "odd": "NotEvaluated"}
    assert [remark.path for remark in answer.remarks] == [
        "/nodes/0/allocatable/cpu",
        "/nodes/1/allocatable/cpu",
        "/nodes/2/allocatable/cpu",
        "/nodes/2/labels/rack",
        *(f"/nodes/{i}/allocatable/cpu" for i in range(3, 11)),
        "/usage/pods/0/node",
        "/usage/tas/0/values",
        "/podSets/0/topologyRequest/required",
        "/podSets/1/count",
        f"/podSets/2/topologyRequest/{LIST}/0/size",
    ]


def test_remarks_on_cases_name_the_case() -> None:
    """With --strict each such case has its own error, with a pointer into the case, and the others are answered."""
    fine, empty, bad = (
        make_document(name="fine"),
        make_document(name="empty", pods=[make_pods(0)]),
        {"name": "bad"},
    )
    answer = ask({"cases": [fine, empty, bad, empty]})
    assert list(remarks(answer)) == ["/cases/1/podSets/0/count", "/cases/3/podSets/0/count"]
    strict = ask_strictly({"cases": [fine, empty]})
    assert strict.code == 2
    assert strict.document["results"] == [ask(fine).document, ask_strictly(empty).document]
    assert problems(ask_strictly(empty)).keys() == {"/podSets/0/count"}


def test_errors_come_before_remarks() -> None:
    """An input that is not valid has no remarks, and --strict changes nothing in its answer."""
    document = make_document(pods=[make_pods(0), make_pods(-1, "negative")])
    assert ask(document).remarks == ()
    assert ask_strictly(document) == ask(document)


def test_of_many_remarks_those_of_each_kind_are_told() -> None:
    """Thousands of nodes without labels do not hide the one pod set that is wrong."""
    nodes = [{**make_host(f"b1/r1/h{i}"), "labels": {}} for i in range(100)]
    answer = ask(make_document(*nodes, pods=[*pods_with(required="row"), make_pods(0, "none")]))
    lines = list(answer.remark_lines())
    assert len(lines) == MOST_LINES + 1
    assert [line.split(": ")[1] for line in lines[:-1]] == [
        *(f"/nodes/{i}/labels/block" for i in range(MOST_LINES - 2)),
        "/podSets/0/topologyRequest/required",
        "/podSets/1/count",
    ]
    assert lines[-1] == "remark: and 82 more; the answer of --strict lists all of them"
    assert len(list(ask(make_document(*nodes[:MOST_LINES])).remark_lines())) == MOST_LINES


def test_names_do_nothing_to_a_terminal() -> None:
    """Control characters, line breaks and what turns text around are written as escapes; long names end somewhere."""
    evil = "\x1b[2J\x9b31m\n\u202e"
    pods = [
        make_pods(1, evil, requests={f"{evil}{'x' * 5000}": "1e99"}),
        make_pods(1, "b", topologyRequest={"required": evil}),
    ]
    lines = list(ask(make_document(pods=pods)).remark_lines())
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    assert lines[0].startswith("remark: /podSets/0/requests/\\x1b[2J\\x9b31m\\n\\u202exxx")


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        pytest.param("apart", 10_000, id="pod sets apart"),
        pytest.param("one group", 10_000, id="pod sets of one group"),
        pytest.param("nodes", 10_000, id="nodes without labels"),
        pytest.param("updates", 10_000, id="updates that contradict each other"),
    ],
)
def test_remarks_on_huge_lists_take_no_longer_than_reading_them(kind: str, count: int) -> None:
    """Far more than it takes on any machine: what grows with the square takes minutes."""
    if kind == "nodes":
        document = make_document(*({**make_host(f"b1/r1/h{i}"), "labels": {}} for i in range(count)))
    elif kind == "updates":
        updates = [{"labels": {"k": str(i), f"l{i}": ""}} for i in range(count)]
        document = make_document(pods=[make_pods(1, updates=updates)])
    else:
        group = {"groupName": "g"} if kind == "one group" else {}
        document = make_document(pods=[make_pods(1, f"p{i}", required="row", **group) for i in range(count)])
    began = time.process_time()
    lines = list(ask_strictly(document).remark_lines()) + list(ask(document).remark_lines())
    assert lines
    assert time.process_time() - began < 15


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_tells_remarks_beside_an_answer_that_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output has what the format says and nothing else, standard error a line for each remark."""
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(
        json.dumps(make_document(pods=pods_with(3, podSetSliceRequiredTopology="rack", podSetSliceSize=2)))
    )
    assignment = {"levels": [HOST], "domains": [{"values": ["h1"], "count": 2}]}
    answer = {
        "name": "",
        "placed": True,
        "tree": {"leaves": 4, "ignoredNodes": {}},
        "podSets": [{"name": "main", "status": "Placed", "assignment": assignment}],
    }
    indented, compact = json.dumps(answer, indent=2) + "\n", json.dumps(answer, separators=(",", ":")) + "\n"
    said = (
        "remark: /podSets/0/topologyRequest/podSetSliceSize: 2 does not divide count 3: 1 pod is not placed; "
        "make the count a multiple of the slice size\n"
    )
    assert app.run(["place", "--input", str(source)]) == 0
    assert capsys.readouterr() == (indented, said)
    assert app.run(["place", "--input", str(source), "--compact"]) == 0
    assert capsys.readouterr() == (compact, said)
    assert app.run(["place", "--input", str(source), "--output", str(target)]) == 0
    assert capsys.readouterr() == ("", said)
    assert target.read_text() == indented


def test_remarks_never_get_into_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no standard error, they are lost."""
    source = tmp_path / "in.json"
    source.write_text(json.dumps(make_document(pods=[make_pods(0)])))
    monkeypatch.setattr("sys.stderr", None)
    assert app.run(["place", "--input", str(source)]) == 0
    assert json.loads(capsys.readouterr().out)["placed"]


def test_the_command_refuses_remarks_when_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are in the answer, as other errors are, and so not on standard error."""
    file = tmp_path / "in.json"
    file.write_text(json.dumps(make_document(name="empty", pods=[make_pods(0)])))
    assert app.run(["place", "--input", str(file), "--strict", "--compact"]) == 2
    out, err = capsys.readouterr()
    said = "0 pods: the pod set is skipped; write how many there are, or leave it out"
    assert json.loads(out) == {
        "name": "empty",
        "error": {"code": "InvalidInput", "problems": [{"path": "/podSets/0/count", "problem": said}]},
    }
    assert err == ""
    assert app.run(["place", "--input", str(file), "--strict", "--explain"]) == 2
    assert capsys.readouterr().out == f"empty is not valid:\n  /podSets/0/count: {said}\n"


# --- law -------------------------------------------------------------------------------------------------------------

OF_CAPACITY = ("NoFit", "NoDomainsAtLevel", "StaleAssignment", "NoReplacement")
LABELS = st.dictionaries(st.sampled_from(["k", "bad/"]), st.sampled_from(["a", "b", "-"]), max_size=1)


@st.composite
def requests(draw: st.DrawFn) -> JSON:
    """A topology request, most of them wrong in some way."""
    level, size = st.sampled_from([*LEVELS, "row"]), st.sampled_from([1, 2, 3, 4])
    request: JSON = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "required": level,
                "preferred": level,
                "unconstrained": st.booleans(),
                "podSetSliceRequiredTopology": level,
                "podSetSliceSize": st.integers(0, 4),
                LIST: st.lists(st.fixed_dictionaries({"topology": level, "size": size}), max_size=3),
            },
        )
    )
    return request


@st.composite
def asked(draw: st.DrawFn) -> JSON:
    """A document whose pod sets ask for all kinds of things, with and without failed nodes and former places."""
    domains: st.SearchStrategy[list[JSON]] = st.lists(
        st.fixed_dictionaries({"values": st.sampled_from(["h1", "h2", "gone"]).map(lambda h: [h]), "count": st.just(1)}),
        min_size=1, max_size=2, unique_by=lambda domain: str(domain["values"]),
    )  # fmt: skip
    pods = [
        {
            **make_pods(draw(st.integers(0, 5)), f"p{i}", topologyRequest=draw(requests())),
            "nodeSelector": draw(LABELS),
            "updates": [{"nodeSelector": draw(LABELS)}],
            **({"groupName": "g"} if draw(st.booleans()) else {}),
            **({key: {"levels": [HOST], "domains": draw(domains)} for key in ("assignment", "previousAssignment")} if draw(st.booleans()) else {}),
        }
        for i in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    return make_document(
        pods=pods,
        algorithm={"elasticSlices": draw(st.booleans())},
        workload={"unhealthyNodes": draw(st.sampled_from([[], ["h1"]]))},
    )


@settings(max_examples=150, deadline=None)
@given(asked())
def test_nothing_fails_or_is_skipped_by_what_was_written_without_a_remark(document: JSON) -> None:
    """Every outcome other than a whole placement or a lack of room has a remark; with --strict only those are left."""
    answer = ask(document)
    told = " ".join(f"{remark.path}/" for remark in answer.remarks)
    for i, entry in enumerate(answer.document["podSets"]):
        if entry["status"] == "Skipped":
            assert f"/podSets/{i}/" in told
        elif entry["status"] == "Failed" and entry["failure"]["code"] not in OF_CAPACITY:
            members = [j for j, other in enumerate(answer.document["podSets"]) if other["status"] == "Failed"]
            assert any(f"/podSets/{j}/" in told for j in members)
        elif entry["status"] == "Placed" and "kept" not in entry:
            placed = sum(domain["count"] for domain in entry["assignment"]["domains"])
            assert placed == document["podSets"][i]["count"] or f"/podSets/{i}/topologyRequest/" in told
    strict = ask_strictly(document)
    assert (strict.code == 2) is bool(answer.remarks)
    if answer.remarks:
        listed = [(found["path"], found["problem"]) for found in strict.document["error"]["problems"]]
        assert listed == [(remark.path, remark.text) for remark in answer.remarks]
    else:
        assert strict == answer
