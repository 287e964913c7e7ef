"""Copy labels and annotations of a job to its new Workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kqueue.jobs.fields import annotations_of, labels_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedKeys:
    """Keys of labels and annotations to copy, as configured."""

    labels: tuple[str, ...] = ()
    """`integrations.labelKeysToCopy`: pods of one group must have equal values."""
    metric_labels: tuple[str, ...] = ()
    """Labels that `metrics.customLabels` with source kind Workload reads; a group has the labels of its first pod."""
    metric_annotations: tuple[str, ...] = ()
    """Annotations that `metrics.customLabels` with source kind Workload reads; a group has the annotations of its first
    pod.
    """

    def labels_from(self, job: Mapping[str, Any]) -> dict[str, str]:
        """Return the job's labels that its Workload gets."""
        own = labels_of(job)
        return {key: own[key] for key in (*self.labels, *self.metric_labels) if key in own}

    def annotations_from(self, job: Mapping[str, Any]) -> dict[str, str]:
        """Return the job's annotations that its Workload gets because of the configuration."""
        own = annotations_of(job)
        return {key: own[key] for key in self.metric_annotations if key in own}


COPIES_NONE = CopiedKeys()
"""The configuration names no key."""
