"""What lists tell about workloads, queues, flavors and pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.cli.ctl import pod_view, queue_view, workload_view
from kqueue.cli.ctl.workloads import Surroundings, WorkloadFilter

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
Object = dict[str, Any]


def conditions(**since: str) -> list[Object]:
    """Conditions by type: a clock time for True since then; `no` for False."""
    return [
        {"type": kind, "status": "False", "lastTransitionTime": "2026-05-01T11:00:00Z"}
        if at == "no"
        else {"type": kind, "status": "True", "lastTransitionTime": f"2026-05-01T{at}:00Z"}
        for kind, at in since.items()
    ]


def workload(*owners: Object, admitted_by: str = "", **since: str) -> Object:
    """A Workload of LocalQueue `lq`, created an hour ago."""
    return {
        "metadata": {
            "name": "w",
            "namespace": "ns",
            "creationTimestamp": "2026-05-01T11:00:00Z",
            "ownerReferences": list(owners),
        },
        "spec": {"queueName": "lq"},
        "status": {
            "conditions": conditions(**since),
            **({"admission": {"clusterQueue": admitted_by}} if admitted_by else {}),
        },
    }


def owner(kind: str, api_version: str = "batch/v1", name: str = "j") -> Object:
    """An owner reference."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}"}


@pytest.mark.parametrize(
    ("since", "status", "ran"),
    [
        pytest.param({}, "PENDING", "", id="no-conditions"),
        pytest.param({"QuotaReserved": "no"}, "PENDING", "", id="no-quota"),
        pytest.param({"QuotaReserved": "11:10"}, "QUOTARESERVED", "", id="quota"),
        pytest.param({"QuotaReserved": "11:10", "Admitted": "no"}, "QUOTARESERVED", "", id="not-admitted-yet"),
        pytest.param({"QuotaReserved": "11:10", "Admitted": "11:20"}, "ADMITTED", "40m", id="admitted"),
        pytest.param({"Admitted": "11:20", "Finished": "11:55"}, "FINISHED", "35m", id="finished"),
        pytest.param({"Finished": "11:55"}, "FINISHED", "", id="finished-without-having-run"),
        pytest.param({"Admitted": "11:20", "Finished": "no"}, "ADMITTED", "40m", id="not-finished"),
    ],
)
def test_status_and_run_time_follow_from_conditions(since: dict[str, str], status: str, ran: str) -> None:
    """The farthest condition is the status; time counts from Admitted to Finished, or to now."""
    found = workload(**since)
    assert workload_view.status_of(found) == status
    assert workload_view.exec_time(found, NOW) == ran


@pytest.mark.parametrize(
    ("owners", "types", "names"),
    [
        pytest.param([], "", "", id="nobody"),
        pytest.param([owner("Job")], "job.batch", "j", id="a-job"),
        pytest.param([owner("Pod", "v1", "p")], "pod", "p", id="core-group"),
        pytest.param([owner("Pod", "v1", "p"), owner("Pod", "v1", "q")], "pod, pod", "p, q", id="several"),
        pytest.param([owner("PyTorchJob", "kubeflow.org/v1")], "pytorchjob.kubeflow.org", "j", id="long-is-whole"),
    ],
)
def test_owners_are_told_by_type_and_name(owners: list[Object], types: str, names: str) -> None:
    """The singular with its group, however long."""
    found = workload(*owners)
    assert (workload_view.job_types(found), workload_view.job_names(found)) == (types, names)


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(workload(owner("Job")), ["w", "job.batch", "j", "lq", "of-lq", "PENDING", "3", "", "60m"],
                     id="pending-shows-its-place-and-the-queue-behind-its-queue"),
        pytest.param(workload(admitted_by="cq", QuotaReserved="11:30", Admitted="11:30"),
                     ["w", "", "", "lq", "cq", "ADMITTED", "", "30m", "60m"], id="admitted-shows-who-admitted-it"),
    ],
)  # fmt: skip
def test_a_workload_is_one_line(workload: Object, want: list[str]) -> None:
    """In the order of the columns; only pending ones have a place in the queue."""
    around = Surroundings({("ns", "lq"): "of-lq"}, {("ns", "w"): 3})
    assert around.row(workload, NOW) == want
    assert len(want) == len(workload_view.COLUMNS)


