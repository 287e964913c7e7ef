"""The label doctor: what is odd is found, what is not is left in peace, and what mends it is a command to paste."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.cli.app import run
from kqueue.controllers.resources import NODES, RESOURCE_FLAVORS, TOPOLOGIES
from kqueue.errors import KqueueError
from kqueue.operations.node_labels.findings import find
from kqueue.operations.node_labels.proposal import propose, workers
from kqueue.operations.node_labels.reading import read_nodes
from kqueue.operations.node_labels.values import LabelledNode, Levels, label_command, normalised
from kqueue.runtime.client import connect
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.topology_spec import BLOCK_LABEL, parse_topology

BLOCK, RACK, HOST = "dc.example.com/topology-block", "dc.example.com/topology-rack", "kubernetes.io/hostname"
OLD_ZONE, ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
Labels = Mapping[str, str | None]


def node(name: str, **changes: Any) -> LabelledNode:
    """`b0-r1-h2`: its labels follow from its name; `changes` are labels to set, None takes one away."""
    block, rack, _ = name.split("-")
    labels: dict[str, str | None] = {BLOCK: block, RACK: f"{block}-{rack}", HOST: name, "pool": "gpu", **changes}
    return LabelledNode(name, {key: value for key, value in labels.items() if value is not None})


def nodes(blocks: int = 2, racks: int = 2, hosts: int = 3, **changes: Labels) -> list[LabelledNode]:
    """Those of a sound cluster, with the labels of some changed: `b0_r0_h0={...}`."""
    names = [f"b{b}-r{r}-h{h}" for b in range(blocks) for r in range(racks) for h in range(hosts)]
    return [node(name, **dict(changes.get(name.replace("-", "_"), {}))) for name in names]


def levels(*keys: str, pool: str = "gpu") -> Levels:
    return Levels(name="dc", levels=keys or (BLOCK, RACK, HOST), selectors=({"pool": pool},))


def with_old_names(**renamed: str) -> list[LabelledNode]:
    """All racks stand in a label of another name."""
    return [
        LabelledNode(n.name, {**{k: v for k, v in n.labels.items() if k != RACK}, renamed["rack"]: n.labels[RACK]})
        for n in nodes()
    ]


SOUND = nodes()


@pytest.mark.parametrize(
    ("topology", "given", "code", "named", "mend"),
    [
        pytest.param(
            levels(), nodes(b0_r0_h1={RACK: None}), "missingLevel", ["b0-r0-h1"],
            [f"kubectl label node b0-r0-h1 {RACK}=VALUE"], id="a node without its rack: only a person knows it",
        ),
        pytest.param(
            levels(), nodes(b0_r0_h1={BLOCK: None}), "missingLevel", ["b0-r0-h1"],
            [f"kubectl label node b0-r0-h1 {BLOCK}=b0"], id="a node without its block: its rack tells it",
        ),
        pytest.param(
            levels(), [node(n.name, **{RACK: n.name[3:5], **({BLOCK: None} if n.name == "b0-r0-h0" else {})}) for n in SOUND],
            "missingLevel", ["b0-r0-h0"], [f"kubectl label node b0-r0-h0 {BLOCK}=VALUE"],
            id="a node without its block, in a rack of a name that all blocks have",
        ),
        pytest.param(
            levels(), nodes(b0_r0_h1={RACK: None, "topology.other.io/topology-rack": "b0-r0"}), "missingLevel",
            ["b0-r0-h1"], [f"kubectl label node b0-r0-h1 {RACK}=b0-r0"], id="a node with the label of another convention",
        ),
        pytest.param(
            levels(), with_old_names(rack="dc.example.com/Topology_Rack"), "missingLevel",
            [n.name for n in SOUND], None, id="all nodes write the key differently",
        ),
        pytest.param(
            levels(BLOCK, "dc.example.com/rack", HOST), SOUND, "unknownLevel",
            [n.name for n in SOUND], ["kubectl label node b0-r0-h0 dc.example.com/rack=VALUE"], id="a level that no node has",
        ),
        pytest.param(
            levels(ZONE, HOST), [LabelledNode(n.name, {**n.labels, OLD_ZONE: "z"}) for n in SOUND], "missingLevel",
            [n.name for n in SOUND], [f"kubectl label node {' '.join(n.name for n in SOUND)} {ZONE}=z"],
            id="the former name of a well-known label",
        ),
        pytest.param(
            levels(OLD_ZONE, HOST), [LabelledNode(n.name, {**n.labels, OLD_ZONE: n.labels[BLOCK], ZONE: "z"}) for n in SOUND],
            "renamedLevel", [], [], id="a level by its former name",
        ),
        pytest.param(
            levels(), nodes(b0_r1_h0={RACK: "B0-r01"}), "nearDuplicate", ["b0-r1-h0"],
            [f"kubectl label node b0-r1-h0 {RACK}=b0-r1 --overwrite"], id="a rack that differs in case and zeros",
        ),
        pytest.param(
            levels(), nodes(b0_r1_h0={RACK: "b0-r1 "}), "nearDuplicate", ["b0-r1-h0"],
            [f"kubectl label node b0-r1-h0 {RACK}=b0-r1 --overwrite"], id="a trailing blank",
        ),
        pytest.param(
            levels(), nodes(3, 3, 3, b2_r0_h0={BLOCK: "b0"}), "twoParents", ["b2-r0-h0"],
            [f"kubectl label node b2-r0-h0 {BLOCK}=b2 --overwrite"], id="a rack torn between two blocks",
        ),
        pytest.param(
            levels(), [node(n.name, **{RACK: n.name[3:5]}) for n in SOUND], "numberedAnew", [], [],
            id="racks that are numbered anew in each block",
        ),
        pytest.param(
            levels(), nodes(b0_r0_h1={HOST: "b0-r0-h0"}), "duplicateHostname", ["b0-r0-h1"],
            [f"kubectl label node b0-r0-h1 {HOST}=b0-r0-h1 --overwrite"], id="two nodes of one host name",
        ),
        pytest.param(
            levels(), nodes(b0_r0_h0={HOST: "b0-r0-h1"}), "duplicateHostname", ["b0-r0-h0"],
            [f"kubectl label node b0-r0-h0 {HOST}=b0-r0-h0 --overwrite"], id="the host name of another node",
        ),
        pytest.param(
            levels(), [node(n.name, **{RACK: n.name}) for n in SOUND], "oneNodeEach", [], [], id="racks that are nodes"
        ),
        pytest.param(
            levels(), nodes(1), "oneDomain", [], [], id="a single block",
        ),
        pytest.param(
            levels(), nodes(b0_r0_h0={RACK: ""}), "emptyValue", ["b0-r0-h0"],
            [f"kubectl label node b0-r0-h0 {RACK}=VALUE --overwrite"], id="an empty value",
        ),
        pytest.param(levels(RACK, BLOCK, HOST), SOUND, "swappedLevels", [], [], id="the narrow level above the wide one"),
        pytest.param(levels(pool="cpu"), SOUND, "noNodes", [], [], id="flavors that take no node"),
        pytest.param(Levels(name="dc", levels=(BLOCK, HOST)), SOUND, "unused", [], [], id="no flavor"),
    ],
)  # fmt: skip
def test_what_is_odd_is_found(
    topology: Levels, given: list[LabelledNode], code: str, named: list[str], mend: list[str] | None
) -> None:
    """Each finding by itself: with its nodes, and the commands that mend it."""
    found, *rest = find(topology, given)
    assert [more.code for more in rest if not more.is_note] == []
    assert (found.code, list(found.nodes)) == (code, named)
    assert mend is None or list(found.mend) == mend


@pytest.mark.parametrize(
    ("topology", "given"),
    [
        pytest.param(levels(), SOUND, id="a sound cluster"),
        pytest.param(levels(), [*SOUND, node("x-y-z", pool="cpu", **{BLOCK: None, RACK: None})], id="a node of others lacks levels"),
        pytest.param(levels(HOST), SOUND, id="hosts alone: each domain has one node by nature"),
        pytest.param(levels(BLOCK, RACK), SOUND, id="without hosts"),
        pytest.param(levels(), nodes(2, 12, 2), id="r1 and r11 and r10 are different racks"),
        pytest.param(levels(BLOCK, RACK), nodes(2, 2, 1), id="the lowest level may have one node each"),
    ],
)  # fmt: skip
def test_what_is_not_odd_is_left_in_peace(topology: Levels, given: list[LabelledNode]) -> None:
    assert find(topology, given) == []


def test_problems_come_before_notes() -> None:
    """And a note does not hide a problem."""
    found = find(levels(), nodes(1, b0_r1_h0={RACK: None}))
    assert [(f.code, f.is_note) for f in found] == [("missingLevel", False), ("oneDomain", True)]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("rack-1", "Rack_01", True),
        ("rack1", "rack 1", True),
        ("rack-10", "rack-1", False),
        ("rack-100", "rack-10", False),
        ("rack-1-1", "rack-11", False),
        ("r0", "r00", True),
    ],
)
def test_writing_habits(one: str, other: str, alike: bool) -> None:
    assert (normalised(one) == normalised(other)) == alike


def test_commands_can_be_pasted_whatever_stands_in_a_name() -> None:
    """A shell takes each name for one word, and a line has at most twenty nodes."""
    assert label_command(["a; rm -rf /", "it's"], "k", "$(x)") == [
        "kubectl label node 'a; rm -rf /' 'it'\\''s' 'k=$(x)'"
    ]
    assert [line.count(" n") - 1 for line in label_command([f"n{i}" for i in range(45)], "k", "v")] == [20, 20, 5]


# --- proposals ---------------------------------------------------------------------------------------------------


def labelled(count: int, **keys: Any) -> list[LabelledNode]:
    """Nodes whose labels are functions of their number."""
    named = {key.replace("__", "/").replace("_", "."): of for key, of in keys.items()}
    return [LabelledNode(f"n{i}", {HOST: f"n{i}", **{k: of(i) for k, of in named.items()}}) for i in range(count)]


@pytest.mark.parametrize(
    ("given", "found", "left_out"),
    [
        pytest.param(SOUND, [(BLOCK, 2), (RACK, 4), (HOST, 12)], {}, id="blocks and racks"),
        pytest.param(
            labelled(8, x__rack=lambda i: f"r{i // 2}", y__zone=lambda i: f"z{i // 4}", team=lambda i: f"t{i // 4}"),
            [("y/zone", 2), ("x/rack", 4), (HOST, 8)], {}, id="labels of other things are no levels",
        ),
        pytest.param(
            labelled(8, x__spine=lambda i: f"s{i // 2}", x__leaf=lambda i: f"l{i // 4}"),
            [("x/leaf", 2), ("x/spine", 4), (HOST, 8)], {}, id="what the nodes say counts more than the words",
        ),
        pytest.param(
            labelled(8, x__block=lambda i: f"b{i // 4}", x__rack=lambda i: f"r{i // 2 % 2}"),
            [("x/block", 2), ("x/rack", 4), (HOST, 8)], {}, id="racks that are numbered anew",
        ),
        pytest.param(
            labelled(4, x__region=lambda _: "one", x__rack=lambda i: f"r{i // 2}", x__chassis=lambda i: f"c{i}"),
            [("x/rack", 2), (HOST, 4)],
            {"x/region": "all nodes have the value 'one'", "x/chassis": "every node has a value of its own"},
            id="one value for all, and one for each",
        ),
        pytest.param(
            labelled(4, x__block=lambda i: f"b{i // 2}", y__block=lambda i: f"c{i // 2}"),
            [("x/block", 2), (HOST, 4)], {"y/block": "it makes the same domains as x/block"}, id="the same under two names",
        ),
        pytest.param(
            labelled(4, failure_domain_beta_kubernetes_io__zone=lambda i: f"z{i // 2}"),
            [("failure.domain.beta.kubernetes.io/zone", 2), (HOST, 4)], {}, id="only similar to a former name",
        ),
        pytest.param(
            [LabelledNode(n.name, {**n.labels, OLD_ZONE: n.labels[BLOCK], ZONE: n.labels[BLOCK]}) for n in SOUND],
            [(ZONE, 2), (RACK, 4), (HOST, 12)],
            {OLD_ZONE: f"it is the former name of {ZONE}", BLOCK: f"it makes the same domains as {ZONE}"},
            id="a former name beside the present one",
        ),
        pytest.param(
            nodes(b0_r0_h0={RACK: None}, b0_r0_h1={RACK: None}), [(BLOCK, 2), (HOST, 12)],
            {RACK: "2 of 12 nodes lack it"}, id="a label that many lack",
        ),
    ],
)  # fmt: skip
def test_a_topology_is_proposed(
    given: list[LabelledNode], found: list[tuple[str, int]], left_out: dict[str, str]
) -> None:
    proposal = propose(given)
    assert list(proposal.levels) == found
    assert dict(proposal.left_out) == left_out
    assert proposal.topology("dc")["spec"] == {"levels": [{"nodeLabel": level} for level, _ in found]}


def test_few_nodes_that_lack_a_level_are_told_of() -> None:
    proposal = propose(nodes(2, 2, 3, b0_r0_h0={RACK: None}))
    assert proposal.lacking == ((RACK, 1),)
    assert any("1 nodes lack it" in line for line in proposal.comments())


def test_nodes_of_the_control_plane_are_left_out() -> None:
    """Unless there are no others."""
    masters = [LabelledNode(f"m{i}", {HOST: f"m{i}", "node-role.kubernetes.io/control-plane": ""}) for i in range(3)]
    assert workers([*SOUND, *masters]) == SOUND
    assert workers(masters) == masters


@pytest.mark.parametrize("given", [[], [LabelledNode("a", {}), LabelledNode("b", {})]])
def test_nothing_is_proposed_where_nothing_tells_where_nodes_stand(given: list[LabelledNode]) -> None:
    with pytest.raises(KqueueError):
        propose(given)


# --- the command -------------------------------------------------------------------------------------------------


async def labels(sandbox: Sandbox, folder: Path, *arguments: str) -> int:
    """The exit code of `kqueue topology labels`, in a thread: the sandbox runs on this loop."""
    sandbox.write_kubeconfig(folder / "kubeconfig")
    call = ["topology", "labels", "--kubeconfig", str(folder / "kubeconfig"), *arguments]
    return await asyncio.to_thread(run, call)


async def test_the_command_finds_what_is_odd_and_mending_it_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a controller; the exit code tells programs, and what mends it does."""
    sandbox = Sandbox(SandboxOptions(topology=parse_topology("2x2x2"), crds=(crd_folder(),)))
    await sandbox.start()
    try:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        async with await connect(tmp_path / "kubeconfig") as client:
            await client.create(TOPOLOGIES, topology := propose(await read_nodes(client)).topology("dc"))
            await client.create(RESOURCE_FLAVORS, {
                "apiVersion": topology["apiVersion"], "kind": "ResourceFlavor", "metadata": {"name": "gpu"},
                "spec": {"topologyName": "dc", "nodeLabels": {"cloud.provider.com/node-group": "default"}},
            })  # fmt: skip
            assert await labels(sandbox, tmp_path) == 0
            assert "8 nodes, no problem" in capsys.readouterr().out

            await client.patch(NODES, "b0-r0-h0", {"metadata": {"labels": {BLOCK_LABEL: None}}})
            assert await labels(sandbox, tmp_path, "-o", "json") == 1
            (found,) = json.loads(capsys.readouterr().out)["findings"]
            assert (found["code"], found["nodes"], found["topology"]) == ("missingLevel", ["b0-r0-h0"], "dc")

            assert found["mend"] == [f"kubectl label node b0-r0-h0 {BLOCK_LABEL}=b0"]
            await client.patch(NODES, "b0-r0-h0", {"metadata": {"labels": {BLOCK_LABEL: "b0"}}})
            assert await labels(sandbox, tmp_path, "dc") == 0
        assert await labels(sandbox, tmp_path, "other") == 1
        assert "Topology other not found" in capsys.readouterr().err
    finally:
        await sandbox.stop()
