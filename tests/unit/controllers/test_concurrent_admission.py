"""Concurrent admission from the job's Workload to the end: reconcilers and scheduling loop together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.concurrent_admission import (  # fmt: skip
    VARIANTS_INDEX,
    ConcurrentAdmissionReconciler,
    ConcurrentContext,
    variant_keys,
)
from kqueue.controllers.life_cycle import LifeRules
from kqueue.controllers.recreations import MOST
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from kqueue.controllers.workload import WorkloadReconciler, WorkloadSettings
from kqueue.controllers.workload_steps import Referred, WorkloadSteps
from kqueue.errors import ApiError, ConflictError, UnreachableError
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store
from kqueue.scheduling.settings import LoopSettings
from kqueue.state import requeueing, status
from kqueue.state.readiness import ReadyRules
from kqueue.state.variants import VariantRules
from tests.unit.controllers.builders import (  # fmt: skip
    EARLIER,
    JSON,
    condition,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.controllers.workload_world import Workloads, context_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.state.families import GATE, PARENT, admitted, parent_json, variant_json

MARK = "kueue.x-k8s.io/concurrent-admission-parent"
FLAVORS = ("reserved", "spot", "on-demand")
ON = LoopSettings(preemption_gates=True, variants=VariantRules())
JOB: JSON = {"labels": {"kueue.x-k8s.io/job-uid": "job-uid"}}


def policy_queue(mode: str = "TryPreferredFlavors", **cpus: int) -> JSON:
    """A ClusterQueue whose flavors have 4 cpus each, unless given."""
    amounts = dict.fromkeys(FLAVORS, 4) | {name.replace("_", "-"): n for name, n in cpus.items()}
    preemption = {"withinClusterQueue": "LowerPriority"}
    return make_cluster_queue(cpus=amounts, concurrentAdmissionPolicy={"migration": {"mode": mode}}, preemption=preemption)  # fmt: skip


class Play(Scheduled):
    """A world with all reconcilers of Workloads and a scheduling loop; `job` is what the job's reconciler does."""

    def __init__(self, *, queue: JSON | None = None, job_stops: bool = True) -> None:
        flavors = [(RESOURCE_FLAVORS, make_flavor(name)) for name in FLAVORS]
        super().__init__(*flavors, (CLUSTER_QUEUES, queue or policy_queue()), settings=ON)
        self.job_stops, self.most_flavors = job_stops, 0
        self.workloads.add_index(VARIANTS_INDEX, variant_keys)
        classes, priorities = Store[wire.WorkloadPriorityClass]("classes"), Store[wire_core.PriorityClass]("priorities")
        steps = WorkloadSteps(
            client=self.client,
            writer=self.writer,
            referred=Referred(flavors=self.flavors.get, workload_priorities=classes, pod_priorities=priorities),
            recorder=self.recorder,
            switches=JobFeatures(concurrent_admission=True),
            clock=self.clock,
        )
        self.steps = steps
        self.variants = ConcurrentAdmissionReconciler(
            ConcurrentContext(
                workloads=self.workloads,
                local_queues=self.local_queues,
                cache=self.cache,
                client=self.client,
                writer=self.writer,
                steps=steps,
                recorder=self.recorder,
                clock=self.clock,
            )
        )
        rules = WorkloadSettings(rules=LifeRules(concurrent=True))
        self.life = WorkloadReconciler(context_of(self), settings=rules)

    async def reconcile(self) -> Result:
        """One reconcile of the parent with everything seen."""
        self.sync()
        return await self.variants.reconcile(f"ns/{PARENT}")

    async def round(self) -> int:
        """Each part once, with everything seen; how many writes they made."""
        before = len(self.client.writes())
        await self.settle()
        for key in list(self.workloads):
            await self.life.reconcile(key)
            self.sync()
        await self.cycle()
        self.sync()
        self.judge()
        await self.job()
        await self.reconcile()
        self.sync()
        self.judge()
        return len(self.client.writes()) - before

    async def rest(self) -> None:
        """Until nothing is left to do; fails if that does not end."""
        for _ in range(30):
            if not await self.round():
                return
        raise AssertionError(f"it goes on and on: {self.client.writes()[-6:]}")

    async def job(self) -> None:
        """What the job's reconciler does with an evicted Workload after the last pod."""
        obj = self.writer.newest(f"ns/{PARENT}")
        if obj is None or not self.job_stops or status_of(self.workload(PARENT), "Evicted")[0] != "True":
            return
        reason = status_of(self.workload(PARENT), "Evicted")[1]
        again, stamp = requeueing.returns_at_once(reason), status.Stamp(self.clock.now())
        await self.writer.write(
            f"ns/{PARENT}",
            lambda w: status.unreserve(w, reason="PendingEvaluation", message="stopped", stamp=stamp, requeued=again),
        )

    def judge(self) -> None:
        """At every moment the job has one flavor, and it is charged for it, once."""
        charged = self.charged()
        self.most_flavors = max(self.most_flavors, len(charged))
        assert all(amount <= 4 for amount in charged.values()), charged
        runs_in, parent = self.flavor_of(PARENT), self.workload(PARENT)
        if runs_in is not None and parent is not None and status_of(parent, "Finished")[0] != "True":
            assert self.charged(parent["status"]["admission"]["clusterQueue"]).get(runs_in) == 4

    def charged(self, queue: str = "team") -> dict[str, int]:
        """Whole cpus that are charged to a ClusterQueue, by flavor."""
        node = self.cache.quota.node_of(queue)
        assert node is not None
        return {column.flavor: amount // 1000 for column, amount in node.usage.items() if amount}

    def flavor_of(self, name: str) -> str | None:
        """The flavor of a Workload's admission."""
        stored = ((self.workload(name) or {}).get("status") or {}).get("admission")
        return stored["podSetAssignments"][0]["flavors"]["cpu"] if stored else None

    def by_flavor(self) -> Mapping[str, JSON]:
        """The variants that exist."""
        key = "kueue.x-k8s.io/workload-allowed-resource-flavors"
        found = (self.client.object(WORKLOADS, key_) for key_ in self.client.keys(WORKLOADS))
        return {
            o["metadata"]["annotations"][key]: o for o in found if o and key in o["metadata"].get("annotations", {})
        }

    def active(self) -> set[str]:
        """The flavors that are tried, or admitted."""
        return {flavor for flavor, obj in self.by_flavor().items() if obj["spec"]["active"]}

    def resize(self, queue: JSON) -> None:
        self.client.put(CLUSTER_QUEUES, queue)

    def fill(self, flavor: str, *, priority: int = 0) -> str:
        """Admit another Workload, which uses all of a flavor."""
        name = f"other-{flavor}"
        other = make_workload(name, pods=4, priority=priority, status=admitted(flavor))
        other["metadata"]["labels"] = {}
        self.add(other)
        return name

    async def leave(self, name: str) -> None:
        """Delete the other Workload."""
        await self.client.delete(WORKLOADS, name, "ns")
        await self.settle()


@pytest.fixture
async def play() -> AsyncIterator[Callable[..., Play]]:
    plays: list[Play] = []

    def build(**more: Any) -> Play:
        plays.append(Play(**more))
        return plays[-1]

    yield build
    for one in plays:
        await one.close()


Build = Callable[..., Play]


async def test_a_job_starts_in_the_first_flavor_with_room(play: Build) -> None:
    """18: from the job's Workload to one variant per flavor, and back to the admission of the job."""
    world = play(queue=policy_queue(reserved=0))
    world.add(parent_json(metadata=JOB))

    await world.rest()

    assert world.flavor_of(PARENT) == "spot"
    assert status_of(world.workload(PARENT), "Admitted") == ("True", "Admitted")
    assert world.active() == {"reserved", "spot"}
    assert (world.charged(), world.most_flavors) == ({"spot": 4}, 1)
    assert world.recorder.reasons.count("CreatedVariant") == 3
    assert "DeactivatedVariant" in world.recorder.reasons


async def test_a_job_moves_to_a_preferred_flavor_when_it_has_room(play: Build) -> None:
    """FlavorMigration: the job stops before it starts in the other flavor, and never holds two."""
    world = play(queue=policy_queue(reserved=0), job_stops=False)
    world.add(parent_json(metadata=JOB))
    await world.rest()

    world.resize(policy_queue())
    await world.rest()
    assert status_of(world.by_flavor()["spot"], "Evicted") == ("True", "FlavorMigration")
    assert status_of(world.workload(PARENT), "Evicted") == ("True", "VariantEvicted")
    assert world.flavor_of(PARENT) == "spot", "its pods still run"

    world.job_stops = True
    await world.rest()
    assert (world.flavor_of(PARENT), world.active()) == ("reserved", {"reserved"})
    assert (world.charged(), world.most_flavors) == ({"reserved": 4}, 1)


async def test_the_first_admission_is_kept_where_the_queue_says_so(play: Build) -> None:
    """18.3: RetainFirstAdmission."""
    world = play(queue=policy_queue("RetainFirstAdmission", reserved=0))
    world.add(parent_json(metadata=JOB))
    await world.rest()

    world.resize(policy_queue("RetainFirstAdmission"))
    await world.rest()

    assert (world.flavor_of(PARENT), world.active(), world.charged()) == ("spot", {"spot"}, {"spot": 4})


async def test_a_preempted_job_comes_back_in_another_flavor(play: Build) -> None:
    """18.2: the parent is evicted first, and the variant gives its quota back after it."""
    world = play(queue=policy_queue(on_demand=0, spot=0))
    world.add(parent_json(metadata=JOB))
    await world.rest()
    world.add(
        make_workload("elastic", cpus=4, priority=9, metadata={"annotations": {"kueue.x-k8s.io/elastic-job": "true"}})
    )
    await world.rest()

    assert status_of(world.by_flavor()["reserved"], "Evicted") == ("True", "Preempted")
    assert world.flavor_of(PARENT) is None
    assert "Tried by variants; reserved: " in message_of(world.workload(PARENT), "QuotaReserved")
    assert world.flavor_of("elastic") == "reserved"
    assert world.active() == {*FLAVORS}


async def test_a_job_preempts_in_one_flavor(play: Build) -> None:
    """18.6: the gate of the first flavor with a victim is opened; no victim leaves in another one."""
    world = play()
    for flavor in FLAVORS:
        world.fill(flavor, priority=9 if flavor == "reserved" else 0)
    world.add(parent_json(metadata=JOB, priority=1))

    await world.rest()

    opened = {flavor for flavor, o in world.by_flavor().items() if o.get("status", {}).get("preemptionGates")}
    assert opened == {"spot"}
    assert world.recorder.reasons.count("PreemptionUngatedVariant") == 1
    assert status_of(world.workload("other-spot"), "Evicted") == ("True", "Preempted")

    await world.leave("other-spot")
    await world.rest()
    assert world.flavor_of(PARENT) == "spot"
    for flavor in ("reserved", "on-demand"):
        assert status_of(world.workload(f"other-{flavor}"), "Evicted") == ("", "")


async def test_the_next_gate_waits_for_its_time(play: Build) -> None:
    """18.6: five minutes after the last one was opened; without an event the reconcile comes back then."""
    world = play()
    tried = {"conditions": [condition("QuotaReserved", "False"), condition("BlockedOnPreemptionGates")]}
    opened = variant_json("reserved", tried, gate={"name": GATE, "position": "Open", "lastTransitionTime": utc_text(world.clock.now())})  # fmt: skip
    world.add(parent_json(), opened, variant_json("spot", tried), variant_json("on-demand", tried))

    assert (await world.reconcile()).requeue_after == 300
    await world.clock.advance(300)
    assert (await world.reconcile()).requeue_after is None
    assert [gate["position"] for gate in world.by_flavor()["spot"]["status"]["preemptionGates"]] == ["Open"]


async def test_a_deactivated_job_gives_everything_back_and_comes_back(play: Build) -> None:
    """18.3: all variants are deactivated with their parent."""
    world = play()
    world.add(parent_json(metadata=JOB))
    await world.rest()

    world.client.change(WORKLOADS, f"ns/{PARENT}", {"spec": {"active": False}})
    await world.rest()
    assert (world.charged(), world.active(), world.flavor_of(PARENT)) == ({}, set(), None)

    world.client.change(WORKLOADS, f"ns/{PARENT}", {"spec": {"active": True}})
    await world.rest()
    assert (world.charged(), world.flavor_of(PARENT)) == ({"reserved": 4}, "reserved")


async def test_a_job_starts_with_the_additions_of_its_variants_checks(play: Build) -> None:
    """The parent has no checks; a Workload that only calls itself its variant adds nothing."""
    updates = [{"name": "main", "nodeSelector": {"made-for": "this"}}]
    answered = {
        "name": "nodes",
        "state": "Ready",
        "lastTransitionTime": EARLIER,
        "message": "",
        "podSetUpdates": updates,
    }
    world = play()
    parent = parent_json(admitted("spot"))
    for cpus, want in ((1, {"made-for": "this"}), (2, {})):
        world.add(parent, variant_json("spot", admitted("spot", admissionChecks=[answered]), cpus=cpus))
        seen = world.workloads.get(f"ns/{PARENT}")
        assert seen is not None

        found = world.steps.infos(seen)

        assert isinstance(found, tuple)
        assert dict(found[0].node_selector) == want


async def test_a_finished_job_frees_its_quota(play: Build) -> None:
    """18.5: Parent Finished → variants Finished."""
    world = play()
    world.add(parent_json(metadata=JOB))
    await world.rest()

    obj = world.workload(PARENT)
    assert obj is not None
    ended = [*obj["status"]["conditions"], condition("Finished", reason="Succeeded")]
    world.client.change(WORKLOADS, f"ns/{PARENT}", {"status": {"conditions": ended}})
    await world.rest()

    assert world.charged() == {}
    assert {status_of(o, "Finished")[0] for o in world.by_flavor().values()} == {"True"}


async def test_a_job_moved_to_a_queue_without_a_policy_is_queued_itself(play: Build) -> None:
    """Its variants go first, then its mark; it would wait in no queue for ever."""
    world = play(queue=policy_queue(reserved=0, spot=0, on_demand=0))
    world.client.put(CLUSTER_QUEUES, make_cluster_queue("plain", cpus={"spot": 4}))
    world.client.put(LOCAL_QUEUES, make_local_queue("plain", cluster_queue="plain"))
    world.add(parent_json(metadata=JOB))
    await world.rest()
    assert set(world.by_flavor()) == {*FLAVORS}

    world.client.change(WORKLOADS, f"ns/{PARENT}", {"spec": {"queueName": "plain"}})
    await world.rest()

    assert not world.by_flavor()
    assert world.flavor_of(PARENT) == "spot"


async def test_a_deleted_variant_stops_the_job_and_is_made_anew(play: Build) -> None:
    """18.5: No variant admitted but the parent is: reason ConcurrentAdmission.  Its quota stays charged until then."""
    world = play(job_stops=False)
    world.add(parent_json(metadata=JOB))
    await world.rest()

    await world.client.delete(WORKLOADS, world.by_flavor()["reserved"]["metadata"]["name"], "ns")
    await world.rest()
    assert status_of(world.workload(PARENT), "Evicted") == ("True", "ConcurrentAdmission")
    assert world.charged() == {"reserved": 4}

    world.job_stops = True
    await world.rest()
    assert world.flavor_of(PARENT) is not None
    assert sum(world.charged().values()) == 4


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(variant_json("spot", admitted("spot"), cpus=0, metadata={"uid": "f"}), id="a small variant for a large job"),
        pytest.param(variant_json("gold", admitted("spot"), metadata={"uid": "f"}), id="a flavor that the queue does not have"),
    ],
)  # fmt: skip
async def test_a_forged_variant_starts_no_job(play: Build, forged: JSON) -> None:
    """It is deleted, also with quota of its own; the job waits."""
    world = play(queue=policy_queue(reserved=0, spot=3, on_demand=0))
    world.add(parent_json(metadata=JOB | {"labels": {"kueue.x-k8s.io/concurrent-admission-parent": "true"}}), forged)

    await world.rest()

    assert world.flavor_of(PARENT) is None
    assert "f" not in {o["metadata"]["uid"] for o in world.by_flavor().values()}
    assert "DeletedVariant" in world.recorder.reasons


