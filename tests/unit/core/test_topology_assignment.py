"""Assignments in their wire forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.topology import HOSTNAME, Domain, TopologyAssignment, decode, encode, encode_plain
from kqueue.errors import InvalidObjectError

RACK_LEVELS = ("example.com/block", "example.com/rack")


def on_hosts(**pods: int) -> TopologyAssignment:
    return TopologyAssignment((HOSTNAME,), tuple(Domain((h.replace("_", "-"),), n) for h, n in pods.items()))


def length(document: object) -> int:
    return len(json.dumps(document, separators=(",", ":")))


RACKS = TopologyAssignment(RACK_LEVELS, (Domain(("b1", "r1"), 4), Domain(("b1", "r2"), 4), Domain(("b2", "r1"), 2)))


def test_racks_are_written_with_their_common_ends() -> None:
    """Without host names everything stands in one slice, values cut to what differs."""
    assert encode(RACKS) == {
        "levels": list(RACK_LEVELS),
        "slices": [
            {
                "domainCount": 3,
                "valuesPerLevel": [
                    {"individual": {"prefix": "b", "roots": ["1", "1", "2"]}},
                    {"individual": {"prefix": "r", "roots": ["1", "2", "1"]}},
                ],
                "podCounts": {"individual": [4, 4, 2]},
            }
        ],
    }


def test_the_plain_form_lists_every_domain() -> None:
    """v1beta1 has levels and domains."""
    assert encode_plain(RACKS) == {
        "levels": list(RACK_LEVELS),
        "domains": [
            {"values": ["b1", "r1"], "count": 4},
            {"values": ["b1", "r2"], "count": 4},
            {"values": ["b2", "r1"], "count": 2},
        ],
    }


def test_two_pools_of_hosts_are_split_where_that_is_shorter() -> None:
    """Eight hosts a pool: 344 bytes in two slices, 367 in one."""
    pools = {f"pool_{p}_node_{i}": n for p, n in (("a", 2), ("b", 1)) for i in range(8)}
    roots = [str(i) for i in range(8)]
    split = encode(on_hosts(**pools))
    assert split["slices"] == [
        {
            "domainCount": 8,
            "valuesPerLevel": [{"individual": {"prefix": f"pool-{p}-node-", "roots": roots}}],
            "podCounts": {"universal": n},
        }
        for p, n in (("a", 2), ("b", 1))
    ]
    assert length(split) == 344
    assert length(encode(on_hosts(**pools), by_host_prefix=False)) == 367


def test_few_hosts_stay_in_one_slice() -> None:
    """Four hosts in two pools: the single slice of 224 bytes is shorter than two."""
    hosts = on_hosts(gke_c_pool_a_hash1_aa=3, gke_c_pool_a_hash1_bb=3, gke_c_pool_b_hash2_cc=4, gke_c_pool_b_hash2_dd=5)
    document = encode(hosts)
    assert length(document) == 224
    assert document["slices"][0]["valuesPerLevel"][0]["individual"] == {
        "prefix": "gke-c-pool-",
        "roots": ["a-hash1-aa", "a-hash1-bb", "b-hash2-cc", "b-hash2-dd"],
    }


def named(hosts: list[str], pods: int = 1) -> TopologyAssignment:
    """So many pods on each of these hosts."""
    return TopologyAssignment((HOSTNAME,), tuple(Domain((host,), pods) for host in sorted(hosts)))


def prefixes(document: dict[str, Any]) -> list[str | None]:
    """The common prefix of each slice of hosts."""
    return [part["valuesPerLevel"][0].get("individual", {}).get("prefix") for part in document["slices"]]


def test_a_tie_goes_to_the_split_form() -> None:
    """Six hosts a pool: 322 bytes either way."""
    pools = TopologyAssignment(
        (HOSTNAME,),
        tuple(Domain((f"{pool * 8}-{i}",), n) for pool, n in (("a", 1), ("b", 2)) for i in range(6)),
    )
    split, single = encode(pools), encode(pools, by_host_prefix=False)
    assert (len(split["slices"]), len(single["slices"])) == (2, 1)
    assert length(split) == length(single) == 322


def test_a_prefix_that_only_one_host_has_makes_no_slice() -> None:
    """Behind the pool every host has a part of its own: they are split by pool."""
    document = encode(named([f"pool-{pool}-node-{i}-x" for pool in "ab" for i in range(10, 40)]))
    assert [part["domainCount"] for part in document["slices"]] == [30, 30]


def test_racks_are_not_split_by_prefix() -> None:
    """Only host names are: the last level of this topology is another one."""
    racks = [f"pool-{pool}-rack-{i}" for pool in "ab" for i in range(10, 40)]
    assert len(encode(named(racks))["slices"]) == 2
    assignment = TopologyAssignment(RACK_LEVELS, tuple(Domain(("b1", rack), 1) for rack in racks))
    assert len(encode(assignment)["slices"]) == 1


LONG = "machine" * 6


@pytest.mark.parametrize(
    ("hosts", "want"),
    [
        pytest.param(
            [f"n{i:04}{LONG}-{tail}" for i in range(1000) for tail in "stuvwxyz"],
            [f"n{i:04}{LONG}-" for i in range(1000)],
            id="a-thousand-slices-are-allowed",
        ),
        pytest.param(
            [f"{pool}-{LONG}-n{i:04}-{tail}" for pool in "ab" for i in range(501) for tail in "stuvwxyz"],
            [f"{pool}-{LONG}-n0" for pool in "ab"],
            id="for-more-the-prefix-ends-at-an-earlier-dash",
        ),
        pytest.param(
            [f"n{i:04}{LONG}-{tail}" for i in range(1001) for tail in "stuvwxyz"],
            ["n"],
            id="without-an-earlier-dash-all-is-one-slice",
        ),
    ],
)
def test_hosts_are_split_as_finely_as_a_thousand_slices_allow(hosts: list[str], want: list[str]) -> None:
    """The deepest dash that gives few enough runs decides."""
    assignment = named(hosts)
    document = encode(assignment)
    assert prefixes(document) == want
    assert decode(document) == assignment


@pytest.mark.parametrize(
    ("hosts", "want"),
    [
        pytest.param([f"n-{i:02}" for i in range(25)], [10, 10, 5], id="a-long-run-is-cut"),
        pytest.param([f"n{i:02}" for i in range(10)], [10], id="a-full-slice-is-not"),
        pytest.param(
            [f"p-{i:03}-{tail}" for i in range(999) for tail in "yz"] + [f"q-{i:02}" for i in range(11)],
            [10] * 199 + [8, 10, 1],
            id="what-cuts-a-run-counts-as-slices-too",
        ),
    ],
)
def test_a_slice_has_no_more_domains_than_a_reader_takes(
    hosts: list[str], want: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a limit of a hundred thousand, here of ten; beyond it a single slice is no choice, however short."""
    monkeypatch.setattr("kqueue.core.assignment.MAX_DOMAINS_PER_SLICE", 10)
    assignment = named(hosts)
    document = encode(assignment)
    assert [part["domainCount"] for part in document["slices"]] == want
    assert decode(document) == assignment


