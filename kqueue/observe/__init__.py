"""Logs, metrics, events, traces and health of the process.

This room reports facts; it has no decisions, no client and no knowledge of Workloads.  No call into this room fails its
caller or makes the caller wait: log lines are bounded, events are queued, pages are rendered in a thread.
"""

from __future__ import annotations

from kqueue.observe.custom_labels import CustomLabel
from kqueue.observe.event_queue import EventRank as EventRank
from kqueue.observe.events import EventHooks, EventLimits, EventRecorder
from kqueue.observe.health import Checks, Guard, HealthServer, HttpEndpoint, ProbePaths, Route
from kqueue.observe.logs import LogFormat, configure_logs, current_level, set_level
from kqueue.observe.loop import LoopProbe
from kqueue.observe.metric_groups import MetricGroups
from kqueue.observe.metrics import Kind, Metrics, Role
from kqueue.observe.queue_metrics import ClusterQueueMetrics, LocalQueueMetrics, ResourceFigures
from kqueue.observe.traces import Traces, traces_from

__all__ = [
    "Checks",
    "ClusterQueueMetrics",
    "CustomLabel",
    "EventHooks",
    "EventLimits",
    "EventRank",
    "EventRecorder",
    "Guard",
    "HealthServer",
    "HttpEndpoint",
    "Kind",
    "LocalQueueMetrics",
    "LogFormat",
    "LoopProbe",
    "MetricGroups",
    "Metrics",
    "ProbePaths",
    "ResourceFigures",
    "Role",
    "Route",
    "Traces",
    "configure_logs",
    "current_level",
    "set_level",
    "traces_from",
]
