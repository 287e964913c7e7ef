"""A WorkloadPriorityClass with another value: the Workloads that name it follow."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import WORKLOADS
from kqueue.controllers.workload_priority import WorkloadPriorityReconciler, priority_class_keys
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, World, condition, make_workload, read, reserved

GROUP = "kueue.x-k8s.io"


def named(name: str = "high", *, group: str = GROUP, kind: str = "WorkloadPriorityClass") -> JSON:
    return {"priorityClassRef": {"group": group, "kind": kind, "name": name}}


def make_class(value: int, name: str = "high") -> wire.WorkloadPriorityClass:
    found: wire.WorkloadPriorityClass = read(wire.WorkloadPriorityClass, {"metadata": {"name": name}, "value": value})
    return found


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(make_workload(priority=1, **named()), 100, id="it waits"),
        pytest.param(make_workload(priority=1, status=reserved(), **named()), 100, id="it runs"),
        pytest.param(make_workload(priority=100, **named()), 100, id="it has the value already"),
        pytest.param(make_workload(priority=1, **named("gone")), 1, id="its class is gone"),
        pytest.param(make_workload(priority=1), 1, id="it names no class"),
        pytest.param(make_workload(priority=1, **named(group="scheduling.k8s.io", kind="PriorityClass")), 1, id="it names a class of pods"),
        pytest.param(make_workload(priority=1, status={"conditions": [condition("Finished")]}, **named()), 1, id="it has finished"),
    ],
)  # fmt: skip
async def test_the_priority_is_that_of_the_class(workload: JSON, want: int) -> None:
    """Written once and told; what counts no more is left alone."""
    world = World((WORKLOADS, workload))
    world.sync()
    classes: Store[Any] = Store()
    classes.put("high", make_class(100))
    reconciler = WorkloadPriorityReconciler(classes=classes, writer=world.writer, recorder=world.recorder)
    before, changes = workload["spec"]["priority"], int(workload["spec"]["priority"] != want)
    seen = world.workloads.get("ns/a")
    assert seen is not None
    assert reconciler.is_stale(seen) is bool(changes)

    for _ in range(2):
        await reconciler.reconcile("ns/a")

    found = world.workload()
    assert found is not None
    assert (found["spec"]["priority"], len(world.client.writes())) == (want, changes), before
    assert world.recorder.reasons == ["UpdatedWorkload"] * changes
    await world.close()


def test_workloads_are_found_by_their_class() -> None:
    """Only by a class of ours."""
    assert priority_class_keys(read(wire.Workload, make_workload(**named()))) == ["high"]
    assert priority_class_keys(read(wire.Workload, make_workload(**named(kind="PriorityClass")))) == []
