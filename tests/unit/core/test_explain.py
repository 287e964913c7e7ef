"""Why a workload waits: each blocker as one sentence with its numbers and its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.core.explain import Blocker, BlockerKind, WaitReason, brief, message, mildest, most_severe, sentence
from kqueue.core.mention import Mention
from kqueue.core.topology.result import Exclusions, LayerFit, Misfit, MisfitCode, Shortage

GPU = "nvidia.com/gpu"


def make_blocker(kind: BlockerKind, **facts: Any) -> Blocker:
    """A blocker of pod set `main`, in ClusterQueue `team` and flavor `spot`."""
    return Blocker(kind=kind, **{"pod_set": "main", "queue": "team", "flavor": "spot", **facts})


def make_misfit(code: MisfitCode = MisfitCode.NO_FIT, **facts: Any) -> Misfit:
    """Nine pods that do not fit in a rack; the best one has room for eight."""
    defaults = {
        "pod_set": "main",
        "topology": "dc",
        "level": "rack",
        "fit": 8,
        "total": 9,
        "best_domain": ("b1", "r2"),
        "leaves": 64,
    }
    return Misfit(code=code, **{**defaults, **facts})


def of_misfit(misfit: Misfit, *, never: bool = False) -> str:
    """The sentence about pods that find no place."""
    return sentence(make_blocker(BlockerKind.TOPOLOGY, misfit=misfit, never=never))


@pytest.mark.parametrize(
    ("blocker", "facts"),
    [
        pytest.param(
            make_blocker(BlockerKind.FLAVOR_MISSING),
            ["ResourceFlavor spot does not exist", "create it"],
            id="no-flavor",
        ),
        pytest.param(
            make_blocker(BlockerKind.FLAVOR_TAINT, detail="spot=true:NoSchedule"),
            ["spot=true:NoSchedule of flavor spot", "not tolerated"],
            id="taint",
        ),
        pytest.param(make_blocker(BlockerKind.FLAVOR_LABELS), ["does not match", "flavor spot"], id="labels"),
        pytest.param(
            make_blocker(BlockerKind.FLAVOR_TOPOLOGY, detail="it names no topology"),
            ["flavor spot", "it names no topology"],
            id="flavor-without-topology",
        ),
        pytest.param(
            make_blocker(BlockerKind.RESOURCE_NOT_COVERED, resource=GPU),
            [GPU, "not covered by ClusterQueue team", "add it"],
            id="resource-that-nobody-counts",
        ),
        pytest.param(
            make_blocker(BlockerKind.QUOTA, resource="cpu", asked=3000, free=1500),
            ["asks for 3 cpu of flavor spot", "ClusterQueue team has 1500m cpu free", "1500m cpu more needed"],
            id="quota",
        ),
        pytest.param(
            make_blocker(BlockerKind.QUOTA, resource="cpu", asked=3000, free=1500, used=8500, nominal=10_000),
            ["has 1500m cpu free (it uses 8500m of its own 10), 1500m cpu more needed"],
            id="quota-that-the-queue-itself-uses",
        ),
        pytest.param(
            make_blocker(BlockerKind.QUOTA, resource="cpu", asked=3000, free=1500, used=4000, nominal=10_000),
            ["has 1500m cpu free (it uses 4 of its own 10, others of its cohort 4500m of it), 1500m cpu more"],
            id="quota-that-others-have-borrowed",
        ),
        pytest.param(
            make_blocker(BlockerKind.QUOTA, resource="memory", asked=3 << 30, free=-(1 << 30)),
            ["has 0 memory free", "4Gi memory more needed"],
            id="quota-that-others-overdrew",
        ),
        pytest.param(
            make_blocker(BlockerKind.EXCEEDS_MAX_QUOTA, resource=GPU, asked=16, free=8),
            [f"asks for 16 {GPU}", f"never get more than 8 {GPU}", "raise the quota"],
            id="more-than-there-ever-is",
        ),
        pytest.param(
            make_blocker(BlockerKind.TAKEN_THIS_CYCLE, detail="another workload"),
            ["until another workload took the room in the same cycle", "tried again"],
            id="too-late",
        ),
        pytest.param(
            make_blocker(BlockerKind.LENDERS),
            ["ClusterQueue team would borrow quota that workloads of its owner are tried for first", "tried again"],
            id="left-to-lenders",
        ),
        pytest.param(
            make_blocker(BlockerKind.NO_CANDIDATES, detail="withinClusterQueue Never"),
            ["no workload may be preempted for it: ClusterQueue team has withinClusterQueue Never"],
            id="nobody-may-be-preempted",
        ),
        pytest.param(
            make_blocker(BlockerKind.NO_CANDIDATES, detail="withinClusterQueue LowerPriority", holders=0),
            ["has withinClusterQueue LowerPriority, and no workload of lower priority holds any of it there"],
            id="nobody-is-lesser",
        ),
        pytest.param(
            make_blocker(BlockerKind.NO_CANDIDATES, detail="withinClusterQueue LowerPriority", holders=3),
            ["and the 3 of lower priority that hold some of it there are not enough"],
            id="the-lesser-ones-hold-too-little",
        ),
        pytest.param(
            make_blocker(BlockerKind.YIELDS, workloads=(Mention("ns/other", "spare"),)),
            ["it was preempted for a workload of ClusterQueue spare, which is admitted first"],
            id="it-left-for-another",
        ),
        pytest.param(
            make_blocker(BlockerKind.LEAVING, workloads=(Mention("ns/other", "spare"),)),
            ["waits for the workloads preempted for a workload of ClusterQueue spare to release what they hold"],
            id="others-leave-for-another",
        ),
        pytest.param(
            make_blocker(BlockerKind.PODS_NOT_READY, workloads=(Mention("ns/other"),)),
            ["the pods of a workload of another namespace must be ready before another workload is admitted"],
            id="pods-are-not-ready",
        ),
        pytest.param(make_blocker(BlockerKind.QUEUE, detail="it is stopped"), ["it is stopped"], id="queue"),
        pytest.param(make_blocker(BlockerKind.NAMESPACE, detail="label it"), ["label it"], id="namespace"),
        pytest.param(make_blocker(BlockerKind.REQUESTS, detail="no quantity"), ["no quantity"], id="requests"),
        pytest.param(make_blocker(BlockerKind.TOPOLOGY, detail="no node"), ["no node"], id="place-without-numbers"),
    ],
)
def test_a_blocker_is_a_sentence_with_its_facts(blocker: Blocker, facts: list[str]) -> None:
    """It names the pod set, what is asked, what is free, where; and what to do."""
    text = sentence(blocker)

    assert text.startswith("pod set main: ")
    assert all(fact in text for fact in facts), text


def test_every_kind_of_blocker_has_words() -> None:
    """A new kind cannot be forgotten here."""
    texts = {kind: sentence(make_blocker(kind, detail="d", misfit=make_misfit())) for kind in BlockerKind}

    assert all(len(text) > len("pod set main: ") for text in texts.values())


def test_a_blocker_of_the_whole_workload_names_no_pod_set() -> None:
    """Nothing stands before the sentence then."""
    assert sentence(Blocker(kind=BlockerKind.QUEUE, detail="ClusterQueue team is stopped")) == (
        "ClusterQueue team is stopped"
    )


def test_a_gang_without_a_place_is_told_level_best_domain_asked_and_free() -> None:
    """The whole sentence, as a person reads it."""
    shortage = Shortage(GPU, 72, 64)
    excluded = Exclusions(
        node_selector=3, affinity=2, taints={"b:NoSchedule": 1, "a=x:NoExecute": 4}, resources={GPU: 5, "pods": 2}
    )

    assert of_misfit(make_misfit(shortage=shortage, excluded=excluded)) == (
        "pod set main: 9 pods do not fit in one domain of level rack (topology dc, flavor spot): the best, b1/r2, has "
        "room for 8; short of nvidia.com/gpu: asked 72, free 64; of 64 nodes these cannot hold one pod: 3 by node "
        "selector, 2 by node affinity, 4 by taint a=x:NoExecute, 1 by taint b:NoSchedule, "
        "5 by too little nvidia.com/gpu, 2 by having no place for another pod (in use or reserved)"
    )


@pytest.mark.parametrize(
    ("misfit", "facts"),
    [
        pytest.param(make_misfit(unit="slice", fit=1, total=2), ["2 slices do not fit", "room for 1"], id="slices"),
        pytest.param(make_misfit(best_domain=None, fit=0), [": none of them would fit"], id="no-domain-at-all"),
        pytest.param(make_misfit(best_domain=None, fit=3), [": only 3 of them would fit"], id="no-best-domain"),
        pytest.param(
            make_misfit(best_domain=None, spread=True, fit=8),
            ["9 pods do not fit in all domains of level rack together", ": only 8 of them would fit"],
            id="not-even-spread",
        ),
        pytest.param(make_misfit(level=None), ["do not fit in the topology (topology dc"], id="no-level"),
        pytest.param(
            make_misfit(fit=9, leader=True),
            ["has room for 9, but not for the leader besides"],
            id="only-the-leader-is-left-over",
        ),
        pytest.param(
            make_misfit(best_domain=None, spread=True, fit=0, leader=True),
            ["all domains of level rack together", ": no place holds their leader"],
            id="no-leader-anywhere",
        ),
        pytest.param(
            make_misfit(group="ring"),
            ["9 pods and the leader of group ring do not fit in one domain of level rack"],
            id="both-pod-sets-of-a-group-are-meant",
        ),
        pytest.param(
            make_misfit(layers=(LayerFit("rack", 1, 2), LayerFit("host", 3, 8))),
            ["in it fit 1 of 2 slices at level rack", "in it fit 3 of 8 slices at level host"],
            id="layers-of-slices",
        ),
        pytest.param(
            make_misfit(MisfitCode.NO_DOMAINS_AT_LEVEL, leaves=0, best_domain=None, fit=0),
            ["no ready, schedulable node has the labels of flavor spot and all levels of the topology"],
            id="no-nodes",
        ),
        pytest.param(
            make_misfit(shortage=Shortage("memory", 3 << 30, 1 << 29)), ["asked 3Gi, free 512Mi"], id="in-its-units"
        ),
        pytest.param(
            make_misfit(shortage=Shortage(GPU, 72, 64, 8)),
            ["asked 72, free 64, held by other workloads 8"],
            id="that-others-hold",
        ),
    ],
)
def test_what_is_known_about_a_missing_place_is_said(misfit: Misfit, facts: list[str]) -> None:
    """Each fact that the placement reports reaches the sentence."""
    text = of_misfit(misfit)

    assert all(fact in text for fact in facts), text


def test_what_does_not_matter_is_left_out() -> None:
    """No empty lists, no leader where there is room missing for the workers, no verdict about an empty cluster."""
    text = of_misfit(make_misfit())

    assert not any(part in text for part in ("leader", "short of", "leaves", "slices", "empty cluster", "no ready"))


def test_a_gang_that_can_never_fit_is_told_so() -> None:
    """Waiting will not help, so the remedy is named."""
    text = of_misfit(make_misfit(), never=True)

    assert "do not fit in one domain of level rack (topology dc, flavor spot), even with no workload running" in text
    assert "ask for fewer pods, smaller pods or a wider level" in text


@pytest.mark.parametrize(
    ("code", "facts", "want"),
    [
        pytest.param(
            MisfitCode.LEVEL_NOT_SPECIFIED, {}, ["no level is asked for", "write required"], id="no-level-named"
        ),
        pytest.param(MisfitCode.LEVEL_NOT_FOUND, {"level": "aisle"}, ["no level 'aisle'"], id="unknown-level"),
        pytest.param(
            MisfitCode.SLICE_LEVEL_NOT_FOUND, {"level": "aisle"}, ["no level 'aisle'"], id="unknown-slice-level"
        ),
        pytest.param(
            MisfitCode.INNER_LEVEL_NOT_FOUND, {"level": "aisle"}, ["no level 'aisle'"], id="unknown-inner-level"
        ),
        pytest.param(
            MisfitCode.SLICE_LEVEL_ABOVE_POD_SET_LEVEL,
            {"level": "rack", "other_level": "block"},
            ["slices of level block are wider than rack"],
            id="slice-too-wide",
        ),
        pytest.param(MisfitCode.SLICE_SIZE_MISSING, {}, ["slices have a level but no size"], id="no-slice-size"),
        pytest.param(
            MisfitCode.INNER_LEVEL_NOT_LOWER,
            {"level": "block", "other_level": "rack"},
            ["block is not narrower than rack"],
            id="layers-upside-down",
        ),
        pytest.param(
            MisfitCode.INNER_SIZE_NOT_DIVISOR, {"size": 3, "other_size": 8}, ["3 does not divide 8"], id="odd-size"
        ),
        pytest.param(
            MisfitCode.COUNT_BELOW_SLICE_SIZE,
            {"count": 3, "size": 4},
            ["one slice has 4 pods", "3 are to be placed"],
            id="too-few-pods",
        ),
        pytest.param(MisfitCode.INVALID_NODE_AFFINITY, {"detail": "bad key"}, ["bad key"], id="in-its-own-words"),
        pytest.param(MisfitCode.INVALID_GROUP, {}, ["InvalidGroup"], id="without-words-its-code"),
    ],
)
def test_a_request_that_no_capacity_could_meet_names_its_mistake(
    code: MisfitCode, facts: dict[str, Any], want: list[str]
) -> None:
    """No talk of room: it is the request that must change.  Flavor and topology are named."""
    text = of_misfit(make_misfit(code, **facts))

    assert all(fact in text for fact in ["flavor spot", "topology dc", *want]), text
    assert "room for" not in text


def test_a_message_has_each_sentence_once_in_order() -> None:
    """Two pod sets with the same problem are two sentences; the same problem twice is one."""
    stopped = make_blocker(BlockerKind.QUEUE, detail="stopped")
    other = make_blocker(BlockerKind.QUEUE, detail="stopped", pod_set="b")

    assert message([other, stopped, other]) == "pod set b: stopped; pod set main: stopped"
    assert message([]) == ""


TOPOLOGY, QUOTA, MAX, FLAVOR = (
    WaitReason.TOPOLOGY_PLACEMENT_FAILED,
    WaitReason.WAITING_FOR_QUOTA,
    WaitReason.EXCEEDS_MAX_QUOTA,
    WaitReason.NO_MATCHING_FLAVOR,
)


@pytest.mark.parametrize(
    ("reasons", "worst", "least"),
    [
        pytest.param([TOPOLOGY, QUOTA], QUOTA, TOPOLOGY, id="quota-is-worse-than-place"),
        pytest.param([MAX, QUOTA], MAX, QUOTA, id="never-is-worse-than-not-now"),
        pytest.param([MAX, FLAVOR], FLAVOR, MAX, id="no-flavor-is-worst"),
        pytest.param([FLAVOR, TOPOLOGY, MAX, QUOTA], FLAVOR, TOPOLOGY, id="all"),
        pytest.param([], QUOTA, FLAVOR, id="none"),
        pytest.param([WaitReason.SUSPENDED, TOPOLOGY], TOPOLOGY, TOPOLOGY, id="others-are-not-ranked"),
    ],
)
def test_reasons_are_ranked(reasons: list[WaitReason], worst: WaitReason, least: WaitReason) -> None:
    """The most severe names the workload, the mildest a pod set that has several flavors."""
    assert most_severe(reasons) is worst
    assert mildest(reasons) is least


# --- the one sentence of a condition ----------------------------------------------------------------------------------


def no_leaf(cause: dict[str, Any], **facts: Any) -> Misfit:
    """No leaf of 18 can hold one pod."""
    return make_misfit(leaves=18, excluded=Exclusions(**cause), **facts)


def of_topology(misfit: Misfit, **facts: Any) -> Blocker:
    return make_blocker(BlockerKind.TOPOLOGY, misfit=misfit, **facts)


def of_quota(*, asked: int, free: int, used: int | None = None, nominal: int = 64) -> Blocker:
    return make_blocker(BlockerKind.QUOTA, resource=GPU, asked=asked, free=free, used=used, nominal=nominal)


NOBODY = make_blocker(BlockerKind.NO_CANDIDATES, pod_set="", detail="withinClusterQueue Never")
ONE_TOO_LARGE = no_leaf({"resources": {GPU: 18}}, one_pod=Shortage(GPU, 9, 8))


@pytest.mark.parametrize(
    ("blockers", "want"),
    [
        pytest.param(
            [of_topology(make_misfit(level="dc.example.com/rack"))],
            "Quota is there; no room in the topology: the best rack b1/r2 has room for 8 of 9 pods",
            id="quota-without-room",
        ),
        pytest.param(
            [of_topology(make_misfit()), of_quota(asked=8, free=0)],
            "The best rack b1/r2 has room for 8 of 9 pods",
            id="no-quota-either",
        ),
        pytest.param(
            [of_topology(make_misfit(), never=True)],
            "With no workload running, the best rack b1/r2 has room for 8 of 9 pods; ask for fewer pods",
            id="figures-of-an-empty-cluster-say-so",
        ),
        pytest.param(
            [of_topology(make_misfit(), never=True, unusable=("n1", "n2", "n3", "n4"))],
            "With no workload running, the best rack b1/r2 has room for 8 of 9 pods; cordoned or not ready: "
            "n1, n2 and 2 more",
            id="cordoned-nodes-are-named-before-the-request-is-blamed",
        ),
        pytest.param(
            [of_topology(ONE_TOO_LARGE, never=True)],
            "With no workload running, no node of flavor spot has room for one pod: it asks for 9 nvidia.com/gpu, the most "
            "on a node is 8",
            id="no-node-is-large-enough-for-one-pod",
        ),
        pytest.param(
            [of_topology(ONE_TOO_LARGE)],
            "Quota is there; no room in the topology: one pod asks for 9 nvidia.com/gpu, the most free on a node is 8",
            id="no-node-has-room-for-one-pod-now",
        ),
        pytest.param(
            [of_topology(no_leaf({"resources": {"pods": 18}}, one_pod=Shortage("pods", 1, 0)))],
            "Quota is there; no room in the topology: none of the 18 usable nodes of flavor spot has a place for another "
            "pod (in use or reserved)",
            id="hosts-that-are-reserved-whole",
        ),
        pytest.param(
            [of_topology(no_leaf({"node_selector": 18}, selector="zone=a,arch=arm64"), never=True)],
            "Node selector zone=a,arch=arm64 matches none of the 18 usable nodes of flavor spot",
            id="the-selector-that-excludes-all",
        ),
        pytest.param(
            [of_topology(no_leaf({"affinity": 18}), never=True)],
            "Required node affinity matches none of the 18 usable nodes of flavor spot",
            id="the-affinity-that-excludes-all",
        ),
        pytest.param(
            [of_topology(no_leaf({"taints": {"a=b:NoSchedule": 17}, "node_selector": 1}, selector="zone=a"), never=True)],
            "None of the 18 usable nodes of flavor spot can hold one pod: 1 by node selector zone=a, "
            "17 by taint a=b:NoSchedule",
            id="causes-that-exclude-all-together",
        ),
        pytest.param(
            [of_topology(make_misfit(MisfitCode.NO_DOMAINS_AT_LEVEL, leaves=0), never=True, unusable=("n1",))],
            "No ready, schedulable node has the labels of flavor spot and all levels of the topology; 1 node is "
            "cordoned or not ready: n1",
            id="no-node-is-usable",
        ),
        pytest.param(
            [of_quota(asked=64, free=32, used=64), NOBODY],
            "64 nvidia.com/gpu of flavor spot asked, ClusterQueue team has 32 free, all of it to borrow from its cohort",
            id="what-is-free-is-borrowed",
        ),
        pytest.param(
            [of_quota(asked=64, free=32, used=40)],
            "64 nvidia.com/gpu of flavor spot asked, ClusterQueue team has 32 free, 8 of it to borrow from its cohort",
            id="a-part-is-borrowed",
        ),
        pytest.param(
            [of_quota(asked=64, free=32, used=32)],
            "64 nvidia.com/gpu of flavor spot asked, ClusterQueue team has 32 free",
            id="nothing-is-borrowed",
        ),
        pytest.param(
            [
                make_blocker(BlockerKind.FLAVOR_TAINT, flavor="a", detail="x:NoSchedule"),
                of_quota(asked=8, free=0),
                make_blocker(BlockerKind.EXCEEDS_MAX_QUOTA, resource=GPU, asked=8, free=4),
            ],
            "8 nvidia.com/gpu of flavor spot asked, ClusterQueue team has 0 free",
            id="the-flavor-that-came-closest",
        ),
        pytest.param(
            [of_quota(asked=8, free=0), make_blocker(BlockerKind.FLAVOR_LABELS, pod_set="driver")],
            "Node selector or affinity does not match the labels of flavor spot (pod set driver)",
            id="the-pod-set-that-is-worst-off",
        ),
        pytest.param(
            [of_quota(asked=8, free=0), Blocker(kind=BlockerKind.QUEUE, detail="ClusterQueue team is stopped")],
            "ClusterQueue team is stopped",
            id="what-concerns-the-whole-workload",
        ),
        pytest.param([NOBODY], "No workload may be preempted for it: ClusterQueue team has withinClusterQueue Never", id="alone"),
        pytest.param([], "", id="nothing"),
    ],
)  # fmt: skip
def test_the_root_cause_is_one_sentence_that_is_so(blockers: list[Blocker], want: str) -> None:
    assert brief(blockers) == want


def test_every_kind_of_blocker_has_a_short_sentence() -> None:
    texts = [brief([make_blocker(kind, detail="d", misfit=make_misfit())]) for kind in BlockerKind]

    assert all(0 < len(text) <= 150 for text in texts), max(texts, key=len)


def test_the_full_sentence_of_an_empty_cluster_asks_to_bring_nodes_back() -> None:
    text = sentence(of_topology(make_misfit(), never=True, unusable=("n1", "n2")))

    assert "even with no workload running" in text
    assert text.endswith(
        "; 2 nodes are cordoned or not ready: n1, n2; bring nodes back, or ask for fewer pods, smaller pods or a wider "
        "level"
    )
