"""Paths: each kind's handler, what is off, what nobody expected, and how the API server is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kqueue.jobs.catalog import REVIEWED
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import FRAMEWORKS
from tests.unit.webhooks.test_quota import TAINT, concurrent, selector
from tests.unit.webhooks.test_workloads import TOPOLOGY, check, pod_set, reserved
from webhooks.review import Request, ReviewResult, write
from webhooks.routes import Handler, routes

Object = dict[str, Any]
FINALIZER = {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
ALL = routes(["batch/job"], JobFeatures())


def job(*, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Object:
    return {
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "main"} if labels is None else labels},
        "spec": {
            "parallelism": 4,
            "template": {"metadata": {"annotations": annotations or {}}, "spec": {"containers": []}},
        },
    }


def ask(path: str, obj: Object, *, frameworks: tuple[str, ...] = ("batch/job",)) -> ReviewResult:
    return at_once(routes(frameworks, JobFeatures())[path], Request(uid="u", operation="CREATE", obj=obj, old=None))


def at_once(handler: Handler, request: Request) -> ReviewResult:
    """The answer of a handler that has nobody to ask."""
    answering = handler(request)
    try:
        next(iter(answering.__await__()))
    except StopIteration as e:
        answer: ReviewResult = e.value
        return answer
    raise AssertionError("the handler waits for something")


def test_a_queued_job_is_suspended() -> None:
    """The label is enough; gate and labels of topology come when it starts."""
    annotated = job(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})

    assert ask("/mutate-batch-v1-job", annotated).patch == {"spec": {"suspend": True}}


def test_a_job_without_label_is_left_alone() -> None:
    """Opting in is by label."""
    assert ask("/mutate-batch-v1-job", job(labels={})).patch == {}


def test_problems_and_warnings_of_a_job_are_carried() -> None:
    """A contradiction refuses; an alias that is ignored warns."""
    modern, alias = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/prefer-topology"
    preferred = "kueue.x-k8s.io/podset-preferred-topology"
    both = ask("/validate-batch-v1-job", job(annotations={modern: "rack", preferred: "rack"}))
    warned = ask("/validate-batch-v1-job", job(annotations={modern: "rack", alias: "rack"}))

    assert [problem.path for problem in both.problems] == ["spec.template.metadata.annotations"]
    assert (list(warned.problems), len(warned.warnings)) == ([], 1)


@pytest.mark.parametrize("kind", ["clusterqueue", "resourceflavor"])
def test_objects_that_can_be_in_use_get_a_finalizer(kind: str) -> None:
    """On create, before anybody can use them."""
    assert ask(f"/mutate-kueue-x-k8s-io-v1beta2-{kind}", {"metadata": {"name": "a"}}).patch == FINALIZER


@pytest.mark.parametrize("rest", [row.webhook_path for row in FRAMEWORKS.values()])
def test_a_path_whose_integration_is_off_allows_everything(rest: str) -> None:
    """One webhook configuration serves every set of integrations; kinds not built yet are off too."""
    for verb in ("mutate", "validate"):
        assert ask(f"/{verb}-{rest}", job(), frameworks=()).allowed
    if rest not in {FRAMEWORKS[framework].webhook_path for framework in REVIEWED}:
        assert ask(f"/mutate-{rest}", job(), frameworks=tuple(FRAMEWORKS)).patch == {}


def test_paths_follow_the_ecosystem() -> None:
    """Group with dashes, version, kind; nothing for the core group."""
    assert {"/mutate--v1-pod", "/validate-jobset-x-k8s-io-v1alpha2-jobset", "/mutate-ray-io-v1-rayjob"} <= set(ALL)
    assert "/validate-kueue-x-k8s-io-v1beta2-cohort" in ALL


def update(path: str, new: Object, old: Object, switches: JobFeatures | None = None) -> list[str]:
    """Paths of what is wrong with an update."""
    handler = routes(["batch/job"], switches or JobFeatures())[path]
    answer = at_once(handler, Request(uid="u", operation="UPDATE", obj=new, old=old))
    return [problem.path for problem in answer.problems]


BAD_TIME = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/max-exec-time-seconds": "soon"}
TIME = "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]"


@pytest.mark.parametrize(
    ("new", "old", "paths"),
    [
        pytest.param(BAD_TIME | {"a": "b"}, BAD_TIME, [], id="left-as-it-is"),
        pytest.param(BAD_TIME, {k: v for k, v in BAD_TIME.items() if "time" not in k}, [TIME, TIME], id="made-now"),
        pytest.param(BAD_TIME | {TIME[16:-1]: "later"}, BAD_TIME, [TIME, TIME], id="changed-into-another"),
    ],
)
def test_an_old_mistake_blocks_no_other_change(new: dict[str, str], old: dict[str, str], paths: list[str]) -> None:
    """Rules get stricter, and what is stored stays; whoever touches the mistake has to mend it."""
    assert update("/validate-batch-v1-job", job(labels=new), job(labels=old)) == paths


@pytest.mark.parametrize(
    ("kind", "broken", "path"),
    [
        pytest.param("cohort", {"spec": {"fairSharing": {"weight": "-1"}}}, "spec.fairSharing.weight", id="cohort"),
        pytest.param("clusterqueue", {"spec": {"fairSharing": {"weight": "-1"}}}, "spec.fairSharing.weight", id="queue"),
        pytest.param(
            "resourceflavor", {"spec": {"nodeLabels": {"a b": "c"}}}, "spec.nodeLabels[a b]", id="resource-flavor"
        ),
        pytest.param("workload", {"spec": {"podSets": [{"template": {"spec": {"containers": 7}}}]}},
                     "spec.podSets[0].template.spec.containers", id="workload"),
    ],
)  # fmt: skip
def test_old_mistakes_of_our_own_kinds_block_no_other_change(kind: str, broken: Object, path: str) -> None:
    """The finalizer of an old queue can be taken off, whatever else is wrong with it."""
    where = f"/validate-kueue-x-k8s-io-v1beta2-{kind}"
    changed = broken | {"metadata": {"labels": {"a": "b"}}}

    assert path in update(where, broken, {"spec": {}})
    assert update(where, changed, broken) == []


def test_a_switch_asks_for_old_mistakes_to_block() -> None:
    """RejectUpdatesToCQWithInvalidOnFlavors."""
    checks = {"admissionChecks": [{"name": "c", "onFlavors": ["missing"]}]}
    broken = {"spec": {"admissionChecksStrategy": checks}}
    where = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"

    assert update(where, broken, broken) == []
    assert len(update(where, broken, broken, JobFeatures(strict_on_flavors=True))) == 1


JUNK: list[Any] = [None, True, 7, -1, 0.5, "", "a b", [], {}, [{}], {"a": {}}, [None], {"a": [1]}]
POD_SPEC = {
    "containers": [
        {"name": "c", "ports": [{"containerPort": 1}], "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
    ],
    "initContainers": [{"name": "i", "restartPolicy": "Always"}],
    "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
    "tolerations": [{"key": "a"}],
    "nodeSelector": {"a": "b"},
    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]}},
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "overhead": {"cpu": "1"},
}
QUEUED = {
    "name": "a",
    "labels": {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"},
    "annotations": {
        "kueue.x-k8s.io/pod-group-name": "g",
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "kueue.x-k8s.io/admission-gated-by": "example.com/a",
    },
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}],
    "finalizers": ["kueue.x-k8s.io/managed"],
}
RACK = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}, "spec": POD_SPEC}
SERVING = {"metadata": QUEUED, "spec": {"replicas": 2, "template": RACK}, "status": {"readyReplicas": 1}}
FULL: dict[str, Object] = {
    "-v1-pod": {
        "metadata": QUEUED,
        "spec": POD_SPEC,
        "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
    },
    "apps-v1-deployment": SERVING,
    "apps-v1-statefulset": SERVING,
    "jobset-x-k8s-io-v1alpha2-jobset": {
        "metadata": QUEUED,
        "spec": {
            "replicatedJobs": [
                {
                    "name": "a",
                    "replicas": 2,
                    "template": {"spec": {"parallelism": 2, "completions": 2, "template": RACK}},
                }
            ]
        },
        "status": {"replicatedJobsStatus": [{"name": "a", "ready": 1}]},
    },
    "batch-v1-job": job(
        annotations={"kueue.x-k8s.io/podset-slice-required-topology-constraints": '[{"topology": "a", "size": 2}]'}
    ),
    "kueue-x-k8s-io-v1beta2-clusterqueue": concurrent(
        last="default",
        fairSharing={"weight": 1},
        namespaceSelector=selector(),
        admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["default"]}]},
    ),
    "kueue-x-k8s-io-v1beta2-cohort": concurrent(parentName="root"),
    "kueue-x-k8s-io-v1beta2-resourceflavor": {
        "spec": {"nodeLabels": {"a": "b"}, "nodeTaints": [TAINT], "tolerations": [{"key": "a"}]},
        "metadata": {"finalizers": ["a"]},
    },
    "kueue-x-k8s-io-v1beta2-workload": reserved(
        pod_set(minCount=1, topologyRequest={"podsetSliceRequiredTopologyConstraints": [{"topology": "a", "size": 2}]}),
        reclaimablePods=[{"name": "main", "count": 1}],
        admissionChecks=[check("Ready", "a")],
        nominatedClusterNames=["a"],
        clusterName="a",
        assigned=TOPOLOGY,
    ),
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every part of a JSON value but the whole."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, part in inner for path in [(*at, key), *places(part, (*at, key))]]


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], junk) if len(path) > 1 else junk
    return copy


ALL_ON = routes(REVIEWED, JobFeatures(elastic_jobs=True, concurrent_admission=True, priority_boost=True))


@pytest.mark.parametrize("kind", FULL)
def test_no_object_however_misshapen_breaks_a_handler(kind: str) -> None:
    """Every part of an object replaced by everything else, before and after: there is an answer, and it is a review."""
    full = FULL[kind]
    damaged = [replaced(full, path, junk) for path in places(full) for junk in JUNK]
    handlers = [ALL_ON[path] for path in (f"/mutate-{kind}", f"/validate-{kind}") if path in ALL_ON]
    for obj, old in [*((d, None) for d in damaged), *((d, full) for d in damaged), *((full, d) for d in damaged)]:
        request = Request(uid="u", operation="UPDATE", obj=obj, old=old)
        for handler in handlers:
            answer = json.loads(write(request, at_once(handler, request)))["response"]

            assert answer["allowed"] is ("status" not in answer)
