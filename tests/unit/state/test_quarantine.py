"""Which failures of planning count together."""

from __future__ import annotations

from datetime import UTC, datetime

from kqueue.state.quarantine import Quarantine
from tests.unit.state.wire_objects import make_workload

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def strike(quarantine: Quarantine, generation: int) -> bool:
    """Fail once for a workload of this generation; whether it is in quarantine now."""
    obj = make_workload(metadata={"generation": generation})
    return quarantine.strike("ns/w", obj, ValueError("no"), doing="planning it", queue="q", now=NOW) is not None


def test_failures_of_one_version_count_together() -> None:
    """The second one is the last."""
    quarantine = Quarantine()

    assert [strike(quarantine, 1), strike(quarantine, 1)] == [False, True]


def test_a_changed_workload_begins_anew() -> None:
    """Also where the failure comes before the watch's event of the change."""
    quarantine = Quarantine()

    assert [strike(quarantine, 1), strike(quarantine, 2), strike(quarantine, 2)] == [False, False, True]
