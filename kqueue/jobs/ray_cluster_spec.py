"""The cluster spec that RayCluster, RayJob and RayService share: its pod sets, its templates, and its mistakes.

A cluster is one head pod and groups of workers.  KubeRay adds containers to the head pod, and runs a pod that clears
Redis in its place at the end; the pod set of the head requests enough for each.  Source: KubeRay's documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kqueue.api import names
from kqueue.api.bounds import INT32_MAX
from kqueue.config.object_path import put
from kqueue.core.quantity import parse_quantity
from kqueue.errors import FieldError
from kqueue.jobs import several
from kqueue.jobs.fields import JSON, annotation_of, flag, mapping, objects, text, whole
from kqueue.jobs.templated import TemplatePart
from kqueue.kube import names as kube_names

HEAD = "head"
"""Pod set of the head."""
SUBMITTER_CONTAINER: JSON = {
    "name": "ray-job-submitter",
    "resources": {
        "requests": {"cpu": "500m", "memory": "200Mi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    },
}
"""The container that submits a job if its user gives none."""
_AUTOSCALER_RESOURCES: JSON = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
_CLEANUP_REQUESTS = {"cpu": "200m", "memory": "256Mi"}
"""The requests of the pod that clears Redis after the head has ended."""
CLEANUP_TEMPLATE: JSON = {"spec": {"containers": [{"name": "ray-head", "resources": {"requests": _CLEANUP_REQUESTS}}]}}
"""The size of that pod."""


@dataclass(frozen=True, slots=True)
class RayClusterSpec:
    """The cluster spec of one object."""

    path: tuple[str, ...]
    """Path of the spec in its object."""
    job: JSON
    """The object."""
    runs: JSON = field(default_factory=dict)
    """The RayCluster that the object runs in; its autoscaler changes the numbers of workers there; empty: there is
    none, or it is the object."""

    @property
    def at(self) -> str:
        """The path as text."""
        return ".".join(self.path)

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec; empty if the object has none."""
        return mapping(self.job, *self.path)

    @property
    def autoscales(self) -> bool:
        """Whether an autoscaler in the head pod changes the numbers of workers."""
        return flag(self.spec, "enableInTreeAutoscaling")

    @property
    def clears_redis(self) -> bool:
        """Whether KubeRay runs a pod that clears Redis when the cluster is deleted."""
        told = annotation_of(self.job, kube_names.RAY_FAULT_TOLERANCE_ANNOTATION)
        return told.lower() == "true" or self.spec.get("gcsFaultToleranceOptions") is not None

    def parts(self, *, beside_head: Sequence[JSON] = ()) -> list[TemplatePart]:
        """Return the head and the worker groups; `beside_head`: further containers that KubeRay adds to the head."""
        template = mapping(self.spec, "headGroupSpec", "template")
        head = TemplatePart(
            name=HEAD,
            path=f"{self.at}.headGroupSpec.template",
            template=template,
            count=1,
            counted=self._head_pod(template, beside_head),
        )
        return [head, *(self._group(number, group) for number, group in enumerate(self._groups()))]

    def with_templates(self, templates: Sequence[JSON]) -> JSON:
        """Return the object with other templates, in the order of `parts`."""
        first, *others = templates
        head = mapping(self.spec, "headGroupSpec")
        groups = [{**group, "template": new} for group, new in zip(self._groups(), others, strict=True)]
        spec: JSON = {**self.spec, "headGroupSpec": {**head, "template": first}}
        new: JSON = put(self.job, self.path, {**spec, "workerGroupSpecs": groups} if groups else spec)
        return new

    def with_counts(self, counts: Mapping[str, int]) -> JSON:
        """Return the object with other numbers of workers; a group without a number keeps its own."""
        groups = [
            {**group, "replicas": counts[part.name] // (whole(group, "numOfHosts") or 1)}
            if (part := self._group(number, group)).name in counts
            else dict(group)
            for number, group in enumerate(self._groups())
        ]
        new: JSON = put(self.job, (*self.path, "workerGroupSpecs"), groups) if groups else dict(self.job)
        return new

    def problems(self, parts: Sequence[TemplatePart]) -> Iterator[FieldError]:
        """Yield why these parts, the cluster's first, cannot become the pod sets of a Workload."""
        groups = len(self._groups())
        reserved = [part.name for part in (parts[0], *parts[1 + groups :])]
        named: list[tuple[str, str]] = []
        for number, part in enumerate(parts[1 : 1 + groups]):
            path = self._group_path(number, "groupName")
            if part.name in reserved:
                yield FieldError(path, f"cannot be one of {', '.join(reserved)}, in any case of letters", part.name)
            else:
                named.append((path, part.name))
        yield from several.name_problems(named)
        if len(parts) > names.MAX_PODSETS:
            most = names.MAX_PODSETS - len(reserved)
            yield FieldError(f"{self.at}.workerGroupSpecs", f"must be at most {most} groups to be queued, are {groups}")

    def _groups(self) -> list[Mapping[str, Any]]:
        return objects(self.spec, "workerGroupSpecs")

    def _group_path(self, number: int, field: str) -> str:
        return f"{self.at}.workerGroupSpecs[{number}].{field}"

    def _group(self, number: int, group: Mapping[str, Any]) -> TemplatePart:
        return TemplatePart(
            name=text(group, "groupName").lower(),
            path=self._group_path(number, "template"),
            template=mapping(group, "template"),
            count=_pods(group, self._replicas(group)),
            count_path=self._group_path(number, "replicas"),
        )

    def _replicas(self, group: Mapping[str, Any]) -> int | None:
        """Return the written number of replicas of a group: that of the RayCluster, if it has a possible one."""
        for running in objects(self.runs, "spec", "workerGroupSpecs"):
            now = whole(running, "replicas")
            same = running.get("groupName") == group.get("groupName")
            if same and now is not None and 0 <= _pods(group, now) <= INT32_MAX:
                return now
        return whole(group, "replicas")

    def _head_pod(self, template: Mapping[str, Any], beside_head: Sequence[JSON]) -> Mapping[str, Any]:
        """Return the template of the head with the requests of all that KubeRay runs in its place."""
        containers = objects(template, "spec", "containers")
        if self.clears_redis and containers:
            containers = [_raised(containers[0]), *containers[1:]]
        if self.autoscales:
            resources = mapping(self.spec, "autoscalerOptions").get("resources") or _AUTOSCALER_RESOURCES
            containers = [*containers, {"name": "autoscaler", "resources": resources}]
        return {**template, "spec": {**mapping(template, "spec"), "containers": [*containers, *beside_head]}}


def _pods(group: Mapping[str, Any], replicas: int | None) -> int:
    """Return the number of pods of so many replicas, of one if None."""
    return (1 if replicas is None else replicas) * max(1, whole(group, "numOfHosts") or 1)


def _raised(container: Mapping[str, Any]) -> JSON:
    """Return the container with at least the requests of the clean-up."""
    resources = mapping(container, "resources")
    requests, limits = dict(mapping(resources, "requests")), mapping(resources, "limits")
    for resource, least in _CLEANUP_REQUESTS.items():
        if _is_less(requests.get(resource, limits.get(resource)), least, resource):
            requests[resource] = least
    return {**container, "resources": {**resources, "requests": requests}}


def _is_less(quantity: object, least: str, resource: str) -> bool:
    """Whether a quantity is missing or less than another; False for a text that is no quantity, reported elsewhere."""
    if not isinstance(quantity, str | int) or isinstance(quantity, bool):
        return True
    try:
        return parse_quantity(quantity, resource) < parse_quantity(least, resource)
    except ValueError:
        return False