async def test_a_parent_without_its_mark_still_leaves_with_its_variant(play: Build) -> None:
    """A tenant removes the label of a running parent; the parent can be preempted all the same."""
    world = play(queue=policy_queue(on_demand=0, spot=0))
    world.add(parent_json(metadata=JOB))
    await world.rest()

    world.client.change(WORKLOADS, f"ns/{PARENT}", {"metadata": {"labels": {MARK: None}}})
    world.add(
        make_workload("elastic", cpus=4, priority=9, metadata={"annotations": {"kueue.x-k8s.io/elastic-job": "true"}})
    )
    await world.rest()

    assert world.flavor_of("elastic") == "reserved"
    found = world.workload(PARENT)
    assert found is not None
    assert found["metadata"]["labels"][MARK] == "true"


async def test_a_variant_that_is_changed_each_time_is_not_made_without_end(play: Build) -> None:
    """Another client, such as a webhook, adds something to each variant that is created."""
    world = play(queue=policy_queue(reserved=0, spot=0, on_demand=0))
    world.add(parent_json(metadata=JOB))
    await world.reconcile()

    for _ in range(20):
        world.sync()
        for obj in world.by_flavor().values():
            world.client.change(WORKLOADS, f"ns/{obj['metadata']['name']}", {"spec": {"podSets": []}})
        await world.reconcile()
        await world.reconcile()

    assert world.recorder.reasons.count("DeletedVariant") == MOST * len(FLAVORS)
    assert world.flavor_of(PARENT) is None


