"""Rules of nodes, namespaces, priority classes, workloads, services, ConfigMaps and Secrets, and event versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kqueue.kube.names import NAMESPACE_NAME_LABEL
from kqueue.sandbox import failure, pod_rules
from kqueue.sandbox.api import Object
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.metadata import label_value_problem, qualified_name_problem
from kqueue.sandbox.strategy import ClusterView, WriteStrategy

HIGHEST_USER_PRIORITY = 1_000_000_000
KUBERNETES = "kubernetes"


def default_namespace(namespace: Object) -> None:
    """Set the label with the namespace's name, for selectors."""
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {})[NAMESPACE_NAME_LABEL] = name


def begin_namespace(namespace: Object, _: ClusterView) -> None:
    """Set the finalizer that keeps a namespace until its contents are deleted."""
    default_namespace(namespace)
    spec = namespace.setdefault("spec", {})
    if KUBERNETES not in (spec.get("finalizers") or ()):
        spec["finalizers"] = [*(spec.get("finalizers") or ()), KUBERNETES]
    namespace["status"] = {"phase": "Active"}


def keep_namespace_finalizers(new: Object, old: Object) -> None:
    """Keep spec.finalizers, which only the finalize subresource may remove."""
    if "spec" in old:
        new.setdefault("spec", {})["finalizers"] = old["spec"].get("finalizers", [])


def namespace_ready_to_go(namespace: Object) -> bool:
    """Whether a terminating namespace has no finalizers left in its spec."""
    return not (namespace.get("spec") or {}).get("finalizers")


def default_node(node: Object) -> None:
    """Set a missing capacity to allocatable, and a missing allocatable to capacity."""
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def node_causes(node: Object) -> list[Cause]:
    """Return all mistakes in a node."""
    found = []
    seen = set()
    for index, taint in enumerate(node["spec"].get("taints") or ()):
        path = f"spec.taints[{index}]"
        if problem := qualified_name_problem(taint.get("key", "")):
            found.append(failure.invalid(f"{path}.key", taint.get("key", ""), problem))
        if problem := label_value_problem(taint.get("value", "")):
            found.append(failure.invalid(f"{path}.value", taint.get("value"), problem))
        if taint.get("effect") not in pod_rules.EFFECTS:
            found.append(failure.unsupported(f"{path}.effect", taint.get("effect", ""), pod_rules.EFFECTS))
        identity = (taint.get("key"), taint.get("effect"))
        if identity in seen:
            found.append(failure.duplicate(path, f"{taint.get('key')}:{taint.get('effect')}"))
        seen.add(identity)
    return found


def default_priority_class(priority: Object) -> None:
    """Set the default preemption policy, PreemptLowerPriority."""
    priority.setdefault("value", 0)
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


