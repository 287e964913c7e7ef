"""Replacement of failed hosts: the search inside one domain, what has to come back where, and the merge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kqueue.core.explain import Blocker, BlockerKind, sentence
from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    Domain,
    DomainUsage,
    Exclusions,
    Misfit,
    MisfitCode,
    NodeFacts,
    Placement,
    PodSetPlacement,
    PodSetRequest,
    Replacement,
    Shortage,
    Taint,
    TopologyAssignment,
    failed_hosts,
    find_replacement,
    repair,
    usage_of,
    uses_host,
)
from tests.unit.core.topology_cases import (
    BLOCK,
    LEVELS,
    RACK,
    hosts,
    make_node,
    make_pod_set,
    make_tree,
    place_one,
    racks,
)


def test_a_search_within_a_domain_uses_no_other() -> None:
    """A roomier and a tighter rack stand beside the one that must do; a name that begins alike is another domain."""
    capacity = racks({"a1": 4}, {"b1": 2, "b2": 2}, *[{}] * 7, {"j1": 9})

    assert hosts(place_one(capacity, make_pod_set(3, required=BLOCK), within=("b1", "r2"))) == {"b1": 2, "b2": 1}
    assert hosts(place_one(capacity, make_pod_set(4, unconstrained=True), within=("b1", "r1"))) == {"a1": 4}
    assert isinstance(place_one(capacity, make_pod_set(5, required=BLOCK), within=("b1", "r1")), Misfit)


def test_a_search_within_a_domain_tells_what_is_short_there() -> None:
    """Leaves outside count as such, whatever room they have."""
    capacity = racks({"a1": 4, "a2": 1}, {"b1": 9, "b2": 9})

    found = place_one(capacity, make_pod_set(6, cores=2, required=RACK), within=("b1", "r1"))

    assert isinstance(found, Misfit)
    assert found.code is MisfitCode.NO_FIT
    assert (found.fit, found.total, found.leaves) == (2, 6, 4)
    assert found.excluded == Exclusions(topology_domain=2, resources={"cpu": 1})
    assert found.shortage == Shortage("cpu", 12000, 5000)
    text = sentence(Blocker(kind=BlockerKind.TOPOLOGY, flavor="tas", misfit=found))
    assert "2 by lying outside of its gang's domain" in text


# --- one failed host -------------------------------------------------------------------------------------------------


class Case:
    """Pod sets that hold hosts of a cluster, some of which are about to fail."""

    def __init__(self, *hosts_per_rack: dict[str, int], blocks: dict[int, str] | None = None) -> None:
        """Racks r1, r2 ... as host -> cores, all in block b1 unless `blocks` says otherwise."""
        self._nodes = [
            make_node(host, cores, rack=f"r{i}", block=(blocks or {}).get(i, "b1"))
            for i, in_rack in enumerate(hosts_per_rack, start=1)
            for host, cores in in_rack.items()
        ]
        self._held: list[tuple[PodSetRequest, TopologyAssignment]] = []
        self._others: list[DomainUsage] = []

    def holds(self, pod_set: PodSetRequest, **pods: int) -> Case:
        """The pod set has so many pods per host, in path order."""
        domains = tuple(Domain((host,), count) for host, count in pods.items())
        self._held.append((pod_set, TopologyAssignment((HOSTNAME,), domains)))
        return self

    def tainted(self, host: str) -> Case:
        """The host stays in the tree, but takes no pods."""
        self._nodes = [
            replace(node, taints=(Taint("out", "", "NoSchedule"),)) if node.labels[HOSTNAME] == host else node
            for node in self._nodes
        ]
        return self

    def fails(self, *hosts: str, gone: bool = True, **options: Any) -> tuple[Replacement, ...] | Misfit:
        """What repair answers; the hosts have left the tree, unless `gone` is False."""
        nodes = [node for node in self._nodes if not (gone and node.labels[HOSTNAME] in hosts)]
        usage = [
            DomainUsage(domain.values, pod_set.requests, domain.count)
            for pod_set, assignment in self._held
            for domain in assignment.domains
        ]
        capacity = Capacity.of(make_tree(nodes), usage=usage)
        before = [capacity.free(leaf) for leaf in range(len(capacity.tree))]
        answer = repair(capacity, self._held, hosts, **options)
        assert [capacity.free(leaf) for leaf in range(len(capacity.tree))] == before
        return answer


def pods(placement: PodSetPlacement) -> dict[str, int]:
    """Host -> pods, in assignment order."""
    return {domain.values[-1]: domain.count for domain in placement.assignment.domains}


def whole(answer: tuple[Replacement, ...] | Misfit) -> dict[str, int]:
    """The new assignment of the only pod set that changed."""
    assert isinstance(answer, tuple), answer
    (replacement,) = answer
    return pods(replacement.whole)


def refused(answer: tuple[Replacement, ...] | Misfit) -> Misfit:
    assert isinstance(answer, Misfit), answer
    return answer


TWO_LAYERS = ((RACK, 4), (HOSTNAME, 2))
EIGHT_IN_TWO_RACKS = {"h1": 2, "h2": 2, "h4": 2, "h5": 2}


def test_a_broken_rack_slice_is_mended_in_its_rack() -> None:
    """Eight pods in slices of 4 per rack and 2 per host; the other rack has more room, and must not be used."""
    case = Case({"h1": 2, "h2": 2, "h3": 3}, {"h4": 2, "h5": 2, "h6": 8})
    case.holds(make_pod_set(8, required=BLOCK, slices=TWO_LAYERS), **EIGHT_IN_TWO_RACKS)

    answer = case.fails("h2")

    assert whole(answer) == {"h1": 2, "h3": 2, "h4": 2, "h5": 2}
    assert isinstance(answer, tuple)
    assert pods(answer[0].added) == {"h3": 2}
    assert answer[0].added.paths == (("b1", "r1", "h3"),)
    assert answer[0].whole.paths[1] == ("b1", "r1", "h3")


def test_a_rack_slice_that_cannot_be_mended_in_its_rack_is_not_mended_elsewhere() -> None:
    """The same without the spare host: h6 has room, and stands in the wrong rack."""
    case = Case({"h1": 2, "h2": 2}, {"h4": 2, "h5": 2, "h6": 8})
    case.holds(make_pod_set(8, required=BLOCK, slices=TWO_LAYERS), **EIGHT_IN_TWO_RACKS)

    misfit = refused(case.fails("h2"))

    assert (misfit.code, misfit.topology, misfit.level) == (MisfitCode.NO_FIT, "default", BLOCK)
    assert (misfit.unit, misfit.fit, misfit.total, misfit.leaves) == ("slice", 0, 1, 4)
    assert misfit.excluded == Exclusions(topology_domain=3, resources={"cpu": 1})


@pytest.mark.parametrize(
    ("case", "failed", "want"),
    [
        pytest.param(
            Case({"a1": 2, "a2": 2, "a3": 1}, {"b1": 9}).holds(make_pod_set(4, required=RACK), a1=2, a2=2),
            "a1",
            None,
            id="a required rack is not left, even for a better one",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 4, "a3": 1}, {"b1": 9}).holds(make_pod_set(4, required=RACK), a1=2, a2=2),
            "a1",
            {"a2": 4},
            id="new pods on a host that holds pods already are added up",
        ),
        pytest.param(
            Case({"a1": 2}, {"b1": 2}).holds(make_pod_set(2, required=RACK), a1=2),
            "a1",
            {"b1": 2},
            id="when nothing is left any rack will do",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2, "a3": 1}, {"b1": 9}).holds(make_pod_set(4, preferred=RACK), a1=2, a2=2),
            "a1",
            {"a2": 2, "b1": 2},
            id="a preferred rack is looked for anew",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2, "a3": 1}, {"b1": 9}).holds(make_pod_set(4, unconstrained=True), a1=2, a2=2),
            "a1",
            {"a2": 2, "b1": 2},
            id="unconstrained pods go anywhere",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2}, {"c": 9}, {"b1": 2}).holds(make_pod_set(4, required=BLOCK), a1=2, a2=2),
            "a1",
            {"a2": 2, "b1": 2},
            id="the order is by full path: host b1 of rack r3 stands after rack r1",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2}, {"b1": 4, "b2": 3}, {"c1": 4}).holds(
                make_pod_set(8, required=BLOCK, slices=((RACK, 4),)), a1=2, a2=2, b1=4
            ),
            "b1",
            {"a1": 2, "a2": 2, "c1": 4},
            id="a slice that is lost as a whole goes to any rack of the required block",
        ),
        pytest.param(
            Case({"a1": 4, "a2": 4}, {"b1": 9}).holds(
                make_pod_set(8, required=BLOCK, slices=((RACK, 4),)), a1=1, a2=3, b1=4
            ),
            "a1",
            {"a2": 4, "b1": 4},
            id="a part of a slice is searched without slices",
        ),
        pytest.param(
            Case({"a1": 3, "a2": 3, "a3": 3}, {"b1": 9}).holds(make_pod_set(4, slices=((RACK, 4),)), a1=1, a2=3),
            "a2",
            {"a1": 1, "a3": 3},
            id="a part of a slice-only request is unconstrained within its rack",
        ),
        pytest.param(
            Case({"a1": 6, "a2": 6, "a3": 6}, {"b1": 9}).holds(make_pod_set(8, slices=((RACK, 4),)), a1=2, a2=6),
            "a2",
            {"a1": 2, "a3": 6},
            id="all pods of one host come back to the rack with the incomplete slice",
        ),
    ],
)
def test_the_pods_of_one_failed_host_come_back(case: Case, failed: str, want: dict[str, int] | None) -> None:
    """None: there is no place for them."""
    answer = case.fails(failed)

    if want is None:
        assert refused(answer).code is MisfitCode.NO_FIT
    else:
        assert whole(answer) == want


def test_a_rack_whose_name_begins_like_the_required_one_is_another() -> None:
    """Rack r1 must do; r10 has room."""
    case = Case({"a1": 2, "a2": 2}, *[{}] * 8, {"j1": 9}).holds(make_pod_set(4, required=RACK), a1=2, a2=2)

    assert refused(case.fails("a1")).excluded == Exclusions(topology_domain=1, resources={"cpu": 1})


def test_a_failed_host_that_is_tainted_takes_no_pods_again() -> None:
    """It is still in the tree, and has room."""
    case = Case({"a1": 9, "a2": 2, "a3": 2}).holds(make_pod_set(4, required=RACK), a1=2, a2=2).tainted("a1")

    assert whole(case.fails("a1", gone=False)) == {"a2": 2, "a3": 2}


def test_a_middle_layer_stays_whole_where_the_finest_alone_would_break_it() -> None:
    """Four pairs would fill t1 and t3, 6 and 2; racks hold slices of 4, so t1 and t2 take 4 each."""
    room = {"h1": 8, "t1": 6, "t2": 4, "t3": 2}
    nodes = [make_node(host, cores, rack=f"r-{host}", labels={"hall": "x"}) for host, cores in room.items()]
    pod_set = make_pod_set(16, required="hall", slices=((BLOCK, 16), (RACK, 4), (HOSTNAME, 2)))
    held = TopologyAssignment((HOSTNAME,), (Domain(("h1",), 8), Domain(("h2",), 8)))
    usage = [DomainUsage(("h1",), pod_set.requests, 8)]

    found = find_replacement(Capacity.of(make_tree(nodes, ("hall", *LEVELS)), usage=usage), pod_set, held, {"h2"})

    assert isinstance(found, Replacement)
    assert pods(found.added) == {"t1": 4, "t2": 4}
    alone = find_replacement(Capacity.of(make_tree(nodes[:1], ("hall", *LEVELS)), usage=usage), pod_set, held, {"h2"})
    assert isinstance(alone, Misfit)
    assert (alone.unit, alone.size, alone.total) == ("slice", 2, 4)


@pytest.mark.parametrize(
    ("case", "failed", "code", "hosts"),
    [
        pytest.param(
            Case({"a1": 2}).holds(make_pod_set(4, required=RACK), a1=2, gone=2),
            "a1",
            MisfitCode.STALE_ASSIGNMENT,
            ("gone",),
            id="another host of the assignment is gone too",
        ),
        pytest.param(
            Case({"a1": 2}).holds(make_pod_set(4, required=RACK, slices=((RACK, 0),)), a1=2, gone=2),
            "a1",
            MisfitCode.STALE_ASSIGNMENT,
            ("gone",),
            id="a stale assignment comes before a missing slice size",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2}).holds(make_pod_set(4, required="room", slices=((RACK, 0),)), a1=2, a2=2),
            "a1",
            MisfitCode.SLICE_SIZE_MISSING,
            (),
            id="a missing slice size comes before a missing level",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2}).holds(make_pod_set(4, required="room"), a1=2, a2=2),
            "a1",
            MisfitCode.LEVEL_NOT_FOUND,
            (),
            id="the topology lost the level since",
        ),
        pytest.param(
            Case({"a1": 4, "a2": 4}).holds(make_pod_set(4, slices=((RACK, 4),)), a1=1, a2=2),
            "a1",
            MisfitCode.NO_REPLACEMENT,
            ("a1",),
            id="no rack holds the rest of the slice",
        ),
        pytest.param(
            Case({"a1": 4, "a2": 4, "a3": 4}).holds(make_pod_set(4, slices=((RACK, 4),)), a1=1, a2=1, a3=1),
            "a1",
            MisfitCode.NO_REPLACEMENT,
            ("a1",),
            id="the assignment never was of whole slices",
        ),
    ],
)
def test_what_cannot_be_replaced_says_why(case: Case, failed: str, code: MisfitCode, hosts: tuple[str, ...]) -> None:
    """The first problem in order of the checks, with the hosts that it is about, and a sentence."""
    misfit = refused(case.fails(failed))

    assert (misfit.code, misfit.hosts, misfit.pod_set) == (code, hosts, "main")
    text = sentence(Blocker(kind=BlockerKind.TOPOLOGY, flavor="tas", misfit=misfit))
    assert all(host in text for host in hosts)


# --- several pod sets, several failed hosts --------------------------------------------------------------------------


def test_pod_sets_are_repaired_one_after_the_other() -> None:
    """What the first takes the second does not get; one that is not on the host is not in the answer."""
    case = Case({"a1": 3, "a2": 3, "a3": 2, "a4": 2})
    case.holds(make_pod_set(1, name="leader", group="g", required=RACK), a1=1)
    case.holds(make_pod_set(2, name="worker", group="g", required=RACK), a1=2)
    case.holds(make_pod_set(3, name="other", required=RACK), a2=3)

    answer = case.fails("a1")

    assert isinstance(answer, tuple)
    assert [(r.whole.name, pods(r.whole)) for r in answer] == [("leader", {"a3": 1}), ("worker", {"a4": 2})]


LED = (
    make_pod_set(1, name="leader", group="g", required=RACK),
    make_pod_set(2, name="worker", group="g", required=RACK),
)


def test_a_leader_that_is_lost_as_a_whole_joins_its_workers() -> None:
    """Another rack would be the tighter fit; without room in the workers' rack there is no replacement."""
    racks = ({"a1": 1, "a2": 2, "a3": 9}, {"b1": 1})

    for case in (
        Case(*racks).holds(LED[0], a1=1).holds(LED[1], a2=2),
        Case(*racks).holds(LED[1], a2=2).holds(LED[0], a1=1),
    ):
        assert whole(case.fails("a1")) == {"a3": 1}
    full = Case({"a1": 1, "a2": 2}, {"b1": 1}).holds(LED[0], a1=1).holds(LED[1], a2=2)
    assert refused(full.fails("a1")).excluded.topology_domain == 1


