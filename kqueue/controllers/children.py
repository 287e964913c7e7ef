"""Whether an owner's controller would make an object as it is, where name and size follow from the owner.

This is how children are told from forged ones where nobody saw who made them.  Only JobSets are known this well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kqueue.api.wire import core as wire_core
from kqueue.errors import InvalidObjectError
from kqueue.jobs.ancestry import GroupKind
from kqueue.jobs.fields import JSON, int_of, mapping, objects, text, whole
from kqueue.state.from_api import template_requests

Object = Mapping[str, Any]
_JOB_SET = ("jobset.x-k8s.io", "JobSet")


def may_have_made(owner_kind: GroupKind, owner: JSON, child: JSON) -> bool:
    """True unless the owner's controller never makes such an object; also where the owner is known by metadata only."""
    if owner_kind != _JOB_SET or not mapping(owner, "spec") or not mapping(child, "spec"):
        return True
    return any(_is_of(owner, replicated, child) for replicated in objects(owner, "spec", "replicatedJobs"))


def _is_of(job_set: Object, replicated: Object, job: Object) -> bool:
    """Whether a Job is one of a replicated job, and no larger.

    Source: JobSet names its Jobs `<JobSet>-<replicated job>-<index>`; users may make running Jobs smaller.
    """
    prefix = f"{text(job_set, 'metadata', 'name')}-{text(replicated, 'name')}-"
    name = text(job, "metadata", "name")
    index = int_of(name.removeprefix(prefix)) if name.startswith(prefix) else None
    replicas = whole(replicated, "replicas")
    if index is None or not 0 <= index < (1 if replicas is None else replicas):
        return False
    template = mapping(replicated, "template")
    if _pods(job) > _pods(template):
        return False
    allowed, asked = _requests(template), _requests(job)
    return asked is not None and allowed is not None and all(n <= allowed.get(r, 0) for r, n in asked.items())


def _pods(job: Object) -> int:
    """Pods that run at a time."""
    parallelism, completions = whole(job, "spec", "parallelism"), whole(job, "spec", "completions")
    parallelism = 1 if parallelism is None else parallelism
    return parallelism if completions is None else min(parallelism, completions)


def _requests(job: Object) -> dict[str, int] | None:
    """What one pod requests; None where that cannot be read."""
    spec = mapping(job, "spec", "template", "spec")
    try:
        return template_requests(msgspec.convert(spec, wire_core.PodSpec), "spec.template.spec")
    except (msgspec.ValidationError, InvalidObjectError):
        return None
