"""The life of a Workload's status: what each transition writes, and when it writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import Domain, TopologyAssignment
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.state import host_status, status

JSON = dict[str, Any]

THEN = "2026-01-01T00:00:00Z"
NOW = "2026-01-01T01:00:00Z"
STAMP = status.Stamp(datetime(2026, 1, 1, 1, tzinfo=UTC))
ADMISSION = Admission(
    queue="team",
    pod_sets=(
        PodSetAssignment(
            name="main",
            flavors={"cpu": "spot", "memory": "spot"},
            usage={"cpu": 1500, "memory": 3 << 30},
            count=3,
            topology=TopologyAssignment(("block", "rack"), (Domain(("b1", "r1"), 1), Domain(("b1", "r2"), 2))),
        ),
    ),
)


def make_condition(kind: str, *, true: bool = True, reason: str = "Because", message: str = "it is so") -> JSON:
    """A condition that has stood there since `THEN`."""
    value = "True" if true else "False"
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": THEN}


def make_workload(*conditions: JSON, active: bool = True, metadata: JSON | None = None, **fields: Any) -> wire.Workload:
    """A Workload of generation 7 with these conditions; `fields` of its status by their JSON names."""
    obj = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "generation": 7, **(metadata or {})},
        "spec": {"queueName": "main", "active": active, "podSets": [{"name": "main", "count": 3, "template": {}}]},
        "status": {"conditions": list(conditions), **fields},
    }
    return msgspec.convert(obj, wire.Workload)


def make_admitted(*conditions: JSON, **fields: Any) -> wire.Workload:
    """A Workload that was admitted at `THEN`."""
    admitted = (make_condition("QuotaReserved"), make_condition("Admitted"))
    return make_workload(*admitted, *conditions, admission={"clusterQueue": "team"}, **fields)


def make_check(name: str, state: str, **fields: Any) -> JSON:
    """One admission check's answer, given at `THEN`."""
    return {"name": name, "state": state, "lastTransitionTime": THEN, "message": "", **fields}


def after(workload: wire.Workload, patch: status.Patch | None) -> wire.Workload:
    """The Workload as it stands once the merge patch is written."""
    assert patch is not None
    return msgspec.convert(_merged(msgspec.to_builtins(workload), patch), wire.Workload)


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merged(out.get(key), value)
    return out


def shown(workload: wire.Workload) -> dict[str, tuple[str, str]]:
    """(status, reason) by condition type."""
    return {c.type: (c.status, c.reason) for c in workload.status.conditions}


def condition(workload: wire.Workload, kind: str) -> JSON:
    """One condition as JSON."""
    found = model.condition(workload.status.conditions, kind)
    assert found is not None
    return dict(msgspec.to_builtins(found))


# --- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(datetime(2026, 1, 1, 1, tzinfo=UTC), NOW, id="as-it-is"),
        pytest.param(datetime(2026, 1, 1, 1, 0, 0, 999_999, tzinfo=UTC), NOW, id="fractions-are-cut"),
        pytest.param(datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=2))), NOW, id="another-zone-becomes-utc"),
    ],
)
def test_times_are_whole_seconds_in_utc(now: datetime, want: str) -> None:
    """What is written is what the API server would keep."""
    assert status.Stamp(now).text == want


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param("0123456789", "0123456789", id="one-that-just-fits-stays"),
        pytest.param("0123456789a", "012345 ...", id="a-longer-one-ends-in-a-space-and-three-dots"),
        pytest.param("01234äöüß", "01234 ...", id="no-character-is-cut-in-two"),
    ],
)
def test_a_message_is_cut_to_its_bytes(message: str, want: str) -> None:
    """The limit counts bytes, the dots included."""
    assert status.cut(message, 10) == want


@given(st.text(max_size=40), st.integers(4, 40))
def test_a_cut_message_is_never_too_long(message: str, limit: int) -> None:
    """Whatever the characters, the bytes stay within the limit, and only what is too long changes."""
    cut = status.cut(message, limit)

    assert len(cut.encode()) <= limit
    assert (cut == message) == (len(message.encode()) <= limit)


def test_a_condition_is_never_longer_than_the_api_allows() -> None:
    """32768 bytes is what the API server takes."""
    workload = make_workload()
    evicted = status.evict(workload, reason="R", message="ä" * 20_000, stamp=STAMP)

    message = condition(after(workload, evicted), "Evicted")["message"]
    assert len(message.encode()) <= 32_768
    assert message.endswith("ä ...")


