"""A dialect of gangs in one file: two labels on pods, `toys.example.com/gang` and `toys.example.com/size`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, int_of, labels_of
from kqueue.jobs.gang.dialect import GangRules, GroupProblem, PodSelection, WithoutGroupObject
from kqueue.jobs.gang.value import GangMembership, GangRef, GangSpec
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures

FRAMEWORK, GANG, SIZE, RANK = (f"toys.example.com/{name}" for name in ("gangs", "gang", "size", "rank"))
PATH = f"metadata.labels[{SIZE}]"


class ToyGangs(WithoutGroupObject):
    """The oldest pod says the size."""

    framework = FRAMEWORK
    names_workloads = GroupVersionKind("toys.example.com", "v1", "Gang")
    has_extras = True
    joined_by = f"metadata.labels[{GANG}]"
    marks = frozenset({GANG})

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the gang of the label."""
        labels = labels_of(pod)
        name, rank = labels.get(GANG, ""), labels.get(RANK, "")
        return GangMembership(framework=FRAMEWORK, name=name, rank=rank) if name else None

    def selection(self) -> PodSelection:
        """Return pods with the label."""
        return PodSelection(word="toys", label=GANG)

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield a size that is no number."""
        if self.membership(new, around.switches) is not None and not _size(new):
            yield FieldError(PATH, "must be a whole number of pods, 1 or more", labels_of(new).get(SIZE))

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return a wish for as many pods as the oldest one says."""
        size = _size(members[0].obj)
        return GangSpec(quorum=size) if size else GroupProblem(f"label {SIZE} must be a number", members[0])


def _size(pod: JSON) -> int:
    return max(0, int_of(labels_of(pod).get(SIZE, "")) or 0)