async def test_the_children_of_another_parent_are_left_alone(play: Build) -> None:
    """An earlier Workload of the same name had them."""
    world = play()
    old = variant_json("spot")
    old["metadata"]["ownerReferences"][0]["uid"] = "earlier"
    world.add(parent_json(), old)

    await world.reconcile()

    assert world.client.object(WORKLOADS, f"ns/{old['metadata']['name']}") is not None


@pytest.mark.parametrize("error", [ConflictError("409", status=409), UnreachableError("killed")], ids=type)
async def test_a_step_that_fails_stops_no_other(play: Build, error: ApiError) -> None:
    """And the reconcile fails, so that it is tried again."""
    world = play()
    world.add(parent_json())
    world.client.fail(error, verb="create", times=1)

    with pytest.raises(type(error)):
        await world.reconcile()

    assert len(world.by_flavor()) == 2
    await world.rest()
    assert len(world.by_flavor()) == 3


@pytest.mark.parametrize("limit", range(1, 25, 2))
async def test_a_process_that_is_killed_anywhere_continues(play: Build, limit: int) -> None:
    """After any number of writes of a migration, a new process brings it to the same end."""
    world = play(queue=policy_queue(reserved=0))
    world.add(parent_json(metadata=JOB))
    await world.rest()
    world.resize(policy_queue())
    before = len(world.client.writes())
    for _ in range(30):
        if len(world.client.writes()) - before >= limit or not await world.round():
            break
    world.begin()

    await world.rest()

    assert (world.flavor_of(PARENT), world.charged(), world.most_flavors) == ("reserved", {"reserved": 4}, 1)


