"""Pods and the Service of a BatchProcess."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kqueue.jobs.gang.batch_pods import PodPlan, environment, has_network, pod_name, pod_of, service_of, template_of
from kqueue.jobs.gang.batch_process import plan_of
from tests.unit.jobs.gang.test_batch_process import make, process

JSON = dict[str, Any]

TEACHER = process(
    "teacher", 2, 1, command=["bash", "-c", "python teacher.py"], env=[{"name": "LEVEL", "value": "2"}],
    resources={"limits": {"cpu": 2, "nvidia.com/gpu": 1}, "requests": {"cpu": 1}},
    template={
        "metadata": {"annotations": {"example.com/a": "b"}, "labels": {"app": "x"}, "name": "ignored"},
        "spec": {"containers": [{"name": "main", "volumeMounts": [{"name": "d"}]}, {"name": "side"}], "volumes": [{"name": "d"}]},
    },
)  # fmt: skip
STUDENT = process("student", 2, 1)


def made(*processes: JSON, role: int = 0, index: int = 0, attempt: int = 0, **spec: Any) -> JSON:
    obj = make(*processes, **spec)
    plan = plan_of(obj)
    wanted = PodPlan(role=plan.roles[role], index=index, attempt=attempt)
    return pod_of(obj, plan, wanted, queue="main")


def container(pod: JSON, name: str) -> JSON:
    found: JSON = next(c for c in pod["spec"]["containers"] if c["name"] == name)
    return found


def test_fields_of_a_process_go_into_its_first_container() -> None:
    """G3.B7, G3.B10, G3.B11."""
    main = container(made(TEACHER, STUDENT), "main")

    assert main["image"] == "train:1"
    assert main["command"] == ["bash", "-c", "python teacher.py"]
    assert main["resources"] == {"limits": {"cpu": 2, "nvidia.com/gpu": 1}, "requests": {"cpu": 1, "nvidia.com/gpu": 1}}
    assert main["volumeMounts"] == [{"name": "d"}]
    assert {"name": "LEVEL", "value": "2"} in main["env"]


@pytest.mark.parametrize(
    ("spec", "own", "policy"),
    [({}, {}, "Never"), ({"restartPolicy": "OnFailure"}, {}, "OnFailure"), ({}, {"restartPolicy": "OnFailure"}, "OnFailure")],
)  # fmt: skip
def test_the_restart_policy_comes_from_the_process_or_the_object(spec: JSON, own: JSON, policy: str) -> None:
    assert made(process("a", 1, **own), **spec)["spec"]["restartPolicy"] == policy


def test_a_process_without_a_template_has_one_container() -> None:
    pod = made(TEACHER, STUDENT, role=1)

    assert [c["name"] for c in pod["spec"]["containers"]] == ["main"]


def test_a_pod_says_whose_it_is() -> None:
    """G3.B23, G3.B24."""
    meta = made(TEACHER, STUDENT, role=1, index=1, attempt=2)["metadata"]

    assert meta["labels"] == {
        "kqueue.dev/batch-process": "distill",
        "kqueue.dev/process": "student",
        "kqueue.dev/process-index": "1",
        "kqueue.dev/rank": "3",
        "kueue.x-k8s.io/managed": "true",
        "kueue.x-k8s.io/queue-name": "main",
        "kueue.x-k8s.io/pod-group-pod-index": "1",
    }
    assert meta["annotations"] == {
        "kqueue.dev/attempt": "2", "kueue.x-k8s.io/role-hash": "student",
    }  # fmt: skip
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "BatchProcess", "distill", "u-1", True, True,
    )  # fmt: skip


def test_labels_of_the_template_cannot_replace_ours() -> None:
    """A template that names another queue or another rank has no effect."""
    wrong = {"kueue.x-k8s.io/queue-name": "other", "kqueue.dev/rank": "99", "app": "x"}
    labels = made(process("a", 1, template={"metadata": {"labels": wrong}}))["metadata"]["labels"]

    assert (labels["kueue.x-k8s.io/queue-name"], labels["kqueue.dev/rank"], labels["app"]) == ("main", "0", "x")


def test_a_name_depends_on_the_attempt_alone() -> None:
    """G3.B22: a repeated creation answers AlreadyExists."""
    obj = make(TEACHER, STUDENT)
    role = plan_of(obj).roles[0]
    digest = hashlib.sha1(b"u-1\nteacher\n1\n0").hexdigest()[:5]

    assert pod_name(obj, role, 1, 0) == f"distill-teacher-1-{digest}"
    assert pod_name(obj, role, 1, 1) != pod_name(obj, role, 1, 0)


def test_a_process_knows_its_place_and_its_peers() -> None:
    """G3.B25, G3.B26."""
    obj = make(TEACHER, process("two-words", 101), group={"minAvailable": 3})
    plan = plan_of(obj)

    assert environment(obj, plan, plan.roles[0], 1) == {
        "KQUEUE_BATCH_PROCESS": "distill",
        "KQUEUE_PROCESS": "teacher",
        "KQUEUE_PROCESS_INDEX": "1",
        "KQUEUE_PROCESS_REPLICAS": "2",
        "KQUEUE_RANK": "1",
        "KQUEUE_WORLD_SIZE": "103",
        "KQUEUE_QUORUM": "3",
        "KQUEUE_LEADER_ADDRESS": "distill-teacher-0.distill.team-a.svc",
        "KQUEUE_HOSTS_TEACHER": "distill-teacher-0.distill.team-a.svc,distill-teacher-1.distill.team-a.svc",
        "KQUEUE_HOSTS_TWO_WORDS": "distill-two-words-{index}.distill.team-a.svc",
    }


def test_every_container_gets_the_variables_and_keeps_its_own() -> None:
    mine = {"name": "side", "env": [{"name": "KQUEUE_RANK", "value": "mine"}]}
    pod = made(
        process("a", 2, template={"spec": {"containers": [{"name": "main"}, mine], "initContainers": [{"name": "i"}]}})
    )

    ranks = {c["name"]: [v["value"] for v in c["env"] if v["name"] == "KQUEUE_RANK"] for c in pod["spec"]["containers"]}
    assert ranks == {"main": ["0"], "side": ["mine"]}
    assert pod["spec"]["initContainers"][0]["env"]


@pytest.mark.parametrize(
    ("network", "replicas", "wanted"),
    [(None, 2, True), (None, 1, False), ({"enabled": True}, 1, True), ({"enabled": False}, 2, False)],
)
def test_addresses_are_given_where_they_are_of_use(network: JSON | None, replicas: int, wanted: bool) -> None:
    """G3.B15."""
    obj = make(process("a", replicas))
    if network is not None:
        obj["spec"]["network"] = network
    plan = plan_of(obj)
    pod = pod_of(obj, plan, PodPlan(role=plan.roles[0], index=0), queue="main")

    assert has_network(obj, plan) is wanted
    assert (pod["spec"].get("hostname"), pod["spec"].get("subdomain")) == (
        ("distill-a-0", "distill") if wanted else (None, None)
    )
    assert ("KQUEUE_LEADER_ADDRESS" in environment(obj, plan, plan.roles[0], 0)) is wanted


def test_the_service_has_no_address_of_its_own() -> None:
    service = service_of(make(TEACHER))

    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"kqueue.dev/batch-process": "distill"},
    }
    assert service["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_the_template_of_the_workload_has_no_part_of_a_single_pod() -> None:
    obj = make(TEACHER, STUDENT)
    found = template_of(obj, plan_of(obj).roles[0])

    assert found["metadata"] == {"labels": {"app": "x"}, "annotations": {"example.com/a": "b"}}
    assert "hostname" not in found["spec"]
