"""Differences of answers make of the answer before the answer after, or there are none."""

from __future__ import annotations

import copy
from typing import Any

from kqueue.page.changes import map_change, workloads_change
from tests.browser.answers import workload

JSON = dict[str, Any]


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


def table(*names: str) -> JSON:
    return {"items": [workload(name) for name in names], "left": 0}


def test_a_change_of_workloads_has_the_rows_that_differ() -> None:
    """A table of 20,000 rows is megabytes."""
    before = table(*(f"job-{n}" for n in range(16)))
    after = copy.deepcopy(before)
    del after["items"][2]
    after["items"][4]["state"] = "Running"
    after["items"].append(workload("new"))

    assert workloads_change(before, after) == {
        "gone": [2],
        "changed": [(5, workload("job-5", state="Running"))],
        "added": [workload("new")],
        "left": 0,
    }


def test_other_orders_and_large_changes_of_workloads_are_sent_whole() -> None:
    """New rows must be the last ones, because readers put them there."""
    names = [f"job-{n}" for n in range(8)]

    assert workloads_change(table(*names), table("new", *names)) is None
    assert workloads_change(table(*names), table(*reversed(names))) is None
    assert workloads_change(table(*names), table(*names[:4])) is None
