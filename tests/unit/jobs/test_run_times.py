"""Run times that jobs tell: deadlines of each kind, and the annotation with the expected seconds."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs import pod_rules, run_times
from kqueue.jobs.catalog import BY_GROUP_KIND
from kqueue.jobs.gang import podgroup_x_k8s
from kqueue.jobs.gang.batch_workload import BatchProcessKind
from kqueue.jobs.gang.group_object import speaker_of
from kqueue.jobs.gang.reviewed import REVIEWED_GROUPS
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import JobContext
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, workload_for
from tests.unit.jobs.builders import JSON, make_job
from tests.unit.jobs.pods import make_pod

EXPECTED, DEADLINE = "kqueue.dev/expected-seconds", "kqueue.dev/deadline-seconds"
PATH = f"metadata.annotations[{EXPECTED}]"
JOB, HERE = BatchJob(), JobContext()


def child(deadline: int | None, **more: Any) -> JSON:
    """A replicated Job of a JobSet."""
    spec = {} if deadline is None else {"activeDeadlineSeconds": deadline}
    return {"name": "a", "template": {"spec": spec}, **more}


def job_set(*children: JSON, **spec: Any) -> JSON:
    return {"spec": {"replicatedJobs": list(children), **spec}}


def restarts(most: int, *actions: str) -> JSON:
    return {"failurePolicy": {"maxRestarts": most, "rules": [{"action": action} for action in actions]}}


IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
RUN_POLICY = {"spec": {"runPolicy": {"activeDeadlineSeconds": 70}}}


@pytest.mark.parametrize(
    ("group", "kind", "job", "seconds"),
    [
        pytest.param("batch", "Job", {"spec": {"activeDeadlineSeconds": 60}}, 60, id="job"),
        pytest.param("batch", "Job", {"spec": {}}, None, id="job-without"),
        pytest.param("batch", "Job", {"spec": {"activeDeadlineSeconds": 0}}, None, id="job-of-no-time"),
        pytest.param("batch", "Job", {"spec": {"activeDeadlineSeconds": "60"}}, None, id="misshapen"),
        pytest.param("jobset.x-k8s.io", "JobSet", job_set(child(60), child(90)), 90, id="children-at-once"),
        pytest.param("jobset.x-k8s.io", "JobSet", job_set(child(60), child(None)), None, id="a-child-without"),
        pytest.param("jobset.x-k8s.io", "JobSet", job_set(), None, id="no-children"),
        pytest.param("jobset.x-k8s.io", "JobSet", job_set(child(60), child(90), **IN_ORDER), 150, id="in-order"),
        pytest.param(
            "jobset.x-k8s.io",
            "JobSet",
            job_set(child(60), child(90, dependsOn=[{"name": "a", "status": "Complete"}])),
            150,
            id="one-waits-for-another",
        ),
        pytest.param("jobset.x-k8s.io", "JobSet", job_set(child(60), **restarts(2)), 180, id="restarts"),
        pytest.param(
            "jobset.x-k8s.io",
            "JobSet",
            job_set(child(60), **restarts(2, "FailJobSet", "RestartJobSet")),
            180,
            id="limited-rules",
        ),
        pytest.param(
            "jobset.x-k8s.io",
            "JobSet",
            job_set(child(60), **restarts(2, "RestartJobSetAndIgnoreMaxRestarts")),
            None,
            id="restarts-without-limit",
        ),
        pytest.param(
            "jobset.x-k8s.io", "JobSet", job_set(child(60), **restarts(0, "SomethingNew")), None, id="unknown-rule"
        ),
        pytest.param("kubeflow.org", "PyTorchJob", RUN_POLICY, 70, id="pytorch"),
        pytest.param("kubeflow.org", "MPIJob", RUN_POLICY, 70, id="mpi"),
        pytest.param("trainer.kubeflow.org", "TrainJob", {"spec": {"activeDeadlineSeconds": 60}}, 60, id="train"),
        pytest.param("ray.io", "RayJob", {"spec": {"activeDeadlineSeconds": 60}}, 60, id="ray"),
        pytest.param(
            "ray.io", "RayJob", {"spec": {"activeDeadlineSeconds": 60, "backoffLimit": 2}}, 180, id="ray-tries-again"
        ),
    ],
)
def test_deadlines_of_kinds(group: str, kind: str, job: JSON, seconds: int | None) -> None:
    """A deadline is the longest time of one admission, also where the kind's controller starts the job again."""
    adapter = BY_GROUP_KIND[group, kind]
    assert isinstance(adapter, run_times.KindWithDeadline)
    assert adapter.deadline(job) == seconds
    wanted = {} if seconds is None else {DEADLINE: str(seconds)}
    assert run_times.traits(adapter, job) == wanted


def test_the_kubelet_ends_a_pod_at_its_deadline() -> None:
    assert run_times.traits(PlainPod(), {"spec": {"activeDeadlineSeconds": 30}}) == {DEADLINE: "30"}


