"""Starting adds what the admission says; stopping gives back exactly what the user wrote."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.jobs.infos import flavors_of, infos_at_start, infos_at_stop
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import Conflict, PodSetInfo, Refused, StopStep
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import merged_infos
from tests.unit.jobs.builders import JSON, make_job, make_template, make_workload, prefixed, pruned

JOB = BatchJob()
ON = JobFeatures()
PLACED = {"topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": []}}
TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
FLAVORS: dict[str, JSON] = {
    "gpu": {"spec": {"nodeLabels": {"pool": "gpu"}, "tolerations": [TOLERATION]}},
    "cpu": {"spec": {"nodeLabels": {"zone": "a"}}},
    "clash": {"spec": {"nodeLabels": {"pool": "other"}}},
}


def started(job: JSON, workload: JSON) -> JSON:
    infos = infos_at_start(workload, FLAVORS, switches=ON)
    assert not isinstance(infos, Refused)
    patch = JOB.start(job, infos)
    assert isinstance(patch, dict)
    return apply_merge_patch(job, patch)


def stopped(job: JSON, workload: JSON) -> JSON:
    """Every step applied as the API server would, each computed from what the one before left."""
    for _ in range(4):
        steps = JOB.stop(job, infos_at_stop(workload))
        if not steps:
            return job
        assert set(steps[0].patch) <= ({"status"} if steps[0].subresource else {"metadata", "spec"})
        job = apply_merge_patch(job, steps[0].patch)
    raise AssertionError("the stop does not end")


def test_a_start_is_one_patch_of_what_changes() -> None:
    """Un-suspended, with gate, selectors, tolerations, labels and annotations of the admission; nothing else."""
    job = make_job(template=make_template(annotations=prefixed(podset_required_topology="rack"), labels={"a": "b"}))
    workload = make_workload(job, assignment={"flavors": {"cpu": "gpu", "memory": "gpu"}, "count": 4, **PLACED})
    infos = infos_at_start(workload, FLAVORS, switches=ON)
    assert not isinstance(infos, Refused)

    assert JOB.start(job, infos) == {
        "spec": {
            "suspend": False,
            "template": {
                "metadata": {
                    "labels": prefixed(podset="main", local_queue_name="main", cluster_queue_name="cluster"),
                    "annotations": prefixed(workload=workload["metadata"]["name"]),
                },
                "spec": {
                    "nodeSelector": {"pool": "gpu"},
                    "tolerations": [TOLERATION],
                    "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
                },
            },
        }
    }


def test_a_second_start_changes_nothing() -> None:
    """A start that was written and not noticed may be repeated."""
    job = make_job()
    workload = make_workload(job, assignment={"flavors": {"cpu": "gpu"}, **PLACED})
    running = started(job, workload)
    infos = infos_at_start(workload, FLAVORS, switches=ON)
    assert not isinstance(infos, Refused)

    assert JOB.start(running, infos) == {}


@pytest.mark.parametrize(
    ("annotations", "job_annotations", "assignment", "marker"),
    [
        pytest.param({}, {}, PLACED, {"podset_unconstrained_topology": "true"}, id="implied-topology"),
        pytest.param({}, {}, {}, {}, id="no-topology-at-all"),
        pytest.param(
            {"podset_preferred_topology": "rack"}, {}, PLACED, {"podset_preferred_topology": "rack"}, id="has-its-own"
        ),
        pytest.param(
            {"require_topology": "rack"}, {}, PLACED, {"podset_required_topology": "rack"}, id="alias-on-the-template"
        ),
        pytest.param(
            {}, {"prefer_topology": "auto"}, PLACED, {"podset_preferred_topology": "auto"}, id="alias-on-the-job"
        ),
        pytest.param(
            {"podset_slice_required_topology": "rack", "podset_slice_size": "2"},
            {},
            PLACED,
            {"podset_unconstrained_topology": "true"},
            id="slices-alone-are-marked-too",
        ),
    ],
)
def test_pods_placed_by_topology_can_be_recognised(
    annotations: dict[str, str], job_annotations: dict[str, str], assignment: JSON, marker: dict[str, str]
) -> None:
    """Every started template carries the modern marker that its request stands for."""
    job = make_job(template=make_template(annotations=prefixed(**annotations)), annotations=prefixed(**job_annotations))
    running = started(job, make_workload(job, assignment={"flavors": {"cpu": "cpu"}, **assignment}))
    found = running["spec"]["template"]["metadata"]["annotations"]
    keys = [prefixed(**{f"podset_{kind}_topology": ""}) for kind in ("required", "preferred", "unconstrained")]

    assert {k: v for k, v in found.items() if any(k in key for key in keys)} == prefixed(**marker)
    assert ("schedulingGates" in running["spec"]["template"]["spec"]) is bool(assignment)


def test_a_workload_made_by_hand_adds_no_marker_that_contradicts_its_template() -> None:
    """Its pod set has no request, its template does: two markers would make the job unreadable."""
    asked = prefixed(podset_required_topology="rack")
    job = make_job(template=make_template(annotations=asked))
    workload = make_workload(job, assignment={"flavors": {"cpu": "cpu"}, **PLACED})
    del workload["spec"]["podSets"][0]["topologyRequest"]

    running = started(job, workload)

    found = running["spec"]["template"]["metadata"]["annotations"]
    assert {key for key in found if key.endswith("-topology")} == set(asked)
    assert JOB.pod_sets(running, ON)


def test_every_distinct_flavor_counts_once() -> None:
    """Two flavors of one pod set are both in the selector; the toleration is not repeated."""
    job = make_job(template=make_template(tolerations=[TOLERATION]))
    workload = make_workload(job, assignment={"flavors": {"cpu": "cpu", "gpu": "gpu", "memory": "cpu"}})
    spec = started(job, workload)["spec"]["template"]["spec"]

    assert spec["nodeSelector"] == {"zone": "a", "pool": "gpu"}
    assert spec["tolerations"] == [TOLERATION]
    assert flavors_of(workload) == {"cpu", "gpu"}


def test_updates_of_admission_checks_are_merged_after_the_flavors() -> None:
    """Only those that name the pod set."""
    job = make_job()
    updates = [
        {"name": "main", "labels": {"l": "1"}, "annotations": {"a": "2"}, "nodeSelector": {"provisioned": "yes"}},
        {"name": "other", "labels": {"not": "ours"}},
    ]
    checks = {"admissionChecks": [{"name": "check", "podSetUpdates": updates}]}
    running = started(job, make_workload(job, assignment={"flavors": {"cpu": "gpu"}}, status=checks))
    template = running["spec"]["template"]

    assert template["spec"]["nodeSelector"] == {"pool": "gpu", "provisioned": "yes"}
    assert template["metadata"]["labels"]["l"] == "1"
    assert template["metadata"]["annotations"]["a"] == "2"
    assert "not" not in template["metadata"]["labels"]


@pytest.mark.parametrize(
    ("template", "flavors", "reason"),
    [
        pytest.param(
            make_template(nodeSelector={"pool": "mine"}),
            {"cpu": "gpu"},
            "spec.template: nodeSelector entry pool is 'mine' and would have to be 'gpu'; remove it there",
            id="template-against-flavor",
        ),
        pytest.param(
            make_template(labels=prefixed(podset="mine")),
            {"cpu": "cpu"},
            "spec.template: label kueue.x-k8s.io/podset is 'mine' and would have to be 'main'; remove it there",
            id="template-against-our-label",
        ),
        pytest.param(
            make_template(),
            {"cpu": "gpu", "memory": "clash"},
            "pod set main: nodeSelector entry pool is 'gpu' and would have to be 'other'",
            id="flavor-against-flavor",
        ),
    ],
)
def test_contradictions_refuse_the_start(template: JSON, flavors: dict[str, str], reason: str) -> None:
    """A value that would have to be two things at once is a reason, not an exception."""
    job = make_job(template=template)
    infos = infos_at_start(make_workload(job, assignment={"flavors": flavors}), FLAVORS, switches=ON)
    refused = infos if isinstance(infos, Refused) else JOB.start(job, infos)

    assert refused == Refused((reason,))


def test_an_admission_of_another_shape_refuses_the_start() -> None:
    """A pod set without assignment, and infos that are too many."""
    job = make_job()
    workload = make_workload(job, assignment={"name": "other"})

    assert infos_at_start(workload, FLAVORS, switches=ON) == Refused(
        ("the admission has no assignment for pod set main",)
    )
    assert JOB.start(job, []) == Refused(("the Job has 1 pod set and the admission has 0",))


@pytest.mark.parametrize(
    ("annotations", "sizes"),
    [
        pytest.param({}, (8, 8), id="not-partial-keeps-the-users-numbers"),
        pytest.param({"job_min_parallelism": "2"}, (6, 8), id="partial-sets-parallelism"),
        pytest.param(
            {"job_min_parallelism": "2", "job_completions_equal_parallelism": "true"}, (6, 6), id="and-completions"
        ),
    ],
)
def test_partial_admission_runs_fewer_and_stops_back_to_all(
    annotations: dict[str, str], sizes: tuple[int, int]
) -> None:
    """The admitted count at start, the full one after the stop."""
    job = make_job(annotations=prefixed(**annotations), parallelism=8, completions=8, completionMode="Indexed")
    workload = make_workload(job, assignment={"flavors": {"cpu": "cpu"}, "count": 6})
    running = started(job, workload)
    restored = stopped(running, workload)

    assert (running["spec"]["parallelism"], running["spec"]["completions"]) == sizes
    assert (restored["spec"]["parallelism"], restored["spec"]["completions"]) == (8, 8)


@pytest.mark.parametrize(
    ("done", "parallelism"),
    [
        pytest.param("", 6, id="none has ended: a part of the job starts"),
        pytest.param("0", 6, id="more are left than were admitted"),
        pytest.param("0-1", 8, id="all that are left were admitted: the job's own numbers hold"),
        pytest.param("0-4", 8, id="fewer are left than were admitted"),
    ],
)
def test_a_job_that_ran_before_starts_in_part_only_when_something_is_left_out(done: str, parallelism: int) -> None:
    """Six of eight pods are admitted, and some had ended when the job was stopped."""
    status = {"completedIndexes": done}
    job = make_job(
        annotations=prefixed(job_min_parallelism="2"),
        status=status,
        parallelism=8,
        completions=8,
        completionMode="Indexed",
    )
    workload = make_workload(job, assignment={"flavors": {"cpu": "cpu"}, "count": 6})

    assert started(job, workload)["spec"]["parallelism"] == parallelism


def test_a_stop_has_three_steps_in_the_order_that_kubernetes_allows() -> None:
    """Suspend and mark; take the start time back; restore and unmark.  The first one is the event."""
    job = make_job(template=make_template(labels={"mine": "1"}))
    workload = make_workload(job, assignment={"flavors": {"cpu": "gpu"}, **PLACED})
    running = {**started(job, workload), "status": {"startTime": "2026-01-01T00:00:00Z", "active": 4}}
    mark = {"metadata": {"annotations": prefixed(stopping="true")}, "spec": {"suspend": True}}
    first, second, third = JOB.stop(running, infos_at_stop(workload))

    assert first == StopStep(patch=mark, suspends=True)
    assert second == StopStep(patch={"status": {"startTime": None}}, subresource="status")
    assert third.patch["metadata"] == {"annotations": {"kueue.x-k8s.io/stopping": None}}
    assert third.patch["spec"]["template"]["spec"] == {
        "nodeSelector": None,
        "tolerations": None,
        "schedulingGates": None,
    }
    assert (third.suspends, third.subresource) == (False, "")


def test_a_stop_clears_what_another_cluster_told() -> None:
    """That cluster may be lost, and templates do not change while pods are active; later counters are news of it."""
    job = make_job(managedBy="kueue.x-k8s.io/multikueue")
    workload = make_workload(job, assignment={"flavors": {"cpu": "gpu"}, **PLACED})
    running = {**started(job, workload), "status": {"active": 4, "failed": 1}}
    end = stopped(running, workload)
    assert end["status"] == {"failed": 1}
    assert JOB.stop({**end, "status": {"active": 2}}, infos_at_stop(workload)) == ()


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_stop_that_was_cut_short_goes_on(done: int) -> None:
    """Killed after any step, the next attempt ends in the same state, and then has nothing to do."""
    job = make_job()
    workload = make_workload(job, assignment={"flavors": {"cpu": "gpu"}, **PLACED})
    running = {**started(job, workload), "status": {"startTime": "2026-01-01T00:00:00Z"}}
    half = running
    for step in JOB.stop(running, infos_at_stop(workload))[:done]:
        half = apply_merge_patch(half, step.patch)
    end = stopped(half, workload)

    assert pruned(end) == pruned(job)
    assert JOB.is_suspended(end)
    assert (len(JOB.stop(half, infos_at_stop(workload))) == 0) is (done == 3)


def test_without_a_workload_the_template_stays() -> None:
    """There is nobody to say what the user wrote."""
    job = make_job(suspend=False, template=make_template(nodeSelector={"a": "b"}))
    steps = JOB.stop(job, ())

    assert [sorted(step.patch) for step in steps] == [["metadata", "spec"], ["metadata"]]


def test_labels_of_the_job_controller_survive_a_restore() -> None:
    """They are written by the API server and may not go away."""
    labels = {"job-name": "sample", "batch.kubernetes.io/controller-uid": "u", "mine": "1"}
    job = make_job(template=make_template(labels=labels))
    workload = make_workload(job, assignment={"flavors": {"cpu": "gpu"}})
    end = stopped(started(job, workload), workload)

    assert end["spec"]["template"]["metadata"]["labels"] == labels


KEYS = st.sampled_from(["a", "b", "example.com/x", "pool", "zone"])
MAPS = st.dictionaries(KEYS, st.sampled_from(["1", "2"]), max_size=3)
TOLERATIONS = st.lists(
    st.sampled_from([TOLERATION, {"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "b"}]), max_size=3
)
GATES = st.lists(st.sampled_from(["example.com/a", "kueue.x-k8s.io/topology"]), unique=True, max_size=2)


@given(
    labels=MAPS,
    annotations=MAPS,
    selector=MAPS,
    tolerations=TOLERATIONS,
    gates=GATES,
    flavors=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["gpu", "cpu"])),
    placed=st.booleans(),
    start_time=st.booleans(),
)
def test_stopping_undoes_starting(
    labels: dict[str, str],
    annotations: dict[str, str],
    selector: dict[str, str],
    tolerations: list[JSON],
    gates: list[str],
    flavors: dict[str, str],
    placed: bool,
    start_time: bool,
) -> None:
    """Whatever the template held, it holds the same after a start and a stop, or the start is refused."""
    template = make_template(
        labels=labels,
        annotations=annotations,
        nodeSelector=selector,
        tolerations=tolerations,
        schedulingGates=[{"name": gate} for gate in gates],
    )
    job = make_job(template=template)
    workload = make_workload(job, assignment={"flavors": flavors, **(PLACED if placed else {})})
    infos = infos_at_start(workload, FLAVORS, switches=ON)
    patch = infos if isinstance(infos, Refused) else JOB.start(job, infos)
    if isinstance(patch, Refused):
        assert "nodeSelector entry" in str(patch)
        return
    running = apply_merge_patch(job, patch)
    if start_time:
        running = {**running, "status": {"startTime": "2026-01-01T00:00:00Z"}}

    assert running["spec"]["suspend"] is False
    assert pruned(stopped(running, workload)) == pruned(job)


INFOS: Any = st.builds(
    PodSetInfo,
    name=st.just("main"),
    labels=MAPS,
    annotations=MAPS,
    node_selector=MAPS,
    scheduling_gates=GATES.map(tuple),
)


@given(INFOS, INFOS)
def test_infos_merge_to_the_same_whoever_comes_first(first: PodSetInfo, second: PodSetInfo) -> None:
    """Maps are united or in conflict, both ways alike; nothing is lost."""
    one, other = merged_infos(first, second), merged_infos(second, first)
    if isinstance(one, tuple) or isinstance(other, tuple):
        assert isinstance(one, tuple)
        assert isinstance(other, tuple)
        assert {(c.where, c.key) for c in one} == {(c.where, c.key) for c in other}
        assert all(isinstance(c, Conflict) and c.has != c.wanted for c in one)
        return

    assert (one.labels, one.annotations, one.node_selector) == (other.labels, other.annotations, other.node_selector)
    assert set(one.scheduling_gates) == set(first.scheduling_gates) | set(second.scheduling_gates)
