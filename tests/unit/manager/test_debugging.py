"""What a process says when it is asked by a signal."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.core.topology import HOSTNAME, NodeFacts
from kqueue.core.workload import Flavor
from kqueue.manager.debugging import Signals, dump
from kqueue.model.pending import RequeueReason
from kqueue.observe import configure_logs, current_level
from kqueue.state.cache import Cache
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues


def read(kind: type[Any], **obj: Any) -> Any:
    return msgspec.convert(obj, kind, strict=False)


@pytest.fixture
def log() -> io.BytesIO:
    stream = io.BytesIO()
    configure_logs("json", "info", stream=stream)
    return stream


def lines(log: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


class World:
    """Queue q of cohort c with one flavor of two racks; two Workloads wait, one of them set aside, and one holds."""

    def __init__(self) -> None:
        self.cache, self.queues = Cache(), Queues(FakeClock().now)
        quota = {"name": "cpu", "nominalQuota": "10"}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]
        spec = {"resourceGroups": groups, "cohortName": "c"}
        self.cache.on_flavor("f", read(wire.ResourceFlavor, metadata={"name": "f"}, spec={"topologyName": "t"}))
        self.cache.ledger.on_topology("t", ("rack", HOSTNAME))
        self.cache.ledger.on_flavor("f", Flavor(name="f", topology="t", node_labels={}))
        self.cache.quota.on_cluster_queue("q", read(wire.ClusterQueue, metadata={"name": "q"}, spec=spec))
        self.queues.set_cluster_queue("q", BEST_EFFORT_FIFO)
        self.queues.set_local_queue("ns/lq", "q")
        for host, rack in (("a", "r1"), ("b", "r1"), ("c", "r2")):
            facts = NodeFacts(name=host, labels={"rack": rack, HOSTNAME: host}, allocatable={"cpu": 4000, "pods": 9})
            self.cache.on_node(host, facts)
        for name, cpus in (("first", "1"), ("second", "2"), ("holds", "3")):
            self._workload(name, cpus)
        popped = self.queues.pop_heads(lambda _queue: True)
        self.queues.requeue(popped[0][1].key, RequeueReason.NO_FIT)

    def _workload(self, name: str, cpus: str) -> None:
        template = {"spec": {"containers": [{"resources": {"requests": {"cpu": cpus}}}]}}
        held: dict[str, Any] = {}
        if name == "holds":
            entry = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpus}, "count": 1}
            condition = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                         "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
            held = {"conditions": [condition], "admission": {"clusterQueue": "q", "podSetAssignments": [entry]}}
        meta = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": f"2026-01-01T00:00:0{cpus}Z"}
        pod_sets = [{"name": "main", "count": 1, "template": template}]
        workload = read(wire.Workload, metadata=meta, spec={"queueName": "lq", "podSets": pod_sets}, status=held)
        self.cache.held.on_workload(f"ns/{name}", workload)
        if not held:
            self.queues.push(model.pending(workload))


@pytest.mark.mechanism("3.16")
async def test_a_dump_shows_queues_quotas_and_free_room(log: io.BytesIO) -> None:
    """Who waits in which order, who is set aside, what is used, and what is free in each rack."""
    world = World()
    await dump(world.cache, world.queues, FakeClock())
    told = lines(log)
    (queue,) = [line for line in told if line["event"] == "dump: cluster queue"]
    (cohort,) = [line for line in told if line["event"] == "dump: cohort"]
    domains = {tuple(line["domain"]): line["free"]["cpu"] for line in told if line["event"] == "dump: domain"}

    assert (queue["next"], queue["set_aside"]) == (["ns/second"], ["ns/first"])
    assert (queue["active"], queue["inadmissible"], queue["reserving"]) == (1, 1, 1)
    assert (queue["used"], queue["above"], cohort["used"]) == ({"f/cpu": "3/10"}, ["c"], {"f/cpu": "3/10"})
    assert domains == {("r1",): 8, ("r2",): 4}
    assert {line["level"] for line in told} == {"warning"}
    assert (told[0]["event"], told[-1]["event"], told[-1]["lines_left_out"]) == ("dump begins", "dump ends", 0)


async def test_a_dump_has_a_limit(log: io.BytesIO) -> None:
    """What is beyond is counted."""
    world = World()
    await dump(world.cache, world.queues, FakeClock(), lines_max=2)

    assert len(lines(log)) == 2 + 2
    assert lines(log)[-1]["lines_left_out"] == 2


@pytest.mark.parametrize(
    ("level", "then"),
    [
        pytest.param("info", ["debug", "info", "debug"], id="from info"),
        pytest.param("error", ["debug", "error", "debug"], id="from error"),
        pytest.param("debug", ["info", "debug", "info"], id="from debug"),
    ],
)
async def test_sigusr1_changes_the_level_and_back(log: io.BytesIO, level: str, then: list[str]) -> None:
    """Between debug and what the process was started with."""
    configure_logs("json", level, stream=log)
    Signals()
    seen = []
    for _ in then:
        os.kill(os.getpid(), signal.SIGUSR1)
        await _turns()
        seen.append(current_level())

    assert seen == then


async def test_sigusr2_dumps_once_at_a_time(log: io.BytesIO) -> None:
    """While one is under way another signal begins none; without anything to dump the process lives on and says so."""
    signals, begun, may_end = Signals(), 0, asyncio.Event()
    os.kill(os.getpid(), signal.SIGUSR2)
    await _turns()

    async def slow() -> None:
        nonlocal begun
        begun += 1
        await may_end.wait()

    signals.dump = slow
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGUSR2)
        await _turns()
    assert begun == 1
    may_end.set()
    await _turns()
    os.kill(os.getpid(), signal.SIGUSR2)
    await _turns()

    assert begun == 2
    assert [line["event"] for line in lines(log)] == ["there is nothing to dump in this process"]


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