@pytest.mark.parametrize("kind", ["AppWrapper", "SparkApplication", "RayCluster", "RayService"])
def test_other_kinds_have_no_deadline(kind: str) -> None:
    """A field of the same name in them ends nothing, nor does the time that a SparkApplication is kept after its end."""
    adapter = next(found for (_, name), found in BY_GROUP_KIND.items() if name == kind)
    assert run_times.traits(adapter, {"spec": {"activeDeadlineSeconds": 60, "timeToLiveSeconds": 60}}) == {}


BAD = ["0", "-1", "1h", "1.5", "31536001", "1e3", " 5", "+5", "\u0663", "9" * 200_000]


@pytest.mark.parametrize("written", BAD, ids=range(len(BAD)))
def test_a_wrong_expectation_is_refused_and_never_copied(written: str) -> None:
    """The message names the field and the remedy, and repeats no giant value."""
    job = make_job(annotations={EXPECTED: written})

    (problem,) = JOB.problems(job, None, HERE)

    assert (problem.path, problem.value) == (PATH, written[:40])
    assert "a whole number of seconds from 1 to 31536000" in problem.problem
    assert run_times.traits(JOB, job) == {}


@pytest.mark.parametrize("written", ["1", "3600", "31536000"])
def test_a_sound_expectation_reaches_the_workload(written: str) -> None:
    job = make_job(annotations={EXPECTED: written}, activeDeadlineSeconds=99)
    assert JOB.problems(job, None, HERE) == []
    made = workload_for(JOB, job, priority=Priority(), switches=JobFeatures())
    assert made["metadata"]["annotations"] == {EXPECTED: written, DEADLINE: "99"}


def test_nobody_promises_by_an_annotation_of_a_job() -> None:
    """Only the field of the job ends it."""
    job = make_job(annotations={DEADLINE: "5"})
    assert "annotations" not in workload_for(JOB, job, priority=Priority(), switches=JobFeatures())["metadata"]


@pytest.mark.parametrize(
    ("before", "after", "suspended", "problems"),
    [
        pytest.param("60", "90", True, 0, id="waiting"),
        pytest.param("60", "90", False, 1, id="running"),
        pytest.param("60", "60", False, 0, id="running-without-a-change"),
        pytest.param("60", "", False, 1, id="taken-off-while-running"),
        pytest.param("60", "x", True, 1, id="wrong"),
        pytest.param("x", "60", True, 0, id="corrected"),
    ],
)
def test_an_expectation_changes_only_while_the_job_waits(
    before: str, after: str, suspended: bool, problems: int
) -> None:
    old, new = (make_job(annotations={EXPECTED: text} if text else {}, suspend=suspended) for text in (before, after))
    assert [p.path for p in JOB.problems(new, old, HERE)] == [PATH] * problems


def test_the_group_object_speaks_before_its_oldest_pod() -> None:
    pod = {"metadata": {"annotations": {EXPECTED: "60"}}}
    group = {"metadata": {"annotations": {EXPECTED: "90"}}}
    assert run_times.expected_trait(speaker_of(pod, group)) == {EXPECTED: "90"}
    assert run_times.expected_trait(speaker_of(pod, None)) == {EXPECTED: "60"}


def test_the_limit_of_a_batch_process_is_its_maximum_execution_time() -> None:
    """So its Workload has no deadline beside that."""
    obj = {"metadata": {"annotations": {EXPECTED: "60"}}, "spec": {"activeDeadlineSeconds": 90}}
    assert run_times.traits(BatchProcessKind(), obj) == {EXPECTED: "60"}


def test_a_changed_expectation_of_a_pod_is_checked() -> None:
    """Other rules of labels and annotations are checked only at the creation of a pod."""
    old = make_pod(annotations={EXPECTED: "60"})
    assert [p.path for p in pod_rules.problems(make_pod(annotations={EXPECTED: "x"}), old, HERE)] == [PATH]
    assert pod_rules.problems(make_pod(annotations={EXPECTED: "90"}), old, HERE) == []


@pytest.mark.parametrize(("holds", "after", "problems"), [(False, "90", 0), (False, "x", 1), (True, "90", 1)])
def test_a_changed_expectation_of_a_group_object(holds: bool, after: str, problems: int) -> None:
    """It may change until the gang has quota."""
    kind = REVIEWED_GROUPS[podgroup_x_k8s.FRAMEWORK]
    old, new = ({"metadata": {"annotations": {EXPECTED: text}}, "spec": {"minMember": 2}} for text in ("60", after))
    assert [p.path for p in kind.problems(new, old, JobContext(holds_quota=holds))] == [PATH] * problems
    assert kind.may_need_quota(new, old)
    assert not kind.may_need_quota(old, old)


@pytest.mark.parametrize(
    ("wanted", "known", "changes"),
    [
        ({}, {}, {}),
        ({EXPECTED: "1"}, {EXPECTED: "1", "other": "x"}, {}),
        ({EXPECTED: "2"}, {EXPECTED: "1", DEADLINE: "5"}, {EXPECTED: "2", DEADLINE: None}),
    ],
)
def test_changes_of_a_workload(wanted: JSON, known: JSON, changes: JSON) -> None:
    assert run_times.changes(wanted, known) == changes
