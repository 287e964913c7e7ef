"""The parts of a question that are written together, because they change together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import NamedTuple

from kqueue.core.decision import SecondLooks
from kqueue.core.lost_work import RunLimits
from kqueue.core.ordering import OrderRules
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.preemption import Rules, SharingStrategy
from kqueue.core.preemption.target import LocalQueueUsage
from kqueue.core.quota import FlavorResource, Quota
from kqueue.kube.taints import Toleration


class QuotaNodeForm(NamedTuple):
    """A node of a quota tree; `parent` is the number of an earlier node, -1 at the root."""

    name: str
    is_cohort: bool
    parent: int
    quotas: Mapping[FlavorResource, Quota]
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyForm:
    """A flavor's topology; `chunks` are the hashes of its leaves, in pieces."""

    name: str
    topology: str
    levels: tuple[str, ...]
    tolerations: tuple[Toleration, ...]
    unusable: tuple[str, ...]
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesForm:
    """The rules of preemption without their time."""

    fair: tuple[SharingStrategy, ...] | None
    within_nominal: bool
    local_queue_usage: LocalQueueUsage | None
    limits: RunLimits
    spared: Mapping[str, Collection[str]]
    budgeted: frozenset[str]

    def at(self, now: datetime) -> Rules:
        """Return the rules at this time."""
        return Rules(now=now, **{f.name: getattr(self, f.name) for f in fields(self)})


def form_of_rules(rules: Rules) -> RulesForm:
    """Return the rules without their time."""
    return RulesForm(**{f.name: getattr(rules, f.name) for f in fields(RulesForm)})


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionForm:
    """The settings of a plan."""

    order: OrderRules
    held_by: str
    one_at_a_time: bool
    looks: SecondLooks


def form_of_question(question: PlanQuestion) -> QuestionForm:
    """Return the settings of a plan."""
    return QuestionForm(**{f.name: getattr(question, f.name) for f in fields(QuestionForm)})