@pytest.mark.parametrize(
    ("old", "want"),
    [
        pytest.param(None, NOW, id="new"),
        pytest.param(make_condition("X", true=False), NOW, id="status-flips"),
        pytest.param(make_condition("X", reason="Other"), THEN, id="only-the-reason-changes"),
        pytest.param(make_condition("X", message="other"), THEN, id="only-the-message-changes"),
        pytest.param({"type": "X", "status": "True"}, NOW, id="it-had-no-time"),
    ],
)
def test_the_transition_time_moves_only_with_the_status(old: JSON | None, want: str) -> None:
    """A new reason or message keeps the old time; the generation that was looked at is always noted."""
    workload = make_workload(*([old] if old is not None else []))
    conditions = status.Conditions(workload.status.conditions, generation=7, stamp=STAMP)
    conditions.set("X", status=True, reason="Because", message="it is so")

    assert conditions.changed
    assert conditions.list() == [make_condition("X") | {"lastTransitionTime": want, "observedGeneration": 7}]


@pytest.mark.parametrize("message", ["it is so", ""], ids=["with-words", "without-words"])
def test_saying_the_same_again_changes_nothing(message: str) -> None:
    """So a reconcile that finds everything in order writes nothing."""
    workload = make_workload(make_condition("X", message=message))
    conditions = status.Conditions(workload.status.conditions, generation=8, stamp=STAMP)
    conditions.set("X", status=True, reason="Because", message=message)

    assert not conditions.changed
    assert (conditions.status("X"), conditions.reason("X")) == ("True", "Because")
    assert (conditions.status("Y"), conditions.reason("Y")) == ("", "")


def test_a_condition_can_be_taken_away() -> None:
    """Only if it was there is that a change."""
    conditions = status.Conditions(make_workload(make_condition("X")).status.conditions, generation=7, stamp=STAMP)
    conditions.remove("Y")
    before = conditions.changed
    conditions.remove("X")

    assert (before, conditions.changed, conditions.list()) == (False, True, [])


# --- reservation -----------------------------------------------------------------------------------------------------


def test_a_reservation_without_checks_admits_at_once() -> None:
    """One patch holds quota, admission and Admitted; what others wrote into the conditions stays."""
    workload = make_workload(make_condition("PodsReady", true=False), resourceRequests=[{"name": "main"}])
    written = after(workload, status.reserve(workload, ADMISSION, wanted=(), stamp=STAMP))

    assert shown(written) == {
        "PodsReady": ("False", "Because"),
        "QuotaReserved": ("True", "QuotaReserved"),
        "Admitted": ("True", "Admitted"),
    }
    assert "team" in condition(written, "QuotaReserved")["message"]
    assert "team" in condition(written, "Admitted")["message"]
    assert condition(written, "QuotaReserved")["lastTransitionTime"] == NOW
    assert written.status.resource_requests == ()


def test_a_reservation_with_checks_waits_for_them() -> None:
    """Quota is held; the checks that are new stand there, and Admitted says which are waited for."""
    ready = {"name": "licence", "state": "Ready", "message": "ok", "lastTransitionTime": THEN}
    workload = make_workload(admissionChecks=[ready, {**ready, "name": "old", "state": "Pending"}])
    written = after(workload, status.reserve(workload, ADMISSION, wanted=("licence", "budget"), stamp=STAMP))

    assert shown(written) == {
        "QuotaReserved": ("True", "QuotaReserved"),
        "Admitted": ("False", "UnsatisfiedAdmissionChecks"),
    }
    assert [(c.name, c.state, c.message) for c in written.status.admission_checks] == [
        ("budget", "Pending", ""),
        ("licence", "Ready", "ok"),
    ]


def test_a_reservation_whose_checks_are_ready_admits_at_once() -> None:
    """Checks may have answered before there was quota: one patch does it all."""
    ready = {"name": "budget", "state": "Ready", "message": "", "lastTransitionTime": THEN}
    workload = make_workload(admissionChecks=[ready])
    written = after(workload, status.reserve(workload, ADMISSION, wanted=("budget",), stamp=STAMP))

    assert shown(written)["Admitted"] == ("True", "Admitted")


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(None, id="it never ran"),
        pytest.param(make_condition("PodsReady", true=False, reason="WaitForStart"), id="it ran before"),
        pytest.param(make_condition("PodsReady", true=False, reason="WaitForRecovery"), id="a pod of an earlier run failed"),
        pytest.param(make_condition("PodsReady", reason="Started"), id="written by hand"),
    ],
)  # fmt: skip
def test_a_reservation_says_that_its_pods_are_not_ready_where_that_is_waited_for(before: JSON | None) -> None:
    """In the same patch; the transition time moves only with the status."""
    workload = make_workload(*([before] if before is not None else []))
    patch = status.reserve(workload, ADMISSION, wanted=(), stamp=STAMP, waits_for_ready=True)
    ready = condition(after(workload, patch), "PodsReady")

    was_false = before is not None and before["status"] == "False"
    assert (ready["status"], ready["reason"]) == ("False", "WaitForStart")
    assert ready["lastTransitionTime"] == (THEN if was_false else NOW)


