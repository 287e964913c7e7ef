"""From Workloads to what the queues, the planner and the ledger see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import Algorithm, SliceLayer, TopologyRequest
from kqueue.model import QueueOrder
from tests.unit.state.wire_objects import (
    CREATED,
    JSON,
    MOVED,
    PREFIX,
    asking,
    head_of,
    labelled,
    make_workload,
    replacing,
    reserved,
    wants,
)


@pytest.mark.parametrize(
    ("workload", "may"),
    [
        pytest.param(make_workload(), True, id="new"),
        pytest.param(make_workload(conditions={"QuotaReserved": ("False", "WaitingForQuota")}), True, id="waits"),
        pytest.param(make_workload(conditions={"Evicted": ("True", "Preempted")}), True, id="evicted"),
        pytest.param(
            make_workload(metadata={"annotations": {PREFIX + "admission-gated-by": ""}}), True, id="an-empty-gate"
        ),
        pytest.param(make_workload(metadata={"annotations": {PREFIX + "admission-gated-by": "x"}}), False, id="gated"),
        pytest.param(make_workload(conditions={"QuotaReserved": ("True", "QuotaReserved")}), False, id="reserved"),
        pytest.param(make_workload(conditions={"QuotaReserved": ("False", "OnHold")}), False, id="on-hold"),
        pytest.param(
            make_workload(conditions={"WaitingForReplacementPods": ("True", "")}), False, id="waits-for-its-pods"
        ),
        pytest.param(
            make_workload(conditions={"WaitingForReplacementPods": ("False", "")}), True, id="has-all-its-pods"
        ),
        pytest.param(make_workload(conditions={"Finished": ("True", "Failed")}), False, id="finished"),
        pytest.param(make_workload(active=False), False, id="switched-off"),
        pytest.param(make_workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False, id="deleted"),
    ],
)
def test_who_may_wait_in_a_queue(workload: wire.Workload, may: bool) -> None:
    """Only who could be admitted: not gated, not over, no reservation, not on hold."""
    assert model.is_queueable(workload) is may


OWNED = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]}
HOLDS = {"admission": {"clusterQueue": "q", "podSetAssignments": []}}


@pytest.mark.parametrize(
    ("workload", "over"),
    [
        pytest.param(make_workload(metadata=OWNED, status=HOLDS), False, id="it runs"),
        pytest.param(make_workload(metadata=OWNED, status=HOLDS, active=False), False, id="switched-off-with-a-job-that-ends"),
        pytest.param(make_workload(metadata=OWNED, active=False), True, id="switched-off-and-given-back"),
        pytest.param(make_workload(status=HOLDS, active=False), False, id="switched-off-and-not-given-back"),
        pytest.param(make_workload(metadata=OWNED, conditions={"Finished": ("True", "Failed")}), True, id="finished"),
    ],
)  # fmt: skip
def test_what_is_over_holds_nothing(workload: wire.Workload, over: bool) -> None:
    """Quota goes with the last pod, also of what its user has switched off."""
    assert model.is_over(workload) is over


@pytest.mark.parametrize(
    ("evicted", "want"),
    [
        pytest.param(None, CREATED, id="never-evicted"),
        pytest.param(("True", "PodsReadyTimeout"), MOVED, id="its-pods-were-never-ready"),
        pytest.param(("True", "AdmissionCheck"), MOVED, id="a-check-said-later"),
        pytest.param(("True", "GangScheduleTimeout"), MOVED, id="its-quorum-was-late"),
        pytest.param(("True", "GangRejected"), MOVED, id="too-few-of-its-pods-found-nodes"),
        pytest.param(("True", "Preempted"), CREATED, id="preempted-keeps-its-place"),
        pytest.param(("False", "PodsReadyTimeout"), CREATED, id="that-eviction-is-over"),
    ],
)
def test_the_place_in_the_queue_is_by_creation_but_for_some_evictions(
    evicted: tuple[str, str] | None, want: datetime
) -> None:
    """Who could not use its quota goes to the back; who lost it to others does not."""
    workload = make_workload(conditions={} if evicted is None else {"Evicted": evicted})

    assert model.queue_time(workload) == want
    assert model.pending(workload).timestamp == want
    assert head_of(workload).timestamp == want


@pytest.mark.parametrize(
    ("order", "conditions", "want"),
    [
        pytest.param(
            QueueOrder(by_timeout=False), {"Evicted": ("True", "PodsReadyTimeout")}, CREATED, id="timeouts-do-not-count"
        ),
        pytest.param(
            QueueOrder(by_timeout=False), {"Evicted": ("True", "AdmissionCheck")}, MOVED, id="checks-count-always"
        ),
        pytest.param(
            QueueOrder(by_reclaim=True),
            {"Preempted": ("True", "InCohortReclaimWhileBorrowing")},
            MOVED + timedelta(milliseconds=1),
            id="behind-the-one-that-borrows-now",
        ),
        pytest.param(
            QueueOrder(by_reclaim=True), {"Preempted": ("True", "InClusterQueue")}, CREATED, id="other-preemptions"
        ),
        pytest.param(
            QueueOrder(by_reclaim=True),
            {"Preempted": ("False", "InCohortReclaimWhileBorrowing")},
            CREATED,
            id="that-preemption-is-over",
        ),
    ],
)
def test_the_configuration_says_which_evictions_move_a_workload_back(
    order: QueueOrder, conditions: dict[str, tuple[str, str]], want: datetime
) -> None:
    """While it waits and, for whoever may preempt it, while it runs."""
    workload = make_workload(conditions=conditions)

    assert model.pending(workload, order).timestamp == want
    assert model.head(workload, queue="q", topology_only=False, last_tried={}, order=order).timestamp == want


BOOSTED = "kueue.x-k8s.io/priority-boost"


@pytest.mark.parametrize(
    ("boost", "counts", "want"),
    [
        pytest.param("5", True, 12, id="more"),
        pytest.param("+5", True, 12, id="more with a sign"),
        pytest.param("-9", True, -2, id="less"),
        pytest.param("5", False, 7, id="where nobody asks about it"),
        pytest.param("a lot", True, 7, id="no number"),
        pytest.param("", True, 7, id="nothing"),
        pytest.param("1.5", True, 7, id="a fraction"),
        pytest.param("2147483647", True, 2147483654, id="as much as there is"),
        pytest.param("2147483648", True, 7, id="more than 32 bits"),
        pytest.param("9" * 5000, True, 7, id="very much more"),
        pytest.param("\u0665", True, 7, id="digits of another script"),
    ],
)
def test_a_boost_is_a_part_of_the_priority(boost: str, counts: bool, want: int) -> None:
    """For whoever waits and whoever runs; a change of it alone is news, and another shape."""
    order, metadata = QueueOrder(boosts=counts), {"annotations": {BOOSTED: boost}}
    workload, plain = make_workload(priority=7, metadata=metadata), make_workload(priority=7)
    item = model.pending(workload, order)

    assert item.priority == want
    assert model.head(workload, queue="q", topology_only=False, last_tried={}, order=order).priority == want
    same = model.pending(plain, order)
    assert (item.shape == same.shape, item.version == same.version) == (want == 7, want == 7)


def test_a_pending_workload_knows_its_place() -> None:
    """Key, queue, priority and until when it is to wait."""
    state = {"requeueState": {"count": 1, "requeueAt": "2026-01-01T02:00:00Z"}}
    item = model.pending(
        make_workload(priority=7, status=state, conditions={"Requeued": ("False", "PodsReadyTimeout")})
    )

    assert (item.key, item.uid, item.local_queue, item.priority) == ("ns/w", "u", "ns/main", 7)
    assert (item.not_before, item.on_hold) == (MOVED, True)
    assert model.pending(make_workload(queueName=None)).local_queue == "ns/"
    assert not model.pending(make_workload(conditions={"Requeued": ("True", "BackoffFinished")})).on_hold


@pytest.mark.parametrize(
    ("other", "same_shape", "same_version"),
    [
        pytest.param(make_workload(metadata={"name": "x", "uid": "v"}), True, True, id="a-twin"),
        pytest.param(make_workload(priority=1), False, True, id="another-priority"),
        pytest.param(make_workload(pod_sets=[]), False, True, id="other-pods"),
        pytest.param(make_workload(pod_sets=[labelled("job-name")]), True, True, id="pods-with-the-name-of-their-job"),
        pytest.param(make_workload(metadata={"generation": 2}), True, False, id="edited-by-its-user"),
        pytest.param(make_workload(metadata=wants("optimal")), False, False, id="wants-another-profile"),
        pytest.param(make_workload(metadata=replacing("ns/older")), False, True, id="takes-over-from-another-one"),
        pytest.param(make_workload(conditions={"Evicted": ("True", "Preempted")}), True, False, id="evicted"),
        pytest.param(
            make_workload(status={"reclaimablePods": [{"name": "main", "count": 1}]}), False, False, id="needs-less"
        ),
        pytest.param(
            make_workload(conditions={"QuotaReserved": ("False", "WaitingForQuota")}),
            True,
            True,
            id="told-why-it-waits",
        ),
    ],
)
def test_equal_requests_have_equal_shapes_and_changes_that_matter_change_the_version(
    other: wire.Workload, same_shape: bool, same_version: bool
) -> None:
    """Equals are parked together; a parked one is tried again when what decides about it has changed."""
    one, two = model.pending(make_workload()), model.pending(other)

    assert (one.shape == two.shape) is same_shape
    assert (one.version == two.version) is same_version


TOPOLOGIES = [
    pytest.param(None, TopologyRequest(implied=True), False, id="no-request"),
    pytest.param({"podIndexLabel": "i"}, TopologyRequest(implied=True), False, id="only-how-pods-are-numbered"),
    pytest.param({"required": "rack"}, TopologyRequest(required="rack"), True, id="required"),
    pytest.param({"preferred": "rack"}, TopologyRequest(preferred="rack"), True, id="preferred"),
    pytest.param({"unconstrained": True}, TopologyRequest(unconstrained=True), True, id="unconstrained"),
    pytest.param({"unconstrained": False}, TopologyRequest(unconstrained=False), True, id="false-is-a-word-too"),
    pytest.param(
        {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
        TopologyRequest(slices=(SliceLayer("rack", 4),)),
        True,
        id="slices",
    ),
    pytest.param(
        {"podSetSliceRequiredTopology": "rack"},
        TopologyRequest(slices=(SliceLayer("rack", 0),)),
        True,
        id="a-slice-without-size-is-left-to-be-refused",
    ),
    pytest.param({"podSetSliceSize": 4}, TopologyRequest(), True, id="a-size-without-level-is-left-to-be-refused"),
    pytest.param(
        {
            "podSetSliceRequiredTopology": "x",
            "podSetSliceSize": 9,
            "podsetSliceRequiredTopologyConstraints": [
                {"topology": "block", "size": 8},
                {"topology": "rack", "size": 4},
            ],
        },
        TopologyRequest(slices=(SliceLayer("block", 8), SliceLayer("rack", 4))),
        True,
        id="layers-win-over-a-single-slice",
    ),
]


@pytest.mark.parametrize(("request_", "want", "asks"), TOPOLOGIES)
def test_a_topology_request_is_read(request_: JSON | None, want: TopologyRequest, asks: bool) -> None:
    """Who asks for a place is told apart from who gets one because its queue has no other nodes."""
    pod_set = {"name": "main", "template": {}} | ({} if request_ is None else {"topologyRequest": request_})
    (made,) = head_of(make_workload(pod_sets=[pod_set]), topology_only=True).pod_sets

    assert made.asks_topology is asks
    assert made.request.topology == want


def test_a_place_is_implied_only_where_all_flavors_have_a_topology() -> None:
    """In a queue with other flavors a pod set without a request gets none."""
    (made,) = head_of(make_workload()).pod_sets

    assert not made.request.topology.implied


def test_a_head_has_what_its_pods_ask_for() -> None:
    """Per pod, cpu in milli; the pods that have ended are not asked for again."""
    grouped = {"name": "b", "count": 2, "template": {}, "topologyRequest": {"required": "rack", "podSetGroupName": "g"}}
    template = {"spec": asking(cpu="1500m") | {"nodeSelector": {"pool": "a"}}}
    workload = make_workload(
        pod_sets=[{"name": "a", "count": 4, "template": template}, grouped],
        status={"reclaimablePods": [{"name": "a", "count": 1}, {"name": "b", "count": 3}]},
        priority=3,
    )
    head = model.head(workload, queue="team", topology_only=False, last_tried={("a", "cpu"): 1})
    a, b = head.pod_sets

    assert (head.key, head.uid, head.queue, head.priority) == ("ns/w", "u", "team", 3)
    assert head.last_tried == {("a", "cpu"): 1}
    assert (a.request.count, a.request.requests, a.quota_requests) == (3, {"cpu": 1500}, {"cpu": 1500})
    assert (a.request.ended, b.request.ended) == (1, 2)
    assert (a.request.group, a.request.rules.selector) == (None, (("pool", "a"),))
    assert (b.request.count, b.request.group) == (0, "g")


@pytest.mark.parametrize(
    ("admitted", "reclaimable", "want"),
    [
        pytest.param(None, 0, 10_000, id="all-pods-run"),
        pytest.param(None, 4, 6_000, id="some-have-ended"),
        pytest.param(None, 10, 0, id="all-have-ended"),
        pytest.param(None, 12, 0, id="more-than-there-are"),
        pytest.param(6, 3, 6_000, id="admitted-with-fewer-and-still-needs-them"),
        pytest.param(6, 5, 5_000, id="admitted-with-fewer-and-needs-less"),
        pytest.param(20, 15, 5_000, id="counted-before-an-elastic-job-was-scaled-down"),
        pytest.param(30, 15, 10_000, id="counted-before-the-scaling-and-no-more-than-are-wanted"),
        pytest.param(20, 20, 0, id="all-had-ended-before-the-scaling"),
    ],
)
def test_pods_that_have_ended_give_their_quota_back(admitted: int | None, reclaimable: int, want: int) -> None:
    """Ten pods of one core, perhaps fewer admitted: usage follows what is still needed."""
    entry = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": str(admitted or 10)}}
    workload = reserved(
        [entry | ({} if admitted is None else {"count": admitted})],
        pod_sets=[{"name": "main", "count": 10, "template": {}}],
        status={"reclaimablePods": [{"name": "main", "count": reclaimable}]},
    )
    admission = model.admission(workload)

    assert admission is not None
    assert admission.usage() == {FlavorResource("spot", "cpu"): want}
    assert admission.pod_sets[0].count == (admitted or 10)


def test_places_that_were_given_back_are_not_held() -> None:
    """Of its own pod set only; an entry of a pod set that it does not have does no harm."""

    def on_racks(**pods: int) -> JSON:
        slices = [
            {"domainCount": 1, "valuesPerLevel": [{"universal": rack}], "podCounts": {"universal": count}}
            for rack, count in pods.items()
        ]
        return {"levels": ["rack"], "slices": slices}

    workload = reserved(
        [{"name": name, "count": 3, "topologyAssignment": on_racks(r1=2, r2=1)} for name in ("main", "other")],
        pod_sets=[{"name": name, "count": 3, "template": {}} for name in ("main", "other")],
        status={"finishedPods": [{"name": name, "topologyAssignment": on_racks(r1=1)} for name in ("main", "gone")]},
    )
    admission = model.admission(workload)

    assert admission is not None
    held = [p.topology and {d.values[0]: d.count for d in p.topology.domains} for p in admission.pod_sets]
    assert held == [{"r1": 1, "r2": 1}, {"r1": 2, "r2": 1}]


def test_usage_without_a_flavor_is_not_charged() -> None:
    """There is no column that it could be charged to."""
    admission = model.admission(
        reserved([{"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1", "memory": "1Gi"}}])
    )

    assert admission is not None
    assert admission.usage() == {FlavorResource("spot", "cpu"): 1000}


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_workload(), id="never-admitted"),
        pytest.param(make_workload(status={"admission": {"clusterQueue": "team"}}), id="admission-without-reservation"),
        pytest.param(
            make_workload(conditions={"QuotaReserved": ("True", "QuotaReserved")}), id="reservation-without-admission"
        ),
    ],
)
def test_without_a_reservation_nothing_is_held(workload: wire.Workload) -> None:
    """Both the condition and the admission must be there."""
    assert model.admission(workload) is None


@pytest.mark.parametrize(
    ("metadata", "algorithm", "problem"),
    [
        pytest.param({}, None, "", id="leaves-it-to-its-queue"),
        pytest.param(wants("balanced"), Algorithm.BALANCED, "", id="chooses-for-itself"),
        pytest.param(
            wants("tight"),
            None,
            "metadata.annotations[kqueue.dev/placement-profile]: 'tight' is no profile; "
            "use one of BestFit, LeastFreeCapacity, optimal, balanced, joint",
            id="names-none-that-exists",
        ),
    ],
)
def test_a_workload_may_choose_how_its_pods_are_placed(
    metadata: JSON, algorithm: Algorithm | None, problem: str
) -> None:
    """What cannot be read is told, and does not look like no choice."""
    head = head_of(make_workload(metadata=metadata))

    assert (head.algorithm, head.problem) == (algorithm, problem)


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        pytest.param({}, None, id="none"),
        pytest.param(replacing("ns/older"), "ns/older", id="the-older-one"),
        pytest.param(replacing("other/older"), None, id="not-one-of-another-namespace"),
        pytest.param(replacing("ns/w"), None, id="not-itself"),
        pytest.param(replacing("older"), None, id="not-a-name-alone"),
    ],
)
def test_a_slice_says_which_one_it_replaces(metadata: JSON, key: str | None) -> None:
    """Only within its namespace: what others hold is not its to take."""
    assert model.replaced_key(make_workload(metadata=metadata)) == key


# --- preemption policy ---------------------------------------------------------------------------------------------


def _of_class(*pods: JSON, kind: str = "PriorityClass", name: str = "") -> wire.Workload:
    ref = {"priorityClassRef": {"group": "", "kind": kind, "name": name}} if name else {}
    sets = [{"name": f"p{i}", "count": 1, "template": {"spec": spec}} for i, spec in enumerate(pods)]
    obj = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"queueName": "q", "podSets": sets, **ref}}
    found: wire.Workload = msgspec.convert(obj, wire.Workload)
    return found


@pytest.mark.parametrize(
    ("workload", "never"),
    [
        pytest.param(_of_class({}), False, id="no class"),
        pytest.param(_of_class({}, name="calm"), True, id="its class"),
        pytest.param(_of_class({}, name="eager"), False, id="another class"),
        pytest.param(_of_class({}, name="gone"), False, id="a class that is gone"),
        pytest.param(_of_class({}, kind="WorkloadPriorityClass", name="calm"), False, id="a class of Workloads"),
        pytest.param(_of_class({"preemptionPolicy": "Never"}), True, id="its pods"),
        pytest.param(_of_class({"preemptionPolicy": "Never"}, {}), False, id="some of its pods"),
        pytest.param(_of_class({"priorityClassName": "calm"}), True, id="the class of its pods"),
        pytest.param(
            _of_class({"priorityClassName": "calm", "preemptionPolicy": "PreemptLowerPriority"}),
            False,
            id="its pods say otherwise",
        ),
    ],
)
def test_workloads_that_never_preempt_g5_21(workload: wire.Workload, never: bool) -> None:
    policies = {"calm": "Never", "eager": "PreemptLowerPriority"}
    assert model.never_preempts(workload, policies.get) is never


GANG: JSON = {"kqueue.dev/gang": "f:g", "kueue.x-k8s.io/is-group-workload": "true"}
EARLY = datetime(2025, 12, 1, tzinfo=UTC)


@pytest.mark.mechanism("0.7", "4.21")
@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param(GANG | {"kqueue.dev/gang-since": "2025-12-01T00:00:00Z"}, EARLY, id="creation-of-the-group"),
        pytest.param({"kqueue.dev/extra-of": "g", "kqueue.dev/gang-since": "2025-12-01T00:00:00Z"}, EARLY, id="extra"),
        pytest.param(GANG | {"kqueue.dev/gang-since": "2027-01-01T00:00:00Z"}, CREATED, id="never-later-than-it"),
        pytest.param(GANG | {"kqueue.dev/gang-since": "soon"}, CREATED, id="unreadable"),
        pytest.param(GANG | {"kqueue.dev/gang-since": "2025-12-01T00:00:00"}, CREATED, id="without-a-zone"),
        pytest.param({"kqueue.dev/gang-since": "2025-12-01T00:00:00Z"}, CREATED, id="of-no-gang"),
    ],
)
def test_a_gang_stands_by_the_creation_of_its_group(annotations: JSON, want: datetime) -> None:
    """G3.38, G3.23."""
    workload = make_workload(metadata={"annotations": annotations})
    assert model.queue_time(workload) == want
    assert model.pending(workload).timestamp == want


def test_the_gang_of_a_workload_has_time_and_uid_of_the_group() -> None:
    """An extra is of the gang of its base; a single workload of none."""
    noted = {"kqueue.dev/gang-since": "2025-12-01T00:00:00Z", "kqueue.dev/gang-uid": "first"}
    base = model.pending(make_workload(metadata={"annotations": GANG | noted})).gang
    extra = model.pending(
        make_workload(metadata={"name": "x", "annotations": {"kqueue.dev/extra-of": "w", **noted}})
    ).gang
    assert base is not None
    assert extra is not None
    assert (base.key, base.since, base.uid, base.extra) == ("ns/w", EARLY, "first", False)
    assert (extra.key, extra.since, extra.uid, extra.extra) == ("ns/w", EARLY, "first", True)
    assert model.pending(make_workload()).gang is None
