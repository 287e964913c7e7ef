"""Three racks with workloads that may be moved, gangs that wait for room in one of them, and the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.clock import FakeClock, utc_text
from kqueue.config import Configuration, parse
from kqueue.controllers.defrag_plan_ends import PlanEnds
from kqueue.controllers.defrag_proposals import ProposalMaker, ProposalState
from kqueue.controllers.defrag_settings import ProposalSettings, proposal_settings
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, NoPlan
from kqueue.core.workload import Claim
from kqueue.operations.defrag.reading import state_of
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from tests.unit.cli.defrag_cluster import NOW, cluster, workload
from tests.unit.controllers.fakes import FakeClient, FakeRecorder

JSON = dict[str, Any]
TOPOLOGY = "TopologyPlacementFailed"
CONFIGURATION = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def configuration(gate: str = "true", **joint: Any) -> Configuration:
    """A configuration with the feature gate, and these parts of the section `joint`."""
    text = f"{CONFIGURATION}featureGates: {{JointPlacement: {gate}}}\njoint: {msgspec.json.encode(joint).decode()}\n"
    return parse(text, source="test")


def settings(**joint: Any) -> ProposalSettings:
    """The settings of proposals; without a least gain unless `joint` says so."""
    given = configuration(**{"rescheduling": {"minGain": 0}, **joint}).joint
    return proposal_settings(given)


def gang(
    name: str, *, pods: int = 16, priority: int = 0, reason: str = TOPOLOGY, message: str = "m", **more: Any
) -> JSON:
    """A gang that waits, for this reason."""
    made = workload(name, None, 0, pods)
    told = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    made["status"] = {"conditions": [told | {"lastTransitionTime": utc_text(NOW)}]} if reason else {}
    made["spec"] |= {"priority": priority, **more}
    return made


class DatedClient(FakeClient):
    """An API server that knows the time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    async def create(
        self,
        resource: ResourceType,
        obj: Any,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> JSON:
        """Add the object, with the time of its creation."""
        dated = {**obj, "metadata": {**obj["metadata"], "creationTimestamp": utc_text(self._clock.now())}}
        return await super().create(resource, dated, namespace, dry_run=dry_run, lane=lane)


class HereSearcher:
    """Searches in this process."""

    def __init__(self) -> None:
        self.questions: list[DefragQuestion] = []
        self.free = True
        self.failures: list[Exception] = []
        self.hangs = False

    def is_free(self) -> bool:
        """As the test says."""
        return self.free

    def claims(self) -> Sequence[Claim]:
        """There are none."""
        return ()

    async def search(self, question: DefragQuestion) -> DefragPlan | NoPlan:
        """The answer, or the next failure."""
        self.questions.append(question)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.pop(0)
        return question.answer()


class ProposalWorld:
    """The controller with its state and a fake API server; `consent` by running workload (see `cluster`)."""

    def __init__(
        self, *waiting: Mapping[str, Any], given: ProposalSettings | None = None, quota: str = "1000", **consent: str
    ) -> None:
        self.clock = FakeClock(NOW)
        objects = cluster(**consent)
        queue = msgspec.json.decode(msgspec.json.encode(objects.cluster_queues[0]).replace(b'"1000"', quota.encode()))
        running = [obj for obj in objects.workloads if obj["metadata"]["name"] != "big"]
        state = state_of(replace(objects, cluster_queues=[queue], workloads=running), NOW)
        self.cache = state.cache
        self.queues = Queues(self.clock.now)
        self.queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
        self.queues.set_local_queue("team-a/main", "team")
        self.workloads: Store[wire.Workload] = Store()
        self.budgets: Store[wire_core.PodDisruptionBudget] = Store()
        self.plans: Store[DefragmentationPlan] = Store()
        for obj in running:
            self.workloads.put(
                f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", msgspec.convert(obj, wire.Workload)
            )
        self.client, self.recorder, self.searcher = DatedClient(self.clock), FakeRecorder(), HereSearcher()
        self.client.watch(
            DEFRAGMENTATION_PLANS, self.plans, lambda obj: msgspec.convert(obj, DefragmentationPlan, strict=False)
        )
        self.served = True
        for obj in waiting or (gang("big"),):
            self.wait(obj)
        self.settings = given or settings()
        self.state = ProposalState(
            cache=self.cache,
            queues=self.queues,
            workloads=self.workloads,
            budgets=self.budgets,
            plans=self.plans,
            plans_are_served=lambda: self.served,
        )
        self.maker = ProposalMaker(
            self.state,
            self.searcher,
            client=self.client,
            recorder=self.recorder,
            clock=self.clock,
            settings=self.settings,
        )
        self.ends = PlanEnds(
            client=self.client, plans=self.plans, waits=self.waits, clock=self.clock, auto=self.settings.auto
        )

    def waits(self, key: str) -> bool:
        """Whether a Workload waits."""
        obj = self.workloads.get(key)
        return obj is not None and obj.status.admission is None and not model.is_over(obj)

    def wait(self, obj: Mapping[str, Any]) -> None:
        """A Workload waits in its queue."""
        made = msgspec.convert(obj, wire.Workload)
        self.workloads.put(model.workload_key(made), made)
        self.queues.push(self.cache.requests.pending(made))

    async def look(self) -> None:
        """Look for plans once; the watch brings what was written."""
        await self.maker.look()
        self.client.sync()

    async def settle(self) -> None:
        """Reconcile each plan once; the watch brings what was written."""
        self.client.sync()
        for name in self.ends.names():
            await self.ends.reconcile(name)
        self.client.sync()

    @property
    def searched(self) -> list[str]:
        """The workloads for which searches were made."""
        memory = self.state.memory
        waiting = [obj for obj in self.workloads.values() if obj.status.admission is None]
        return sorted(obj.metadata.name for obj in waiting if memory.of(obj.metadata.uid) is not None)

    def stored(self) -> list[JSON]:
        """The plans that the API server has."""
        found = [self.client.object(DEFRAGMENTATION_PLANS, key) for key in self.client.keys(DEFRAGMENTATION_PLANS)]
        return [plan for plan in found if plan is not None]

    def only(self) -> JSON:
        """The only plan that the API server has."""
        (plan,) = self.stored()
        return plan

    def message(self, name: str = "big") -> str:
        """Why there is no plan for a gang."""
        obj = self.workloads.get(f"team-a/{name}")
        assert obj is not None
        result = self.state.memory.of(obj.metadata.uid)
        assert result is not None
        return result.message
