"""Sections of the configuration file about gangs and node classes; both are kqueue's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from kqueue.config.duration import Duration, duration_text
from kqueue.config.section import Section, refuse_any
from kqueue.errors import FieldError

_SECOND = timedelta(seconds=1)


def _problems(base: timedelta, maximum: timedelta) -> Iterator[FieldError]:
    if base < _SECOND:
        yield FieldError("base", "must be 1s or more", duration_text(base))
    if maximum < base:
        yield FieldError("maximum", f"must not be below base, {duration_text(base)}", duration_text(maximum))


class ScheduleTimeoutSettings(Section):
    """The time in which the quorum of a gang has to be scheduled, where the gang names none:
    `min(maximum, base + perMember * quorum)`."""

    base: Duration = timedelta(seconds=60)
    """Time of every gang; 1s or more."""
    per_member: Duration = timedelta(seconds=1)
    """Additional time for each member of the quorum."""
    maximum: Duration = timedelta(minutes=30)
    """The longest time; not below `base`.  It also bounds the time that a gang names."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        refuse_any(list(_problems(self.base, self.maximum)))
        return self


class GangBackoffSettings(Section):
    """The pause before a gang that was rejected is tried again."""

    base: Duration = timedelta(seconds=10)
    """The first pause, 1s or more; each further pause is twice as long."""
    maximum: Duration = timedelta(minutes=10)
    """The longest pause; not below `base`."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Rejections after which the gang is deactivated; None: no limit."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        refuse_any(list(_problems(self.base, self.maximum)))
        return self


class GangSettings(Section):
    """Pods that start together, in other dialects than Kueue's groups."""

    schedule_timeout: ScheduleTimeoutSettings = ScheduleTimeoutSettings()
    reject_percentage: Annotated[int, Field(ge=0, le=100)] = 10
    """A gang is rejected when more percent of its quorum cannot be scheduled; 0: any member rejects it, 100: none
    does."""
    reject_after: Duration = timedelta(seconds=10)
    """Time without a further scheduled member before a gang is rejected for that."""
    backoff: GangBackoffSettings = GangBackoffSettings()
    take_over_schedulers: tuple[str, ...] = ()
    """Scheduler names that the webhook replaces by `default-scheduler` on members of queued gangs."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        counts = Counter(self.take_over_schedulers)
        problems = [
            FieldError("takeOverSchedulers", f"must not repeat {name}") for name, times in counts.items() if times > 1
        ]
        problems += [
            FieldError(f"takeOverSchedulers[{index}]", "must be a scheduler's name; leave empty entries out")
            for index, name in enumerate(self.take_over_schedulers)
            if not name.strip()
        ]
        refuse_any(problems)
        return self


class NodeClassSettings(Section):
    """Nodes that are kept for pods that name their card type or private group."""

    manage_taints: bool = False
    """Whether kqueue writes the taints of scarce and private flavors on nodes; False: an event counts nodes without
    them."""
