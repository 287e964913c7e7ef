"""The life of a group of pods with a controller that is killed at each of its writes: started, preempted, replaced,
started again, one member lost and replaced, ended, deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.api import names
from kqueue.sandbox.api import JOBS, PODS, Object
from tests.sim import invariants
from tests.sim.lifetime import Lifetime, interrupted, runs, told
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS, job, template
from tests.sim.tenancy import PEACEFUL
from tests.sim.world import is_true

MEMBERS, CORES = 3, 20
SETTINGS: dict[str, Any] = {"tenancy": replace(PEACEFUL, stop_seconds=2.0), "pods": True}
STRIDE = 6


def member(name: str, *, group: str = "gang") -> Object:
    """A pod of five cores as its user writes it."""
    notes = {names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(MEMBERS)}
    labels = {
        names.QUEUE_NAME_LABEL: "plain",
        names.PRIORITY_CLASS_LABEL: "low",
        names.POD_GROUP_NAME_LABEL: group,
    }
    made = template(gpus=0, cpus="5", run_seconds=30, annotations=notes)
    metadata = {**made["metadata"], "name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


class PodGroupLife(Lifetime):
    """`gang`: three pods, and somebody who makes another one for each that is lost, until they have ended."""

    ALWAYS = (
        invariants.nothing_was_breached_on_the_way,
        invariants.audits_find_nothing,
        invariants.released_pods_are_in_their_domains,
    )
    AT_REST = (
        invariants.no_gate_is_left_over,
        invariants.watches_are_true,
        invariants.cache_equals_the_api,
        invariants.status_tells_the_usage,
        invariants.nothing_is_held,
    )

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.made = 0
        self.replaces = False
        self.evictions: list[Object] = []

    async def prepare(self) -> None:
        spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        await self.world.api.patch(CLUSTER_QUEUES, "plain", {"spec": spec})

    async def live(self) -> None:
        world = self.world
        for _ in range(MEMBERS):
            await self.make()
            await self.pass_time(1)
        await self.until(lambda: len(self.going()) == MEMBERS)
        self.replaces = True
        await world.submit(
            job("high", queue="plain", pods=2, gpus=0, cpus="5", topology=None, priority="high", run_seconds=3)
        )
        await self.until(lambda: is_true(world.find(JOBS, "high"), "Complete"))
        await self.until(lambda: len(self.going()) == MEMBERS)
        failed = {"metadata": {"annotations": {names.RUN_SECONDS_ANNOTATION: "0", names.FAIL_ANNOTATION: "true"}}}
        await world.api.patch(PODS, self.going()[0]["metadata"]["name"], failed, namespace=NAMESPACE)
        await self.until(lambda: self.made == 2 * MEMBERS + 1 and len(self.going()) == MEMBERS)
        await self.until(lambda: is_true(self.workload(), names.CONDITION_FINISHED))
        self.replaces = False
        self.evictions = self.workload()["status"]["schedulingStats"]["evictions"]  # type: ignore[index]
        for pod in self.members():
            await world.api.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)
        await self.until(lambda: not self.members())
        await self.until(lambda: self.workload() is None)

    async def make(self) -> None:
        """Another member."""
        self.made += 1
        await self.world.api.create(PODS, member(f"gang-{self.made}"), namespace=NAMESPACE)

    async def play(self) -> None:
        """Whoever is lost is replaced."""
        kept = [pod for pod in self.members() if not is_lost(pod)]
        if self.replaces and len(kept) < MEMBERS:
            await self.make()

    def look(self) -> None:
        alive = self.running()
        assert 5 * len(alive) <= CORES, [pod["metadata"]["name"] for pod in alive]
        released = [pod for pod in self.members() if not is_held(pod) and not invariants.is_over(pod)]
        if released:
            assert is_true(self.workload(), names.CONDITION_ADMITTED), [pod["metadata"]["name"] for pod in released]

    def members(self) -> list[Object]:
        """Pods of the group, ended ones too."""
        labelled = [(pod, pod["metadata"].get("labels") or {}) for pod in self.world.objects(PODS)]
        return [pod for pod, labels in labelled if labels.get(names.POD_GROUP_NAME_LABEL) == "gang"]

    def going(self) -> list[Object]:
        """Members that run and are to go on."""
        return [pod for pod in self.members() if runs(pod) and not is_lost(pod)]

    def workload(self) -> Object | None:
        """That of the group."""
        return self.world.find(WORKLOADS, "gang")


def is_lost(pod: Object) -> bool:
    """Whether the pod will never have succeeded."""
    return pod["status"].get("phase") == "Failed" or bool(pod["metadata"].get("deletionTimestamp"))


def is_held(pod: Object) -> bool:
    """Whether the gate of admission is on the pod."""
    return any(gate["name"] == names.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates") or ())


@pytest.mark.proves("Pod group", "eviction and requeue")
@pytest.mark.proves("Pod group", "replacement pods")
async def test_a_group_lives_through_an_eviction_and_the_loss_of_a_member() -> None:
    """It leaves whole, waits for all of its members, comes back whole, and in the end nothing is left of it."""
    life = await told(PodGroupLife, **SETTINGS)

    assert not life.died
    assert [(e["reason"], e["count"]) for e in life.evictions] == [("Preempted", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "after"), [(1, False), (4, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_changes_nothing_of_that(first: int, after: bool) -> None:
    """Every sixth write (set `STRIDE` to 1 for all of them), until the story has no more."""
    tellings = await interrupted(PodGroupLife, first, STRIDE, after=after, **SETTINGS)

    ends = {life.at: [(e["reason"], e["count"]) for e in life.evictions] for life in tellings}
    assert len(tellings) > 60 // STRIDE
    assert all(end == [("Preempted", 1)] for end in ends.values()), ends
