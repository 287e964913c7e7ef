"""A form of gang in one file: two labels on pods, `toys.example.com/gang` and `toys.example.com/size`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.errors import FieldError
from kqueue.jobs import rules
from kqueue.jobs.fields import int_of, labels_of, mapping
from kqueue.jobs.pod_shape import role_hash
from kqueue.jobs.switches import JobFeatures

GANG, SIZE, RANK = "toys.example.com/gang", "toys.example.com/size", "toys.example.com/rank"
Pod = Mapping[str, Any]


class ToyGangs:
    """The form; it holds nothing."""

    total_field = f"label {SIZE}"

    def group(self, pod: Pod, switches: JobFeatures) -> str:
        """A label."""
        return labels_of(pod).get(GANG, "")

    def total(self, pod: Pod) -> int | None:
        """A label."""
        size = int_of(self.written_total(pod) or "")
        return size if size is not None and size > 0 else None

    def written_total(self, pod: Pod) -> str | None:
        """A label."""
        return labels_of(pod).get(SIZE)

    def role(self, pod: Pod) -> str:
        """Pods of one shape play one role."""
        return role_hash(mapping(pod, "spec"))

    def queue(self, pod: Pod) -> str:
        """The label that all jobs have."""
        return rules.queue_name(pod)

    def rank(self, pod: Pod) -> str | None:
        """A label."""
        return labels_of(pod).get(RANK)

    def is_fast(self, pod: Pod) -> bool:
        """Never."""
        return False

    def is_serving(self, pod: Pod) -> bool:
        """Never."""
        return False

    def problems(self, pod: Pod, switches: JobFeatures) -> Iterator[FieldError]:
        """The size goes with the gang."""
        if self.group(pod, switches) and self.total(pod) is None:
            yield FieldError(
                f"metadata.labels[{SIZE}]", "must be a whole number of pods, 1 or more", self.written_total(pod)
            )
