"""Metrics of joint placement: rounds, the quality of their plans, and the planning process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kqueue.observe.families import JointFamilies


class UnitsOfFlavor(NamedTuple):
    """Units of a flavor in a round; without a bound there is no gap."""

    flavor: str
    bound: int | None
    plan: int
    greedy: int
    gap: float | None


class JointMetrics:
    """Counts rounds.  Series of flavors are those of the last plan."""

    def __init__(self, families: JointFamilies) -> None:
        self._families = families
        self._flavors: set[str] = set()

    def round_ended(self, result: str, seconds: Mapping[str, float]) -> None:
        """Count a round; `seconds` by phase."""
        self._families.rounds.labels(result).inc()
        for phase, spent in seconds.items():
            self._families.seconds.labels(phase).observe(max(0.0, spent))

    def planned(self, flavors: Iterable[UnitsOfFlavor]) -> None:
        """Set the units and the gap of each flavor of a plan; other flavors lose their series."""
        before, self._flavors = self._flavors, set()
        for one in flavors:
            self._flavors.add(one.flavor)
            self._set_units(one.flavor, bound=one.bound, plan=one.plan, greedy=one.greedy)
            if one.gap is None:
                self._families.gap.remove(one.flavor)
            else:
                self._families.gap.labels(one.flavor).set(one.gap)
        for gone in before - self._flavors:
            self._families.gap.remove(gone)
            self._set_units(gone, bound=None, plan=None, greedy=None)

    def _set_units(self, flavor: str, **units: int | None) -> None:
        for kind, number in units.items():
            if number is None:
                self._families.units.remove(flavor, kind)
            else:
                self._families.units.labels(flavor, kind).set(number)

    def stale_entry(self) -> None:
        """Count a workload whose planned domains did not hold any more."""
        self._families.stale.inc()

    def worker_restarted(self) -> None:
        """Count a planning process that was started in place of an ended one."""
        self._families.restarts.inc()

    def policy_failed(self, policy: str) -> None:
        """Count a policy that was switched off for a round."""
        self._families.policy_failures.labels(policy).inc()

    def move_ended(self, result: str, pod_seconds: int) -> None:
        """Count a move of a plan that is over; `pod_seconds` is the work that it lost."""
        self._families.moves.labels(result).inc()
        self._families.moved.inc(max(0, pod_seconds))
