"""Objects on worker clusters: how they are made of the manager's, and what comes back.

Ids such as `17.2` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.config.declared import DeclaredKind
from kqueue.config.object_path import look, put
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.declared import Declared
from kqueue.jobs.managed_by import managed_by_path
from kqueue.jobs.multikueue.copies import (
    Origin,
    caught_up,
    deactivation,
    dispatch_problem,
    forwarded,
    resized,
    status_back,
)
from kqueue.jobs.multikueue.pods import status_cleared
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod import PlainPod
from kqueue.kinds import FRAMEWORKS
from tests.unit.controllers.builders import condition, make_workload, read

JSON = dict[str, Any]
ORIGIN = Origin("west")
ORIGIN_LABEL, ORIGIN_UID = "kueue.x-k8s.io/multikueue-origin", "kueue.x-k8s.io/multikueue-origin-uid"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
MANAGER = "kueue.x-k8s.io/multikueue"
JOB = BY_FRAMEWORK["batch/job"]
DISPATCHED = [name for name, row in FRAMEWORKS.items() if row.managed_by]
UID_LABELS = {"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "j"}


def job(**spec: Any) -> JSON:
    """A Job as the API server has it, which the manager has started."""
    template = {
        "metadata": {"labels": {"app": "x", **UID_LABELS}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"pool": "of the manager"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/job-uid": "u"},
            "annotations": {"note": "n"},
            "ownerReferences": [{"kind": "CronJob"}],
            "finalizers": ["f"],
        },
        "spec": {
            "suspend": False,
            "parallelism": 2,
            "managedBy": MANAGER,
            "selector": {"matchLabels": {"controller-uid": "u"}},
            "template": template,
            **spec,
        },
        "status": {"active": 2},
    }


def workload(name: str = "w", **more: Any) -> JSON:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = make_workload(name, **more)
    made["spec"]["podSets"][0]["template"] = template
    return made


# --- the Workload -----------------------------------------------------------------------------------------------------


def test_a_workload_is_copied_with_its_marks_and_without_what_belongs_to_one_cluster() -> None:
    """17.2: the origin label and UID are added; the label job-uid, owners, finalizers, gates and the status stay."""
    original = workload(
        metadata={
            "labels": {"kueue.x-k8s.io/job-uid": "u", "team": "red"},
            "annotations": {"note": "n"},
            "finalizers": ["f"],
            "ownerReferences": [{"kind": "Job"}],
            "resourceVersion": "7",
        },
        status={"conditions": [condition("QuotaReserved")]},
        preemptionGates=[{"name": "kueue.x-k8s.io/multikueue"}],
        active=False,
    )

    copy = ORIGIN.workload_copy(original)

    assert copy["metadata"] == {
        "name": "w",
        "namespace": "ns",
        "labels": {"team": "red", ORIGIN_LABEL: "west"},
        "annotations": {"note": "n", ORIGIN_UID: "uid-of-w"},
    }
    assert copy["spec"] == {key: value for key, value in original["spec"].items() if key != "preemptionGates"} | {
        "active": True
    }
    assert set(copy) == {"apiVersion", "kind", "metadata", "spec"}


# --- the job ----------------------------------------------------------------------------------------------------------


def test_a_job_is_copied_as_its_user_wrote_it() -> None:
    """17.2: suspended, without the manager's nodes, its name in managedBy, or what the API server has added."""
    copy = ORIGIN.job_copy(JOB, job(), workload(pods=2))

    assert copy["metadata"] == {
        "name": "j",
        "namespace": "ns",
        "labels": {"kueue.x-k8s.io/queue-name": "main", PREBUILT: "w", ORIGIN_LABEL: "west"},
        "annotations": {"note": "n", ORIGIN_UID: "u", PREBUILT: "w"},
    }
    assert copy["spec"] == {
        "suspend": True,
        "parallelism": 2,
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    assert "status" not in copy


def test_a_selector_that_the_user_wrote_is_copied() -> None:
    copy = ORIGIN.job_copy(JOB, job(manualSelector=True), workload())
    assert copy["spec"]["selector"] == {"matchLabels": {"controller-uid": "u"}}


def test_a_long_name_of_a_workload_is_no_label() -> None:
    """A label's value has at most 63 characters; the annotation always has the name."""
    copy = ORIGIN.job_copy(JOB, job(), workload("w" * 64))
    assert PREBUILT not in copy["metadata"]["labels"]
    assert copy["metadata"]["annotations"][PREBUILT] == "w" * 64


@pytest.mark.parametrize("framework", DISPATCHED)
def test_the_worker_runs_the_copy_itself(framework: str) -> None:
    """17.2: the field of each kind names the manager's controller, and is left out of the copy."""
    kind = BY_FRAMEWORK[framework]
    path = managed_by_path(kind)
    ours = put({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"x": 1}}, path, MANAGER)

    assert kind.managed_by(ours) == MANAGER
    assert dispatch_problem(kind, [ours]) == ""
    copy = ORIGIN.job_copy(kind, ours, {"metadata": {"name": "w"}, "spec": {}})
    assert look(copy, path) is None
    assert copy["spec"]["x"] == 1
    assert kind.is_suspended(copy)
    assert kind.managed_by(copy) == kind.own_controller


