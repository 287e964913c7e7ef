"""Somebody's hand in the status of Workloads, and on their switches: nobody is admitted into what runs, and all comes
to its end.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from kqueue.sandbox.api import APPLY_PATCH, Object
from kqueue.sandbox.objects import WriteOptions
from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.api_client import NONE, ROUGH, Faults
from tests.sim.chosen import SELDOM
from tests.sim.objects import WORKLOADS
from tests.sim.plan import Actions, Draft, Plan
from tests.sim.world import is_true, simulated

NOW = "2026-01-01T00:00:00Z"


def _flipped(status: Object, kind: str, value: str) -> list[Object]:
    """The conditions with one of another status; it is made where it is missing."""
    others = [c for c in status.get("conditions", []) if c["type"] != kind]
    return [*others, {"type": kind, "status": value, "reason": "ByHand", "message": "", "lastTransitionTime": NOW}]


def meddled(how: str, status: Object) -> Object:
    """What a hand writes into this status."""
    match how:
        case "wipe":
            return dict.fromkeys(status)
        case "conditions":
            return {"conditions": None}
        case "admission":
            return {"admission": None}
        case "unreserved":
            return {"conditions": _flipped(status, "QuotaReserved", "False")}
        case "admitted":
            return {"conditions": _flipped(status, "Admitted", "True")}
        case "evicted":
            return {"conditions": _flipped(status, "Evicted", "True")}
        case "late":
            return {"conditions": _flipped(status, "PodsReady", "False")}
        case "counts":
            past, many = {"count": 5, "requeueAt": NOW}, 2**31 - 1
            return {"requeueState": past, "accumulatedPastExecutionTimeSeconds": many}
    raise AssertionError(how)


HANDS = ("wipe", "conditions", "admission", "unreserved", "admitted", "evicted", "late", "counts")


class Meddler(Actor):
    """Does what a plan says, by hand."""

    async def meddle(self, name: str, how: str) -> None:
        """A hand in the status of a Job's Workload."""
        self.world.disturbed.add(name)
        workload = self.world.workload_of(name)
        if workload is not None and not is_true(workload, "Finished"):  # what has ended holds nothing
            change = {"status": meddled(how, copy.deepcopy(workload.get("status", {})))}
            with self._webhooks_asleep():
                await self._patch(WORKLOADS, workload["metadata"]["name"], change, subresource="status")

    @contextlib.contextmanager
    def _webhooks_asleep(self) -> Iterator[None]:
        """Much of it would be refused; what is written while they do not answer is not."""

        async def allows(_hook: Any, _review: Any) -> Object:
            return {"allowed": True}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.world.api.admission, "post", allows)
            yield

    async def end_eviction(self, name: str) -> None:
        """Another client evicts a Job's Workload and ends that at once, by server-side apply without the admission."""
        self.world.disturbed.add(name)
        workload = self.world.workload_of(name)
        if workload is None or is_true(workload, "Finished"):
            return
        meta, status = workload["metadata"], copy.deepcopy(workload.get("status", {}))
        status.pop("admission", None)
        for kind, value in (("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
            status["conditions"] = _flipped(status, kind, value)
        applied = {
            "apiVersion": workload["apiVersion"],
            "kind": workload["kind"],
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "status": status,
        }
        options = WriteOptions(manager="kueue-admission", force=True)
        how = {"subresource": "status", "content_type": APPLY_PATCH, "options": options}
        await self._patch(WORKLOADS, meta["name"], applied, **how)

    async def switch(self, name: str, active: bool) -> None:
        """A user switches a Workload off or on."""
        self.world.disturbed.add(name)
        workload = self.world.workload_of(name)
        if workload is not None:
            await self._patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": active}})


def _on_a_workload(draft: Draft, action: str, **arguments: Any) -> None:
    name = draft.some_job()
    if name is not None:
        draft.add(action, name=name, **arguments)


MEDDLING: Actions = (
    (Draft.good_job, 25),
    (Draft.equal_jobs, 3),
    (Draft.failing_job, 3),
    (Draft.too_large_job, 2),
    (lambda d: _on_a_workload(d, "meddle", how=d.chance.choice(HANDS)), 25),
    (lambda d: _on_a_workload(d, "end_eviction"), 12),
    (lambda d: _on_a_workload(d, "switch", active=d.chance.random() < 0.6), 8),
    (Draft.hold, 3),
    (lambda d: d.add("resume"), 4),
    (lambda d: d.add("wait"), 6),
    (lambda d: d.add("rest"), 2),
)


async def lived(seed: int, plan: Plan, faults: Faults) -> None:
    async with simulated(seed, faults=faults) as world:
        invariants.watch(world)
        await Meddler(world, plan).run()


@pytest.mark.parametrize("seed", [pytest.param(n, marks=SELDOM if n >= 6 else ()) for n in range(12)])
async def test_a_hand_in_the_status_costs_nobody_more_than_time(seed: int) -> None:
    """Every promise holds after every step, every third world without faults; each Job comes to the end it must."""
    await lived(seed, Draft(f"meddling-{seed}").draw(40, MEDDLING), NONE if seed % 3 == 0 else ROUGH)
