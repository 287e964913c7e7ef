"""Annotations about moves, right and wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kqueue.api import move_names
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core.joint.movable import Consent
from kqueue.model.moving import move_wishes, running_seconds
from tests.unit.state.life import NOON, at, held, workload

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RESCHEDULE, CHECKPOINT = move_names.RESCHEDULE_ANNOTATION, move_names.LAST_CHECKPOINT_ANNOTATION
INTERVAL, RESTART = move_names.CHECKPOINT_INTERVAL_ANNOTATION, move_names.RESTART_SECONDS_ANNOTATION


def meta(**annotations: str) -> ObjectMeta:
    """Metadata with these annotations, by their last word."""
    return ObjectMeta(name="w", annotations={f"kqueue.dev/{k.replace('_', '-')}": v for k, v in annotations.items()})


@pytest.mark.parametrize(
    ("own", "of_queue", "consent"),
    [
        ({}, {}, Consent.NEVER),
        ({}, {"reschedule": "Always"}, Consent.ALWAYS),
        ({"reschedule": "Never"}, {"reschedule": "Always"}, Consent.NEVER),
        ({"reschedule": "AfterCheckpoint"}, {}, Consent.AFTER_CHECKPOINT),
        ({"reschedule": "always"}, {"reschedule": "Always"}, Consent.NEVER),
    ],
)
def test_nobody_is_moved_without_consent(own: dict[str, str], of_queue: dict[str, str], consent: Consent) -> None:
    assert move_wishes(meta(**own), meta(**of_queue), NOW).consent is consent


def test_the_queue_with_the_misspelt_word_is_named() -> None:
    queue = ObjectMeta(name="q", annotations={RESCHEDULE: "sometimes"})
    found = move_wishes(meta(), queue, NOW)
    assert found.consent is Consent.NEVER
    assert found.remarks[0].startswith("ClusterQueue q: metadata.annotations")


def test_times_of_checkpoints() -> None:
    wishes = move_wishes(meta(last_checkpoint="2026-01-01T11:50:00Z", restart_seconds="5"), None, NOW)
    assert (wishes.checkpoint_age, wishes.lost(3600), wishes.remarks) == (600, 605, ())
    assert move_wishes(meta(checkpoint_interval="1h30m"), None, NOW).interval == 5400
    assert move_wishes(meta(), None, NOW).lost(100) == 160


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (RESCHEDULE, "Sometimes"),
        (CHECKPOINT, "yesterday"),
        (CHECKPOINT, "2026-01-01T12:00:01Z"),
        (CHECKPOINT, "2026-01-01T11:00:00"),
        (INTERVAL, "-5m"),
        (INTERVAL, "often"),
        (RESTART, "-1"),
        (RESTART, "1.5"),
        (RESTART, "9" * 40),
        (RESTART, "٣"),
    ],
)
def test_a_value_that_cannot_be_read_counts_as_absent(annotation: str, value: str) -> None:
    found = move_wishes(ObjectMeta(name="w", annotations={annotation: value}), None, NOW)
    (remark,) = found.remarks
    assert annotation in remark
    assert (found.consent, found.checkpoint_age, found.interval, found.restart) == (Consent.NEVER, None, None, 60)


def test_only_admitted_workloads_run() -> None:
    admission = {"clusterQueue": "q", "podSetAssignments": []}
    running = workload(held("QuotaReserved"), held("Admitted", since=60), admission=admission)
    assert running_seconds(running, at(100)) == 40
    assert running_seconds(running, NOON - timedelta(seconds=5)) == 0
    assert running_seconds(workload(held("QuotaReserved"), admission=admission), at(100)) is None
    leaving = workload(held("QuotaReserved"), held("Admitted"), held("Evicted"), admission=admission)
    assert running_seconds(leaving, at(100)) is None
