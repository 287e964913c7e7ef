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
"""Per resource, in cores, bytes, devices."""

BY_USAGE = "UsageBasedAdmissionFairSharing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FairRules:
    """How the past counts; times in seconds.  A resource without a weight weighs 1."""

    half_life: float = 0.0
    """0: nothing is remembered, so the order does not follow usage."""
    interval: float = 300.0
    """How often averages are brought up to date and written."""
    weights: Mapping[str, float] = field(default_factory=dict)

    def alpha(self, seconds: float) -> float:
        """The part of an average that the last so many seconds make up: from 0, none, towards 1, all."""
        return -math.expm1(-math.log(2) * seconds / self.half_life) if self.half_life > 0 else 0.0


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """An average, and when it was last brought up to date."""

    consumed: Amounts
    updated: datetime


def sampled(record: UsageRecord | None, in_use: Amounts, now: datetime, rules: FairRules) -> UsageRecord:
    """Return the average after the present usage has lasted since the last update; the first average begins at 0.

    A clock that went back changes nothing.
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
    """The average with something on top."""
    consumed = dict(record.consumed)
    for resource, amount in amounts.items():
        consumed[resource] = consumed.get(resource, 0.0) + amount
    return UsageRecord(consumed, record.updated)


def weighted(amounts: Iterable[Amounts], weight: float, rules: FairRules) -> float:
    """Return one number to compare LocalQueues by; infinity if the weight is not above 0, or a resource's weight is
    infinite.
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
    """Return the average as text for the status: whole numbers from a thousand on, else six decimals."""
    return {resource: format_decimal(amount) for resource, amount in consumed.items()}


@dataclass(slots=True)
class _Account:
    """The usage of one LocalQueue."""

    record: UsageRecord | None = None
    weight: float = 1.0
    is_seeded: bool = False
    penalties: dict[str, Amounts] = field(default_factory=dict)
    """By workload, as long as it is not admitted."""
    usage: float | None = None
    """What was worked out since the last change."""


class FairUsage:
    """The accounts of all LocalQueues, and which ClusterQueues go by them."""

    def __init__(self, rules: FairRules) -> None:
        self.rules = rules
        self._accounts: dict[str, _Account] = {}
        self._by_usage: set[str] = set()
        self._entering: dict[str, str] = {}
        """Workload with a penalty -> its LocalQueue."""

    # --- configuration -----------------------------------------------------------------------------------------

    def on_cluster_queue(self, name: str, obj: wire.ClusterQueue | None) -> bool:
        """Follow a ClusterQueue; whether it goes by usage."""
        if obj is not None and goes_by_usage(obj):
            self._by_usage.add(name)
            return True
        self._by_usage.discard(name)
        return False

    def on_local_queue(self, key: str, obj: wire.LocalQueue | None, now: datetime) -> None:
        """Follow a LocalQueue.  The first sight of one brings what its status remembers; a deleted one is forgotten."""
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
        """Begin to lead: averages are those of the statuses, and there are no penalties."""
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
        """Count a workload that is being admitted ahead of its use; one that counts so already counts once."""
        self.withdraw(holding.key)
        if holding.queue in self._by_usage:
            account = self._account(holding.local_queue)
            account.penalties[holding.key] = penalty(_by_resource(holding.admission.usage()), self.rules)
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
        """Whether a workload counts ahead of its use."""
        return key in self._entering

    def follow(self, key: str, obj: wire.Workload | None, *, admitted: bool, used: Usage, now: datetime) -> None:
        """A workload's watch event came, and the cache has followed it.

        When it is admitted its penalty becomes a part of the average, once; `used` is what its LocalQueue uses then, it
        included.
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
        """Seconds until the average of a LocalQueue is to be brought up to date; 0 or less: it is due."""
        account = self._accounts.get(local_queue)
        if account is None or account.record is None or account.penalties:
            return 0.0
        return self.rules.interval - (now - account.record.updated).total_seconds()

    def sample(self, local_queue: str, used: Usage, now: datetime) -> None:
        """Bring the average of a LocalQueue up to date; `used` is what its admitted workloads hold."""
        account = self._account(local_queue)
        in_use = _in_base_units(_by_resource(used))
        account.record, account.usage = sampled(account.record, in_use, now, self.rules), None

    # --- views -------------------------------------------------------------------------------------------------

    def record(self, local_queue: str) -> UsageRecord | None:
        """The average of a LocalQueue without penalties; None when there is none yet."""
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
    """1 where none can be read.  No webhook refuses a negative one."""
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


def _by_resource(usage: Usage) -> dict[str, int]:
    total: Counter[str] = Counter()
    for column, amount in usage.items():
        total[column.resource] += amount
    return dict(total)


def _in_base_units(amounts: Mapping[str, int]) -> dict[str, float]:
    return {resource: amount / 1000 if resource == CPU else float(amount) for resource, amount in amounts.items()}