def test_a_declared_kind_is_copied_by_its_paths() -> None:
    """17.2: a custom kind, whose field stands where its declaration says; without the field it cannot be copied."""
    told = {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "suspend": "spec.hold",
        "managedBy": "spec.run.by",
        "podSets": [{"template": "spec.engine"}],
        "succeeded": {"condition": "Arrived"},
        "ready": {"count": "status.ready"},
    }
    kind = Declared(DeclaredKind.model_validate(told))
    ours = {"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"run": {"by": MANAGER, "on": 1}}}

    assert dispatch_problem(kind, [ours]) == ""
    assert "spec.run.by" in dispatch_problem(kind, [put(ours, ("spec", "run", "by"), "example.com/own")])
    copy = ORIGIN.job_copy(kind, ours, {"metadata": {"name": "w"}, "spec": {}})
    assert copy["spec"] == {"run": {"on": 1}, "hold": True}
    assert (copy["apiVersion"], copy["kind"]) == ("example.com/v1", "Train")
    assert kind.managed_by(copy) == kind.own_controller == ""
    here = Declared(DeclaredKind.model_validate({**told, "managedBy": None}))
    assert "cannot be run" in dispatch_problem(here, [ours])


@pytest.mark.parametrize(
    ("framework", "obj", "said"),
    [
        pytest.param("batch/job", job(), "", id="17.2.1 a worker can run it"),
        pytest.param("batch/job", None, "", id="17.2.1 it is not seen yet"),
        pytest.param("batch/job", job(managedBy=None), "spec.managedBy", id="17.2.1 its own controller runs it"),
        pytest.param("kubeflow.org/jaxjob", {"spec": {}}, "spec.runPolicy.managedBy", id="17.2.1 another field"),
        pytest.param(
            "sparkoperator.k8s.io/sparkapplication", {"spec": {"suspend": True}}, "", id="17.2.1 its flag keeps it here"
        ),
        pytest.param(
            "sparkoperator.k8s.io/sparkapplication", {"spec": {}}, "runs on this cluster", id="17.2.1 it runs here"
        ),
        pytest.param(
            "sparkoperator.k8s.io/sparkapplication",
            {"spec": {"suspend": True}, "status": {"applicationState": {"state": "SUSPENDING"}}},
            "runs on this cluster",
            id="17.2.1 its pods end here",
        ),
        pytest.param("none", {}, "no kind", id="17.2.1 no kind"),
    ],
)
def test_jobs_that_no_worker_can_run(framework: str, obj: JSON | None, said: str) -> None:
    found = dispatch_problem(BY_FRAMEWORK.get(framework), [obj] if obj is not None else [])
    assert said in found
    assert bool(found) is bool(said)


# --- what comes back --------------------------------------------------------------------------------------------------


def status(obj: JSON, **fields: Any) -> JSON:
    return {**obj, "status": fields}


STARTED, HELD = job(), job(suspend=True)
ENDED = [{"type": "Failed", "status": "True"}]
STOPPING = HELD | {"metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}}


@pytest.mark.parametrize(
    ("ours", "theirs", "want"),
    [
        pytest.param(status(STARTED), status(STARTED, active=2), {"status": {"active": 2}}, id="17.2 what it says"),
        pytest.param(
            status(STARTED, active=2, ready=1), status(STARTED, active=2), {"status": {"ready": None}}, id="17.2 and no more"
        ),
        pytest.param(status(STARTED, active=2), status(STARTED, active=2), {}, id="17.2 nothing new"),
        pytest.param(status(HELD), status(STARTED, active=2), {}, id="17.2 not while it starts"),
        pytest.param(
            status(HELD), status(STARTED, conditions=ENDED), {"status": {"conditions": ENDED}}, id="17.2 it was faster"
        ),
        pytest.param(status(HELD), status(STOPPING, startTime="t"), {}, id="17.2 not while it is being stopped"),
        pytest.param(
            status(HELD, active=2), status(HELD, active=0), {"status": {"active": 0}}, id="17.2 both are stopped"
        ),
    ],
)  # fmt: skip
def test_the_status_of_a_job_comes_back(ours: JSON, theirs: JSON, want: JSON) -> None:
    assert status_back(JOB, ours, theirs) == want


APPLICATION = BY_FRAMEWORK["sparkoperator.k8s.io/sparkapplication"]


def application(state: str, *, suspend: bool) -> JSON:
    return {"spec": {"suspend": suspend}, "status": {"applicationState": {"state": state}}}


@pytest.mark.parametrize(
    ("ours", "theirs", "want"),
    [
        pytest.param("SUSPENDED", "RUNNING", "", id="17.2 the operator of the manager writes while it runs"),
        pytest.param("SUSPENDED", "SUSPENDED", "", id="17.2 both are stopped"),
        pytest.param("SUSPENDED", "COMPLETED", "COMPLETED", id="17.2 its end"),
        pytest.param("COMPLETED", "COMPLETED", "", id="17.2 nothing new"),
    ],
)
def test_only_the_end_of_an_application_comes_back(ours: str, theirs: str, want: str) -> None:
    here, there = application(ours, suspend=True), application(theirs, suspend=theirs == "SUSPENDED")
    patch = {"status": {"applicationState": {"state": want}}} if want else {}
    assert status_back(APPLICATION, here, there) == patch


def test_the_copy_of_an_application_is_suspended_and_names_its_workload() -> None:
    """17.2: the operator of the worker runs it when the worker's queue lets it."""
    ours = application("SUSPENDED", suspend=True) | {"metadata": {"name": "s", "namespace": "ns", "uid": "u"}}
    copy = ORIGIN.job_copy(APPLICATION, ours, {"metadata": {"name": "w"}, "spec": {}})
    assert copy["spec"] == {"suspend": True}
    assert copy["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] == "w"


POD = PlainPod()
KILLED = {"phase": "Failed", "conditions": [condition("TerminationTarget")]}
DEAD = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def pod(*, gated: bool = True, metadata: JSON | None = None, **fields: Any) -> JSON:
    gates = [{"name": "kueue.x-k8s.io/admission"}] if gated else []
    meta = {"name": "p", "labels": {"kueue.x-k8s.io/managed": "true"}, **(metadata or {})}
    return {"metadata": meta, "spec": {"schedulingGates": gates}, "status": fields}


def container(state: str) -> JSON:
    return {"name": "c", "state": {state: {"startedAt": "t"}}}


@pytest.mark.parametrize(
    ("ours", "theirs", "want"),
    [
        pytest.param(pod(phase="Pending"), pod(gated=False, phase="Running"), {"phase": "Running"}, id="17.2 it runs"),
        pytest.param(pod(phase="Running"), pod(gated=False, phase="Succeeded"), {"phase": "Succeeded"}, id="17.2 its end"),
        pytest.param(
            pod(phase="Running", qosClass="Burstable"),
            pod(gated=False, phase="Running", qosClass="Guaranteed", podIP="10.0.0.1", hostIPs=[{"ip": "h"}]),
            {},
            id="no address of another cluster",
        ),
        pytest.param(pod(phase="Failed"), pod(gated=False, phase="Running"), {}, id="an end stays"),
        pytest.param(pod(metadata=DEAD), pod(gated=False, phase="Running"), {}, id="it is being deleted here"),
        pytest.param(
            pod(phase="Running"), pod(gated=False, metadata=DEAD, **KILLED), {}, id="stopped by its queue, to run again"
        ),
        pytest.param(
            pod(phase="Pending"), pod(gated=False, metadata=DEAD, phase="Running"), {}, id="its copy is being deleted"
        ),
        pytest.param(
            pod(phase="Running"), pod(gated=False, metadata=DEAD, phase="Failed"), {"phase": "Failed"}, id="drained away"
        ),
        pytest.param(
            pod(phase="Running", containerStatuses=[container("terminated")]),
            pod(gated=False, phase="Running", containerStatuses=[container("running")]),
            {"containerStatuses": None},
            id="it begins anew: the old end goes first",
        ),
        pytest.param(
            pod(phase="Running"),
            pod(gated=False, phase="Running", containerStatuses=[container("running")]),
            {"containerStatuses": [container("running")]},
            id="and then the new state comes",
        ),
    ],
)  # fmt: skip
def test_the_status_of_a_pod_comes_back(ours: JSON, theirs: JSON, want: JSON) -> None:
    """17.2, 9.1: the pod of the manager has a gate, and its status all the same."""
    assert status_back(POD, ours, theirs) == ({"status": want} if want else {})


@pytest.mark.parametrize(
    ("ours", "cleared"),
    [
        pytest.param(pod(phase="Running", startTime="t", containerStatuses=[container("running")]), True, id="it ran"),
        pytest.param(pod(phase="Pending"), False, id="it waits"),
        pytest.param(pod(phase="Failed"), False, id="it has ended"),
        pytest.param(pod(gated=False, phase="Running"), False, id="it runs here"),
    ],
)
def test_a_pod_that_no_cluster_runs_waits_again(ours: JSON, cleared: bool) -> None:
    patch = status_cleared(ours)
    assert bool(patch) is cleared
    if cleared:
        waits = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        assert apply_merge_patch(ours, patch)["status"] == {"phase": "Pending", "conditions": [waits]}
        assert status_cleared(apply_merge_patch(ours, patch)) == {}


@pytest.mark.parametrize(
    ("ours", "want"),
    [
        pytest.param({"priority": 5}, {"priority": 5}, id="17.2.6 the priority"),
        pytest.param({}, {}, id="17.2.6 nothing"),
        pytest.param(
            {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}},
            {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}},
            id="17.2.6 its class",
        ),
    ],
)
def test_a_copy_gets_the_priority(ours: JSON, want: JSON) -> None:
    found: wire.Workload = read(wire.Workload, make_workload(**ours))
    patch = caught_up(found, make_workload())
    assert patch == ({"spec": want} if want else {})


def test_a_copy_gets_the_counts_and_keeps_its_templates() -> None:
    """17.2.6: an elastic job shrinks."""
    found: wire.Workload = read(wire.Workload, make_workload(pods=1))
    copy = make_workload(pods=3)
    after = apply_merge_patch(copy, caught_up(found, copy))
    assert after == make_workload(pods=1)


def test_a_worker_is_told_once_to_evict() -> None:
    """17.2.8: the worker deactivates the copy, and keeps its other conditions."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    copy = make_workload(status={"conditions": [condition("Admitted")]})
    patch = deactivation(read(wire.Workload, copy), now)

    assert patch is not None
    told = patch["status"]["conditions"]
    assert [(c["type"], c["status"], c["reason"]) for c in told] == [
        ("Admitted", "True", ""),
        ("DeactivationTarget", "True", "EvictedOnManagerCluster"),
    ]
    assert deactivation(read(wire.Workload, {**copy, "status": {"conditions": told}}), now) is None


# --- whose a copy is ----------------------------------------------------------------------------------------------


def copy_of(*, uid: str = "", origin: str = "west") -> JSON:
    annotations = {ORIGIN_UID: uid} if uid else {}
    return {"metadata": {"name": "a", "namespace": "ns", "labels": {ORIGIN_LABEL: origin}, "annotations": annotations}}


@pytest.mark.parametrize(
    ("maker", "reader", "ours"),
    [
        pytest.param("m1", "m1", True, id="of this manager"),
        pytest.param("m2", "m1", False, id="of another manager with the same label, which is the default"),
        pytest.param("", "m1", True, id="of Kueue, which writes the label alone"),
        pytest.param("m1", "", True, id="of a manager that does not know itself now"),
    ],
)
def test_managers_with_one_label_leave_each_others_copies_alone(maker: str, reader: str, ours: bool) -> None:
    copy = Origin("west", maker).workload_copy(workload())
    meta = copy["metadata"]
    assert Origin("west", reader).made(meta["labels"], meta["annotations"]) is ours


@pytest.mark.parametrize(
    ("copy", "made", "is_copy"),
    [
        pytest.param(copy_of(uid="1"), True, True, id="17.2 of this object"),
        pytest.param(copy_of(), True, True, id="17.2 made by a manager that wrote no UID"),
        pytest.param(copy_of(uid="2"), True, False, id="17.2 of an object that had the name before"),
        pytest.param(copy_of(uid="1", origin="east"), False, False, id="17.2 of another manager"),
        pytest.param({"metadata": {"name": "a"}}, False, False, id="17.2 a user's own object"),
    ],
)
def test_a_copy_is_known_by_its_marks(copy: JSON, made: bool, is_copy: bool) -> None:
    labels, annotations = copy["metadata"].get("labels", {}), copy["metadata"].get("annotations", {})
    assert (ORIGIN.made(labels, annotations), ORIGIN.is_copy(labels, annotations, "1")) == (made, is_copy)


# --- elastic jobs -----------------------------------------------------------------------------------------------------


def sized(count: int, name: str = "v", pod_set: str = "main") -> wire.Workload:
    made = make_workload(name)
    made["spec"]["podSets"] = [{"name": pod_set, "count": count, "template": {"spec": {"containers": []}}}]
    found: wire.Workload = read(wire.Workload, made)
    return found


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"parallelism": 3}, {"parallelism": 5}, id="17.2.6 its parallelism"),
        pytest.param({"parallelism": 3, "completions": 9}, {"parallelism": 5, "completions": 9}, id="completions stay"),
        pytest.param(
            {"parallelism": 3, "completions": 3, "completionMode": "Indexed"},
            {"parallelism": 5, "completions": 5, "completionMode": "Indexed"},
            id="with an index for each pod both change",
        ),
        pytest.param(
            {"parallelism": 3, "completions": 9, "completionMode": "Indexed"},
            {"parallelism": 5, "completions": 9, "completionMode": "Indexed"},
            id="with more indexes than pods they stay",
        ),
    ],
)
def test_the_copy_of_an_elastic_job_gets_a_size_and_its_slice(spec: JSON, want: JSON) -> None:
    """17.2.3, 17.2.6: in one patch; a second one is not needed."""
    copy = {"metadata": {"name": "j", "labels": {PREBUILT: "w"}, "annotations": {PREBUILT: "w"}}, "spec": spec}
    after = apply_merge_patch(copy, resized(JOB, copy, sized(5)))
    assert after["spec"] == want
    assert (after["metadata"]["labels"][PREBUILT], after["metadata"]["annotations"][PREBUILT]) == ("v", "v")
    assert resized(JOB, after, sized(5)) == {}
    long = apply_merge_patch(copy, resized(JOB, copy, sized(5, "v" * 64)))
    assert PREBUILT not in long["metadata"]["labels"]


def test_a_ray_cluster_gets_its_workers() -> None:
    """By the number of hosts of each; other groups and fields stay."""
    kind = BY_FRAMEWORK["ray.io/raycluster"]
    groups = [
        {"groupName": "Gpu", "replicas": 1, "numOfHosts": 2, "minReplicas": 0},
        {"groupName": "cpu", "replicas": 3},
    ]
    marks = {"labels": {PREBUILT: "v"}, "annotations": {PREBUILT: "v"}}
    copy = {"metadata": marks, "spec": {"headGroupSpec": {"x": 1}, "workerGroupSpecs": groups}}
    after = apply_merge_patch(copy, resized(kind, copy, sized(6, pod_set="gpu")))
    assert after["spec"] == {"headGroupSpec": {"x": 1}, "workerGroupSpecs": [{**groups[0], "replicas": 3}, groups[1]]}


def test_a_kind_of_a_fixed_size_stays_as_it_is() -> None:
    copy = {"metadata": {"labels": {PREBUILT: "w"}}, "spec": {}}
    assert resized(BY_FRAMEWORK["jobset.x-k8s.io/jobset"], copy, sized(5)) == {}


SERVICE = BY_FRAMEWORK["ray.io/rayservice"]


@pytest.mark.parametrize(
    ("ours", "theirs", "want"),
    [
        pytest.param({"serveConfigV2": "b"}, {"serveConfigV2": "a"}, {"serveConfigV2": "b"}, id="14 an edit"),
        pytest.param({"serveConfigV2": "a"}, {"serveConfigV2": "a", "defaulted": 1}, {}, id="14 no edit"),
        pytest.param(
            {"managedBy": MANAGER, "rayClusterConfig": {"suspend": False, "x": 1}},
            {"rayClusterConfig": {"suspend": True, "x": 2}},
            {},
            id="14 what the worker's own queue starts and stops stays",
        ),
    ],
)
def test_an_edit_of_a_service_reaches_its_copy(ours: JSON, theirs: JSON, want: JSON) -> None:
    """14 of the integrations: by the gate MultiKueueRemoteSpecSync."""
    copy = {"spec": theirs}
    patch = forwarded(SERVICE, {"spec": ours}, copy)
    assert patch == ({"spec": want} if want else {})
    assert forwarded(SERVICE, {"spec": ours}, apply_merge_patch(copy, patch)) == {}
    assert forwarded(JOB, {"spec": ours}, copy) == {}
