"""The levels of topologies that group objects may name."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.controllers.topology_levels import TopologyLevels
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.store import Store


class Watch:
    """A watch whose objects the test puts."""

    def __init__(self, kind: Any) -> None:
        self.store: Store[Any] = Store("watched")
        self.synced, self._kind = asyncio.Event(), kind
        self.subscribe = self.store.subscribe

    def put(self, name: str, spec: dict[str, Any]) -> None:
        self.store.put(name, msgspec.convert({"metadata": {"name": name}, "spec": spec}, self._kind))


def levels(*labels: str) -> dict[str, Any]:
    return {"levels": [{"nodeLabel": label} for label in labels]}


def test_levels_are_those_of_topologies_and_of_flavors() -> None:
    topologies, flavors = Watch(wire.Topology), Watch(wire.ResourceFlavor)
    known = TopologyLevels(cast("Reflector[Any, Any]", topologies), cast("Reflector[Any, Any]", flavors))
    topologies.put("t", levels("block", "rack"))
    topologies.synced.set()
    assert known() is None  # the flavors may have a level, too
    flavors.put("plain", {})
    flavors.put("inline", {"topology": levels("row")})
    flavors.synced.set()
    assert known() == frozenset({"block", "rack", "row"})
    topologies.store.remove("t")
    assert known() == frozenset({"row"})
    flavors.put("inline", {"topology": levels("aisle")})
    assert known() == frozenset({"aisle"})