def test_workers_that_are_lost_as_a_whole_join_their_leader() -> None:
    """Where it stands, and where it has just been sent when it was lost, too."""
    stays = Case({"a1": 1, "a2": 2, "a3": 9}, {"b1": 2}).holds(LED[0], a1=1).holds(LED[1], a2=2)
    large = make_pod_set(1, cores=3, name="leader", group="g", required=RACK)
    goes = Case({"a1": 3, "a2": 2}, {"b1": 3, "b2": 3}, {"c1": 2}).holds(large, a1=1).holds(LED[1], a2=2)

    assert whole(stays.fails("a2")) == {"a3": 2}
    both = goes.fails("a1", "a2")
    assert isinstance(both, tuple), both
    assert [pods(r.whole) for r in both] == [{"b1": 1}, {"b2": 2}]  # rack r3 is the tighter fit


def test_a_group_that_requires_nothing_is_not_kept_together() -> None:
    """As when it was placed: a preferred rack is only looked for anew."""
    leader, workers = (replace(pod_set, topology=make_pod_set(1, preferred=RACK).topology) for pod_set in LED)
    case = Case({"a1": 1, "a2": 2, "a3": 9}, {"b1": 1}).holds(leader, a1=1).holds(workers, a2=2)

    assert whole(case.fails("a1")) == {"b1": 1}


