"""The load of a campaign: Jobs of several kinds, submitted at a bounded rate, that borrow, preempt and need topology."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from http.client import TOO_MANY_REQUESTS
from typing import Any

import aiohttp

from tests.chaos.audit import Audit
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import RACK_LABEL, Cluster
from tests.integration.road import HOST, KUEUE, Object, job, queue_objects

SHAPE = (2, 2, 3)
"""Blocks, racks and hosts: 96 GPUs, a little more than all quota, so that hosts are contended, too."""
COHORT = "campaign"
NOMINAL = {"lender": 32, "borrower": 24, "alone": 32}
"""GPUs of each ClusterQueue; `alone` is in no cohort."""
BORROWING_LIMIT = 16
PRIORITIES = {"high": 1000, "low": 0}
CPUS = 1000
SECONDS_OF_PODS = (1, 2, 3)
_BACKOFF_LIMIT = 1000
"""Pods that preemption ends count as failed for some versions of the Job controller; no Job is to fail by that."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of Jobs: how many pods with how many GPUs each, and the level that all pods must share."""

    pods: int
    gpus: int
    required: str | None = None


FORMS = (
    Form(1, 2),
    Form(2, 8),
    Form(3, 1),
    Form(2, 4, HOST),
    Form(3, 8, RACK_LABEL),
    Form(2, 8, RACK_LABEL),
)


@dataclass(slots=True)
class Load:
    """Submits Jobs while `run` runs; never more than `backlog` without an end."""

    cluster: Cluster
    audit: Audit
    chance: random.Random
    rate: float
    """Jobs per second at most."""
    backlog: int
    namespace: str = ""
    uids: dict[str, str] = field(default_factory=dict)
    """UID to name of each Job that was submitted and not removed."""
    submitted: int = 0

    async def prepare(self) -> None:
        """Make nodes, queues, priorities and a namespace."""
        await self.cluster.add_nodes(SHAPE, labels={"pool": "gpu"})
        self.namespace = await self.cluster.create_namespace("chaos")
        for collection, obj in campaign_objects(self.namespace):
            await self.cluster.request("POST", collection, obj)

    async def run(self, while_: asyncio.Event) -> None:
        """Submit Jobs until cancelled; pauses while the event is not set."""
        async with self.cluster.access.session() as session:
            while True:
                await while_.wait()
                if len(self.unfinished()) < self.backlog:
                    await self._submit(session)
                await asyncio.sleep(self.chance.uniform(0.5, 1.5) / self.rate)

    async def _submit(self, session: aiohttp.ClientSession) -> None:
        """Submit one Job; one that a busy API server does not take is left out."""
        try:
            made = await self.cluster.access.request("POST", self.jobs, self.draw(), session=session)
        except (RequestError, aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error, RequestError) and error.status < TOO_MANY_REQUESTS:
                raise
            return
        self.uids[made["metadata"]["uid"]] = made["metadata"]["name"]

    def draw(self) -> Object:
        """The next Job."""
        form, queue = self.chance.choice(FORMS), self.chance.choice(list(NOMINAL))
        self.submitted += 1
        made = job(
            f"job-{self.submitted}",
            self.namespace,
            pods=form.pods,
            gpus=form.gpus,
            required=form.required,
            run_seconds=self.chance.choice(SECONDS_OF_PODS),
            queue=queue,
        )
        priority = self.chance.choices(list(PRIORITIES), weights=(3, 7))[0]
        made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
        made["spec"]["backoffLimit"] = _BACKOFF_LIMIT
        return made

    def unfinished(self) -> list[str]:
        """Names of the Jobs that were submitted and have not been seen Complete."""
        return [name for uid, name in self.uids.items() if uid not in self.audit.complete]

    async def remove(self) -> None:
        """Delete all Jobs with what belongs to them; returns when the Jobs are gone."""
        await self.cluster.request("DELETE", f"{self.jobs}?propagationPolicy=Background")
        await self.cluster.until(self.jobs, lambda listed: not listed["items"], what="all Jobs are gone")
        self.uids.clear()

    @property
    def jobs(self) -> str:
        """Path of the Jobs."""
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"


def campaign_objects(namespace: str) -> list[tuple[str, Object]]:
    """(collection, object): Topology, flavor, the ClusterQueues with their LocalQueues, and priority classes."""
    found = queue_objects(namespace, cpus=str(CPUS))
    team = next(obj for _, obj in found if obj["kind"] == "ClusterQueue")
    shared = [(path, obj) for path, obj in found if obj["kind"] in ("Topology", "ResourceFlavor")]
    queues = [each for name in NOMINAL for each in _queue(name, namespace, team)]
    return [*shared, *queues, *(_priority(name, value) for name, value in PRIORITIES.items())]


def _queue(name: str, namespace: str, like: Object) -> list[tuple[str, Object]]:
    gpus: dict[str, Any] = {"name": "nvidia.com/gpu", "nominalQuota": str(NOMINAL[name])}
    if name == "borrower":
        gpus["borrowingLimit"] = str(BORROWING_LIMIT)
    [group] = like["spec"]["resourceGroups"]
    [flavor] = group["flavors"]
    cpu = flavor["resources"][0]
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    spec = {
        **like["spec"],
        "resourceGroups": [{**group, "flavors": [{**flavor, "resources": [cpu, gpus]}]}],
        "preemption": preemption if name != "alone" else {"withinClusterQueue": "LowerPriority"},
        **({"cohortName": COHORT} if name != "alone" else {}),
    }
    local = {**_head("LocalQueue", name), "spec": {"clusterQueue": name}}
    local["metadata"]["namespace"] = namespace
    return [
        (f"{KUEUE}/clusterqueues", {**_head("ClusterQueue", name), "spec": spec}),
        (f"{KUEUE}/namespaces/{namespace}/localqueues", local),
    ]


def _priority(name: str, value: int) -> tuple[str, Object]:
    return f"{KUEUE}/workloadpriorityclasses", {**_head("WorkloadPriorityClass", name), "value": value}


def _head(kind: str, name: str) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
