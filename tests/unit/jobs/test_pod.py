"""A pod that is queued alone: what the webhooks make of it, how it is started and stopped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.kind import JobContext, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod import PlainPod, let_go, start, stop_reason, termination_target, to_stop
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.builders import JSON, prefixed, pruned
from tests.unit.jobs.pods import ADMISSION, FINALIZER, NODE_TOLERATIONS, TOPOLOGY, make_pod

KIND = PlainPod()
PLAIN = JobContext()
WITHOUT_TOPOLOGY = JobContext(switches=JobFeatures(topology=False))
LABELS_ONLY = JobContext(switches=JobFeatures(identifier_annotations=False))


def new_pod(**meta: Any) -> JSON:
    """A pod as a user writes it, after the API server's own defaults."""
    spec = {"containers": [{"name": "c", "image": "i"}], "priority": 0, "tolerations": NODE_TOLERATIONS}
    return {"metadata": {"name": "p", "namespace": "team", **meta}, "spec": spec}


QUEUED = new_pod(labels=prefixed(queue_name="main"))


# --- defaults


@pytest.mark.proves("Pod", "webhook defaults")
def test_a_queued_pod_gets_label_finalizer_gates_and_role() -> None:
    """7.1 steps 5 to 9."""
    pod = apply_merge_patch(QUEUED, KIND.defaults(QUEUED, PLAIN))
    assert pod["metadata"]["labels"] == prefixed(queue_name="main", managed="true")
    assert pod["metadata"]["finalizers"] == [FINALIZER]
    assert pod["metadata"]["annotations"] == prefixed(role_hash="bf90803c")
    assert pod["spec"]["schedulingGates"] == [{"name": ADMISSION}, {"name": TOPOLOGY}]
    assert KIND.defaults(pod, PLAIN) == {}


@pytest.mark.parametrize(
    ("pod", "around"),
    [
        (new_pod(), PLAIN),
        (QUEUED, JobContext(managed_namespace=False)),
        (QUEUED, JobContext(managed_ancestor=True)),
        (new_pod(), JobContext(default_priority_class=True)),
        (new_pod(labels=prefixed(queue_name="main"), deletionTimestamp="2026-01-01T00:00:00Z"), PLAIN),
    ],
    ids=["no-queue", "namespace-left-out", "owner-is-queued", "only-a-class", "on-its-way-out"],
)
def test_pods_that_are_left_alone(pod: JSON, around: JobContext) -> None:
    """7.1 steps 2, 3 and 5."""
    assert KIND.defaults(pod, around) == {}


def test_pods_without_a_queue_where_that_is_asked_for() -> None:
    """7.1 steps 4 and 5: the default queue, or management without any."""
    by_default = KIND.defaults(new_pod(), JobContext(default_queue=True))
    without = KIND.defaults(new_pod(), JobContext(manage_without_queue=True))
    assert by_default["metadata"]["labels"] == prefixed(queue_name="default", managed="true")
    assert without["metadata"]["labels"] == prefixed(managed="true")


@pytest.mark.parametrize("around", [PLAIN, JobContext(managed_ancestor=True), JobContext(managed_namespace=False)])
def test_a_pod_whose_parent_asks_for_the_gate(around: JobContext) -> None:
    """7.1 step 1: gated wherever it is, without a finalizer and labels."""
    pod = new_pod(annotations=prefixed(pod_suspending_parent="deployment"))
    patch = KIND.defaults(pod, around)
    assert set(patch["metadata"]) == {"annotations"}
    assert [gate["name"] for gate in patch["spec"]["schedulingGates"]] == [ADMISSION, TOPOLOGY]


def test_without_topology_there_is_one_gate_and_no_index() -> None:
    """7.1 step 8 belongs to the gate TopologyAwareScheduling."""
    pod = new_pod(labels=prefixed(queue_name="main") | {"i": "3"}, annotations=prefixed(pod_group_pod_index_label="i"))
    index = prefixed(pod_group_pod_index="3").items()
    without, with_topology = KIND.defaults(pod, WITHOUT_TOPOLOGY), KIND.defaults(pod, PLAIN)
    assert without["spec"]["schedulingGates"] == [{"name": ADMISSION}]
    assert not index <= without["metadata"]["labels"].items()
    assert index <= with_topology["metadata"]["labels"].items()