@pytest.mark.parametrize(
    ("search", "taken"),
    [
        pytest.param(WorkloadFilter(), True, id="everything"),
        pytest.param(WorkloadFilter(statuses=frozenset({"pending", "admitted"})), True, id="one-of-the-statuses"),
        pytest.param(WorkloadFilter(statuses=frozenset({"pending"})), False, id="another-status"),
        pytest.param(WorkloadFilter(cluster_queue="cq"), True, id="its-clusterqueue"),
        pytest.param(WorkloadFilter(cluster_queue="of-lq"), False, id="another-clusterqueue"),
        pytest.param(WorkloadFilter(local_queue="lq"), True, id="its-localqueue"),
        pytest.param(WorkloadFilter(local_queue="x"), False, id="another-localqueue"),
    ],
)
def test_flags_choose_workloads(search: WorkloadFilter, taken: bool) -> None:
    """All that is given must hold."""
    assert search.takes(workload(admitted_by="cq", Admitted="11:20")) is taken


@pytest.mark.parametrize(
    ("since", "said"),
    [
        pytest.param({"QuotaReserved": "no"}, "QuotaReserved says so", id="waits-for-quota"),
        pytest.param({"QuotaReserved": "11:00", "Admitted": "no"}, "Admitted says so", id="waits-for-checks"),
        pytest.param({"QuotaReserved": "11:00", "Admitted": "11:00"}, "", id="runs"),
        pytest.param({"Admitted": "11:00", "Finished": "11:30"}, "Finished says so", id="has-ended"),
        pytest.param({}, "", id="nobody-has-looked-yet"),
    ],
)
def test_a_wide_list_says_why_a_workload_is_where_it_is(since: dict[str, str], said: str) -> None:
    """In the words of its condition, behind its priority."""
    found = workload(**since)
    for each in found["status"]["conditions"]:
        each["message"] = f"{each['type']} says so"
    found["spec"]["priority"] = 7
    assert workload_view.wide_row(found, start="in 5m") == ["7", said, "in 5m"]


@pytest.mark.parametrize(
    ("start", "cell"),
    [
        pytest.param({"p50": "2026-05-01T12:05:00Z", "p90": "2026-05-01T12:20:00Z"}, "in 5m to 20m", id="an-interval"),
        pytest.param({"p50": "2026-05-01T12:05:00Z", "p90": "2026-05-01T12:05:00Z"}, "in 5m", id="one-time"),
        pytest.param({"p50": "2026-05-01T11:59:00Z", "p90": "2026-05-01T11:59:30Z"}, "in 0s", id="in-the-past"),
        pytest.param({"p50": "2026-05-01T12:05:00Z", "reason": "BeyondHorizon"}, "in 5m to ?", id="no-p90"),
        pytest.param({"reason": "UnknownRunTimes"}, "UnknownRunTimes", id="no-time"),
        pytest.param({"p50": "tomorrow"}, "", id="not-readable"),
    ],
)
def test_a_start_time_is_told_from_now(start: dict[str, str], cell: str) -> None:
    """The times from now to p50 and p90, or the reason."""
    assert workload_view.start_cell(start, datetime(2026, 5, 1, 12, tzinfo=UTC)) == cell


