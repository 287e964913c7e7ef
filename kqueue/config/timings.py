"""The fixed times of the product in one place.  All are seconds; each can be overridden from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from kqueue.config.duration import parse_duration
from kqueue.config.names import nearest
from kqueue.errors import ConfigError

PREFIX = "KQUEUE_TIMING_"
"""Environment variable of a timing: this prefix and the field's name in upper case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Batch windows, drains, back-offs and time limits, in seconds.

    `KQUEUE_TIMING_UNGATER_WINDOW=250ms` overrides `ungater_window`; a bare number means seconds.  A window of 0 means
    "at once"; times that a loop waits for (back-offs, intervals, limits) must be positive.
    """

    # --- queues and the cycle
    queue_flush_window: float = 1.0
    """Maximum time to collect notifications that could free waiting workloads before one reaction; shorter while tries
    are cheap.  Source: Kueue, which always waits this long."""
    cycle_window_min: float = 0.020
    """Shortest time between the beginnings of two cycles under load, unless the writes of the first one have ended.
    The window follows the time that writes take.  On a quiet cluster a cycle begins at once."""
    cycle_window_max: float = 0.250
    """Longest such time, however slow the API server is."""
    cycle_yield_after: float = 0.020
    """A plan that has run longer gives the event loop a turn between two workloads."""
    untried_told_after: float = 10.0
    """Age at which a workload that no cycle has tried gets a condition with the reason.  Kueue writes none."""
    details_told_after: float = 5.0
    """Delay before changed details of the same reason, such as free amounts, are written; the newest details then.  A
    new
    reason is written at once.  Kueue writes every change at once."""
    status_refresh_window: float = 1.0
    """Counters in queue statuses are written at most this often per queue.  Source: Kueue.  The first pause between
    counters in the status of a gang, too; further pauses grow."""
    status_refresh_loaded: float = 5.0
    """The same while 20 decisions a second or more are being written."""
    eviction_ended_after: float = 600.0
    """Time that the owner's controller has to end the eviction of a Workload without an owner of a managed kind; then
    kqueue
    ends it, when no pod that names it is left.  Kueue never does."""
    audit_interval: float = 300.0
    """The cache is rebuilt from the store and compared this often, and each time that this process begins to lead."""
    check_controller_missing_after: float = 30.0
    """A controller that has not set condition Active of a new AdmissionCheck counts as missing after this."""
    quick_audit_interval: float = 5.0
    """Charges, holdings and queues are compared with the Workloads this often; equal numbers cost nothing."""
    unmanaged_interval: float = 300.0
    """Labelled objects of kinds that are switched off are counted this often.  Kueue does not count them."""

    # --- topology
    ungater_window: float = 1.0
    """Pod events after the first are collected this long before pods are released.  Source: KEP-2724, ungater."""
    node_failure_pod_window: float = 0.1
    """Events of pods on a troubled node are collected this long before the node is looked at.  Source: Kueue."""
    expectation_timeout: float = 60.0
    """A released pod whose event never came stops blocking its workload after this.  Kueue waits for ever."""
    leaked_gate_after: float = 300.0
    """A pod whose topology gate will never be removed is reported after this; its job may still be deleting it
    before."""
    leaked_gate_sweep: float = 60.0
    """Interval of the search for such pods."""
    pods_not_running_after: float = 60.0
    """A released pod that no node runs is reported after this; binding takes seconds where there is room."""
    foreign_pod_drain: float = 10.0
    """Nodes freed by pods outside topology scheduling wake queues this often.  Source: KEP-2724, non-TAS usage."""
    node_event_window: float = 1.0
    """Node changes are collected this long before queues are woken.  Source: KEP-2724, flavor controller."""

    # --- work queues
    reconcile_retry_base: float = 0.005
    """First retry of a key whose reconcile failed; doubles.  Source: client-go's item rate limiter."""
    reconcile_retry_max: float = 60.0
    """Longest retry delay of a failing key.  client-go allows 1000 s, too long for a queue that people watch."""

    # --- API server
    api_call_timeout: float = 30.0
    """One API call, all in all."""
    watch_connect_timeout: float = 5.0
    """Opening the connection of a watch."""
    watch_read_timeout: float = 90.0
    """A watch without any event for this time is broken; bookmarks arrive about each minute."""
    watch_retry_base: float = 0.5
    """First pause before a broken watch is opened again; doubles, with jitter."""
    watch_retry_max: float = 30.0
    """Longest pause before a broken watch is opened again."""
    worker_probe: float = 10.0
    """Pause between two looks whether a worker cluster answers and its kubeconfig is still the same."""
    worker_retry_base: float = 5.0
    """First pause before a worker cluster is connected again; doubles up to 64 times.  Source: Kueue."""
    watch_stale_after: float = 180.0
    """Readiness fails when a watch got neither event nor bookmark for this time: two read timeouts."""

    # --- the beginning and the end of a lead
    catch_up: float = 30.0
    """Maximum time that a new leader waits for its watches to catch up; then it continues with its current caches."""

    drain: float = 10.0
    """Time for reconciles and writes in progress to end at a leader's shutdown; then they are cancelled.  The lease is
    renewed meanwhile, and released afterwards.  A leader that has lost its lease has a second."""
    webhook_farewell: float = 3.0
    """Time for which webhooks accept requests after SIGTERM, until the API server sends them no more reviews."""

    # --- being seen
    event_window: float = 360.0
    """Equal events within this time become one series.  Source: client-go's event broadcaster, 6 minutes."""
    event_series_interval: float = 10.0
    """The count of a running event series is written at most this often."""
    event_farewell: float = 2.0
    """Maximum time for writing the last events at shutdown."""
    metrics_cache: float = 5.0
    """Time for which a rendered metrics page is cached."""
    loop_probe_interval: float = 0.25
    """How often the event loop's lag is measured."""
    loop_lag_limit: float = 0.050
    """A lag above this is logged: nothing may hold the loop longer."""
    loop_stuck_after: float = 10.0
    """Readiness fails for a minute after the event loop was blocked for this time: webhooks were not answered then."""
    certificate_remaining: float = 300.0
    """Readiness fails when the webhooks' certificate expires within this time: its renewal has failed for weeks."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Timings:
        """Return the defaults, overridden by the variables of `environ` (None: the process's own).

        Raises:
            ConfigError: an unknown KQUEUE_TIMING_ name or a bad value; all of them, one line each.
        """
        given = {k: v for k, v in (os.environ if environ is None else environ).items() if k.startswith(PREFIX)}
        known = {PREFIX + f.name.upper(): f.name for f in fields(cls)}
        values: dict[str, float] = {}
        problems: list[str] = []
        for variable in sorted(given):
            if variable not in known:
                problems.append(f"{variable}: unknown timing{nearest(variable, known)}")
                continue
            try:
                values[known[variable]] = _seconds(given[variable], zero=known[variable] in _MAY_BE_ZERO)
            except ValueError as e:
                problems.append(f"{variable}: {e} (found {given[variable]!r})")
        if any("unknown timing" in p for p in problems):
            problems.append("known timings are " + ", ".join(sorted(known)))
        if not problems:
            timings = cls(**values)
            problems = [f"{PREFIX}{low.upper()}: must not be above {PREFIX}{high.upper()}" for low, high in _ORDERED
                        if getattr(timings, low) > getattr(timings, high)]  # fmt: skip
        if problems:
            raise ConfigError("; ".join(problems))
        return timings


_MAY_BE_ZERO = frozenset(
    {
        "queue_flush_window",
        "details_told_after",
        "status_refresh_window",
        "status_refresh_loaded",
        "ungater_window",
        "node_failure_pod_window",
        "foreign_pod_drain",
        "node_event_window",
        "metrics_cache",
        "drain",
        "webhook_farewell",
    }
)
_ORDERED = (
    ("cycle_window_min", "cycle_window_max"),
    ("reconcile_retry_base", "reconcile_retry_max"),
    ("watch_retry_base", "watch_retry_max"),
)


def _seconds(text: str, *, zero: bool) -> float:
    plain = text.strip()
    try:
        seconds = float(plain) if plain.replace(".", "", 1).isdecimal() else parse_duration(plain).total_seconds()
    except ValueError:
        raise ValueError("must be seconds as a number (0.25) or a duration (250ms, 1m)") from None
    if seconds < 0 or (seconds == 0 and not zero):
        raise ValueError("must not be negative" if zero else "must be more than zero")
    return seconds
