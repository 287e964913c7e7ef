"""How a group of pods is doing, and whom of it is started: all, or nobody."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.jobs.gang import counts as state
from kqueue.jobs.gang.counts import ReplacementCondition, Starts
from kqueue.jobs.gang.match import Match, match
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.kind import PodSetInfo, Refused
from kqueue.jobs.pod_view import ManagedPod
from tests.unit.jobs.builders import JSON, prefixed
from tests.unit.jobs.pods import NOW, condition, done, failed, group_workload, member, running

SERVING = prefixed(pod_group_serving="true")
FAST = prefixed(pod_group_fast_admission="true")
FINAL = prefixed(retriable_in_group="false")
TWO = group_workload({"r": 2})


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([member("a"), running("b")], True),
        ([running("a"), done("b")], True),
        ([running("a"), failed("b")], True),
        ([running("a"), running("b")], False),
    ],
)
def test_a_group_is_suspended_while_there_may_be_somebody_to_start(pods: list[ManagedPod], expected: bool) -> None:
    """7.5 Suspended: some member is gated or terminated."""
    assert state.is_suspended(pods) is expected


@pytest.mark.parametrize(
    ("pod", "active", "fast"),
    [
        (running("a"), True, True),
        (member("a", gated=False, node="n"), True, True),
        (member("a", gated=False, node="n", deleted=-10), True, False),
        (member("a"), False, False),
        (done("a"), False, False),
        (running("a", deleted=-10), True, False),
        (running("a", deleted=-30), True, False),
        (running("a", deleted=-31), False, False),
    ],
    ids=[
        "runs",
        "bound",
        "bound-and-in-its-grace-period",
        "gated",
        "ended",
        "in-its-grace-period",
        "at-its-end",
        "past-it",
    ],
)
@pytest.mark.proves("Pod group", "eviction and requeue")
def test_who_may_still_hold_resources(pod: ManagedPod, active: bool, fast: bool) -> None:
    """7.5 Active; with the gate FastQuotaReleaseInPodIntegration nobody who is being deleted."""
    assert state.is_active([pod], NOW, fast=False) is active
    assert state.is_active([pod], NOW, fast=True) is fast


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([done("a"), done("b")], "2 of 2 pods of the group succeeded"),
        ([done("a"), running("b")], None),
        ([done("a"), failed("b")], None),
        ([failed("a"), failed("b")], None),
        ([done("a"), failed("b", annotations=FINAL)], "1 of 2 pods of the group succeeded"),
        ([failed("a"), failed("b", annotations=FINAL)], "0 of 2 pods of the group succeeded"),
        ([running("a"), failed("b", annotations=FINAL)], None),
        ([done("a", annotations=SERVING), done("b", annotations=SERVING)], None),
        ([done("a", deleted=0, stopped=True), done("b")], None),
        ([done("a", total=1)], None),
    ],
    ids=["all", "one-runs", "one-failed", "all-failed", "not-to-be-retried", "none-succeeded", "not-retried-but-one-runs",
         "serving", "stopped-by-us", "a-smaller-total-later"],
)  # fmt: skip
@pytest.mark.proves("Pod group", "finished")
def test_when_a_group_is_finished(pods: list[ManagedPod], expected: str | None) -> None:
    """7.5 Finished, always as a success; the total is the Workload's."""
    end = state.finished(pods, TWO)
    assert (end.message if end is not None else None) == expected
    assert end is None or end.success


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([running("a"), running("b")], True),
        ([running("a")], False),
        ([running("a"), running("b", ready=False)], False),
        ([running("a"), done("b")], True),
        ([running("a"), failed("b")], False),
    ],
)
@pytest.mark.proves("Pod group", "pods ready")
def test_when_a_group_is_ready(pods: list[ManagedPod], expected: bool) -> None:
    """7.5 PodsReady; a member that has succeeded is not waited for."""
    assert state.is_ready(pods, TWO) is expected


@pytest.mark.proves("Pod group", "reclaimable pods")
def test_succeeded_members_give_back_by_role() -> None:
    """7.5 Reclaimable; nothing while it serves, and never more than the role has."""
    pods = [done("a"), running("b"), done("c", role="s"), done("d", role="s"), done("e", role="t")]
    workload = group_workload({"r": 2, "s": 1})
    assert state.reclaimable(pods, workload) == {"r": 1, "s": 1}
    assert state.reclaimable([done("a", annotations=SERVING)], workload) == {}


