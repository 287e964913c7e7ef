from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from kqueue.errors import NotFoundError
from kqueue.sandbox.api import JOBS, NAMESPACES, PODS, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.collector import Collector
from tests.unit.sandbox.objects import CONFIG_MAPS, CRDS, THINGS, config_map, definition, job, new_api, pod, thing


class Collected:
    """A cluster with a collector at work."""

    def __init__(self) -> None:
        self.api: ClusterApi = new_api()
        self.collector = Collector(self.api)

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    async def owned(self, name: str, *owners: Object, block: bool = True, **metadata: Any) -> Object:
        """A ConfigMap with these owners."""
        references = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": block,
            }
            for owner in owners
        ]
        return await self.api.create(CONFIG_MAPS, config_map(name, ownerReferences=references, **metadata))

    async def delete(self, name: str, propagation: Literal["Background", "Foreground", "Orphan"]) -> None:
        await self.api.delete(CONFIG_MAPS, name, namespace="default", propagation=propagation)
        await self.settle()

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.api.list(CONFIG_MAPS)]


@pytest.fixture
async def world() -> AsyncIterator[Collected]:
    world = Collected()
    running = asyncio.create_task(world.collector.run())
    yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_dependents_go_after_their_owner(world: Collected) -> None:
    """Down the whole chain."""
    top = await world.api.create(CONFIG_MAPS, config_map("top"))
    middle = await world.owned("middle", top)
    await world.owned("bottom", middle)

    await world.delete("top", "Background")

    assert world.names() == []
    assert world.collector.idle


async def test_an_object_with_another_owner_stays(world: Collected) -> None:
    """It only forgets the one that is gone."""
    one = await world.api.create(CONFIG_MAPS, config_map("one"))
    two = await world.api.create(CONFIG_MAPS, config_map("two"))
    await world.owned("shared", one, two)

    await world.delete("one", "Background")

    shared = world.api.get(CONFIG_MAPS, "shared", namespace="default")
    assert [owner["name"] for owner in shared["metadata"]["ownerReferences"]] == ["two"]


async def test_an_owner_that_never_was_is_gone(world: Collected) -> None:
    """An object that names an unknown UID is collected."""
    owner = await world.api.create(CONFIG_MAPS, config_map("owner"))
    await world.owned("stray", {**owner, "metadata": {**owner["metadata"], "uid": "other"}})
    await world.settle()

    assert world.names() == ["owner"]


async def test_foreground_deletion_waits_for_dependents(world: Collected) -> None:
    """The owner is there, marked, until the last dependent that blocks it is gone."""
    owner = await world.api.create(CONFIG_MAPS, config_map("owner"))
    await world.owned("held", owner, finalizers=["example.com/f"])
    await world.owned("loose", owner, block=False, finalizers=["example.com/f"])

    await world.delete("owner", "Foreground")
    assert world.names() == ["held", "loose", "owner"]
    await world.api.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": []}}, namespace="default")
    await world.settle()

    assert world.names() == ["loose"]
    assert world.api.get(CONFIG_MAPS, "loose", namespace="default")["metadata"]["deletionTimestamp"]


async def test_orphans_are_left_behind(world: Collected) -> None:
    """They lose the owner and stay."""
    owner = await world.api.create(CONFIG_MAPS, config_map("owner"))
    await world.owned("child", owner)

    await world.delete("owner", "Orphan")

    assert world.names() == ["child"]
    assert "ownerReferences" not in world.api.get(CONFIG_MAPS, "child", namespace="default")["metadata"]


async def test_a_job_deleted_without_a_word_leaves_its_pods(world: Collected) -> None:
    """That is what batch/v1 does when a client does not say how."""
    owner = await world.api.create(JOBS, job())
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner["metadata"]["uid"]}
    await world.api.create(PODS, pod(metadata={"ownerReferences": [reference]}))

    await world.api.delete_owned(world.api.kind(JOBS), "j", "default")
    await world.settle()

    assert not world.api.list(JOBS)
    assert [each["metadata"]["name"] for each in world.api.list(PODS)] == ["p"]


async def test_a_namespace_goes_with_its_contents(world: Collected) -> None:
    """All kinds are emptied; what has a finalizer holds the namespace."""
    await world.api.create(NAMESPACES, {"metadata": {"name": "n"}})
    await world.api.create(CRDS, definition())
    moved = thing()
    moved["metadata"]["namespace"] = "n"
    await world.api.create(THINGS, moved)
    await world.api.create(CONFIG_MAPS, config_map(namespace="n", finalizers=["example.com/f"]))

    await world.api.delete(NAMESPACES, "n")
    await world.settle()
    assert world.api.get(NAMESPACES, "n")["status"]["phase"] == "Terminating"
    assert not world.api.list(THINGS)
    await world.api.patch(CONFIG_MAPS, "c", {"metadata": {"finalizers": []}}, namespace="n")
    await world.settle()

    with pytest.raises(NotFoundError):
        world.api.get(NAMESPACES, "n")


async def test_a_custom_kind_goes_with_its_objects(world: Collected) -> None:
    """The definition waits for the last of them."""
    await world.api.create(CRDS, definition())
    held = thing()
    held["metadata"]["finalizers"] = ["example.com/f"]
    await world.api.create(THINGS, held)

    await world.api.delete(CRDS, "things.example.com")
    await world.settle()
    assert world.api.list(CRDS)
    await world.api.patch(THINGS, "t", {"metadata": {"finalizers": []}}, namespace="default")
    await world.settle()

    assert not world.api.list(CRDS)
    with pytest.raises(NotFoundError):
        world.api.list(THINGS)