def test_the_first_pod_set_without_a_place_ends_the_repair() -> None:
    """The misfit names it and its group, and has what was found before."""
    case = Case({"a1": 5, "a2": 1}).holds(make_pod_set(1, name="leader", group="g", required=RACK), a1=1)
    case.holds(make_pod_set(2, name="worker", group="g", required=RACK), a1=2)
    case.holds(make_pod_set(1, name="tail", required=RACK), a1=1)

    misfit = refused(case.fails("a1"))

    assert (misfit.code, misfit.pod_set, misfit.group) == (MisfitCode.NO_FIT, "worker", "g")
    assert [pods(placed) for placed in misfit.placed] == [{"a2": 1}]


@pytest.mark.parametrize(
    ("case", "failed", "want"),
    [
        pytest.param(
            Case({"a1": 2, "a2": 2, "a3": 2, "a4": 2, "a5": 2}, {"b1": 9}).holds(
                make_pod_set(6, required=RACK), a1=2, a2=2, a3=2
            ),
            ("a1", "a3"),
            {"a2": 2, "a4": 2, "a5": 2},
            id="without slices all missing pods are one search in the required rack",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2, "a3": 2}, {"b1": 2, "b2": 2, "b3": 2}, {"c1": 9}).holds(
                make_pod_set(8, required=BLOCK, slices=((RACK, 4),)), a1=2, a2=2, b1=2, b2=2
            ),
            ("a1", "b1"),
            {"a2": 2, "a3": 2, "b2": 2, "b3": 2},
            id="each broken rack slice is mended in its own rack",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2, "a3": 2}, {"b1": 2, "b2": 2, "b3": 1}, {"c1": 9}).holds(
                make_pod_set(8, required=BLOCK, slices=((RACK, 4),)), a1=2, a2=2, b1=2, b2=2
            ),
            ("a1", "b1"),
            None,
            id="one broken slice that cannot be mended is enough to refuse",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2, "a3": 2}, {"b1": 2, "b2": 2}, {"c1": 4}).holds(
                make_pod_set(8, required=BLOCK, slices=((RACK, 4),)), a1=2, a2=2, b1=2, b2=2
            ),
            ("a1", "b1", "b2"),
            {"a2": 2, "a3": 2, "c1": 4},
            id="a broken slice is mended, a lost one starts anew",
        ),
        pytest.param(
            Case({"a1": 2, "a2": 2}, {"b1": 2, "b2": 2}, {"c1": 4, "c2": 4}).holds(
                make_pod_set(8, required=BLOCK, slices=((RACK, 4),)), a1=2, a2=2, b1=2, b2=2
            ),
            ("a1", "a2", "b1", "b2"),
            {"c1": 4, "c2": 4},
            id="everything is lost and everything starts anew",
        ),
        pytest.param(
            Case({"h1": 2, "h2": 2, "h3": 2, "s1": 3, "s2": 1, "s3": 2}).holds(
                make_pod_set(6, required=BLOCK, slices=((RACK, 6), (HOSTNAME, 2))), h1=2, h2=2, h3=2
            ),
            ("h1", "h2"),
            {"h3": 2, "s1": 2, "s3": 2},
            id="finer layers bind what comes back",
        ),
    ],
)
def test_several_failed_hosts_are_replaced_together(
    case: Case, failed: tuple[str, ...], want: dict[str, int] | None
) -> None:
    """None: there is no place for all of them."""
    answer = case.fails(*failed)

    if want is None:
        assert refused(answer).code is MisfitCode.NO_FIT
    else:
        assert whole(answer) == want


