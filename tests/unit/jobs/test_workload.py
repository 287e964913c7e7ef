"""The Workload of a job: name, text, and whether it still fits."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.api.wire import kueue as wire
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.infos import infos_at_start
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import GroupVersionKind, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import (
    Priority,
    PrioritySource,
    belongs,
    equivalent,
    priority_source,
    spec_for,
    workload_for,
    workload_name,
    workload_name_of,
)
from tests.unit.jobs.builders import UID, make_job, make_template, make_workload, prefixed

KIND = BatchJob()
ON = JobFeatures()
JOB = GroupVersionKind("batch", "v1", "Job")


@pytest.mark.parametrize(
    ("kind", "name", "extra", "wanted"),
    [
        pytest.param(JOB, "sample", "", "job-sample-5b05d", id="a-job"),
        pytest.param(JOB, "sample", "2", "job-sample-d05af", id="the-second-slice-of-a-job"),
        pytest.param(GroupVersionKind("", "v1", "Pod"), "p", "", "pod-p-75ad1", id="a-kind-of-the-core-group"),
        pytest.param(
            GroupVersionKind("apps", "v1", "StatefulSet"), "web", "", "statefulset-web-92f80", id="lower-case"
        ),
        pytest.param(
            GroupVersionKind("batch", "v2", "Job"), "sample", "", "job-sample-5b05d", id="the-version-does-not-matter"
        ),
    ],
)
def test_names_are_those_of_the_compatible_system(kind: GroupVersionKind, name: str, extra: str, wanted: str) -> None:
    """Byte for byte: other tools compute them too."""
    assert workload_name(kind, name, UID, extra=extra) == wanted


@given(st.text("abc-.", min_size=1, max_size=300), st.sampled_from([63, 253]))
def test_names_never_get_too_long_and_keep_their_hash(name: str, limit: int) -> None:
    """The prefix gives way, the hash never."""
    made = workload_name(JOB, name, UID, limit=limit)

    assert len(made) <= limit
    assert made[-6:] == workload_name(JOB, name, UID)[-6:]
    assert made.startswith(f"job-{name}"[: limit - 6])


def test_short_names_by_switch() -> None:
    """63 characters, so that they fit into a label."""
    assert len(workload_name_of(KIND, make_job("x" * 100), JobFeatures(short_names=True))) == 63


def test_what_metrics_read_is_copied_to_the_workload() -> None:
    """Labels and annotations that custom labels of metrics name; what we write ourselves comes first."""
    gates = "kueue.x-k8s.io/admission-gated-by"
    job = make_job(labels={"tier": "gold", "x": "y"}, annotations={"example.com/cost": "7", "x": "y", gates: "a.b/c"})
    keys = CopiedKeys(metric_labels=("tier", "no"), metric_annotations=("example.com/cost", "no", gates))
    made = workload_for(KIND, job, priority=Priority(), switches=ON, copied=keys)["metadata"]

    assert made["labels"] == {"tier": "gold", "kueue.x-k8s.io/job-uid": UID}
    assert made["annotations"] == {"example.com/cost": "7", gates: "a.b/c"}


def test_a_workload_is_complete() -> None:
    """Everything that the queue needs, and the owner that keeps it alive."""
    job = make_job(
        labels={
            **prefixed(queue_name="main", priority_class="high", max_exec_time_seconds="60"),
            "team": "a",
            "x": "y",
        },
        annotations={
            "provreq.kueue.x-k8s.io/p": "1",
            "other": "2",
            "kqueue.dev/placement-profile": "optimal",
            "kqueue.dev/prefers": "rack=r1",
            **prefixed(admission_gated_by="example.com/a"),
        },
    )
    workload = workload_for(
        KIND,
        job,
        priority=Priority(value=7, kind="WorkloadPriorityClass", name="high"),
        switches=ON,
        copied=CopiedKeys(labels=("team", "absent")),
    )
    pod_sets = workload["spec"].pop("podSets")

    assert pod_sets == list(KIND.pod_sets(job, ON))
    assert workload == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "job-sample-5b05d",
            "namespace": "team",
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "labels": {"team": "a", "kueue.x-k8s.io/job-uid": UID},
            "annotations": {
                "provreq.kueue.x-k8s.io/p": "1",
                "kqueue.dev/placement-profile": "optimal",
                "kqueue.dev/prefers": "rack=r1",
                "kueue.x-k8s.io/admission-gated-by": "example.com/a",
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "sample",
                    "uid": UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "queueName": "main",
            "priority": 7,
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            "maximumExecutionTimeSeconds": 60,
            "active": True,
        },
    }


def test_a_rewritten_workload_stays_inactive() -> None:
    """`active` belongs to the user."""
    assert spec_for(KIND, make_job(), priority=Priority(), switches=ON, active=False)["active"] is False


@pytest.mark.parametrize(
    ("job", "source"),
    [
        pytest.param(make_job(), None, id="none"),
        pytest.param(
            make_job(template=make_template(priorityClassName="pods")),
            PrioritySource("PriorityClass", "pods"),
            id="the-templates-class",
        ),
        pytest.param(
            make_job(labels=prefixed(priority_class="own"), template=make_template(priorityClassName="pods")),
            PrioritySource("WorkloadPriorityClass", "own"),
            id="the-label-first",
        ),
    ],
)
def test_where_a_priority_comes_from(job: dict[str, Any], source: PrioritySource | None) -> None:
    """The label, then the first template with a class."""
    assert priority_source(job, KIND.pod_sets(job, ON)) == source
    if source is not None and source.kind == "PriorityClass":
        reference = Priority(value=1, kind=source.kind, name=source.name).reference
        assert reference == {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "pods"}


@pytest.mark.parametrize(
    ("change", "mine"),
    [
        pytest.param({}, True, id="its-own"),
        pytest.param({"metadata": {"uid": "another"}}, False, id="a-job-of-the-same-name"),
        pytest.param({"metadata": {"labels": prefixed(max_exec_time_seconds="5")}}, False, id="another-time-limit"),
    ],
)
def test_whose_workload_it_is(change: dict[str, Any], mine: bool) -> None:
    """By name, UID and time limit."""
    job = make_job()

    assert belongs(apply_merge_patch(job, change), make_workload(job)) is mine


def container(**parts: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "c", "image": "busybox", **parts}]}}}


CPU = {"resources": {"requests": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({}, True, id="unchanged"),
        pytest.param(container(resources={"requests": {"cpu": "1000m"}}), True, id="quantities-by-value"),
        pytest.param(container(resources={"requests": {"cpu": 1}}), True, id="quantities-as-numbers"),
        pytest.param(container(**CPU, env=[], command=None), True, id="absent-is-empty"),
        pytest.param({"template": {"spec": {"initContainers": []}}}, True, id="no-init-containers"),
        pytest.param({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, True, id="selectors-do-not-matter"),
        pytest.param({"template": {"metadata": {"labels": {"a": "b"}}}}, True, id="labels-do-not-matter"),
        pytest.param(container(resources={"requests": {"cpu": "2"}}), False, id="another-request"),
        pytest.param(container(**CPU, image="other"), False, id="another-image"),
        pytest.param({"parallelism": 3}, False, id="another-count"),
        pytest.param({"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}, False, id="another-toleration"),
        pytest.param({"template": {"spec": {"initContainers": [{"name": "i"}]}}}, False, id="an-init-container"),
    ],
)
def test_what_makes_a_job_another_one(change: dict[str, Any], same: bool) -> None:
    """Counts, containers and tolerations, by meaning."""
    job = make_job()
    edited = apply_merge_patch(job, {"spec": change})

    assert equivalent(KIND.pod_sets(edited, ON), make_workload(job)) is same


def slim(workload: dict[str, Any]) -> dict[str, Any]:
    """The Workload as a watch keeps it."""
    made = {**workload, "metadata": {**workload["metadata"], "uid": "w"}}
    for condition in made["status"].get("conditions", []):
        condition.update(reason="R", message="", lastTransitionTime="2026-01-01T00:00:00Z")
    decoded = msgspec.convert(copy.deepcopy(made), wire.Workload, strict=False)
    back: dict[str, Any] = msgspec.to_builtins(decoded)
    return back


@pytest.mark.parametrize("image", ["busybox", "other"])
def test_a_workload_from_a_watch_is_compared_by_what_the_watch_keeps(image: str) -> None:
    """Images are not kept, so they cannot differ; counts and requests still can."""
    job = make_job(template=make_template(tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]))
    workload = make_workload(job)
    pod_sets = KIND.pod_sets(job, ON)
    pod_sets[0]["template"]["spec"]["containers"][0]["image"] = image
    fewer = KIND.pod_sets(apply_merge_patch(job, {"spec": {"parallelism": 2}}), ON)

    assert equivalent(pod_sets, slim(workload), slim=True) is True
    assert equivalent(fewer, slim(workload), slim=True) is False
    assert equivalent(KIND.pod_sets(job, ON), workload) is True


QUANTITIES: dict[str, Any] = {"cpu": "1", "example.com/gpu": "2"}
CONTAINER: dict[str, Any] = {
    "name": "c",
    "image": "busybox",
    "restartPolicy": "Always",
    "resources": {
        "requests": QUANTITIES,
        "limits": QUANTITIES,
        "claims": [{"name": "gpus", "request": "large", "added": "later"}],
        "added": {"to": "the API later"},
    },
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    "ports": [{"containerPort": 80}],
}
TOLERATION = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3, "added": 1}


@pytest.mark.parametrize("part", ["containers", "initContainers", "tolerations"])
def test_a_watch_keeps_all_that_is_compared(part: str) -> None:
    """Fields that the API has, and fields that a later version may add: else the Workload would be made anew for ever."""
    item = TOLERATION if part == "tolerations" else CONTAINER
    job = make_job(template=make_template(**dict[str, Any]({part: [item]}), resourceClaims=[{"name": "gpus"}]))
    workload = make_workload(job)

    assert equivalent(KIND.pod_sets(job, ON), slim(workload), slim=True) is True


@pytest.mark.parametrize(
    "claims", [[], [{"name": "gpus"}], [{"name": "other", "request": "large"}]], ids=["none", "all", "others"]
)
def test_other_claims_make_a_job_another_one(claims: list[dict[str, str]]) -> None:
    """Claims of containers count, as requests do."""
    job = make_job(template=make_template(containers=[CONTAINER]))
    edited = copy.deepcopy(job)
    edited["spec"]["template"]["spec"]["containers"][0]["resources"]["claims"] = claims

    assert equivalent(KIND.pod_sets(edited, ON), slim(make_workload(job)), slim=True) is False


ADMITTED = {"flavors": {"cpu": "f"}, "count": 3}
FLAVORS = {"f": {"spec": {"tolerations": [{"key": "f", "operator": "Exists"}]}}}


@pytest.mark.parametrize(
    ("parallelism", "suspended", "same"),
    [
        pytest.param(3, False, True, id="a-partial-job-runs-with-the-admitted-count"),
        pytest.param(4, False, False, id="not-with-another-one"),
        pytest.param(4, True, True, id="suspended-it-has-the-full-count-again"),
        pytest.param(2, True, False, id="or-was-edited"),
    ],
)
def test_a_reserved_workload_is_compared_with_the_started_job(parallelism: int, suspended: bool, same: bool) -> None:
    """With the admission merged in; for a suspended job the plain text will do."""
    job = make_job(annotations=prefixed(job_min_parallelism="2"))
    workload = make_workload(job, assignment=ADMITTED)
    infos = infos_at_start(workload, FLAVORS, switches=ON)
    assert not isinstance(infos, Refused)
    now = KIND.pod_sets(apply_merge_patch(job, {"spec": {"parallelism": parallelism}}), ON)

    assert equivalent(now, workload, infos=infos, suspended=suspended) is same


@pytest.mark.parametrize(
    ("ended", "same"),
    [
        pytest.param(
            1, True, id="a job that ran before starts with its own numbers when all that is left was admitted"
        ),
        pytest.param(0, False, id="a job of which a part was admitted does not"),
    ],
)
def test_pods_that_have_ended_are_not_counted_as_left_out(ended: int, same: bool) -> None:
    """Three of four pods are admitted, and the job runs with parallelism 4."""
    job = make_job(annotations=prefixed(job_min_parallelism="2"))
    status = {"reclaimablePods": [{"name": "main", "count": ended}]} if ended else {}
    workload = make_workload(job, assignment=ADMITTED, status=status)
    infos = infos_at_start(workload, FLAVORS, switches=ON)
    assert not isinstance(infos, Refused)

    assert equivalent(KIND.pod_sets(job, ON), workload, infos=infos) is same


def test_without_infos_a_reserved_workload_is_compared_as_it_stands() -> None:
    """A flavor that is gone must not stop a running job."""
    job = make_job()

    assert equivalent(KIND.pod_sets(job, ON), make_workload(job, assignment=ADMITTED), infos=None)
