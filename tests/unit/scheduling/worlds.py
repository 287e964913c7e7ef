"""Objects and worlds for several tests of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import (
    World,
    condition,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    read,
    reserved,
)
from tests.unit.scheduling.scheduled import Scheduled

HOST = "kubernetes.io/hostname"
IN_R2 = ("h7", "h8", "h9")
TEAMS = ("red", "green", "blue")


def three_teams() -> list[Any]:
    """A ClusterQueue and a LocalQueue of each team's name."""
    return [
        pair
        for team in TEAMS
        for pair in (
            (CLUSTER_QUEUES, make_cluster_queue(team)),
            (LOCAL_QUEUES, make_local_queue(team, cluster_queue=team)),
        )
    ]


# --- failed hosts ----------------------------------------------------------------------------------------------------


def placed(name: str = "a", *, unhealthy: tuple[str, ...] = ("h1",), required: str = "rack", **hosts: int) -> Any:
    """An admitted Workload with pods of one cpu on these hosts."""
    total = sum(hosts.values())
    workload = make_workload(name, pods=total, status=reserved(pods=total))
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": required}
    (held,) = workload["status"]["admission"]["podSetAssignments"]
    values = [{"universal": next(iter(hosts))}] if len(hosts) == 1 else [{"individual": {"roots": list(hosts)}}]
    counts = {"individual": list(hosts.values())}
    slices = [{"domainCount": len(hosts), "valuesPerLevel": values, "podCounts": counts}]
    held["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    workload["status"]["unhealthyNodes"] = [{"name": host} for host in unhealthy]
    return workload


def hospital(
    make: Callable[..., Scheduled],
    *workloads: Any,
    settings: LoopSettings | None = None,
    **cpus: int,
) -> Any:
    """A world of hosts, where these Workloads are due for their second pass: h7, h8 and h9 in rack r2, others in r1."""
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]
    world = make(
        (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": levels}}),
        (RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "all"}, topologyName="dc")),
        settings=settings,
    )
    world.sync()
    for host, amount in cpus.items():
        labels = {"rack": "r2" if host in IN_R2 else "r1", HOST: host, "pool": "all"}
        node = {
            "metadata": {"name": f"node-{host}", "labels": labels},
            "status": {"allocatable": {"cpu": str(amount), "pods": "9"}, "conditions": [condition("Ready")]},
        }
        world.intake.on_node(None, model.node_facts(read(wire_core.Node, node)))
    world.add(*workloads)
    for workload in workloads:
        world.second_pass.ask(f"ns/{workload['metadata']['name']}")
        world.second_pass.ready(f"ns/{workload['metadata']['name']}")
    world.pauses.clear()
    return world


def hosts_of(world: World, name: str = "a") -> dict[str, int]:
    """Host -> pods, as the server has it."""
    obj = read(wire.Workload, world.workload(name) or {})
    stored = obj.status.admission.pod_set_assignments[0].topology_assignment
    return {domain.values[-1]: domain.count for domain in model.assignment(stored).domains}
