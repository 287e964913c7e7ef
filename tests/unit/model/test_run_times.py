"""Promised and expected run times of Workloads, and the runs that count as successful."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.model import traits_of
from kqueue.model.run_times import SuccessfulRun, expected_run_time, promised_run_time, successful_run
from tests.unit.state.life import JSON, at, held, workload

EXPECTED, RUNTIME = "kqueue.dev/expected-seconds", "kqueue.dev/expected-runtime"
DEADLINE = "kqueue.dev/deadline-seconds"


@pytest.mark.parametrize(
    ("annotations", "seconds"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({EXPECTED: "90"}, 90, id="seconds"),
        pytest.param({RUNTIME: "1m0.5s"}, 61, id="duration"),
        pytest.param({EXPECTED: "90", RUNTIME: "1h"}, 90, id="seconds-count-first"),
        pytest.param({EXPECTED: "soon", RUNTIME: "1h"}, 3600, id="the-valid-one-counts"),
        pytest.param({EXPECTED: "9" * 100_000}, None, id="giant"),
        pytest.param({RUNTIME: "1h" * 100_000}, None, id="giant-duration"),
        pytest.param({RUNTIME: "-1h"}, None, id="negative"),
    ],
)
def test_expected_run_times(annotations: JSON, seconds: int | None) -> None:
    """Policies of joint placement read the same number."""
    obj = workload(metadata={"annotations": annotations})
    assert expected_run_time(obj.metadata) == seconds
    traits = traits_of(obj.metadata)
    assert (traits.expected_seconds if traits is not None else None) == seconds


@pytest.mark.parametrize(
    ("limit", "ran", "deadline", "seconds"),
    [
        pytest.param(None, None, "", None, id="nothing"),
        pytest.param(600, None, "", 600, id="limit"),
        pytest.param(600, 200, "", 400, id="earlier-runs-count"),
        pytest.param(600, 900, "", 0, id="no-time-left"),
        pytest.param(600, -5, "", 600, id="damaged-status"),
        pytest.param(None, 200, "500", 500, id="deadline-of-each-run"),
        pytest.param(600, 50, "500", 500, id="the-shorter-one"),
        pytest.param(None, None, "-1", None, id="wrong"),
        pytest.param(None, None, "9" * 100_000, None, id="giant"),
    ],
)
def test_promised_run_times(limit: int | None, ran: int | None, deadline: str, seconds: int | None) -> None:
    annotations = {DEADLINE: deadline} if deadline else {}
    obj = workload(
        metadata={"annotations": annotations},
        spec={"maximumExecutionTimeSeconds": limit},
        accumulatedPastExecutionTimeSeconds=ran,
    )
    assert promised_run_time(obj) == seconds


def finished(
    *, reason: str = "Succeeded", began: float = 10, ended: float = 70, metadata: JSON | None = None, **status: Any
) -> Any:
    """A Workload that was admitted and ended these seconds after noon."""
    conditions = [held("Admitted", since=began), held("Finished", since=ended, reason=reason)]
    return workload(*conditions, metadata=metadata, **status)


def annotated(**annotations: str) -> JSON:
    return {"annotations": {f"kqueue.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}}


VARIANT = {
    "labels": {"kueue.x-k8s.io/concurrent-admission-parent": "x"},
    "ownerReferences": [
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "x", "uid": "x", "controller": True}
    ],
}


@pytest.mark.parametrize(
    ("obj", "seconds"),
    [
        pytest.param(finished(), 60, id="succeeded"),
        pytest.param(finished(accumulatedPastExecutionTimeSeconds=500), 60, id="after-an-eviction"),
        pytest.param(finished(began=70, ended=10), -60, id="a-clock-was-set-back"),
        pytest.param(finished(reason="Failed"), None, id="failed"),
        pytest.param(finished(reason="FailedToStart"), None, id="never-started"),
        pytest.param(workload(held("Finished", reason="Succeeded")), None, id="never-admitted"),
        pytest.param(workload(held("Admitted")), None, id="running"),
        pytest.param(
            workload(held("Admitted", status="False"), held("Finished", reason="Succeeded")), None, id="evicted"
        ),
        pytest.param(finished(metadata=annotated(imported="2026-01-01T12:00:10Z")), None, id="imported"),
        pytest.param(finished(metadata={"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}), None, id="elastic"),
        pytest.param(finished(metadata=annotated(checkpoint_interval="5m")), 60, id="checkpoints-without-eviction"),
        pytest.param(
            finished(metadata=annotated(checkpoint_interval="5m"), accumulatedPastExecutionTimeSeconds=500),
            None,
            id="went-on-from-a-checkpoint",
        ),
    ],
)
def test_successful_runs(obj: Any, seconds: int | None) -> None:
    """Only whole runs that succeeded count, and only the last one of each workload."""
    found = successful_run(obj)
    assert found == (None if seconds is None else SuccessfulRun(seconds=seconds, ended=at(70 if seconds > 0 else 10)))
