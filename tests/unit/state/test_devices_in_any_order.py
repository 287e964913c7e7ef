"""The free devices of hosts depend on what there is, not on the order in which the watches told it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from kqueue.core.devices.pools import DeviceSlice
from kqueue.core.topology.node import PodFacts
from kqueue.model import ClaimView
from tests.unit.state.test_devices import DRIVER, Hosts, resource_slice

NODES, PODS, CLAIMS = ("n1", "n2"), ("ns/a", "ns/b", "ns/c"), ("ns/x", "ns/y", "ns/z")

DIVIDED: dict[str, Any] = {
    "counters": {"memory": "5"},
    "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "2"}}}],
}
"""Devices of which two can be given away at the same time."""


class World:
    """Hosts that follow each event at once, and what there is."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.slices: dict[str, DeviceSlice] = {}
        self.claims: dict[str, ClaimView] = {}
        self.pods: dict[str, tuple[str, str]] = {}
        """Node, empty: none yet; and Workload."""
        self.hosts = Hosts(resource_slice("n3", "a"))

    def step(self) -> None:
        self.random.choice((self.slice, self.claim, self.claim, self.pod, self.pod))()

    def slice(self) -> None:
        node = self.random.choice(NODES)
        names = [name for name in "abcd" if self.random.random() < 0.7]
        parts = DIVIDED if self.random.random() < 0.5 else {}
        made = resource_slice(node, *names, **parts) if names else None
        old = self.slices.pop(node, None)
        if made is not None:
            self.slices[node] = made
        if made is not None or old is not None:
            self.hosts.cache.requests.devices.on_slice(old, made)
            self.hosts.tell(self.hosts.cache.devices.refresh())

    def claim(self) -> None:
        key = self.random.choice(CLAIMS)
        node = self.random.choice(NODES)
        free = [name for name in "abcd" if self.random.random() < 0.4]
        pods = tuple(pod for pod in PODS if self.random.random() < 0.4)
        made = ClaimView(key, tuple((DRIVER, node, name) for name in free), pods)
        old = self.claims.pop(key, None)
        if free:
            self.claims[key] = made
        if free or old is not None:
            self.hosts.tell(self.hosts.cache.devices.on_claim(old, made if free else None))

    def pod(self) -> None:
        key = self.random.choice(PODS)
        if key in self.pods and self.random.random() < 0.4:
            del self.pods[key]
        else:
            self.pods[key] = (self.random.choice(("", *NODES)), self.random.choice(("", "ns/w")))
        tell_pod(self.hosts, key, self.pods.get(key))

    def anew(self) -> Hosts:
        """Hosts that are told of what there is, in another order."""
        hosts = Hosts(resource_slice("n3", "a"))
        steps: list[Callable[[], object]] = [partial(tell_pod, hosts, key, pod) for key, pod in self.pods.items()]
        steps += [partial(tell_claim, hosts, claim) for claim in self.claims.values()]
        steps += [partial(hosts.cache.requests.devices.on_slice, None, found) for found in self.slices.values()]
        self.random.shuffle(steps)
        for step in steps:
            step()
        hosts.tell(hosts.cache.devices.refresh())
        return hosts


def tell_claim(hosts: Hosts, claim: ClaimView) -> None:
    hosts.tell(hosts.cache.devices.on_claim(None, claim))


def tell_pod(hosts: Hosts, key: str, pod: tuple[str, str] | None) -> None:
    node, workload = pod or ("", "")
    if node:
        hosts.pods[key] = PodFacts(node=node, requests=(("cpu", 1),), workload=workload)
        hosts.cache.on_pod(key, hosts.pods[key])
    elif hosts.pods.pop(key, None) is not None:
        hosts.cache.on_pod(key, None)
    hosts.tell(hosts.cache.devices.on_pod(key, expected=pod is not None and not node and bool(workload)))


@pytest.mark.parametrize("seed", range(30))
def test_free_devices_do_not_depend_on_the_order_of_events(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(40):
        world.step()
        fresh = world.anew()
        for node in NODES:
            assert world.hosts.free(node) == fresh.free(node)
        assert world.hosts.drifts() == []