def test_where_nobody_waits_for_pods_a_reservation_says_nothing_of_them() -> None:
    """The condition appears when the pods are ready."""
    workload = make_workload()

    written = after(workload, status.reserve(workload, ADMISSION, wanted=(), stamp=STAMP))

    assert "PodsReady" not in shown(written)


def test_a_reservation_ends_an_earlier_eviction_and_keeps_its_words() -> None:
    """Evicted, Preempted and BlockedOnPreemptionGates turn False; only those that were True."""
    workload = make_workload(
        make_condition("Evicted", message="the queue was stopped"),
        make_condition("BlockedOnPreemptionGates", message="the gate is closed"),
        make_condition("Preempted", true=False, message="long ago"),
    )
    written = after(workload, status.reserve(workload, ADMISSION, wanted=(), stamp=STAMP))

    assert shown(written)["Evicted"] == ("False", "QuotaReserved")
    assert shown(written)["BlockedOnPreemptionGates"] == ("False", "QuotaReserved")
    assert "the queue was stopped" in condition(written, "Evicted")["message"]
    assert condition(written, "Preempted") == make_condition("Preempted", true=False, message="long ago")


def test_a_written_admission_is_read_back_as_it_was() -> None:
    """Flavors, usage, counts and domains survive the way through the status."""
    workload = make_workload()
    written = after(workload, status.reserve(workload, ADMISSION, wanted=(), stamp=STAMP))

    assert model.admission(written) == ADMISSION


def test_an_admission_is_written_in_the_words_of_the_api() -> None:
    """Canonical quantities, and no topology assignment where no domain was chosen."""
    plain = PodSetAssignment(name="main", flavors={"cpu": "spot"}, usage={"cpu": 1500}, count=3)

    assert status.admission_json(Admission(queue="team", pod_sets=(plain,))) == {
        "clusterQueue": "team",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1500m"}, "count": 3}
        ],
    }


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_workload(make_condition("Finished")), id="finished"),
        pytest.param(make_workload(active=False), id="switched-off"),
        pytest.param(make_workload(metadata={"deletionTimestamp": THEN}), id="deleted"),
        pytest.param(make_admitted(), id="reserved-meanwhile"),
        pytest.param(
            make_workload(metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": "someone"}}), id="gated"
        ),
    ],
)
def test_nothing_is_reserved_for_one_that_left_the_queue_meanwhile(workload: wire.Workload) -> None:
    """The decision was made on an older object; the newest one has the last word."""
    assert status.reserve(workload, ADMISSION, wanted=(), stamp=STAMP) is None


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_one_that_waits_says_why_and_what_it_asks_for() -> None:
    """The first word on a pending Workload also says that it is not admitted."""
    workload = make_workload()
    requests = status.requested({"main": {"cpu": 1500, "nvidia.com/gpu": 8}})
    patch = status.wait(workload, reason="WaitingForQuota", message="3 more", stamp=STAMP, requests=requests)
    written = after(workload, patch)

    assert shown(written) == {
        "QuotaReserved": ("False", "WaitingForQuota"),
        "Admitted": ("False", "NoReservation"),
    }
    said = condition(written, "QuotaReserved")["message"]
    assert said == "3 more (2026-01-01 01:00Z); see kqueue explain w -n ns"
    assert written.status.resource_requests == (
        wire.PodSetRequest(name="main", resources={"cpu": "1500m", "nvidia.com/gpu": "8"}),
    )


def test_the_same_reason_to_wait_is_written_once() -> None:
    """A second look that finds nothing new makes no write."""
    workload = make_workload()
    once = after(workload, status.wait(workload, reason="R", message="m", stamp=STAMP))

    assert (
        status.wait(once, reason="R", message="m", stamp=STAMP, requests=status.requested({"main": {"cpu": 1}})) is None
    )
    assert status.wait(once, reason="R", message="another", stamp=STAMP) is not None


def test_figures_alone_are_not_written() -> None:
    """Another cause is, with the same reason."""
    workload = make_workload()
    cause = "8 cpu of flavor f asked, ClusterQueue q has 3 free"
    once = after(workload, status.wait(workload, reason="WaitingForQuota", message=cause, stamp=STAMP))
    other = cause.replace("cpu", "memory")

    assert status.wait(once, reason="WaitingForQuota", message=cause.replace("3", "5"), stamp=STAMP) is None
    assert status.wait(once, reason="WaitingForQuota", message=other, stamp=STAMP) is not None


