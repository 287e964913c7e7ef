"""AdmissionChecks that plugins answer: what each answer becomes in the Workload, deadlines, and restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.check_answers import CheckActivity
from kqueue.controllers.plugin_checks import PluginChecks, plugin_activity
from kqueue.controllers.resources import ADMISSION_CHECKS, WORKLOADS
from kqueue.core.decision import Admit
from kqueue.core.hooks import PermitHooks
from kqueue.core.plugins import Approve, Deny, Permission, WaitFor
from kqueue.core.workload import Admission
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from tests.builders import make_head
from tests.unit.controllers.builders import JSON, World, condition, make_workload, read, reserved

CONTROLLER = "kqueue.dev/plugin.budget"


class Budget:
    """A plugin that answers what the test says."""

    name = "budget"

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[str]()

    async def permit(self, admit: Admit) -> Permission:
        self.asked.append(admit.admission.queue)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Permission = self.answer() if callable(self.answer) else self.answer
        return answer


def check(controller: str = CONTROLLER) -> wire.AdmissionCheck:
    found: wire.AdmissionCheck = read(
        wire.AdmissionCheck, {"metadata": {"name": "money"}, "spec": {"controllerName": controller}}
    )
    return found


class Checked(World):
    """A Workload with quota since now, whose check `money` is Pending."""

    def __init__(self, answer: Any, *, controller: str = CONTROLLER, **state: Any) -> None:
        super().__init__()
        self.budget, self.controller = Budget(answer), controller
        self.reserve(**state)
        self.lead()

    def reserve(self, **state: Any) -> None:
        """Quota is reserved now."""
        now = utc_text(self.clock.now())
        waits = condition("Admitted", "False", reason="UnsatisfiedAdmissionChecks")
        status = reserved(waits)
        status["conditions"][0]["lastTransitionTime"] = now
        entry = {"name": "money", "state": "Pending", "message": "", "lastTransitionTime": now, **state}
        status["admissionChecks"] = [{**entry, "name": "other"}, entry]
        if self.client.object(WORKLOADS, "ns/a") is None:
            self.client.put(WORKLOADS, make_workload(status=status))
        else:
            self.client.change(WORKLOADS, "ns/a", {"status": status})
        self.sync()

    def lead(self) -> None:
        """A controller begins, or begins anew."""
        self.checks = PluginChecks(
            self.writer,
            check={"money": check(self.controller)}.get,
            permits=PermitHooks(plugins={"budget": self.budget}),
            admit=lambda workload: _admit(),
            clock=self.clock,
        )

    async def step(self) -> float | None:
        self.sync()
        return (await self.checks.reconcile("ns/a")).requeue_after

    @property
    def entry(self) -> JSON:
        found = self.client.object(WORKLOADS, "ns/a")
        assert found is not None
        entry: JSON = found["status"]["admissionChecks"][1]
        return entry


def _admit() -> Admit:
    return Admit(head=make_head("a"), admission=Admission(queue="team", pod_sets=()))


@pytest.mark.parametrize(
    ("answer", "state", "message", "seconds"),
    [
        pytest.param(Approve(), "Ready", "plugin budget approves", None, id="approve"),
        pytest.param(Deny("too dear", 30), "Retry", "plugin budget: too dear", 30, id="deny"),
        pytest.param(
            WaitFor(5, "asks the office"),
            "Pending",
            "plugin budget waits, until 2026-01-01T00:00:05Z at the latest: asks the office",
            5,
            id="wait",
        ),
        pytest.param(OSError("x"), "Pending", "plugin budget failed: OSError: x", None, id="failure"),
        pytest.param(
            7, "Pending", "plugin budget failed: TypeError: the answer is int, not Approve, Deny or WaitFor", None,
            id="no answer",
        ),
        pytest.param(
            WaitFor(float("inf")), "Pending", "plugin budget failed: ValueError: inf is no number of seconds", None,
            id="for ever",
        ),
        pytest.param(Deny("no", -5), "Retry", "plugin budget: no", 0, id="a negative pause"),
    ],
)  # fmt: skip
@pytest.mark.mechanism("3.22")
async def test_an_answer_is_the_state_of_the_check_g5_7(
    answer: Any, state: str, message: str, seconds: int | None
) -> None:
    """Row 3.22.  The entry of another controller's check stays as it is."""
    world = Checked(answer)
    await world.step()
    assert (world.entry["state"], world.entry["message"]) == (state, message)
    assert world.entry.get("requeueAfterSeconds") == seconds
    other = (world.client.object(WORKLOADS, "ns/a") or {})["status"]["admissionChecks"][0]
    assert (other["name"], other["state"], other["message"]) == ("other", "Pending", "")


