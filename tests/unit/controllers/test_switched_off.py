"""Pods of an integration that is switched off are told of, once, and counted for as long as they are held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from kqueue.clock import FakeClock
from kqueue.controllers.switched_off import SwitchedOff
from kqueue.errors import ServerError
from tests.unit.controllers.fakes import FakeRecorder

P = "kueue.x-k8s.io/"


def pod(name: str, *gates: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


class Desk:
    """Pages of pods, and what is said of them."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages, self.asked = list(pages), list[str]()
        self.failing = 0
        self.clock, self.recorder = FakeClock(), FakeRecorder()
        self.counts: list[int] = []
        self.looker = SwitchedOff(
            self.list_page, recorder=self.recorder, clock=self.clock, interval=600.0, report=self.report
        )

    def report(self, counts: Mapping[str, int]) -> None:
        self.counts.append(counts["integration_off"])

    async def list_page(self, _resource: object, *, params: Mapping[str, str]) -> bytes:
        self.asked.append(params["labelSelector"])
        if self.failing:
            self.failing -= 1
            raise ServerError("busy", status=503)
        number = int(params.get("continue", "0"))
        more = str(number + 1) if number + 1 < len(self.pages) else ""
        return json.dumps({"items": self.pages[number], "metadata": {"continue": more}}).encode()


async def test_held_pods_are_told_once_and_counted_always() -> None:
    """All pages are read; a pod that nothing of ours holds is not told of; one that comes later is."""
    desk = Desk([pod("a", f"{P}admission"), pod("runs")], [pod("b", f"{P}admission", "x/y")])
    await desk.looker.look()
    desk.pages[0].append(pod("c", f"{P}topology"))
    await desk.looker.look()
    desk.pages = [[]]
    await desk.looker.look()

    assert [event[0] for event in desk.recorder.events] == ["Pod a", "Pod b", "Pod c"]
    assert set(desk.recorder.warnings) == {"IntegrationSwitchedOff"}
    assert "kqueue uninstall --release --integration pod" in desk.recorder.messages[0]
    assert desk.counts == [2, 3, 0]
    assert set(desk.asked) == {f"{P}managed=true"}


async def test_a_refused_list_is_tried_again() -> None:
    """A server that is busy ends nothing; who stops leading counts no more."""
    desk = Desk([pod("a", f"{P}admission")])
    desk.failing = 1
    running = asyncio.create_task(desk.looker.run())
    await desk.clock.advance(0)
    before = list(desk.counts)
    await desk.clock.advance(601)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert (before, desk.counts) == ([], [1, 0])