def test_one_that_may_not_preempt_says_so_in_the_same_patch() -> None:
    """It is told apart from one that a user holds back."""
    workload = make_workload()
    gated = after(
        workload, status.wait(workload, reason="AdmissionGated", message="g is closed", stamp=STAMP, gated=True)
    )

    assert shown(gated) == {
        "QuotaReserved": ("False", "AdmissionGated"),
        "Admitted": ("False", "NoReservation"),
        "BlockedOnPreemptionGates": ("True", "PreemptionGated"),
    }
    assert condition(gated, "BlockedOnPreemptionGates")["message"] == "g is closed; see kqueue explain w -n ns"
    assert status.wait(gated, reason="AdmissionGated", message="g is closed", stamp=STAMP, gated=True) is None


@pytest.mark.parametrize(
    ("named", "known", "wanted"),
    [
        pytest.param([], {}, None, id="none are named"),
        pytest.param(["g"], {}, [("g", "Closed", STAMP.text)], id="a new one is closed"),
        pytest.param(["g"], {"g": "Open"}, None, id="who opened one is not gone over"),
        pytest.param(
            ["g", "h"],
            {"g": "Open"},
            [("g", "Open", THEN), ("h", "Closed", STAMP.text)],
            id="a new one beside one that is open",
        ),
        pytest.param(["g"], {"h": "Open", "g": "Closed"}, [("g", "Closed", THEN)], id="one is not named any more"),
        pytest.param([], {"g": "Open"}, [], id="the last one is not named any more"),
    ],
)
def test_each_gate_that_is_named_has_a_state(
    named: list[str], known: dict[str, str], wanted: list[tuple[str, str, str]] | None
) -> None:
    """And no other has one."""
    states = [{"name": name, "position": position, "lastTransitionTime": THEN} for name, position in known.items()]
    workload = make_workload(preemptionGates=states)
    gates = tuple(wire.PreemptionGate(name=name) for name in named)
    workload = msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, preemption_gates=gates))
    patch = status.match_gates(workload, stamp=STAMP)

    assert (patch is None) is (wanted is None)
    if patch is not None:
        now = [
            (g.name, g.position, status.Stamp(g.last_transition_time).text)
            for g in after(workload, patch).status.preemption_gates
        ]
        assert now == wanted


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_admitted(), id="holds-quota"),
        pytest.param(make_workload(make_condition("Finished")), id="finished"),
    ],
)
def test_one_that_does_not_wait_is_not_given_a_reason(workload: wire.Workload) -> None:
    """It was admitted or ended while the sentence was made."""
    assert status.wait(workload, reason="R", message="m", stamp=STAMP) is None


# --- eviction --------------------------------------------------------------------------------------------------------


def test_an_evicted_workload_keeps_its_admission() -> None:
    """Quota stays held until the pods are gone, so nothing of it is in the patch."""
    workload = make_admitted()
    written = after(workload, status.evict(workload, reason="Preempted", message="for another", stamp=STAMP))

    assert shown(written)["Evicted"] == ("True", "Preempted")
    assert shown(written)["QuotaReserved"][0] == shown(written)["Admitted"][0] == "True"
    assert written.status.admission is not None


def test_evictions_are_counted_by_reason() -> None:
    """The count of this reason grows, the others stay."""
    stats = {
        "evictions": [
            {"reason": "Preempted", "underlyingCause": "", "count": 2},
            {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1},
        ]
    }
    workload = make_admitted(schedulingStats=stats)
    again = after(workload, status.evict(workload, reason="Preempted", message="m", stamp=STAMP))
    other = after(workload, status.evict(workload, reason="Deactivated", message="m", stamp=STAMP))

    def counts(w: wire.Workload) -> dict[tuple[str, str], int]:
        assert w.status.scheduling_stats is not None
        return {(e.reason, e.underlying_cause): e.count for e in w.status.scheduling_stats.evictions}

    assert counts(again) == {("Preempted", ""): 3, ("Deactivated", "AdmissionCheck"): 1}
    assert counts(other) == {("Preempted", ""): 2, ("Deactivated", "AdmissionCheck"): 1, ("Deactivated", ""): 1}


