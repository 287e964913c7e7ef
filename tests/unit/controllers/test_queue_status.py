"""Status and finalizers of queues, and the finalizers of what they use: true to cache and queues, written on change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.admission_check import AdmissionCheckReconciler
from kqueue.controllers.finalizers import FinalizerReconciler
from kqueue.controllers.queue_status import ClusterQueueReconciler, CohortReconciler, LocalQueueReconciler
from kqueue.controllers.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from kqueue.runtime.controller import Result
from kqueue.state.fair_usage import FairRules, FairUsage
from tests.unit.controllers.builders import (
    JSON,
    World,
    condition,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)

OURS = "kueue.x-k8s.io/resource-in-use"
LEAVING = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
NOT_YET = condition("Admitted", "False", "UnsatisfiedAdmissionChecks")


class Offices(World):
    """A world with reconcilers of ClusterQueues, LocalQueues and flavors."""

    def __init__(self, *objects: Any, fair: bool = False, fair_usage: FairUsage | None = None) -> None:
        super().__init__(*objects, fair_usage=fair_usage)
        self.cohorts = self._watch(COHORTS, wire.Cohort, self.intake.on_cohort)
        self.cluster_queue = ClusterQueueReconciler(
            cluster_queues=self.cluster_queues,
            writer=self.writer_of(CLUSTER_QUEUES, self.cluster_queues, wire.ClusterQueue),
            cache=self.cache,
            queues=self.queues,
            clock=self.clock,
            fair_sharing=fair,
        )
        self.cohort = CohortReconciler(
            cohorts=self.cohorts,
            writer=self.writer_of(COHORTS, self.cohorts, wire.Cohort),
            cache=self.cache,
            fair_sharing=fair,
        )
        self.local_queue = LocalQueueReconciler(
            local_queues=self.local_queues,
            writer=self.writer_of(LOCAL_QUEUES, self.local_queues, wire.LocalQueue),
            cache=self.cache,
            queues=self.queues,
            clock=self.clock,
            fair_usage=fair_usage,
        )
        self.flavor = FinalizerReconciler(
            self.writer_of(RESOURCE_FLAVORS, self.flavors, wire.ResourceFlavor),
            self.cache.is_flavor_used,
        )
        checks = self._watch(ADMISSION_CHECKS, wire.AdmissionCheck, self.intake.on_check)
        check_writer = self.writer_of(ADMISSION_CHECKS, checks, wire.AdmissionCheck)
        kept = FinalizerReconciler(check_writer, self.cache.quota.is_check_used)
        self.check = AdmissionCheckReconciler(kept, check_writer, self.clock, after=MISSING_AFTER)

    async def step(self, reconcile: Callable[[str], Any], key: str) -> list[str]:
        """One reconcile with everything seen; the writes it made."""
        self.sync()
        before = len(self.client.writes())
        await reconcile(key)
        return [str(call) for call in self.client.writes()[before:]]

    async def team(self) -> JSON | None:
        """ClusterQueue `team` after a reconcile."""
        await self.step(self.cluster_queue.reconcile, "team")
        return self.client.object(CLUSTER_QUEUES, "team")

    async def main(self) -> JSON | None:
        """LocalQueue `main` after a reconcile."""
        await self.step(self.local_queue.reconcile, "ns/main")
        return self.client.object(LOCAL_QUEUES, "ns/main")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Offices]]:
    worlds: list[Offices] = []

    def build(*objects: Any, **more: Any) -> Offices:
        worlds.append(Offices(*objects, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def busy(world: Offices) -> None:
    """Two workloads wait, one of them parked; one is reserved and two are admitted."""
    world.add(
        make_workload("waits"),
        make_workload("parked", cpus=20),
        make_workload("reserved", pods=2, status=reserved(NOT_YET, cpus=1, pods=2)),
        make_workload("runs", status=reserved(cpus=3)),
        make_workload("runs-too", status=reserved(cpus=1)),
    )


# --- ClusterQueues ---------------------------------------------------------------------------------------------------


async def test_a_cluster_queue_shows_who_waits_and_who_holds_what(make: Callable[..., Offices]) -> None:
    """Counts of pending, reserving and admitted; usage by flavor, reserved and admitted; Active."""
    world = make()
    busy(world)

    found = await world.team()

    assert found is not None
    counts = [found["status"][f"{kind}Workloads"] for kind in ("pending", "reserving", "admitted")]
    assert counts == [2, 3, 2]
    assert [u["resources"] for u in found["status"]["flavorsReservation"]] == [
        [{"name": "cpu", "total": "6", "borrowed": "0"}]
    ]
    assert [u["resources"] for u in found["status"]["flavorsUsage"]] == [
        [{"name": "cpu", "total": "4", "borrowed": "0"}]
    ]
    assert status_of(found, "Active") == ("True", "Ready")


async def test_what_stands_there_is_not_written_again(make: Callable[..., Offices]) -> None:
    """Finalizer and status take two writes; then none, while nothing changes."""
    world = make()
    busy(world)

    first = await world.step(world.cluster_queue.reconcile, "team")
    again = await world.step(world.cluster_queue.reconcile, "team")

    assert (first, again) == (["patch clusterqueues team", "patch clusterqueues team/status"], [])


async def test_only_what_changed_is_written(make: Callable[..., Offices]) -> None:
    """One more workload waits: one number."""
    world = make()
    await world.team()
    world.add(make_workload())

    await world.team()

    assert world.client.calls[-1].body["status"] == {"pendingWorkloads": 1}


async def test_what_is_borrowed_is_shown(make: Callable[..., Offices]) -> None:
    """Usage above the queue's own quota, also in fractions, as quantities are written."""
    world = make(
        (CLUSTER_QUEUES, make_cluster_queue(cohortName="all")),
        (CLUSTER_QUEUES, make_cluster_queue("lender", cohortName="all")),
    )
    status = reserved(cpus=12)
    status["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "12500m"}
    world.add(make_workload(cpus="12500m", status=status))

    found = await world.team()

    assert found is not None
    assert found["status"]["flavorsUsage"][0]["resources"] == [{"name": "cpu", "total": "12500m", "borrowed": "2500m"}]
    assert await world.step(world.cluster_queue.reconcile, "team") == []


async def test_of_very_many_flavors_as_many_are_shown_as_the_schema_allows(make: Callable[..., Offices]) -> None:
    """The first 64 of a ClusterQueue with more; a longer list would be refused, and nothing be shown at all."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus={f"f{i}": 1 for i in range(70)})))

    found = await world.team()

    assert found is not None
    assert [flavor["name"] for flavor in found["status"]["flavorsUsage"]] == [f"f{i}" for i in range(64)]


@pytest.mark.parametrize(
    ("queue", "reason", "says"),
    [
        pytest.param(make_cluster_queue(cpus={"no": 1}), "FlavorNotFound", "ResourceFlavor no not found; create it", id="a flavor is missing"),
        pytest.param(make_cluster_queue(stopPolicy="Hold"), "Stopped", "its stopPolicy is Hold", id="it is stopped"),
        pytest.param(make_cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "no"}]}), "AdmissionCheckNotFound", "AdmissionCheck no not found", id="a check is missing"),
    ],
)  # fmt: skip
async def test_why_a_cluster_queue_admits_nobody(
    make: Callable[..., Offices], queue: JSON, reason: str, says: str
) -> None:
    """Active is False, with the remedy; the counts are kept all the same."""
    world = make((CLUSTER_QUEUES, queue))
    world.add(make_workload())

    found = await world.team()

    assert found is not None
    assert status_of(found, "Active") == ("False", reason)
    assert says in message_of(found, "Active")
    assert found["status"]["pendingWorkloads"] == 1


async def test_a_queue_that_recovers_says_so(make: Callable[..., Offices]) -> None:
    """The transition time moves with the status, and only with it."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(stopPolicy="Hold")))
    await world.team()
    await world.clock.advance(60)
    world.client.put(CLUSTER_QUEUES, {**make_cluster_queue(stopPolicy="HoldAndDrain"), **_kept(world)})
    held = await world.team()
    assert held is not None
    assert held["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"

    world.client.put(CLUSTER_QUEUES, {**make_cluster_queue(), **_kept(world)})
    found = await world.team()

    assert found is not None
    assert status_of(found, "Active") == ("True", "Ready")
    assert found["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:01:00Z"


def _kept(world: Offices) -> JSON:
    """The parts of ClusterQueue `team` that a user's edit of its spec leaves alone."""
    found = world.client.object(CLUSTER_QUEUES, "team")
    assert found is not None
    return {"metadata": found["metadata"], "status": found["status"]}


async def test_a_cluster_queue_in_use_cannot_go(make: Callable[..., Offices]) -> None:
    """Deleted, it stays while a workload holds its quota, says so, and goes with the last one."""
    world = make()
    world.add(make_workload(status=reserved()))
    found = await world.team()
    assert found is not None
    assert found["metadata"]["finalizers"] == [OURS]
    world.client.change(CLUSTER_QUEUES, "team", LEAVING)
    found = await world.team()
    assert status_of(found, "Active") == ("False", "Terminating")

    world.client.drop(WORKLOADS, "ns/a")

    assert await world.team() is None


async def test_a_queue_that_is_gone_is_nobodys(make: Callable[..., Offices]) -> None:
    """Late reconciles of deleted queues do nothing."""
    world = make()

    assert await world.step(world.cluster_queue.reconcile, "no") == []
    assert await world.step(world.local_queue.reconcile, "ns/no") == []


def lent(world: Offices, *, weight: str | int = 1) -> Offices:
    """Team has 10 cpu and borrows 5 of the 30 that its cohort `all`, a child of `root`, could get."""
    for resource, obj in (
        (COHORTS, {"metadata": {"name": "root"}, "spec": {}}),
        (COHORTS, {"metadata": {"name": "all"}, "spec": {"parentName": "root"}}),
        (CLUSTER_QUEUES, make_cluster_queue("lender", cpus=5, cohortName="all")),
        (CLUSTER_QUEUES, make_cluster_queue("rich", cpus=15, cohortName="root")),
        (CLUSTER_QUEUES, make_cluster_queue(cohortName="all", fairSharing={"weight": weight})),
    ):
        world.client.put(resource, obj)
    world.add(make_workload(cpus=15, status=reserved(cpus=15)))
    return world


@pytest.mark.parametrize(
    ("weight", "share"),
    [
        pytest.param(1, 167, id="a sixth of what is lent, rounded up"),
        pytest.param("500m", 334, id="half the weight, twice the share"),
        pytest.param(0, 2**63 - 1, id="without weight it is endless"),
    ],
)
async def test_a_borrower_shows_its_share(make: Callable[..., Offices], weight: str | int, share: int) -> None:
    """Per thousand of what the cohort could get, by weight; written once."""
    world = lent(make(fair=True), weight=weight)

    found = await world.team()

    assert found is not None
    assert found["status"]["fairSharing"] == {"weightedShare": share}
    assert await world.step(world.cluster_queue.reconcile, "team") == []


async def test_cohorts_show_their_shares(make: Callable[..., Offices]) -> None:
    """One that stays within what it brings along has none; with a further load it borrows from its parent."""
    world = lent(make(fair=True))
    assert await world.step(world.cohort.reconcile, "all") == ["patch cohorts all/status"]
    assert _share_of(world, "all") == 0

    world.add(make_workload("more", cpus=6, status=reserved(cpus=6)))
    await world.step(world.cohort.reconcile, "all")
    await world.step(world.cohort.reconcile, "root")

    assert (_share_of(world, "all"), _share_of(world, "root")) == (200, 0)
    assert await world.step(world.cohort.reconcile, "all") == []
    assert await world.step(world.cohort.reconcile, "no") == []


def _share_of(world: Offices, cohort: str) -> int:
    found = world.client.object(COHORTS, cohort)
    assert found is not None
    return int(found["status"]["fairSharing"]["weightedShare"])


async def test_shares_go_when_they_no_longer_count(make: Callable[..., Offices]) -> None:
    """Without fair sharing, what an earlier process has written is taken away, and nothing else is written."""
    world = lent(make())
    old = {"status": {"fairSharing": {"weightedShare": 7}}}
    await world.team()
    assert await world.step(world.cohort.reconcile, "all") == []
    world.client.change(CLUSTER_QUEUES, "team", old)
    world.client.change(COHORTS, "all", old)

    await world.team()
    await world.step(world.cohort.reconcile, "all")

    assert world.client.calls[-2].body["status"] == world.client.calls[-1].body["status"] == {"fairSharing": None}


# --- LocalQueues -----------------------------------------------------------------------------------------------------


async def test_a_local_queue_shows_its_own(make: Callable[..., Offices]) -> None:
    """What waits and holds through another LocalQueue of the same ClusterQueue is not counted; written once."""
    world = make((LOCAL_QUEUES, make_local_queue("other")))
    busy(world)
    world.add(make_workload("alien", queue="other"), make_workload("alien-runs", queue="other", status=reserved()))

    found = await world.main()

    assert found is not None
    counts = [found["status"][f"{kind}Workloads"] for kind in ("pending", "reserving", "admitted")]
    assert counts == [2, 3, 2]
    assert found["status"]["flavorsReservation"][0]["resources"] == [{"name": "cpu", "total": "6"}]
    assert found["status"]["flavorsUsage"][0]["resources"] == [{"name": "cpu", "total": "4"}]
    assert status_of(found, "Active") == ("True", "Ready")
    assert await world.step(world.local_queue.reconcile, "ns/main") == []
    assert "finalizers" not in found["metadata"]


@pytest.mark.parametrize(
    ("objects", "reason", "says", "counts"),
    [
        pytest.param([(LOCAL_QUEUES, make_local_queue(stopPolicy="Hold"))], "Stopped", "stopPolicy Hold", (0, 1), id="it is stopped, so nobody waits in it"),
        pytest.param([(LOCAL_QUEUES, make_local_queue(cluster_queue="no"))], "ClusterQueueDoesNotExist", "ClusterQueue no does not exist", (1, 0), id="no such ClusterQueue, so nothing is held in it"),
        pytest.param([(CLUSTER_QUEUES, make_cluster_queue(stopPolicy="Hold"))], "ClusterQueueIsInactive", "ClusterQueue team is not active", (1, 1), id="its ClusterQueue admits nobody"),
    ],
)  # fmt: skip
async def test_why_a_local_queue_leads_nowhere(
    make: Callable[..., Offices], objects: list[Any], reason: str, says: str, counts: tuple[int, int]
) -> None:
    """Active is False, with the remedy; (pending, reserving) are what is left of one each."""
    world = make(*objects)
    world.add(make_workload(), make_workload("runs", status=reserved()))

    found = await world.main()

    assert found is not None
    assert status_of(found, "Active") == ("False", reason)
    assert says in message_of(found, "Active")
    shown = found["status"]
    assert (shown.get("pendingWorkloads", 0), shown.get("reservingWorkloads", 0)) == counts


async def test_a_list_that_has_become_empty_is_absent(make: Callable[..., Offices]) -> None:
    """Of a ClusterQueue without flavors, and of a LocalQueue whose ClusterQueue is gone."""
    world = make()
    shown = await world.team()
    assert shown is not None
    assert shown["status"]["flavorsUsage"]
    await world.main()

    world.client.put(CLUSTER_QUEUES, {**shown, "spec": {**shown["spec"], "resourceGroups": []}})
    team = await world.team()
    world.client.drop(CLUSTER_QUEUES, "team")
    main = await world.main()

    for found in (team, main):
        assert found is not None
        assert not {"flavorsUsage", "flavorsReservation"} & found["status"].keys()
    assert await world.step(world.local_queue.reconcile, "ns/main") == []


# --- what LocalQueues used lately ------------------------------------------------------------------------------------

HOURLY = FairRules(half_life=3600.0, interval=600.0)


def used(world: Offices) -> tuple[JSON, str]:
    """(consumed resources, last update) of LocalQueue `main`."""
    found = world.client.object(LOCAL_QUEUES, "ns/main")
    assert found is not None
    stored = found["status"]["fairSharing"]["admissionFairSharingStatus"]
    return stored["consumedResources"], stored["lastUpdate"]


async def test_a_local_queue_shows_what_it_used(make: Callable[..., Offices]) -> None:
    """An average that is brought up to date every interval, and comes back to be; the rest follows from its age."""
    world = make(fair_usage=FairUsage(HOURLY))
    world.add(make_workload(cpus=8, status=reserved(cpus=8)))
    await world.main()
    assert used(world) == ({"cpu": "0"}, "2026-01-01T00:00:00Z")

    await world.clock.advance(599)
    assert await world.local_queue.reconcile("ns/main") == Result(requeue_after=1.0)
    assert used(world)[0] == {"cpu": "0"}
    await world.clock.advance(3001)
    assert await world.local_queue.reconcile("ns/main") == Result(requeue_after=600.0)
    assert used(world) == ({"cpu": "4"}, "2026-01-01T01:00:00Z")

    world.client.drop(WORKLOADS, "ns/a")
    world.sync()
    await world.clock.advance(3600)
    await world.main()
    assert used(world) == ({"cpu": "2"}, "2026-01-01T02:00:00Z")


async def test_a_local_queue_that_used_nothing_is_left_alone(make: Callable[..., Offices]) -> None:
    """It says so once; that time goes by is not worth a write."""
    world = make(fair_usage=FairUsage(HOURLY))
    await world.main()
    assert used(world)[0] == {"cpu": "0"}

    await world.clock.advance(6000)

    assert await world.step(world.local_queue.reconcile, "ns/main") == []


@pytest.mark.parametrize(
    "closed",
    [
        pytest.param((LOCAL_QUEUES, make_local_queue(stopPolicy="Hold")), id="it is stopped"),
        pytest.param((CLUSTER_QUEUES, make_cluster_queue(stopPolicy="Hold")), id="its ClusterQueue admits nobody"),
    ],
)
async def test_a_closed_queue_is_not_sampled(make: Callable[..., Offices], closed: Any) -> None:
    """Its average stands still, and nothing is due."""
    world = make(closed, fair_usage=FairUsage(HOURLY))
    world.add(make_workload(cpus=8, status=reserved(cpus=8)))
    await world.main()
    await world.clock.advance(6000)

    assert await world.local_queue.reconcile("ns/main") == Result()
    assert used(world)[0] == {"cpu": "0"}


async def test_what_one_process_wrote_the_next_one_goes_on_from(make: Callable[..., Offices]) -> None:
    """Nothing is written before there is news; the time of the last update never goes back."""
    told = {"consumedResources": {"cpu": "4", "gpu": "1"}, "lastUpdate": "2026-01-01T00:30:00Z"}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": told}}
    world = make((LOCAL_QUEUES, {**make_local_queue(), "status": status}), fair_usage=FairUsage(HOURLY))
    await world.main()
    assert used(world) == ({"cpu": "4", "gpu": "1"}, "2026-01-01T00:30:00Z")

    await world.clock.advance(1200)
    await world.main()

    assert used(world) == ({"cpu": "3174802u", "gpu": "793701u"}, "2026-01-01T00:30:00Z")  # by 2 to the power of -1/3


async def test_what_does_not_count_is_not_shown(make: Callable[..., Offices]) -> None:
    """Without half-life nothing is remembered; where the order by usage is off, what was written is taken away."""
    told = {"consumedResources": {"cpu": "4"}, "lastUpdate": "2025-01-01T00:00:00Z"}
    queue = {**make_local_queue(), "status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": told}}}
    forgetful = make((LOCAL_QUEUES, queue), fair_usage=FairUsage(FairRules()))
    forgetful.sync()
    await forgetful.clock.advance(300)
    await forgetful.main()
    assert used(forgetful) == ({}, "2026-01-01T00:05:00Z")

    off = make((LOCAL_QUEUES, queue))
    found = await off.main()
    assert found is not None
    assert "fairSharing" not in found["status"]


# --- what queues use -------------------------------------------------------------------------------------------------


async def test_a_flavor_in_use_cannot_go(make: Callable[..., Offices]) -> None:
    """It gets our finalizer beside others', keeps it while a queue lists it, and goes with the last that does."""
    world = make((RESOURCE_FLAVORS, {**make_flavor(), "metadata": {"name": "default", "finalizers": ["theirs"]}}))
    assert await world.step(world.flavor.reconcile, "default") == ["patch resourceflavors default"]
    found = world.client.object(RESOURCE_FLAVORS, "default")
    assert found is not None
    assert found["metadata"]["finalizers"] == ["theirs", OURS]
    assert await world.step(world.flavor.reconcile, "default") == []

    world.client.change(RESOURCE_FLAVORS, "default", LEAVING)
    assert await world.step(world.flavor.reconcile, "default") == []
    world.client.drop(CLUSTER_QUEUES, "team")
    assert await world.step(world.flavor.reconcile, "default") == ["patch resourceflavors default"]

    found = world.client.object(RESOURCE_FLAVORS, "default")
    assert found is not None
    assert found["metadata"]["finalizers"] == ["theirs"]


async def test_a_flavor_that_a_workload_still_holds_cannot_go(make: Callable[..., Offices]) -> None:
    """No queue lists it any more, but pods run on its nodes: it is looked at again until they have ended."""
    world = make((RESOURCE_FLAVORS, {**make_flavor(), "metadata": {"name": "default", "finalizers": [OURS]}}))
    world.add(make_workload("runs", status=reserved(cpus=3)))
    world.client.put(CLUSTER_QUEUES, make_cluster_queue(cpus={"other": 10}))
    world.client.change(RESOURCE_FLAVORS, "default", LEAVING)
    assert await world.step(world.flavor.reconcile, "default") == []
    assert (await world.flavor.reconcile("default")).requeue_after

    world.client.drop(WORKLOADS, "ns/runs")

    assert await world.step(world.flavor.reconcile, "default") == ["patch resourceflavors default"]
    assert (await world.flavor.reconcile("default")).requeue_after is None


async def test_a_check_that_a_queue_names_cannot_go(make: Callable[..., Offices]) -> None:
    """It gets our finalizer beside others', keeps it while a queue names it, and goes with the last that does."""
    rules = {"admissionChecks": [{"name": "other"}, {"name": "nodes", "onFlavors": ["default"]}]}
    check = {
        "metadata": {"name": "nodes", "finalizers": ["theirs"]},
        "spec": {"controllerName": "example.com/nodes"},
        "status": {"conditions": [condition("Active")]},
    }
    world = make((ADMISSION_CHECKS, check), (CLUSTER_QUEUES, make_cluster_queue(admissionChecksStrategy=rules)))
    assert await world.step(world.check.reconcile, "nodes") == ["patch admissionchecks nodes"]

    world.client.change(ADMISSION_CHECKS, "nodes", LEAVING)
    assert await world.step(world.check.reconcile, "nodes") == []
    assert (await world.check.reconcile("nodes")).requeue_after
    world.client.put(CLUSTER_QUEUES, make_cluster_queue())
    assert await world.step(world.check.reconcile, "nodes") == ["patch admissionchecks nodes"]

    found = world.client.object(ADMISSION_CHECKS, "nodes")
    assert found is not None
    assert found["metadata"]["finalizers"] == ["theirs"]


MISSING_AFTER = 30.0


def conditions_of_check(world: Offices) -> dict[str, tuple[str, str]]:
    """Status and message by type."""
    found = world.client.object(ADMISSION_CHECKS, "budget")
    assert found is not None
    return {c["type"]: (c["status"], c["message"]) for c in found.get("status", {}).get("conditions") or ()}


def make_check(world: Offices, **status: Any) -> JSON:
    made = {"name": "budget", "creationTimestamp": utc_text(world.clock.now()), "finalizers": [OURS]}
    return {"metadata": made, "spec": {"controllerName": "example.com/budget"}, "status": status}


async def test_a_check_without_its_controller_has_a_condition(make: Callable[..., Offices]) -> None:
    """After a pause.  Other conditions stay; ControllerMissing is removed when the controller sets Active."""
    world = make()
    world.client.put(ADMISSION_CHECKS, make_check(world, conditions=[condition("Theirs")]))
    assert await world.step(world.check.reconcile, "budget") == []
    again = (await world.check.reconcile("budget")).requeue_after
    await world.clock.advance(MISSING_AFTER)
    first = await world.step(world.check.reconcile, "budget")
    missing = conditions_of_check(world)
    second = await world.step(world.check.reconcile, "budget")
    active = [condition("Active"), condition("Theirs"), condition("ControllerMissing")]
    world.client.change(ADMISSION_CHECKS, "budget", {"status": {"conditions": active}})
    await world.step(world.check.reconcile, "budget")

    assert again == MISSING_AFTER
    assert (first, second) == (["patch admissionchecks budget/status"], [])
    assert missing.keys() == {"Theirs", "ControllerMissing"}
    sentence = "controller example.com/budget has not set condition Active: start it"
    assert missing["ControllerMissing"] == ("True", sentence)
    assert conditions_of_check(world).keys() == {"Active", "Theirs"}


async def test_a_writer_that_removes_the_condition_starts_no_loop(make: Callable[..., Offices]) -> None:
    """The condition is set again after a pause, not at each event."""
    world = make()
    world.client.put(ADMISSION_CHECKS, make_check(world))
    await world.clock.advance(MISSING_AFTER)
    await world.step(world.check.reconcile, "budget")
    writes = []
    for _ in range(3):
        world.client.change(ADMISSION_CHECKS, "budget", {"status": {"conditions": [condition("Theirs")]}})
        writes.append(await world.step(world.check.reconcile, "budget"))
        await world.clock.advance(MISSING_AFTER / 2)
    again = await world.step(world.check.reconcile, "budget")

    assert writes == [[], [], ["patch admissionchecks budget/status"]]
    assert again == []


async def test_a_check_that_is_being_deleted_gets_no_condition(make: Callable[..., Offices]) -> None:
    """Its controller may have ended before it."""
    world = make()
    world.client.put(ADMISSION_CHECKS, make_check(world))
    world.client.change(ADMISSION_CHECKS, "budget", {"metadata": {"finalizers": ["theirs"], **LEAVING["metadata"]}})
    await world.clock.advance(MISSING_AFTER)

    assert await world.step(world.check.reconcile, "budget") == []


async def test_what_is_deleted_is_not_held_anew(make: Callable[..., Offices]) -> None:
    """A flavor that goes before it ever had our finalizer does not get it."""
    world = make((RESOURCE_FLAVORS, {**make_flavor(), "metadata": {"name": "default", "finalizers": ["theirs"]}}))
    world.client.change(RESOURCE_FLAVORS, "default", LEAVING)

    assert await world.step(world.flavor.reconcile, "default") == []
    assert await world.step(world.flavor.reconcile, "no") == []
