"""The row of steady arrivals: its world is as large as it says, and wrong answers are found."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import Domain, TopologyAssignment, encode
from kqueue.sandbox.api import NODES, PODS, GroupVersionResource, Object
from kqueue.sandbox.cluster import Sandbox, SandboxOptions
from tests.bench._planted import condition, ours
from tests.bench._scale import FORMS, GPU, GPUS, HOST, PENDING, QUEUES, RACK, RUNNING, Form, Scale, ScaleWorld, spec_of
from tests.bench.scale import Ledger, overtaken_by

SMALL = Scale(cohorts=2)


def admission(queue: str, form: Form, hosts: dict[str, int]) -> Object:
    """An admission; without hosts, one without a topology."""
    entry: Object = {"name": "main", "flavors": {GPU: "f"}, "resourceUsage": {GPU: str(GPUS)}, "count": form.pods}
    if hosts:
        domains = tuple(Domain((host,), pods) for host, pods in sorted(hosts.items()))
        entry["topologyAssignment"] = encode(TopologyAssignment((HOST,), domains))
    return {"clusterQueue": queue, "podSetAssignments": [entry]}


def admitted(name: str, form: Form, hosts: dict[str, int], *, queue: str = "q-0000") -> wire.Workload:
    """A Workload that holds quota."""
    status = {"admission": admission(queue, form, hosts), "conditions": [condition("Admitted")]}
    obj = {"metadata": {"name": name, "namespace": queue}, "spec": spec_of(form, placed=bool(hosts)), "status": status}
    return msgspec.convert(obj, wire.Workload)


ONE, TWO = FORMS


@pytest.mark.parametrize(
    ("workloads", "want"),
    [
        pytest.param([admitted("a", ONE, {"b00-r0-h0": 1})], "", id="one pod on one host is right"),
        pytest.param([admitted("a", TWO, {"b00-r0-h0": 1, "b00-r0-h1": 1})], "", id="two hosts of one rack are right"),
        pytest.param(
            [admitted("a", ONE, {"b00-r0-h0": 1}), admitted("b", ONE, {"b00-r0-h0": 1})],
            "q-0000/b: b00-r0-h0 is overdrawn",
            id="two workloads of eight GPUs on one host are found",
        ),
        pytest.param(
            [admitted("a", TWO, {"b00-r0-h0": 1})],
            "1 of the 2 pods of q-0000/a have hosts",
            id="a pod without a host is found",
        ),
        pytest.param(
            [admitted("a", TWO, {"b00-r0-h0": 1, "b00-r1-h0": 1})],
            f"q-0000/a wants one {RACK} and has ['b00-r0-h0', 'b00-r1-h0']",
            id="two racks for a workload that wants one are found",
        ),
        pytest.param(
            [admitted(f"w-{i}", ONE, {}, queue="q-0001") for i in range(QUEUES * RUNNING + 1)],
            f"q-0001/w-{QUEUES * RUNNING}: cohort-00 uses more than its quota",
            id="quota of a cohort that is overdrawn is found",
        ),
    ],
)
def test_a_ledger_finds_what_is_wrong(workloads: list[wire.Workload], want: str) -> None:
    """Quota by cohort, GPUs by host, and the placement that was asked for."""
    ledger = Ledger(SMALL)

    for workload in workloads:
        ledger.take(workload)

    assert ledger.problems == [want] * bool(want)


def test_what_was_given_back_may_be_taken_again() -> None:
    """Quota and hosts."""
    ledger = Ledger(SMALL)
    ledger.take(admitted("a", ONE, {"b00-r0-h0": 1}))

    ledger.give_back("q-0000/a")
    ledger.take(admitted("b", ONE, {"b00-r0-h0": 1}))

    assert ledger.problems == []
    assert list(ledger.held) == ["q-0000/b"]


@pytest.mark.parametrize(
    ("key", "want"),
    [
        pytest.param("q/1", [], id="the oldest one goes before all others"),
        pytest.param("q/3", ["q/1", "q/2"], id="one that is admitted before older ones has overtaken them"),
        pytest.param("q/new", ["q/1", "q/2", "q/3"], id="one that came later has overtaken all of them"),
    ],
)
def test_who_is_overtaken_by_an_admission(key: str, want: list[str]) -> None:
    """Those that have waited for longer."""
    assert overtaken_by(key, ["q/1", "q/2", "q/3"]) == want


def test_the_whole_scale_is_as_large_as_the_row_says() -> None:
    """15,000 nodes, 100,000 pods, 50,000 Workloads, 1,000 ClusterQueues."""
    scale = Scale(cohorts=100)

    queues = len(scale.full) + len(scale.open)
    assert (scale.nodes, scale.pods, queues) == (15_000, 100_000, 1_000)
    assert queues * RUNNING + len(scale.full) * PENDING == 50_000


async def made() -> tuple[Sandbox, ScaleWorld]:
    """A small world, without an HTTP server."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset(), crds=(crd_folder(),)))
    await sandbox.start()
    world = ScaleWorld(sandbox, SMALL)
    world.fill()
    return sandbox, world


async def test_the_world_holds_what_its_numbers_say() -> None:
    """Nodes, pods, Workloads that wait and that run; no host has more pods than GPUs."""
    sandbox, _ = await made()

    count = {
        plural: len(sandbox.api.list(resource))
        for plural, resource in (("nodes", NODES), ("pods", PODS), ("workloads", ours("workloads")))
    }
    on_host: Counter[str] = Counter()
    for pod in sandbox.api.list(PODS):
        on_host[pod["spec"]["nodeName"]] += GPU in pod["spec"]["containers"][0]["resources"]["requests"]
    workloads = 2 * QUEUES * RUNNING + len(SMALL.full) * PENDING
    assert count == {"nodes": SMALL.nodes, "pods": SMALL.pods, "workloads": workloads}
    assert max(on_host.values()) == GPUS
    await sandbox.stop()


async def test_pods_begin_with_an_admission_and_end_with_the_workload() -> None:
    """On the hosts of the admission."""
    sandbox, _ = await made()
    workloads = GroupVersionResource("kueue.x-k8s.io", "v1beta2", "workloads")

    async def written(status: Object) -> list[tuple[str, str]]:
        patch = {"status": status}
        await sandbox.api.patch(workloads, "waits-0001", patch, namespace="q-0000", subresource="status")
        await asyncio.sleep(0)
        pods = sandbox.api.list(PODS, namespace="q-0000")
        return [
            (pod["metadata"]["name"], pod["spec"]["nodeName"])
            for pod in pods
            if pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "waits-0001"
        ]

    holds = admission("q-0000", TWO, {"b00-r0-h0": 1, "b00-r0-h1": 1})
    begun = await written({"admission": holds, "conditions": [condition("Admitted")]})
    ended = await written({"conditions": [condition("Admitted"), condition("Finished")]})

    assert begun == [("waits-0001-0", "b00-r0-h0"), ("waits-0001-1", "b00-r0-h1")]
    assert ended == []
    await sandbox.stop()
