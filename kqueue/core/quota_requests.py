"""Cost of a pod in quota: its requests without excluded resources, and with transformed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from kqueue.core.pod_requests import Amounts
from kqueue.core.quantity import CPU, clamp, saturating_add


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """Each unit of `input` is counted as `outputs`, exact amounts in whole units (cores, bytes, devices).

    `keeps_input`: the input is counted, too.  `multiply_by` names a resource of the same pod whose amount multiplies
    the input where the pod has it; empty: nothing does.
    """

    input: str
    outputs: Mapping[str, Fraction] = field(default_factory=dict)
    keeps_input: bool = True
    multiply_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """Rules for the quota that requests cost.  Without rules, each request costs its own amount."""

    excluded_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = field(default_factory=dict)
    """Transformations by the resource that they replace."""

    def counted(self, requests: Amounts) -> Amounts:
        """Return the quota that one pod with these requests costs; never below 0.

        The output of a rule is not an input of other rules.  Sums are exact, and rounded up at the end.
        """
        if self.excluded_prefixes:
            requests = {r: amount for r, amount in requests.items() if not r.startswith(self.excluded_prefixes)}
        if not any(resource in self.transformations for resource in requests):
            return requests
        kept: dict[str, int] = {}
        made: dict[str, Fraction] = {}
        for resource, amount in requests.items():
            rule = self.transformations.get(resource)
            if rule is None or rule.keeps_input:
                kept[resource] = amount
            if rule is None:
                continue
            number = _units(amount, resource)
            if rule.multiply_by in requests:
                number *= _units(requests[rule.multiply_by], rule.multiply_by)
            for output, factor in rule.outputs.items():
                made[output] = made.get(output, Fraction(0)) + number * factor
        for output, number in made.items():
            amount = clamp(ceil(number * 1000 if output == CPU else number))
            kept[output] = saturating_add(kept.get(output, 0), max(0, amount))
        return kept


def _units(amount: int, resource: str) -> Fraction:
    return Fraction(amount, 1000) if resource == CPU else Fraction(amount)
