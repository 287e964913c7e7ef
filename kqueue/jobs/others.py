"""Kinds whose objects say only together with other objects which pods they run.

Such a kind names the objects that it reads (`reads`).  The shell reads them, from a watch or within a time limit, and
hands the adapter a completed job: the job with the found objects beside its own fields.  So the methods of an adapter
stay pure functions of one value, and kinds without other objects need nothing of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from kqueue.jobs.fields import JSON, mapping
from kqueue.kinds import ReadKind

_FOUND = "others"
"""Key of the found objects in a completed job.  Their keys are References, so no field of an object looks like one."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of one object that a job refers to; `namespace` is empty for a kind without namespaces."""

    kind: ReadKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


class ReadsOthers(Protocol):
    """The part of an adapter that names the objects which it reads beside the job."""

    def reads(self, job: JSON) -> tuple[Reference, ...]:
        """Return the objects from which the pods of the job follow, besides the job itself.

        Their kinds are among `reads` of the kind's row and `kinds_between` (`kqueue/kinds.py`).
        """
        ...


def reads_others(kind: object) -> TypeGuard[ReadsOthers]:
    """Whether the adapter of a kind needs other objects than the job."""
    return callable(getattr(kind, "reads", None))


def references(kind: object, *jobs: JSON | None) -> Sequence[Reference]:
    """Return the objects that an adapter needs beside these jobs, each once; None stands for no job.

    References without a name are left out: no object has it, and in a URL it would stand for all objects.
    """
    if not reads_others(kind):
        return ()
    named = (reference for job in jobs if job is not None for reference in kind.reads(job) if reference.name)
    return list(dict.fromkeys(named))


def completed(job: JSON, found: Mapping[Reference, JSON | None]) -> JSON:
    """Return the job with the objects that were found; None stands for an object that does not exist."""
    return {**job, _FOUND: found}


def other(job: JSON, reference: Reference) -> JSON | None:
    """Return one object of a completed job; None: it does not exist."""
    found: Mapping[Any, JSON | None] = mapping(job, _FOUND)
    return found.get(reference)