def test_one_domain_is_all_universal() -> None:
    """A single host needs no lists."""
    assert encode(on_hosts(x1=1))["slices"] == [
        {"domainCount": 1, "valuesPerLevel": [{"universal": "x1"}], "podCounts": {"universal": 1}}
    ]


def test_the_prefix_gives_way_where_ends_would_overlap() -> None:
    """ababa and aba share the suffix aba; nothing is left for a prefix."""
    assert encode(on_hosts(ababa=1, aba=1))["slices"][0]["valuesPerLevel"] == [
        {"individual": {"suffix": "aba", "roots": ["ab", ""]}}
    ]


def test_an_assignment_without_domains_has_no_wire_form() -> None:
    """The caller is told to leave it out."""
    with pytest.raises(ValueError, match="leave topologyAssignment out"):
        encode(TopologyAssignment((HOSTNAME,), ()))


label_values = st.text(alphabet="ab-01", min_size=0, max_size=8)


@st.composite
def assignments(draw: st.DrawFn) -> TopologyAssignment:
    levels = draw(st.sampled_from([(HOSTNAME,), RACK_LEVELS, (*RACK_LEVELS, "example.com/shelf")]))
    domain = st.builds(Domain, st.tuples(*[label_values] * len(levels)), st.integers(1, 5))
    return TopologyAssignment(levels, tuple(draw(st.lists(domain, min_size=1, max_size=40))))


@given(assignment=assignments(), by_host_prefix=st.booleans())
def test_reading_what_was_written_gives_the_same_assignment(
    assignment: TopologyAssignment, by_host_prefix: bool
) -> None:
    """Both forms keep every value, every count and the order, also through JSON text."""
    document = json.loads(json.dumps(encode(assignment, by_host_prefix=by_host_prefix)))
    assert decode(document) == assignment
    assert decode(encode_plain(assignment)) == assignment