def test_an_eviction_starts_all_checks_anew() -> None:
    """Each becomes Pending and says what it was; retries are counted, what checks added to pods is dropped."""
    workload = make_admitted(
        admissionChecks=[
            make_check("idle", "Pending", retryCount=1),
            make_check("done", "Ready", retryCount=1, podSetUpdates=[{"name": "main"}]),
            make_check("later", "Retry", retryCount=1, requeueAfterSeconds=60),
            make_check("first", "Retry"),
        ]
    )
    written = after(workload, status.evict(workload, reason="AdmissionCheck", message="m", stamp=STAMP))
    idle, done, later, first = (msgspec.to_builtins(check) for check in written.status.admission_checks)

    assert idle == make_check("idle", "Pending", retryCount=1)
    assert done == make_check("done", "Pending") | {"lastTransitionTime": NOW, "message": done["message"]}
    assert "Ready" in done["message"]
    assert (later["state"], later["retryCount"], later["requeueAfterSeconds"]) == ("Pending", 2, 60)
    assert (first["retryCount"], "requeueAfterSeconds" in first) == (1, False)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param({"unhealthyNodes": [{"name": "h1"}]}, id="failed-nodes"),
        pytest.param({"clusterName": "east"}, id="the-cluster-it-ran-on"),
        pytest.param({"nominatedClusterNames": ["east", "west"]}, id="clusters-it-was-offered-to"),
    ],
)
def test_an_eviction_forgets_where_the_workload_was(place: JSON) -> None:
    """What concerns the admission that ends goes with it."""
    workload = make_admitted(**place)
    written = after(workload, status.evict(workload, reason="NodeFailures", message="h1 failed", stamp=STAMP))

    assert msgspec.to_builtins(workload.status).keys() >= place.keys()
    assert not msgspec.to_builtins(written.status).keys() & place.keys()


def test_an_eviction_closes_the_gates() -> None:
    """A Workload that waited for its gates no longer does, and all gates have to be opened anew."""
    gate = {"name": "g", "position": "Open", "lastTransitionTime": THEN}
    workload = make_admitted(
        make_condition("BlockedOnPreemptionGates"), preemptionGates=[gate, gate | {"name": "h", "position": "Closed"}]
    )
    written = after(workload, status.evict(workload, reason="Preempted", message="for another", stamp=STAMP))

    assert [(g.name, g.position) for g in written.status.preemption_gates] == [("g", "Closed"), ("h", "Closed")]
    assert {g.last_transition_time for g in written.status.preemption_gates} == {STAMP.now}
    assert shown(written)["BlockedOnPreemptionGates"] == ("False", "Preempted")
    assert condition(written, "BlockedOnPreemptionGates")["message"] == "for another"


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_admitted(make_condition("Evicted", reason="Preempted")), id="evicted-already"),
        pytest.param(make_admitted(make_condition("Finished")), id="finished"),
    ],
)
def test_what_has_left_is_not_evicted_again(workload: wire.Workload) -> None:
    """The first reason stands, and it is counted once."""
    assert status.evict(workload, reason="Deactivated", message="m", stamp=STAMP) is None


@pytest.mark.parametrize("requeued", [True, False], ids=["goes-back-to-the-queue", "is-kept-out"])
def test_a_reservation_that_is_taken_back_frees_the_quota(requeued: bool) -> None:
    """Admission gone, both conditions False in one write; Requeued carries the eviction's reason and words."""
    workload = make_admitted(make_condition("Evicted", reason="Preempted", message="for another"))
    patch = status.unreserve(workload, reason="PendingEvaluation", message="m", stamp=STAMP, requeued=requeued)
    written = after(workload, patch)

    assert written.status.admission is None
    assert shown(written) == {
        "QuotaReserved": ("False", "PendingEvaluation"),
        "Admitted": ("False", "NoReservation"),
        "Evicted": ("True", "Preempted"),
        "Requeued": (str(requeued), "Preempted"),
    }
    assert condition(written, "Requeued")["message"] == "for another"


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(make_admitted(), 3600, id="first-run"),
        pytest.param(make_admitted(accumulatedPastExecutionTimeSeconds=40), 3640, id="added-to-earlier-runs"),
        pytest.param(make_workload(make_condition("QuotaReserved")), None, id="reserved-only-never-ran"),
        pytest.param(
            make_workload(
                make_condition("QuotaReserved"),
                make_condition("Admitted") | {"lastTransitionTime": "2026-01-01T02:00:00Z"},
            ),
            0,
            id="a-clock-that-went-back-counts-nothing",
        ),
    ],
)
def test_the_time_that_it_ran_is_added_up(workload: wire.Workload, want: int | None) -> None:
    """Whole seconds since Admitted turned True, kept over evictions; waiting does not count."""
    written = after(workload, status.unreserve(workload, reason="R", message="m", stamp=STAMP, requeued=None))

    assert written.status.accumulated_past_execution_time_seconds == want
    assert "Requeued" not in shown(written)


