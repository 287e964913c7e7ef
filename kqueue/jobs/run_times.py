"""Run times that jobs tell: the deadline in a field of their own, and the annotation of their users.

Both reach the Workload as annotations at its creation, and follow the job later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from kqueue.api import run_time_names as names
from kqueue.core.future.seconds import MOST_EXPECTED_SECONDS, expected_seconds
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, annotation_of, whole

_EXPECTED = f"metadata.annotations[{names.EXPECTED_SECONDS_ANNOTATION}]"
_SHOWN = 40
"""The number of characters of a wrong value that a message repeats."""


@runtime_checkable
class KindWithDeadline(Protocol):
    """A kind of owners with a field of its own that ends a run; other kinds do not have the method."""

    def deadline(self, job: JSON) -> int | None:
        """Return the seconds after which the kind's own controller, or the kubelet, ends each run of the job.

        A job that its controller may start again within one admission has the sum of its runs.  None: no field ends
        it for certain.
        """
        ...


def traits(kind: object, owner: JSON) -> dict[str, str]:
    """Return the annotations about run times of the Workload of `owner`; `kind`: the adapter of the owner."""
    found = expected_trait(owner)
    deadline = kind.deadline(owner) if isinstance(kind, KindWithDeadline) else None
    return {**found, names.DEADLINE_SECONDS_ANNOTATION: str(deadline)} if deadline is not None else found


def expected_trait(owner: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation with the expected run time of an owner; empty: it has none, or one that is not valid."""
    seconds = expected_seconds(annotation_of(owner, names.EXPECTED_SECONDS_ANNOTATION))
    return {names.EXPECTED_SECONDS_ANNOTATION: str(seconds)} if seconds is not None else {}


def prebuilt(wanted: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a Workload that was made before its owner: its own expectation counts."""
    own, both = names.EXPECTED_SECONDS_ANNOTATION, {**wanted}
    both.pop(own, None)
    return {**both, own: known[own]} if own in known else both


def is_changed(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether an owner has another expected run time than before."""
    key = names.EXPECTED_SECONDS_ANNOTATION
    return annotation_of(new, key) != annotation_of(old, key)


def changes(wanted: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes of the annotations `known` of a Workload; None as a value takes one off."""
    keys = [key for key in names.RUN_TIME_TRAITS if wanted.get(key) != known.get(key)]
    return {key: wanted.get(key) for key in keys}


def problems(owner: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield a mistake in the expected run time."""
    written = annotation_of(owner, names.EXPECTED_SECONDS_ANNOTATION)
    if written and expected_seconds(written) is None:
        bounds = f"must be a whole number of seconds from 1 to {MOST_EXPECTED_SECONDS}, such as 3600 for an hour"
        yield FieldError(_EXPECTED, bounds, written[:_SHOWN])


def change_problems(new: Mapping[str, Any], old: Mapping[str, Any], *, waits: bool) -> Iterator[FieldError]:
    """Yield a forbidden change of the expected run time; `waits`: no run has begun."""
    if is_changed(new, old) and not waits:
        written = annotation_of(new, names.EXPECTED_SECONDS_ANNOTATION)
        yield FieldError(_EXPECTED, "can change only while the workload waits; suspend it first", written[:_SHOWN])


def seconds_at(owner: object, *path: str) -> int | None:
    """Return the whole number at `path` if it is 1 or more; None otherwise."""
    found = whole(owner, *path)
    return found if found is not None and found > 0 else None
