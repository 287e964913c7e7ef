"""Keys that name node classes: from jobs and pods to Workloads, and tolerations back to the pods."""

from __future__ import annotations

import pytest

from kqueue.api.wire.meta import ObjectMeta
from kqueue.jobs import node_classes
from kqueue.jobs.gang.pods import role_of
from kqueue.jobs.infos import infos_at_start
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import Refused
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.pod_shape import role_hash
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, same_node_classes, workload_for
from tests.unit.jobs.builders import JSON, make_job, make_template, make_workload
from tests.unit.jobs.pods import make_pod

ON = JobFeatures()
CARD, PREFERRED, GROUP = "kqueue.dev/card-type", "kqueue.dev/card-type-preferred", "kqueue.dev/private-group"


def made(job: JSON) -> JSON:
    return workload_for(BatchJob(), job, priority=Priority(), switches=ON)


def test_a_template_keeps_its_keys_in_the_workload_g4_7() -> None:
    job = make_job(template=make_template(annotations={CARD: "a100"}, labels={GROUP: "lab"}))
    [pod_set] = made(job)["spec"]["podSets"]

    assert node_classes.keys(pod_set["template"]) == {CARD: "a100", GROUP: "lab"}
    assert node_classes.keys(made(job)) == {}


def test_the_keys_of_a_job_stand_on_its_workload_g4_7() -> None:
    """Not in the template: a stop would write them into the job."""
    job = make_job()
    job["metadata"].setdefault("annotations", {})[PREFERRED] = "a100,v100"
    job["metadata"].setdefault("labels", {})[GROUP] = "lab"
    workload = made(job)

    assert node_classes.keys(workload) == {PREFERRED: "a100,v100", GROUP: "lab"}
    assert node_classes.keys(workload["spec"]["podSets"][0]["template"]) == {}


def test_a_plain_pod_hands_on_its_class_and_nothing_else_g4_7() -> None:
    pod = make_pod()
    pod["metadata"]["annotations"] = {CARD: "a100", "other": "x"}
    pod["metadata"]["labels"] = {GROUP: "lab", "app": "x"}
    [pod_set] = PlainPod().pod_sets(pod, ON)

    assert pod_set["template"]["metadata"] == {"annotations": {CARD: "a100"}, "labels": {GROUP: "lab"}}


def test_pods_of_another_class_play_another_role() -> None:
    """Pods without a class keep the hash of the compatible system."""
    plain, carded = make_pod(), make_pod()
    carded["metadata"]["annotations"] = {CARD: "a100"}

    assert role_of(plain, None) == role_hash(plain["spec"])
    assert role_of(carded, None) != role_of(plain, None)


def test_another_class_of_the_template_makes_another_request() -> None:
    """The Workload of a waiting job is rewritten."""
    before, after = make_job(), make_job(template=make_template(annotations={CARD: "a100"}))

    assert same_node_classes(BatchJob().pod_sets(before, ON), made(before))
    assert not same_node_classes(BatchJob().pod_sets(after, ON), made(before))


@pytest.mark.parametrize(
    ("job", "workload", "patch"),
    [
        ({}, {}, {}),
        ({CARD: "a"}, {CARD: "a"}, {}),
        ({CARD: "a"}, {}, {"metadata": {"annotations": {CARD: "a"}}}),
        ({}, {CARD: "a"}, {"metadata": {"annotations": {CARD: None}}}),
        ({"kueue.x-k8s.io/prebuilt-workload-name": "w"}, {CARD: "a"}, {}),
    ],
    ids=["none", "same", "new", "taken-back", "made-beforehand"],
)
def test_a_changed_class_is_handed_on_to_a_waiting_workload(
    job: dict[str, str], workload: dict[str, str], patch: JSON
) -> None:
    owner = {"metadata": {"annotations": job}}

    assert node_classes.handed_on(owner, ObjectMeta(name="w", annotations=workload)) == patch


@pytest.mark.parametrize(
    ("annotations", "tolerated"),
    [
        ({CARD: "h100", "kqueue.dev/scarce": "true"}, [(CARD, "h100")]),
        ({GROUP: "lab"}, [(GROUP, "lab")]),
        ({CARD: "a100"}, []),
    ],
    ids=["scarce", "private", "open"],
)
def test_tolerations_come_with_the_admission_g4_16(
    annotations: dict[str, str], tolerated: list[tuple[str, str]]
) -> None:
    job = make_job()
    workload = make_workload(job, assignment={"flavors": {"cpu": "f"}, "count": 1})
    flavor = {"metadata": {"annotations": annotations}, "spec": {"nodeLabels": {"card": "x"}}}
    infos = infos_at_start(workload, {"f": flavor}, switches=ON)

    assert not isinstance(infos, Refused)
    assert list(infos[0].tolerations) == [
        {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"} for key, value in tolerated
    ]