def test_a_reservation_is_taken_back_once() -> None:
    """Nothing is written about a Workload that holds nothing."""
    workload = make_workload(make_condition("Evicted"), make_condition("QuotaReserved", true=False))

    assert status.unreserve(workload, reason="R", message="m", stamp=STAMP, requeued=True) is None


def test_one_may_be_queued_again_when_the_cause_is_gone() -> None:
    """Requeued turns True with the new reason, once."""
    workload = make_workload(make_condition("Requeued", true=False, reason="LocalQueueStopped"))
    written = after(workload, status.requeue(workload, reason="LocalQueueRestarted", message="m", stamp=STAMP))

    assert shown(written) == {"Requeued": ("True", "LocalQueueRestarted")}
    assert condition(written, "Requeued")["lastTransitionTime"] == NOW
    assert status.requeue(written, reason="LocalQueueRestarted", message="m", stamp=STAMP) is None


# --- checks, pods, end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reserved", "states", "want", "fact"),
    [
        pytest.param(False, ["Ready"], ("False", "NoReservation"), "no quota", id="without-quota-never"),
        pytest.param(True, [], ("True", "Admitted"), "team", id="no-checks-count-as-ready"),
        pytest.param(True, ["Ready", "Ready"], ("True", "Admitted"), "team", id="all-checks-ready"),
        pytest.param(
            True, ["Retry", "Ready", "Pending"], ("False", "UnsatisfiedAdmissionChecks"), "c0, c2", id="some-are-not"
        ),
    ],
)
def test_admitted_follows_quota_and_checks(reserved: bool, states: list[str], want: tuple[str, str], fact: str) -> None:
    """True exactly when quota is held and every check is ready; else it says what is missing."""
    checks = [make_check(f"c{i}", state) for i, state in reversed(list(enumerate(states)))]
    workload = make_workload(
        make_condition("QuotaReserved", true=reserved), admission={"clusterQueue": "team"}, admissionChecks=checks
    )
    written = after(workload, status.sync_admitted(workload, stamp=STAMP))

    assert shown(written)["Admitted"] == want
    assert fact in condition(written, "Admitted")["message"]
    assert status.sync_admitted(written, stamp=STAMP) is None


WAIT_FOR_START = make_condition("PodsReady", true=False, reason="WaitForStart")
STARTED = make_condition("PodsReady", reason="Started")
WAIT_FOR_RECOVERY = make_condition("PodsReady", true=False, reason="WaitForRecovery")
RECOVERED = make_condition("PodsReady", reason="Recovered")


@pytest.mark.parametrize(
    ("make", "old", "ready", "want"),
    [
        pytest.param(make_workload, None, True, ("False", "WaitForStart"), id="not-admitted"),
        pytest.param(make_workload, STARTED, True, ("False", "WaitForStart"), id="no-longer-admitted"),
        pytest.param(make_admitted, None, False, ("False", "WaitForStart"), id="not-ready-yet"),
        pytest.param(make_admitted, WAIT_FOR_START, True, ("True", "Started"), id="ready-for-the-first-time"),
        pytest.param(make_admitted, STARTED, False, ("False", "WaitForRecovery"), id="a-pod-failed"),
        pytest.param(make_admitted, RECOVERED, False, ("False", "WaitForRecovery"), id="a-pod-failed-again"),
        pytest.param(make_admitted, WAIT_FOR_RECOVERY, True, ("True", "Recovered"), id="ready-again"),
        pytest.param(make_admitted, WAIT_FOR_START, False, None, id="still-not-ready"),
        pytest.param(make_admitted, STARTED, True, None, id="still-ready"),
        pytest.param(make_admitted, WAIT_FOR_RECOVERY, False, None, id="still-recovering"),
        pytest.param(make_admitted, RECOVERED, True, None, id="still-recovered"),
        pytest.param(make_workload, WAIT_FOR_START, False, None, id="still-not-admitted"),
    ],
)
def test_pods_ready_tells_a_start_from_a_recovery(
    make: Callable[..., wire.Workload], old: JSON | None, ready: bool, want: tuple[str, str] | None
) -> None:
    """Written only when status or reason change (None: nothing is)."""
    workload = make(*([old] if old is not None else []))
    patch = status.pods_ready(workload, ready=ready, stamp=STAMP)

    assert (shown(after(workload, patch))["PodsReady"] if patch is not None else None) == want


def test_an_end_is_final() -> None:
    """Finished carries how it ended; what it held stands there for the record, and a second end is not written."""
    workload = make_admitted()
    written = after(workload, status.finish(workload, reason="Failed", message="exit code 1", stamp=STAMP))

    assert shown(written)["Finished"] == ("True", "Failed")
    assert condition(written, "Finished")["message"] == "exit code 1"
    assert written.status.admission is not None
    assert status.finish(written, reason="Succeeded", message="", stamp=STAMP) is None


