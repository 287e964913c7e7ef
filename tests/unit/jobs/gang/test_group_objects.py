"""What the dialects with a group object read from it: quorum, roles, deadlines, resources, topology, mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.pod_group import PodGroup
from kqueue.jobs.gang import podgroup_k8s, podgroup_volcano, podgroup_x_k8s
from kqueue.jobs.gang.compose import hindrance
from kqueue.jobs.gang.dialect import GangRules, GroupProblem, ScheduleTimeouts
from kqueue.jobs.gang.podgroup_k8s import KubernetesPodGroups
from kqueue.jobs.gang.podgroup_volcano import VolcanoPodGroups
from kqueue.jobs.gang.podgroup_x_k8s import CoschedulingPodGroups
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.value import Gang, GangCounts, GangMembership, GangPhase, GangRef, GangSpec, GangState
from kqueue.jobs.kind import JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.pods import NOW, make_pod

JSON = dict[str, Any]
RULES = GangRules(timeouts=ScheduleTimeouts(base=60, per_member=1, maximum=1800))
SWITCHES = JobFeatures()
PG, VOLCANO, K8S = CoschedulingPodGroups(), VolcanoPodGroups(), KubernetesPodGroups()


def members(count: int) -> tuple[ManagedPod, ...]:
    return tuple(managed_pod(make_pod(f"p{i}", born=i), SWITCHES) for i in range(count))


def make(spec: JSON | None = None, **meta: Any) -> JSON:
    return {"metadata": {"name": "g", "namespace": "ns", **meta}, "spec": spec or {}}


def read(dialect: Any, obj: JSON | None, count: int = 5) -> GangSpec | GroupProblem:
    found: GangSpec | GroupProblem = dialect.spec(
        GangRef(framework=dialect.framework, namespace="ns", name="g"), obj, members(count), RULES
    )
    return found


def spec(dialect: Any, obj: JSON, count: int = 5) -> GangSpec:
    found = read(dialect, obj, count)
    assert isinstance(found, GangSpec), found
    return found


def problem(dialect: Any, obj: JSON | None, count: int = 5) -> GroupProblem:
    found = read(dialect, obj, count)
    hindered = hindrance(found, members(count), has_extras=True) if isinstance(found, GangSpec) else found
    assert isinstance(hindered, GroupProblem)
    return hindered


@pytest.mark.mechanism("4.6")
@pytest.mark.parametrize(
    ("dialect", "pod", "found"),
    [
        pytest.param(PG, make_pod(labels={"scheduling.x-k8s.io/pod-group": "g"}), ("g", ""), id="label"),
        pytest.param(PG, make_pod(labels={"scheduling.x-k8s.io/pod-group": ""}), None, id="empty label"),
        pytest.param(
            VOLCANO,
            make_pod(annotations={"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-name": "h"}),
            ("g", ""),
            id="the first annotation counts",
        ),
        pytest.param(
            VOLCANO,
            make_pod(annotations={"scheduling.volcano.sh/group-name": "h", "volcano.sh/task-spec": "worker"}),
            ("h", "worker"),
            id="the task is the role",
        ),
        pytest.param(K8S, make_pod(schedulingGroup={"podGroupName": "g"}), ("g", ""), id="field"),
        pytest.param(K8S, make_pod(), None, id="no field"),
    ],
)
def test_how_a_pod_joins(dialect: Any, pod: JSON, found: tuple[str, str] | None) -> None:
    """G3.P6, G3.V1, G3.V2, 2.1."""
    wanted = GangMembership(framework=dialect.framework, name=found[0], role=found[1]) if found is not None else None

    assert dialect.membership(pod, SWITCHES) == wanted


@pytest.mark.parametrize(
    ("dialect", "given", "quorum"),
    [
        pytest.param(PG, {}, 1, id="PodGroup without minMember"),
        pytest.param(PG, {"minMember": 0}, 1, id="PodGroup with 0"),
        pytest.param(PG, {"minMember": 3}, 3, id="PodGroup"),
        pytest.param(VOLCANO, {"minMember": 3}, 3, id="Volcano"),
        pytest.param(K8S, {"schedulingPolicy": {"gang": {"minCount": 4}}}, 4, id="Kubernetes"),
        pytest.param(K8S, {"schedulingPolicy": {"basic": {}}}, 1, id="Kubernetes without a gang"),
    ],
)
def test_the_quorum(dialect: Any, given: JSON, quorum: int) -> None:
    """G3.P2, G3.V3, G3.K1, G3.K2."""
    assert spec(dialect, make(given)).quorum == quorum


@pytest.mark.mechanism("4.3")
@pytest.mark.parametrize(
    ("given", "annotation", "seconds"),
    [
        pytest.param({"minMember": 2}, None, 62, id="by size"),
        pytest.param({"minMember": 2, "scheduleTimeoutSeconds": 10}, None, 10, id="as written"),
        pytest.param({"minMember": 2, "scheduleTimeoutSeconds": 10}, "7", 7, id="the smaller one"),
        pytest.param({"minMember": 2}, "9", 9, id="the annotation alone"),
        pytest.param({"minMember": 2, "scheduleTimeoutSeconds": 99_999}, None, 1800, id="cut to the maximum"),
    ],
)
def test_the_deadline_of_a_pod_group(given: JSON, annotation: str | None, seconds: float) -> None:
    """G3.41, G3.42, G3.P4, G3.P5: from the admission on, then queued again."""
    key = "kqueue.dev/max-schedule-time-seconds"
    obj = make(given, annotations={} if annotation is None else {key: annotation})
    deadline = spec(PG, obj).deadline

    assert deadline is not None
    assert (deadline.seconds, deadline.since, deadline.then) == (seconds, "admission", "retry")


def test_what_the_metadata_of_a_group_object_says() -> None:
    """G2.4, G3.35, G3.59, G3.60."""
    labels = {
        "kueue.x-k8s.io/queue-name": "main",
        "kueue.x-k8s.io/priority-class": "high",
        "kueue.x-k8s.io/max-exec-time-seconds": "60",
    }
    found = spec(PG, make(labels=labels, annotations={"kueue.x-k8s.io/podset-required-topology": "rack", "other": "x"}))

    assert (found.queue, found.priority_class, found.limit) == ("main", "high", 60)
    assert found.topology == {"kueue.x-k8s.io/podset-required-topology": "rack"}


def test_min_resources_are_texts_by_resource() -> None:
    """G3.P3, G3.V5."""
    wanted = {"cpu": "10", "memory": "1Gi"}

    assert spec(PG, make({"minResources": {"cpu": 10, "memory": "1Gi"}})).least == wanted
    assert spec(VOLCANO, make({"minResources": {"cpu": 10, "memory": "1Gi"}})).least == wanted


def test_minima_of_tasks_are_roles() -> None:
    """G3.V3, G3.V4: they raise the quorum, and a task that no pod names keeps the gang waiting."""
    obj = make({"minMember": 2, "minTaskMember": {"worker": 2, "ps": 1}})
    found = problem(VOLCANO, obj)

    assert podgroup_volcano.quorum_of(obj) == 3
    assert [*podgroup_volcano.object_warnings(obj)] == [
        "spec.minMember is 2 and spec.minTaskMember needs 3 together; 3 counts"
    ]
    assert (found.message, found.incomplete) == (
        "the group has 5 pods, and of role ps 0 of 1; it waits for 1 more",
        True,
    )


@pytest.mark.proves("Volcano PodGroup", "start with topology")
@pytest.mark.parametrize(
    ("wish", "topology"),
    [
        ({"mode": "hard", "highestTierName": "rack"}, {"kueue.x-k8s.io/podset-required-topology": "rack"}),
        ({"mode": "soft", "highestTierName": "rack"}, {"kueue.x-k8s.io/podset-preferred-topology": "rack"}),
        ({"highestTierName": "rack"}, {"kueue.x-k8s.io/podset-required-topology": "rack"}),
        ({"mode": "hard", "highestTierAllowed": 2}, {}),
    ],
)
def test_the_network_topology_of_volcano(wish: JSON, topology: JSON) -> None:
    """G3.V9."""
    assert spec(VOLCANO, make({"networkTopology": wish})).topology == topology


def test_the_queue_of_volcano_is_the_label_or_the_field() -> None:
    """G3.V7."""
    assert spec(VOLCANO, make({"queue": "field"})).queue == "field"
    assert spec(VOLCANO, make({"queue": "field"}, labels={"kueue.x-k8s.io/queue-name": "label"})).queue == "label"


@pytest.mark.proves("Kubernetes PodGroup", "start with topology")
def test_the_constraint_of_kubernetes_is_a_required_level() -> None:
    """G3.K3."""
    found = spec(K8S, make({"schedulingConstraints": {"topology": [{"key": "rack"}]}}))

    assert found.topology == {"kueue.x-k8s.io/podset-required-topology": "rack"}


@pytest.mark.parametrize(
    ("dialect", "given", "sentence"),
    [
        pytest.param(PG, {"minMember": -1}, "spec.minMember: must be 1 or more (found -1)", id="negative"),
        pytest.param(PG, {"minMember": 10_001}, "spec.minMember: must be at most 10000 (found 10001)", id="enormous"),
        pytest.param(VOLCANO, {"minMember": 2**31 - 1}, "spec.minMember: must be at most 10000 (found 2147483647)", id="V"),
        pytest.param(
            K8S, {"schedulingPolicy": {"gang": {"minCount": -3}}},
            "spec.schedulingPolicy.gang.minCount: must be 1 or more (found -3)", id="K",
        ),
        pytest.param(
            PG, {"minResources": {"cpu": "x"}}, "spec.minResources[cpu]: must be a quantity of 0 or more (found 'x')",
            id="no quantity",
        ),
        pytest.param(
            PG, {"minResources": {"cpu": -1}}, "spec.minResources[cpu]: must be a quantity of 0 or more (found -1)",
            id="negative quantity",
        ),
        pytest.param(
            PG, {"scheduleTimeoutSeconds": 0},
            "spec.scheduleTimeoutSeconds: must be 1 or more; leave it out for the default (found 0)", id="timeout",
        ),
    ],
)  # fmt: skip
def test_a_mistake_makes_no_workload(dialect: Any, given: JSON, sentence: str) -> None:
    """The table of bad input; G3.28."""
    assert problem(dialect, make(given)).message == f"PodGroup g: {sentence}"


def test_the_longest_time_must_be_a_number() -> None:
    obj = make({}, annotations={"kqueue.dev/max-schedule-time-seconds": "soon"})

    assert [str(e) for e in podgroup_x_k8s.object_problems(obj)] == [
        "metadata.annotations[kqueue.dev/max-schedule-time-seconds]: must be a whole number of seconds, 1 or more "
        "(found 'soon')"
    ]


def test_an_empty_label_is_refused() -> None:
    pod = make_pod(labels={"scheduling.x-k8s.io/pod-group": ""})

    assert [str(e) for e in PG.pod_problems(pod, None, JobContext())] == [
        "metadata.labels[scheduling.x-k8s.io/pod-group]: must not be empty (found '')"
    ]


@pytest.mark.parametrize("dialect", [PG, VOLCANO, K8S], ids=lambda dialect: dialect.framework)
def test_pods_wait_for_a_group_object_that_is_missing(dialect: Any) -> None:
    """G3.P14."""
    found = problem(dialect, None)

    assert found.message.startswith("PodGroup g does not exist in namespace ns; create it")
    assert found.incomplete


@pytest.mark.parametrize("dialect", [PG, VOLCANO, K8S], ids=lambda dialect: dialect.framework)
def test_an_incomplete_gang_says_how_many_are_missing(dialect: Any) -> None:
    """G3.9."""
    given = {"minMember": 5, "schedulingPolicy": {"gang": {"minCount": 5}}}
    found = problem(dialect, make(given), count=4)

    assert (found.message, found.incomplete) == ("the group has 4 of 5 pods; it waits for 1 more", True)


@pytest.mark.parametrize("broken", [{}, {"spec": None}, {"spec": {"minMember": "x", "minResources": 3}}])
@pytest.mark.parametrize("dialect", [PG, VOLCANO, K8S], ids=lambda dialect: dialect.framework)
def test_objects_of_a_wrong_form_raise_nothing(dialect: Any, broken: JSON) -> None:
    read(dialect, broken)


PHASES = {
    GangPhase.PENDING: "Pending",
    GangPhase.SCHEDULING: "Inqueue",
    GangPhase.RUNNING: "Running",
    GangPhase.UNKNOWN: "Unknown",
    GangPhase.FAILED: "Unknown",
    GangPhase.FINISHED: "Completed",
}


@pytest.mark.parametrize(("phase", "word"), PHASES.items())
def test_the_status_in_the_words_of_each_project(phase: GangPhase, word: str) -> None:
    """G3.P7, G3.P9, G3.P11, G3.V11, G3.K8."""
    pods = members(1)
    ref = GangRef(framework=PG.framework, namespace="ns", name="g")
    gang = Gang(ref=ref, uid="u", since=NOW, wish=GangSpec(quorum=1), quorum=1, members=pods, base=pods)
    counts = GangCounts(phase=phase, running=1, succeeded=2, failed=3, scheduled=4, message="it waits")
    state = GangState(gang=gang, counts=counts, workload=None, status={}, occupant="o", now=NOW)

    wanted = {"running": 1, "succeeded": 2, "failed": 3}
    more = {"phase": phase.value, "scheduled": 4, "message": "it waits", "occupiedBy": "o", "scheduleStartTime": ""}
    assert without_conditions(PG.report(state)) == wanted | more
    assert without_conditions(VOLCANO.report(state)) == wanted | {"phase": word}
    assert K8S.report(state) == {}
    assert PodGroup.read({"status": PG.report(state) | {"scheduleStartTime": None}}).status.phase == phase.value
    assert PG.phase({"status": {"phase": phase.value}}) is phase
    assert VOLCANO.phase({"status": {"phase": word}}) in (phase, GangPhase.UNKNOWN)


def without_conditions(status: JSON) -> JSON:
    return {field: value for field, value in status.items() if field != "conditions"}


@pytest.mark.parametrize("words", ["PreScheduling", "Scheduled", "", None, 3])
def test_the_words_of_other_controllers_are_no_phase(words: object) -> None:
    assert PG.phase({"status": {"phase": words}}) is None
    assert VOLCANO.phase({"status": {"phase": words}}) is None


def test_fields_without_effect_are_warnings() -> None:
    """G3.V8, G3.V10, G3.K5."""
    obj = make({"subGroupPolicy": [{}]}, annotations={"volcano.sh/sla-waiting-time": "1h"})

    assert [*podgroup_volcano.object_warnings(obj)] == [
        "subGroupPolicy has no effect; use one PodGroup per subgroup, or topology annotations",
        "metadata.annotations[volcano.sh/sla-waiting-time] has no effect",
    ]
    assert [*podgroup_k8s.object_warnings(make({"disruptionMode": "Pod"}))]
    assert not [*podgroup_k8s.object_warnings(make({"disruptionMode": "PodGroup"}))]


LEVELS = frozenset({"rack"})


def with_levels(dialect: Any, obj: JSON, levels: frozenset[str] | None, count: int = 5) -> GangSpec | GroupProblem:
    ref, rules = GangRef(framework=dialect.framework, namespace="ns", name="g"), GangRules(levels=levels)
    found: GangSpec | GroupProblem = dialect.spec(ref, obj, members(count), rules)
    return found


@pytest.mark.parametrize("levels", [LEVELS, None], ids=["a level", "levels are not known"])
def test_a_level_that_exists_or_may_exist_counts(levels: frozenset[str] | None) -> None:
    """g3_K3, g3_V9: nothing is judged before the Topologies are known."""
    key = "rack" if levels else "tier"
    wanted = {"kueue.x-k8s.io/podset-required-topology": key}
    of_k8s = make({"schedulingConstraints": {"topology": [{"key": key}]}})
    of_volcano = make({"networkTopology": {"highestTierName": key}})
    for dialect, obj in ((K8S, of_k8s), (VOLCANO, of_volcano)):
        found = with_levels(dialect, obj, levels)
        assert isinstance(found, GangSpec)
        assert (found.topology, found.notices) == (wanted, ())


def test_a_constraint_on_no_level_makes_no_gang() -> None:
    """g3_K3: the constraint is required, so that a start without it would break it."""
    found = with_levels(K8S, make({"schedulingConstraints": {"topology": [{"key": "tier"}]}}), LEVELS)
    assert found == GroupProblem("PodGroup g: spec.schedulingConstraints names tier, which is a level of no Topology")


def test_a_tier_that_is_no_level_has_no_effect_and_is_told() -> None:
    """g3_V9: topology annotations of the object count then."""
    level = {"kueue.x-k8s.io/podset-preferred-topology": "rack"}
    obj = make({"networkTopology": {"mode": "soft", "highestTierName": "tier"}}, annotations=level)
    found = with_levels(VOLCANO, obj, LEVELS)
    assert isinstance(found, GangSpec)
    assert found.topology == level
    [notice] = found.notices
    assert (notice.reason, notice.pod.name, notice.message) == (
        "Misconfigured", "p0", "spec.networkTopology has no effect: tier is no level of a Topology"
    )  # fmt: skip
    empty = with_levels(VOLCANO, obj, LEVELS, count=0)
    assert isinstance(empty, GangSpec)
    assert empty.notices == ()
