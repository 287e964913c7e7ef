"""Sources of gangs: labels and annotations by which users group pods, with the size, roles, queue and ranks of a group.

A new source is one file with a `GangSource`, and one line that registers it.  The webhook then gates the pods, the
reconciler creates one Workload for them, and the ungater releases them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from kqueue.errors import FieldError
from kqueue.jobs.kueue_groups import KueueGroups
from kqueue.jobs.switches import JobFeatures

Pod = Mapping[str, Any]


class GangSource(Protocol):
    """One source of gangs.  Pure: takes pods as JSON, returns values."""

    @property
    def total_field(self) -> str:
        """The field with the size of a pod's group, for messages, as in `annotation example.com/size`."""
        ...

    def group(self, pod: Pod, switches: JobFeatures) -> str:
        """Return the pod's group, a name within its namespace; empty: the pod is in no group of this source."""
        ...

    def total(self, pod: Pod) -> int | None:
        """Return the number of pods of the group; None unless the pod has a whole number above 0."""
        ...

    def written_total(self, pod: Pod) -> str | None:
        """Return the text of the total as the pod has it; None: the pod has none."""
        ...

    def role(self, pod: Pod) -> str:
        """Return the pod's role: pods of one role have the same shape and form one pod set of this name.

        The webhook writes it into an annotation, which then takes precedence; users may write that annotation, too.
        """
        ...

    def queue(self, pod: Pod) -> str:
        """Return the LocalQueue that the pod names; empty: none."""
        ...

    def rank(self, pod: Pod) -> str | None:
        """Return the pod's rank in its group, a number from 0 as text; None if the source has no ranks."""
        ...

    def is_fast(self, pod: Pod) -> bool:
        """Whether the group is queued before all of its pods exist."""
        ...

    def is_serving(self, pod: Pod) -> bool:
        """Whether the group never finishes."""
        ...

    def problems(self, pod: Pod, switches: JobFeatures) -> Iterator[FieldError]:
        """Yield each mistake in the pod's description of its group, with its path; called for pods of other sources,
        too.
        """
        ...


KUEUE: GangSource = KueueGroups()
"""Kueue's annotations and labels; also used for pods that are queued alone."""

_sources: list[GangSource] = [KUEUE]


def register(source: GangSource) -> None:
    """Register a source at the start of a process.  Raises ValueError when it is registered already."""
    if source in _sources:
        raise ValueError(f"{source!r} is registered already")
    _sources.append(source)


def sources() -> tuple[GangSource, ...]:
    """Return all sources, Kueue's first."""
    return tuple(_sources)


def source_of(pod: Pod, switches: JobFeatures) -> GangSource:
    """Return the first source in which the pod has a group; Kueue's if there is none."""
    if len(_sources) == 1:
        return KUEUE
    return next((source for source in _sources if source.group(pod, switches)), KUEUE)
