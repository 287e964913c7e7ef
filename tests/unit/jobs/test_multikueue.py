"""Workloads for worker clusters: where their copies should be, and what the copies mean for the manager.

Ids such as `17.2.4` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.config.dispatchers import DISPATCHER_INCREMENTAL
from kqueue.jobs.check_entry import CheckAnswer
from kqueue.jobs.multikueue.decision import Ending, MultiKueueDecision, RemoteStep, decide
from kqueue.jobs.multikueue.facts import DispatchPolicy, MultiKueueFacts, Remote
from tests.unit.controllers.builders import condition, make_workload, read, reserved

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CREATE, RUN, DELETE = RemoteStep.CREATE, RemoteStep.RUN, RemoteStep.DELETE
DEACTIVATE, CATCH_UP = RemoteStep.DEACTIVATE, RemoteStep.CATCH_UP
JOB: JSON = {"metadata": {"name": "j"}}
QUARTER = timedelta(minutes=15)


def at(minute: int, kind: str, reason: str = "", message: str = "") -> JSON:
    """A condition that has been true since a minute of the day before."""
    return condition(kind, reason=reason, message=message) | {"lastTransitionTime": f"2025-12-31T00:{minute:02}:00Z"}


def workload(*conditions: JSON, metadata: JSON | None = None, **spec: Any) -> wire.Workload:
    """A Workload with these conditions."""
    found: wire.Workload = read(
        wire.Workload, make_workload(metadata=metadata, status={"conditions": list(conditions)}, **spec)
    )
    return found


def remote(cluster: str, *conditions: JSON, job: bool = False, **more: Any) -> Remote:
    """A cluster with a copy that has these conditions."""
    spec = more.pop("spec", {})
    return Remote(cluster=cluster, workload=workload(*conditions, **spec), job=JOB if job else None, **more)


def empty(cluster: str, **more: Any) -> Remote:
    """A cluster without a copy."""
    return Remote(cluster=cluster, **more)


def lost(cluster: str, minutes: int | None) -> Remote:
    """A cluster that has been silent for some minutes; None: nobody has noticed it yet."""
    since = NOW - timedelta(minutes=minutes) if minutes is not None else None
    return Remote(cluster=cluster, is_connected=False, lost_since=since)


def facts(
    *remotes: Remote,
    state: str = "Pending",
    cluster: str = "",
    nominated: str = "",
    evicted: bool = False,
    holds: bool = True,
    finished: str = "",
    others: dict[str, str] | None = None,
    since: str = "2025-12-31T23:59:00Z",
    workload: JSON | None = None,
    **more: Any,
) -> MultiKueueFacts:
    """A workload with quota and the check `multi` in a state; `nominated` are single letters."""
    conditions = [condition("Admitted", "False")]
    conditions += [condition("Evicted")] if evicted else []
    conditions += [condition("Finished", reason=finished)] if finished else []
    status = reserved(*conditions)
    status["conditions"][0] |= {"status": "True" if holds else "False", "lastTransitionTime": since}
    entries = [{"name": n, "state": s, "message": "", "lastTransitionTime": since} for n, s in (others or {}).items()]
    entry = {"name": "multi", "state": state, "message": "", "lastTransitionTime": since}
    status |= {"admissionChecks": [entry, *entries], "nominatedClusterNames": list(nominated)}
    status |= {"clusterName": cluster} if cluster else {}
    made: wire.Workload = read(wire.Workload, make_workload(**{"status": status, **(workload or {})}))
    policy = more.pop("policy", DispatchPolicy())
    return MultiKueueFacts(
        workload=made, entry=made.status.admission_checks[0], remotes=remotes, policy=policy, now=NOW, **more
    )


def steps(decision: MultiKueueDecision) -> dict[str, RemoteStep]:
    return dict(decision.steps)


def state(decision: MultiKueueDecision) -> str:
    return decision.answer.state if decision.answer is not None else ""


# --- copies that go ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "want", "again"),
    [
        pytest.param(
            facts(remote("a"), empty("b"), workload={"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            {"a": DELETE},
            None,
            id="17.2.2 a deleted workload",
        ),
        pytest.param(facts(remote("a"), finished="Succeeded"), {"a": DELETE}, None, id="17.2.3 finished"),
        pytest.param(facts(remote("a"), holds=False), {"a": DELETE}, None, id="17.2.3 no reservation"),
        pytest.param(facts(empty("a", job=JOB), holds=False), {"a": DELETE}, None, id="17.2.3 its job is left"),
        pytest.param(facts(empty("a"), holds=False), {}, None, id="17.2.3 nothing is left"),
        pytest.param(
            facts(remote("a"), lost("b", 1), holds=False), {"a": DELETE}, QUARTER, id="17.2.3 again for a lost cluster"
        ),
        pytest.param(
            facts(remote("a"), finished="WorkloadSliceReplaced", is_elastic=True), {}, None, id="17.2.3 a replaced slice"
        ),
        pytest.param(
            facts(remote("a"), finished="WorkloadSliceReplaced"), {"a": DELETE}, None, id="17.2.3 which is no slice"
        ),
        pytest.param(
            facts(
                remote("a"),
                holds=False,
                is_elastic=True,
                stands_behind=True,
            ),
            {},
            None,
            id="17.2.3 a replacement without quota",
        ),
        pytest.param(
            facts(remote("a"), holds=False, is_elastic=True), {"a": DELETE}, None, id="17.2.3 a slice that lost its quota"
        ),
        pytest.param(
            facts(remote("a"), is_elastic=True, finished="Succeeded"), {"a": DELETE}, None, id="17.2.3 a finished slice"
        ),
    ],
)  # fmt: skip
def test_copies_of_a_workload_that_is_over_are_deleted(
    asked: MultiKueueFacts, want: dict[str, RemoteStep], again: timedelta | None
) -> None:
    """Nothing else happens, whatever the copies are like."""
    assert decide(asked) == MultiKueueDecision(steps=want, again=again)


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(facts(remote("a"), problem="no kind"), "Rejected", id="17.2.1 no cluster can run it"),
        pytest.param(facts(remote("a"), problem="no kind", state="Ready"), "Rejected", id="17.2.1 also while it runs"),
        pytest.param(facts(remote("a"), problem="no kind", state="Rejected"), "", id="17.2 a rejected one is left alone"),
        pytest.param(facts(remote("a"), problem="no kind", evicted=True), "", id="17.2.1 not while it is evicted"),
        pytest.param(facts(remote("a"), problem="no kind", holds=False), "", id="17.2.1 not without quota"),
    ],
)  # fmt: skip
def test_a_workload_that_no_cluster_can_run_is_rejected(asked: MultiKueueFacts, want: str) -> None:
    assert state(decide(asked)) == want


# --- the end ----------------------------------------------------------------------------------------------------------


DONE = at(5, "Finished", "Succeeded", "all pods ended")
JUST = condition("Finished", reason="Succeeded") | {"lastTransitionTime": "2025-12-31T23:59:50Z"}


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(
            facts(remote("a", DONE, job=True), state="Ready", cluster="a"),
            MultiKueueDecision(status_of="a", end=Ending("Succeeded", "all pods ended")),
            id="17.2.4 its end is the workload's",
        ),
        pytest.param(
            facts(remote("a", JUST, job=True, runs=True), state="Ready", cluster="a"),
            MultiKueueDecision(status_of="a", again=timedelta(seconds=20)),
            id="17.2.4 after the end of its job was seen, too",
        ),
        pytest.param(
            facts(remote("a", JUST, job=True), state="Ready", cluster="a"),
            MultiKueueDecision(status_of="a", end=Ending("Succeeded", "")),
            id="17.2.4 as soon as both are seen",
        ),
        pytest.param(
            facts(remote("a", DONE, job=True, runs=True), state="Ready", cluster="a"),
            MultiKueueDecision(status_of="a", end=Ending("Succeeded", "all pods ended")),
            id="17.2.4 of a job that never ends, after half a minute",
        ),
        pytest.param(
            facts(remote("a", DONE), state="Ready", cluster="a"),
            MultiKueueDecision(end=Ending("Succeeded", "all pods ended")),
            id="17.2.4 without a job",
        ),
        pytest.param(
            facts(remote("a", at(7, "Finished", "Failed")), remote("b", DONE, job=True)),
            MultiKueueDecision(status_of="b", end=Ending("Succeeded", "all pods ended")),
            id="17.2.4 the earliest of several",
        ),
        pytest.param(
            facts(remote("a", DONE, job=True, spec={"pods": 3}), state="Ready", cluster="a"),
            MultiKueueDecision(status_of="a", end=Ending("Succeeded", "all pods ended")),
            id="17.2.4 even of another spec",
        ),
        pytest.param(
            facts(remote("a", at(5, "Finished", "OutOfSync"), job=True), state="Ready", cluster="a", is_elastic=True),
            MultiKueueDecision(status_of="a", end=Ending("OutOfSync", "")),
            id="17.2.4 out of sync, elastic",
        ),
        pytest.param(
            facts(remote("a", at(5, "Finished", "OutOfSync"))),
            MultiKueueDecision(steps={"a": DELETE}),
            id="17.2.4 out of sync before the check was ready",
        ),
    ],
)
def test_a_finished_copy_ends_the_workload(asked: MultiKueueFacts, want: MultiKueueDecision) -> None:
    assert decide(asked) == want


@pytest.mark.parametrize(
    ("asked", "said", "is_fault", "status_of"),
    [
        pytest.param(
            facts(remote("a", at(5, "Finished", "OutOfSync")), state="Ready", cluster="a"),
            "a no longer describes its job",
            True,
            "",
            id="17.2.4 out of sync",
        ),
        pytest.param(
            facts(remote("a", at(5, "Finished", "OwnerNotFound")), state="Ready", cluster="a"),
            "a lost its job",
            True,
            "",
            id="its job was deleted by a user of the worker",
        ),
        pytest.param(
            facts(remote("a", at(5, "Evicted"), job=True), state="Ready", cluster="a"),
            "a has evicted",
            False,
            "a",
            id="17.2.5 evicted by the worker",
        ),
        pytest.param(
            facts(empty("a"), remote("b"), state="Ready", cluster="a"), "a does not run", True, "", id="17.2.7 gone"
        ),
        pytest.param(
            facts(remote("a"), state="Ready", cluster="a"), "a does not run", True, "", id="17.2.7 not admitted any more"
        ),
        pytest.param(
            facts(remote("a", at(1, "Admitted"), is_leaving=True), state="Ready", cluster="a"),
            "a does not run",
            True,
            "",
            id="17.2.7 it is being deleted",
        ),
        pytest.param(facts(lost("a", 15), state="Ready", cluster="a"), "900 seconds", True, "", id="17.2.7 lost"),
        pytest.param(facts(state="Ready"), "does not run", True, "", id="17.2.7 no cluster is named"),
    ],
)  # fmt: skip
def test_work_that_a_cluster_lost_is_dispatched_anew(
    asked: MultiKueueFacts, said: str, is_fault: bool, status_of: str
) -> None:
    found = decide(asked)
    assert found.answer is not None
    assert (found.answer.state, found.is_fault, found.status_of) == ("Retry", is_fault, status_of)
    assert said in found.answer.message


@pytest.mark.parametrize(
    ("asked", "again"),
    [
        pytest.param(facts(lost("a", 5), state="Ready", cluster="a"), timedelta(minutes=10), id="17.2.7 for the rest"),
        pytest.param(facts(lost("a", None), state="Ready", cluster="a"), QUARTER, id="17.2.7 not noticed yet"),
        pytest.param(facts(lost("a", -5), state="Ready", cluster="a"), QUARTER, id="17.2.7 a clock that went back"),
    ],
)
def test_a_silent_cluster_is_waited_for(asked: MultiKueueFacts, again: timedelta) -> None:
    assert decide(asked) == MultiKueueDecision(again=again)


def test_an_eviction_elsewhere_does_not_disturb_the_cluster_that_runs_the_job() -> None:
    """17.2.5, 17.2.8: a loser that comes back evicted only goes."""
    found = decide(
        facts(remote("a", at(1, "Evicted")), remote("b", at(2, "Admitted"), job=True), state="Ready", cluster="b")
    )
    assert (state(found), steps(found)) == ("Ready", {"a": DELETE})


@pytest.mark.parametrize("check", ["Retry", "Rejected"])
def test_a_check_that_was_answered_waits_for_the_eviction(check: str) -> None:
    """16.1: the state goes back to Pending at the eviction, and not by this controller."""
    found = decide(facts(remote("a", at(1, "Admitted"), job=True), state=check, cluster="a", nominated="a"))
    assert found == MultiKueueDecision()


@pytest.mark.parametrize(
    ("copy", "want", "status_of"),
    [
        pytest.param(remote("a", at(1, "Admitted"), job=True), {"a": DEACTIVATE}, "a", id="17.2.8 it runs"),
        pytest.param(
            remote("a", at(1, "Admitted"), at(2, "DeactivationTarget"), job=True), {}, "a", id="17.2.8 it was told"
        ),
        pytest.param(remote("a", at(1, "Evicted"), job=True), {}, "a", id="17.2.5 it is evicted, too"),
        pytest.param(remote("a"), {"a": DELETE}, "", id="it waits, and must not start"),
    ],
)  # fmt: skip
def test_an_eviction_by_the_manager_reaches_the_worker(
    copy: Remote, want: dict[str, RemoteStep], status_of: str
) -> None:
    """The status of the job comes back all the time; nothing is nominated although the check is Pending again."""
    found = decide(facts(copy, empty("b"), evicted=True))
    assert (steps(found), found.status_of, found.nominated, state(found)) == (want, status_of, None, "")


# --- copies of another spec -------------------------------------------------------------------------------------------


GATES = [{"name": "team/own"}]


@pytest.mark.parametrize(
    ("theirs", "ours", "is_elastic", "want"),
    [
        pytest.param({"pods": 2}, {"pods": 2}, False, None, id="17.2.6 the same"),
        pytest.param({"cpus": "1"}, {"cpus": "1000m"}, False, None, id="17.2.6 the same amount"),
        pytest.param({"preemptionGates": GATES}, {}, False, None, id="17.2.6 gates are not compared"),
        pytest.param({"active": False}, {}, False, None, id="deactivated by the worker"),
        pytest.param({"priority": 1}, {"priority": 2}, False, CATCH_UP, id="17.2.6 a priority is pushed"),
        pytest.param({"pods": 3}, {"pods": 2}, True, CATCH_UP, id="17.2.6 an elastic job shrinks"),
        pytest.param({"pods": 2}, {"pods": 3}, True, DELETE, id="17.2.6 an elastic job grows by a slice"),
        pytest.param({"pods": 3}, {"pods": 2}, False, DELETE, id="17.2.6 counts"),
        pytest.param({"queue": "x"}, {}, False, DELETE, id="17.2.6 another queue"),
        pytest.param({"cpus": 2}, {}, False, DELETE, id="17.2.6 another request"),
        pytest.param({"priority": 1, "cpus": 2}, {"priority": 2}, False, DELETE, id="17.2.6 more than the priority"),
    ],
)  # fmt: skip
def test_a_copy_of_another_spec(theirs: JSON, ours: JSON, is_elastic: bool, want: RemoteStep | None) -> None:
    found = decide(facts(remote("a", spec=theirs), nominated="a", workload=ours, is_elastic=is_elastic))
    assert found.steps.get("a") is want


def test_a_wrong_copy_on_one_cluster_does_not_hold_up_the_others() -> None:
    """17.2.6: a tenant who edits a copy on one worker only harms that copy."""
    found = decide(
        facts(remote("a", at(1, "Admitted"), spec={"pods": 9}), remote("b", at(2, "Admitted")), nominated="ab")
    )
    assert steps(found) == {"a": DELETE, "b": RUN}


def test_a_cluster_on_which_the_job_cannot_be_created_is_left() -> None:
    """A user of the worker has taken the name of the job: the copy goes, and other clusters are asked."""
    found = decide(facts(remote("a", at(1, "Admitted"), is_taken=True), empty("b"), nominated="ab"))
    assert (steps(found), found.nominated) == ({"a": DELETE, "b": CREATE}, ("b",))


# --- the winner -------------------------------------------------------------------------------------------------------


def test_the_first_cluster_that_admits_runs_the_job() -> None:
    """17.2.8: all other copies go at once; the check is ready when the job is there."""
    asked = (remote("a", at(7, "Admitted")), remote("b", at(5, "Admitted")), remote("c"), empty("d"))
    found = decide(facts(*asked, nominated="abcd"))
    assert steps(found) == {"a": DELETE, "b": RUN, "c": DELETE}
    assert (state(found), found.cluster, found.again) == ("", "", QUARTER)


def test_the_check_is_ready_when_the_job_is_there() -> None:
    """17.2.8: clusterName is set and nominatedClusterNames are cleared."""
    found = decide(facts(remote("a", at(5, "Admitted"), job=True), empty("b"), nominated="ab"))
    assert (state(found), found.cluster, found.nominated, found.status_of) == ("Ready", "a", (), "a")
    assert found.answer is not None
    assert "a has admitted" in found.answer.message


def test_a_cluster_that_was_not_nominated_is_nominated_first() -> None:
    """A cluster that comes back with running work keeps it; the API accepts only a nominated cluster."""
    found = decide(facts(remote("a", at(5, "Admitted"), job=True), empty("b"), nominated="b"))
    assert found == MultiKueueDecision(nominated=("a",), again=QUARTER)


def test_the_named_cluster_stays_the_winner() -> None:
    """17.2.8: a lost cluster that comes back had admitted earlier, and another one runs the job by now."""
    asked = (remote("a", at(1, "Admitted"), job=True), remote("b", at(5, "Admitted"), job=True))
    found = decide(facts(*asked, state="Ready", cluster="b"))
    assert (steps(found), found.status_of, found.cluster) == ({"a": DELETE}, "b", "")


def test_a_job_that_is_gone_is_created_again() -> None:
    found = decide(facts(remote("a", at(5, "Admitted")), state="Ready", cluster="a"))
    assert (steps(found), state(found)) == ({"a": RUN}, "")


def test_a_running_workload_needs_no_write() -> None:
    """17.2.8: the workload is only looked at again."""
    asked = facts(remote("a", at(5, "Admitted"), job=True), empty("b"), state="Ready", cluster="a")
    first = decide(asked)
    assert first.answer is not None
    entry = wire.AdmissionCheckState(
        name="multi", state="Ready", message=first.answer.message, last_transition_time=NOW
    )
    again = decide(
        MultiKueueFacts(workload=asked.workload, entry=entry, remotes=asked.remotes, policy=DispatchPolicy(), now=NOW)
    )
    assert again == MultiKueueDecision(status_of="a", again=QUARTER)


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "want", "nominated"),
    [
        pytest.param(facts(empty("b"), empty("a")), {}, ("a", "b"), id="17.2.9 nominated first, sorted"),
        pytest.param(facts(empty("b"), empty("a"), nominated="ab"), {"a": CREATE, "b": CREATE}, None, id="17.2.9 created"),
        pytest.param(facts(remote("a"), empty("b"), nominated="ab"), {"b": CREATE}, None, id="17.2.9 the rest"),
        pytest.param(facts(remote("a"), remote("b"), nominated="ab"), {}, None, id="17.2.9 all are there"),
        pytest.param(facts(empty("a"), lost("b", 1)), {}, ("a",), id="17.2.9 connected clusters alone"),
        pytest.param(facts(empty("a"), lost("b", 1), nominated="ab"), {"a": CREATE}, None, id="17.2.9 one was lost, and is asked when it is back"),
        pytest.param(
            facts(empty("a"), remote("b", is_offered=False), nominated="ab"),
            {"a": CREATE, "b": DELETE},
            ("a",),
            id="17.2.9 one left the config",
        ),
        pytest.param(facts(empty("a"), empty("b", is_taken=True)), {}, ("a",), id="17.2 a foreign object is not touched"),
        pytest.param(facts(empty("a"), others={"x": "Pending"}), {}, None, id="17.2.9 another check is pending"),
        pytest.param(facts(empty("a"), others={"x": "Ready"}), {}, ("a",), id="17.2.9 all others are ready"),
        pytest.param(facts(empty("a"), cluster="b"), {}, None, id="17.2.9 a cluster is named already"),
        pytest.param(facts(remote("a", is_leaving=True), nominated="a"), {"a": DELETE}, None, id="the old one is leaving"),
    ],
)  # fmt: skip
def test_nominated_clusters_get_copies(
    asked: MultiKueueFacts, want: dict[str, RemoteStep], nominated: tuple[str, ...] | None
) -> None:
    found = decide(asked)
    assert (steps(found), found.nominated) == (want, nominated)


def test_a_workload_without_a_cluster_says_so() -> None:
    found = decide(facts(lost("a", 1)))
    assert found.answer is not None
    assert found.answer.state == "Pending"
    assert "MultiKueueClusters" in found.answer.message


SIX = tuple(empty(name) for name in "fedcba")
BY_STEPS = DispatchPolicy(dispatcher=DISPATCHER_INCREMENTAL, step=2)


@pytest.mark.parametrize(
    ("asked", "want", "again"),
    [
        pytest.param(facts(*SIX, policy=BY_STEPS), "fe", 4, id="17.2 the first of the config"),
        pytest.param(
            facts(*SIX, policy=DispatchPolicy(dispatcher=DISPATCHER_INCREMENTAL, step=2, keeps_order=False)), "ab", 4, id="17.2 the alphabet"
        ),
        pytest.param(facts(*SIX, policy=DispatchPolicy(dispatcher=DISPATCHER_INCREMENTAL)), "fed", 4, id="17.2 three by default"),
        pytest.param(
            facts(*SIX, policy=BY_STEPS, since="2025-12-31T23:54:00Z"), "fedc", 4, id="17.2 more after five minutes"
        ),
        pytest.param(facts(*SIX, policy=BY_STEPS, since="2025-12-31T23:30:00Z"), "fedcba", None, id="17.2 all in the end"),
        pytest.param(
            facts(*SIX, policy=BY_STEPS, since="2025-12-31T23:54:00Z", nominated="ab"), "abfe", 4, id="17.2 nominated ones stay"
        ),
        pytest.param(facts(lost("f", 1), *SIX[1:], policy=BY_STEPS), "ed", 4, id="17.2 without a lost one"),
        pytest.param(facts(*SIX, policy=BY_STEPS, since="2026-01-01T00:09:00Z"), "fe", 5, id="a clock that went back"),
    ],
)  # fmt: skip
def test_the_incremental_dispatcher_adds_clusters_by_rounds(
    asked: MultiKueueFacts, want: str, again: int | None
) -> None:
    """The round follows from times of the workload alone, so a new controller continues in it."""
    found = decide(asked)
    assert "".join(found.nominated or ()) == want
    assert found.again == (timedelta(minutes=again) if again is not None else None)


def test_rounds_begin_when_the_last_other_check_is_ready() -> None:
    """17.2.9: a workload that waited for another check is not sent everywhere at once."""
    asked = facts(*SIX, policy=BY_STEPS, since="2025-12-31T20:00:00Z", others={"x": "Ready"})
    fresh = wire.AdmissionCheckState(name="x", state="Ready", message="", last_transition_time=NOW)
    status = wire.WorkloadStatus(conditions=asked.workload.status.conditions, admission_checks=(asked.entry, fresh))
    late = wire.Workload(metadata=asked.workload.metadata, spec=asked.workload.spec, status=status)
    found = decide(MultiKueueFacts(workload=late, entry=asked.entry, remotes=SIX, policy=BY_STEPS, now=NOW))
    assert found.nominated == ("f", "e")


@pytest.mark.parametrize(
    ("nominated", "want"),
    [
        pytest.param("", {}, id="17.2 nobody has nominated yet"),
        pytest.param("b", {"b": CREATE}, id="17.2 nominated by another controller"),
        pytest.param("bz", {"b": CREATE}, id="17.2 a cluster that the config does not name"),
    ],
)
def test_an_external_dispatcher_nominates(nominated: str, want: dict[str, RemoteStep]) -> None:
    """The names that the dispatcher has written are never overwritten."""
    found = decide(
        facts(empty("a"), empty("b"), nominated=nominated, policy=DispatchPolicy(dispatcher="example.com/best"))
    )
    assert (steps(found), found.nominated) == (want, None)


# --- groups of pods, and status that comes late -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "want", "ready"),
    [
        pytest.param(
            facts(remote("a", at(1, "Admitted"), job=True, is_partial=True), nominated="a"),
            {"a": RUN},
            False,
            id="17.2.8 pods have no copy yet",
        ),
        pytest.param(
            facts(remote("a", at(1, "Admitted"), job=True, is_partial=True), state="Ready", cluster="a"),
            {"a": RUN},
            True,
            id="17.2.8 a pod was replaced",
        ),
        pytest.param(
            facts(remote("a", at(1, "Admitted"), job=True, is_partial=True, is_taken=True), state="Ready", cluster="a"),
            {},
            True,
            id="17.2.8 the name of a new pod is taken",
        ),
        pytest.param(
            facts(remote("a", at(1, "Admitted"), job=True, is_partial=True, is_taken=True), nominated="a"),
            {"a": DELETE},
            False,
            id="17.2.8 a name was taken from the first",
        ),
    ],
)
def test_a_group_whose_copies_are_incomplete(asked: MultiKueueFacts, want: dict[str, RemoteStep], ready: bool) -> None:
    found = decide(asked)
    assert steps(found) == want
    assert (found.status_of == "a") is ready
    assert state(found) in ("", "Ready" if ready else "Pending")


@pytest.mark.parametrize(
    ("seconds", "left"),
    [
        pytest.param(0, 30, id="17.2.4 it has just ended"),
        pytest.param(20, 10, id="17.2.4 for the rest"),
        pytest.param(-20, 10, id="17.2.4 by a clock that is fast"),
        pytest.param(30, None, id="17.2.4 no longer"),
        pytest.param(-3600, None, id="17.2.4 by a clock that is wrong"),
        pytest.param(None, None, id="17.2.4 an end without a time"),
    ],
)
def test_an_end_waits_for_the_last_status(seconds: int | None, left: int | None) -> None:
    """The Workload of a worker and its job are watched apart, and the copies go with the end."""
    end = condition("Finished", reason="Succeeded")
    if seconds is not None:
        end["lastTransitionTime"] = (NOW - timedelta(seconds=seconds)).isoformat()
    found = decide(facts(remote("a", end, job=True, runs=True), state="Ready", cluster="a"))

    assert found.status_of == "a"
    assert (found.end is None) is (left is not None)
    if left is not None:
        assert found == MultiKueueDecision(status_of="a", again=timedelta(seconds=left))


# --- slices of elastic jobs -------------------------------------------------------------------------------------------


def slice_facts(*remotes: Remote, **more: Any) -> MultiKueueFacts:
    """A slice with quota that has replaced another."""
    return facts(*remotes, is_elastic=True, **more)


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(
            slice_facts(empty("a", job=JOB), empty("b"), inherited="a"),
            MultiKueueDecision(cluster="a"),
            id="17.2.9 it inherits clusterName",
        ),
        pytest.param(
            slice_facts(empty("a"), empty("b", job=JOB), nominated="a"),
            MultiKueueDecision(cluster="b", nominated=()),
            id="17.2.9 of the cluster that has the job, whatever was nominated",
        ),
        pytest.param(
            slice_facts(empty("a", job=JOB), inherited="a", others={"x": "Pending"}),
            MultiKueueDecision(),
            id="17.2.9 another check is pending",
        ),
        pytest.param(
            slice_facts(lost("a", 5), empty("b"), inherited="a"),
            MultiKueueDecision(cluster="a"),
            id="17.2.7 of a lost cluster, too, which may run the job",
        ),
        pytest.param(
            slice_facts(lost("a", 15), empty("b"), inherited="a"),
            MultiKueueDecision(
                answer=CheckAnswer(state="Pending", message="Waits until one of these clusters admits the workload: b"),
                nominated=("b",),
            ),
            id="17.2.7 which is given up in time",
        ),
        pytest.param(
            facts(empty("a", job=JOB), is_replaced=True), MultiKueueDecision(), id="it is replaced by another"
        ),
    ],
)
def test_a_slice_goes_to_the_cluster_that_runs_its_job(asked: MultiKueueFacts, want: MultiKueueDecision) -> None:
    assert decide(asked) == want


@pytest.mark.parametrize(
    ("asked", "want", "said"),
    [
        pytest.param(
            slice_facts(empty("a", job=JOB), remote("b"), cluster="a"),
            {"a": CREATE, "b": DELETE},
            "Pending",
            id="17.2.9 its copy is created there alone",
        ),
        pytest.param(
            slice_facts(remote("a", job=True, is_partial=True), cluster="a"), {}, "Pending", id="the job runs on meanwhile"
        ),
        pytest.param(slice_facts(lost("a", 5), empty("b"), cluster="a"), {}, "Pending", id="17.2.7 it is waited for"),
        pytest.param(slice_facts(lost("a", 15), empty("b"), cluster="a"), {}, "Retry", id="17.2.7 and given up in time"),
        pytest.param(slice_facts(empty("a"), empty("b"), cluster="a"), {}, "Retry", id="the job is gone there"),
        pytest.param(slice_facts(empty("b"), cluster="a"), {}, "Retry", id="17.2.9 the cluster was deleted"),
        pytest.param(
            slice_facts(remote("a", at(1, "Admitted"), job=True, is_partial=True), cluster="a"),
            {"a": RUN},
            "",
            id="17.2.8 the job gets its size before the check is ready",
        ),
        pytest.param(
            slice_facts(remote("a", at(1, "Admitted"), job=True), cluster="a"), {}, "Ready", id="17.2.8 it has its size"
        ),
    ],
)  # fmt: skip
def test_a_slice_takes_the_job_over(asked: MultiKueueFacts, want: dict[str, RemoteStep], said: str) -> None:
    """The quota of a slice whose cluster is gone is not kept for ever."""
    found = decide(asked)
    assert (steps(found), state(found)) == (want, said)
    assert (found.status_of == "a") is (asked.remotes[0].job is not None and said != "")
