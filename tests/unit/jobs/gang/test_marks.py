"""Marks of gangs on pods that contradict each other, or have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.jobs.deployment import Deployment
from kqueue.jobs.gang.registry import membership, switched_on
from kqueue.jobs.kind import JobContext, ReviewedKind
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.stateful_set import StatefulSet
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import GANG_DIALECTS
from tests.unit.jobs.builders import JSON, prefixed
from tests.unit.jobs.pods import make_pod

ON = JobFeatures(gangs=switched_on(GANG_DIALECTS))
AROUND = JobContext(switches=ON)
NAME, QUORUM = gang_names.COSCHEDULING_NAME_LABEL, gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL
X_K8S, (VOLCANO, VOLCANO_2) = gang_names.POD_GROUP_X_K8S_LABEL, gang_names.VOLCANO_GROUP_ANNOTATIONS
TIMEOUT = gang_names.SCHEDULE_TIMEOUT_ANNOTATION
LABELLED = {NAME: "g", QUORUM: "2"}


def pod(labels: JSON | None = None, annotations: JSON | None = None, **spec: Any) -> JSON:
    """A queued pod with these marks."""
    return make_pod(role="r", labels=labels or {}, annotations=annotations or {}, **spec)


K8S = {"schedulingGroup": {"podGroupName": "k"}}
KUEUE = prefixed(pod_group_name="k", pod_group_total_count="2")


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        pytest.param(
            pod(LABELLED | {X_K8S: "h"}),
            [
                f"metadata.labels[{NAME}]: names two groups: team/scheduling.x-k8s.io/podgroup:h and "
                "team/kqueue.dev/coscheduling-labels:g; keep one (found 'g')"
            ],
            id="podgroup-and-labels",
        ),
        pytest.param(
            pod({X_K8S: "h"}, **K8S),
            [
                f"metadata.labels[{X_K8S}]: names two groups: team/scheduling.k8s.io/podgroup:k and "
                "team/scheduling.x-k8s.io/podgroup:h; keep one (found 'h')"
            ],
            id="field-and-podgroup",
        ),
        pytest.param(
            pod(LABELLED, {VOLCANO: "v"}),
            [
                f"metadata.annotations[{VOLCANO}]: names two groups: team/kqueue.dev/coscheduling-labels:g and "
                "team/scheduling.volcano.sh/podgroup:v; keep one (found 'v')"
            ],
            id="labels-and-volcano",
        ),
        pytest.param(
            pod({X_K8S: "h"}, KUEUE),
            [
                f"metadata.labels[{X_K8S}]: names two groups: team/k and team/scheduling.x-k8s.io/podgroup:h; keep one "
                "(found 'h')"
            ],
            id="a-group-of-kueue-and-podgroup",
        ),
        pytest.param(pod(LABELLED | {X_K8S: "g"}), [], id="podgroup-and-labels-of-one-name"),
        pytest.param(pod({NAME: "g", X_K8S: "g"}), [], id="which-need-no-quorum"),
        pytest.param(pod(None, {VOLCANO: "v", VOLCANO_2: "w"}), [], id="two-annotations-of-volcano"),
        pytest.param(
            pod({X_K8S: "h"}, prefixed(prebuilt_workload_name="w")),
            [
                f"metadata.annotations[{names.PREBUILT_WORKLOAD_NAME_ANNOTATION}]: cannot use a prebuilt Workload; "
                "remove it (found 'w')"
            ],
            id="a-prebuilt-workload",
        ),
        pytest.param(pod({X_K8S: ""}), [f"metadata.labels[{X_K8S}]: must not be empty (found '')"], id="no-name"),
        pytest.param(
            pod({X_K8S: "h"}, {gang_names.EXTRA_ANNOTATION: "true"}),
            ["metadata.annotations[kqueue.dev/extra]: is written by kqueue alone; take it out (found 'true')"],
            id="extra",
        ),
        pytest.param(
            pod(
                {X_K8S: "h"}, prefixed(pod_group_fast_admission="true", retriable_in_group="false", elastic_job="true")
            ),
            [],
            id="marks-that-are-allowed-beside-every-dialect",
        ),
    ],
)
def test_contradictions_are_refused_on_creation(obj: JSON, said: list[str]) -> None:
    """G2.19 to G2.24: at the field of the second group; an existing pod keeps what it has."""
    assert [str(problem) for problem in PlainPod().problems(obj, None, AROUND)] == said
    if any("two groups" in each for each in said):
        assert PlainPod().problems(obj, obj, AROUND) == []


def test_a_podgroup_counts_before_labels_of_the_same_name() -> None:
    """G2.20: only where its dialect is on."""
    both = pod(LABELLED | {X_K8S: "g"})
    found = membership(both, ON)
    labels_alone = JobFeatures(gangs=("pod", "kqueue.dev/coscheduling-labels"))
    alone = membership(both, labels_alone)

    assert found is not None
    assert found.framework == "scheduling.x-k8s.io/podgroup"
    assert alone is not None
    assert alone.framework == "kqueue.dev/coscheduling-labels"


@pytest.mark.parametrize(
    ("obj", "around", "said"),
    [
        pytest.param(pod(LABELLED), AROUND, [], id="fine"),
        pytest.param(
            pod(LABELLED | {X_K8S: "g"}),
            AROUND,
            [f"metadata.labels[{QUORUM}] has no effect: PodGroup g has the quorum"],
            id="a-quorum-beside-a-podgroup",
        ),
        pytest.param(
            pod(LABELLED, {TIMEOUT: "1801"}),
            AROUND,
            [f"metadata.annotations[{TIMEOUT}] is cut to 1800 s, the cluster's maximum"],
            id="a-deadline-that-is-cut",
        ),
        pytest.param(pod(LABELLED, {TIMEOUT: "1800"}), AROUND, [], id="the-longest-deadline"),
        pytest.param(
            pod({X_K8S: "h"}, prefixed(elastic_job="true")),
            AROUND,
            [f"metadata.annotations[{names.ELASTIC_JOB_ANNOTATION}] has no effect on a pod of a gang"],
            id="elastic",
        ),
        pytest.param(
            pod({X_K8S: "h"}, queue=None) | {},
            JobContext(switches=ON, managed_ancestor=True, ancestor="Job train"),
            [
                f"metadata.labels[{names.MANAGED_LABEL}] is set on a pod whose owner is queued itself; remove the "
                "label, the owner's Workload counts it",
                f"metadata.labels[{X_K8S}] has no effect: Job train, which owns the pod, is queued itself",
            ],
            id="owned-by-a-queued-job",
        ),
    ],
)
def test_marks_without_effect_are_told(obj: JSON, around: JobContext, said: list[str]) -> None:
    """G2.9, G2.20, G2.24, G3.42."""
    assert PlainPod().warnings(obj, around) == said


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param(Deployment(), "cannot be on a queued Deployment: its pods are queued one by one", id="Deployment"),
        pytest.param(
            StatefulSet(), "cannot be on a queued StatefulSet: its pods are one group already", id="StatefulSet"
        ),
    ],
)
def test_templates_of_objects_that_are_queued_otherwise_have_no_gang(kind: ReviewedKind, said: str) -> None:
    """G2.23: where the object is queued; elsewhere its pods may be members."""
    template = {"metadata": {"labels": LABELLED}, "spec": {"containers": []}}
    queued = {"metadata": {"name": "d", "labels": prefixed(queue_name="q")}, "spec": {"template": template}}
    alone = {"metadata": {"name": "d"}, "spec": {"template": template}}

    assert [str(problem) for problem in kind.problems(queued, None, AROUND)] == [
        f"spec.template.metadata.labels[{NAME}]: {said} (found 'g')"
    ]
    assert kind.problems(alone, None, AROUND) == []
