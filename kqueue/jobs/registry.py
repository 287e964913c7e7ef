"""Select the kinds, gang dialects and features that a configuration enables or declares."""

from __future__ import annotations

from dataclasses import replace

from kqueue.config.model import Configuration
from kqueue.config.policy import Integrations
from kqueue.jobs.ancestry import OwnerKind, owner_kinds
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.declared import Declared
from kqueue.jobs.gang.dialect import ScheduleTimeouts
from kqueue.jobs.gang.registry import switched_on
from kqueue.jobs.kind import GroupVersionKind, JobKind
from kqueue.jobs.switches import JobFeatures, switches_from
from kqueue.kinds import GroupKind


def kinds_for(configuration: Configuration) -> tuple[JobKind, ...]:
    """Return the job kinds that a configuration enables, with the kinds that it declares."""
    built_in = [BY_FRAMEWORK[name] for name in configuration.integrations.frameworks if name in BY_FRAMEWORK]
    return (*built_in, *declared_for(configuration))


def declared_for(configuration: Configuration) -> tuple[Declared, ...]:
    """Return the kinds that a configuration declares; webhooks know them, too."""
    return tuple(Declared(declared) for declared in configuration.declared_kinds())


def owner_kinds_for(integrations: Integrations) -> dict[GroupKind, OwnerKind]:
    """Return the kinds through which owners are followed with this configuration."""
    declared = [
        OwnerKind(gvk=GroupVersionKind(d.group, d.version, d.kind), resource=d.plural, queued=True)
        for d in integrations.declared_kinds
    ]
    return owner_kinds(integrations.frameworks, integrations.external_frameworks, declared)


def features_for(configuration: Configuration) -> JobFeatures:
    """Return the features of a configuration, with the dialects of gangs that it enables and their bounds."""
    gangs = configuration.gangs
    return replace(
        switches_from(configuration.enabled),
        gangs=switched_on(configuration.integrations.frameworks),
        take_over_schedulers=frozenset(gangs.take_over_schedulers),
        longest_schedule_seconds=gangs.schedule_timeout.maximum.total_seconds(),
    )


def timeouts_for(configuration: Configuration) -> ScheduleTimeouts:
    """Return the deadlines of a configuration for gangs whose dialect names none."""
    settings = configuration.gangs.schedule_timeout
    return ScheduleTimeouts(
        base=settings.base.total_seconds(),
        per_member=settings.per_member.total_seconds(),
        maximum=settings.maximum.total_seconds(),
    )
