"""The request that a workload should have: the pod sets that need nodes, with their pod templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import provisioning
from kqueue.core.quantity import parse_quantity
from kqueue.jobs.fields import JSON, mapping, objects, text, whole
from kqueue.jobs.infos import with_flavors
from kqueue.jobs.kind import Refused
from kqueue.jobs.provisioning.naming import template_name

_SCHEDULING_FIELDS = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionedPods:
    """Pods of a request; `template` is the pod template of its first pod set, named `name`."""

    name: str
    count: int
    template: JSON


def counts_in_need(workload: Mapping[str, Any], managed: Sequence[str]) -> dict[str, int]:
    """Return the admitted pods of the pod sets that need nodes, in their order.

    They have pods, also after partial admission, and a container requests one of the resources `managed` (or has a
    limit for it); if none is managed, any pod set with pods needs nodes.
    """
    return {
        _name(pod_set): count
        for pod_set in objects(workload, "spec", "podSets")
        if (count := _count(workload, pod_set)) > 0 and (not managed or not _asked(pod_set).isdisjoint(managed))
    }


def provisioned_pods(
    workload: Mapping[str, Any], config: provisioning.ProvisioningRequestConfigSpec, flavors: Mapping[str, JSON]
) -> list[ProvisionedPods] | Refused:
    """Return the pods to request nodes for; pod sets that the policy allows to merge are merged into the first.

    `workload` has complete pod templates; `flavors` are the ResourceFlavors of its admission.  Refused: template and
    flavor contradict each other.
    """
    assignments = _assignments(workload)
    in_need = counts_in_need(workload, config.managed_resources)
    found: list[ProvisionedPods] = []
    for pod_set in objects(workload, "spec", "podSets"):
        name = _name(pod_set)
        if name not in in_need:
            continue
        template = with_flavors(mapping(pod_set, "template"), name, assignments.get(name, {}), flavors)
        if isinstance(template, Refused):
            return template
        one = ProvisionedPods(name=name, count=in_need[name], template=_with_requests(template))
        same = next((i for i, other in enumerate(found) if _may_merge(other, one, config.pod_set_merge_policy)), None)
        if same is None:
            found.append(one)
        else:
            first = found[same]
            found[same] = ProvisionedPods(name=first.name, count=first.count + one.count, template=first.template)
    return found


def counts(request: str, pods: Sequence[ProvisionedPods]) -> dict[str, int]:
    """Return the number of pods by pod template of a request."""
    return {template_name(request, one.name): one.count for one in pods}


def parameters(workload: wire.Workload, config: provisioning.ProvisioningRequestConfigSpec) -> dict[str, str]:
    """Return the parameters of a request; annotations of the workload win over the config."""
    prefix = names.PROVISIONING_REQUEST_ANNOTATION_PREFIX
    own = workload.metadata.annotations
    added = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix) and key != prefix}
    return {**config.parameters, **added}


def request_object(
    name: str,
    workload: wire.Workload,
    config: provisioning.ProvisioningRequestConfigSpec,
    pods: Sequence[ProvisionedPods],
) -> JSON:
    """Return the request of one attempt."""
    spec: JSON = {
        "provisioningClassName": config.provisioning_class_name,
        "podSets": [
            {"count": count, "podTemplateRef": {"name": template}} for template, count in counts(name, pods).items()
        ],
    }
    wanted = parameters(workload, config)
    if wanted:
        spec["parameters"] = wanted
    return {
        "apiVersion": provisioning.API_VERSION,
        "kind": provisioning.KIND,
        "metadata": _metadata(name, workload, workload_reference(workload)),
        "spec": spec,
    }


def template_object(request: str, workload: wire.Workload, pods: ProvisionedPods, owner: JSON) -> JSON:
    """Return the pod template of one pod set of a request."""
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": _metadata(template_name(request, pods.name), workload, owner),
        "template": pods.template,
    }


def workload_reference(workload: wire.Workload) -> JSON:
    """Return the reference to a Workload as the controller of an object."""
    return _reference(names.API_VERSION, names.WORKLOAD_KIND, workload.metadata.name, workload.metadata.uid)


def request_reference(request: provisioning.ProvisioningRequest) -> JSON:
    """Return the reference to a request as the controller of an object."""
    meta = request.metadata
    return _reference(provisioning.API_VERSION, provisioning.KIND, meta.name, meta.uid)


def _reference(api_version: str, kind: str, name: str, uid: str) -> JSON:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _metadata(name: str, workload: wire.Workload, owner: JSON) -> JSON:
    return {
        "name": name,
        "namespace": workload.metadata.namespace,
        "labels": {names.MANAGED_LABEL: "true"},
        "ownerReferences": [owner],
    }


# --- pod sets ---------------------------------------------------------------------------------------------------------


def _name(pod_set: Mapping[str, Any]) -> str:
    return text(pod_set, "name") or names.DEFAULT_PODSET


def _assignments(workload: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {_name(one): one for one in objects(workload, "status", "admission", "podSetAssignments")}


def _count(workload: Mapping[str, Any], pod_set: Mapping[str, Any]) -> int:
    """Return the admitted pods of a pod set; all of its pods without an admission."""
    spec = whole(pod_set, "count")
    spec = 1 if spec is None else spec
    admitted = whole(_assignments(workload).get(_name(pod_set), {}), "count")
    return min(spec, spec if admitted is None else admitted)


def _containers(template: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from objects(template, "spec", "initContainers")
    yield from objects(template, "spec", "containers")


def _asked(pod_set: Mapping[str, Any]) -> set[str]:
    """Return the resources that any container requests or limits."""
    found = set[str]()
    for container in _containers(mapping(pod_set, "template")):
        found |= mapping(container, "resources", "requests").keys() | mapping(container, "resources", "limits").keys()
    return found


def _with_requests(template: JSON) -> JSON:
    """Return the template with each limit as the request that it has no request for."""
    spec = dict(mapping(template, "spec"))
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [_with_own_requests(container) for container in objects(spec, part)]
    return {**template, "spec": spec}


def _with_own_requests(container: Mapping[str, Any]) -> JSON:
    limits = mapping(container, "resources", "limits")
    if not limits:
        return dict(container)
    resources = mapping(container, "resources")
    return {**container, "resources": {**resources, "requests": {**limits, **mapping(resources, "requests")}}}


# --- merging ----------------------------------------------------------------------------------------------------------


def _may_merge(first: ProvisionedPods, second: ProvisionedPods, policy: str | None) -> bool:
    if policy == "IdenticalPodTemplates":
        return bool(_canonical(first.template) == _canonical(second.template))
    if policy == "IdenticalWorkloadSchedulingRequirements":
        return bool(_requirements(first.template) == _requirements(second.template))
    return False


def _requirements(template: Mapping[str, Any]) -> list[Any]:
    """Return what decides on which nodes pods can run, in a form in which equal amounts are equal."""
    spec = mapping(template, "spec")
    of_containers = [
        [_amounts(mapping(container, "resources", "requests")) for container in objects(spec, part)]
        for part in ("containers", "initContainers")
    ]
    return [*of_containers, *(_canonical(spec.get(part) or None) for part in _SCHEDULING_FIELDS)]


def _canonical(value: Any) -> Any:
    """Return JSON in a form in which equal amounts of resources are equal, however they are written."""
    if isinstance(value, Mapping):
        return {
            key: _amounts(part) if key in ("requests", "limits") and isinstance(part, Mapping) else _canonical(part)
            for key, part in value.items()
        }
    return [_canonical(part) for part in value] if isinstance(value, (list, tuple)) else value


def _amounts(resources: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for resource, amount in resources.items():
        try:
            found[resource] = parse_quantity(amount, resource)
        except (ValueError, TypeError):
            found[resource] = amount
    return found
