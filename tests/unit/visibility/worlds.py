"""A cache with racks of nodes, workloads on them, and questions, for tests of summaries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.core.topology import HOSTNAME, NodeFacts, PodFacts
from kqueue.model.pending import Pending
from kqueue.state.cache import Cache
from kqueue.state.heads import HeadOptions, Heads
from kqueue.state.joint_history import JointHistory
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from kqueue.visibility.explanation import WorkloadExplainer
from kqueue.visibility.question import AuthorizedQuestion
from kqueue.visibility.sources import Freshness, Known, PlanningSource
from tests.unit.scheduling.scheduled import Scheduled

JSON = dict[str, Any]
GPU = "nvidia.com/gpu"
BLOCK, RACK = "example.com/block", "example.com/rack"


T = TypeVar("T")


def read(kind: type[T], **obj: Any) -> T:
    return msgspec.convert(obj, kind)


def node(name: str, **facts: Any) -> NodeFacts:
    """`b0-r1-h2`: its labels follow from its name; eight GPUs."""
    block, rack, _ = name.split("-")
    labels = {BLOCK: block, RACK: rack, HOSTNAME: name, "pool": "gpu", **facts.pop("labels", {})}
    labels = {key: value for key, value in labels.items() if value is not None}
    return NodeFacts(name=name, labels=labels, **{"allocatable": {"cpu": 64_000, GPU: 8, "pods": 110}, **facts})


def hosts(blocks: int = 2, racks: int = 2, hosts: int = 2) -> list[str]:
    return [f"b{b}-r{r}-h{h}" for b in range(blocks) for r in range(racks) for h in range(hosts)]


def cluster_queue(gpus: int = 64, **spec: Any) -> wire.ClusterQueue:
    quotas = [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}]
    groups = [{"coveredResources": [GPU], "flavors": quotas}]
    return read(wire.ClusterQueue, metadata={"name": "q"}, spec={"resourceGroups": groups, **spec})


def local_queue(key: str, queue: str, **spec: Any) -> wire.LocalQueue:
    namespace, _, name = key.partition("/")
    return read(
        wire.LocalQueue,
        metadata={"name": name, "namespace": namespace},
        spec={"clusterQueue": queue, **spec},
    )


def workload(
    name: str, *where: str, queue: str = "team", gpus: int = 8, admitted: bool = True, namespace: str = "ns"
) -> wire.Workload:
    """One pod of eight GPUs on each of these hosts; without hosts its quota alone is held."""
    pods = len(where) or 1
    requests = {"requests": {GPU: str(gpus)}}
    values = {"valuesPerLevel": [{"individual": {"roots": list(where)}}], "podCounts": {"universal": 1}}
    placed = {"levels": [HOSTNAME], "slices": [{"domainCount": pods, **values}]}
    entry: JSON = {
        "name": "main",
        "flavors": {GPU: "gpu"},
        "resourceUsage": {GPU: str(gpus * pods)},
        "count": pods,
    }
    if where:
        entry["topologyAssignment"] = placed
    kinds = ("QuotaReserved", "Admitted") if admitted else ("QuotaReserved",)
    return read(
        wire.Workload,
        metadata={"name": name, "namespace": namespace, "uid": name},
        spec={
            "queueName": "main",
            "podSets": [
                {"name": "main", "count": pods, "template": {"spec": {"containers": [{"resources": requests}]}}}
            ],
        },
        status={
            "admission": {"clusterQueue": queue, "podSetAssignments": [entry]},
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"} for kind in kinds
            ],
        },
    )


class Place:
    """A cache and queues with one ClusterQueue `team` on two blocks of two racks of two hosts."""

    def __init__(self, names: Collection[str] = (), **queue: Any) -> None:
        self.clock = FakeClock()
        self.cache = Cache()
        self.queues = Queues(self.clock.now, on_wake=lambda: None)
        for name in names or hosts():
            self.cache.on_node(name, node(name))
        levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOSTNAME)]
        self.cache.quota.on_topology("dc", read(wire.Topology, metadata={"name": "dc"}, spec={"levels": levels}))
        spec = {"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"}
        self.cache.on_flavor("gpu", read(wire.ResourceFlavor, metadata={"name": "gpu"}, spec=spec))
        self.add_queue("team", **queue)

    def add_queue(self, name: str, **spec: Any) -> None:
        self.cache.quota.on_cluster_queue(name, cluster_queue(**spec))
        self.queues.set_cluster_queue(name, BEST_EFFORT_FIFO)

    def hold(self, name: str, *where: str, **settings: Any) -> None:
        obj = workload(name, *where, **settings)
        self.cache.held.on_workload(f"{obj.metadata.namespace}/{name}", obj)

    def foreign(self, host: str, gpus: int) -> None:
        self.cache.held.on_pod(f"kube-system/{host}", PodFacts(node=host, requests=((GPU, gpus),)))

    def wait(self, key: str, *, local_queue: str, since: float) -> None:
        """A workload waits, and has done so for so many seconds."""
        self.queues.push(
            Pending(
                key=key,
                uid=key,
                local_queue=local_queue,
                priority=0,
                timestamp=self.clock.now() - timedelta(seconds=since),
                shape=key,
                version="1",
            )
        )


def asked(name: str = "", *, reads: Callable[[str], bool] = lambda _: True, **params: str) -> AuthorizedQuestion:
    async def may(namespace: str) -> bool:
        return reads(namespace)

    return AuthorizedQuestion(namespace="", name=name, params=params, reads=may)


def known_of(world: Scheduled) -> Known:
    """The objects of a world."""
    return Known(
        workloads=world.workloads,
        local_queues=world.local_queues,
        cache=world.cache,
        queues=world.queues,
        namespace_labels=world.namespaces.get,
    )


def planning_of(world: Scheduled, *, joint: JointHistory | None = None) -> PlanningSource:
    """The sources of the plans of a world."""
    variants, planning = world.settings.variants if world.settings is not None else None, world.loop.planning
    return PlanningSource(
        heads=Heads(world.cache, world.writer.newest, HeadOptions(variants=variants)),
        tries=world.tries,
        rules=planning.rules,
        claims=planning.claims,
        held_by=planning.held_by,
        joint=joint,
    )


def explainer_of(world: Scheduled, *, joint: JointHistory | None = None, **more: Any) -> WorkloadExplainer:
    """An explainer of the Workloads of a world; nothing holds them back, and this replica leads, unless `more` says so."""
    return WorkloadExplainer(
        known=known_of(world),
        planning=planning_of(world, joint=joint),
        clock=world.clock,
        **{"held_back": lambda _workload: (), "freshness": Freshness(leads=lambda: True), **more},
    )


def by_path(flavor: Mapping[str, Any]) -> dict[str, JSON]:
    return {"/".join(domain["path"]): domain for domain in flavor["tree"]}
