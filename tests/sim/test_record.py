"""Every decision of a whole world is recorded, and replayed it is the same byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kqueue.config.decision_record import DecisionRecordSettings
from kqueue.record.recorder import DecisionRecorder
from kqueue.record.records import Record
from kqueue.record.replay import replay
from tests.readings import page_of
from tests.sim.actor import Actor
from tests.sim.api_client import ROUGH
from tests.sim.chosen import SELDOM
from tests.sim.rivalry import draw_rivalry
from tests.sim.tenancy import rivals
from tests.sim.world import World, simulated

_SECONDS = 30.0


def _recorder(world: World) -> DecisionRecorder | None:
    if world.controller is None:
        return None
    recorder = world.controller.operator.loop.planning._settings.recorder
    return recorder if isinstance(recorder, DecisionRecorder) else None


def _await_the_thread(world: World) -> None:
    """A simulated hour takes a second, so the thread would drop cycles that it has time for in a real one."""
    if (recorder := _recorder(world)) is None:
        return
    waiting = recorder._waiting
    with waiting.not_full:  # notified of each cycle that the thread takes
        written = waiting.not_full.wait_for(lambda: len(waiting.queue) <= 16, _SECONDS)
    assert written, "the thread of the record does not write"


@pytest.mark.parametrize("seed", [2, pytest.param(5, marks=SELDOM)])
async def test_every_decision_of_a_world_is_replayed(seed: int, tmp_path: Path) -> None:
    """Tenants preempt each other, controllers are killed; each controller continues the same record."""
    folder = tmp_path / "record"
    tenancy = rivals(seed)
    async with simulated(seed, faults=ROUGH, tenancy=tenancy) as world:
        world.kill_controller()
        section = DecisionRecordSettings(path=str(folder))
        world.configured = world.configured.model_copy(update={"decision_record": section})
        world.start_controller()
        world.on_turn = lambda: _await_the_thread(world)
        await Actor(world, draw_rivalry(seed, tenancy, steps=30)).run()
        assert world.controller is not None
        recorder = _recorder(world)
        assert recorder is not None
        recorder.stop()
        page = page_of(world.controller.operator.metrics).decode()
    assert 'result="written"' in page
    assert 'result="dropped"' not in page

    kinds = set()
    for found in Record(folder).cycles():
        answer = replay(found.recorded())
        assert answer.equal, f"{found.name}: {answer}"
        assert not answer.remarks
        kinds |= {json.loads(bytes(raw))["decision"] for raw in found.entry.decisions}
    assert kinds == {"Admit", "Preempt", "Wait"}
