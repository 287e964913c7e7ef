"""Makes the pods and the Service of a BatchProcess.  Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs.fields import JSON, labels_of, mapping, objects, sequence, text
from kqueue.jobs.gang.batch_process import MAIN_CONTAINER, BatchPlan, BatchRole

_FEW_HOSTS = 100
"""The most pods of a process type whose addresses a variable lists; beyond it, the variable has a pattern."""


def has_network(obj: JSON, plan: BatchPlan) -> bool:
    """Whether a headless Service gives each pod an address; by default if there is more than one pod."""
    wanted = mapping(obj, "spec", "network").get("enabled")
    return wanted if isinstance(wanted, bool) else plan.replicas > 1


def pod_name(obj: JSON, role: BatchRole, index: int, attempt: int) -> str:
    """Return the name of a pod: the same decision gives the same name, so a repeated creation makes no second pod."""
    uid = text(obj, "metadata", "uid")
    digest = hashlib.sha1(f"{uid}\n{role.name}\n{index}\n{attempt}".encode(), usedforsecurity=False).hexdigest()
    return f"{host_name(obj, role, index)}-{digest[:5]}"


def host_name(obj: JSON, role: BatchRole, index: int) -> str:
    """Return the host name of a pod, which does not change when the pod is created again."""
    return f"{text(obj, 'metadata', 'name')}-{role.name}-{index}"


def address(obj: JSON, role: BatchRole, index: int | str) -> str:
    """Return the DNS name of a pod."""
    meta = mapping(obj, "metadata")
    return f"{meta['name']}-{role.name}-{index}.{meta['name']}.{meta['namespace']}.svc"


def template_of(obj: JSON, role: BatchRole) -> JSON:
    """Return the pod template of a process type, without the parts of a single pod; the Workload is made of it."""
    template = mapping(role.source, "template")
    spec = dict(mapping(template, "spec"))
    restart = text(role.source, "restartPolicy") or text(obj, "spec", "restartPolicy") or "Never"
    spec.setdefault("restartPolicy", restart)
    first, *others = objects(spec, "containers") or [{"name": MAIN_CONTAINER}]
    spec["containers"] = [_main(obj, role, first), *[dict(container) for container in others]]
    shown: JSON = {"spec": spec}
    meta = {k: dict(v) for k, v in mapping(template, "metadata").items() if k in ("labels", "annotations")}
    return {"metadata": meta, **shown} if meta else shown


def _main(obj: JSON, role: BatchRole, container: Mapping[str, Any]) -> JSON:
    source, found = role.source, dict(container)
    image = text(source, "image") or text(found, "image") or text(obj, "spec", "image")
    if image:
        found["image"] = image
    for field in ("command", "args"):
        if words := sequence(source, field):
            found[field] = words
    if directory := text(source, "workingDir"):
        found["workingDir"] = directory
    if env := objects(source, "env"):
        mine = {text(variable, "name") for variable in env}
        kept = [dict(v) for v in objects(found, "env") if text(v, "name") not in mine]
        found["env"] = [*kept, *[dict(v) for v in env]]
    limits, requests = mapping(source, "resources", "limits"), mapping(source, "resources", "requests")
    if limits or requests:
        resources = dict(mapping(found, "resources"))
        if limits:
            resources["limits"] = dict(limits)
        resources["requests"] = {**limits, **requests}
        found["resources"] = resources
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """One pod to create.

    Args:
        role: the process type.
        index: the number within the type.
        attempt: how often the pod of this place was created before.
        failures: failures before it, in its place or of the whole gang.
    """

    role: BatchRole
    index: int
    attempt: int = 0
    failures: int = 0


def pod_of(obj: JSON, plan: BatchPlan, wanted: PodPlan, *, queue: str) -> JSON:
    """Return a pod of the BatchProcess, with its labels, address and environment.

    The start writes the Workload's name: a pod beyond the quorum has another one.
    """
    role, index = wanted.role, wanted.index
    template = template_of(obj, role)
    meta, spec = mapping(obj, "metadata"), dict(template["spec"])
    if has_network(obj, plan):
        spec["hostname"], spec["subdomain"] = host_name(obj, role, index), text(meta, "name")
    variables = environment(obj, plan, role, index)
    for part in ("initContainers", "containers"):
        if containers := objects(spec, part):
            spec[part] = [_with_variables(container, variables) for container in containers]
    labels = {
        **mapping(template, "metadata", "labels"),
        gang_names.BATCH_PROCESS_LABEL: text(meta, "name"),
        gang_names.BATCH_PROCESS_TYPE_LABEL: role.name,
        gang_names.BATCH_PROCESS_INDEX_LABEL: str(index),
        gang_names.BATCH_PROCESS_RANK_LABEL: str(role.first_rank + index),
        names.MANAGED_LABEL: "true",
        names.QUEUE_NAME_LABEL: queue,
        **_priority_class(obj),
        names.POD_GROUP_POD_INDEX_LABEL: str(index),
    }
    annotations = {
        **mapping(template, "metadata", "annotations"),
        gang_names.BATCH_PROCESS_ATTEMPT_ANNOTATION: str(wanted.attempt),
        **({gang_names.BATCH_PROCESS_FAILURES_ANNOTATION: str(wanted.failures)} if wanted.failures else {}),
        names.ROLE_HASH_ANNOTATION: role.name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(obj, role, index, wanted.attempt),
            "namespace": text(meta, "namespace"),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": spec,
    }


def _priority_class(obj: JSON) -> dict[str, str]:
    """Return the label with the object's WorkloadPriorityClass, for pods beyond the quorum, which are queued alone."""
    name = labels_of(obj).get(names.PRIORITY_CLASS_LABEL, "")
    return {names.PRIORITY_CLASS_LABEL: name} if name else {}


