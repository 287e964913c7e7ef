"""Originals are read once for all clusters that ask at the same time."""

from __future__ import annotations

import asyncio

import pytest

from kqueue.controllers.originals import Originals
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import UnreachableError
from kqueue.runtime.client import Client, Json
from kqueue.runtime.resources import ResourceType
from tests.unit.controllers.builders import make_workload
from tests.unit.controllers.fakes import FakeClient


class SlowClient(FakeClient):
    """A server that answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.asked: list[str] = []

    async def get_json(self, resource: ResourceType, name: str, namespace: str | None = None, **more: object) -> Json:
        self.asked.append(name)
        await self.answers.wait()
        return await super().get_json(resource, name, namespace)


async def asked(client: Client, *names: str) -> list[asyncio.Task[Json | None]]:
    """Reads that have begun."""
    originals = Originals(client)
    reads = [asyncio.create_task(originals.read(WORKLOADS, name, "ns")) for name in names]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return reads


async def test_clusters_that_ask_together_share_an_answer() -> None:
    """One read answers all questions about an object; other objects are read beside it, and a later question is asked anew."""
    client = SlowClient()
    client.put(WORKLOADS, make_workload("w"))
    originals = Originals(client)
    first, second, gone = (asyncio.create_task(originals.read(WORKLOADS, name, "ns")) for name in ("w", "w", "v"))
    await asyncio.sleep(0)
    client.answers.set()
    found = await asyncio.gather(first, second, gone)
    later = await originals.read(WORKLOADS, "w", "ns")

    assert client.asked == ["w", "v", "w"]
    assert found[0] is found[1] is not None
    assert (found[2], later == found[0]) == (None, True)


async def test_a_cluster_that_is_cancelled_ends_nothing_for_the_others() -> None:
    client = SlowClient()
    client.put(WORKLOADS, make_workload("w"))
    first, second = await asked(client, "w", "w")
    first.cancel()
    await asyncio.wait({first})
    client.answers.set()

    assert (await second or {})["metadata"]["name"] == "w"
    assert (first.cancelled(), client.asked) == (True, ["w"])


async def test_an_error_reaches_every_caller_and_the_next_one_asks_anew() -> None:
    client = SlowClient()
    client.put(WORKLOADS, make_workload("w"))
    client.fail(UnreachableError("cut"), verb="get")
    client.answers.set()
    for read in await asked(client, "w", "w"):
        with pytest.raises(UnreachableError):
            await read

    assert (await Originals(client).read(WORKLOADS, "w", "ns") or {})["metadata"]["name"] == "w"
