"""Checks whether an object can be the child of its owner, for kinds whose owner determines name or size.

The check finds forged children if no webhook saw the account that created them.  JobSets determine the names and sizes
of their Jobs, TrainJobs the name of their JobSet, and Ray's kinds the size of theirs.  The Job controller creates no
Jobs, but a Job may be the parent of Jobs: their pods count against the parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kqueue.api.wire import core as wire_core
from kqueue.errors import InvalidObjectError
from kqueue.jobs import ray
from kqueue.jobs.fields import JSON, int_of, mapping, objects, text, whole
from kqueue.kinds import GroupKind
from kqueue.model import template_requests

Object = Mapping[str, Any]
_JOB_SET, _JOB = ("jobset.x-k8s.io", "JobSet"), ("batch", "Job")
_TRAIN_JOB = ("trainer.kubeflow.org", "TrainJob")
_RAY = "ray.io"


def may_be_child(owner_kind: GroupKind, owner: JSON, child: JSON, siblings: Iterable[JSON] = ()) -> bool:
    """Whether an object can be a child of the owner that it names.

    Also True if only the metadata of the owner is known.

    Args:
        owner_kind: API group and kind of the owner.
        owner: the object that the child names as its controller.
        child: the object.
        siblings: further Jobs that name the owner as their controller; the child may be among them.
    """
    if not mapping(owner, "spec") or not mapping(child, "spec"):
        return True
    if owner_kind == _JOB_SET:
        return any(_is_of(owner, replicated, child) for replicated in objects(owner, "spec", "replicatedJobs"))
    if owner_kind == _TRAIN_JOB:  # Trainer gives the JobSet the name of the TrainJob
        return text(owner, "metadata", "name") == text(child, "metadata", "name")
    if not mapping(child, "spec", "template"):
        return True
    if owner_kind == _JOB:
        return _fits(owner, child, siblings)
    if owner_kind[0] == _RAY:
        template = ray.job_template(owner_kind[1], owner)
        return template is not None and _pods(child) <= 1 and _asks_for_no_more(child, {"spec": {"template": template}})
    return True


def _fits(parent: Object, child: Object, siblings: Iterable[Object]) -> bool:
    """Whether the Jobs below a Job, from the oldest to this child, run at most as many and as large pods as the Job."""
    rank = _age(child)
    older = sum(_pods(job) for job in siblings if _age(job) < rank)
    return older + _pods(child) <= _pods(parent) and _asks_for_no_more(child, parent)


def _age(job: Object) -> tuple[str, str]:
    return text(job, "metadata", "creationTimestamp"), text(job, "metadata", "name")


def _is_of(job_set: Object, replicated: Object, job: Object) -> bool:
    """Whether a Job is part of a replicated job and not larger.

    Source: JobSet names its Jobs `<JobSet>-<replicated job>-<index>`; users may make running Jobs smaller.
    """
    prefix = f"{text(job_set, 'metadata', 'name')}-{text(replicated, 'name')}-"
    name = text(job, "metadata", "name")
    index = int_of(name.removeprefix(prefix)) if name.startswith(prefix) else None
    replicas = whole(replicated, "replicas")
    if index is None or not 0 <= index < (1 if replicas is None else replicas):
        return False
    template = mapping(replicated, "template")
    return _pods(job) <= _pods(template) and _asks_for_no_more(job, template)


def _asks_for_no_more(job: Object, other: Object) -> bool:
    """Whether a pod of the first Job requests at most as much as a pod of the second."""
    allowed, asked = _requests(other), _requests(job)
    return asked is not None and allowed is not None and all(n <= allowed.get(r, 0) for r, n in asked.items())


def _pods(job: Object) -> int:
    """Return the number of pods that run at a time."""
    parallelism, completions = whole(job, "spec", "parallelism"), whole(job, "spec", "completions")
    parallelism = 1 if parallelism is None else parallelism
    return parallelism if completions is None else min(parallelism, completions)


def _requests(job: Object) -> dict[str, int] | None:
    """Return the requests of one pod; None: they cannot be parsed."""
    spec = mapping(job, "spec", "template", "spec")
    try:
        return template_requests(msgspec.convert(spec, wire_core.PodSpec), "spec.template.spec")
    except (msgspec.ValidationError, InvalidObjectError):
        return None
