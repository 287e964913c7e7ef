"""The seam of gangs: a form of one file and one line is queued, gated, started and placed like Kueue's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kqueue.api import names
from kqueue.controllers.resources import WORKLOADS
from kqueue.jobs import gang_source
from kqueue.jobs.gang_source import KUEUE, register, source_of, sources
from kqueue.jobs.kind import JobContext
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.pod_view import managed_pod
from kqueue.jobs.switches import JobFeatures
from tests.unit.controllers.pod_world import GROUP, Pods
from tests.unit.jobs.pods import make_pod
from tests.unit.toys.toy_gang_source import GANG, RANK, SIZE, ToyGangs

SWITCHES = JobFeatures()


@pytest.fixture(autouse=True)
def toy() -> Iterator[ToyGangs]:
    """The form is registered with one line, for one test."""
    source = ToyGangs()
    register(source)
    yield source
    gang_source._sources.remove(source)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build(*pods: Any, **more: Any) -> Pods:
        worlds.append(Pods(*pods, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def of_toy(name: str, *, size: str = "2", **more: Any) -> dict[str, Any]:
    """A member of gang `g`."""
    pod: dict[str, Any] = make_pod(name, role="r", **more)
    pod["metadata"]["labels"] |= {GANG: "g", SIZE: size, RANK: name[-1]}
    return pod


async def test_pods_of_the_form_are_one_workload_and_start_together(make: Callable[..., Pods]) -> None:
    """Count and queue are as the form says; gates come off when the Workload is admitted, of all pods."""
    world = make(of_toy("p0"), of_toy("p1"))
    await world.rest(GROUP)
    spec = world.workload_named("g")["spec"]
    assert (sum(p["count"] for p in spec["podSets"]), spec["queueName"]) == (2, "main")
    assert [world.gated(name) for name in world.names()] == [True, True]
    world.admit("g")
    await world.rest(GROUP)
    assert [world.gated(name) for name in world.names()] == [False, False]


async def test_an_incomplete_gang_waits(make: Callable[..., Pods]) -> None:
    world = make(of_toy("p0", size="3"), of_toy("p1", size="3"))
    await world.rest(GROUP)
    assert world.client.keys(WORKLOADS) == []


async def test_two_forms_do_not_make_one_gang(make: Callable[..., Pods]) -> None:
    """Pods that say the same group in different forms are told so."""
    kueue = make_pod("p1", group="g", total=2)
    world = make(of_toy("p0"), kueue)
    await world.look(GROUP)
    assert any("in another form" in message for message in world.recorder.messages)


def test_its_webhook_gates_a_member_and_notes_its_rank() -> None:
    """The ungater places members by the label of the rank."""
    pod = of_toy("p1", gated=False)
    for key in (names.MANAGED_LABEL, names.ROLE_HASH_ANNOTATION):
        pod["metadata"]["labels"].pop(key, None)
        pod["metadata"]["annotations"].pop(key, None)
    patch = PlainPod().defaults(pod, JobContext(switches=SWITCHES))
    assert [gate["name"] for gate in patch["spec"]["schedulingGates"]] == [names.ADMISSION_GATE, names.TOPOLOGY_GATE]
    assert patch["metadata"]["labels"][names.POD_GROUP_POD_INDEX_LABEL] == "1"


def test_its_mistakes_are_refused() -> None:
    found = PlainPod().problems(of_toy("p1", size="many"), None, JobContext(switches=SWITCHES))
    assert [problem.path for problem in found] == [f"metadata.labels[{SIZE}]"]


def test_the_first_form_that_says_a_group_counts(toy: ToyGangs) -> None:
    """Pods alone, and pods of Kueue's form, are read by Kueue's."""
    both = of_toy("p0", group="k", total=2)
    assert source_of(both, SWITCHES) is KUEUE
    assert source_of(make_pod("alone"), SWITCHES) is KUEUE
    assert managed_pod(of_toy("p0"), SWITCHES).source is toy
    assert sources() == (KUEUE, toy)


def test_a_form_is_registered_once(toy: ToyGangs) -> None:
    with pytest.raises(ValueError, match="registered already"):
        register(toy)