def priority_class_causes(priority: Object) -> list[Cause]:
    """Return all mistakes in a priority class."""
    found = []
    value, name = priority["value"], priority["metadata"].get("name", "")
    if value > HIGHEST_USER_PRIORITY and not name.startswith("system-"):
        found.append(
            failure.forbidden_field(
                "value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            )
        )
    if priority["preemptionPolicy"] not in ("PreemptLowerPriority", "Never"):
        found.append(
            failure.unsupported("preemptionPolicy", priority["preemptionPolicy"], ["Never", "PreemptLowerPriority"])
        )
    return found


def priority_class_step(new: Object, old: Object) -> list[Cause]:
    """Refuse changes of value and preemption policy."""
    return [
        failure.forbidden_field(key, "may not be changed in an update.")
        for key in ("value", "preemptionPolicy")
        if new.get(key) != old.get(key)
    ]


def default_workload(obj: Object) -> None:
    """Default Deployments, ReplicaSets and StatefulSets to one replica."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    pod_rules.default_template(spec.setdefault("template", {}))


def default_deployment(obj: Object) -> None:
    """Default a Deployment; it replaces a quarter of its pods at a time."""
    default_workload(obj)
    obj["spec"].setdefault("progressDeadlineSeconds", 600)
    strategy = obj["spec"].setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        for key in ("maxUnavailable", "maxSurge"):
            rolling.setdefault(key, "25%")


def default_stateful_set(obj: Object) -> None:
    """Default a StatefulSet; it creates and replaces its pods one after another, and retains volume claims."""
    default_workload(obj)
    spec = obj["spec"]
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for key in ("whenDeleted", "whenScaled"):
        retention.setdefault(key, "Retain")


def begin_deployment(obj: Object, _: ClusterView) -> None:
    """Set the empty status of a new Deployment."""
    obj["status"] = {}


def default_daemon_set(obj: Object) -> None:
    """Default a DaemonSet; it replaces its pods one by one."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    pod_rules.default_template(spec.setdefault("template", {}))


def workload_causes(obj: Object) -> list[Cause]:
    """Refuse an object without a selector, or with a selector that does not match its own template."""
    spec = obj["spec"]
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    found = []
    if not spec.get("selector"):
        found.append(failure.required("spec.selector"))
    elif not wanted.items() <= labels.items():
        found.append(
            failure.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        )
    return found + pod_rules.template_causes(spec["template"], "spec.template")


def selector_step(new: Object, old: Object) -> list[Cause]:
    """Refuse a change of the selector."""
    if new["spec"].get("selector") != old["spec"].get("selector"):
        return [failure.invalid("spec.selector", new["spec"].get("selector"), "field is immutable")]
    return []


def immutable_step(new: Object, old: Object) -> list[Cause]:
    """Refuse changes of immutable ConfigMaps and Secrets."""
    if not old.get("immutable"):
        return []
    words = "field is immutable when `immutable` is set"
    found = [] if new.get("immutable") else [failure.forbidden_field("immutable", words)]
    return found + [
        failure.forbidden_field(key, words) for key in ("data", "binaryData") if new.get(key) != old.get(key)
    ]


def merge_string_data(secret: Object) -> None:
    """Merge `stringData` into `data`."""
    import base64

    for key, text in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    secret.setdefault("type", "Opaque")


def default_service(service: Object) -> None:
    """Default a Service of type ClusterIP."""
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


_EVENT_FIELDS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
"""Field names in the core group and in events.k8s.io."""


def event_to_core(event: Object) -> Object:
    """Return an events.k8s.io/v1 Event in the stored form, a core Event."""
    return _renamed(event, "v1", {new: old for old, new in _EVENT_FIELDS})


def event_from_core(event: Object) -> Object:
    """Return a stored Event in the form of events.k8s.io/v1."""
    return _renamed(event, "events.k8s.io/v1", dict(_EVENT_FIELDS))


def _renamed(obj: Object, api_version: str, names: dict[str, str]) -> Object:
    out: dict[str, Any] = {names.get(key, key): value for key, value in obj.items()}
    out["apiVersion"] = api_version
    return out


NAMESPACE = WriteStrategy(
    default=default_namespace,
    prepare_create=begin_namespace,
    prepare_update=keep_namespace_finalizers,
    ready_to_go=namespace_ready_to_go,
)
NODE = WriteStrategy(default=default_node, validate=node_causes)
PRIORITY_CLASS = WriteStrategy(
    default=default_priority_class, validate=priority_class_causes, validate_update=priority_class_step
)
WORKLOAD = WriteStrategy(default=default_workload, validate=workload_causes, validate_update=selector_step)
DEPLOYMENT = replace(WORKLOAD, default=default_deployment, prepare_create=begin_deployment)
STATEFUL_SET = replace(WORKLOAD, default=default_stateful_set, prepare_create=begin_deployment)
DAEMON_SET = WriteStrategy(default=default_daemon_set, validate=workload_causes, validate_update=selector_step)
CONFIG_MAP = WriteStrategy(validate_update=immutable_step)
SECRET = WriteStrategy(default=merge_string_data, validate_update=immutable_step)
SERVICE = WriteStrategy(default=default_service)
