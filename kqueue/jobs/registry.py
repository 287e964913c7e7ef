"""Which job kinds exist."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kqueue.config.policy import Integrations
from kqueue.jobs.ancestry import GroupKind, OwnerKind, owner_kinds
from kqueue.jobs.declared import Declared
from kqueue.jobs.deployment import Deployment
from kqueue.jobs.job import BatchJob
from kqueue.jobs.jobset import JobSet
from kqueue.jobs.kind import GroupVersionKind, JobKind, ReviewedKind
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.stateful_set import StatefulSet

_ALL: tuple[JobKind, ...] = (BatchJob(), JobSet())

BY_FRAMEWORK: Mapping[str, JobKind] = MappingProxyType({kind.framework: kind for kind in _ALL})
"""Job kinds by the name that `integrations.frameworks` uses."""
BY_GROUP_KIND: Mapping[tuple[str, str], JobKind] = MappingProxyType(
    {(kind.gvk.group, kind.gvk.kind): kind for kind in _ALL}
)
"""Job kinds by API group and kind; the version does not matter."""


def kinds_for(integrations: Integrations) -> tuple[JobKind, ...]:
    """The job kinds that a configuration switches on, with those that it declares."""
    built_in = [BY_FRAMEWORK[name] for name in integrations.frameworks if name in BY_FRAMEWORK]
    return (*built_in, *declared_for(integrations))


def declared_for(integrations: Integrations) -> tuple[Declared, ...]:
    """The kinds that a configuration declares; webhooks know them, too."""
    return tuple(Declared(declared) for declared in integrations.declared_kinds)


def owner_kinds_for(integrations: Integrations) -> dict[GroupKind, OwnerKind]:
    """The kinds through which owners are followed, as a configuration has them."""
    declared = [
        OwnerKind(gvk=GroupVersionKind(d.group, d.version, d.kind), resource=d.plural, queued=True)
        for d in integrations.declared_kinds
    ]
    return owner_kinds(integrations.frameworks, integrations.external_frameworks, declared)


CHILD_LABELS: Mapping[str, str] = MappingProxyType({"jobset.x-k8s.io/jobset": "jobset.sigs.k8s.io/jobset-name"})
"""Frameworks whose objects are run as batch Jobs, and the label by which these Jobs are found."""

_ONLY_REVIEWED: tuple[ReviewedKind, ...] = (PlainPod(), Deployment(), StatefulSet())
"""Kinds that are queued through their pods, or not as one object: webhooks know them, the job reconciler does not."""

REVIEWED: Mapping[str, ReviewedKind] = MappingProxyType({kind.framework: kind for kind in (*_ALL, *_ONLY_REVIEWED)})
"""Every kind that has webhooks, by the name that `integrations.frameworks` uses."""