WAITS = condition("WaitingForReplacementPods", reason="PodsFailed", message="m")


@pytest.mark.parametrize(
    ("conditions", "absent", "expected"),
    [
        ([], 0, None),
        ([], 1, (True, "PodsFailed")),
        ([WAITS], 1, None),
        ([WAITS], 0, (False, "PodsReady")),
        ([condition("WaitingForReplacementPods", "False", "PodsReady")], 0, None),
        ([condition("WaitingForReplacementPods", "False", "PodsReady")], 1, (True, "PodsFailed")),
        ([condition("Evicted", reason="Preempted", message="m")], 1, (True, "Preempted")),
        ([condition("Evicted", reason="Preempted", message="m"), WAITS], 1, (True, "Preempted")),
        ([condition("Evicted", "False", reason="QuotaReserved"),
          condition("WaitingForReplacementPods", reason="Preempted", message="m")], 1, None),
        ([condition("Evicted", reason="Preempted", message="m"),
          condition("WaitingForReplacementPods", reason="Preempted", message="m")], 1, None),
    ],
)  # fmt: skip
@pytest.mark.proves("Pod group", "replacement pods")
def test_what_is_said_of_missing_pods(conditions: list[JSON], absent: int, expected: tuple[bool, str] | None) -> None:
    """7.5 Conditions: not before the first is missing, by the eviction's words while it is evicted."""
    found = state.waiting(group_workload({"r": 2}, *conditions), absent)
    assert ((found.status, found.reason) if isinstance(found, ReplacementCondition) else None) == expected


# --- starting


def info(role: str = "r", count: int = 2, **more: Any) -> PodSetInfo:
    return PodSetInfo(name=role, count=count, node_selector={"pool": role}, **more)


def started(
    *pods: ManagedPod, counts: dict[str, int] | None = None, infos: list[PodSetInfo] | None = None, **workload: Any
) -> Starts | Refused:
    wanted = group_workload(counts or {"r": 2}, **workload)
    found = match(in_order(pods), wanted, NOW)
    assert found is not None
    return state.starts(found, wanted, infos or [info(role, count) for role, count in (counts or {"r": 2}).items()])


def who(found: Starts | Refused) -> list[str]:
    assert isinstance(found, Starts), found
    return [pod.name for pod, _ in found.patches]


@pytest.mark.proves("Pod group", "start with topology")
def test_each_member_gets_the_info_of_its_role() -> None:
    """7.5 Start."""
    found = started(member("a"), member("b", role="s"), counts={"r": 1, "s": 1})
    assert isinstance(found, Starts)
    assert {pod.name: patch["spec"] for pod, patch in found.patches} == {
        "a": {"nodeSelector": {"pool": "r"}, "schedulingGates": None},
        "b": {"nodeSelector": {"pool": "s"}, "schedulingGates": None},
    }


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([member("a"), member("b")], ["a", "b"]),
        ([member("a")], []),
        ([member("a"), member("b", deleted=0)], []),
        ([member("a", annotations=FAST)], ["a"]),
        ([running("a"), member("b")], ["b"]),
        ([running("a"), failed("b"), member("c")], ["c"]),
        ([done("a"), member("b")], ["b"]),
        ([failed("a"), member("b")], []),
        ([member("a"), member("b", cpu="2")], []),
        ([running("a"), member("b", cpu="2")], []),
        ([member("a"), member("b", cpu="500m")], ["a", "b"]),
    ],
    ids=["all", "one-is-missing", "one-is-leaving", "fast", "the-rest-after-a-crash", "a-replacement", "beside-one-done",
         "nobody-has-run-and-one-failed", "one-costs-more", "the-newcomer-costs-more", "one-costs-less"],
)  # fmt: skip
@pytest.mark.proves("Pod group", "fast admission")
@pytest.mark.proves("Pod group", "replacement pods")
def test_whom_to_start(pods: list[ManagedPod], expected: list[str]) -> None:
    """All of a gang or nobody; afterwards each newcomer alone; nobody whom the role's quota does not pay for."""
    assert who(started(*pods)) == expected


