"""Documents with several workloads for tests: racks of hosts with eight gpus, and gangs of whole hosts."""

from __future__ import annotations

from typing import Any

from kqueue.placing.run import Answer
from tests.unit.cli.place_documents import HOST, JSON

LEVELS = ["rack", HOST]


def make_racks(levels: list[str] | None = None, /, *, gpu: int = 8, **racks: int) -> JSON:
    """Topology and nodes: racks with so many hosts, r1 ... of rack r; they share the domains of all wider levels."""
    levels = levels or LEVELS
    nodes = []
    for rack, size in racks.items():
        for number in range(1, size + 1):
            host = f"{rack}{number}"
            labels = {**dict.fromkeys(levels, "all"), "rack": rack, HOST: host}
            nodes.append({"name": host, "labels": labels, "allocatable": {"gpu": gpu, "cpu": 64, "pods": 110}})
    return {"topology": {"levels": levels}, "nodes": nodes}


def make_gang(name: str, count: int, level: str = "required", /, **changes: Any) -> JSON:
    """A workload of whole hosts, which need or prefer one rack."""
    pods = {"name": "main", "count": count, "requests": {"gpu": 8}, "topologyRequest": {level: "rack"}}
    return {"name": name, "podSets": [pods], **changes}


def make_joint(racks: JSON, *gangs: JSON, **changes: Any) -> JSON:
    """A document."""
    return {**racks, "workloads": [*gangs], **changes}


def make_running(name: str, queue: str | None = None, /, **pods: int) -> JSON:
    """A workload of whole hosts that runs: its pods by host."""
    domains = [{"values": [host], "count": count} for host, count in pods.items()]
    found: JSON = {
        "name": name,
        "podSets": [{"count": sum(pods.values()), "requests": {"gpu": 8}}],
        "assignment": {"levels": [HOST], "domains": domains},
    }
    return found if queue is None else {**found, "queue": queue}


def racks_of(answer: Answer) -> dict[str, str]:
    """The racks of each placed workload, which are the letters of their hosts."""
    return {
        name: "".join(sorted({host.rstrip("0123456789") for host in hosts})) for name, hosts in hosts_of(answer).items()
    }


def hosts_of(answer: Answer) -> dict[str, list[str]]:
    """The hosts of each placed workload."""
    return {
        entry["name"]: [
            domain["values"][-1] for pod_set in entry["podSets"] for domain in pod_set["assignment"]["domains"]
        ]
        for entry in answer.document["workloads"]
        if entry["status"] == "Placed"
    }


def statuses_of(answer: Answer) -> dict[str, str]:
    """Status by workload."""
    return {entry["name"]: entry["status"] for entry in answer.document["workloads"]}


def failure_of(answer: Answer, name: str) -> JSON:
    """Why a workload is not placed."""
    (entry,) = (found for found in answer.document["workloads"] if found["name"] == name)
    found: JSON = entry["failure"]
    return found
