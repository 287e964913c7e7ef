"""Rows of workloads from objects of any form, and differences of maps."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kqueue.page.views import map_change, workload_row

JSON = dict[str, Any]


def condition(kind: str, status: str = "True", message: str = "") -> JSON:
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("conditions", "active", "state"),
    [
        ([], True, "Pending"),
        ([], False, "Stopped"),
        ([condition("QuotaReserved", "False")], True, "Pending"),
        ([condition("QuotaReserved")], True, "Reserved"),
        ([condition("QuotaReserved"), condition("Admitted")], True, "Admitted"),
        ([condition("QuotaReserved"), condition("Admitted"), condition("PodsReady")], True, "Running"),
        ([condition("QuotaReserved", "False"), condition("PodsReady")], True, "Pending"),
        ([condition("Admitted"), condition("PodsReady"), condition("Finished")], True, "Finished"),
    ],
)
def test_the_state_is_the_furthest_condition(conditions: list[JSON], active: bool, state: str) -> None:
    """Pods that were ready before an eviction do not make a waiting workload a running one."""
    assert workload_row({"spec": {"active": active}, "status": {"conditions": conditions}})["state"] == state


def test_a_row_has_what_a_person_looks_for() -> None:
    """Its owner, its queues, its pods, and why it waits."""
    row = workload_row(
        {
            "metadata": {
                "namespace": "ns",
                "name": "job-a-1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"kind": "Job", "name": "a"}],
            },
            "spec": {"queueName": "main", "priority": 7, "podSets": [{"count": 2}, {}]},
            "status": {"conditions": [condition("QuotaReserved", "False", "no room")]},
        }
    )

    assert row == {
        "namespace": "ns",
        "name": "job-a-1",
        "owner": "Job/a",
        "queue": "main",
        "clusterQueue": "",
        "priority": 7,
        "pods": 3,
        "created": "2026-01-01T00:00:00Z",
        "state": "Pending",
        "since": "2026-01-01T00:00:00Z",
        "message": "no room",
    }


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"spec": {"podSets": [None, {"count": "many"}]}, "metadata": {"ownerReferences": [{"kind": "Job"}]}},
        {"status": {"admission": []}},
    ],
)
def test_odd_objects_are_rows_too(obj: JSON) -> None:
    """One object of another version of ourselves does not empty the table."""
    assert workload_row(obj)["state"] == "Pending"


def topology_map(hosts: int = 8) -> JSON:
    leaves = {
        "name": [f"h{n}" for n in range(hosts)],
        "domain": [0] * hosts,
        "free": [8] * hosts,
        "held": [0] * hosts,
        "holder": [-1] * hosts,
    }
    flavor = {"name": "gpu", "resource": "g", "resources": ["g"], "domains": [{"name": ["r0"], "inside": []}]}
    return {"flavors": [{**flavor, "leaves": leaves, "holders": [], "leftOut": []}]}


def test_a_change_has_the_changed_leaves_alone() -> None:
    """With all their columns, and the holders and left-out nodes of the moment."""
    before = topology_map()
    after = copy.deepcopy(before)
    flavor = after["flavors"][0]
    flavor["leaves"]["free"][3], flavor["leaves"]["held"][3], flavor["leaves"]["holder"][3] = 0, 8, 0
    flavor["holders"] = [{"workload": "ns/a"}]

    assert map_change(before, after) == {
        "flavors": [
            {
                "columns": ["domain", "free", "held", "holder"],
                "leaf": [3],
                "values": [(0, 0, 8, 0)],
                "holders": [{"workload": "ns/a"}],
                "leftOut": [],
            }
        ]
    }


def test_other_hosts_and_large_changes_are_sent_whole() -> None:
    """A change of leaves that the reader does not have would draw a wrong picture."""
    before = topology_map()
    many = copy.deepcopy(before)
    many["flavors"][0]["leaves"]["free"] = [0] * 8

    assert map_change(before, topology_map(hosts=9)) is None
    assert map_change(before, many) is None
