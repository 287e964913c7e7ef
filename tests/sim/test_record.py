"""Every decision of a whole world is recorded, and replayed it is the same byte for byte."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from kqueue.config.decision_record import DecisionRecordSettings
from kqueue.config.plugins import Plugins
from kqueue.core.plugins import Verdict
from kqueue.core.preemption import Target
from kqueue.core.workload import Flavor, Head, PodSet
from kqueue.manager import plugins
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


async def _record(seed: int, folder: Path, *, steps: int, **configuration: Any) -> None:
    """Record a world of rivals whose controllers have a configuration."""
    tenancy = rivals(seed)
    async with simulated(seed, faults=ROUGH, tenancy=tenancy) as world:
        world.kill_controller()
        update = {"decision_record": DecisionRecordSettings(path=str(folder)), **configuration}
        world.configured = world.configured.model_copy(update=update)
        world.start_controller()
        world.on_turn = lambda: _await_the_thread(world)
        await Actor(world, draw_rivalry(seed, tenancy, steps=steps)).run()
        assert world.controller is not None
        recorder = _recorder(world)
        assert recorder is not None
        recorder.stop()
        page = page_of(world.controller.operator.metrics).decode()
    assert 'result="written"' in page
    assert 'result="dropped"' not in page


@pytest.mark.parametrize("seed", [2, pytest.param(7, marks=SELDOM)])
async def test_every_decision_of_a_world_is_replayed(seed: int, tmp_path: Path) -> None:
    """Tenants preempt each other, controllers are killed; each controller continues the same record."""
    folder = tmp_path / "record"
    await _record(seed, folder, steps=30)
    kinds = set()
    for found in Record(folder).cycles():
        answer = replay(found.recorded())
        assert answer.equal, f"{found.name}: {answer}"
        assert not answer.remarks
        kinds |= {json.loads(bytes(raw))["decision"] for raw in found.entry.decisions}
    assert kinds == {"Admit", "Preempt", "Wait"}


class Careful:
    """Delays each workload, and looks at its flavors and victims, in every way that a plan asks."""

    name = "careful"

    def __init__(self) -> None:
        self._tries: Counter[str] = Counter()

    def screen(self, head: Head) -> Verdict:
        """Refuse the first try."""
        self._tries[head.uid] += 1
        return Verdict("it was not looked at yet" if self._tries[head.uid] == 1 else "")

    def allows_flavor(self, pod_set: PodSet, flavor: Flavor) -> str:
        """Agree."""
        return ""

    def rank(self, head: Head, targets: Sequence[Target]) -> tuple[object, ...]:
        """Prefer small sets of victims."""
        return len(targets), head.timestamp

    def score(self, prepared: Head, flavor: Flavor) -> int:
        """Prefer flavors by their names, and each time otherwise."""
        self._tries[flavor.name] += 1
        return (crc32(flavor.name.encode()) + self._tries[flavor.name]) % 101


_PROFILE = {"name": "default", **{point: ["careful"] for point in ("screen", "filter", "victims", "score")}}


@pytest.mark.parametrize("seed", [1, pytest.param(7, marks=SELDOM)])
async def test_strict_queues_and_plugins_are_replayed(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin has a memory and is not loaded in the replay: its answers are those of the record."""
    found = EntryPoint(name="careful", value=f"{__name__}:Careful", group=plugins.PLUGINS_GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [found] if group == plugins.PLUGINS_GROUP else [])
    section = Plugins.model_validate({"enabled": [{"name": "careful"}], "profiles": [_PROFILE]})
    folder = tmp_path / "record"
    await _record(seed, folder, steps=20, plugins=section)

    strict = behind = answers = 0
    for found_cycle in Record(folder).cycles():
        answer = replay(found_cycle.recorded())
        assert answer.equal, f"{found_cycle.name}: {answer}"
        assert not answer.remarks
        strict += bool(found_cycle.entry.strict)
        behind += sum(len(changes.add) for changes in found_cycle.entry.behind.values())
        answers += len(found_cycle.entry.answers)
    assert strict
    assert behind
    assert answers
