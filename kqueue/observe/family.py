"""Counters, gauges and histograms that registries of the client library collect like the library's own.

Every admission increments several.  Only the event loop makes and changes their children, so they need no locks; a page
of them takes half the time of the library's families.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import ClassVar, Protocol, Self

from prometheus_client import Metric
from prometheus_client.registry import Collector

from kqueue.observe.exposition import number_text

LONG_BUCKETS = (1.0, *(2.5 * 2**k for k in range(15)))
"""1 s, 2.5 s, 5 s ... 11.4 h: 16 values."""


class Registry(Protocol):
    """A registry of families."""

    def register(self, collector: Collector) -> None:
        """Show `collector` on pages."""
        ...


class WaitTimes:
    """Times of waiting, observed once and shown by several families."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LONG_BUCKETS) + 1)
        """Counts by bucket of `LONG_BUCKETS`; the last one counts longer times."""
        self.total = 0.0

    def take(self, seconds: float) -> None:
        """Observe one time of waiting."""
        self.total += seconds
        self.counts[bisect_left(LONG_BUCKETS, seconds)] += 1


class Family(ABC):
    """A metric: its name, its help text, and a child for each set of label values.

    A family without labels is its own only child.  A thread may collect while the event loop counts.
    """

    __slots__ = ("_children", "documentation", "label_names", "name")
    kind: ClassVar[str]

    def __init__(
        self, name: str, documentation: str, label_names: Sequence[str] = (), *, registry: Registry | None = None
    ) -> None:
        """Create a family; with `registry` None no page shows it."""
        self.name, self.documentation, self.label_names = name, documentation, tuple(label_names)
        self._children: dict[tuple[object, ...], Self] = {}
        """Children by label values as texts."""
        if registry is not None:
            registry.register(self)

    def labels(self, *values: object) -> Self:
        """Return the child of these label values; make a missing one.  Raises ValueError when their number is wrong."""
        child = self._children.get(values)
        return self._add(values) if child is None else child

    def _add(self, values: tuple[object, ...]) -> Self:
        key = self._key(values)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._child()
        return child

    def _key(self, values: tuple[object, ...]) -> tuple[str, ...]:
        if len(values) != len(self.label_names) or not values:
            raise ValueError(f"{self.name} has labels {self.label_names}, not {len(values)}")
        return tuple(map(str, values))

    def remove(self, *values: object) -> None:
        """Remove a child; without effect when there is none."""
        self._children.pop(self._key(values), None)

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Remove all children with these label values."""
        wanted = [(self.label_names.index(name), value) for name, value in labels.items()]
        for values in list(self._children):
            if all(values[at] == value for at, value in wanted):
                del self._children[values]

    def describe(self) -> Iterable[Metric]:
        """Return the family without samples."""
        return [Metric(self.name.removesuffix("_total"), self.documentation, self.kind)]

    def collect(self) -> Iterable[Metric]:
        """Return the family with its present samples."""
        (metric,) = self.describe()
        if not self.label_names:
            self.add_samples(metric, {})
        for values, child in self._children.copy().items():
            child.add_samples(metric, dict(zip(self.label_names, map(str, values), strict=True)))
        return [metric]

    @abstractmethod
    def _child(self) -> Self: ...

    @abstractmethod
    def add_samples(self, metric: Metric, labels: dict[str, str]) -> None:
        """Add the samples of a child that has these labels."""


class Counter(Family):
    """A counter."""

    __slots__ = ("_count", "_shown")
    kind = "counter"

    def __init__(
        self, name: str, documentation: str, label_names: Sequence[str] = (), *, registry: Registry | None = None
    ) -> None:
        assert name.endswith("_total"), "names of counters end so"
        super().__init__(name, documentation, label_names, registry=registry)
        self._count = 0.0
        self._shown: list[WaitTimes] = []

    def _child(self) -> Self:
        return type(self)(self.name, self.documentation)

    def show(self, waits: WaitTimes) -> None:
        """Count all times that `waits` observes, from the first one on."""
        self._shown.append(waits)

    def inc(self, amount: float = 1) -> None:
        """Increment the counter."""
        self._count += amount

    def add_samples(self, metric: Metric, labels: dict[str, str]) -> None:
        """Return one sample: the count."""
        metric.add_sample(self.name, labels, self._count + sum([sum(waits.counts) for waits in self._shown]))


class Gauge(Family):
    """A number that goes up and down."""

    __slots__ = ("_value",)
    kind = "gauge"

    def __init__(
        self, name: str, documentation: str, label_names: Sequence[str] = (), *, registry: Registry | None = None
    ) -> None:
        super().__init__(name, documentation, label_names, registry=registry)
        self._value = 0.0

    def _child(self) -> Self:
        return type(self)(self.name, self.documentation)

    def set(self, value: float) -> None:
        """Set the number."""
        self._value = float(value)

    def add_samples(self, metric: Metric, labels: dict[str, str]) -> None:
        """Return one sample: the number."""
        metric.add_sample(self.name, labels, self._value)


class Histogram(Family):
    """A histogram: counts of numbers by bucket."""

    __slots__ = ("_bounds", "_counts", "_shown", "_total")
    kind = "histogram"
    DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
    """The default buckets of the client library."""

    def __init__(
        self,
        name: str,
        documentation: str,
        label_names: Sequence[str] = (),
        *,
        registry: Registry | None = None,
        buckets: Sequence[float] = DEFAULT_BUCKETS,
    ) -> None:
        """`buckets` are ascending upper bounds; a bucket for all larger numbers is added."""
        super().__init__(name, documentation, label_names, registry=registry)
        self._bounds = buckets
        self._total = 0.0
        self._counts = [0] * (len(buckets) + 1)
        self._shown: list[WaitTimes] = []

    def _child(self) -> Self:
        return type(self)(self.name, self.documentation, buckets=self._bounds)

    def show(self, waits: WaitTimes) -> None:
        """Observe all times that `waits` observes; the buckets must be the first ones of `LONG_BUCKETS`."""
        assert tuple(self._bounds) == LONG_BUCKETS[: len(self._bounds)]
        self._shown.append(waits)

    def observe(self, amount: float) -> None:
        """Observe a number."""
        self._total += amount
        self._counts[bisect_left(self._bounds, amount)] += 1

    def add_samples(self, metric: Metric, labels: dict[str, str]) -> None:
        """Return a cumulative sample for each bucket, the count, and the sum."""
        counts, last = list(self._counts), len(self._counts) - 1
        for waits in self._shown:
            for i, count in enumerate(waits.counts):
                counts[min(i, last)] += count
        so_far = 0
        bucket = f"{self.name}_bucket"
        for bound, count in zip((*self._bounds, inf), counts, strict=True):
            so_far += count
            metric.add_sample(bucket, {**labels, "le": number_text(bound)}, so_far)
        metric.add_sample(f"{self.name}_count", labels, so_far)
        metric.add_sample(f"{self.name}_sum", labels, self._total + sum([waits.total for waits in self._shown]))
