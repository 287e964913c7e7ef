from __future__ import annotations

import re
from typing import Any

import pytest

from kqueue.errors import ForbiddenError, InvalidError
from kqueue.sandbox.api import JOBS, NODES, PODS, STRATEGIC_PATCH, GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.failure import Detailed
from tests.unit.sandbox.objects import PRIORITY_CLASSES, job, new_api, pod

NOT_READY = {
    "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
}  # fmt: skip
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def api() -> ClusterApi:
    return new_api()


async def causes(api: ClusterApi, resource: GroupVersionResource, obj: Object) -> list[tuple[str, str]]:
    with pytest.raises(InvalidError) as caught:
        await api.create(resource, obj)
    assert caught.value.status == 422
    return reasons(caught.value)


def reasons(error: Exception) -> list[tuple[str, str]]:
    assert isinstance(error, Detailed)
    return [(cause.reason.removeprefix("FieldValue"), cause.field) for cause in error.details.causes]


def affinity(*keys: str) -> Object:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


async def test_a_pod_gets_its_defaults(api: ClusterApi) -> None:
    """What users leave out is filled in, and quantities are written in their shortest form."""
    resources = {"requests": {"cpu": "1500m", "memory": "1024Mi"}, "limits": {"nvidia.com/gpu": 1}}
    created = await api.create(PODS, pod(resources=resources, volumes=[{"name": "v"}]))

    spec = created["spec"]
    (container,) = spec["containers"]
    assert (spec["restartPolicy"], spec["schedulerName"]) == ("Always", "default-scheduler")
    assert (spec["terminationGracePeriodSeconds"], spec["priority"], spec["serviceAccountName"]) == (30, 0, "default")
    assert spec["tolerations"] == [NOT_READY, UNREACHABLE]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert created["status"] == {"phase": "Pending", "qosClass": "Burstable"}


async def test_a_gated_pod_says_so(api: ClusterApi) -> None:
    """Its condition tells why it is not scheduled."""
    created = await api.create(PODS, pod(schedulingGates=[{"name": "example.com/g"}]))

    (condition,) = created["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        pytest.param({"containers": []}, [("Required", "spec.containers")], id="no-container"),
        pytest.param({"containers": [{"name": "a"}]}, [("Required", "spec.containers[0].image")], id="no-image"),
        pytest.param(
            {"containers": [{"name": "A", "image": "i"}]}, [("Invalid", "spec.containers[0].name")], id="bad-name"
        ),
        pytest.param({"restartPolicy": "No"}, [("NotSupported", "spec.restartPolicy")], id="restart-policy"),
        pytest.param({"nodeSelector": {"a": "c!"}}, [("Invalid", "spec.nodeSelector")], id="node-selector"),
        pytest.param(
            {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
            [("Forbidden", "spec.nodeName")],
            id="gated-yet-bound",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
            [("Duplicate", "spec.schedulingGates[1]")],
            id="the-same-gate-twice",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]},
            [("Invalid", "spec.tolerations[0].effect")],
            id="seconds-without-effect",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Equal", "value": "x"}]},
            [("Invalid", "spec.tolerations[0].operator")],
            id="no-key-but-a-value",
        ),
    ],
)
async def test_a_pod_that_makes_no_sense_is_refused(
    api: ClusterApi, spec: Object, found: list[tuple[str, str]]
) -> None:
    """The mistake is named with its field."""
    assert await causes(api, PODS, pod(**spec)) == found


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        pytest.param(
            {"requests": {"cpu": 2}, "limits": {"cpu": 1}}, [("Invalid", "requests")], id="more-asked-than-allowed"
        ),
        pytest.param({"requests": {"nvidia.com/gpu": 1}}, [("Required", "limits")], id="a-device-without-limit"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": "500m"}}, [("Invalid", "limits[nvidia.com/gpu]")] * 2, id="half-gpu"
        ),
        pytest.param({"requests": {"cpu": "-1"}}, [("Invalid", "requests[cpu]")], id="less-than-nothing"),
    ],
)
async def test_resources_that_make_no_sense_are_refused(
    api: ClusterApi, resources: Object, found: list[tuple[str, str]]
) -> None:
    """Requests, limits and devices obey the rules of Kubernetes."""
    base = "spec.containers[0].resources."
    wanted = {(reason, base + field) for reason, field in found}
    got = set(await causes(api, PODS, pod(resources=resources)))
    assert wanted <= {(reason, field.replace("requests[nvidia", "limits[nvidia")) for reason, field in got}


async def test_priority_comes_from_the_class(api: ClusterApi) -> None:
    """A class gives its value, the default class those that name none, and an unknown one is refused."""
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"})
    high = await api.create(PODS, pod("high", priorityClassName="high"))
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    usual = await api.create(PODS, pod("usual"))

    assert (high["spec"]["priority"], high["spec"]["preemptionPolicy"]) == (100, "Never")
    assert (usual["spec"]["priority"], usual["spec"]["priorityClassName"]) == (7, "usual")
    for spec in ({"priorityClassName": "none"}, {"priority": 3}):
        with pytest.raises(ForbiddenError):
            await api.create(PODS, pod("p", **spec))