def test_a_written_role_and_gates_of_others_stay() -> None:
    """7.1 step 9 and the gates that the user wrote."""
    pod = new_pod(labels=prefixed(queue_name="main"), annotations=prefixed(role_hash="mine"))
    pod["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
    patch = KIND.defaults(pod, WITHOUT_TOPOLOGY)
    assert "annotations" not in patch["metadata"]
    assert patch["spec"]["schedulingGates"] == [{"name": "example.com/hold"}, {"name": ADMISSION}]


# --- validation


def paths(pod: JSON, old: JSON | None = None, around: JobContext = PLAIN) -> list[str]:
    return [problem.path.partition("[")[2].rstrip("]") or problem.path for problem in KIND.problems(pod, old, around)]


def grouped(**annotations: str) -> JSON:
    return make_pod(group="g", total=2, annotations=prefixed(**annotations))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod(), []),
        (grouped(), []),
        (make_pod(labels=prefixed(managed="false")), ["managed"]),
        (make_pod(group="g"), ["pod-group-total-count"]),
        (make_pod(annotations=prefixed(pod_group_total_count="2")), ["pod-group-name"]),
        (make_pod(group="g", total=0), ["pod-group-total-count"]),
        (make_pod(group="g", total="x"), ["pod-group-total-count"]),
        (make_pod(group="g", total=2**31), ["pod-group-total-count"]),
        (make_pod(group="G g", total=2), ["pod-group-name"]),
        (make_pod(labels=prefixed(pod_group_name="g"), annotations=prefixed(pod_group_total_count="2")), []),
        (make_pod(group="g", total=2, labels=prefixed(pod_group_name="h")), ["pod-group-name"]),
        (grouped(prebuilt_workload_name="g"), []),
        (grouped(prebuilt_workload_name="h"), ["prebuilt-workload-name"]),
        (make_pod(annotations=prefixed(prebuilt_workload_name="h")), []),
        (make_pod(role="Bad_Role"), ["role-hash"]),
        (make_pod(queue="No Queue"), ["queue-name"]),
        (make_pod(annotations=prefixed(elastic_job="true")), ["elastic-job"]),
        (make_pod(annotations=prefixed(podset_required_topology="a", podset_preferred_topology="b")), ["metadata.annotations"]),
        (make_pod(annotations=prefixed(podset_slice_required_topology="a", podset_slice_size="2")), ["podset-slice-size"]),
    ],
)  # fmt: skip
@pytest.mark.proves("Pod", "webhook validation")
@pytest.mark.proves("Pod group", "webhook validation")
def test_what_is_wrong_in_a_new_pod(pod: JSON, expected: list[str]) -> None:
    """7.3, on create."""
    assert [path.removeprefix("kueue.x-k8s.io/") for path in paths(pod)] == expected


@pytest.mark.parametrize(
    ("old", "change", "expected"),
    [
        (grouped(), prefixed(pod_group_name="h"), ["pod-group-name"]),
        (grouped(), prefixed(pod_group_name=None, pod_group_total_count=None), ["pod-group-name"]),
        (make_pod(), prefixed(pod_group_name="g", pod_group_total_count="2"), []),
        (make_pod(gated=False), prefixed(pod_group_name="g", pod_group_total_count="2"), ["pod-group-name"]),
        (grouped(), prefixed(retriable_in_group="false"), []),
        (grouped(retriable_in_group="false"), prefixed(retriable_in_group="true"), ["retriable-in-group"]),
        (grouped(retriable_in_group="false"), prefixed(retriable_in_group=None), ["retriable-in-group"]),
        (make_pod(annotations=prefixed(retriable_in_group="false")), prefixed(retriable_in_group=None), []),
        (make_pod(group="g", total=2, role="a"), prefixed(role_hash="b"), []),
        (make_pod(group="g", total=2, role="a", gated=False), prefixed(role_hash="b"), ["role-hash"]),
    ],
)  # fmt: skip
@pytest.mark.proves("Pod group", "webhook validation")
def test_annotations_that_must_not_change(old: JSON, change: dict[str, Any], expected: list[str]) -> None:
    """7.3, on update: the group is for good, and so is the word that a pod is not to be tried again."""
    new = apply_merge_patch(old, {"metadata": {"annotations": change}})
    assert [path.removeprefix("kueue.x-k8s.io/") for path in paths(new, old)] == expected


@pytest.mark.parametrize(
    ("old", "change", "expected"),
    [
        (make_pod(), prefixed(queue_name="other"), []),
        (make_pod(gated=False), prefixed(queue_name="other"), ["queue-name"]),
        (make_pod(gated=False, phase="Succeeded"), prefixed(queue_name="other"), []),
        (make_pod(gated=False), prefixed(managed=None), ["managed"]),
        (make_pod(gated=False, phase="Failed"), prefixed(managed=None), []),
    ],
)
def test_labels_that_must_not_change(old: JSON, change: dict[str, Any], expected: list[str]) -> None:
    """A pod that runs keeps the labels by which it is counted."""
    new = apply_merge_patch(old, {"metadata": {"labels": change}})
    assert [path.removeprefix("kueue.x-k8s.io/") for path in paths(new, old)] == expected