def test_broken_groups_are_mended_from_the_innermost_layer_outwards() -> None:
    """Rack r1 lacks 1 of its 2, and with r2's lost pair the block lacks 3 of its 4: both come back to block b1."""
    case = Case(
        {"a1": 1, "a2": 1, "a3": 1}, {"b1": 2}, {"c1": 2}, {"d1": 9}, blocks={1: "b1", 2: "b1", 3: "b1", 4: "b2"}
    )
    case.holds(make_pod_set(4, slices=((BLOCK, 4), (RACK, 2))), a1=1, a2=1, b1=2)

    assert whole(case.fails("a1", "b1")) == {"a2": 1, "a3": 1, "c1": 2}


@pytest.mark.parametrize(
    ("held", "failed", "want"),
    [
        pytest.param({"a1": 4, "b1": 1}, ["b1"], {"a1": 4, "a2": 1}, id="the incomplete slice is lost"),
        pytest.param(
            {"a1": 4, "b1": 1}, ["a1"], {"a2": 1, "b1": 4}, id="a whole slice is lost, and the other completed"
        ),
        pytest.param({"a1": 3, "b1": 2}, ["a1"], {"a2": 1, "b1": 4}, id="two are incomplete"),
        pytest.param({"a1": 2, "a2": 2, "b1": 1}, ["a1", "b1"], {"a2": 4, "b2": 1}, id="parts of both"),
        pytest.param({"a1": 1, "a2": 1}, ["a1"], {"a2": 2}, id="a part of less than a slice"),
    ],
)
def test_of_a_gang_of_which_pods_have_ended_one_slice_stays_incomplete(
    held: dict[str, int], failed: list[str], want: dict[str, int]
) -> None:
    """Slices of four in a rack; each rack has two hosts of four cores."""
    left = sum(held.values())
    case = Case({"a1": 4, "a2": 4}, {"b1": 4, "b2": 4}, {"c1": 3})
    pod_set = make_pod_set(left, ended=12 - left, required=BLOCK, slices=[(RACK, 4)])

    assert whole(case.holds(pod_set, **held).fails(*failed)) == want


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param({"a1": 2, "a2": 2, "b1": 1}, {"a2": 2, "a3": 2, "b1": 1}, id="the smaller slice stays as it was"),
        pytest.param({"a1": 2, "b1": 1}, {"b1": 2, "b2": 1}, id="the smaller slice is the one that is left"),
    ],
)
def test_a_smaller_slice_gets_no_pods_of_another_one_for_its_hosts(held: dict[str, int], want: dict[str, int]) -> None:
    """Slices of four in a rack, of two on a host.  The pair on `b1` lacks a pod that has ended."""
    left = sum(held.values())
    case = Case({"a1": 2, "a2": 2, "a3": 2}, {"b1": 2, "b2": 2})
    pod_set = make_pod_set(left, ended=8 - left, required=BLOCK, slices=[(RACK, 4), (HOSTNAME, 2)])

    assert whole(case.holds(pod_set, **held).fails("a1")) == want


