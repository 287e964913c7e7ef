"""The use of budgets: an exact sum of what admitted workloads hold, times the time for which they hold it.

    meter     one LocalQueue in one ClusterQueue: what its workloads hold now, and what they have used in each period
    account   the meters that share a budget: a LocalQueue, or all LocalQueues of a namespace

A meter is read before and after each change of what is held, so the sum has no error of sampling.  Time is measured
with a clock that never jumps; only the periods follow the calendar.  All functions are plain `def` on one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kqueue.api import quota_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.core.budgets import HOUR_MS, Budget, Period, Spent
from kqueue.core.quantity import CPU, format_quantity
from kqueue.core.quota import Usage
from kqueue.core.value import value
from kqueue.model.budgets import Meter, budgets, ledger
from kqueue.state.fair_usage import by_resource
from kqueue.state.holding import Holding


@dataclass(slots=True)
class _Metered:
    """The meter of one LocalQueue in one ClusterQueue; `read_at`: monotonic milliseconds."""

    read_at: int
    rates: Mapping[str, int] = field(default_factory=dict)
    spent: dict[tuple[str, Period], Spent] = field(default_factory=dict)

    def read(self, tracked: Iterable[tuple[str, Period]], now: datetime, at: int) -> None:
        """Add the use since the last reading, and forget resources and periods without a budget."""
        elapsed = max(0, at - self.read_at)
        self.read_at = at
        self.spent = {
            key: self.spent.get(key, Spent(key[1].start(now), 0)).after(key[1], self.rates.get(key[0], 0), elapsed, now)
            for key in tracked
        }


@value(kw_only=True)
class Account:
    """A budget and its use: `who` is a namespace or namespace/name of a LocalQueue."""

    who: str
    budget: Budget
    used: int
    renews_at: datetime

    @property
    def is_exhausted(self) -> bool:
        """Whether no workload may start before the next period."""
        return self.used >= self.budget.amount

    def with_left(self, left: int) -> str:
        """Return an amount that is left, in hours of the resource, as a part of a sentence."""
        resource = self.budget.resource
        hours = f"{hours_text(left, resource)} of {hours_text(self.budget.amount, resource)} h of {resource}"
        return f"{hours} are left until {utc_text(self.renews_at)}"

    def sentence(self, queue: str) -> str:
        """Return why workloads wait for this budget of a ClusterQueue."""
        resource, budget = self.budget.resource, self.budget
        kind = "LocalQueue" if "/" in self.who else "namespace"
        whole = hours_text(budget.amount, resource)
        return (
            f"The budget of {kind} {self.who} in ClusterQueue {queue} is used up: {whole} h of {resource} per "
            f"{budget.period}; it renews at {utc_text(self.renews_at)}"
        )


def hours_text(amount: int, resource: str) -> str:
    """Return an amount in hours of the resource, rounded down to whole ones; below 100 hours to hundredths, and below
    one hour of cpu to thousandths.
    """
    one = 1000 if resource == CPU else 1
    hours = amount // HOUR_MS
    if resource == CPU and hours < one:
        return format_quantity(hours, resource)
    whole = hours - hours % one
    parts = (amount - whole * HOUR_MS) * 100 // (HOUR_MS * one) if hours < 100 * one else 0
    return format_quantity(whole, resource) + (f".{parts:02}".rstrip("0") if parts else "")


class Budgets:
    """The budgets of all ClusterQueues and their use."""

    def __init__(self) -> None:
        self.clock: Clock | None = None
        """None: use is not measured in this process, so no budget is ever exhausted."""
        self.on_renewed: Callable[[str], None] = lambda _queue: None
        """Called with a ClusterQueue when a budget that was exhausted is not any more."""
        self._refused: set[tuple[str, str]] = set()
        self._texts: dict[str, str | None] = {}
        self._budgets: dict[str, tuple[Budget, ...]] = {}
        self._tracked: dict[str, tuple[tuple[str, Period], ...]] = {}
        self._meters: dict[str, dict[str, dict[str, _Metered]]] = {}
        """By ClusterQueue, namespace and LocalQueue (namespace/name); one without a name has what LocalQueues used that
        hold nothing now and have no budget of their own, so that a tenant cannot fill the memory with LocalQueues.
        """

    def on_cluster_queue(self, name: str, obj: wire.ClusterQueue | None) -> None:
        """Follow a ClusterQueue that appeared, changed or (None) is gone."""
        text = obj.metadata.annotations.get(quota_names.BUDGETS_ANNOTATION) if obj is not None else None
        if text == self._texts.get(name):
            return
        self._texts[name] = text
        own = budgets(obj.metadata.annotations)[0] if obj is not None else ()
        if own:
            self._budgets[name] = own
            self._tracked[name] = tuple(dict.fromkeys((budget.resource, budget.period) for budget in own))
        elif self._budgets.pop(name, None) is not None:
            self._tracked.pop(name)
            self._meters.pop(name, None)

    def begin(self, clock: Clock, queues: Iterable[wire.ClusterQueue], holdings: Iterable[Holding]) -> None:
        """Start from the written use, when this process becomes the leader.

        The time since the last write is added for the workloads that are admitted now, from the write or from their
        admission on, so nothing counts twice.
        """
        self.clock, self._meters = clock, {}
        now, written = clock.now(), dict[str, datetime | None]()
        for queue in queues:
            if (name := queue.metadata.name) in self._budgets:
                stored = ledger(queue.metadata.annotations)
                written[name] = stored.at
                for (local_queue, resource, period), spent in stored.spent.items():
                    self._meter(name, local_queue).spent[resource, period] = spent
        for holding in holdings:
            at = written.get(holding.queue)
            if at is not None and holding.admitted and holding.admitted_at is not None:
                self._catch_up(holding, max(at, holding.admitted_at), now)

    def _catch_up(self, holding: Holding, since: datetime, now: datetime) -> None:
        meter, amounts = self._meter(holding.queue, holding.local_queue), by_resource(holding.admission.usage())
        for key in self._tracked[holding.queue]:
            start = key[1].start(now)
            elapsed = max(0, (now - max(since, start)) // timedelta(milliseconds=1))
            before = meter.spent.get(key, Spent(start, 0))
            meter.spent[key] = before.after(key[1], amounts.get(key[0], 0), elapsed, now)

    def has_budgets(self, queue: str) -> bool:
        """Whether a ClusterQueue has any budget."""
        return queue in self._budgets

    def names(self) -> list[str]:
        """Return the ClusterQueues with budgets."""
        return list(self._budgets)

    def follow(self, queue: str, local_queue: str, used: Usage) -> None:
        """Follow what admitted workloads of a LocalQueue use of a ClusterQueue from now on."""
        if self.clock is None or queue not in self._budgets:
            return
        meter = self._meter(queue, local_queue)
        meter.read(self._tracked[queue], self.clock.now(), self._at(self.clock))
        meter.rates = by_resource(used)
        if not any(meter.rates.values()) and not self._has_own(queue, local_queue):
            namespace = _namespace(local_queue)
            meters = self._meters[queue][namespace]
            del meters[local_queue]
            if any(one.used for one in meter.spent.values()):
                rest = self._meter(queue, f"{namespace}/")
                rest.read(self._tracked[queue], self.clock.now(), self._at(self.clock))
                rest.spent = {key: one.plus(meter.spent[key]) for key, one in rest.spent.items()}

    def metered(self, queue: str) -> list[str]:
        """Return the LocalQueues (namespace/name) of a ClusterQueue that are followed one by one."""
        return [name for meters in self._meters.get(queue, {}).values() for name in meters if not name.endswith("/")]

    def _has_own(self, queue: str, local_queue: str) -> bool:
        return any(budget.scope == local_queue for budget in self._budgets[queue])

    def spent(self, queue: str) -> dict[Meter, Spent]:
        """Return the use of a ClusterQueue now, by meter; unused periods are left out.

        LocalQueues without a budget of their own are in one sum for each namespace.
        """
        found: dict[Meter, Spent] = {}
        for namespace in list(self._meters.get(queue, ())):
            for local_queue, meter in self._read(queue, namespace):
                name = local_queue if self._has_own(queue, local_queue) else f"{namespace}/"
                for (resource, period), spent in meter.spent.items():
                    if spent.used:
                        known = found.get((name, resource, period))
                        found[name, resource, period] = spent if known is None else known.plus(spent)
        return found

    def accounts(self, queue: str, local_queue: str) -> list[Account]:
        """Return the budgets that hold for a LocalQueue with their use now; its own ones first."""
        if self.clock is None or queue not in self._budgets:
            return []
        namespace, now = _namespace(local_queue), self.clock.now()
        meters = dict(self._read(queue, namespace))
        own = {budget.resource for budget in self._budgets[queue] if budget.scope == namespace}
        found: list[Account] = []
        for budget in sorted(self._budgets[queue], key=lambda budget: budget.scope != local_queue):
            if budget.scope == local_queue:
                who, counted = local_queue, [meters[local_queue]] if local_queue in meters else []
            elif budget.scope == namespace or (not budget.scope and budget.resource not in own):
                who, counted = namespace, list(meters.values())
            else:
                continue
            key, start = (budget.resource, budget.period), budget.period.start(now)
            spent = [meter.spent[key] for meter in counted]
            latest = max((one.start for one in spent), default=start)
            used = sum(one.used for one in spent)
            found.append(Account(who=who, budget=budget, used=used, renews_at=budget.period.end(max(start, latest))))
        return found

    def exhausted(self, queue: str, local_queue: str) -> Account | None:
        """Return the budget that keeps workloads of a LocalQueue from starting, the one that renews last; None: none
        does.
        """
        over = [account for account in self.accounts(queue, local_queue) if account.is_exhausted]
        return max(over, key=lambda account: account.renews_at, default=None)

    def refusal(self, queue: str, local_queue: str) -> Account | None:
        """Return `exhausted`, and note that a workload of the LocalQueue waits for it; the note ends with
        `take_refused`.
        """
        over = self.exhausted(queue, local_queue)
        if over is not None:
            self._refused.add((queue, local_queue))
        return over

    def take_refused(self) -> set[tuple[str, str]]:
        """Return the ClusterQueues and LocalQueues of workloads that were refused since the last call."""
        taken, self._refused = self._refused, set()
        return taken

    def _meter(self, queue: str, local_queue: str) -> _Metered:
        in_namespace = self._meters.setdefault(queue, {}).setdefault(_namespace(local_queue), {})
        return in_namespace.setdefault(local_queue, _Metered(self._at(self.clock) if self.clock is not None else 0))

    def _read(self, queue: str, namespace: str) -> Iterator[tuple[str, _Metered]]:
        """Yield the meters of a namespace, read now."""
        assert self.clock is not None
        now, at = self.clock.now(), self._at(self.clock)
        for local_queue, meter in self._meters.get(queue, {}).get(namespace, {}).items():
            meter.read(self._tracked[queue], now, at)
            yield local_queue, meter

    @staticmethod
    def _at(clock: Clock) -> int:
        return int(clock.monotonic() * 1000)


def _namespace(local_queue: str) -> str:
    return local_queue.partition("/")[0]
