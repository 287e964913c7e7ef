"""Quotas follow nodes: seen in the annotation, the condition, the quota tree and what starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.quota_from_capacity import QuotaFromCapacity
from kqueue.controllers.resources import CLUSTER_QUEUES, RESOURCE_FLAVORS
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import NodeFacts
from tests.unit.controllers.builders import (
    JSON,
    World,
    make_cluster_queue,
    make_flavor,
    make_workload,
    message_of,
    reserved,
    status_of,
)

SHARES, RESOLVED, KIND = "kqueue.dev/quota-from-capacity", "kqueue.dev/resolved-quota", "kqueue.dev/QuotaFromCapacity"
CPU = FlavorResource("default", "cpu")


def sharing(share: str = "500", name: str = "team", **spec: Any) -> JSON:
    queue = make_cluster_queue(name, **spec)
    queue["metadata"]["annotations"] = {SHARES: f"default/cpu={share}"}
    return queue


class Shared(World):
    """A world of nodes with eight cpus each, and the reconciler of shares."""

    def __init__(self, *queues: JSON, labels: dict[str, str] | None = None) -> None:
        flavor = (RESOURCE_FLAVORS, make_flavor(nodeLabels=labels or {}))
        super().__init__(flavor, *[(CLUSTER_QUEUES, queue) for queue in queues or (sharing(),)])
        self.shares = self.make()

    def make(self) -> QuotaFromCapacity:
        """The reconciler of a new leader."""
        return QuotaFromCapacity(
            cluster_queues=self.cluster_queues,
            nodes=lambda: self.cache.ledger.nodes,
            flavors=self.cache.quota.flavors,
            writer=self.writer_of(CLUSTER_QUEUES, self.cluster_queues, wire.ClusterQueue),
            clock=self.clock,
        )

    def nodes(self, count: int, **facts: Any) -> None:
        """These nodes and no others are there."""
        for name in list(self.cache.ledger.nodes):
            self.intake.on_node(self.cache.ledger.nodes[name], None)
        for number in range(count):
            more = {"labels": {}, "allocatable": {"cpu": 8000}} | facts
            self.intake.on_node(None, NodeFacts(name=f"n{number}", **more))

    async def look(self, *, minutes: int = 0) -> int:
        """The nominal quota of `team` in milli cpus, after a look at the nodes then."""
        await self.clock.advance(60 * minutes)
        self.sync()
        await self.shares.reconcile("all")
        self.sync()
        node = self.cache.quota.node_of("team")
        assert node is not None
        return node.quota(CPU).nominal

    def team(self) -> JSON:
        found = self.client.object(CLUSTER_QUEUES, "team")
        assert found is not None
        return found


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Shared]]:
    worlds: list[Shared] = []

    def build(*queues: JSON, **more: Any) -> Shared:
        worlds.append(Shared(*queues, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def test_a_quota_is_a_share_of_the_nodes_and_the_spec_stays(make: Callable[..., Shared]) -> None:
    world = make()
    world.nodes(4)

    assert await world.look() == 16_000
    team = world.team()
    assert team["metadata"]["annotations"][RESOLVED] == "default/cpu=16"
    assert team["spec"] == sharing()["spec"]
    assert status_of(team, KIND) == ("True", "CapacityFollowed")
    assert message_of(team, KIND) == "default/cpu is 16: 500 per mille of 32"

    world.nodes(6)
    assert await world.look() == 24_000


async def test_nothing_is_written_while_nothing_changes(make: Callable[..., Shared]) -> None:
    world = make()
    world.nodes(4)
    await world.look()
    before = len(world.client.writes())
    for _ in range(3):
        await world.look(minutes=1)
    assert len(world.client.writes()) == before


async def test_lost_nodes_lower_the_quota_by_a_tenth_a_minute(make: Callable[..., Shared]) -> None:
    """Workloads that run then use more than the quota, and nothing evicts them."""
    world = make()
    world.nodes(4)
    await world.look()
    world.add(make_workload("w", cpus=12, status=reserved(cpus=12)))
    world.nodes(1)

    seen = [await world.look(minutes=1) for _ in range(10)]

    assert seen == [16_000, 14_400, 12_800, 11_200, 9_600, 8_000, 6_400, 4_800, 4_000, 4_000]
    assert world.cache.held.holding("ns/w") is not None
    assert world.cache.audits.audit() == []


async def test_what_a_descent_says(make: Callable[..., Shared]) -> None:
    world = make()
    world.nodes(4)
    await world.look()
    world.nodes(0)
    await world.look()
    assert message_of(world.team(), KIND) == "default/cpu is 16, falling to 0: 500 per mille of 0"


async def test_nodes_that_come_back_end_a_descent_at_once(make: Callable[..., Shared]) -> None:
    world = make()
    world.nodes(4)
    await world.look()
    world.nodes(0)
    assert [await world.look(minutes=1) for _ in range(3)] == [16_000, 14_400, 12_800]
    world.nodes(4)
    assert await world.look() == 16_000


async def test_a_new_leader_goes_on_from_what_is_written(make: Callable[..., Shared]) -> None:
    """The first step of the new leader comes a minute after its first look."""
    world = make()
    world.nodes(4)
    await world.look()
    world.nodes(0)
    for _ in range(3):
        await world.look(minutes=1)
    world.shares = world.make()
    assert [await world.look(minutes=1) for _ in range(2)] == [12_800, 11_520]


@pytest.mark.parametrize(
    ("facts", "nominal"),
    [
        pytest.param({"labels": {"pool": "a"}}, 16_000, id="of-the-flavor"),
        pytest.param({"labels": {"pool": "b"}}, 0, id="of-another-flavor"),
        pytest.param({"labels": {"pool": "a"}, "ready": False}, 0, id="not-ready"),
        pytest.param({"labels": {"pool": "a"}, "unschedulable": True}, 0, id="cordoned"),
        pytest.param({"labels": {"pool": "a"}, "allocatable": {"cpu": 2**63 - 1}}, (2**63 - 1) // 2, id="saturated"),
    ],
)
async def test_usable_nodes_of_the_flavor_count(
    make: Callable[..., Shared], facts: dict[str, Any], nominal: int
) -> None:
    world = make(labels={"pool": "a"})
    world.nodes(4, **facts)
    assert await world.look() == nominal


async def test_a_flavor_that_is_gone_keeps_its_last_quota(make: Callable[..., Shared]) -> None:
    world = make()
    world.nodes(4)
    await world.look()
    world.client.drop(RESOURCE_FLAVORS, "default")
    assert await world.look(minutes=5) == 16_000
    assert status_of(world.team(), KIND) == ("False", "CapacityUnknown")


async def test_shares_above_the_whole_are_told_in_all_queues(make: Callable[..., Shared]) -> None:
    world = make(sharing("600"), sharing("500", "other"))
    world.nodes(1)
    await world.look()
    for name in ("team", "other"):
        queue = world.client.object(CLUSTER_QUEUES, name)
        assert status_of(queue, KIND) == ("True", "SharesAboveCapacity")
        assert "of default/cpu in ClusterQueues other, team exceed 1000 per mille" in message_of(queue, KIND)


async def test_an_annotation_that_is_removed_gives_the_quota_of_the_spec_back(make: Callable[..., Shared]) -> None:
    world = make()
    world.nodes(4)
    await world.look()
    world.client.change(CLUSTER_QUEUES, "team", {"metadata": {"annotations": {SHARES: None}}})

    assert await world.look() == 10_000
    assert RESOLVED not in world.team()["metadata"]["annotations"]
    assert status_of(world.team(), KIND) == ("", "")


async def test_another_writer_of_the_resolved_quota_is_corrected(make: Callable[..., Shared]) -> None:
    """A raised number falls again in steps, a lowered one is raised at once."""
    world = make()
    world.nodes(4)
    await world.look()
    world.client.change(CLUSTER_QUEUES, "team", {"metadata": {"annotations": {RESOLVED: "default/cpu=1"}}})
    assert await world.look() == 16_000
    world.client.change(CLUSTER_QUEUES, "team", {"metadata": {"annotations": {RESOLVED: "default/cpu=20"}}})
    assert [await world.look(minutes=1) for _ in range(4)] == [20_000, 18_000, 16_000, 16_000]
