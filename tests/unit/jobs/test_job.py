"""batch/v1 Job: what it tells of itself."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.errors import InvalidObjectError
from kqueue.jobs.catalog import BY_FRAMEWORK, BY_GROUP_KIND
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import Finished, JobKind
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.builders import UID, make_job, make_template, prefixed

JOB: JobKind = BatchJob()
ON = JobFeatures()


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        pytest.param({"parallelism": None}, 1, id="parallelism-defaults-to-one"),
        pytest.param({"parallelism": 4}, 4, id="without-completions-parallelism-counts"),
        pytest.param({"parallelism": 4, "completions": 3}, 3, id="fewer-completions-mean-fewer-pods"),
        pytest.param({"parallelism": 4, "completions": 9}, 4, id="more-completions-run-later"),
        pytest.param({"parallelism": 0}, 0, id="a-job-scaled-to-zero"),
    ],
)
def test_pods_are_the_smaller_of_parallelism_and_completions(spec: dict[str, Any], count: int) -> None:
    """The pod set counts pods that run at the same time."""
    (pod_set,) = JOB.pod_sets(make_job(**spec), ON)

    assert (pod_set["name"], pod_set["count"]) == ("main", count)


def test_the_template_loses_what_the_job_controller_wrote() -> None:
    """Of the four labels only the new form of the job name stays; metadata beyond labels and annotations goes."""
    labels = {
        "app": "x",
        "job-name": "sample",
        "controller-uid": UID,
        "batch.kubernetes.io/controller-uid": UID,
        "batch.kubernetes.io/job-name": "sample",
    }
    template = make_template(labels=labels)
    template["metadata"]["creationTimestamp"] = None
    (pod_set,) = JOB.pod_sets(make_job(template=template), ON)

    assert pod_set["template"]["metadata"] == {"labels": {"app": "x", "batch.kubernetes.io/job-name": "sample"}}


def test_an_environment_variable_named_twice_keeps_its_last_value_at_its_first_place() -> None:
    """As the API server's list map would have it."""
    template = make_template()
    template["spec"]["containers"][0]["env"] = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
        {"name": "A", "value": "3"},
    ]
    (pod_set,) = JOB.pod_sets(make_job(template=template), ON)

    assert pod_set["template"]["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "3"},
        {"name": "B", "value": "2"},
    ]


@pytest.mark.parametrize(
    ("annotation", "switches", "minimum"),
    [
        pytest.param("2", ON, 2, id="as-annotated"),
        pytest.param("two", ON, None, id="not-a-number-counts-as-absent"),
        pytest.param("0", ON, None, id="zero-is-no-minimum"),
        pytest.param("2", JobFeatures(partial_admission=False), None, id="dropped-while-the-gate-is-off"),
    ],
)
def test_partial_admission_is_asked_for_by_annotation(
    annotation: str, switches: JobFeatures, minimum: int | None
) -> None:
    """minCount comes from the annotation."""
    (pod_set,) = JOB.pod_sets(make_job(annotations=prefixed(job_min_parallelism=annotation)), switches)

    assert pod_set.get("minCount") == minimum


def test_a_job_always_numbers_its_pods() -> None:
    """The index label stands in the request even where no topology is asked for."""
    (pod_set,) = JOB.pod_sets(make_job(), ON)

    assert pod_set["topologyRequest"] == {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}


def test_an_annotation_that_cannot_be_read_is_an_error_that_names_it() -> None:
    """The webhook refuses such jobs; where it was off, the reconciler must not guess."""
    job = make_job(template=make_template(annotations=prefixed(podset_unconstrained_topology="maybe")))

    with pytest.raises(InvalidObjectError, match=r"Job team/sample .*podset-unconstrained-topology.*true.*false"):
        JOB.pod_sets(job, ON)


@pytest.mark.parametrize(
    ("job", "suspended"),
    [
        pytest.param(make_job(), True, id="suspended"),
        pytest.param(make_job(suspend=False), False, id="running"),
        pytest.param(make_job(suspend=None), False, id="absent-means-running"),
        pytest.param(make_job(annotations=prefixed(stopping="true")), False, id="a-half-done-stop-is-not-suspended"),
        pytest.param(make_job(annotations=prefixed(stopping="false")), True, id="only-true-marks-a-stop"),
    ],
)
def test_suspended_means_that_nothing_is_left_to_stop(job: dict[str, Any], suspended: bool) -> None:
    """spec.suspend counts, and the mark of a stop in progress."""
    assert JOB.is_suspended(job) is suspended