def test_a_label_cannot_take_over_where_the_annotation_counts_and_the_other_way_round() -> None:
    """The group is what counts of the two, so moving the name from one to the other does not change it."""
    old = make_pod(labels=prefixed(pod_group_name="g"), annotations=prefixed(pod_group_total_count="2"))
    moved = apply_merge_patch(old, {"metadata": {"annotations": prefixed(pod_group_name="h")}})
    assert paths(moved, old) != []
    assert paths(moved, old, LABELS_ONLY) == []  # there the annotation says nothing


def test_nothing_holds_a_pod_that_is_on_its_way_out() -> None:
    """Its finalizers must be removable whatever it says."""
    assert KIND.problems(make_pod(group="g", deleted=0), grouped(), PLAIN) == []


def test_a_pod_of_a_queued_owner_is_warned_of() -> None:
    """7.3: the label on such a pod; not with a parent that asks for the gate."""
    of_parent = make_pod(annotations=prefixed(pod_suspending_parent="deployment"))
    around = JobContext(managed_ancestor=True)
    assert len(KIND.warnings(make_pod(), around)) == 1
    assert KIND.warnings(of_parent, around) == []
    assert KIND.warnings(make_pod(), PLAIN) == []


# --- to a Workload and back


@pytest.mark.proves("Pod", "queueing")
def test_the_pod_set_is_the_spec_without_labels_and_annotations() -> None:
    """7.4: main, one pod; the topology annotations become the request."""
    pod = make_pod(annotations=prefixed(podset_required_topology="rack"))
    (pod_set,) = KIND.pod_sets(pod, JobFeatures())
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    assert pruned(pod_set["template"]) == {"spec": pruned(pod["spec"])}
    assert pod_set["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "kueue.x-k8s.io/pod-group-pod-index",
    }


INFO = PodSetInfo(
    name="main", count=1, labels={"l": "1"}, annotations={"a": "1"}, node_selector={"pool": "x"},
    tolerations=({"key": "t", "operator": "Exists"},),
)  # fmt: skip
PLACED = PodSetInfo(name="main", count=1, scheduling_gates=(TOPOLOGY,))
BOTH = make_pod(gates=["example.com/hold", ADMISSION, TOPOLOGY])


def gates_after(pod: JSON, info: PodSetInfo) -> list[str]:
    patch = start(pod, info)
    assert isinstance(patch, dict)
    return [gate["name"] for gate in apply_merge_patch(pod, patch)["spec"].get("schedulingGates", [])]


@pytest.mark.proves("Pod", "start with topology")
def test_a_start_takes_our_gates_and_leaves_others() -> None:
    """7.4: the topology gate stays where a place was assigned, gates of others always."""
    assert gates_after(BOTH, INFO) == ["example.com/hold"]
    assert gates_after(BOTH, PLACED) == ["example.com/hold", TOPOLOGY]
    assert gates_after(make_pod(), INFO) == []


def test_a_start_is_one_patch_with_all_that_the_admission_adds() -> None:
    """Labels, annotations, selector and tolerations, and nothing else."""
    patch = start(make_pod(), INFO)
    assert patch == {
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}},
        "spec": {
            "nodeSelector": {"pool": "x"},
            "tolerations": [*NODE_TOLERATIONS, {"key": "t", "operator": "Exists"}],
            "schedulingGates": None,
        },
    }


def test_a_pod_without_the_gate_is_left_as_it_is() -> None:
    """7.4; of one that was started the gate of topology may be left."""
    assert start(make_pod(gates=["example.com/hold"]), INFO) == {}
    assert start(make_pod(gates=[TOPOLOGY], annotations=prefixed(workload="w")), INFO) == {}


def test_a_pod_that_topology_holds_is_started_though_a_hand_took_the_other_gate() -> None:
    """It has nothing yet of what its admission adds, and would wait for a place for ever."""
    pod = make_pod(gates=[TOPOLOGY])
    assert managed_pod(pod, JobFeatures()).gated
    assert gates_after(pod, INFO) == []
    assert gates_after(pod, PLACED) == [TOPOLOGY]


@pytest.mark.parametrize(
    ("pod", "info"),
    [
        (make_pod(nodeSelector={"pool": "y"}), INFO),
        (make_pod(labels={"l": "2"}), INFO),
        (make_pod(), PLACED),
    ],
    ids=["selector", "label", "no-gate-to-wait-at"],
)
def test_a_start_that_can_never_be(pod: JSON, info: PodSetInfo) -> None:
    """Contradictions are told, and nothing is patched."""
    assert isinstance(start(pod, info), Refused)


