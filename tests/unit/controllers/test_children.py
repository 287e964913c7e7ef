"""Real children of a JobSet have a known name and size; those of a Job request no more together than the Job."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.controllers.children import may_be_child

JSON = dict[str, Any]
JOB_SET = ("jobset.x-k8s.io", "JobSet")


def job(name: str, *, pods: int = 2, gpus: str = "1", completions: int | None = None) -> JSON:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"cpu": "500m"}}}
    counts = {"parallelism": pods} | ({} if completions is None else {"completions": completions})
    return {"metadata": {"name": name}, "spec": {**counts, "template": {"spec": {"containers": [container]}}}}


def job_set(**replicated: Any) -> JSON:
    entry = {"name": "workers", "replicas": 3, "template": {"spec": job("", **replicated)["spec"]}}
    return {"metadata": {"name": "set"}, "spec": {"replicatedJobs": [entry]}}


@pytest.mark.parametrize(
    ("child", "made"),
    [
        pytest.param(job("set-workers-0"), True, id="the-first-one"),
        pytest.param(job("set-workers-2", pods=1), True, id="a-user-made-it-smaller"),
        pytest.param(job("set-workers-1", pods=9, completions=2), True, id="completions-bound-it"),
        pytest.param(job("set-workers-3"), False, id="beyond-the-replicas"),
        pytest.param(job("set-others-0"), False, id="of-no-replicated-job"),
        pytest.param(job("mine"), False, id="another-name"),
        pytest.param(job("set-workers-0", pods=3), False, id="more-pods"),
        pytest.param(job("set-workers-0", gpus="8"), False, id="larger-pods"),
        pytest.param(job("set-workers-0", gpus="many"), False, id="sizes-that-cannot-be-read"),
    ],
)
def test_a_job_set_makes_jobs_of_its_names_and_sizes(child: JSON, made: bool) -> None:
    """No more of them, and none larger."""
    assert may_be_child(JOB_SET, job_set(), child) is made


def ray_job(mode: str = "K8sJobMode", **more: Any) -> JSON:
    containers = job("")["spec"]["template"]["spec"]
    head = {"headGroupSpec": {"template": {"spec": containers}}}
    return {"metadata": {"name": "ray"}, "spec": {"submissionMode": mode, "rayClusterSpec": head, **more}}


def of_requests(cpu: str, *, pods: int = 1) -> JSON:
    made = job("child", pods=pods)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


@pytest.mark.parametrize(
    ("owner", "child", "made"),
    [
        pytest.param(ray_job(), of_requests("500m"), True, id="the-default-submitter"),
        pytest.param(ray_job(), of_requests("501m"), False, id="a-larger-one"),
        pytest.param(ray_job(), of_requests("500m", pods=2), False, id="two-of-them"),
        pytest.param(ray_job(submitterPodTemplate=job("")["spec"]["template"]), job("c", pods=1), True, id="its-own"),
        pytest.param(ray_job("HTTPMode"), of_requests("1m"), False, id="there-is-no-submitter"),
    ],
)
def test_a_ray_job_makes_one_job_that_submits_it(owner: JSON, child: JSON, made: bool) -> None:
    assert may_be_child(("ray.io", "RayJob"), owner, child) is made


@pytest.mark.parametrize(("cpu", "tolerant", "made"), [("200m", True, True), ("1", True, False), ("1m", False, False)])
def test_a_ray_cluster_makes_one_job_that_clears_redis(cpu: str, tolerant: bool, made: bool) -> None:
    """Only with fault tolerance."""
    owner = {
        "metadata": {"name": "ray"},
        "spec": {"gcsFaultToleranceOptions": {} if tolerant else None, "suspend": True},
    }
    assert may_be_child(("ray.io", "RayCluster"), owner, of_requests(cpu)) is made


def test_the_cluster_of_a_ray_job_may_be_its_child() -> None:
    """Its owner's webhooks check who makes it."""
    assert may_be_child(("ray.io", "RayJob"), ray_job(), {"metadata": {}, "spec": {"headGroupSpec": {}}})


def of_age(name: str, second: int, **settings: Any) -> JSON:
    made = job(name, **settings)
    made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{second:02}Z"
    return made


@pytest.mark.parametrize(
    ("child", "siblings", "made"),
    [
        pytest.param(of_age("c", 5, pods=2), [], True, id="as-large-as-its-parent"),
        pytest.param(of_age("c", 5, pods=3), [], False, id="more-pods-than-its-parent"),
        pytest.param(of_age("c", 5, pods=1, gpus="8"), [], False, id="larger-pods-than-its-parent"),
        pytest.param(of_age("c", 5, pods=1), [of_age("b", 4, pods=1)], True, id="both-fit"),
        pytest.param(of_age("c", 5, pods=1), [of_age("b", 4, pods=2)], False, id="an-older-one-has-taken-all"),
        pytest.param(of_age("c", 5, pods=2), [of_age("d", 6, pods=2)], True, id="the-younger-one-comes-after-it"),
        pytest.param(of_age("c", 5, pods=2), [of_age("c", 5, pods=2)], True, id="it-does-not-count-against-itself"),
    ],
)
def test_jobs_below_a_job_count_against_it_together(child: JSON, siblings: list[JSON], made: bool) -> None:
    """The oldest first; what is beyond the parent's own pods is queued for itself."""
    assert may_be_child(("batch", "Job"), job("parent"), child, siblings) is made


@pytest.mark.parametrize(("name", "made"), [("train", True), ("other", False)])
def test_the_jobset_of_a_trainjob_has_its_name(name: str, made: bool) -> None:
    """Others that name the TrainJob as their controller were not made by Trainer."""
    owner = {"metadata": {"name": "train"}, "spec": {"suspend": False}}
    child = {"metadata": {"name": name}, "spec": {"replicatedJobs": []}}

    assert may_be_child(("trainer.kubeflow.org", "TrainJob"), owner, child) is made


@pytest.mark.parametrize(
    ("kind", "owner"),
    [
        pytest.param(("example.com", "Train"), {"spec": {}}, id="a-kind-of-which-nothing-is-known"),
        pytest.param(JOB_SET, {"metadata": {"name": "set"}}, id="only-metadata-are-known"),
    ],
)
def test_what_is_not_known_may_be_child_anything(kind: tuple[str, str], owner: JSON) -> None:
    """No honest child is taken for a forged one."""
    assert may_be_child(kind, owner, job("mine"))
