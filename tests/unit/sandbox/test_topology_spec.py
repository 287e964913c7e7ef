from __future__ import annotations

from pathlib import Path

import pytest

from kqueue.errors import ConfigError
from kqueue.sandbox.amount import amount
from kqueue.sandbox.matching import taint_json
from kqueue.sandbox.topology_spec import BLOCK_LABEL, POOL_LABEL, RACK_LABEL, parse_topology

TWO_POOLS = """
levels: [example.com/zone, example.com/row, kubernetes.io/hostname]
pools:
  - name: gpu
    counts: [2, 2, 3]
    labels: {gpu: h100}
    taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
    allocatable: {memory: 2Ti}
  - name: cpu
    counts: 1x1x2
    allocatable: {nvidia.com/gpu: 0}
"""


def test_a_size_makes_blocks_racks_and_hosts_with_names_that_sort() -> None:
    """`2x3x12` is 72 nodes whose order of creation is the order of their names."""
    nodes = list(parse_topology("2x3x12").blueprints())

    assert [node.name for node in nodes] == sorted(node.name for node in nodes)
    assert nodes[0].name == "b0-r0-h00"
    assert nodes[-1].labels == {
        BLOCK_LABEL: "b1",
        RACK_LABEL: "b1-r2",
        "kubernetes.io/hostname": "b1-r2-h11",
        POOL_LABEL: "default",
    }
    assert nodes[0].allocatable == {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"}


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        pytest.param("5", ("kubernetes.io/hostname",), id="hosts-only"),
        pytest.param("2x5", (RACK_LABEL, "kubernetes.io/hostname"), id="racks-and-hosts"),
        pytest.param(" 2X2x5 ", (BLOCK_LABEL, RACK_LABEL, "kubernetes.io/hostname"), id="capital-and-spaces"),
    ],
)
def test_fewer_numbers_leave_out_the_broadest_levels(text: str, levels: tuple[str, ...]) -> None:
    """The last number always counts hosts."""
    assert parse_topology(text).levels == levels


def test_a_file_gives_pools_their_own_labels_taints_and_sizes(tmp_path: Path) -> None:
    """Pools of a file change what they name and keep the rest; resources of size 0 are not offered."""
    path = tmp_path / "cluster.yaml"
    path.write_text(TWO_POOLS)

    spec = parse_topology(str(path), allocatable={"cpu": "8", "memory": "1Ti", "nvidia.com/gpu": "4"})
    nodes = {node.name: node for node in spec.blueprints()}

    assert spec.size == len(nodes) == 14
    gpu, cpu = nodes["gpu-z1-r1-h2"], nodes["cpu-z0-r0-h1"]
    assert gpu.labels["gpu"] == "h100"
    assert gpu.labels["example.com/row"] == "gpu-z1-r1"
    assert gpu.allocatable == {"cpu": "8", "memory": "2Ti", "nvidia.com/gpu": "4"}
    assert [taint_json(taint) for taint in gpu.taints] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    ]
    assert cpu.allocatable == {"cpu": "8", "memory": "1Ti"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("4x8xmany", "neither a size nor a file", id="not-a-number"),
        pytest.param("1x2x3x4", "has 4 levels", id="too-many-levels"),
        pytest.param("0x2x3", "must be a whole number from 1", id="zero"),
        pytest.param("100x100x100", "at most 100000", id="too-many-nodes"),
        pytest.param("", "neither a size nor a file", id="empty"),
    ],
)
def test_a_wrong_size_is_refused_with_the_remedy(text: str, said: str) -> None:
    """The message quotes what was written and says what would do."""
    with pytest.raises(ConfigError, match=said):
        parse_topology(text)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param("[]", "the document: write a map", id="no-map"),
        pytest.param("pools: [", "cannot be read", id="no-yaml"),
        pytest.param("levels: [a]", "pools: write a list", id="no-pools"),
        pytest.param("pool: []", "'pool' is no field here", id="unknown-field"),
        pytest.param("levels: [a, a]\npools: [{counts: 1}]", r"levels\[1\]: a is listed twice", id="same-level-twice"),
        pytest.param("levels: ['a b']\npools: [{counts: 1}]", r"levels\[0\]: 'a b' is not a label key", id="bad-level"),
        pytest.param("levels: [kubernetes.io/hostname, a]\npools: [{}]", "must be the last", id="host-not-last"),
        pytest.param("pools: [{counts: [1, 2]}]", r"pools\[0\].counts: has 2 numbers", id="too-few-counts"),
        pytest.param("pools: [{counts: [1, x, 2]}]", r"pools\[0\].counts: 'x' must be", id="count-is-text"),
        pytest.param("pools: [{}]", r"pools\[0\].counts: write one number per level", id="no-counts"),
        pytest.param("pools: [{counts: 1x1x1, labels: {a: 1}}]", r"labels\[a\]: 1 is not a label value", id="label"),
        pytest.param("pools: [{counts: 1x1x1, labels: {kubernetes.io/hostname: x}}]", "remove it", id="own-label"),
        pytest.param("pools: [{counts: 1x1x1, taints: [{key: a}]}]", r"taints\[0\].effect: None", id="taint-effect"),
        pytest.param("pools: [{counts: 1x1x1, taints: [{effect: NoSchedule}]}]", r"taints\[0\]: None", id="taint-key"),
        pytest.param("pools: [{counts: 1x1x1, allocatable: {cpu: -1}}]", r"allocatable\[cpu\]", id="negative"),
        pytest.param("pools: [{counts: 1x1x1, allocatable: {cpu: 1.5}}]", r"\[cpu\]: 1.5 is not", id="float"),
        pytest.param("pools: [{counts: 1x1x1}, {counts: 1x1x1}]", "used twice", id="same-pool-twice"),
        pytest.param("pools: [{counts: 1x1x1, name: A}]", r"pools\[0\].name", id="pool-name"),
    ],
)
def test_a_wrong_file_is_refused_by_field(tmp_path: Path, document: str, said: str) -> None:
    """The message names the file, the field and the remedy."""
    path = tmp_path / "cluster.yaml"
    path.write_text(document)

    with pytest.raises(ConfigError, match=said) as caught:
        parse_topology(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("written", "resource", "want"),
    [
        pytest.param("500m", "cpu", 500, id="milli-cores"),
        pytest.param("1.5", "cpu", 1500, id="cores"),
        pytest.param(2, "cpu", 2000, id="number"),
        pytest.param("1.5Gi", "memory", 1610612736, id="binary"),
        pytest.param("1e3", "nvidia.com/gpu", 1000, id="exponent"),
        pytest.param("1m", "memory", 1, id="rounded-up"),
        pytest.param("9E9", "memory", 9_000_000_000, id="capital-exponent"),
        pytest.param("99E", "memory", 2**63 - 1, id="cut-to-64-bits"),
    ],
)
def test_quantities_are_integers(written: str | int, resource: str, want: int) -> None:
    """Cpu counts in milli, everything else in base units."""
    assert amount(written, resource) == want
