"""Quotas that follow worker clusters, as the manager writes them; each worker is a fake server."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import multikueue as api
from kqueue.controllers.multikueue_quota import QuotaAutomation, QuotaSources
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, read, status_of
from tests.unit.controllers.multikueue_world import MultiKueueWorld, Worker

KIND = "MultiKueueManagerQuotaAutomation"


def cluster_queue(cpus: str, *, check: str = "", name: str = "q") -> JSON:
    resources = [{"name": "cpu", "nominalQuota": cpus, "borrowingLimit": "7"}]
    spec: JSON = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]}
    if check:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
    return {"metadata": {"name": name, "generation": 1}, "spec": spec}


def local_queue(to: str = "q") -> JSON:
    return {"metadata": {"name": "main", "namespace": "ns"}, "spec": {"clusterQueue": to}}


class Quotas:
    """A manager with ClusterQueue `q`, and workers `a` and `b`, whose queues it watches."""

    def __init__(self, *, mode: str | None = "Automated", check: str = "multi", is_on: bool = True) -> None:
        self.told = 0
        self.world = world = MultiKueueWorld()
        assert world.config is not None
        world.config = api.MultiKueueConfig(
            metadata=world.config.metadata, spec=api.MultiKueueConfigSpec(clusters=("a", "b"), quota_management=mode)
        )
        tools = replace(world.tools, on_quota=self._on_quota)
        for worker in world.workers.values():
            worker.tools = tools
            worker.connect()
        self.mine: Store[wire.ClusterQueue] = Store("clusterqueues")
        self.locals: Store[wire.LocalQueue] = Store("localqueues")
        world.client.put(CLUSTER_QUEUES, cluster_queue("1", check=check))
        world.client.put(LOCAL_QUEUES, local_queue())
        world.client.watch(CLUSTER_QUEUES, self.mine, lambda obj: read(wire.ClusterQueue, obj))
        world.client.watch(LOCAL_QUEUES, self.locals, lambda obj: read(wire.LocalQueue, obj))
        writer: StatusWriter[wire.ClusterQueue] = StatusWriter(
            world.client,
            CLUSTER_QUEUES,
            store=self.mine,
            decode=wire.ClusterQueue,
            key_of=lambda obj: obj.metadata.name,
            version_of=lambda obj: obj.metadata.resource_version,
        )
        sources = QuotaSources(
            check=world.checks.get,
            config=lambda name: world.config if name == "all" else None,
            local_queues=self.locals.values,
            clusters=world.clusters,
        )
        self.quotas = QuotaAutomation(
            sources, world.view, writer, is_on=is_on, lost_after=timedelta(minutes=15), clock=world.clock
        )

    def _on_quota(self) -> None:
        self.told += 1

    def offer(self, name: str, cpus: str) -> Worker:
        """A worker has quota behind the LocalQueue of the same name."""
        worker = self.world.workers[name]
        link, client = worker.link, worker.client
        for resource, reflector, kind in zip(
            (LOCAL_QUEUES, CLUSTER_QUEUES), link.all()[-2:], (wire.LocalQueue, wire.ClusterQueue), strict=True
        ):
            client.watch(resource, reflector.store, partial(read, kind))
        client.put(LOCAL_QUEUES, local_queue("theirs"))
        client.put(CLUSTER_QUEUES, cluster_queue(cpus, name="theirs"))
        return worker

    async def settle(self) -> float | None:
        """The watches are brought, and the reconciler runs until it writes nothing."""
        for _ in range(5):
            self.world._bring()
            before = self.world.writes()
            again = (await self.quotas.reconcile("q")).requeue_after
            if self.world.writes() == before:
                return again
        raise AssertionError("it never ends")

    @property
    def queue(self) -> JSON:
        found = self.world.client.object(CLUSTER_QUEUES, "q")
        assert found is not None
        return found

    @property
    def resource(self) -> JSON:
        found: JSON = self.queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
        return found


async def test_quotas_follow_the_workers() -> None:
    """Limits and checks of the ClusterQueue stay; a change on a worker is noticed."""
    made = Quotas()
    made.offer("a", "4")
    worker = made.offer("b", "2")
    assert await made.settle() is None
    assert made.resource == {"name": "cpu", "nominalQuota": "6", "borrowingLimit": "7"}
    assert made.queue["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "multi"}]}
    assert status_of(made.queue, KIND) == ("True", "QuotaAutomated")

    told = made.told
    worker.client.put(CLUSTER_QUEUES, cluster_queue("8", name="theirs"))
    await made.settle()
    assert made.told == told + 1
    assert made.resource["nominalQuota"] == "12"


async def test_a_worker_that_is_lost_is_waited_for() -> None:
    """Its quota goes after the time after which its work is given up, and is back with it."""
    made = Quotas()
    made.offer("a", "4")
    worker = made.offer("b", "2")
    await made.settle()
    worker.lose()
    assert await made.settle() == 900
    assert made.resource["nominalQuota"] == "6"
    await made.world.clock.advance(900)
    assert await made.settle() is None
    assert made.resource["nominalQuota"] == "4"
    worker.connect()
    made.offer("b", "2")
    await made.settle()
    assert made.resource["nominalQuota"] == "6"


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        pytest.param({"mode": None}, ("False", "NotRequested"), id="not asked for"),
        pytest.param({"mode": "Manual"}, ("False", "NotRequested"), id="by hand"),
        pytest.param({"check": ""}, ("", ""), id="no check"),
        pytest.param({"check": "other"}, ("", ""), id="a check of another controller"),
        pytest.param({"is_on": False}, ("", ""), id="the gate is off"),
    ],
)
async def test_other_queues_are_left_alone(options: dict[str, Any], condition: tuple[str, str]) -> None:
    """A condition of former times goes where the queue does not dispatch any more."""
    made = Quotas(**options)
    made.offer("a", "4")
    former = {"type": KIND, "status": "True", "reason": "QuotaAutomated", "message": "m"}
    since = {"lastTransitionTime": "2025-12-31T00:00:00Z"}
    made.world.client.change(CLUSTER_QUEUES, "q", {"status": {"conditions": [former | since]}})
    await made.settle()
    assert made.resource["nominalQuota"] == "1"
    assert status_of(made.queue, KIND) == condition


async def test_a_missing_config_is_told() -> None:
    made = Quotas()
    made.world.config = None
    await made.settle()
    assert made.resource["nominalQuota"] == "1"
    assert status_of(made.queue, KIND) == ("False", "UnsupportedConfiguration")


async def test_a_queue_that_is_gone_or_leaves_is_not_written() -> None:
    made = Quotas()
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    made.world.client.change(CLUSTER_QUEUES, "q", {"metadata": leaving})
    await made.settle()
    made.world.client.drop(CLUSTER_QUEUES, "q")
    await made.settle()
    assert made.world.client.writes() == []