# --- failed hosts ----------------------------------------------------------------------------------------------------


def unhealthy(workload: wire.Workload) -> list[str]:
    """The list of failed hosts."""
    return [node.name for node in workload.status.unhealthy_nodes]


def test_failed_hosts_are_listed_in_the_order_of_their_failures() -> None:
    """A host is listed once, and recovered ones leave the others."""
    one = make_admitted(unhealthyNodes=[{"name": "h1"}])
    assert host_status.mark_unhealthy(one, "h1", stamp=STAMP) is None

    two = after(one, host_status.mark_unhealthy(one, "h0", stamp=STAMP))
    assert unhealthy(two) == ["h1", "h0"]

    assert host_status.unmark_unhealthy(two, {"h9"}) is None
    assert unhealthy(after(two, host_status.unmark_unhealthy(two, {"h1", "h9"}))) == ["h0"]
    assert unhealthy(after(two, host_status.unmark_unhealthy(two, {"h0", "h1"}))) == []


def remembered(workload: wire.Workload) -> dict[str, tuple[int, datetime]]:
    """Failures and the time of the last one, by host."""
    return {entry.name: (entry.count, entry.last_failure_time) for entry in workload.status.node_failures}


def test_a_failed_host_is_remembered_after_it_has_come_back_or_was_replaced() -> None:
    """The patch that lists it says so; neither recovery nor mending nor an eviction takes it away."""
    workload = make_admitted(nodeFailures=[{"name": "h1", "count": 1, "lastFailureTime": THEN}])

    marked = after(workload, host_status.mark_unhealthy(workload, "h1", stamp=STAMP))
    back = after(marked, host_status.unmark_unhealthy(marked, {"h1"}))
    out = after(marked, status.evict(marked, reason="NodeFailures", message="h1 failed", stamp=STAMP))

    assert [remembered(each) for each in (marked, back, out)] == [{"h1": (2, STAMP.now)}] * 3


def test_a_pod_that_failed_is_held_against_its_host_once() -> None:
    """Whoever asks again about the same pod writes nothing."""
    workload = make_admitted()
    created = STAMP.now - timedelta(minutes=5)

    blamed = after(workload, host_status.blame(workload, "h1", created, stamp=STAMP))

    assert remembered(blamed) == {"h1": (1, STAMP.now)}
    assert host_status.blame(blamed, "h1", created, stamp=STAMP) is None


def test_more_failed_hosts_than_can_be_listed_end_in_an_eviction() -> None:
    """The ninth: the message names all of them, the list is cleared, and the ninth is remembered, too."""
    full = make_admitted(unhealthyNodes=[{"name": f"h{i}"} for i in range(8)])

    written = after(full, host_status.mark_unhealthy(full, "h8", stamp=STAMP))

    assert shown(written)["Evicted"] == ("True", "NodeFailures")
    assert "h0, h1, h2, h3, h4, h5, h6, h7, h8" in condition(written, "Evicted")["message"]
    assert unhealthy(written) == []
    assert remembered(written) == {"h8": (1, STAMP.now)}


