"""The columns of built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from kqueue.sandbox.api import Object
from kqueue.sandbox.table import AGE, NAME, Moment, TableColumn, age_text, duration_text

ROLE_LABEL = "node-role.kubernetes.io/"
NONE = "<none>"


def at(*keys: str, missing: Any = NONE) -> Callable[[Object, Moment], Any]:
    """Return a cell with the value under these keys."""

    def cell(obj: Object, _: Moment) -> Any:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return missing if value is None or value == "" else value

    return cell


def text(name: str, *keys: str, missing: Any = NONE, priority: int = 0) -> TableColumn:
    """Return a column of text under these keys."""
    return TableColumn(name, at(*keys, missing=missing), priority=priority)


def number(name: str, *keys: str, kind: str = "integer") -> TableColumn:
    """Return a column of numbers under these keys, 0 when missing; some kinds declare it a string."""
    return TableColumn(name, at(*keys, missing=0), type=kind)


def count(name: str, key: str, kind: str = "string") -> TableColumn:
    """Return a column with the number of members under `key`."""
    return TableColumn(name, lambda obj, _: len(obj.get(key) or ()), type=kind)


def _pod_ready(obj: Object, _: Moment) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(obj['spec'].get('containers') or ())}"


def _pod_status(obj: Object, _: Moment) -> str:
    status = obj.get("status") or {}
    shown = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            shown = "SchedulingGated"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if (state.get(kind) or {}).get("reason"):
                shown = state[kind]["reason"]
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(shown)


def _pod_restarts(obj: Object, _: Moment) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    return str(sum(s.get("restartCount", 0) for s in statuses))


def _readiness_gates(obj: Object, _: Moment) -> str:
    gates = obj["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    true = {c["type"] for c in (obj.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    return f"{sum(g.get('conditionType') in true for g in gates)}/{len(gates)}"


def _node_status(obj: Object, _: Moment) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    ready = next((c for c in conditions if c.get("type") == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return shown + (",SchedulingDisabled" if (obj.get("spec") or {}).get("unschedulable") else "")


def _node_roles(obj: Object, _: Moment) -> str:
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(ROLE_LABEL) for key in labels if key.startswith(ROLE_LABEL))
    return ",".join(roles) or NONE


def _node_address(kind: str) -> Callable[[Object, Moment], str]:
    def cell(obj: Object, _: Moment) -> str:
        addresses = (obj.get("status") or {}).get("addresses") or ()
        return next((str(a["address"]) for a in addresses if a.get("type") == kind), NONE)

    return cell


def _job_status(obj: Object, _: Moment) -> str:
    status = obj.get("status") or {}
    true = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
    for kind, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if kind in true:
            return shown
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind, shown in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if kind in true:
            return shown
    return "Running"


def _job_completions(obj: Object, _: Moment) -> str:
    spec, done = obj["spec"], (obj.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism", 1)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Object, moment: Moment) -> str:
    status = obj.get("status") or {}
    begun, ended = status.get("startTime"), status.get("completionTime")
    if not begun:
        return ""
    if not ended:
        return age_text(begun, moment.now)
    return duration_text(int((datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()))


def _served_by(obj: Object, _: Moment) -> str:
    service = obj["spec"].get("service")
    return f"{service['namespace']}/{service['name']}" if service else "Local"


def _available(obj: Object, _: Moment) -> str:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Available":
            shown = str(condition.get("status"))
            return shown if shown == "True" else f"{shown} ({condition.get('reason')})"
    return "Unknown"


def _images(*path: str) -> Callable[[Object, Moment], str]:
    return _of_containers(path, "image")


def _names(*path: str) -> Callable[[Object, Moment], str]:
    return _of_containers(path, "name")


def _of_containers(path: tuple[str, ...], key: str) -> Callable[[Object, Moment], str]:
    def cell(obj: Object, _: Moment) -> str:
        spec: Any = obj
        for step in path:
            spec = (spec or {}).get(step)
        return ",".join(str(c.get(key, "")) for c in (spec or {}).get("containers") or ())

    return cell


def selector_text(selector: Object | None) -> str:
    """Return a label selector in the format of `kubectl`."""
    if not selector:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or ():
        values = ",".join(sorted(each.get("values") or ()))
        operator = {"In": f" in ({values})", "NotIn": f" notin ({values})", "Exists": ""}.get(each["operator"], "")
        parts.append(("!" if each["operator"] == "DoesNotExist" else "") + each["key"] + operator)
    return ",".join(parts) or NONE


def _ports(obj: Object, _: Moment) -> str:
    ports = (obj.get("spec") or {}).get("ports") or ()
    return ",".join(f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in ports) or NONE


def _ratio(done: str, wanted: str) -> Callable[[Object, Moment], str]:
    return lambda obj, _: f"{(obj.get('status') or {}).get(done, 0)}/{(obj.get('spec') or {}).get(wanted, 0)}"


def _event_age(obj: Object, moment: Moment) -> str:
    series = obj.get("series") or {}
    keys = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime")
    seen = series.get("lastObservedTime") or next((obj[key] for key in keys if obj.get(key)), None)
    return age_text(seen or obj["metadata"].get("creationTimestamp"), moment.now)


def _event_object(key: str) -> Callable[[Object, Moment], str]:
    def cell(obj: Object, _: Moment) -> str:
        about = obj.get(key) or {}
        return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"

    return cell


def _role(obj: Object, _: Moment) -> str:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(kind: str) -> Callable[[Object, Moment], str]:
    def cell(obj: Object, _: Moment) -> str:
        found = [each for each in obj.get("subjects") or () if each.get("kind") == kind]
        in_namespace = kind == "ServiceAccount"
        return ", ".join(f"{s.get('namespace', '')}/{s['name']}" if in_namespace else s["name"] for s in found)

    return cell


def _suspend(obj: Object, _: Moment) -> str:
    return str(bool((obj.get("spec") or {}).get("suspend")))


def _last_schedule(obj: Object, moment: Moment) -> str:
    seen = (obj.get("status") or {}).get("lastScheduleTime")
    return age_text(seen, moment.now) if seen else NONE


def _selector_at(*keys: str) -> Callable[[Object, Moment], str]:
    """Return a cell with the label selector under these keys."""
    found = at(*keys, missing=None)
    return lambda obj, moment: selector_text(found(obj, moment))


def _labels_at(*keys: str) -> Callable[[Object, Moment], str]:
    """Return a cell with the map of labels under these keys, as a selector."""
    found = at(*keys, missing=None)
    return lambda obj, moment: selector_text({"matchLabels": found(obj, moment)})


def _used(limits: bool) -> Callable[[Object, Moment], str]:
    """Return a cell with usage and quota of limits, or of all other resources."""

    def cell(obj: Object, _: Moment) -> str:
        status = obj.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits") == limits]
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return cell


def _event_columns(about: str, message: str, source: Callable[[Object, Moment], Any]) -> tuple[TableColumn, ...]:
    return (
        TableColumn("Last Seen", _event_age),
        text("Type", "type"),
        text("Reason", "reason"),
        TableColumn("Object", _event_object(about)),
        TableColumn("Source", source, priority=1),
        text("Message", message),
        TableColumn("Name", at("metadata", "name"), format="name", priority=1),
    )


TEMPLATE = ("spec", "template", "spec")
ON_PODS = (
    TableColumn("Containers", _names(*TEMPLATE), priority=1),
    TableColumn("Images", _images(*TEMPLATE), priority=1),
)
SELECTED = (*ON_PODS, TableColumn("Selector", _selector_at("spec", "selector"), priority=1))
CREATED_AT = (NAME, TableColumn("Created At", at("metadata", "creationTimestamp"), type="date"))
NAMESPACES = (NAME, text("Status", "status", "phase"), AGE)
NODES = (
    NAME,
    TableColumn("Status", _node_status),
    TableColumn("Roles", _node_roles),
    AGE,
    text("Version", "status", "nodeInfo", "kubeletVersion", missing=""),
    TableColumn("Internal-IP", _node_address("InternalIP"), priority=1),
    TableColumn("External-IP", _node_address("ExternalIP"), priority=1),
    text("OS-Image", "status", "nodeInfo", "osImage", missing="<unknown>", priority=1),
    text("Kernel-Version", "status", "nodeInfo", "kernelVersion", missing="<unknown>", priority=1),
    text("Container-Runtime", "status", "nodeInfo", "containerRuntimeVersion", missing="<unknown>", priority=1),
)
PODS = (
    NAME,
    TableColumn("Ready", _pod_ready),
    TableColumn("Status", _pod_status),
    TableColumn("Restarts", _pod_restarts),
    AGE,
    text("IP", "status", "podIP", priority=1),
    text("Node", "spec", "nodeName", priority=1),
    text("Nominated Node", "status", "nominatedNodeName", priority=1),
    TableColumn("Readiness Gates", _readiness_gates, priority=1),
)
SERVICES = (
    NAME,
    text("Type", "spec", "type"),
    text("Cluster-IP", "spec", "clusterIP"),
    text("External-IP", "spec", "externalName"),
    TableColumn("Port(s)", _ports),
    AGE,
    TableColumn("Selector", _labels_at("spec", "selector"), priority=1),
)
CONFIG_MAPS = (NAME, count("Data", "data"), AGE)
SECRETS = (NAME, text("Type", "type"), count("Data", "data"), AGE)
EVENTS = _event_columns("involvedObject", "message", at("source", "component", missing=""))
NEW_EVENTS = _event_columns("regarding", "note", at("reportingController", missing=""))
DEPLOYMENTS = (
    NAME,
    TableColumn("Ready", _ratio("readyReplicas", "replicas")),
    number("Up-to-date", "status", "updatedReplicas", kind="string"),
    number("Available", "status", "availableReplicas", kind="string"),
    AGE,
    *SELECTED,
)
DAEMON_SETS = (
    NAME,
    number("Desired", "status", "desiredNumberScheduled"),
    number("Current", "status", "currentNumberScheduled"),
    number("Ready", "status", "numberReady"),
    number("Up-to-date", "status", "updatedNumberScheduled"),
    number("Available", "status", "numberAvailable"),
    TableColumn("Node Selector", _labels_at(*TEMPLATE, "nodeSelector")),
    AGE,
    *SELECTED,
)
STATEFUL_SETS = (NAME, TableColumn("Ready", _ratio("readyReplicas", "replicas")), AGE, *ON_PODS)
REPLICA_SETS = (
    NAME,
    number("Desired", "spec", "replicas"),
    number("Current", "status", "replicas"),
    number("Ready", "status", "readyReplicas"),
    AGE,
    *SELECTED,
)
JOBS = (
    NAME,
    TableColumn("Status", _job_status),
    TableColumn("Completions", _job_completions),
    TableColumn("Duration", _job_duration),
    AGE,
    *SELECTED,
)
CRON_JOBS = (
    NAME,
    text("Schedule", "spec", "schedule"),
    text("Timezone", "spec", "timeZone"),
    TableColumn("Suspend", _suspend, type="boolean"),
    TableColumn("Active", lambda obj, _: len((obj.get("status") or {}).get("active") or ()), type="integer"),
    TableColumn("Last Schedule", _last_schedule),
    AGE,
    TableColumn("Containers", _names("spec", "jobTemplate", *TEMPLATE), priority=1),
    TableColumn("Images", _images("spec", "jobTemplate", *TEMPLATE), priority=1),
    TableColumn("Selector", _selector_at("spec", "jobTemplate", "spec", "selector"), priority=1),
)
LEASES = (NAME, text("Holder", "spec", "holderIdentity", missing=""), AGE)
WEBHOOKS = (NAME, count("Webhooks", "webhooks", kind="integer"), AGE)
API_SERVICES = (NAME, TableColumn("Service", _served_by), TableColumn("Available", _available), AGE)
CRDS = CREATED_AT
ROLE_BINDINGS = (
    NAME,
    TableColumn("Role", _role),
    AGE,
    TableColumn("Users", _subjects("User"), priority=1),
    TableColumn("Groups", _subjects("Group"), priority=1),
    TableColumn("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
)
PRIORITY_CLASSES = (
    NAME,
    number("Value", "value"),
    TableColumn("Global-Default", lambda obj, _: bool(obj.get("globalDefault")), type="boolean"),
    AGE,
    text("PreemptionPolicy", "preemptionPolicy"),
)
RESOURCE_QUOTAS = (NAME, TableColumn("Request", _used(limits=False)), TableColumn("Limit", _used(limits=True)), AGE)
DISRUPTION_BUDGETS = (
    NAME,
    TableColumn("Min Available", lambda obj, _: str((obj.get("spec") or {}).get("minAvailable", "N/A"))),
    TableColumn("Max Unavailable", lambda obj, _: str((obj.get("spec") or {}).get("maxUnavailable", "N/A"))),
    number("Allowed Disruptions", "status", "disruptionsAllowed"),
    AGE,
)
NETWORK_POLICIES = (NAME, TableColumn("Pod-Selector", _selector_at("spec", "podSelector")), AGE)
STORAGE_CLASSES = (
    NAME,
    text("Provisioner", "provisioner"),
    text("ReclaimPolicy", "reclaimPolicy", missing="Delete"),
    text("VolumeBindingMode", "volumeBindingMode", missing="Immediate"),
    TableColumn("AllowVolumeExpansion", lambda obj, _: str(bool(obj.get("allowVolumeExpansion"))).lower()),
    AGE,
)
RUNTIME_CLASSES = (NAME, text("Handler", "handler"), AGE)