def test_hosts_that_nobody_stands_on_need_no_replacement() -> None:
    """Also in a topology without hosts, where nothing can be said."""
    case = Case({"a1": 2, "a2": 2}).holds(make_pod_set(2, required=RACK), a1=2)

    assert case.fails("a2") == ()
    assert not uses_host(TopologyAssignment((BLOCK, RACK), (Domain(("b1", "a1"), 2),)), {"a1"})


def test_an_unhealthy_node_is_a_host_or_the_node_of_that_name() -> None:
    """Nodes are named by their own name as a rule; their host label may differ."""
    nodes = [make_node("h1", 1), make_node("h2", 1), NodeFacts(name="node-h3", labels={}, allocatable={})]

    assert failed_hosts(["node-h1", "h9", "node-h3"], nodes) == {"node-h1", "h1", "h9", "node-h3"}


# --- properties ------------------------------------------------------------------------------------------------------


@st.composite
def broken_gangs(draw: st.DrawFn) -> tuple[Capacity, PodSetRequest, TopologyAssignment, set[str]]:
    """A pod set that was placed somewhere, some of its hosts gone, and the capacity that is left."""
    sizes = draw(st.lists(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), max_size=3), max_size=3))
    nodes = [
        make_node(f"{b}{r}{h}", cores, block=f"b{b}", rack=f"r{r}")
        for b, in_block in enumerate(sizes)
        for r, in_rack in enumerate(in_block)
        for h, cores in enumerate(in_rack)
    ]
    layers = draw(st.sampled_from(LAYERS))
    unit = layers[0][1] if layers else 1
    wish: dict[str, Any] = draw(st.sampled_from(WISHES))
    count = unit * draw(st.integers(1, 5))
    ended = draw(st.integers(0, count - 1))
    pod_set = make_pod_set(count - ended, ended=ended, slices=layers, **wish)
    found = place_one(Capacity.of(make_tree(nodes)), pod_set)
    assume(isinstance(found, Placement))
    assert isinstance(found, Placement)
    assignment = found["main"].assignment
    used = [domain.values[-1] for domain in assignment.domains]
    failed = draw(st.sets(st.sampled_from(used), min_size=1, max_size=3))
    left = [node for node in nodes if node.labels[HOSTNAME] not in failed]
    return Capacity.of(make_tree(left), usage=usage_of(found)), pod_set, assignment, failed


