"""Which keys the reconcilers of a process take first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.config import Timings, parse
from kqueue.controllers.pod_writes import watch_pods
from kqueue.jobs.gang.pods import managed_pod
from kqueue.manager.operator import Operator
from kqueue.observe import Checks, Metrics
from kqueue.runtime.client import Client
from tests.unit.controllers.builders import JSON, condition, make_workload, read, reserved

EVICTED = reserved(condition("Admitted", reason="Admitted"), condition("Evicted", reason="Preempted"))
TEXT = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, pod]}
"""


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    """A process that manages Jobs and pods and does not run."""
    clock = FakeClock()
    async with Client("http://127.0.0.1:1", clock=clock) as client:
        yield Operator(
            client=client,
            config=parse(TEXT, source="test"),
            timings=Timings(),
            clock=clock,
            metrics=Metrics(clock=clock),
            checks=Checks(),
        )


def arrive(operator: Operator, name: str, status: JSON | None = None, *, owner: tuple[str, str] | None = None) -> None:
    """The watch brings a Workload, which a `(kind, API version)` of its name may own."""
    owners = []
    if owner is not None:
        kind, version = owner
        owners = [{"apiVersion": version, "kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}]
    workload = make_workload(name, status=status, metadata={"ownerReferences": owners})
    operator.watches.workloads.store.put(f"ns/{name}", read(wire.Workload, workload))


def make_job(name: str, *, suspend: bool, ended: bool = False) -> JSON:
    conditions = [condition("Complete")] if ended else []
    metadata = {"name": name, "namespace": "ns", "uid": f"Job-{name}"}
    return {"metadata": metadata, "spec": {"suspend": suspend}, "status": {"conditions": conditions}}


def make_pod(name: str, *, gated: bool, phase: str = "Pending", group: str = "") -> JSON:
    labels = {"kueue.x-k8s.io/managed": "true"} | ({"kueue.x-k8s.io/pod-group-name": group} if group else {})
    gates = [{"name": "kueue.x-k8s.io/admission"}] if gated else []
    metadata = {"name": name, "namespace": "ns", "uid": f"Pod-{name}", "labels": labels,
                "creationTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    spec = {"schedulingGates": gates, "containers": [{"name": "c", "image": "x"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


async def taken(operator: Operator, controller: str, keys: list[str]) -> list[str]:
    """The order in which a reconciler takes these keys when they come at once."""
    (found,) = [c for c in operator.manager.controllers if c.name == controller]
    while len(found.queue):
        found.queue.done(str(await found.queue.get()))
    for key in keys:
        found.enqueue(f"ns/{key}")
    order = []
    while len(found.queue):
        order.append(str(await found.queue.get()).removeprefix("ns/"))
        found.queue.done(f"ns/{order[-1]}")
    return order


async def test_evictions_are_not_behind_words(operator: Operator) -> None:
    """Of Workloads that change at once, one that holds evicted quota is first, and one that only waits is last."""
    for name, status in (("waits", None), ("runs", reserved()), ("leaves", EVICTED)):
        arrive(operator, name, status)
    arrive(operator, "reserved", reserved(condition("Admitted", "False")))

    assert await taken(operator, "workload", ["waits", "runs", "reserved", "leaves"]) == [
        "leaves", "reserved", "runs", "waits",
    ]  # fmt: skip


async def test_jobs_that_give_back_are_before_jobs_to_start(operator: Operator) -> None:
    """An end that frees quota counts as a give-back."""
    jobs = {
        "waits": (None, make_job("waits", suspend=True)),
        "runs": (reserved(), make_job("runs", suspend=False)),
        "starts": (reserved(), make_job("starts", suspend=True)),
        "leaves": (EVICTED, make_job("leaves", suspend=False)),
        "ended": (reserved(), make_job("ended", suspend=False, ended=True)),
    }
    for name, (status, job) in jobs.items():
        operator.watches.jobs["batch/job"].store.put(f"ns/{name}", job)
        arrive(operator, name, status, owner=("Job", "batch/v1"))
    arrive(operator, "gone", reserved(), owner=("Job", "batch/v1"))

    order = await taken(operator, "batch_job", [*jobs, "gone"])

    assert order == ["leaves", "ended", "gone", "starts", "waits", "runs"]


@pytest.mark.parametrize("grouped", [False, True])
async def test_pods_that_give_back_are_before_pods_to_start(operator: Operator, grouped: bool) -> None:
    """Single pods and groups alike."""
    watch = operator.manager.shared(watch_pods)
    assert watch is not None
    pods: dict[str, tuple[JSON | None, dict[str, Any]]] = {
        "waits": (None, {"gated": True}),
        "runs": (reserved(), {"gated": False, "phase": "Running"}),
        "starts": (reserved(), {"gated": True}),
        "leaves": (EVICTED, {"gated": False, "phase": "Running"}),
        "ended": (reserved(), {"gated": False, "phase": "Succeeded"}),
    }
    for name, (status, looks) in pods.items():
        pod = make_pod(name, group=name if grouped else "", **looks)
        watch.store.put(f"ns/{name}", managed_pod(pod, operator.manager.switches))
        arrive(operator, name, status, owner=("Pod", "v1"))

    order = await taken(operator, "pod_group" if grouped else "pod", list(pods))

    assert order == ["leaves", "ended", "starts", "waits", "runs"]
