"""Metrics of joint placement: flavors of the last plan only, and a gauge that is asked at each page."""

from __future__ import annotations

from kqueue.observe import Metrics
from kqueue.observe.joint_metrics import UnitsOfFlavor
from tests.unit.observe.test_metrics import series, value


def test_units_are_those_of_the_last_plan_and_flavors_that_are_gone_have_no_series() -> None:
    metrics = Metrics()
    metrics.joint.planned([UnitsOfFlavor("a", 20, 19, 10, 0.05), UnitsOfFlavor("b", 8, 8, 8, 0.0)])
    metrics.joint.planned([UnitsOfFlavor("a", 30, 15, 12, 0.5)])
    assert value(metrics, "kqueue_joint_units", flavor="a", kind="bound") == 30
    assert value(metrics, "kqueue_joint_units", flavor="a", kind="plan") == 15
    assert value(metrics, "kqueue_joint_units", flavor="a", kind="greedy") == 12
    assert value(metrics, "kqueue_joint_gap_ratio", flavor="a") == 0.5
    assert not [name for name, labels in series(metrics) if ("flavor", "b") in labels]


def test_without_a_bound_there_is_no_gap() -> None:
    metrics = Metrics()
    metrics.joint.planned([UnitsOfFlavor("a", 20, 19, 10, 0.05)])
    metrics.joint.planned([UnitsOfFlavor("a", None, 19, 10, None)])
    assert value(metrics, "kqueue_joint_gap_ratio", flavor="a") is None
    assert value(metrics, "kqueue_joint_units", flavor="a", kind="bound") is None
    assert value(metrics, "kqueue_joint_units", flavor="a", kind="plan") == 19


def test_rounds_stale_entries_restarts_and_failed_policies_are_counted() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.joint.round_ended("applied", {"sync": 0.02, "search": 0.2})
        metrics.joint.stale_entry()
    metrics.joint.round_ended("failed", {"sync": 0.02})
    metrics.joint.worker_restarted()
    metrics.joint.policy_failed("packing")
    assert value(metrics, "kqueue_joint_rounds_total", result="applied") == 2
    assert value(metrics, "kqueue_joint_rounds_total", result="failed") == 1
    assert value(metrics, "kqueue_joint_round_seconds_count", phase="sync") == 3
    assert value(metrics, "kqueue_joint_round_seconds_count", phase="search") == 2
    assert value(metrics, "kqueue_joint_stale_entries_total") == 2
    assert value(metrics, "kqueue_joint_worker_restarts_total") == 1
    assert value(metrics, "kqueue_joint_policy_failures_total", policy="packing") == 1


def test_moves_that_are_over_and_the_work_that_they_lost_are_counted() -> None:
    metrics = Metrics()
    metrics.joint.move_ended("done", 600)
    metrics.joint.move_ended("done", 60)
    metrics.joint.move_ended("aborted", 0)
    assert value(metrics, "kqueue_moves_total", result="done") == 2
    assert value(metrics, "kqueue_moves_total", result="aborted") == 1
    assert value(metrics, "kqueue_moved_pod_seconds_total") == 660


def test_the_pause_is_asked_for_at_each_page() -> None:
    metrics, paused = Metrics(), [True]
    metrics.joint_paused(lambda: paused[0])
    assert value(metrics, "kqueue_joint_paused") == 1
    paused[0] = False
    assert value(metrics, "kqueue_joint_paused") == 0
