"""Metrics of the planning process: what it had to get or to make anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kqueue.core.joint.answer import answer_of
from kqueue.manager.joint import _RoundReport
from kqueue.observe import Metrics
from kqueue.scheduling.joint.process import PlanningProcess
from kqueue.scheduling.joint.rounds import RoundResult
from kqueue.state.joint_history import RoundRecord
from tests.builders import START, make_head
from tests.unit.core.joint.worlds import racks, round_of, world_of
from tests.unit.observe.test_metrics import value


@pytest.mark.mechanism("2.18")
def test_drifts_and_lost_messages_are_counted() -> None:
    metrics, planner = Metrics(), PlanningProcess()
    report = _RoundReport(metrics, planner)
    plan = answer_of(1, round_of(world_of(racks(2)), [make_head("g", pods=1)]), {})
    record = RoundRecord(
        number=1,
        began=START,
        ended=START,
        result=RoundResult.GREEDY,
        workloads=1,
        batch="",
        plan=plan,
        problem="",
        seconds={},
    )
    report.ended(record)
    assert value(metrics, "kqueue_cache_drift_total", cause="joint-state") is None
    planner.resyncs = 2
    report.ended(replace(record, plan=replace(plan, drifts=("one", "two", "three"))))
    report.ended(record)
    assert value(metrics, "kqueue_cache_drift_total", cause="joint-state") == 2
    assert value(metrics, "kqueue_cache_drift_total", cause="joint-tables") == 3
