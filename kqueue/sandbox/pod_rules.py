"""Pods and pod templates: defaults, built-in admission, validation of objects and of updates.

Source: Kubernetes v1.36 defaulting and validation of `core/v1`, as far as queueing and placement depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kqueue.sandbox import failure, quantity
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.metadata import (
    LABEL_RULE,
    annotation_causes,
    is_label,
    label_causes,
    label_value_problem,
    qualified_name_problem,
)
from kqueue.sandbox.store import copied
from kqueue.sandbox.strategy import ClusterView, WriteStrategy

PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
RUNTIME_CLASSES = GroupVersionResource("node.k8s.io", "v1", "runtimeclasses")
TOLERATION_SECONDS = 300
GRACE_SECONDS = 30
FINISHED = ("Succeeded", "Failed")
EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
RESTART_POLICIES = ["Always", "OnFailure", "Never"]
PULL_POLICIES = ["Always", "IfNotPresent", "Never"]
MODE = 0o644
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default_spec(spec: Object) -> None:
    """Fill the defaults of a pod's spec."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("securityContext", {})
    for container in containers_of(spec):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]


def _default_container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    container.setdefault("resources", {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in PROBES:
        if name in container:
            _default_probe(container[name])


def _default_probe(probe: Object) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(key, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    tag = last.partition(":")[2] or "latest"
    return "Always" if tag == "latest" else "IfNotPresent"


def _default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for key in ("secret", "configMap", "downwardAPI", "projected"):
        if key in volume:
            volume[key].setdefault("defaultMode", MODE)


def default_requests(spec: Object) -> None:
    """Default a missing request to the container's limit."""
    for container in containers_of(spec):
        limits = container["resources"].get("limits")
        if limits:
            requests = container["resources"].setdefault("requests", {})
            for name, amount in limits.items():
                requests.setdefault(name, amount)


def default(pod: Object) -> None:
    """Fill the defaults of a pod."""
    spec = pod.setdefault("spec", {})
    default_spec(spec)
    default_requests(spec)
    spec.setdefault("enableServiceLinks", True)


def default_template(template: Object) -> None:
    """Fill the defaults of a pod template."""
    template.setdefault("metadata", {})
    default_spec(template.setdefault("spec", {}))


def admit(pod: Object, around: ClusterView) -> None:
    """Apply built-in admission: account, priority, overhead, limits, tolerations."""
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    _admit_priority(pod, around)
    _admit_runtime_class(pod, around)
    _admit_limits(pod, around)
    tolerate_failing_nodes(pod)


def tolerate_failing_nodes(pod: Object) -> None:
    """Add tolerations with a time for nodes that are not ready or unreachable."""
    spec = pod["spec"]
    tolerations = spec.setdefault("tolerations", [])
    for reason in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{reason}"
        if not any(t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "") for t in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            )


def _admit_priority(pod: Object, around: ClusterView) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    chosen: Object | None = None
    if name:
        chosen = around.find(PRIORITY_CLASSES, name)
        if chosen is None:
            why = f"no PriorityClass with name {name} was found"
            raise failure.forbidden(GroupVersionResource("", "v1", "pods"), pod["metadata"].get("name", ""), why)
    else:
        classes = [c for c in around.every(PRIORITY_CLASSES) if c.get("globalDefault")]
        if classes:
            chosen = min(classes, key=lambda c: (c["value"], c["metadata"]["name"]))
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value = chosen["value"] if chosen is not None else 0
    policy = chosen.get("preemptionPolicy", "PreemptLowerPriority") if chosen is not None else "PreemptLowerPriority"
    if spec.get("priority", value) != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise failure.forbidden(GroupVersionResource("", "v1", "pods"), pod["metadata"].get("name", ""), why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def _admit_runtime_class(pod: Object, around: ClusterView) -> None:
    name = pod["spec"].get("runtimeClassName")
    if not name:
        return
    runtime = around.find(RUNTIME_CLASSES, name)
    if runtime is None:
        why = f'pod rejected: RuntimeClass "{name}" not found'
        raise failure.forbidden(GroupVersionResource("", "v1", "pods"), pod["metadata"].get("name", ""), why)
    if fixed := (runtime.get("overhead") or {}).get("podFixed"):
        pod["spec"]["overhead"] = dict(fixed)
    scheduling = runtime.get("scheduling") or {}
    if selector := scheduling.get("nodeSelector"):
        pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), **selector}
    for toleration in scheduling.get("tolerations") or ():
        present = pod["spec"].setdefault("tolerations", [])
        if toleration not in present:
            present.append(dict(toleration))


def _admit_limits(pod: Object, around: ClusterView) -> None:
    """Apply defaults of the namespace's LimitRanges to containers."""
    ranges = around.every(GroupVersionResource("", "v1", "limitranges"), pod["metadata"].get("namespace", ""))
    items = [item for each in ranges for item in each["spec"].get("limits") or () if item.get("type") == "Container"]
    for item in items:
        for container in containers_of(pod["spec"]):
            for ours, theirs in (("limits", "default"), ("requests", "defaultRequest")):
                for name, amount in (item.get(theirs) or {}).items():
                    container["resources"].setdefault(ours, {}).setdefault(name, amount)


def prepare_create(pod: Object, _: ClusterView) -> None:
    """Set the first status of a pod; a gated pod gets the condition SchedulingGated."""
    status: Object = {"phase": "Pending", "qosClass": quality(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    pod["status"] = status


def quality(spec: Object) -> str:
    """Return the quality of service class: Guaranteed, Burstable or BestEffort."""
    requests: set[str] = set()
    guaranteed = True
    for container in containers_of(spec):
        resources = container.get("resources") or {}
        asked = {k: v for k, v in (resources.get("requests") or {}).items() if k in ("cpu", "memory")}
        capped = {k: v for k, v in (resources.get("limits") or {}).items() if k in ("cpu", "memory")}
        requests.update(asked, capped)
        guaranteed = guaranteed and len(capped) == 2 and asked == capped
    if not requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def containers_of(spec: Object) -> Iterator[Object]:
    """Yield init containers and containers."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def causes(pod: Object) -> list[Cause]:
    """Return all mistakes in a pod."""
    return spec_causes(pod["spec"], "spec")


def template_causes(template: Object, path: str) -> list[Cause]:
    """Return all mistakes in a pod template."""
    meta = template.get("metadata") or {}
    return (
        label_causes(meta.get("labels"), f"{path}.labels")
        + annotation_causes(meta.get("annotations"), f"{path}.annotations")
        + spec_causes(template["spec"], f"{path}.spec")
    )


def spec_causes(spec: Object, path: str) -> list[Cause]:
    """Return all mistakes in a pod's spec."""
    found: list[Cause] = []
    if not spec.get("containers"):
        found.append(failure.required(f"{path}.containers"))
    names: set[str] = set()
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or ()):
            found += _container_causes(container, f"{path}.{key}[{index}]", names)
    if spec["restartPolicy"] not in RESTART_POLICIES:
        found.append(failure.unsupported(f"{path}.restartPolicy", spec["restartPolicy"], sorted(RESTART_POLICIES)))
    found += label_causes(spec.get("nodeSelector"), f"{path}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        found += _toleration_causes(toleration, f"{path}.tolerations[{index}]")
    found += _gate_causes(spec, path)
    if (seconds := spec.get("activeDeadlineSeconds")) is not None and seconds < 1:
        found.append(
            failure.invalid(f"{path}.activeDeadlineSeconds", seconds, "must be between 1 and 2147483647, inclusive")
        )
    return found


def _container_causes(container: Object, path: str, names: set[str]) -> list[Cause]:
    found = []
    name = container.get("name", "")
    if not name:
        found.append(failure.required(f"{path}.name"))
    elif not is_label(name):
        found.append(failure.invalid(f"{path}.name", name, LABEL_RULE))
    elif name in names:
        found.append(failure.duplicate(f"{path}.name", name))
    names.add(name)
    if not container.get("image"):
        found.append(failure.required(f"{path}.image"))
    if container["imagePullPolicy"] not in PULL_POLICIES:
        found.append(failure.unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], PULL_POLICIES))
    return found + _resource_causes(container.get("resources") or {}, f"{path}.resources")


def _resource_causes(resources: Object, path: str) -> list[Cause]:
    found = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for key, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{key}[{name}]"
            if problem := qualified_name_problem(name):
                found.append(failure.invalid(f"{path}.{key}", name, problem))
            elif quantity.nanos(amount) < 0:
                found.append(failure.invalid(where, amount, "must be greater than or equal to 0"))
            elif is_extended(name) and quantity.nanos(amount) % 10**9:
                found.append(failure.invalid(where, amount, "must be an integer"))
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if is_extended(name):
                found.append(failure.required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
            continue
        if is_extended(name) and quantity.nanos(amount) != quantity.nanos(limit):
            found.append(failure.invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}"))
        elif quantity.nanos(amount) > quantity.nanos(limit):
            found.append(
                failure.invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
            )
    return found


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one, such as a device: whole numbers, never overcommitted."""
    return ("/" in name and not name.rpartition("/")[0].endswith("kubernetes.io")) or name.startswith("hugepages-")


def _toleration_causes(toleration: Object, path: str) -> list[Cause]:
    found = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
    if key and (problem := qualified_name_problem(key)):
        found.append(failure.invalid(f"{path}.key", key, problem))
    if not key and operator != "Exists":
        found.append(
            failure.invalid(
                f"{path}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        )
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        found.append(failure.unsupported(f"{path}.operator", operator, ["Equal", "Exists"]))
    elif operator == "Exists" and toleration.get("value"):
        found.append(failure.invalid(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'"))
    elif operator == "Equal" and (problem := label_value_problem(toleration.get("value", ""))):
        found.append(failure.invalid(f"{path}.value", toleration.get("value"), problem))
    effect = toleration.get("effect", "")
    if effect and effect not in EFFECTS:
        found.append(failure.unsupported(f"{path}.effect", effect, EFFECTS))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        found.append(
            failure.invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        )
    return found


def _gate_causes(spec: Object, path: str) -> list[Cause]:
    found = []
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        where = f"{path}.schedulingGates[{index}]"
        if name in seen:
            found.append(failure.duplicate(where, name))
        elif problem := qualified_name_problem(name):
            found.append(failure.invalid(where, name, problem))
        seen.add(name)
    if seen and spec.get("nodeName"):
        found.append(
            failure.forbidden_field(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")
        )
    return found


UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update_causes(new: Object, old: Object) -> list[Cause]:
    """Return mistakes in the change from `old` to `new`: most fields are fixed, but gates may be removed.

    A gated pod may also get node selectors and required node affinity.
    """
    if new["spec"] == old["spec"]:
        return []
    spec, before = new["spec"], old["spec"]
    allowed = copied(before)
    found: list[Cause] = []
    for key in ("containers", "initContainers"):
        mine, theirs = spec.get(key) or [], allowed.get(key) or []
        if len(mine) == len(theirs):
            for ours, kept in zip(mine, theirs, strict=True):
                kept["image"] = ours.get("image")
    found += _deadline_causes(spec, before, allowed)
    found += _toleration_step(spec, before, allowed)
    gated = bool(before.get("schedulingGates"))
    if gated or spec.get("schedulingGates"):
        found += _gate_step(spec, before, allowed)
    if gated:
        found += _aim_step(spec, before, allowed)
    if _without_empty(spec) != _without_empty(allowed):
        found.append(failure.forbidden_field("spec", UPDATE_RULE + f"; changed: {_changed(spec, allowed)}"))
    return found


def _without_empty(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if value not in (None, [], {})}


def _changed(spec: Object, allowed: Object) -> str:
    return ", ".join(f"spec.{key}" for key in sorted({*spec, *allowed}) if spec.get(key) != allowed.get(key))


def _take(key: str, spec: Object, allowed: Object) -> None:
    if key in spec:
        allowed[key] = spec[key]
    else:
        allowed.pop(key, None)


def _deadline_causes(spec: Object, before: Object, allowed: Object) -> list[Cause]:
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    _take("activeDeadlineSeconds", spec, allowed)
    if old is not None and new is None:
        return [
            failure.invalid("spec.activeDeadlineSeconds", new, "must not update from a positive integer to nil value")
        ]
    if old is not None and new is not None and new > old:
        return [
            failure.invalid("spec.activeDeadlineSeconds", new, f"must be less than or equal to previous value {old}")
        ]
    return []


def _toleration_step(spec: Object, before: Object, allowed: Object) -> list[Cause]:
    _take("tolerations", spec, allowed)
    present = [_without_seconds(t) for t in spec.get("tolerations") or ()]
    lost = [t for t in before.get("tolerations") or () if _without_seconds(t) not in present]
    if lost:
        return [
            failure.forbidden_field(
                "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
            )
        ]
    return []


def _without_seconds(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _gate_step(spec: Object, before: Object, allowed: Object) -> list[Cause]:
    _take("schedulingGates", spec, allowed)
    kept = {gate["name"] for gate in before.get("schedulingGates") or ()}
    return [
        failure.forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate["name"] not in kept
    ]


def _aim_step(spec: Object, before: Object, allowed: Object) -> list[Cause]:
    """Allow a gated pod to restrict its nodes: more node selectors, more required node affinity."""
    found = []
    old_selector, new_selector = before.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    if not old_selector.items() <= new_selector.items():
        found.append(
            failure.invalid("spec.nodeSelector", new_selector, "only additions are allowed (no mutations or deletions)")
        )
    _take("nodeSelector", spec, allowed)
    if spec.get("affinity") != before.get("affinity"):
        found += _affinity_step(spec.get("affinity") or {}, before.get("affinity") or {})
        _take("affinity", spec, allowed)
    return found


def _affinity_step(new: Object, old: Object) -> list[Cause]:
    path = "spec.affinity"
    for key in ("podAffinity", "podAntiAffinity"):
        if new.get(key) != old.get(key):
            return [failure.invalid(f"{path}.{key}", new.get(key), "field is immutable")]
    old_terms = _terms(old)
    if old_terms is None:
        return []
    new_terms = _terms(new)
    where = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    if new_terms is None or len(new_terms) != len(old_terms):
        return [
            failure.invalid(where, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        ]
    for index, (mine, theirs) in enumerate(zip(new_terms, old_terms, strict=True)):
        for key in ("matchExpressions", "matchFields"):
            if any(each not in (mine.get(key) or []) for each in theirs.get(key) or ()):
                return [
                    failure.invalid(f"{where}[{index}]", mine, "only additions are allowed (no mutations or deletions)")
                ]
    return []


def _terms(affinity: Object) -> list[Any] | None:
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else list(required.get("nodeSelectorTerms") or ())


def status_causes(new: Object, old: Object) -> list[Cause]:
    """Refuse a change of the phase of a finished pod."""
    before, after = (old.get("status") or {}).get("phase"), (new.get("status") or {}).get("phase")
    if before in FINISHED and after != before and after not in FINISHED:
        return [failure.forbidden_field("status.phase", f"may not be changed from {before}")]
    return []


def grace_period(pod: Object) -> int:
    """Return the grace period of a pod in seconds; 0 for a pod without a node or an ended pod."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in FINISHED:
        return 0
    return int(pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS))


POD = WriteStrategy(
    default=default,
    admit=admit,
    admit_update=tolerate_failing_nodes,
    prepare_create=prepare_create,
    validate=causes,
    validate_update=update_causes,
    validate_status=status_causes,
    grace_period=grace_period,
)
