"""A group of pods: the Workload that it makes, and which of its pods a Workload stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.gang.compose import Composition, compose, difference, workload_of
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.match import Match, is_group_workload, match, match_prebuilt, newcomers
from kqueue.jobs.gang.members import in_order, is_fast
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority
from tests.unit.jobs.builders import prefixed
from tests.unit.jobs.pods import NOW, done, failed, group_workload, make_pod, member, running

SWITCHES = JobFeatures()
FAST = prefixed(pod_group_fast_admission="true")


def names_of(pods: tuple[ManagedPod, ...]) -> list[str]:
    return sorted(pod.name for pod in pods)


def made_of(*members: ManagedPod) -> Composition:
    found = compose(in_order(members), SWITCHES)
    assert isinstance(found, Composition), found
    return found


def trouble_of(*members: ManagedPod) -> GroupProblem:
    found = compose(in_order(members), SWITCHES)
    assert isinstance(found, GroupProblem)
    return found


def counts(found: Composition) -> dict[str, int]:
    return {pod_set["name"]: pod_set["count"] for pod_set in found.pod_sets}


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (prefixed(podset_required_topology="rack"), "together"),
        (prefixed(podset_preferred_topology="rack"), "together"),
        (prefixed(podset_unconstrained_topology="true"), None),
        ({}, None),
    ],
    ids=["required", "preferred", "unconstrained", "none"],
)
def test_a_level_of_the_group_object_is_for_all_roles(topology: dict[str, str], expected: str | None) -> None:
    """The Workload says so, because its pod sets do not tell where their level comes from."""
    made = made_of(member("a", role="x"), member("b", role="w"))
    made = replace(made, wish=replace(made.wish, topology=topology))
    workload = workload_of(made, name="g", priority=Priority(), copied=CopiedKeys(), switches=SWITCHES)
    assert not isinstance(workload, GroupProblem)
    assert workload["metadata"]["annotations"].get("kqueue.dev/gang-topology") == expected


def test_a_started_pod_does_not_say_which_topology_its_role_wishes() -> None:
    """A start writes such an annotation where users wrote none; the gated pods of the role need it, too."""
    started = running("a", annotations=prefixed(podset_unconstrained_topology="true"))
    made = made_of(started, member("b", born=1))
    alone = made_of(started, running("b", annotations=prefixed(podset_unconstrained_topology="true")))
    assert "unconstrained" not in made.pod_sets[0]["topologyRequest"]
    assert alone.pod_sets[0]["topologyRequest"]["unconstrained"] is True


# --- runnable


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (member(), True),
        (running("p"), True),
        (done("p"), True),
        (failed("p"), False),
        (member(deleted=0), False),
        (running("p", deleted=0), True),
        (done("p", deleted=0), True),
        (done("p", deleted=0, stopped=True), False),
    ],
    ids=["gated", "runs", "succeeded", "failed", "deleted-before-it-ran", "deleted-on-a-node", "succeeded-and-deleted",
         "stopped-by-us-and-ended-well"],
)  # fmt: skip
def test_who_needs_no_replacement(pod: ManagedPod, expected: bool) -> None:
    """Runnable, as 7.5 says; a gang that we stop has not done its work, however its pods end."""
    assert pod.runnable is expected


# --- making the Workload


@pytest.mark.proves("Pod group", "queueing")
def test_the_worked_example_of_roles() -> None:
    """Total 3, two pods of one shape and one of another: two pod sets; nothing before the third is there."""
    pods = [managed_pod(make_pod(f"p{i}", group="g", total=3, cpu=cpu), SWITCHES) for i, cpu in enumerate("112")]
    assert sorted(counts(made_of(*pods)).values()) == [1, 2]
    missing = trouble_of(*pods[:2])
    assert missing.incomplete
    assert missing.message == "the group has 2 of 3 pods; it waits for 1 more"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([member("a", role="x", total=3), member("b", role="w", total=3), member("c", role="x", total=3)], {"w": 1, "x": 2}),
        ([member("a"), done("b")], {"r": 2}),
        ([member("a"), running("b", deleted=0)], {"r": 2}),
        ([member("a"), member("b"), failed("c")], {"r": 2}),
        ([member("a", total=9, annotations=FAST)], {"r": 9}),
        ([member("a", total=9, annotations=FAST), member("b", total=9, role="other")], {"r": 9}),
    ],
    ids=["sorted", "succeeded-counts", "deleted-on-a-node-counts", "failed-does-not", "fast", "fast-looks-at-the-first"],
)  # fmt: skip
def test_pod_sets_of_a_group(pods: list[ManagedPod], expected: dict[str, int]) -> None:
    """7.5 steps 2 and 5."""
    assert counts(made_of(*pods)) == expected
    assert list(counts(made_of(*pods))) == sorted(expected)


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([member("a")], "1 of 2 pods"),
        ([member("a"), failed("b")], "1 of 2 pods"),
        ([member("a", total=2, deleted=0), member("b")], "1 of 2 pods"),
        ([member("a", total="x"), member("b")], "whole number above 0"),
        ([member("a", labels=prefixed(pod_group_pod_index="2")), member("b")], "from 0 to 1"),
        ([member("a", labels=prefixed(pod_group_pod_index="x")), member("b")], "from 0 to 1"),
        ([member("a"), member("b", queue="other")], "queue-name is 'other', and 'main' on pod a"),
        ([member("a"), member("b", queue=None)], "queue-name is ''"),
        ([member("a"), member("b", total=3)], "is '3', and 2 on pod a"),
        ([member("a", annotations=FAST), member("b", total=3)], "is '3', and 2 on pod a"),
        ([member("a"), member("b", cpu="2")], "it requests more cpu than pod a of the same role r"),
        ([member("a"), member("b", annotations=prefixed(podset_required_topology="x"))], "topology annotations differ"),
        ([member("a", role="-"), member("b", role="-")], "DNS label"),
        ([member(f"p{i:02}", total=19, role=f"r{i}") for i in range(19)], "19 roles, at most 18"),
    ],
)  # fmt: skip
@pytest.mark.proves("Pod group", "queueing")
def test_members_that_make_no_workload_say_why(pods: list[ManagedPod], words: str) -> None:
    """7.5 steps 2, 3 and 5, and whoever would get more than the quota that is asked for it."""
    assert words in trouble_of(*pods).message


def test_a_failed_member_does_not_contradict_the_others() -> None:
    """7.5 step 3 looks at members that have not failed."""
    assert counts(made_of(member("a"), member("b"), failed("c", queue="other", total=7))) == {"r": 2}


def test_who_joins_later_does_not_speak_for_the_group() -> None:
    """A pod named to come first changes neither total nor queue; it is the one that is told."""
    found = trouble_of(member("b"), member("c"), member("a", total=1, queue="theirs", born=9))
    assert found.pod is not None
    assert found.pod.name == "a"


@pytest.mark.parametrize(
    ("pods", "gone"),
    [
        ([member("a"), member("b"), member("c")], ["c"]),
        ([member("a", finalizer=False), member("b"), member("c")], ["a"]),
        ([member("a"), member("b"), running("c", born=9)], ["b"]),
        ([member("a", born=3), member("b", born=2), member("c", born=1)], ["a"]),
        ([member("a"), member("b"), failed("c")], []),
    ],
    ids=["by-name", "without-finalizer", "gated", "youngest", "failed-are-not-too-many"],
)
@pytest.mark.proves("Pod group", "excess pods")
def test_who_is_too_many(pods: list[ManagedPod], gone: list[str]) -> None:
    """7.5 step 4: those without finalizer first, then the gated, then the younger."""
    found = made_of(*pods)
    assert names_of(found.excess) == gone
    assert sum(counts(found).values()) == 2


def test_the_workload_of_a_group() -> None:
    """7.5 step 6: name, annotation, finalizer, plain owners, no job-uid; labels that all agree on."""
    pods = [member("a", labels={"team": "x"}), member("b", annotations={"provreq.kueue.x-k8s.io/late": "1"})]
    priority = Priority(value=7, kind="WorkloadPriorityClass", name="high")
    workload = workload_of(
        made_of(*pods), name="g", priority=priority, copied=CopiedKeys(labels=("team", "no")), switches=SWITCHES
    )
    assert isinstance(workload, dict)
    meta, spec = workload["metadata"], workload["spec"]
    assert (meta["name"], meta["namespace"]) == ("g", "team")
    assert meta["annotations"] == prefixed(is_group_workload="true")
    assert meta["labels"] == {"team": "x"}
    assert meta["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert meta["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"} for name in "ab"
    ]
    assert (spec["queueName"], spec["priority"], spec["priorityClassRef"]["name"]) == ("main", 7, "high")


def test_what_metrics_read_is_copied_from_the_first_pod_of_a_group() -> None:
    """Pods of a group may differ in it: it decides nothing."""
    first = member("a", labels={"tier": "gold"}, annotations={"example.com/cost": "7"})
    found = made_of(first, member("b", labels={"tier": "tin"}, annotations={"example.com/cost": "8"}))
    keys = CopiedKeys(metric_labels=("tier",), metric_annotations=("example.com/cost",))
    made = workload_of(found, name="g", priority=Priority(), copied=keys, switches=SWITCHES)

    assert isinstance(made, dict)
    assert made["metadata"]["labels"] == {"tier": "gold"}
    assert made["metadata"]["annotations"] == {"example.com/cost": "7", **prefixed(is_group_workload="true")}


def test_labels_to_copy_that_differ_are_told() -> None:
    """7.5 step 6."""
    found = made_of(member("a", labels={"team": "x"}), member("b", labels={"team": "y"}))
    made = workload_of(found, name="g", priority=Priority(), copied=CopiedKeys(labels=("team",)), switches=SWITCHES)
    assert isinstance(made, GroupProblem)


# --- finding the Workload


def matched(counts: dict[str, int], *members: ManagedPod) -> Match:
    found = match(in_order(members), group_workload(counts), NOW)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("roles", "pods", "absent"),
    [
        ({"r": 2}, [member("a"), member("b")], 0),
        ({"r": 2}, [member("a")], 1),
        ({"r": 2}, [member("a"), failed("b")], 1),
        ({"r": 2}, [member("a"), done("b")], 0),
        ({"r": 2, "s": 1}, [member("a"), member("b")], 1),
        ({"r": 5}, [member("a", annotations=FAST)], 0),
        ({"r": 5}, [failed("a", annotations=FAST)], 1),
        ({"r": 0}, [member("a", role="s"), failed("b", annotations=FAST)], 0),
    ],
)
@pytest.mark.proves("Pod group", "replacement pods")
@pytest.mark.proves("Pod group", "fast admission")
def test_how_many_pods_are_missing(roles: dict[str, int], pods: list[ManagedPod], absent: int) -> None:
    """7.5 rule 1."""
    found = match(in_order(pods), group_workload(roles), NOW)
    assert (found.absent if found is not None else 0) == absent


@pytest.mark.proves("Pod group", "excess pods")
def test_members_beyond_the_count_of_their_role_are_too_many() -> None:
    """7.5 rule 2."""
    found = matched({"r": 1, "s": 1}, member("a"), member("b", born=1), member("c", role="s"))
    assert names_of(found.excess) == ["b"]
    assert names_of(found.kept) == ["a", "c"]


@pytest.mark.parametrize(
    ("pods", "replaced"),
    [
        ([running("a"), failed("b")], []),
        ([running("a"), failed("b"), member("c")], ["b"]),
        ([running("a"), member("b", deleted=0)], []),
        ([running("a"), member("b", deleted=0), member("c")], ["b"]),
        ([failed("a"), failed("b")], []),
        ([failed("a"), failed("b"), member("c")], ["b"]),
        ([failed("a"), failed("b", finalizer=False), member("c")], ["b"]),
        ([failed("a", status={"conditions": [{"type": "ContainersReady", "status": "False", "reason": "Failed",
                                              "lastTransitionTime": "2025-12-31T00:00:00Z"}]}),
          failed("b"), member("c")], ["a"]),
        ([running("a"), running("b"), failed("c"), failed("d")], ["c", "d"]),
    ],
    ids=["no-successor", "successor", "deleted-no-successor", "deleted-successor", "all-failed", "one-of-two",
         "without-finalizer-goes", "idle-longest-goes", "all-replaced"],
)  # fmt: skip
@pytest.mark.proves("Pod group", "replacement pods")
def test_who_is_let_go_because_others_came(pods: list[ManagedPod], replaced: list[str]) -> None:
    """7.5 rule 3."""
    found = matched({"r": 2}, *pods)
    assert names_of(found.replaced) == replaced
    assert not set(replaced) & set(names_of(found.kept))


def test_members_of_an_unknown_role_are_strangers() -> None:
    """7.5 rule 4: ignored, not kept; without any kept member there is no match."""
    found = matched({"r": 2}, member("a"), member("b", role="s"))
    assert (names_of(found.kept), names_of(found.strangers)) == (["a"], ["b"])
    assert match([member("b", role="s")], group_workload({"r": 2}), NOW) is None
    assert match([], group_workload({"r": 2}), NOW) is None


def test_another_execution_time_is_no_match() -> None:
    """7.2 of the life cycle; the same time is."""
    timed = member("a", labels=prefixed(max_exec_time_seconds="60"))
    assert match([timed], group_workload({"r": 1}), NOW) is None
    assert match([timed], group_workload({"r": 1}, spec={"maximumExecutionTimeSeconds": 60}), NOW) is not None


@pytest.mark.parametrize(
    ("roles", "pods", "matches"),
    [
        ({"r": 2}, [member("a"), member("b")], True),
        ({"r": 2}, [member("a")], True),
        ({"r": 1}, [member("a"), member("b")], False),
        ({"s": 2}, [member("a")], False),
        ({"r": 2}, [member("a", annotations=FAST), member("b", role="s")], True),
        ({"r": 1}, [member("a", annotations=FAST)], False),
        ({"r": 2}, [failed("a", role="s")], True),
    ],
)
@pytest.mark.proves("Pod group", "prebuilt workload")
def test_a_prebuilt_workload_is_that_of_its_pods(roles: dict[str, int], pods: list[ManagedPod], matches: bool) -> None:
    """7.5: roles and counts within those of the Workload, nobody is too many."""
    found = match_prebuilt(in_order(pods), group_workload(roles), SWITCHES)
    assert (found is not None) is matches
    assert found is None or (found.excess, found.replaced, found.absent) == ((), (), 0)


def test_newcomers_become_owners() -> None:
    """7.5 rule 6."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a"}]
    workload = group_workload({"r": 2}, metadata={"ownerReferences": owners})
    assert names_of(newcomers([member("a"), member("b")], workload)) == ["b"]


