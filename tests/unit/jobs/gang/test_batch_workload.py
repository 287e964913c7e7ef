"""The Workload of a BatchProcess, made before any pod."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import names
from kqueue.jobs.gang.batch_process import FRAMEWORK
from kqueue.jobs.gang.batch_slots import of_batch_process
from kqueue.jobs.gang.batch_workload import is_same, pod_sets_of, queue_of, workload_name
from kqueue.jobs.gang.naming import gang_of_workload, workload_of_gang
from kqueue.jobs.gang.value import GangRef
from tests.unit.jobs.gang.batch_builders import SWITCHES, batch, pods, workload
from tests.unit.jobs.gang.test_batch_process import process

JSON = dict[str, Any]
RACK = "kueue.x-k8s.io/podset-required-topology"
REF = GangRef(framework=FRAMEWORK, namespace="team-a", name="distill")


def test_it_has_a_pod_set_for_each_process_with_its_base_count() -> None:
    """G3.B20."""
    obj = batch(process("a", 2, 1), process("b", 0), process("c", 3, 1), group={"minAvailable": 3})

    assert [(p["name"], p["count"]) for p in pod_sets_of(obj, SWITCHES)] == [("a", 2), ("c", 1)]


def test_it_belongs_to_the_object_and_names_its_gang() -> None:
    """G1.11, G1.12."""
    made = workload(batch())
    metadata = made["metadata"]

    assert metadata["name"] == workload_of_gang(REF, SWITCHES, uid="u-1") == workload_name(batch(), SWITCHES)
    assert [(o["kind"], o["uid"], o["controller"]) for o in metadata["ownerReferences"]] == [
        ("BatchProcess", "u-1", True)
    ]
    assert metadata["annotations"][names.IS_GROUP_WORKLOAD_ANNOTATION] == "true"
    assert gang_of_workload("team-a", metadata["name"], metadata["annotations"]) == REF.key
    assert made["spec"]["queueName"] == "main"


def test_the_annotation_of_elastic_jobs_has_no_effect() -> None:
    """G2.24."""
    obj = batch()
    obj["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}

    assert workload(obj) == workload(batch())


@pytest.mark.proves("BatchProcess", "start with topology")
def test_the_topology_of_the_object_holds_for_processes_without_their_own() -> None:
    """G3.59."""
    own = {"metadata": {"annotations": {RACK: "zone"}}}
    obj = batch(process("a", 2, 1), process("b", 2, 1, template=own))
    obj["metadata"]["annotations"] = {RACK: "rack"}

    assert [p["topologyRequest"]["required"] for p in pod_sets_of(obj, SWITCHES)] == ["rack", "zone"]


@pytest.mark.parametrize(
    ("other", "queue", "same"),
    [
        pytest.param({}, "main", True, id="the same"),
        pytest.param({}, "side", False, id="another queue"),
        pytest.param({"group": {"minAvailable": 3}}, "main", False, id="another quorum"),
        pytest.param({"group": {"minAvailable": 2, "timeoutSeconds": 9}}, "main", True, id="another timeout"),
    ],
)
def test_a_workload_is_compared_with_the_object(other: JSON, queue: str, same: bool) -> None:
    """G3.B30."""
    assert is_same(batch(**other), workload(batch()), queue=queue, switches=SWITCHES) is same


@pytest.mark.parametrize(
    ("label", "of_namespace", "has_default", "queue"),
    [("a", "b", True, "a"), ("", "b", True, "b"), ("", "", True, "default"), ("", "", False, "")],
)
def test_the_queue(label: str, of_namespace: str, has_default: bool, queue: str) -> None:
    """G2.4."""
    obj = batch()
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": label}

    assert queue_of(obj, of_namespace=of_namespace, has_default=has_default) == queue


def test_pods_of_an_earlier_object_of_the_name_are_not_its_pods() -> None:
    """G7.3."""
    obj = batch()
    other = {**obj, "metadata": {**obj["metadata"], "uid": "u-0"}}
    members = [*pods(obj, teacher_0="running"), *pods(other, student_0="running")]

    assert of_batch_process(members, obj) == members[:1]
