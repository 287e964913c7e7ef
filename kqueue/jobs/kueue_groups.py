"""Groups of pods as Kueue's annotations and labels have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import rules, syntax
from kqueue.jobs.fields import annotations_of, int_of, labels_of, mapping
from kqueue.jobs.pod_shape import role_hash
from kqueue.jobs.switches import JobFeatures

Pod = Mapping[str, Any]
_ANNOTATIONS = "metadata.annotations"
GROUP_PATH = f"{_ANNOTATIONS}[{names.POD_GROUP_NAME_ANNOTATION}]"
_TOTAL_PATH = f"{_ANNOTATIONS}[{names.POD_GROUP_TOTAL_COUNT_ANNOTATION}]"


class KueueGroups:
    """The form; it holds nothing."""

    total_field = f"annotation {names.POD_GROUP_TOTAL_COUNT_ANNOTATION}"

    def group(self, pod: Pod, switches: JobFeatures) -> str:
        """The annotation comes before the label, if it counts."""
        labelled = labels_of(pod).get(names.POD_GROUP_NAME_LABEL, "")
        if not switches.identifier_annotations:
            return labelled
        return annotations_of(pod).get(names.POD_GROUP_NAME_ANNOTATION, "") or labelled

    def total(self, pod: Pod) -> int | None:
        """The annotation, where it is a whole number above 0."""
        total = int_of(self.written_total(pod) or "")
        return total if total is not None and total > 0 else None

    def written_total(self, pod: Pod) -> str | None:
        """The annotation."""
        return annotations_of(pod).get(names.POD_GROUP_TOTAL_COUNT_ANNOTATION)

    def role(self, pod: Pod) -> str:
        """Pods of one shape play one role."""
        return role_hash(mapping(pod, "spec"))

    def queue(self, pod: Pod) -> str:
        """The label that all jobs have."""
        return rules.queue_name(pod)

    def rank(self, pod: Pod) -> str | None:
        """The label that an annotation names."""
        key = annotations_of(pod).get(names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION)
        return labels_of(pod).get(key) if key is not None else None

    def is_fast(self, pod: Pod) -> bool:
        """An annotation."""
        return annotations_of(pod).get(names.POD_GROUP_FAST_ADMISSION_ANNOTATION) == "true"

    def is_serving(self, pod: Pod) -> bool:
        """An annotation."""
        return annotations_of(pod).get(names.POD_GROUP_SERVING_ANNOTATION) == "true"

    def problems(self, pod: Pod, switches: JobFeatures) -> Iterator[FieldError]:
        """Name and total go together, and are said once."""
        group, total = self.group(pod, switches), self.written_total(pod)
        if group:
            yield from syntax.check(syntax.subdomain, group, GROUP_PATH)
        if group and total is None:
            yield FieldError(_TOTAL_PATH, f"must be set together with the group's name: how many pods {group} has")
        if total is not None and not group:
            yield FieldError(GROUP_PATH, f"must be set together with {names.POD_GROUP_TOTAL_COUNT_ANNOTATION}")
        if total is not None and self.total(pod) is None:
            yield FieldError(_TOTAL_PATH, "must be a whole number of pods, 1 or more", total)
        labelled = labels_of(pod).get(names.POD_GROUP_NAME_LABEL, "")
        if labelled and group and labelled != group:
            yield FieldError(
                GROUP_PATH, f"says another group than the label of that name, {labelled!r}; keep one", group
            )
