"""Recent usage of LocalQueues: if a ClusterQueue orders by usage, the LocalQueue with least usage goes first.

    consumed    the usage, averaged over time; each half-life halves the weight of earlier usage
    penalty     usage that a workload adds in advance, from the decision to admit it until it is admitted
    usage       (consumed + penalties), each resource by its weight, divided by the weight of the LocalQueue

Usage and its sums are integers, as everywhere. Averages are floats, in cores, bytes and devices: they decay by
irrational factors, and are only compared with each other. All functions are plain `def` on one event loop, and the
caller passes the time.

Source: the compatible system's admission fair sharing (KEP-4136).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.preemption import LocalQueueUsage
from kqueue.core.quantity import CPU, format_decimal, parse_exactly
from kqueue.core.quota import Usage
from kqueue.state.holding import Holding

Amounts = Mapping[str, float]
"""Amounts by resource, in cores, bytes and devices."""

BY_USAGE = "UsageBasedAdmissionFairSharing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FairRules:
    """The weight of past usage; times in seconds. A resource without a weight has weight 1."""

    half_life: float = 0.0
    """0: no usage is remembered, so the order does not follow usage."""
    interval: float = 300.0
    """The time between two updates of an average."""
    weights: Mapping[str, float] = field(default_factory=dict)

    def alpha(self, seconds: float) -> float:
        """Return the part of an average that the last `seconds` make up: from 0 (none) towards 1 (all)."""
        return -math.expm1(-math.log(2) * seconds / self.half_life) if self.half_life > 0 else 0.0


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """An average, and the time of its last update."""

    consumed: Amounts
    updated: datetime


def sampled(record: UsageRecord | None, in_use: Amounts, now: datetime, rules: FairRules) -> UsageRecord:
    """Return the average after the present usage has lasted since the last update; the first average begins at 0.

    Where the clock went back, the average stays as it is.
    """
    if record is None:
        return UsageRecord({}, now)
    updated = max(now, record.updated)
    if rules.half_life <= 0:
        return UsageRecord({}, updated)
    new = rules.alpha((updated - record.updated).total_seconds())
    old = record.consumed
    resources = dict.fromkeys((*old, *in_use))
    return UsageRecord({r: (1 - new) * old.get(r, 0.0) + new * in_use.get(r, 0.0) for r in resources}, updated)


def penalty(requests: Mapping[str, int], rules: FairRules) -> Amounts:
    """Return the amounts that a workload with these requests adds to the average in its first interval."""
    return {r: part for r, amount in _in_base_units(requests).items() if (part := amount * rules.alpha(rules.interval))}


def plus(record: UsageRecord, amounts: Amounts) -> UsageRecord:
    """Return the average with these amounts added."""
    consumed = dict(record.consumed)
    for resource, amount in amounts.items():
        consumed[resource] = consumed.get(resource, 0.0) + amount
    return UsageRecord(consumed, record.updated)


def weighted(amounts: Iterable[Amounts], weight: float, rules: FairRules) -> float:
    """Return one number by which LocalQueues are compared; infinity if the weight is not above 0, or the weight of a
    resource is infinite.
    """
    if weight <= 0:
        return math.inf
    parts = (rules.weights.get(resource, 1.0) * amount for each in amounts for resource, amount in each.items())
    found = math.fsum(parts) / weight
    return math.inf if math.isnan(found) else found


def goes_by_usage(obj: wire.ClusterQueue) -> bool:
    """Whether a ClusterQueue asks for the order by usage."""
    scope = obj.spec.admission_scope
    return scope is not None and scope.admission_mode == BY_USAGE


def as_texts(consumed: Amounts) -> dict[str, str]:
    """Return the average as text for the status: whole numbers from 1000 on, below that six decimals."""
    return {resource: format_decimal(amount) for resource, amount in consumed.items()}


@dataclass(slots=True)
class _Account:
    """The usage of one LocalQueue."""

    record: UsageRecord | None = None
    weight: float = 1.0
    is_seeded: bool = False
    penalties: dict[str, Amounts] = field(default_factory=dict)
    """Penalties by workload, until the workload is admitted."""
    usage: float | None = None
    """The usage as computed since the last change; None: it must be computed again."""


class FairUsage:
    """The accounts of all LocalQueues, and the ClusterQueues whose order follows them."""

    def __init__(self, rules: FairRules) -> None:
        self.rules = rules
        self._accounts: dict[str, _Account] = {}
        self._by_usage: set[str] = set()
        self._entering: dict[str, str] = {}
        """LocalQueues by the key of a workload with a penalty."""

    # --- configuration -----------------------------------------------------------------------------------------

    def on_cluster_queue(self, name: str, obj: wire.ClusterQueue | None) -> bool:
        """Follow a ClusterQueue; return whether its order follows usage."""
        if obj is not None and goes_by_usage(obj):
            self._by_usage.add(name)
            return True
        self._by_usage.discard(name)
        return False

    def on_local_queue(self, key: str, obj: wire.LocalQueue | None, now: datetime) -> None:
        """Follow a LocalQueue. The first event of a LocalQueue restores the average of its status; a deleted one is
        forgotten.
        """
        if obj is None:
            self._forget(key)
            return
        account = self._account(key)
        account.weight, account.usage = _weight(obj), None
        if not account.is_seeded:
            account.is_seeded = True
            told = UsageRecord(_stored_average(obj), now)
            account.record = told if account.record is None else plus(account.record, told.consumed)

    def begin(self, local_queues: Iterable[wire.LocalQueue], now: datetime) -> None:
        """Start from the averages in the statuses, without penalties, when this process becomes the leader."""
        for key in list(self._entering):
            self.withdraw(key)
        for obj in local_queues:
            account = self._account(f"{obj.metadata.namespace}/{obj.metadata.name}")
            account.record, account.usage = UsageRecord(_stored_average(obj), now), None

    def _account(self, key: str) -> _Account:
        return self._accounts.setdefault(key, _Account())

    def _forget(self, key: str) -> None:
        old = self._accounts.pop(key, None)
        for workload in old.penalties if old is not None else ():
            del self._entering[workload]

    # --- workloads ---------------------------------------------------------------------------------------------

    def enter(self, holding: Holding) -> None:
        """Add a penalty for a workload that is being admitted; no effect if the workload has one already."""
        self.withdraw(holding.key)
        if holding.queue in self._by_usage:
            account = self._account(holding.local_queue)
            account.penalties[holding.key] = penalty(by_resource(holding.admission.usage()), self.rules)
            account.usage = None
            self._entering[holding.key] = holding.local_queue

    def withdraw(self, key: str) -> None:
        """Remove the penalty of a workload that was not admitted after all; no effect if it has none."""
        local_queue = self._entering.pop(key, None)
        if local_queue is not None:
            account = self._accounts[local_queue]
            del account.penalties[key]
            account.usage = None

    def is_entering(self, key: str) -> bool:
        """Whether a workload has a penalty."""
        return key in self._entering

    def follow(self, key: str, obj: wire.Workload | None, *, admitted: bool, used: Usage, now: datetime) -> None:
        """Follow a workload's watch event, after the cache has followed it.

        When the workload is admitted, its penalty becomes a part of the average, once; `used` is the usage of its
        LocalQueue at that time, with this workload.
        """
        home = self._entering.get(key)
        if home is None:
            return
        account = self._accounts[home]
        ahead = account.penalties[key]
        if obj is None or model.is_over(obj) or model.local_queue_key(obj) != home:
            self.withdraw(key)
        elif admitted:
            self.withdraw(key)
            self.sample(home, used, now)
            assert account.record is not None
            account.record, account.usage = plus(account.record, ahead), None

    # --- averages ----------------------------------------------------------------------------------------------

    def due(self, local_queue: str, now: datetime) -> float:
        """Return the seconds until the average of a LocalQueue must be updated; 0 or less: it is due now."""
        account = self._accounts.get(local_queue)
        if account is None or account.record is None or account.penalties:
            return 0.0
        return self.rules.interval - (now - account.record.updated).total_seconds()

    def sample(self, local_queue: str, used: Usage, now: datetime) -> None:
        """Update the average of a LocalQueue; `used` is the quota of its admitted workloads."""
        account = self._account(local_queue)
        in_use = _in_base_units(by_resource(used))
        account.record, account.usage = sampled(account.record, in_use, now, self.rules), None

    # --- views -------------------------------------------------------------------------------------------------

    def record(self, local_queue: str) -> UsageRecord | None:
        """Return the average of a LocalQueue without penalties; None when it has no average yet."""
        account = self._accounts.get(local_queue)
        return account.record if account is not None else None

    def usage(self, local_queue: str) -> float:
        """Return the usage by which LocalQueues of a ClusterQueue are ordered."""
        account = self._accounts.get(local_queue)
        if account is None:
            return 0.0
        if account.usage is None:
            consumed = account.record.consumed if account.record is not None else {}
            account.usage = weighted((consumed, *account.penalties.values()), account.weight, self.rules)
        return account.usage

    def usages(self) -> LocalQueueUsage | None:
        """Return the recent usage of LocalQueues for planning; None: no ClusterQueue orders by usage."""
        if not self._by_usage:
            return None
        return LocalQueueUsage(frozenset(self._by_usage), {key: self.usage(key) for key in self._accounts})


def _weight(obj: wire.LocalQueue) -> float:
    """Return the weight of a LocalQueue; 1 if it cannot be parsed. No webhook refuses a negative weight."""
    sharing = obj.spec.fair_sharing
    try:
        return float(parse_exactly(sharing.weight)) if sharing is not None else 1.0
    except (ValueError, OverflowError):
        return 1.0


def _stored_average(obj: wire.LocalQueue) -> dict[str, float]:
    """Return the average in the status; amounts that cannot be parsed count as 0."""
    sharing = obj.status.fair_sharing
    stored = sharing.admission_fair_sharing_status if sharing is not None else None
    consumed: dict[str, float] = {}
    for resource, text in (stored.consumed_resources if stored is not None else {}).items():
        try:
            consumed[resource] = float(parse_exactly(text))
        except (ValueError, OverflowError):
            continue
    return consumed


def by_resource(usage: Usage) -> dict[str, int]:
    """Return the sum of a usage over all flavors, by resource."""
    total: Counter[str] = Counter()
    for column, amount in usage.items():
        total[column.resource] += amount
    return dict(total)


def _in_base_units(amounts: Mapping[str, int]) -> dict[str, float]:
    return {resource: amount / 1000 if resource == CPU else float(amount) for resource, amount in amounts.items()}
