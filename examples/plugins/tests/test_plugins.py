"""The plugins keep kqueue's contract, and do what they say."""

from __future__ import annotations

import asyncio
import random
from importlib.metadata import entry_points
from pathlib import Path

from kqueue_example_plugins.freeze import Freeze
from kqueue_example_plugins.queue_rank import QueueRank

from kqueue.core.plugins import Approve, WaitFor
from kqueue.plugin_contract import check_plugin, drawn_admits, drawn_flavor, drawn_head


def test_the_plugins_keep_the_contract() -> None:
    check_plugin(lambda: QueueRank({"queues": ["a/b", "b/a"]}), inputs=300)
    check_plugin(lambda: Freeze({"file": "/nonexistent", "maxCpu": {"a": 2}}), inputs=300)


def test_the_package_registers_both() -> None:
    assert {entry.name for entry in entry_points(group="kqueue.plugins")} >= {"queue-rank", "freeze"}


def test_large_pods_get_no_flavor_of_the_list() -> None:
    chance, freeze = random.Random(1), Freeze({"file": "/nonexistent", "maxCpu": {"a": 2}})
    said = {freeze.allows_flavor(drawn_head(chance).pod_sets[0], drawn_flavor(chance, "a")) for _ in range(100)}
    assert "pods may ask for 2 cpu, and these ask for 4" in said
    assert "" in said


def test_a_file_holds_workloads_back(tmp_path: Path) -> None:
    freeze, admit = Freeze({"file": str(tmp_path / "freeze"), "seconds": 30}), next(drawn_admits(random.Random(1), 1))
    assert asyncio.run(freeze.permit(admit)) == Approve()
    (tmp_path / "freeze").touch()
    assert asyncio.run(freeze.permit(admit)) == WaitFor(30, f"file {tmp_path}/freeze exists")
