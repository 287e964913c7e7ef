"""Deployments and StatefulSets in the webhooks: what their pods get, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.catalog import REVIEWED
from kqueue.jobs.deployment import Deployment
from kqueue.jobs.kind import JobContext, ReviewedKind
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.stateful_set import StatefulSet
from tests.unit.jobs.builders import make_template, prefixed
from webhooks.routes import reviewed_kinds

JSON = dict[str, Any]
HERE = JobContext()
ELSEWHERE = JobContext(managed_namespace=False)
OWNED = JobContext(managed_ancestor=True)
KINDS: list[ReviewedKind] = [Deployment(), StatefulSet()]
BOTH = pytest.mark.parametrize("kind", KINDS, ids=["deployment", "statefulset"])
QUEUE, PRIORITY = (f"metadata.labels[kueue.x-k8s.io/{name}]" for name in ("queue-name", "priority-class"))
LEADERS = "leaderworkerset.x-k8s.io/leaderworkerset"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"


def made(
    *,
    queue: str | None = "main",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    template: JSON | None = None,
    replicas: int | None = 3,
    deleted: bool = False,
    **status: int,
) -> JSON:
    own = {} if queue is None else prefixed(queue_name=queue)
    return {
        "metadata": {
            "name": "x",
            "labels": own | (labels or {}),
            "annotations": annotations or {},
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
        },
        "spec": {"replicas": replicas, "template": template or make_template(labels={"app": "x"})},
        "status": status,
    }


def paths(kind: ReviewedKind, new: JSON, old: JSON | None = None, around: JobContext = HERE) -> list[str]:
    return [problem.path for problem in kind.problems(new, old, around)]


def template_of(kind: ReviewedKind, obj: JSON, around: JobContext = HERE) -> JSON:
    found: JSON = apply_merge_patch(obj, kind.defaults(obj, around))["spec"]["template"]["metadata"]
    return found


def test_the_kinds_are_reviewed_on_create_and_update() -> None:
    """Under the names that the configuration uses."""
    assert {name: REVIEWED[name].defaults_on_update for name in ("deployment", "statefulset")} == {
        "deployment": True,
        "statefulset": True,
    }


# --- defaults


def test_pods_of_a_deployment_name_its_queue_and_class() -> None:
    """From the template on; labels of others stay; once done nothing more is changed."""
    obj = made(labels=prefixed(priority_class="high"))
    kind = Deployment()
    done = apply_merge_patch(obj, kind.defaults(obj, HERE))

    assert done["spec"]["template"]["metadata"] == {
        "labels": {"app": "x"} | prefixed(managed="true", queue_name="main", priority_class="high"),
        "annotations": prefixed(pod_suspending_parent="deployment"),
    }
    assert kind.defaults(done, HERE) == {}


def test_pods_of_a_stateful_set_learn_their_queue_later() -> None:
    """The template says only who suspends them, and that our webhook is to be asked."""
    obj = made(labels=prefixed(priority_class="high"))
    kind = StatefulSet()
    done = apply_merge_patch(obj, kind.defaults(obj, HERE))

    assert done["spec"]["template"]["metadata"] == {
        "labels": {"app": "x"} | prefixed(managed="true"),
        "annotations": prefixed(pod_suspending_parent="statefulset"),
    }
    assert kind.defaults(done, HERE) == {}


@BOTH
@pytest.mark.parametrize(
    ("obj", "around"),
    [
        pytest.param(made(queue=None), HERE, id="without a queue"),
        pytest.param(made(), ELSEWHERE, id="in a namespace that is left out, where nobody would start its pods"),
        pytest.param(made(), OWNED, id="with an owner that is queued itself"),
    ],
)
def test_what_is_not_ours_is_left_alone(kind: ReviewedKind, obj: JSON, around: JobContext) -> None:
    """No pod of it is gated."""
    assert kind.defaults(obj, around) == {}


@BOTH
def test_defaults_of_the_cluster_are_given_before_it_serves(kind: ReviewedKind) -> None:
    """Queue and class named `default`; one that has ready pods gets no class, which validation would refuse."""
    around = JobContext(default_queue=True, default_priority_class=True)
    new = kind.defaults(made(queue=None), around)["metadata"]["labels"]
    later = kind.defaults(made(readyReplicas=1), around)

    assert new == prefixed(queue_name="default", priority_class="default")
    assert "metadata" not in later


@BOTH
def test_all_are_ours_where_no_queue_is_needed(kind: ReviewedKind) -> None:
    """`manageJobsWithoutQueueName`."""
    labels = template_of(kind, made(queue=None), JobContext(manage_without_queue=True))["labels"]

    assert labels == {"app": "x"} | prefixed(managed="true")


def test_a_stateful_set_of_another_owner_of_groups_is_left_alone() -> None:
    """A LeaderWorkerSet's pods are its own affair; its StatefulSets may be scaled."""
    claimed = make_template(annotations=prefixed(pod_suspending_parent="leaderworkerset.x-k8s.io/leaderworkerset"))
    kind = StatefulSet()

    assert kind.defaults(made(template=claimed), HERE) == {}
    assert paths(kind, made(template=claimed, replicas=5), made(template=claimed)) == []


