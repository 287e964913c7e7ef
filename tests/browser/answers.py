"""Answers of a cluster for the page, of any size."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
GPU = "nvidia.com/gpu"


def queues() -> JSON:
    """A cohort with two queues, of which one has borrowed."""

    def resource(**amounts: str) -> JSON:
        return {"flavor": "gpu", "resource": GPU, "borrowed": "0", "available": "8", **amounts}

    def queue(name: str, **more: Any) -> JSON:
        return {
            "metadata": {"name": name},
            "cohort": "company",
            "active": True,
            "pending": {"active": 1, "inadmissible": 2},
            "admitted": 4,
            "longestWaitSeconds": 300,
            **more,
        }

    return {
        "items": [
            queue("research", resources=[resource(nominal="64", reserved="96", borrowed="32")]),
            queue(
                "serving",
                resources=[resource(nominal="64", reserved="8")],
                active=False,
                reason="Stopped",
                message="it is stopped",
            ),
        ],
        "cohorts": [
            {
                "name": "company",
                "parent": "",
                "resources": [{"flavor": "gpu", "resource": GPU, "quota": "128", "reserved": "104"}],
            }
        ],
        "left": 0,
    }


def workload(name: str, **more: Any) -> JSON:
    """One row of the table of workloads."""
    row = {"namespace": "ns", "name": name, "owner": f"Job/{name}", "queue": "main", "clusterQueue": "", "priority": 0}
    times = {"created": "2026-01-01T00:00:00Z", "since": "2026-01-01T00:00:00Z"}
    return {**row, **times, "pods": 2, "state": "Pending", "message": "no room", **more}


def topology_list(*names: str) -> JSON:
    return {"items": [{"metadata": {"name": name}} for name in names]}


def topology_map(blocks: int = 2, racks: int = 2, hosts: int = 4) -> JSON:
    """A map: the first host of each rack is held, the second one is used by foreign pods, and one node is left out."""
    count = blocks * racks * hosts
    places = [n % hosts for n in range(count)]
    leaves = {
        "name": [f"b{n // hosts // racks}-r{n // hosts % racks}-h{n % hosts}" for n in range(count)],
        "domain": [n // hosts for n in range(count)],
        "nodes": [1] * count,
        "total": [8] * count,
        "held": [8 if place == 0 else 0 for place in places],
        "foreign": [2 if place == 1 else 0 for place in places],
        "free": [0 if place == 0 else 6 if place == 1 else 8 for place in places],
        "holder": [0 if place == 0 else -1 for place in places],
        "unbound": [0] * count,
    }
    domains = [
        {"level": "block", "name": [f"b{n}" for n in range(blocks)], "inside": []},
        {
            "level": "rack",
            "name": [f"r{n % racks}" for n in range(blocks * racks)],
            "inside": [n // racks for n in range(blocks * racks)],
        },
    ]
    flavor = {
        "name": "gpu",
        "resource": GPU,
        "resources": [GPU, "cpu"],
        "domains": domains,
        "leaves": leaves,
        "holders": [{"workload": "ns/job-a", "clusterQueue": "research"}],
        "leftOut": [{"name": "broken-node", "reason": "notReady", "path": ["b0", "r0"]}],
    }
    return {"metadata": {"name": "dc"}, "levels": ["block", "rack", "host"], "flavors": [flavor]}


def start(name: str, p50: int | None, p90: int | None = None, **more: Any) -> JSON:
    """The start time of a waiting workload, in seconds from now; None: it is not known."""
    times = {key: value for key, value in (("p50Seconds", p50), ("p90Seconds", p90)) if value is not None}
    found = {"known": p50 is not None, **times, **more}
    return {"metadata": {"namespace": "ns", "name": name}, "clusterQueue": "research", "startTime": found}


def starts(*items: JSON) -> JSON:
    assumptions = {"arrivals": "no workload arrives, and nothing is changed"}
    return {"items": list(items), "hidden": 0, "complete": True, "assumptions": assumptions}


def trends(points: int = 30, queues: int = 2, *, end: int = 1_767_225_600) -> JSON:
    """Each ClusterQueue with a number of its own, and half of the free room in racks that are partly used."""
    names = ["research", "serving", *(f"queue-{n}" for n in range(2, queues))][:queues]
    series = [
        {
            "of": of,
            "name": name,
            "resource": resource,
            "values": [(place + 1) * (number + 1) for place in range(points)],
        }
        for of, resource in (("waiting", ""), ("wait", ""), ("reserved", GPU))
        for number, name in enumerate(names)
    ]
    series += [
        {"of": of, "name": "dc/gpu", "resource": "", "values": [value] * points}
        for of, value in (("fragmentation", 500), ("spread", 1250))
    ]
    return {"time": [end - 10 * (points - place) for place in range(points)], "series": series, "left": 0}


def life() -> JSON:
    """A workload that waited for ten minutes, and has run since."""
    return {
        "moments": [
            {"time": "2026-01-01T00:00:00Z", "what": "Created", "message": "", "kind": ""},
            {"time": "2026-01-01T00:10:00Z", "what": "QuotaReserved", "message": "fits", "kind": "condition"},
            {"time": "2026-01-01T00:10:30Z", "what": "Evicted", "message": "preempted", "kind": "warning"},
        ],
        "left": 0,
        "states": [
            {"state": "Pending", "time": "2026-01-01T00:00:00Z"},
            {"state": "Reserved", "time": "2026-01-01T00:10:00Z"},
            {"state": "Finished", "time": "2026-01-01T00:20:00Z"},
        ],
    }
