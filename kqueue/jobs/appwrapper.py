"""The adapter of AppWrapper (workload.codeflare.dev/v1beta2), which holds the manifests of other objects.

A start writes the additions of an admission beside the manifests; the AppWrapper controller merges them into the pod
templates when it creates the objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import several, syntax, wrapped
from kqueue.jobs.fields import JSON, condition_status, mapping, objects, text
from kqueue.jobs.kind import Finished, GroupVersionKind, PodSetInfo, Refused
from kqueue.jobs.template import info_of, merged, reserved_names
from kqueue.jobs.templated import TemplatedJob, TemplatePart
from kqueue.kube import names as kube_names

_INFOS = "podSetInfos"


class AppWrapper(TemplatedJob):
    """The adapter of AppWrapper; it has no state."""

    framework = "workload.codeflare.dev/appwrapper"
    gvk = GroupVersionKind("workload.codeflare.dev", "v1beta2", "AppWrapper")
    resource = "appwrappers"
    own_controller = kube_names.APPWRAPPER_CONTROLLER
    _labels_checked_on_update = False

    def active(self, job: JSON) -> bool:
        """Whether condition QuotaReserved is true: the controller has not deleted all objects."""
        return condition_status(job, "QuotaReserved") == "True"

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the label with the AppWrapper's name, which its controller writes into all pod templates."""
        return {kube_names.APPWRAPPER_LABEL: text(job, "metadata", "name")}

    def managed_by(self, job: JSON) -> str:
        """Return `spec.managedBy`, or the kind's own controller."""
        return text(job, "spec", "managedBy") or self.own_controller

    def parts(self, job: JSON) -> list[TemplatePart]:
        """Return the pod templates of all components, named `<name of the object>-<number>`.

        While the object runs, they contain what the start has written beside them, as their pods do.
        """
        runs, name = not mapping(job, "spec").get("suspend"), text(job, "metadata", "name")
        found: list[TemplatePart] = []
        for number, component in enumerate(_components(job)):
            at, added = f"spec.components[{number}]", objects(component, _INFOS)
            for place, pods in enumerate(wrapped.pods_of(component)):
                template = wrapped.look(component, pods.path)
                if runs and place < len(added):
                    template = _with(template, added[place])
                found.append(
                    TemplatePart(
                        name=f"{name}-{len(found)}",
                        path=f"{at}.{pods.path}",
                        template=template,
                        count=pods.replicas,
                        count_path=f"{at}.podSets",
                        index=pods.labels,
                    )
                )
        return found

    def started(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON | Refused:
        """Return the object with the infos of each component beside its manifest."""
        placed = self.placed({**job, "spec": {**mapping(job, "spec"), "suspend": True}})
        together = several.started(self.gvk.kind, placed, infos)
        if isinstance(together, Refused):
            return together
        kept = [
            f"{path}: {name} is reserved for kqueue; remove it there"
            for (path, template), info in zip(placed, infos, strict=True)
            for name in reserved_names(template, info)
        ]
        return Refused(tuple(kept)) if kept else _with_infos(job, infos)

    def restored(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON:
        """Return the object with nothing beside its manifests."""
        return _with_infos(job, ())

    def finished(self, job: JSON) -> Finished | None:
        """Return the result by the phase; a failed AppWrapper finishes when its objects are deleted."""
        phase = text(job, "status", "phase")
        if phase == "Succeeded":
            return Finished("AppWrapper finished successfully", success=True)
        if phase == "Failed" and condition_status(job, "ResourcesDeployed") != "True":
            return Finished("AppWrapper failed", success=False)
        return None

    def pods_ready(self, job: JSON) -> bool:
        """Whether condition PodsReady is true."""
        return condition_status(job, "PodsReady") == "True"

    def shape_problems(self, job: JSON) -> Iterator[FieldError]:
        """Yield components whose pods cannot be counted, and pod sets that no Workload can have."""
        parts = self.parts(job)
        for number, component in enumerate(_components(job)):
            yield from wrapped.problems(component, f"spec.components[{number}]")
        if not 0 < len(parts) <= names.MAX_PODSETS:
            problem = f"must hold 1 to {names.MAX_PODSETS} pod templates to be queued, has {len(parts)}"
            yield FieldError("spec.components", problem)
        yield from several.name_problems(("metadata.name (name of a pod set)", part.name) for part in parts[-1:])
        for part in parts:
            for label in filter(None, (part.index.pod, part.index.sub_group)):
                yield from syntax.check(syntax.label_key, label, f"{part.count_path}.annotations")
        yield from super().shape_problems(job)


def _components(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return objects(job, "spec", "components")


def _with(template: Mapping[str, Any], added: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a template with what stands beside it; unchanged if they contradict each other."""
    info = info_of({"metadata": added, "spec": added}, name="")
    together = merged(template, info)
    return template if isinstance(together, tuple) else together


def _with_infos(job: JSON, infos: Sequence[PodSetInfo]) -> JSON:
    """Return the object with the infos beside the manifests that they belong to; without any, with none."""
    components: list[JSON] = []
    left = list(infos)
    for component in _components(job):
        number = len(wrapped.pods_of(component))
        mine, left = left[:number], left[number:]
        plain = {key: value for key, value in component.items() if key != _INFOS}
        components.append({**plain, _INFOS: [_written(info) for info in mine]} if mine else plain)
    return {**job, "spec": {**mapping(job, "spec"), "components": components}}


def _written(info: PodSetInfo) -> JSON:
    """Return an info in the form of AppWrapper."""
    parts: JSON = {
        "annotations": dict(info.annotations),
        "labels": dict(info.labels),
        "nodeSelector": dict(info.node_selector),
        "tolerations": [dict(toleration) for toleration in info.tolerations],
        "schedulingGates": [{"name": gate} for gate in info.scheduling_gates],
    }
    return {key: value for key, value in parts.items() if value}