LAYERS: tuple[tuple[tuple[str, int], ...], ...] = (
    (),
    ((HOSTNAME, 2),),
    ((RACK, 3),),
    ((RACK, 4), (HOSTNAME, 2)),
    ((BLOCK, 6), (RACK, 3)),
    ((BLOCK, 8), (RACK, 4), (HOSTNAME, 2)),
)
WISHES: tuple[dict[str, Any], ...] = (
    {"required": BLOCK},
    {"preferred": BLOCK},
    {"unconstrained": True},
)


@given(broken_gangs())
def test_a_repaired_gang_is_whole_and_stands_where_it_may(
    gang: tuple[Capacity, PodSetRequest, TopologyAssignment, set[str]],
) -> None:
    """Healthy pods stay; counts sum; order, required domain, slices and capacity are respected."""
    capacity, pod_set, before, failed = gang

    found = find_replacement(capacity, pod_set, before, failed)

    if isinstance(found, Misfit):
        assert found.code is (MisfitCode.NO_FIT if len(capacity.tree) else MisfitCode.NO_DOMAINS_AT_LEVEL)
        return
    after, kept = pods(found.whole), {d.values[-1]: d.count for d in before.domains if d.values[-1] not in failed}
    assert Counter(after) == Counter(kept) + Counter(pods(found.added))
    assert sum(after.values()) == before.count
    assert list(found.whole.paths) == sorted(set(found.whole.paths))
    assert [path[-1] for path in found.whole.paths] == list(after)
    assert capacity.fits(usage_of(Placement((found.added,))))
    if pod_set.topology.required and kept:
        assert len({path[0] for path in found.whole.paths}) == 1
    for layer in pod_set.topology.slices:
        depth = LEVELS.index(layer.level) + 1
        groups: Counter[tuple[str, ...]] = Counter()
        for path, domain in zip(found.whole.paths, found.whole.assignment.domains, strict=True):
            groups[path[:depth]] += domain.count
        cut = sum(count % layer.size > 0 for count in groups.values())
        assert cut <= (pod_set.ended > 0), (layer, groups)