# --- the life of each side

RUNS = LifeRules(concurrent=True, ready=ReadyRules(timedelta(seconds=1), timedelta(0)))


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(variant_json("spot", admitted("spot", condition("PodsReady", "False", "WaitForStart"))), "", id="a variant has no clock"),
        pytest.param(parent_json(admitted("spot", condition("PodsReady", "False", "WaitForStart"))), "PodsReadyTimeout", id="its parent has"),
        pytest.param(variant_json("spot", admitted("spot", condition("PodsReady", reason="Started")), maximumExecutionTimeSeconds=1), "", id="nor a time to run"),
        pytest.param(parent_json(admitted("spot", condition("PodsReady", reason="Started")), maximumExecutionTimeSeconds=1), "Target", id="its parent has"),
    ],
)  # fmt: skip
async def test_the_clocks_are_those_of_the_parent(obj: JSON, want: str) -> None:
    """Life-cycle 14: variants are exempt."""
    world = Workloads(rules=RUNS)
    world.add(obj)
    await world.clock.advance(86400)
    world.sync()

    for _ in range(2):
        await world.reconciler.reconcile(f"ns/{obj['metadata']['name']}")

    found = world.workload(obj["metadata"]["name"])
    target = "Target" if status_of(found, "DeactivationTarget")[0] == "True" else ""
    assert (target or status_of(found, "Evicted")[1]) == want


