"""`kqueue place`: every mistake of an input is told with its JSON pointer and what to write instead."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.placing.run import run
from tests.unit.cli.place_documents import HOST, JSON, ask, make_document, make_host, make_pods, problems, where

HUGE = "9" * 2000
TAS = {"values": ["h1"], "requests": {"cpu": 1}, "count": 1}
DOMAIN = {"values": ["h1"], "count": 1}
DELETED = object()


def changed(path: str, value: Any) -> JSON:
    """A valid document with another value at a pointer; missing objects and lists on the way are made."""
    document: Any = make_document(make_host("b1/r1/h1"), make_host("b1/r1/h2"))
    keys = path.strip("/").split("/")
    at = document
    for key, following in zip(keys, [*keys[1:], ""], strict=True):
        index = int(key) if isinstance(at, list) else key.replace("~1", "/")
        if following == "":
            if value is DELETED:
                del at[index]
            elif isinstance(at, list) and index == len(at):
                at.append(value)
            else:
                at[index] = deepcopy(value)
        elif isinstance(at, dict):
            at = at.setdefault(index, [] if following.isdigit() else {})
        else:
            at = at[index]
    made: JSON = document
    return made


def _row(path: str, value: Any, said: str, *, at: str | None = None, because: str) -> Any:
    return pytest.param(path, value, path if at is None else at, said, id=because)


STRUCTURE = [
    _row("/podset", [], "unknown key: the keys here are algorithm, flavor, name", because="an unknown key at the top"),
    _row("/topology", DELETED, "missing: an object with levels is needed here", because="no topology"),
    _row("/nodes", DELETED, "missing: a list of nodes is needed here", because="no nodes"),
    _row("/podSets", DELETED, "missing: a list of pod sets is needed here", because="no pod sets"),
    _row("/name", 7, "expected a text, found 7", because="a number as name"),
    _row("/topology", [], "expected an object, found a list", because="a list as topology"),
    _row("/usage", None, "expected an object, found null", because="null as usage"),
    _row("/nodes", {}, "expected a list, found an object", because="an object as nodes"),
    _row("/nodes/0", "h1", "expected an object, found 'h1'", because="a text as node"),
    _row("/podSets/0", None, "expected an object, found null", because="null as pod set"),
]

TOPOLOGY = [
    _row("/topology/levels", DELETED, "missing: a list of node label keys, widest first, is needed", because="no levels"),
    _row("/topology/levels", [], "expected 1 to 16 levels, found 0", because="an empty list of levels"),
    _row("/topology/levels", [f"l{i}" for i in range(17)], "expected 1 to 16 levels, found 17", because="too many levels"),
    _row("/topology/levels/1", "block", "block is there already", because="a level that comes back"),
    _row("/topology/levels", [HOST, "rack"], "can only be the last level", at="/topology/levels/0", because="hosts above racks"),
    _row("/topology/levels/1", "", "cannot be empty", because="a level without a name"),
    _row("/topology/levels/1", "x-rack", "keys that start with x- are notes", because="a note as level"),
    _row("/topology/levels/1", 3, "expected a text, found 3", because="a number as level"),
    _row("/topology/level", [], "unknown key: the keys here are levels, name", because="level instead of levels"),
    _row("/flavor/nodeLabels/pool", True, "expected a text, found true", because="a truth value as label"),
    _row("/flavor/tolerations/0", {"operator": "exists"}, "expected one of '', Equal, Exists, Gt, Lt; found 'exists'", at="/flavor/tolerations/0/operator", because="an operator in small letters"),
    _row("/flavor/tolerations/0", {"effect": "No"}, "expected one of '', NoSchedule", at="/flavor/tolerations/0/effect", because="an unknown effect of a toleration"),
]  # fmt: skip

NODES = [
    _row("/nodes/1/name", DELETED, "missing: the name of the node is needed here", because="a node without a name"),
    _row("/nodes/1/name", "node-h1", "there is another node of the name node-h1: give each its own", because="two nodes of one name"),
    _row("/nodes/1/labels/kubernetes.io~1hostname", "h1", "node node-h1 has the host name 'h1', too: correct one", because="two nodes of one host name"),
    _row("/nodes/1/labels/rack", None, "expected a text, found null", because="null as label"),
    _row("/nodes/1/ready", "True", "expected true or false, found 'True'", because="a text as truth value"),
    _row("/nodes/1/unschedulable", 1, "expected true or false, found 1", because="a number as truth value"),
    _row("/nodes/1/taint", [], "unknown key: the keys here are allocatable, labels", because="taint instead of taints"),
    _row("/nodes/1/taints/0", {"effect": "NoSchedule"}, "missing: the key of the taint is needed", at="/nodes/1/taints/0/key", because="a taint without a key"),
    _row("/nodes/1/taints/0", {"key": "k"}, "missing: NoSchedule or NoExecute or", at="/nodes/1/taints/0/effect", because="a taint without an effect"),
    _row("/nodes/1/taints/0", {"key": "k", "effect": "Never"}, "expected one of NoSchedule", at="/nodes/1/taints/0/effect", because="an unknown effect of a taint"),
]  # fmt: skip

QUANTITIES = [
    _row("/nodes/1/allocatable/cpu", "-2", "never negative here, found '-2': write 0 or more", because="a negative text"),
    _row("/nodes/1/allocatable/cpu", -2, "never negative here, found -2: write 0 or more", because="a negative number"),
    _row("/nodes/1/allocatable/cpu", "lots", "'lots' is not a quantity: write a number with an optional suffix", because="words"),
    _row("/nodes/1/allocatable/cpu", "2cores", "'2cores' is not a quantity", because="an unknown suffix"),
    _row("/nodes/1/allocatable/memory", "16GB", "'16GB' is not a quantity", because="GB instead of G or Gi"),
    _row("/nodes/1/allocatable/cpu", "", "'' is not a quantity", because="an empty text"),
    _row("/nodes/1/allocatable/cpu", True, "expected a quantity such as 500m, 2, 1.5 or 16Gi, found true", because="a truth value"),
    _row("/nodes/1/allocatable/cpu", None, "expected a quantity such as 500m, 2, 1.5 or 16Gi, found null", because="null"),
    _row("/nodes/1/allocatable/cpu", float("nan"), "'NaN' is not a quantity", because="not a number"),
    _row("/nodes/1/allocatable/cpu", float("inf"), "'Infinity' is not a quantity", because="infinity"),
    _row("/podSets/0/requests/nvidia.com~1gpu", "1/2", "'1/2' is not a quantity", because="a resource with a slash in its name"),
    _row("/podSets/0/requests", [], "expected an object, found a list", because="a list of requests"),
]  # fmt: skip

USAGE = [
    _row("/usage/pod", [], "unknown key: the keys here are otherFlavors, pods, tas (x- begins a note of yours); perhaps pods is meant", because="pod instead of pods"),
    _row("/usage/pods/0", {"requests": {}}, "missing: the name of a node is needed here", at="/usage/pods/0/node", because="a pod without a node"),
    _row("/usage/pods/0", {"node": "n"}, "missing: an object of quantities is needed", at="/usage/pods/0/requests", because="a pod without requests"),
    _row("/usage/pods/0", {"node": "n", "requests": {}, "phase": "running"}, "expected one of '', Pending, Running", at="/usage/pods/0/phase", because="a phase in small letters"),
    _row("/usage/pods/0", {"node": "n", "requests": {}, "annotations": {"a": 1}}, "expected a text, found 1", at="/usage/pods/0/annotations/a", because="a number as annotation"),
    _row("/usage/tas/0", {**TAS, "values": ["b1", "r1", "h1"]}, "expected the host name alone (one for each written level), found 3 values", at="/usage/tas/0/values", because="a full path where the host name is enough"),
    _row("/usage/otherFlavors/0", {**TAS, "values": []}, "expected the host name alone", at="/usage/otherFlavors/0/values", because="no value at all"),
    _row("/usage/tas/0", {"requests": {}, "count": 1}, "missing: the written values of a domain", at="/usage/tas/0/values", because="usage of no domain"),
    _row("/usage/tas/0", {"values": ["h1"], "count": 1}, "missing: an object of quantities", at="/usage/tas/0/requests", because="usage without requests"),
    _row("/usage/tas/0", {"values": ["h1"], "requests": {}}, "missing: a number of pods", at="/usage/tas/0/count", because="usage without a count"),
    _row("/usage/tas/0", {**TAS, "count": -1}, "expected a whole number from 0 to 2147483647, found -1", at="/usage/tas/0/count", because="a negative number of pods in use"),
]  # fmt: skip

ALGORITHM = [
    _row("/algorithm/profile", "bestfit", "expected one of BestFit, LeastFreeCapacity, balanced, optimal; found 'bestfit'", because="a profile in small letters"),
    _row("/algorithm/unconstrainedProfile", "balanced", "expected one of LeastFreeCapacity, BestFit; found 'balanced'", because="a profile that unconstrained requests have not"),
    _row("/algorithm/duplicateHostnames", "ignore", "expected one of error, drop, merge; found 'ignore'", because="an unknown way with duplicates"),
    _row("/algorithm/searchLimit", -1, "expected a whole number from 0", because="a negative limit"),
    _row("/algorithm/searchLimit", 1.5, "found 1.5", because="a fraction as limit"),
    _row("/algorithm/elasticSlices", "yes", "expected true or false, found 'yes'", because="yes instead of true"),
    _row("/algorithm/seed", 1, "unknown key: the keys here are duplicateHostnames", because="an unknown switch"),
    _row("/workload/unhealthyNodes", "h1", "expected a list, found 'h1'", because="one failed node that is no list"),
    _row("/workload/ownedBySinglePod", 0, "expected true or false, found 0", because="a number as owner"),
    _row("/output/encoding", "v1", "expected one of none, v1beta2, v1beta1; found 'v1'", because="an unknown encoding"),
    _row("/output/path", True, "unknown key: the keys here are encoding, paths, quality, remaining", because="path instead of paths"),
]  # fmt: skip

POD_SETS = [
    _row("/podSets/0/count", DELETED, "missing: the number of pods is needed here", because="no count"),
    _row("/podSets/0/count", -1, "expected a whole number from 0 to 2147483647, found -1", because="fewer than no pods"),
    _row("/podSets/0/count", 2**31, "found 2147483648", because="more pods than can be counted"),
    _row("/podSets/0/count", "3", "found '3'", because="a text as count"),
    _row("/podSets/0/count", 3.0, "found 3.0", because="a count with a decimal point"),
    _row("/podSets/0/count", True, "found true", because="a truth value as count"),
    _row("/podSets/0/count", float("nan"), "found NaN", because="no number as count"),
    _row("/podSets/1", make_pods(1), "there is another pod set of the name main: give each its own", at="/podSets/1/name", because="two pod sets of one name"),
    _row("/podSets/0/topologyRequest", "rack", "expected an object, found 'rack'", because="a text as request"),
    _row("/podSets/0/topologyRequest/require", "rack", "unknown key: the keys here are podIndexLabel", because="require instead of required"),
    _row("/podSets/0/topologyRequest/unconstrained", "true", "expected true or false, found 'true'", because="the annotation's text"),
    _row("/podSets/0/topologyRequest/podSetSliceSize", -1, "expected a whole number from 0", because="a negative slice size"),
    _row("/podSets/0/topologyRequest/podsetSliceRequiredTopologyConstraints", [{"topology": "rack", "size": 0}], "expected a whole number from 1", at="/podSets/0/topologyRequest/podsetSliceRequiredTopologyConstraints/0/size", because="a slice of nothing"),
    _row("/podSets/0/topologyRequest/podsetSliceRequiredTopologyConstraints", [{"size": 2}], "missing: a level is needed", at="/podSets/0/topologyRequest/podsetSliceRequiredTopologyConstraints/0/topology", because="a slice of no level"),
    _row("/podSets/0/topologyRequest/podsetSliceRequiredTopologyConstraints", [{"topology": "rack", "size": 1}] * 4, "expected at most 3 slice layers, found 4", because="too many layers"),
    _row("/podSets/0", {**make_pods(1, topologyRequest={"podSetGroupName": "a"}), "groupName": "b"}, "the topologyRequest says group 'a': say the same here", at="/podSets/0/groupName", because="two group names"),
    _row("/podSets/0/groupName", 7, "expected a text, found 7", because="a number as group"),
    _row("/podSets/0/implied", None, "expected true or false, found null", because="null as truth value"),
    _row("/podSets/0/nodeSelector", ["a=b"], "expected an object, found a list", because="a list as selector"),
    _row("/podSets/0/nodeAffinity/required", {}, "unknown key: the keys here are preferredDuring", because="a short name of required affinity"),
    _row("/podSets/0/nodeAffinity", {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}]}}, "missing: In, NotIn, Exists", at="/podSets/0/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/operator", because="an expression without an operator"),
    _row("/podSets/0/nodeAffinity", {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}, "missing: an object with matchExpressions", at="/podSets/0/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/preference", because="a wish for nothing"),
    _row("/podSets/0/updates", [{"selector": {}}], "unknown key: the keys here are annotations", at="/podSets/0/updates/0/selector", because="an unknown part of an update"),
]  # fmt: skip

ASSIGNMENTS = [
    _row("/podSets/0/assignment", {"domains": [DOMAIN]}, "missing: the list of levels", at="/podSets/0/assignment/levels", because="no levels"),
    _row("/podSets/0/assignment", {"levels": [HOST]}, "missing: a list of {values, count}", at="/podSets/0/assignment/domains", because="no domains"),
    _row("/podSets/0/assignment", {"levels": [HOST], "domains": [DOMAIN], "slices": []}, "either domains or slices", at="/podSets/0/assignment/slices", because="both forms"),
    _row("/podSets/0/assignment", {"levels": ["rack"], "domains": []}, f"the levels of this topology are written {HOST}", at="/podSets/0/assignment/levels", because="levels of another topology"),
    _row("/podSets/0/assignment", {"levels": [HOST], "domains": [{"values": ["r1", "h1"], "count": 1}]}, "one value for each of the 1 levels", at="/podSets/0/assignment/domains/0/values", because="too many values"),
    _row("/podSets/0/previousAssignment", {"levels": [HOST], "domains": [{"values": ["h1"], "count": 0}]}, "a whole number of at least 1 is needed, found 0", at="/podSets/0/previousAssignment/domains/0/count", because="a domain without pods"),
    _row("/podSets/0/assignment", {"levels": [HOST], "domains": [DOMAIN, {**DOMAIN, "count": 2**31}]}, "entry 1 has more than 2147483647 pods", at="/podSets/0/assignment/domains", because="more pods than can be counted in a domain"),
    _row("/podSets/0/assignment", {"levels": [HOST], "domains": [{**DOMAIN, "pods": 1}]}, "unknown key: the keys here are count, values", at="/podSets/0/assignment/domains/0/pods", because="an unknown key of a domain"),
    _row("/podSets/0/assignment", {"levels": [HOST], "slices": [{"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}}]}, "domainCount says 2 entries, found 1", at="/podSets/0/assignment/slices/0/valuesPerLevel/0/individual", because="fewer roots than domains"),
    _row("/podSets/0/assignment", {"levels": [HOST], "slices": [{"domainCount": 1, "valuesPerLevel": [{"individual": {"prefix": 1, "roots": ["a"]}}], "podCounts": {"universal": 1}}]}, "expected a text, found 1", at="/podSets/0/assignment/slices/0/valuesPerLevel/0/individual/prefix", because="a number as prefix"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "at", "said"),
    [*STRUCTURE, *TOPOLOGY, *NODES, *QUANTITIES, *USAGE, *ALGORITHM, *POD_SETS, *ASSIGNMENTS],
)
def test_a_mistake_is_told_at_its_place(path: str, value: Any, at: str, said: str) -> None:
    """One mistake is one problem: its pointer, and a text with the remedy."""
    answer = ask(changed(path, value))
    found = problems(answer)
    assert answer.code == 2
    assert found.keys() == {at}
    assert said in found[at]


def test_all_mistakes_are_told_at_once() -> None:
    """In the order in which a reader meets them, with the name of the input."""
    document = make_document("b1/r1/h1", name="broken", pods=[make_pods(-1, cpu="much"), make_pods(1, "b", requests=1)])
    document["nodes"][0]["allocatable"] = {"memory": "-1", "cpu": "x"}
    document["zone"] = document["extra"] = document["topology"]["name"] = 1
    answer = ask(document)
    assert answer.document["name"] == "broken"
    assert [found["path"] for found in answer.document["error"]["problems"]] == [
        "/extra",
        "/zone",
        "/topology/name",
        "/nodes/0/allocatable/cpu",
        "/nodes/0/allocatable/memory",
        "/podSets/0/count",
        "/podSets/0/requests/cpu",
        "/podSets/1/requests",
    ]


def test_host_names_are_compared_only_when_all_else_is_fine() -> None:
    """The larger node name is at fault, wherever it stands; only nodes of the flavor count."""
    document = make_document("b1/r1/h1", {**make_host("b1/r1/h1"), "name": "a-smaller-name"})
    assert problems(ask(document)).keys() == {"/nodes/0/labels/kubernetes.io~1hostname"}
    assert problems(ask({**document, "name": 1})).keys() == {"/name"}
    document["nodes"][1]["ready"] = False
    assert ask(document).code == 0


def test_a_replacement_needs_hosts() -> None:
    """Racks cannot be replaced."""
    document = make_document(topology={"levels": ["rack"]}, workload={"unhealthyNodes": ["h1"]})
    found = problems(ask(document))
    assert found.keys() == {"/workload/unhealthyNodes"}
    assert f"only where {HOST} is the last level" in found["/workload/unhealthyNodes"]


def test_values_have_one_text_per_level_where_there_are_no_hosts() -> None:
    """Usage of other flavors may have other levels."""
    usage = {"tas": [{**TAS, "values": ["b1"]}], "otherFlavors": [TAS]}
    document = make_document(topology={"levels": ["block", "rack"]}, usage=usage)
    assert problems(ask(document)) == {
        "/usage/tas/0/values": "expected 2 values (one for each written level), found 1 values"
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            b" \n", "the input is empty: write one JSON object, as kqueue place --help shows it", id="nothing"
        ),
        pytest.param(b'{"a": 1,}', "not JSON: ", id="a comma too many"),
        pytest.param(b'{"a": [', "not JSON: the text ends too early, at line 1, column 8", id="half of a file"),
        pytest.param(b"name: x", "not JSON: expecting value at line 1, column 1", id="YAML"),
        pytest.param(b'{"name": "\xff"}', "not UTF-8: byte 0xff at offset 10; save the file as UTF-8", id="Latin-1"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="very deep lists"),
        pytest.param(b"[]", "expected an object, found a list", id="a list"),
        pytest.param(
            b'{"name": "\\ud83d"}', "the escapes at /name are half a character", id="half of a pair of surrogates"
        ),
    ],
)
def test_what_is_no_json_object_is_told_for_the_whole_input(text: bytes, said: str) -> None:
    """The pointer is empty."""
    answer = run(text)
    assert (answer.code, answer.document["name"]) == (2, "")
    assert said in problems(answer)[""]


def test_a_key_that_stands_twice_is_told() -> None:
    """JSON readers keep one of them silently; here nobody has to guess which."""
    text = (
        json.dumps(make_document("b1/r1/h1"))
        .replace('"cpu": 8', '"cpu": 8, "cpu": 9')
        .replace('"count"', '"count": 2, "count"')
    )
    assert problems(run(text.encode())) == dict.fromkeys(
        ["/nodes/0/allocatable/cpu", "/podSets/0/count"], "this key occurs more than once: keep one of them"
    )


def test_remarks_are_ignored_everywhere() -> None:
    """Keys that start with x- may hold anything, twice, in every object."""
    text = json.dumps(make_document("b1/r1/h1", usage={"tas": [TAS]}))
    remarked = text.replace("{", '{"x-remark": NaN, "x-remark": {"cpu": -1}, ')
    assert run(remarked.encode()) == run(text.encode())


@pytest.mark.parametrize(
    ("amount", "fit"),
    [
        pytest.param("2", 2, id="a text"),
        pytest.param(2, 2, id="a whole number has the unit of the text"),
        pytest.param("2000m", 2, id="milli"),
        pytest.param(2.5, 2, id="a fraction"),
        pytest.param("1e1", 10, id="an exponent"),
        pytest.param("0.9999", 1, id="a fraction of a milli rounds up"),
        pytest.param("10000E", 100, id="a huge amount is cut, and other limits hold"),
        pytest.param(int(HUGE[:200]), 100, id="a huge number"),
    ],
)
def test_quantities_are_read_exactly(amount: Any, fit: int) -> None:
    """The host holds a hundred pods at most."""
    node = make_host("b1/r1/h1", cpu=amount)
    node["allocatable"]["pods"] = 100
    assert where(ask(make_document(node, pods=[make_pods(fit)]))) == {"h1": fit}
    assert ask(make_document(node, pods=[make_pods(fit + 1)])).code == 1


def test_numbers_of_thousands_of_digits_are_told() -> None:
    """They do not end the command."""
    text = json.dumps(make_document()).replace('"count": 1', f'"count": {HUGE}0').encode()
    assert problems(run(text))["/podSets/0/count"].endswith("... (2001 characters)")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def spoiled(draw: st.DrawFn) -> JSON:
    """A document with all kinds of parts, in which one value anywhere is replaced by anything."""
    affinity = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": []}}]
    }
    assignment = {"levels": [HOST], "domains": [DOMAIN]}
    document = make_document(
        make_host("b1/r1/h1", taints=[{"key": "k", "effect": "NoSchedule"}]),
        pods=[make_pods(4, slices=[("rack", 2)], nodeAffinity=affinity, assignment=assignment, groupName="g")],
        flavor={"nodeLabels": {}, "tolerations": [{"operator": "Exists"}]},
        usage={"pods": [{"node": "node-h1", "requests": {"cpu": "1"}}], "tas": [TAS], "otherFlavors": [TAS]},
        algorithm={"searchLimit": 5},
        workload={"unhealthyNodes": draw(st.sampled_from([[], ["h1"]]))},
        output={"remaining": True, "quality": True, "paths": True, "encoding": "v1beta2"},
    )
    document = deepcopy(document)  # its parts are shared
    at: Any = document
    while True:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not at[key] or not isinstance(at[key], dict | list) or draw(st.booleans()):
            break
        at = at[key]
    at[key] = draw(JUNK)
    return document


@settings(max_examples=300, deadline=None)
@given(spoiled())
def test_no_value_anywhere_ends_the_command(document: JSON) -> None:
    """Every input is answered or refused with pointers, and explained."""
    answer = run(json.dumps(document).encode(), explain=True)
    assert answer.explanation
    assert answer.text(compact=True).encode()
    assert ("error" in answer.document) is (answer.code == 2)