def test_mending_changes_domains_and_nothing_else() -> None:
    """Flavors, usage and counts stay as they stand there, and so do pod sets without a failed host."""
    entry = {"flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "3"}, "count": 3, "delayedTopologyRequest": "Ready"}
    domains = {"levels": ["rack"], "slices": [_one_domain("r1", 3)]}
    entries = [{"name": name, "topologyAssignment": domains, **entry} for name in ("main", "other")]
    admission = {"clusterQueue": "team", "podSetAssignments": entries}
    workload = make_workload(make_condition("QuotaReserved"), admission=admission, unhealthyNodes=[{"name": "h1"}])

    patch = host_status.replace_hosts(workload, {"main": TopologyAssignment(("rack",), (Domain(("r2",), 3),))})

    entries[0] = entries[0] | {"topologyAssignment": {"levels": ["rack"], "slices": [_one_domain("r2", 3)]}}
    wanted = {"admission": {"podSetAssignments": entries}, "unhealthyNodes": None}
    assert json.loads(json.dumps(patch)) == {"status": wanted}


def _one_domain(rack: str, count: int) -> JSON:
    return {"domainCount": 1, "valuesPerLevel": [{"universal": rack}], "podCounts": {"universal": count}}


GIVEN_BACK = [
    {"name": name, "topologyAssignment": {"levels": ["rack"], "slices": [_one_domain("r1", 1)]}}
    for name in ("main", "other")
]


def test_what_was_given_back_is_of_one_admission() -> None:
    """It ends with the reservation, and a new one begins without it; an eviction alone does not end it."""
    evicted = make_admitted(make_condition("Evicted", reason="Preempted"), finishedPods=GIVEN_BACK)
    freed = after(evicted, status.unreserve(evicted, reason="R", message="m", stamp=STAMP, requeued=True))
    stale = make_workload(finishedPods=GIVEN_BACK)
    admitted = make_admitted(finishedPods=GIVEN_BACK)
    leaves = after(admitted, status.evict(admitted, reason="Preempted", message="m", stamp=STAMP))

    assert freed.status.finished_pods == ()
    assert after(stale, status.reserve(stale, ADMISSION, wanted=(), stamp=STAMP)).status.finished_pods == ()
    assert len(leaves.status.finished_pods) == 2


def test_mending_is_of_what_was_not_given_back() -> None:
    """The new domains of a pod set are all its own; what another one has given back stays given back."""
    entries = [{"name": name, "topologyAssignment": GIVEN_BACK[0]["topologyAssignment"]} for name in ("main", "other")]
    admission = {"clusterQueue": "team", "podSetAssignments": entries}
    workload = make_workload(admission=admission, finishedPods=GIVEN_BACK)

    written = after(workload, host_status.replace_hosts(workload, {"main": WHERE}))

    assert [entry.name for entry in written.status.finished_pods] == ["other"]
    assert written.status.finished_pods == host_status.with_hosts(workload, {"main": WHERE}).status.finished_pods


WHERE = TopologyAssignment(("rack",), (Domain(("r2",), 3),))


def test_a_status_that_is_put_back_leaves_given_back_places_free() -> None:
    """Other workloads may have them by now, also where the job has told of more ended pods since its status was wiped."""
    lost = make_admitted(reclaimablePods=[{"name": "main", "count": 1}], finishedPods=GIVEN_BACK)
    wiped = make_workload(reclaimablePods=[{"name": "main", "count": 2}])

    again = after(wiped, status.put_back(wiped, lost.status, stamp=STAMP))

    assert again.status.finished_pods == lost.status.finished_pods
    assert [given.count for given in again.status.reclaimable_pods] == [2]


def test_places_are_given_back_by_pod_set() -> None:
    """In one list; a pod set that gives back nothing is not in it, and no list is left when that is true for all."""
    nothing = TopologyAssignment(("rack",), ())

    assert status.finished_pods({"other": WHERE, "main": WHERE, "none": nothing}) == {
        "finishedPods": [
            {"name": name, "topologyAssignment": {"levels": ["rack"], "slices": [_one_domain("r2", 3)]}}
            for name in ("main", "other")
        ]
    }
    assert status.finished_pods({"main": nothing}) == {"finishedPods": None}


# --- switched off, and given back ------------------------------------------------------------------------------------


def test_a_deactivation_of_ours_ends_all_that_it_was_to_wait_for() -> None:
    """One patch: why, the wish gone, and no back-off any more."""
    wish = make_condition("DeactivationTarget", message="it was late too often")
    workload = make_admitted(wish, requeueState={"count": 3, "requeueAt": THEN})
    written = after(
        workload,
        status.evict(workload, reason="Deactivated", message="over", stamp=STAMP, cause="RequeuingLimitExceeded"),
    )

    assert shown(written)["Evicted"] == ("True", "DeactivatedDueToRequeuingLimitExceeded")
    assert "DeactivationTarget" not in shown(written)
    assert written.status.requeue_state is None
    assert written.status.scheduling_stats is not None
    [counted] = written.status.scheduling_stats.evictions
    assert (counted.reason, counted.underlying_cause, counted.count) == ("Deactivated", "RequeuingLimitExceeded", 1)


def test_pods_are_not_ready_any_more_when_the_reservation_is_given_back() -> None:
    """Whoever is admitted next waits for its own pods, from the first moment on."""
    workload = make_admitted(make_condition("Evicted"), make_condition("PodsReady"))
    given = status.unreserve(workload, reason="PendingEvaluation", message="evicted", stamp=STAMP, requeued=True)

    assert shown(after(workload, given))["PodsReady"] == ("False", "WaitForStart")


def test_a_condition_that_somebody_left_without_words_is_written_with_empty_ones() -> None:
    """The schema wants both: leaving them out would have every later change refused."""
    workload = make_admitted({"type": "Theirs", "status": "True", "lastTransitionTime": THEN})
    patch = status.evict(workload, reason="Preempted", message="makes room", stamp=STAMP)
    assert patch is not None
    [theirs] = [c for c in patch["status"]["conditions"] if c["type"] == "Theirs"]

    assert (theirs["reason"], theirs["message"]) == ("", "")