@pytest.mark.parametrize(
    ("hosts", "slices", "at_most"),
    [
        pytest.param(
            [f"gke-c-pool-{i // 1000:02}-{i * 2654435761 % 16**6:06x}" for i in range(100_000)],
            100,
            925_000,
            id="pools-with-random-tails",
        ),
        pytest.param([f"host-{i:06}" for i in range(100_000)], 1, 810_000, id="numbered-hosts"),
    ],
)
def test_a_hundred_thousand_hosts_stay_below_the_object_limit(hosts: list[str], slices: int, at_most: int) -> None:
    """A request to etcd has at most 1.5 MiB; an assignment of all hosts of the largest clusters leaves room for more."""
    assignment = TopologyAssignment((HOSTNAME,), tuple(Domain((host,), 1) for host in sorted(hosts)))

    document = encode(assignment)

    assert len(document["slices"]) == slices
    assert length(document) < at_most
    assert decode(document) == assignment


SLICE: dict[str, Any] = {
    "domainCount": 2,
    "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}],
    "podCounts": {"universal": 1},
}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        pytest.param({}, "topologyAssignment.levels", id="nothing-at-all"),
        pytest.param({"levels": [], "slices": []}, "topologyAssignment.levels", id="no-levels"),
        pytest.param({"levels": ["l"], "slices": {}}, "topologyAssignment.slices", id="slices-are-no-list"),
        pytest.param({"levels": ["l"], "slices": [7]}, "topologyAssignment.slices[0]", id="a-slice-is-no-object"),
        pytest.param(
            {"levels": ["l"], "slices": [{**SLICE, "domainCount": 3}]},
            "topologyAssignment.slices[0].valuesPerLevel[0].individual",
            id="count-and-roots-disagree",
        ),
        pytest.param(
            {"levels": ["l"], "slices": [{**SLICE, "domainCount": 10**12}]},
            "topologyAssignment.slices[0].domainCount",
            id="a-count-that-would-fill-the-memory",
        ),
        pytest.param(
            {"levels": ["l", "m"], "slices": [SLICE]},
            "topologyAssignment.slices[0].valuesPerLevel",
            id="a-level-has-no-values",
        ),
        pytest.param(
            {"levels": ["l"], "slices": [{**SLICE, "podCounts": {"universal": 1, "individual": [1, 1]}}]},
            "topologyAssignment.slices[0].podCounts",
            id="universal-and-individual-at-once",
        ),
        pytest.param(
            {"levels": ["l"], "slices": [{**SLICE, "podCounts": {"universal": 0}}]},
            "topologyAssignment.slices[0].podCounts.universal[0]",
            id="no-pods-in-a-domain",
        ),
        pytest.param(
            {"levels": ["l"], "domains": [{"values": ["a", "b"], "count": 1}]},
            "topologyAssignment.domains[0].values",
            id="more-values-than-levels",
        ),
        pytest.param(
            {"levels": ["l"], "domains": [{"values": ["a"], "count": True}]},
            "topologyAssignment.domains[0].count",
            id="a-count-is-no-number",
        ),
    ],
)
def test_a_broken_assignment_is_refused_with_the_place_of_the_mistake(document: dict[str, Any], path: str) -> None:
    """Every mistake carries its path."""
    with pytest.raises(InvalidObjectError) as raised:
        decode(document)
    assert path in [error.path for error in raised.value.errors]


@pytest.mark.parametrize(
    ("gone", "want"),
    [
        pytest.param(on_hosts(), {"a": 2, "b": 1, "c": 3}, id="nothing"),
        pytest.param(on_hosts(a=1, c=3), {"a": 1, "b": 1}, id="a part of one host and all of another"),
        pytest.param(on_hosts(b=4, x=1), {"a": 2, "c": 3}, id="no more than there is, and nothing of a host that is not in it"),
        pytest.param(on_hosts(a=2, b=1, c=3), {}, id="everything"),
        pytest.param(RACKS, {"a": 2, "b": 1, "c": 3}, id="nothing of other levels"),
    ],
)  # fmt: skip
def test_places_are_taken_off_an_assignment(gone: TopologyAssignment, want: dict[str, int]) -> None:
    """What is left keeps its order."""
    left = on_hosts(a=2, b=1, c=3).without(gone)

    assert [(d.values[0], d.count) for d in left.domains] == list(want.items())