def test_suspend_alone_leaves_no_mark() -> None:
    """For children of managed parents; a suspended one needs nothing."""
    assert JOB.suspend(make_job(suspend=False)) == {"spec": {"suspend": True}}
    assert JOB.suspend(make_job()) == {}


@pytest.mark.parametrize(
    ("conditions", "end"),
    [
        pytest.param([], None, id="no-condition"),
        pytest.param([{"type": "Suspended", "status": "True"}], None, id="another-condition"),
        pytest.param([{"type": "Complete", "status": "False"}], None, id="a-false-one"),
        pytest.param(
            [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True", "message": "ok"}],
            Finished("ok", success=True),
            id="complete",
        ),
        pytest.param(
            [{"type": "Failed", "status": "True", "message": "BackoffLimit"}],
            Finished("BackoffLimit", success=False),
            id="failed",
        ),
    ],
)
def test_a_job_ends_by_condition(conditions: list[dict[str, str]], end: Finished | None) -> None:
    """Complete or Failed, with its message."""
    assert JOB.finished(make_job(status={"conditions": conditions})) == end


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        pytest.param({}, False, id="nothing-yet"),
        pytest.param({"ready": 3}, False, id="one-missing"),
        pytest.param({"ready": 4}, True, id="all-ready"),
        pytest.param({"ready": 2, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u"]}}, True, id="mixed"),
        pytest.param({"active": 4}, False, id="active-is-not-ready"),
        pytest.param({"ready": 3, "failed": 1}, False, id="failed-does-not-count"),
    ],
)
def test_pods_are_ready_when_as_many_as_asked_are(status: dict[str, Any], ready: bool) -> None:
    """Ready plus succeeded pods, counted or about to be, out of four."""
    assert JOB.pods_ready(make_job(status=status)) is ready


@pytest.mark.parametrize(
    ("spec", "status", "reclaimable"),
    [
        pytest.param({"parallelism": 3, "completions": 6}, {"succeeded": 4}, 1, id="two-of-three-still-needed"),
        pytest.param({"parallelism": 3, "completions": 6}, {"succeeded": 3}, None, id="all-three-still-needed"),
        pytest.param({"parallelism": 3}, {"succeeded": 2}, 2, id="completions-default-to-parallelism"),
        pytest.param({"parallelism": 3, "completions": 6}, {"succeeded": 0}, None, id="nothing-done"),
        pytest.param({"parallelism": 1}, {"succeeded": 1}, None, id="a-single-pod-never"),
        pytest.param({"parallelism": 3, "completions": 3}, {"failed": 2}, None, id="failures-do-not-count"),
        pytest.param(
            {"parallelism": 4, "completions": 8, "completionMode": "Indexed"},
            {"completedIndexes": "0-2,5", "failedIndexes": "2-3"},
            1,
            id="indexes-in-either-list-once",
        ),
        pytest.param(
            {"parallelism": 4, "completions": 6, "completionMode": "Indexed"},
            {"completedIndexes": "0-1,5-9"},
            1,
            id="indexes-beyond-completions-do-not-count",
        ),
        pytest.param(
            {"parallelism": 4, "completions": 4, "completionMode": "Indexed"},
            {"completedIndexes": "1,x,5-3,,0-", "succeeded": 4},
            1,
            id="malformed-intervals-and-the-plain-count-are-ignored",
        ),
    ],
)
def test_pods_that_will_not_come_give_their_quota_back(
    spec: dict[str, Any], status: dict[str, Any], reclaimable: int | None
) -> None:
    """Parallelism minus what remains to be done."""
    assert JOB.reclaimable(make_job(status=status, **spec)) == ({} if reclaimable is None else {"main": reclaimable})


def test_a_job_is_found_by_framework_and_by_kind() -> None:
    """The registry knows it, and it knows its pods and its controller."""
    assert BY_FRAMEWORK["batch/job"] is BY_GROUP_KIND["batch", "Job"]
    assert JOB.gvk.api_version == "batch/v1"
    assert JOB.pod_selector(make_job()) == {"batch.kubernetes.io/job-name": "sample"}
    assert JOB.managed_by(make_job()) == "kubernetes.io/job-controller"
    assert JOB.managed_by(make_job(managedBy="example.com/x")) == "example.com/x"
    assert JOB.active(make_job(status={"active": 1}))
    assert not JOB.active(make_job())