# --- validation


@BOTH
@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(made(), [], id="sound"),
        pytest.param(made(queue="Main"), [QUEUE], id="no name of a queue"),
        pytest.param(
            made(annotations=prefixed(elastic_job="true")), ["metadata.annotations[kueue.x-k8s.io/elastic-job]"],
            id="elastic",
        ),
        pytest.param(
            made(annotations=prefixed(admission_gated_by="x")), ["metadata.annotations[kueue.x-k8s.io/admission-gated-by]"],
            id="no gate",
        ),
        pytest.param(
            made(template=make_template(annotations={REQUIRED: "not a label!"})),
            [f"spec.template.metadata.annotations[{REQUIRED}]"],
            id="no level",
        ),
        pytest.param(made(queue=None, template=make_template(annotations={REQUIRED: "?"})), [], id="not ours"),
        pytest.param(made(queue="Main", deleted=True), [], id="on its way out"),
    ],
)  # fmt: skip
def test_creation(kind: ReviewedKind, new: JSON, expected: list[str]) -> None:
    """Mistakes of new objects, by path."""
    assert paths(kind, new) == expected


@BOTH
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(made(), made(queue="b"), [], id="another queue before it serves"),
        pytest.param(made(readyReplicas=1), made(queue="b"), [QUEUE], id="another queue while it serves"),
        pytest.param(made(), made(queue=None), [QUEUE], id="the queue removed, also before it serves"),
        pytest.param(made(queue=None), made(), [], id="a queue added before it serves"),
        pytest.param(made(queue=None, readyReplicas=2), made(), [QUEUE], id="a queue added while it serves"),
        pytest.param(
            made(readyReplicas=1), made(labels=prefixed(priority_class="a")), [PRIORITY], id="a class added while it serves"
        ),
        pytest.param(made(), made(labels=prefixed(priority_class="a")), [], id="a class added before"),
        pytest.param(
            made(labels=prefixed(priority_class="a")), made(), [PRIORITY], id="a class removed"
        ),
        pytest.param(
            made(labels=prefixed(priority_class="a"), readyReplicas=1), made(labels=prefixed(priority_class="b")), [],
            id="a class exchanged",
        ),
        pytest.param(
            made(template=make_template(annotations={REQUIRED: "?"})), made(template=make_template(annotations={REQUIRED: "?"})),
            [], id="old mistakes stay",
        ),
    ],
)  # fmt: skip
def test_changes_of_labels(kind: ReviewedKind, old: JSON, new: JSON, expected: list[str]) -> None:
    """What may change when."""
    assert paths(kind, new, old) == expected