def test_who_is_not_started_hears_why() -> None:
    """A stranger, and one that costs more than its role."""
    found = started(running("a"), member("b", cpu="2"), member("c", role="x"))
    assert isinstance(found, Starts)
    assert {pod.name: why.split(";")[0] for pod, why in found.held} == {
        "b": "it requests more cpu than pod set r of its Workload, whose requests are what the group's quota is counted by",
        "c": "the Workload has no pod set 'x', which is its role",
    }


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param({"cpu": "4"}, ["a", "b"], id="what a LimitRange has added was counted"),
        pytest.param({"cpu": "3"}, [], id="too little for each"),
        pytest.param({"memory": "4"}, [], id="of something else"),
        pytest.param({"cpu": "much"}, [], id="no quantity"),
    ],
)
def test_who_asks_for_more_than_the_template_starts_where_quota_was_given_for_it(
    usage: dict[str, str], expected: list[str]
) -> None:
    """What the admission counts per pod is paid for, whatever the template says."""
    assigned = {"podSetAssignments": [{"name": "r", "count": 2, "resourceUsage": usage}]}
    assert who(started(member("a", cpu="2"), member("b", cpu="2"), status={"admission": assigned})) == expected


def test_a_contradiction_stops_the_whole_gang_and_later_only_the_newcomer() -> None:
    """A node selector that goes with no flavor: nobody starts; beside pods that run, only that one waits."""
    odd = member("b", nodeSelector={"pool": "mine"})
    assert isinstance(started(member("a"), odd), Refused)
    assert who(started(running("a"), odd)) == []


def test_no_role_gets_more_pods_than_quota_pays_for() -> None:
    """A Workload admitted with fewer; pods that have succeeded have given theirs back."""
    kept = (running("a", total=3), member("b", total=3), member("c", total=3))
    found = state.starts(Match(kept=kept), group_workload({"r": 3}), [info(count=2)])
    assert who(found) == ["b"]
    after = (done("a", total=3), member("b", total=3), member("c", total=3))
    assert who(state.starts(Match(kept=after), group_workload({"r": 3}), [info(count=2)])) == ["b", "c"]


def test_a_prebuilt_workload_starts_its_pods_as_they_come() -> None:
    """Its maker knows how many there are to be."""
    found = Match(kept=(member("a"),), absent=0)
    assert who(state.starts(found, TWO, [info()], prebuilt=True)) == ["a"]


@pytest.mark.parametrize(
    ("why", "expected"), [("WorkloadEvicted", ["b"]), ("WorkloadDeleted", ["a", "b", "c"])], ids=["evicted", "deleted"]
)
@pytest.mark.proves("Pod group", "stop and restore")
def test_whom_a_stop_deletes(why: str, expected: list[str]) -> None:
    """7.5 Stop: as for single pods."""
    pods = [member("a"), running("b"), done("c"), running("d", deleted=0)]
    assert [pod.name for pod in state.to_stop(pods, why)] == expected


def test_who_runs_without_leave() -> None:
    """Ungated, neither ended nor on its way."""
    pods = [member("a"), member("b", gated=False), running("c"), done("d"), running("e", deleted=0)]
    assert [pod.name for pod in state.at_large(pods)] == ["b", "c"]


@st.composite
def gangs(draw: Any) -> list[ManagedPod]:
    made = []
    for number in range(draw(st.integers(1, 6))):
        make = draw(st.sampled_from([member, member, member, running, done, failed]))
        made.append(
            make(
                f"p{number}",
                role=draw(st.sampled_from(["r", "r", "s"])),
                deleted=draw(st.sampled_from([None, None, None, 0])),
                cpu=draw(st.sampled_from(["1", "1", "1", "2"])),
            )
        )
    return list(in_order(made))


@settings(max_examples=400)
@given(gangs(), st.integers(1, 4), st.integers(0, 3))
def test_a_group_is_never_released_partly(pods: list[ManagedPod], r: int, s: int) -> None:
    """Where nobody runs yet, either all pods of the Workload are started together or nobody is; and never do more run
    than its quota pays for, or one that asks for more.
    """
    counts = {"r": r, "s": s}
    workload = group_workload(counts)
    found = match(pods, workload, NOW)
    if found is None:
        return
    answer = state.starts(found, workload, [info("r", r), info("s", s)])
    patches = [] if isinstance(answer, Refused) else [pod for pod, _ in answer.patches]
    begun = any(not pod.gated and (not pod.terminated or pod.succeeded) for pod in found.kept)
    if not begun:
        assert len(patches) in (0, r + s)
    assert all(pod.spec["containers"][0]["resources"]["requests"]["cpu"] == "1" for pod in patches)
    for role, count in counts.items():
        running_now = [p for p in found.kept if p.role == role and not p.gated and p.runnable and not p.succeeded]
        assert len(running_now) + sum(p.role == role for p in patches) <= max(count, len(running_now))