async def test_the_eviction_of_a_variant_ends_with_that_of_its_parent() -> None:
    """No time ends it: the job of its parent may still run."""
    world = Workloads(rules=LifeRules(concurrent=True))
    obj = variant_json("spot", admitted("spot", condition("Evicted", reason="Preempted")))
    world.add(obj)
    await world.clock.advance(86400)

    await world.reconciler.reconcile(f"ns/{obj['metadata']['name']}")

    assert status_of(world.workload(obj["metadata"]["name"]), "QuotaReserved")[0] == "True"


@pytest.mark.parametrize(
    ("checks", "admission"),
    [
        pytest.param([], admitted("spot"), id="a parent gets none"),
        pytest.param([{"name": "budget", "state": "Pending", "lastTransitionTime": EARLIER, "message": ""}], reserved(condition("Admitted", "False")), id="a label takes none off"),
    ],
)  # fmt: skip
async def test_the_checks_of_a_parent_stay_as_they_are(checks: list[JSON], admission: JSON) -> None:
    """Life-cycle 16: a parent has no checks; a Workload with a forged label still waits for its listed checks."""
    strategy: JSON = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    world = Workloads(None, (CLUSTER_QUEUES, make_cluster_queue(cpus={"spot": 4}, **strategy)), rules=LifeRules(concurrent=True))  # fmt: skip
    world.check()
    world.add(parent_json(admission | {"admissionChecks": checks}))

    for _ in range(3):
        world.sync()
        await world.reconciler.reconcile(f"ns/{PARENT}")

    found = world.workload(PARENT)
    assert found is not None
    assert found["status"]["admissionChecks"] == checks
    assert status_of(found, "Admitted")[0] == ("False" if checks else "True")