async def test_a_limit_range_and_a_runtime_class_fill_in(api: ClusterApi) -> None:
    """Containers get the namespace's default requests, pods the overhead of their runtime."""
    limits = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}
    name = {"name": "l", "namespace": "default"}
    await api.create(GroupVersionResource("", "v1", "limitranges"), {"metadata": name, "spec": {"limits": [limits]}})
    runtime = {"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "250m"}}}
    await api.create(GroupVersionResource("node.k8s.io", "v1", "runtimeclasses"), runtime)

    created = await api.create(PODS, pod(runtimeClassName="vm"))

    assert created["spec"]["overhead"] == {"cpu": "250m"}
    assert created["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}


GATED = {"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}], "nodeSelector": {"x": "1"}}


@pytest.mark.parametrize(
    ("before", "change", "found"),
    [
        pytest.param(GATED, {"schedulingGates": []}, None, id="gates-may-go"),
        pytest.param(GATED, {"schedulingGates": [{"name": "example.com/b"}]}, None, id="one-gate-may-go"),
        pytest.param(
            GATED,
            {"schedulingGates": [{"name": "example.com/new"}]},
            [("Forbidden", "spec.schedulingGates[0].name")],
            id="gates-may-not-come",
        ),
        pytest.param(GATED, {"nodeSelector": {"y": "2"}}, None, id="a-gated-pod-may-be-aimed"),
        pytest.param(
            GATED, {"nodeSelector": {"x": "2"}}, [("Invalid", "spec.nodeSelector")], id="but-not-aimed-elsewhere"
        ),
        pytest.param(GATED, {"nodeSelector": {"y": "2"}, "schedulingGates": []}, None, id="aimed-and-released-in-one"),
        pytest.param(GATED, {"affinity": affinity("x")}, None, id="affinity-where-there-was-none"),
        pytest.param(GATED | {"affinity": affinity("x")}, {"affinity": affinity("x", "y")}, None, id="narrower"),
        pytest.param(
            GATED | {"affinity": affinity("x", "y")},
            {"affinity": affinity("x")},
            [("Invalid", f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]")],
            id="not-wider",
        ),
        pytest.param({}, {"nodeSelector": {"y": "2"}}, [("Forbidden", "spec")], id="no-aiming-without-gates"),
        pytest.param({}, {"nodeName": "n"}, [("Forbidden", "spec")], id="only-a-binding-names-the-node"),
        pytest.param({}, {"priority": 5}, [("Forbidden", "spec")], id="priority-stays"),
        pytest.param({}, {"activeDeadlineSeconds": 9}, None, id="a-deadline-may-come"),
        pytest.param(
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 9},
            [("Invalid", "spec.activeDeadlineSeconds")],
            id="a-deadline-may-not-be-put-off",
        ),
        pytest.param(
            {}, {"tolerations": [NOT_READY, UNREACHABLE, {"key": "k", "operator": "Exists"}]}, None, id="tolerant"
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Exists"}]},
            {"tolerations": [NOT_READY, UNREACHABLE]},
            [("Forbidden", "spec.tolerations")],
            id="not-less-tolerant",
        ),
        pytest.param({}, {"containers": [{"name": "c", "image": "img:v2"}]}, None, id="an-image-may-change"),
        pytest.param(
            {},
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            [("Forbidden", "spec")],
            id="requests-may-not",
        ),
    ],
)
async def test_what_may_change_in_a_pod(
    api: ClusterApi, before: Object, change: Object, found: list[tuple[str, str]] | None
) -> None:
    """Nearly nothing; gates may go, and what is gated may be aimed."""
    await api.create(PODS, pod(**before))
    content_type = STRATEGIC_PATCH if "containers" in change else "application/merge-patch+json"

    async def patch() -> Object:
        return await api.patch(PODS, "p", {"spec": change}, namespace="default", content_type=content_type)

    if found is None:
        assert (await patch())["metadata"]["generation"] == 2
        return
    with pytest.raises(InvalidError) as caught:
        await patch()
    assert reasons(caught.value) == found


async def test_a_job_gets_its_defaults_and_finds_its_pods(api: ClusterApi) -> None:
    """Counts, modes, the generated selector, and the labels that it selects by."""
    created = await api.create(JOBS, job(template={"metadata": {"labels": {"app": "x"}}}))

    spec, uid = created["spec"], created["metadata"]["uid"]
    labels = {
        "app": "x",
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"], spec["podReplacementPolicy"]) == (
        "NonIndexed", False, "TerminatingOrFailed",
    )  # fmt: skip
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == labels
    assert created["metadata"]["labels"] == labels
    assert created["status"] == {}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        pytest.param(
            {"pod_spec": {"restartPolicy": "Always"}}, [("Required", "spec.template.spec.restartPolicy")], id="restarts"
        ),
        pytest.param({"completionMode": "Indexed", "parallelism": 2}, [("Required", "spec.completions")], id="no-end"),
        pytest.param({"parallelism": -1}, [("Invalid", "spec.parallelism")], id="negative"),
        pytest.param({"completionMode": "Sorted"}, [("NotSupported", "spec.completionMode")], id="unknown-mode"),
        pytest.param(
            {"selector": {"matchLabels": {"a": "b"}}},
            [("Invalid", "spec.template.metadata.labels"), ("Invalid", "spec.selector")],
            id="a-selector-of-the-user",
        ),
    ],
)
async def test_a_job_that_makes_no_sense_is_refused(
    api: ClusterApi, spec: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    """The mistake is named with its field."""
    assert await causes(api, JOBS, job(**spec)) == found


AIM: Object = {
    "metadata": {"labels": {"n": "o"}, "annotations": {"x": "y"}},
    "spec": {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "schedulingGates": [{"name": "example.com/g"}],
        "affinity": affinity("a"),
    },
}


@pytest.mark.parametrize(
    ("state", "change", "found"),
    [
        pytest.param("suspended", {"template": AIM}, None, id="a-suspended-job-may-be-aimed"),
        pytest.param("suspended", {"template": AIM, "suspend": False}, None, id="aimed-and-started-in-one"),
        pytest.param(
            "restarted", {"template": AIM}, None, id="a-job-suspended-again-may-be-aimed-once-its-start-is-gone"
        ),
        pytest.param("running", {"template": AIM}, "spec.template", id="a-running-job-may-not"),
        pytest.param("started", {"template": AIM}, "spec.template", id="nor-a-suspended-one-that-has-started"),
        pytest.param(
            "suspended",
            {"template": {"spec": {"priorityClassName": "x"}}},
            "spec.template.spec",
            id="other-fields-stay",
        ),
        pytest.param(
            "suspended",
            {"template": {"spec": {"affinity": {"podAffinity": {}}}}},
            "spec.template.spec",
            id="affinity-to-pods-stays",
        ),
        pytest.param("running", {"parallelism": 9}, None, id="parallelism-may-change"),
        pytest.param("running", {"completions": 9}, "spec.completions", id="completions-may-not"),
        pytest.param(
            "running", {"completionMode": "Indexed", "completions": 1}, "spec.completionMode", id="nor-the-mode"
        ),
        pytest.param(
            "suspended",
            {"template": {"metadata": {"labels": {"job-name": None}}}},
            "spec.template.metadata.labels[job-name]",
            id="generated-labels-stay",
        ),
    ],
)
async def test_what_may_change_in_a_job(api: ClusterApi, state: str, change: Object, found: str | None) -> None:
    """A template is for ever, but a Job that is suspended and not started may be aimed."""
    await api.create(JOBS, job(suspend=state != "running"))
    if state in ("started", "restarted"):
        await status(api, {"startTime": "2026-01-01T00:00:00Z"})
    if state == "restarted":
        await status(api, {"startTime": None})

    if found is None:
        await api.patch(JOBS, "j", {"spec": change}, namespace="default")
        return
    with pytest.raises(InvalidError, match=re.escape(found)) as caught:
        await api.patch(JOBS, "j", {"spec": change}, namespace="default")
    assert found in [field for _, field in reasons(caught.value)]


async def status(api: ClusterApi, change: Object) -> None:
    await api.patch(JOBS, "j", {"status": change}, namespace="default", subresource="status")


async def test_indexed_jobs_may_grow_and_shrink(api: ClusterApi) -> None:
    """Completions and parallelism move together."""
    await api.create(JOBS, job(completionMode="Indexed", completions=2, parallelism=2))

    grown = await api.patch(JOBS, "j", {"spec": {"completions": 5, "parallelism": 5}}, namespace="default")

    assert grown["spec"]["completions"] == 5


async def test_resources_of_a_suspended_job_may_change(api: ClusterApi) -> None:
    """As in the real server since 1.36."""
    await api.create(JOBS, job(suspend=True))
    change = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}

    sized = await api.patch(
        JOBS, "j", {"spec": {"template": {"spec": change}}}, namespace="default", content_type=STRATEGIC_PATCH
    )

    assert sized["spec"]["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "3"}}


async def test_a_taint_that_makes_no_sense_is_refused(api: ClusterApi) -> None:
    """Key, effect and repetition are checked."""
    taints = [
        {"key": "a b", "effect": "No"},
        {"key": "k", "effect": "NoSchedule"},
        {"key": "k", "effect": "NoSchedule"},
    ]

    found = await causes(api, NODES, {"metadata": {"name": "n"}, "spec": {"taints": taints}})

    assert found == [
        ("Invalid", "spec.taints[0].key"),
        ("NotSupported", "spec.taints[0].effect"),
        ("Duplicate", "spec.taints[2]"),
    ]


async def test_a_priority_class_is_for_ever(api: ClusterApi) -> None:
    """Its value does not change, and users stay below the system's."""
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "a"}, "value": 1})

    with pytest.raises(InvalidError, match="may not be changed"):
        await api.patch(PRIORITY_CLASSES, "a", {"value": 2})
    assert await causes(api, PRIORITY_CLASSES, {"metadata": {"name": "b"}, "value": 2_000_000_000}) == [
        ("Forbidden", "value")
    ]
