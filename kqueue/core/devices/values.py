"""Devices, classes of devices and requests for devices, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import total_ordering
from typing import NamedTuple

_VERSION = re.compile(
    r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)


@total_ordering
@dataclass(frozen=True, slots=True)
class SemanticVersion:
    """A version by the rules of semver.org 2.0.0: `order` compares as the version does; build metadata is left out."""

    order: tuple[object, ...]

    @classmethod
    def parse(cls, text: str) -> SemanticVersion:
        """Return the version. Raises ValueError for a text that is none."""
        found = _VERSION.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a version: write three numbers, such as 1.2.3")
        numbers = tuple(int(found[i]) for i in (1, 2, 3))
        before = found[4]
        if before is None:
            return cls((numbers, 1, ()))  # a release follows all of its pre-releases
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split("."))
        return cls((numbers, 0, parts))

    def __lt__(self, other: SemanticVersion) -> bool:
        return self.order < other.order


class ExactQuantity(NamedTuple):
    """A Kubernetes quantity, neither rounded nor cut: selectors compare amounts of bytes and parts of a unit."""

    number: Fraction


DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
AttributeValue = str | int | bool | SemanticVersion
"""The value of an attribute of a device."""
ByDomain = Mapping[str, Mapping[str, AttributeValue | ExactQuantity]]
"""Values by domain and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPolicy:
    """The amounts of a capacity that a request may get, in base units; None: no rule.  `valid` is sorted."""

    default: int | None = None
    valid: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None

    def rounded(self, amount: int) -> int | None:
        """Return the smallest allowed amount that is not below `amount`; None: there is none."""
        if self.valid:
            return next((each for each in self.valid if each >= amount), None)
        if self.least is not None:
            amount = max(amount, self.least)
            if self.step:
                amount += (self.least - amount) % self.step
        return None if self.most is not None and amount > self.most else amount


NO_POLICY = CapacityPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a node, or one that several nodes share.

    Args:
        node: the node that has it; empty: it is not bound to one node.
        counters: the largest amount of each shared counter that it takes, by the name of the counter.
        consumes: the amounts of shared counters that it takes, by the set and the name of the counter.
        capacity: amount and policy by the qualified name of the capacity.
        tainted: a taint keeps new claims away.
        shared: several claims may have it at the same time.
    """

    driver: str
    pool: str
    name: str
    node: str = ""
    attributes: ByDomain = field(default_factory=dict)
    quantities: ByDomain = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    consumes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    capacity: Mapping[str, tuple[int, CapacityPolicy]] = field(default_factory=dict)
    tainted: bool = False
    shared: bool = False

    @property
    def key(self) -> DeviceKey:
        """Driver, pool and name, by which claims name it."""
        return self.driver, self.pool, self.name

    def amount_for(self, name: str, requested: int | None) -> int | None:
        """Return the amount of its capacity `name` that a claim gets; None: it cannot give so much.

        Without a requested amount it is the policy's default, or the whole capacity.
        """
        whole, policy = self.capacity[name]
        default = whole if policy.default is None else policy.default
        amount = policy.rounded(default if requested is None else requested)
        return None if amount is None or amount > whole else amount


@dataclass(frozen=True, slots=True)
class Selector:
    """An expression that selects devices, as it is written; `problem`: it has a form that is not known."""

    text: str
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A class of devices: the devices for which all selectors hold.

    `extended_resource`: the extended resource whose requests its devices satisfy; empty: none.
    """

    name: str
    selectors: tuple[Selector, ...] = ()
    extended_resource: str = ""
    created: str = ""
    """Time of creation in a form that compares as time does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """One request of a claim.

    Args:
        exact: it has the form `exactly`.
        alternatives: it has the form `firstAvailable`.
        capacity: requested amounts of capacities, by qualified name.
    """

    exact: bool = True
    alternatives: bool = False
    device_class: str = ""
    mode: str = "ExactCount"
    count: int = 1
    admin: bool = False
    selectors: tuple[Selector, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountSource:
    """Amounts by which devices count in quota, in place of their number: a counter or a capacity of a driver's
    devices.
    """

    name: str
    driver: str
    selector: Selector
    is_counter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMapping:
    """The quota resource of some classes of devices; without sources each device counts 1."""

    resource: str
    classes: tuple[str, ...]
    sources: tuple[AmountSource, ...] = ()
