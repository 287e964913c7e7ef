"""Gangs by two labels: what the labels mean, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.gang.compose import Composition, compose
from kqueue.jobs.gang.coscheduling_labels import FRAMEWORK, CoschedulingLabels
from kqueue.jobs.gang.dialect import GroupProblem, ScheduleTimeouts
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.gang.naming import workload_key_of_gang
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.pod_of_parent import ReviewedPod
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name
from tests.unit.jobs.builders import JSON, prefixed
from tests.unit.jobs.pods import make_pod

NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
TIMEOUT = "kqueue.dev/schedule-timeout-seconds"
ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
AROUND = JobContext(switches=ON)


def labelled(name: str = "p0", *, group: str | None = "g", quorum: str | None = "2", **more: Any) -> JSON:
    """A pod with the labels; None: without one."""
    pod = make_pod(name, role="r", **more)
    pod["metadata"]["labels"] |= {k: v for k, v in ((NAME, group), (QUORUM, quorum)) if v is not None}
    return pod


def view(name: str = "p0", **more: Any) -> ManagedPod:
    return managed_pod(labelled(name, **more), ON)


def made_of(*members: ManagedPod, **more: Any) -> Composition | GroupProblem:
    return compose(in_order(members), ON, **more)


# --- webhooks


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        pytest.param(labelled(), [], id="fine"),
        pytest.param(labelled(group=None, quorum=None), [], id="neither"),
        pytest.param(labelled(quorum="10000"), [], id="the-most"),
        *(
            pytest.param(
                labelled(quorum=wrong),
                [f"metadata.labels[{QUORUM}]: must be a whole number of pods, 1 or more (found {wrong!r})"],
                id=f"quorum-{wrong}",
            )
            for wrong in ("two", "0", "-1", "+1", "1.5", "", "٣")
        ),
        *(
            pytest.param(
                labelled(quorum=much),
                [f"metadata.labels[{QUORUM}]: must be at most 10000 (found {much!r})"],
                id=f"quorum-{much}",
            )
            for much in ("10001", "99999999999")
        ),
        pytest.param(
            labelled(quorum=None),
            [
                f"metadata.labels[{QUORUM}]: must be set together with the group's name: how many pods of g must start "
                "together"
            ],
            id="no-quorum",
        ),
        pytest.param(
            labelled(group=None), [f"metadata.labels[{NAME}]: must be set together with {QUORUM}"], id="no-name"
        ),
        pytest.param(labelled(group=""), [f"metadata.labels[{NAME}]: must not be empty"], id="empty-name"),
        *(
            pytest.param(
                labelled(annotations={TIMEOUT: wrong}),
                [f"metadata.annotations[{TIMEOUT}]: must be a whole number of seconds, 1 or more (found {wrong!r})"],
                id=f"timeout-{wrong}",
            )
            for wrong in ("soon", "0")
        ),
        pytest.param(
            labelled(annotations={"kqueue.dev/extra": "true"}),
            ["metadata.annotations[kqueue.dev/extra]: is written by kqueue alone; take it out (found 'true')"],
            id="extra",
        ),
    ],
)
def test_wrong_labels_are_refused(pod: JSON, said: list[str]) -> None:
    """7.3, G3.L1, G3.L2: in words, with the path and the value."""
    assert [str(problem) for problem in PlainPod().problems(pod, None, AROUND)] == said


def test_members_are_gated_although_pods_are_off() -> None:
    """G2.1: the dialect brings the webhook for its own pods alone."""
    webhook = ReviewedPod({})
    fresh = labelled(gated=False)
    assert webhook.defaults(fresh, AROUND)["spec"]["schedulingGates"]
    assert webhook.defaults(labelled(group=None, quorum=None, gated=False), AROUND) == {}
    assert webhook.defaults(make_pod(group="k", total=2, gated=False), AROUND) == {}
    assert webhook.defaults(fresh, JobContext()) == {}


# --- the wish


@pytest.mark.mechanism("0.1")
def test_members_of_one_label_value_are_one_workload() -> None:
    """G3.L1, G1.11: the Workload's name is made from the group's."""
    found = made_of(view("p0"), view("p1"))
    assert isinstance(found, Composition)
    assert [(pod_set["name"], pod_set["count"]) for pod_set in found.pod_sets] == [("r", 2)]
    kind = GroupVersionKind("pod-group.scheduling.x-k8s.io", "v1", "PodGroup")
    assert workload_key_of_gang(view().group, ON) == f"team/{workload_name(kind, 'g', '')}"


def test_all_members_beyond_the_quorum_are_extras() -> None:
    """G3.L6: there is no total."""
    found = made_of(*(view(f"p{i}", born=i) for i in range(4)))
    assert isinstance(found, Composition)
    assert [pod.name for pod in found.kept] == ["p0", "p1"]
    assert [pod.name for pod in found.extras] == ["p2", "p3"]
    assert found.wish.desired is None


@pytest.mark.mechanism("0.2")
@pytest.mark.parametrize(
    ("quorum", "sentence"),
    [
        ("two", f"metadata.labels[{QUORUM}]: must be a whole number of pods, 1 or more (found 'two')"),
        ("10001", f"metadata.labels[{QUORUM}]: must be at most 10000 (found '10001')"),
        (None, "how many pods of g must start together"),
    ],
)
@pytest.mark.parametrize("born", [-1, 1])
def test_a_member_without_a_number_makes_trouble(quorum: str | None, sentence: str, born: int) -> None:
    """G3.L4: past the webhook, whether it is the oldest or not; the event is on it."""
    found = made_of(view("p0"), view("p1"), view("bad", quorum=quorum, born=born))
    assert isinstance(found, GroupProblem)
    assert (found.pod.name if found.pod is not None else "", found.incomplete) == ("bad", False)
    assert sentence in found.message


def test_the_oldest_member_says_the_quorum() -> None:
    """G3.L5: others are told, and hold nothing up."""
    found = made_of(view("p0"), view("p1", quorum="5", born=1))
    assert isinstance(found, Composition)
    assert found.wish.quorum == 2
    assert [(notice.pod.name, notice.message) for notice in found.wish.notices] == [
        ("p1", f"label {QUORUM} is 5, and 2 on pod p0 of the same group; the oldest pod counts")
    ]


def test_a_failed_member_says_nothing() -> None:
    """Its successor is the oldest then."""
    found = made_of(view("p0", quorum="9", phase="Failed"), view("p1", quorum="1"))
    assert isinstance(found, Composition)
    assert (found.wish.quorum, found.wish.notices) == (1, ())


def test_queues_that_differ_make_trouble_and_no_queue_agrees_with_all() -> None:
    """G2.5."""
    agrees = made_of(view("p0", queue=None), view("p1", queue="main"))
    assert isinstance(agrees, Composition)
    found = made_of(view("p0", queue=None), view("p1", queue="main"), view("p2", queue="other", born=1))
    assert isinstance(found, GroupProblem)
    assert found.message.startswith("label kueue.x-k8s.io/queue-name is 'other', and 'main' on pod p1 of the same")


@pytest.mark.parametrize(
    ("annotation", "seconds"), [(None, 62), ("7", 7), ("1800", 1800), ("1801", 1800), ("soon", 62)]
)
def test_the_deadline(annotation: str | None, seconds: float) -> None:
    """G3.L7, G3.42: by the quorum, unless the oldest member says it; the configuration's maximum cuts it."""
    marks = {} if annotation is None else {TIMEOUT: annotation}
    found = made_of(view("p0", annotations=marks), view("p1", annotations={TIMEOUT: "3"}, born=1))
    assert isinstance(found, Composition)
    deadline = found.wish.deadline
    assert deadline is not None
    assert (deadline.seconds, deadline.since, deadline.then) == (seconds, "admission", "retry")


def test_the_configuration_decides_about_the_deadline() -> None:
    found = made_of(view("p0"), view("p1"), timeouts=ScheduleTimeouts(base=5, per_member=2, maximum=8))
    assert isinstance(found, Composition)
    assert found.wish.deadline is not None
    assert found.wish.deadline.seconds == 8


def test_slices_need_a_quorum_of_all_members() -> None:
    """G3.27: a single pod is no slice."""
    marks = prefixed(podset_required_topology="block", podset_slice_required_topology="rack", podset_slice_size="2")
    found = made_of(*(view(f"p{i}", annotations=marks) for i in range(3)))
    assert found == GroupProblem(
        f"slices of a topology request need a quorum of all members; set label {QUORUM} to 3, or take "
        "kueue.x-k8s.io/podset-slice-size away"
    )
    assert isinstance(made_of(*(view(f"p{i}", annotations=marks) for i in range(2))), Composition)


def test_the_dialect_agrees_with_itself() -> None:
    """Pods that its webhook entry selects are those that join."""
    assert CoschedulingLabels().selection().label in labelled()["metadata"]["labels"]
    assert CoschedulingLabels().membership(labelled(group=None), ON) is None
