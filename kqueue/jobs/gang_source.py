"""Forms in which users write that pods belong together: which pods, how many, in which roles, queue and order.

A new form is one file with a `GangSource`, and one line that registers it.  Everything else follows: the webhook gates
the pods, the reconciler makes one Workload of them, and the ungater releases them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from kqueue.errors import FieldError
from kqueue.jobs.kueue_groups import KueueGroups
from kqueue.jobs.switches import JobFeatures

Pod = Mapping[str, Any]


class GangSource(Protocol):
    """One form.  Pure: pods as JSON in, values out."""

    @property
    def said_total(self) -> str:
        """Where a pod says how many pods its group has, for messages, as in `annotation example.com/size`."""
        ...

    def group(self, pod: Pod, switches: JobFeatures) -> str:
        """The group that the pod is in, a name within its namespace; empty: in none of this form."""
        ...

    def total(self, pod: Pod) -> int | None:
        """How many pods the group has; None where that is not said as a whole number above 0."""
        ...

    def written_total(self, pod: Pod) -> str | None:
        """What the pod says of the total, as it is written; None: nothing."""
        ...

    def role(self, pod: Pod) -> str:
        """The role that the pod plays: pods of one role are alike, and are one pod set of this name.

        The webhook notes it in an annotation, which users may write themselves, and which counts from then on.
        """
        ...

    def queue(self, pod: Pod) -> str:
        """The LocalQueue that the pod asks for; empty: none."""
        ...

    def rank(self, pod: Pod) -> str | None:
        """The pod's place in the order of its group, a number from 0 as text; None where the form says none."""
        ...

    def is_fast(self, pod: Pod) -> bool:
        """Whether the group is queued before all of its pods are there."""
        ...

    def is_serving(self, pod: Pod) -> bool:
        """Whether the group never finishes."""
        ...

    def problems(self, pod: Pod, switches: JobFeatures) -> Iterator[FieldError]:
        """Mistakes in what the pod says of its group, each with its path; asked of pods of other forms, too."""
        ...


KUEUE: GangSource = KueueGroups()
"""Kueue's annotations and labels; pods that are queued alone are read by it, too."""

_sources: list[GangSource] = [KUEUE]


def register(source: GangSource) -> None:
    """Add a form at the start of a process.  Raises ValueError when it is there already."""
    if source in _sources:
        raise ValueError(f"{source!r} is registered already")
    _sources.append(source)


def sources() -> tuple[GangSource, ...]:
    """All forms, Kueue's first."""
    return tuple(_sources)


def source_of(pod: Pod, switches: JobFeatures) -> GangSource:
    """The first form that says a group for the pod; Kueue's where none does."""
    if len(_sources) == 1:
        return KUEUE
    return next((source for source in _sources if source.group(pod, switches)), KUEUE)