def test_only_a_marked_workload_is_a_groups() -> None:
    """Names collide, so the annotation decides."""
    assert is_group_workload(group_workload({"r": 1}))
    assert not is_group_workload(group_workload({"r": 1}, metadata={"annotations": None}))


# --- whatever the pods are


def a_member(number: int, draw: Any) -> ManagedPod:
    kinds = [member, running, done, failed]
    made: ManagedPod = draw(st.sampled_from(kinds))(
        f"p{number:02}",
        total=draw(st.sampled_from([1, 2, 3])),
        role=draw(st.sampled_from(["r", "s", "t"])),
        deleted=draw(st.sampled_from([None, None, 0])),
        born=draw(st.integers(0, 3)),
        finalizer=draw(st.booleans()),
        cpu=draw(st.sampled_from(["1", "1", "2"])),
        annotations=draw(st.sampled_from([{}, {}, FAST])),
    )
    return made


@st.composite
def groups(draw: Any) -> list[ManagedPod]:
    return list(in_order(a_member(number, draw) for number in range(draw(st.integers(1, 8)))))


@settings(max_examples=200)
@given(groups(), st.dictionaries(st.sampled_from(["r", "s"]), st.integers(0, 3), min_size=1))
def test_no_pod_loses_its_finalizer_before_its_time(members: list[ManagedPod], roles: dict[str, int]) -> None:
    """Whoever is let go is of no use and was replaced, or is one too many; all others are kept, or no business of ours;
    and as many runnable members as the role has stay.
    """
    found = match(members, group_workload(roles), NOW)
    if found is None:
        return
    parts = [*found.kept, *found.excess, *found.replaced, *found.strangers]
    assert sorted(pod.key for pod in parts) == sorted(pod.key for pod in members)
    assert not any(pod.runnable for pod in found.replaced)
    assert all(pod.runnable for pod in found.excess)
    for role, count in roles.items():
        alive = sum(pod.runnable for pod in members if pod.role == role)
        kept = sum(pod.runnable for pod in found.kept if pod.role == role)
        assert kept == min(alive, count)
        waits = [pod for pod in found.kept if pod.role == role and not pod.runnable]
        assert len(waits) == max(0, min(count - alive, sum(pod.role == role for pod in members) - alive))


@settings(max_examples=200)
@given(groups())
def test_a_workload_asks_for_what_its_members_cost(members: list[ManagedPod]) -> None:
    """A pod set pays for each member of its role, and the counts are those of the kept members or the total."""
    found = compose(members, SWITCHES)
    if isinstance(found, GroupProblem):
        assert found.message
        return
    fast = is_fast(members[0])
    total = sum(counts(found).values())
    assert total == (members[0].total if fast else len(found.kept))
    for pod_set in found.pod_sets:
        mine = [pod for pod in found.kept if pod.role == pod_set["name"]]
        assert all(difference(pod, pod_set["template"]["spec"], of="") == "" for pod in mine)