@pytest.mark.parametrize(
    ("pod", "evicted", "deleted"),
    [
        (make_pod(), False, True),
        (make_pod(gated=False, phase="Running"), True, True),
        (make_pod(gated=False, phase="Succeeded"), False, True),
        (make_pod(gated=False, phase="Running", deleted=0), False, False),
    ],
    ids=["gated", "running", "ended", "on-its-way"],
)
@pytest.mark.proves("Pod", "stop and restore")
def test_whom_a_stop_deletes(pod: JSON, evicted: bool, deleted: bool) -> None:
    """7.4: those held or ended only with their Workload, nobody twice."""
    assert to_stop(pod, "WorkloadEvicted") is evicted
    assert to_stop(pod, "WorkloadDeleted") is deleted


def test_why_a_pod_is_deleted_stands_on_it() -> None:
    """7.4: condition TerminationTarget with the eviction's reason."""
    applied = termination_target(make_pod(), reason=stop_reason("WorkloadEvicted", "Preempted"), message="m", now="t")
    assert applied["metadata"] == {"name": "p", "namespace": "team", "uid": "uid-p"}
    (condition,) = applied["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("TerminationTarget", "True")
    assert condition["reason"] == "WorkloadEvictedDueToPreempted"
    assert stop_reason("NotAdmitted") == "NotAdmitted"


def test_only_our_finalizer_is_taken_off() -> None:
    """7.4: foreign finalizers stay."""
    pod = apply_merge_patch(make_pod(), {"metadata": {"finalizers": ["a/b", FINALIZER]}})
    assert let_go(pod) == {"metadata": {"finalizers": ["a/b"]}}
    assert let_go(make_pod()) == {"metadata": {"finalizers": None}}
    assert let_go(make_pod(finalizer=False)) == {}


@pytest.mark.parametrize(("phase", "success"), [("Running", None), ("Succeeded", True), ("Failed", False)])
@pytest.mark.proves("Pod", "finished")
def test_a_pod_is_finished_when_it_has_terminated(phase: str, success: bool | None) -> None:
    """7.4: success by its phase, message of its status."""
    end = KIND.finished(make_pod(gated=False, phase=phase, status={"message": "m"}))
    assert (end.success if end is not None else None) is success
    assert end is None or end.message == "m"


@pytest.mark.proves("Pod", "pods ready")
def test_a_pod_is_ready_as_its_condition_says() -> None:
    """7.4; and it is never active, and suspended while gated or terminated."""
    assert KIND.pods_ready(make_pod(ready=True))
    assert not KIND.pods_ready(make_pod())
    assert not KIND.active(make_pod(gated=False, phase="Running"))
    assert [KIND.is_suspended(p) for p in (make_pod(), make_pod(gated=False), make_pod(gated=False, phase="Failed"))] == [
        True, False, True,
    ]  # fmt: skip


# --- whatever is sent

WORDS = st.sampled_from(
    ["metadata", "spec", "status", "labels", "annotations", "containers", "resources", "requests", "affinity", "name",
     "nodeAffinity", "podAffinity", "tolerations", "schedulingGates", "finalizers", "phase", "conditions", "initContainers",
     "requiredDuringSchedulingIgnoredDuringExecution", "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/queue-name",
     "kueue.x-k8s.io/pod-group-total-count", "deletionTimestamp", "creationTimestamp", "ports", "cpu"]
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)
NOT_QUITE_A_POD = st.fixed_dictionaries(
    {"metadata": st.dictionaries(WORDS, ANYTHING, max_size=5), "spec": st.dictionaries(WORDS, ANYTHING, max_size=6)},
    optional={"status": ANYTHING},
)


@settings(max_examples=300, deadline=None)
@given(NOT_QUITE_A_POD, NOT_QUITE_A_POD, st.booleans())
def test_no_shape_of_json_is_too_much(new: JSON, old: JSON, by_parent: bool) -> None:
    """Webhooks answer, and the watch has a view, whatever somebody sends."""
    if by_parent:
        new = {**new, "metadata": {**new["metadata"], "annotations": prefixed(pod_suspending_parent="deployment")}}
    KIND.defaults(new, JobContext(manage_without_queue=True))
    KIND.problems(new, old, PLAIN)
    KIND.problems(new, None, PLAIN)
    KIND.warnings(new, PLAIN)
    assert managed_pod(new, JobFeatures()).key