async def test_a_wait_ends_at_its_deadline_g5_7() -> None:
    """The plugin is asked now and then, and the deadline counts from the reservation."""
    world = Checked(WaitFor(5))
    spent = 0.0
    while (after := await world.step()) is not None:
        spent += after
        await world.clock.advance(after)
    assert spent == 5
    assert world.budget.asked == ["team"] * 3
    assert (world.entry["state"], world.entry["message"]) == (
        "Retry",
        "plugin budget did not approve within 5 s of the reservation",
    )
    assert "requeueAfterSeconds" not in world.entry


async def test_a_wait_goes_on_after_a_restart_g5_7() -> None:
    """With the deadline that it had: the new leader asks at once, and the plugin cannot prolong the wait."""
    world = Checked(WaitFor(5))
    await world.step()
    await world.clock.advance(3)
    world.budget.answer = WaitFor(500)
    world.lead()
    assert await world.step() == 1
    await world.clock.advance(2)
    assert await world.step() is None
    assert world.entry["state"] == "Retry"


async def test_a_later_answer_can_shorten_the_wait() -> None:
    world = Checked(WaitFor(100))
    await world.step()
    world.budget.answer = WaitFor(1)
    await world.clock.advance(1)
    await world.step()
    assert world.entry["requeueAfterSeconds"] == 1


async def test_a_failing_plugin_is_asked_with_growing_pauses() -> None:
    world = Checked(OSError("x"))
    pauses = []
    for _ in range(6):
        after = await world.step()
        assert after is not None
        pauses.append(after)
        await world.clock.advance(after)
    assert pauses == [1, 2, 4, 8, 10, 10]


async def test_an_early_event_asks_nobody() -> None:
    world = Checked(WaitFor(100))
    await world.step()
    assert await world.step() == 1
    assert len(world.budget.asked) == 1


async def test_an_entry_of_an_earlier_reservation_is_no_deadline() -> None:
    """An eviction leaves the seconds of a retry in the entry."""
    world = Checked(WaitFor(100), requeueAfterSeconds=0, lastTransitionTime="2025-12-31T00:00:00Z")
    await world.step()
    assert (world.entry["state"], world.entry["requeueAfterSeconds"]) == ("Pending", 100)


@pytest.mark.parametrize("controller", ["kueue.x-k8s.io/other", "kqueue.dev/plugin.missing"])
async def test_other_checks_are_left_alone(controller: str) -> None:
    world = Checked(Approve(), controller=controller)
    assert await world.step() is None
    assert (world.entry["state"], world.budget.asked) == ("Pending", [])


async def test_an_answer_for_a_reservation_that_ended_is_dropped() -> None:
    """While the plugin thought about it, the workload was evicted and got quota again."""
    goes = asyncio.Event()
    world: Checked

    async def permit(_admit: Admit) -> Permission:
        await goes.wait()
        return Deny("no")

    world = Checked(None)
    vars(world.budget)["permit"] = permit
    task = asyncio.create_task(world.checks.reconcile("ns/a"))
    await asyncio.sleep(0)
    await world.clock.advance(10)
    world.reserve()
    goes.set()
    await task
    assert world.entry["state"] == "Pending"


# --- the condition of the check ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("controller", "wanted"),
    [
        (CONTROLLER, ("True", "Ready", "plugin budget answers this check")),
        (
            "kqueue.dev/plugin.missing",
            (
                "False",
                "PluginNotEnabled",
                "no enabled plugin missing has method permit; add it to plugins.enabled, or remove the check",
            ),
        ),
        ("example.com/x", None),
    ],
)
@pytest.mark.parametrize("goes", [False, True], ids=["it stays", "it is to go, and a queue still uses it"])
async def test_a_check_is_active_where_its_plugin_is_enabled_g5_7(
    controller: str, wanted: tuple[str, str, str] | None, goes: bool
) -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    metadata = {"name": "money", **(going if goes else {})}
    world, store = World(), Store[wire.AdmissionCheck]("checks")
    world.client.watch(ADMISSION_CHECKS, store, lambda obj: read(wire.AdmissionCheck, obj))
    world.client.put(ADMISSION_CHECKS, {"metadata": metadata, "spec": {"controllerName": controller}})
    world.sync()
    writer: StatusWriter[wire.AdmissionCheck] = StatusWriter(
        world.client,
        ADMISSION_CHECKS,
        store=store,
        decode=wire.AdmissionCheck,
        key_of=lambda obj: obj.metadata.name,
        version_of=lambda obj: obj.metadata.resource_version,
    )
    status = CheckActivity(writer, plugin_activity(PermitHooks(plugins={"budget": Budget(Approve())})), world.clock)
    await status.reconcile("money")
    await status.reconcile("money")
    found = (world.client.object(ADMISSION_CHECKS, "money") or {}).get("status", {}).get("conditions", [])
    assert [(c["status"], c["reason"], c["message"]) for c in found] == ([wanted] if wanted else [])
    assert len(world.client.writes()) == len(found)