def with_spec(**spec: Any) -> JSON:
    return make_template(labels={"app": "x"}, **spec)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(made(), made(replicas=0), [], id="to 0"),
        pytest.param(made(replicas=0), made(replicas=5), [], id="from 0"),
        pytest.param(made(), made(replicas=5), ["spec.replicas"], id="up"),
        pytest.param(made(), made(replicas=2), ["spec.replicas"], id="down"),
        pytest.param(made(replicas=1), made(replicas=None), [], id="one is what is not said"),
        pytest.param(made(replicas=0, replicas_left=1), made(replicas=5), [], id="other status does not matter"),
        pytest.param(made(), made(template=make_template(labels={"app": "y"})), [], id="labels of the template"),
        pytest.param(
            made(), made(template=with_spec(nodeSelector={"a": "b"})), ["spec.template.spec.nodeSelector"], id="place"
        ),
        pytest.param(
            made(), made(template=with_spec(containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}])),
            ["spec.template.spec.containers"], id="requests",
        ),
        pytest.param(
            made(), made(template=with_spec(containers=[{"name": "c", "image": "b", "resources": {"requests": {"cpu": "1000m"}}}])),
            [], id="image, and requests in other words",
        ),
        pytest.param(made(queue=None), made(queue=None, replicas=5), [], id="not ours"),
        pytest.param(made(queue=None), made(replicas=5), [], id="not ours before"),
        pytest.param(
            made(annotations=prefixed(admission_gated_by="a.b/c")), made(annotations=prefixed(admission_gated_by="a.b/c,a.b/d")),
            ["metadata.annotations[kueue.x-k8s.io/admission-gated-by]"], id="a gate more",
        ),
        pytest.param(made(annotations=prefixed(admission_gated_by="a.b/c")), made(), [], id="a gate less"),
    ],
)  # fmt: skip
def test_changes_of_a_stateful_set(old: JSON, new: JSON, expected: list[str]) -> None:
    """The gang keeps its size and shape while it is there."""
    assert paths(StatefulSet(), new, old) == expected


def test_a_stateful_set_comes_back_only_when_its_pods_are_gone() -> None:
    """Two gangs of one StatefulSet are never there at once."""
    old = made(replicas=0) | {"status": {"replicas": 2}}
    (problem,) = StatefulSet().problems(made(replicas=3), old, HERE)

    assert problem.path == "spec.replicas"
    assert "2 pods of before" in problem.problem


def test_a_deployment_is_scaled_and_reshaped_freely() -> None:
    """Each pod stands for itself."""
    assert (
        paths(Deployment(), made(replicas=9, template=with_spec(nodeSelector={"a": "b"})), made(readyReplicas=3)) == []
    )


@BOTH
def test_what_has_no_effect_is_told(kind: ReviewedKind) -> None:
    """An execution time and a prebuilt Workload are of no use to what serves for ever."""
    obj = made(labels=prefixed(max_exec_time_seconds="5"), annotations=prefixed(prebuilt_workload_name="w"))

    assert len(kind.warnings(obj, HERE)) == 2
    assert kind.warnings(made(), HERE) == []


# --- pods where plain pods are not queued


def pod_of(parent: str | None) -> JSON:
    marks = {} if parent is None else prefixed(pod_suspending_parent=parent)
    return {
        "metadata": {"name": "p", "labels": prefixed(queue_name="main"), "annotations": marks},
        "spec": {"containers": []},
    }


@pytest.mark.parametrize(
    ("frameworks", "parent", "gated"),
    [
        pytest.param(["pod"], None, True, id="plain pods are queued"),
        pytest.param(["deployment"], None, False, id="plain pods are not: nobody would take the gate off"),
        pytest.param(["deployment"], "deployment", True, id="those of a Deployment are"),
        pytest.param(["statefulset"], "statefulset", True, id="those of a StatefulSet are"),
        pytest.param(
            ["pod"], "statefulset", False, id="not where StatefulSets were on before: nobody would group them"
        ),
        pytest.param(["pod"], "deployment", True, id="where Deployments were on before each stands for itself"),
        pytest.param([LEADERS], LEADERS, True, id="those of a LeaderWorkerSet are"),
    ],
)
def test_no_pod_is_gated_that_would_stay_gated(frameworks: list[str], parent: str | None, gated: bool) -> None:
    """It starts at once instead, and its user is told."""
    kind = reviewed_kinds(frameworks)["pod"]
    broken = pod_of(parent)
    broken["metadata"]["labels"]["kueue.x-k8s.io/managed"] = "no"
    spec = apply_merge_patch(pod_of(parent), kind.defaults(pod_of(parent), HERE))["spec"]
    gates = list(prefixed(admission="", topology="")) if gated else []

    assert [gate["name"] for gate in spec.get("schedulingGates", [])] == gates
    assert len(kind.warnings(pod_of(parent), HERE)) == (0 if gated else 1)
    assert len(kind.problems(broken, None, HERE)) == (1 if gated else 0)


def test_kinds_bring_their_pods() -> None:
    """No matter whether pods are on themselves."""
    found = {name: "pod" in reviewed_kinds([name]) for name in ("pod", "deployment", "statefulset", "batch/job")}

    assert found == {"pod": True, "deployment": True, "statefulset": True, "batch/job": False}