def test_wide_lists_say_more_of_queues_flavors_and_pods() -> None:
    """As many cells as columns."""
    inactive = {"type": "Active", "status": "False", "message": "no flavor"}
    queue = {"spec": {"queueingStrategy": "StrictFIFO", "stopPolicy": "Hold"}, "status": {"conditions": [inactive]}}
    taints = [{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"}]
    for table, obj, want in (
        (queue_view.CLUSTER_QUEUES, queue, ["StrictFIFO", "Hold", "no flavor"]),
        (queue_view.LOCAL_QUEUES, {"status": {"conditions": conditions(Active="11:00")}}, ["None", ""]),
        (
            queue_view.FLAVORS,
            {"spec": {"topologyName": "t", "nodeTaints": taints}},
            ["t", "a=b:NoSchedule, c:NoExecute"],
        ),
        (pod_view.PODS, {"spec": {"nodeName": "n"}, "status": {"podIP": "10.0.0.1"}}, ["n", "10.0.0.1"]),
    ):
        assert table.wide_row(obj) == want
        assert len(want) == len(table.wide_columns)


def test_queues_and_flavors_are_one_line_each() -> None:
    """In the order of their columns, with labels sorted and missing counts as 0."""
    meta = {"name": "n", "creationTimestamp": "2026-05-01T11:59:00Z"}
    cluster_queue = {
        "metadata": meta,
        "spec": {"cohortName": "co"},
        "status": {"pendingWorkloads": 4, "admittedWorkloads": 2, "conditions": conditions(Active="11:00")},
    }
    local_queue = {"metadata": meta, "spec": {"clusterQueue": "cq"}}
    flavor = {"metadata": meta, "spec": {"nodeLabels": {"z": "1", "a": "2"}}}
    assert queue_view.cluster_queue_row(cluster_queue, NOW) == ["n", "co", "4", "2", "true", "60s"]
    assert queue_view.cluster_queue_row({"metadata": meta}, NOW) == ["n", "", "0", "0", "false", "60s"]
    assert queue_view.local_queue_row(local_queue, NOW) == ["n", "cq", "0", "0", "60s"]
    assert queue_view.flavor_row(flavor, NOW) == ["n", "a=2, z=1", "60s"]


@pytest.mark.parametrize(
    ("group", "job", "want"),
    [
        pytest.param("batch", {"kind": "Job"}, "batch.kubernetes.io/job-name=j", id="a-job"),
        pytest.param("jobset.x-k8s.io", {"kind": "JobSet"}, "jobset.sigs.k8s.io/jobset-name=j", id="a-jobset"),
        pytest.param("apps", {"kind": "Deployment", "spec": {"selector": {"matchLabels": {"a": "b", "c": "d"}}}},
                     "a=b,c=d", id="what-a-deployment-says-itself"),
        pytest.param("apps", {"kind": "ReplicaSet", "spec": {"selector": {"matchExpressions": [
            {"key": "a", "operator": "In", "values": ["b", "c"]}, {"key": "d", "operator": "NotIn", "values": ["e"]},
            {"key": "f", "operator": "Exists"}, {"key": "g", "operator": "DoesNotExist"}]}}},
            "a in (b,c),d notin (e),f,!g", id="expressions"),
        pytest.param("", {"kind": "Pod"}, None, id="a-pod-has-none"),
        pytest.param("x.dev", {"kind": "Job"}, None, id="another-groups-job"),
        pytest.param("x.dev", {"kind": "X", "spec": {"selector": {"matchLabels": {"a": "b"}}}}, None,
                     id="a-selector-that-may-select-anything"),
    ],
)  # fmt: skip
def test_pods_of_a_job_are_found_by_labels(group: str, job: Object, want: str | None) -> None:
    """Kinds that are not known to have labels for that have none."""
    assert pod_view.pod_selector(group, {"metadata": {"name": "j"}, **job}) == want


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({"status": {"phase": "Pending"}}, "Pending", id="pending"),
        pytest.param({"spec": {"schedulingGates": [{"name": "g"}]}, "status": {"phase": "Pending"}}, "SchedulingGated",
                     id="gated"),
        pytest.param({"status": {"phase": "Running"}}, "Running", id="running"),
        pytest.param({"status": {"phase": "Succeeded"}}, "Completed", id="succeeded"),
        pytest.param({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted", id="evicted"),
        pytest.param({"status": {"phase": "Pending", "containerStatuses": [
            {"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}}, "ImagePullBackOff", id="a-container-waits"),
        pytest.param({"metadata": {"name": "p", "deletionTimestamp": "2026-05-01T12:00:00Z"},
                      "status": {"phase": "Running"}}, "Terminating", id="it-was-told-to-end"),
        pytest.param({}, "Unknown", id="no-status"),
    ],
)  # fmt: skip
def test_one_word_says_where_a_pod_is(pod: Object, want: str) -> None:
    """As kubectl's column STATUS."""
    assert pod_view.state_of({"metadata": {"name": "p"}, **pod}) == want


def test_a_pod_is_one_line() -> None:
    """Ready containers of all, restarts summed up."""
    pod = {
        "metadata": {"name": "p", "creationTimestamp": "2026-05-01T11:59:00Z"},
        "spec": {"containers": [{}, {}]},
        "status": {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 1}, {"restartCount": 2}]},
    }
    assert pod_view.row(pod, NOW) == ["p", "1/2", "Running", "3", "60s"]