def owner_reference(obj: JSON) -> JSON:
    """Return the reference by which the BatchProcess controls its pods and its Service."""
    meta = mapping(obj, "metadata")
    return {
        "apiVersion": text(obj, "apiVersion"),
        "kind": text(obj, "kind"),
        "name": text(meta, "name"),
        "uid": text(meta, "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def environment(obj: JSON, plan: BatchPlan, role: BatchRole, index: int) -> dict[str, str]:
    """Return the variables by which a process finds its place and its peers."""
    found = {
        "KQUEUE_BATCH_PROCESS": text(obj, "metadata", "name"),
        "KQUEUE_PROCESS": role.name,
        "KQUEUE_PROCESS_INDEX": str(index),
        "KQUEUE_PROCESS_REPLICAS": str(role.replicas),
        "KQUEUE_RANK": str(role.first_rank + index),
        "KQUEUE_WORLD_SIZE": str(plan.replicas),
        "KQUEUE_QUORUM": str(plan.quorum),
    }
    if not has_network(obj, plan):
        return found
    found["KQUEUE_LEADER_ADDRESS"] = address(obj, plan.roles[0], 0)
    for other in plan.roles:
        few = other.replicas <= _FEW_HOSTS
        hosts = (
            ",".join(address(obj, other, i) for i in range(other.replicas)) if few else address(obj, other, "{index}")
        )
        found[f"KQUEUE_HOSTS_{other.name.upper().replace('-', '_')}"] = hosts
    return found


def _with_variables(container: Mapping[str, Any], variables: Mapping[str, str]) -> JSON:
    """Add the variables that the user has not set."""
    given = [dict(variable) for variable in objects(container, "env")]
    taken = {text(variable, "name") for variable in given}
    return {
        **container,
        "env": [*({"name": n, "value": v} for n, v in variables.items() if n not in taken), *given],
    }


def service_of(obj: JSON) -> JSON:
    """Return the headless Service that gives the pods their addresses, also before they are ready."""
    meta = mapping(obj, "metadata")
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": text(meta, "name"),
            "namespace": text(meta, "namespace"),
            "labels": {gang_names.BATCH_PROCESS_LABEL: text(meta, "name")},
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {gang_names.BATCH_PROCESS_LABEL: text(meta, "name")},
        },
    }
