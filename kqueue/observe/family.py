"""Counters, gauges and histograms of our own, which registries of the client library collect as they collect its own.

Several are counted at every admission.  Only the event loop makes and changes their children, so they need no locks; a
page of them is made in half the time that the library's take.
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
    """Where families are registered."""

    def register(self, collector: Collector) -> None:
        """Show `collector` on the page."""
        ...


class Waits:
    """How long each of some has waited: taken in once, and shown by every family that counts them."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LONG_BUCKETS) + 1)
        """By bucket of `LONG_BUCKETS`, the last one for whatever is longer."""
        self.total = 0.0

    def take(self, seconds: float) -> None:
        """One that has waited so long."""
        self.total += seconds
        self.counts[bisect_left(LONG_BUCKETS, seconds)] += 1


class Family(ABC):
    """One metric: its name, its help text, and a child for each set of label values.

    A family without labels is its own only child.  A thread may collect while the event loop counts.
    """

    __slots__ = ("_children", "documentation", "label_names", "name")
    kind: ClassVar[str]

    def __init__(
        self, name: str, documentation: str, label_names: Sequence[str] = (), *, registry: Registry | None = None
    ) -> None:
        """A registry of None shows it nowhere."""
        self.name, self.documentation, self.label_names = name, documentation, tuple(label_names)
        self._children: dict[tuple[object, ...], Self] = {}
        """By label values as texts."""
        if registry is not None:
            registry.register(self)

    def labels(self, *values: object) -> Self:
        """The child of these label values, made when it is missing.  Raises ValueError when their number is wrong."""
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
        """Remove a child; nothing happens when there is none."""
        self._children.pop(self._key(values), None)

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Remove all children that have these values of these labels."""
        wanted = [(self.label_names.index(name), value) for name, value in labels.items()]
        for values in list(self._children):
            if all(values[at] == value for at, value in wanted):
                del self._children[values]

    def describe(self) -> Iterable[Metric]:
        """The family without samples."""
        return [Metric(self.name.removesuffix("_total"), self.documentation, self.kind)]

    def collect(self) -> Iterable[Metric]:
        """The family with its samples now."""
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
    """Counts up."""

    __slots__ = ("_count", "_shown")
    kind = "counter"

    def __init__(
        self, name: str, documentation: str, label_names: Sequence[str] = (), *, registry: Registry | None = None
    ) -> None:
        assert name.endswith("_total"), "names of counters end so"
        super().__init__(name, documentation, label_names, registry=registry)
        self._count = 0.0
        self._shown: list[Waits] = []

    def _child(self) -> Self:
        return type(self)(self.name, self.documentation)

    def show(self, waits: Waits) -> None:
        """Count all that these take in, from the first one on."""
        self._shown.append(waits)

    def inc(self, amount: float = 1) -> None:
        """Count."""
        self._count += amount

    def add_samples(self, metric: Metric, labels: dict[str, str]) -> None:
        """One sample: the count."""
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
        """One sample: the number."""
        metric.add_sample(self.name, labels, self._value)


class Histogram(Family):
    """Numbers by bucket."""

    __slots__ = ("_bounds", "_counts", "_shown", "_total")
    kind = "histogram"
    DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
    """The client library's."""

    def __init__(
        self,
        name: str,
        documentation: str,
        label_names: Sequence[str] = (),
        *,
        registry: Registry | None = None,
        buckets: Sequence[float] = DEFAULT_BUCKETS,
    ) -> None:
        """`buckets` are upper bounds, rising; one for all larger numbers is added."""
        super().__init__(name, documentation, label_names, registry=registry)
        self._bounds = buckets
        self._total = 0.0
        self._counts = [0] * (len(buckets) + 1)
        self._shown: list[Waits] = []

    def _child(self) -> Self:
        return type(self)(self.name, self.documentation, buckets=self._bounds)

    def show(self, waits: Waits) -> None:
        """Take in all that these take in, from the first one on; my buckets must be the first ones of theirs."""
        assert tuple(self._bounds) == LONG_BUCKETS[: len(self._bounds)]
        self._shown.append(waits)

    def observe(self, amount: float) -> None:
        """Take in a number."""
        self._total += amount
        self._counts[bisect_left(self._bounds, amount)] += 1

    def add_samples(self, metric: Metric, labels: dict[str, str]) -> None:
        """A sample for each bucket, each with all smaller ones, their count, and their sum."""
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
