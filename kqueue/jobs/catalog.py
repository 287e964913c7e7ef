"""Register the adapters of the job kinds of `kqueue/kinds.py`.

A new kind is one file with its row and its adapter, and one line that registers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kqueue import kinds
from kqueue.jobs import kubeflow, ray
from kqueue.jobs.appwrapper import AppWrapper
from kqueue.jobs.composed import ComposedKind
from kqueue.jobs.deployment import Deployment
from kqueue.jobs.job import BatchJob
from kqueue.jobs.jobset import JobSet
from kqueue.jobs.kind import JobKind, ReviewedKind
from kqueue.jobs.leader_worker_set import LeaderWorkerSet
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.spark import SparkApplication
from kqueue.jobs.stateful_set import StatefulSet
from kqueue.jobs.trainjob import TrainJob
from kqueue.kinds import FRAMEWORKS, GroupKind, Kind

_jobs: dict[str, JobKind] = {}
_jobs_by_kind: dict[GroupKind, JobKind] = {}
_reviewed: dict[str, ReviewedKind] = {}

BY_FRAMEWORK: Mapping[str, JobKind] = MappingProxyType(_jobs)
"""Kinds that the job reconciler starts and stops, by the name that `integrations.frameworks` uses."""
BY_GROUP_KIND: Mapping[GroupKind, JobKind] = MappingProxyType(_jobs_by_kind)
"""The same adapters by API group and kind; the version does not matter."""
REVIEWED: Mapping[str, ReviewedKind] = MappingProxyType(_reviewed)
"""Every kind that has webhooks, by the name that `integrations.frameworks` uses."""
COMPOSED: tuple[ComposedKind, ...] = (StatefulSet(), LeaderWorkerSet())
"""Kinds whose pods are queued in groups with prebuilt Workloads."""


def register(row: Kind, adapter: JobKind) -> None:
    """Add a kind whose objects are started and stopped, at the start of a process.

    Raises ValueError when its name or its kind exists already, or the adapter is for another kind.
    """
    if (adapter.framework, adapter.gvk.group, adapter.gvk.kind) != (row.framework, row.group, row.kind):
        raise ValueError(f"the adapter of {adapter.gvk.kind} ({adapter.framework}) does not belong to {row.text}")
    kinds.register(row)
    _add_job(adapter)


def webhook_path(kind: ReviewedKind) -> str:
    """Return the path of a kind's webhooks, after `/mutate-` and `/validate-`; also for a kind that a user has
    declared.
    """
    row = FRAMEWORKS.get(kind.framework)
    gvk = kind.gvk
    return row.webhook_path if row is not None else kinds.webhook_path(gvk.group, gvk.version, gvk.kind)


def child_labels() -> dict[str, str]:
    """Return the frameworks whose objects run as batch Jobs, with the label by which these Jobs are found."""
    return {name: row.child_label for name, row in FRAMEWORKS.items() if row.child_label}


def _add_job(adapter: JobKind) -> None:
    _jobs[adapter.framework] = _jobs_by_kind[adapter.gvk.group, adapter.gvk.kind] = adapter
    _reviewed[adapter.framework] = adapter


_add_job(BatchJob())
_add_job(JobSet())
for _several in (*kubeflow.ALL, *ray.ALL):
    _add_job(_several)
_add_job(TrainJob())
_add_job(AppWrapper())
_add_job(SparkApplication())
_through_pods: tuple[ReviewedKind, ...] = (PlainPod(), Deployment(), *COMPOSED)
for _adapter in _through_pods:
    _reviewed[_adapter.framework] = _adapter
