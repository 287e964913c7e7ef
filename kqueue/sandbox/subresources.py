"""Special behaviour of some kinds: bindings, evictions, tokens, namespaces, and the objects of a new cluster."""

from __future__ import annotations

from kqueue.kube.conditions import is_true
from kqueue.kube.names import CONDITION_READY
from kqueue.sandbox import core_rules, decoding, failure, metadata, selectors
from kqueue.sandbox.api import NAMESPACES, PODS, GroupVersionResource, Object
from kqueue.sandbox.crd import CRDS
from kqueue.sandbox.crd_rules import CLEANUP
from kqueue.sandbox.objects import Objects, WriteOptions
from kqueue.sandbox.pod_rules import FINISHED, PRIORITY_CLASSES
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.shape import builtin
from kqueue.sandbox.store import copied
from kqueue.sandbox.strategy import ClusterView

PROTECTED_NAMESPACES = frozenset(("default", "kube-system", "kube-public"))
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
TOKEN_SECONDS = 3600
STREAMS = {
    "log": "are no logs",
    "exec": "is nothing to execute in",
    "attach": "is nothing to attach to",
    "portforward": "is no port to forward to",
}


def born_namespace(name: str, around: ClusterView) -> Object:
    """Return one of the namespaces of a new cluster."""
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": _meta(name, around)}
    core_rules.begin_namespace(namespace, around)
    return namespace


def born_objects(around: ClusterView) -> list[tuple[GroupVersionResource, Object]]:
    """Return the other objects of a new cluster."""
    return [
        (
            PRIORITY_CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {**_meta(name, around), "generation": 1},
                "value": value,
                "preemptionPolicy": "PreemptLowerPriority",
                "description": "Used for pods that must not be moved from their node or cluster.",
            },
        )
        for name, value in SYSTEM_CLASSES.items()
    ]


def _meta(name: str, around: ClusterView) -> Object:
    return {"name": name, "uid": metadata.new_uid(around.chance), "creationTimestamp": around.now_text()}


def check_deletable(kind: ServedKind, obj: Object) -> None:
    """Raise ForbiddenError for objects that a cluster needs."""
    name = obj["metadata"]["name"]
    if kind.resource == NAMESPACES and name in PROTECTED_NAMESPACES:
        raise failure.forbidden(NAMESPACES, name, "this namespace may not be deleted")
    if kind.resource == PRIORITY_CLASSES and name in SYSTEM_CLASSES:
        raise failure.forbidden(PRIORITY_CLASSES, name, "this is a system priority class and cannot be deleted")


def on_marked(kind: ServedKind, obj: Object) -> None:
    """Change fields outside of metadata when an object is marked for deletion."""
    if kind.resource == NAMESPACES:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    if kind.resource == CRDS:
        obj["metadata"]["finalizers"] = [*(obj["metadata"].get("finalizers") or ()), CLEANUP]


async def create(
    api: Objects,
    kind: ServedKind,
    name: str,
    namespace: str | None,
    subresource: str,
    body: Object,
    options: WriteOptions,
) -> Object:
    """Handle a POST to a subresource.  Raises NotFoundError for an unknown one."""
    if subresource not in kind.subresources:
        raise failure.unknown_path()
    match subresource:
        case "binding":
            return await _bind(api, kind, name, namespace or "", body, options)
        case "eviction":
            return await _evict(api, kind, name, namespace or "", body, options)
        case "token":
            api.record(kind, name, namespace)
            return _token(api, body)
        case _:
            raise failure.wrong_method()


def refuse_stream(api: Objects, kind: ServedKind, name: str, namespace: str, subresource: str) -> None:
    """Raise InvalidError for a request that needs a process in a pod, or NotFoundError if the pod does not exist."""
    if subresource in STREAMS:
        api.record(kind, name, namespace)
        raise failure.bad_request(f"pods of the sandbox run nothing, so there {STREAMS[subresource]}")


async def _bind(
    api: Objects, kind: ServedKind, name: str, namespace: str, binding: Object, options: WriteOptions
) -> Object:
    _decoded("core.Binding", binding)
    node = (binding.get("target") or {}).get("name")
    if not node:
        problem = failure.required("target.name")
        raise failure.invalid_object("", "Binding", name, [problem])

    def bound(old: Object) -> Object:
        if old["metadata"].get("deletionTimestamp"):
            raise failure.conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if present := old["spec"].get("nodeName"):
            raise failure.conflict(PODS, name, f'pod {name} is already assigned to node "{present}"')
        if old["spec"].get("schedulingGates"):
            raise failure.conflict(PODS, name, f"pod {name} has non-empty .spec.schedulingGates")
        new = copied(old)
        new["spec"]["nodeName"] = node
        for key in ("labels", "annotations"):
            if added := (binding.get("metadata") or {}).get(key):
                new["metadata"][key] = {**(new["metadata"].get(key) or {}), **added}
        _mark_scheduled(new, api.now_text())
        return new

    await api.rewrite(kind, name, namespace, bound, "binding", options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _mark_scheduled(pod: Object, now: str) -> None:
    status = pod.setdefault("status", {})
    others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = [*others, condition]


async def _evict(
    api: Objects, kind: ServedKind, name: str, namespace: str, eviction: Object, options: WriteOptions
) -> Object:
    _decoded("policy.Eviction", eviction)
    pod = api.record(kind, name, namespace).obj
    wanted = eviction.get("deleteOptions") or {}
    options.dry_run = options.dry_run or wanted.get("dryRun") == ["All"]
    blocking = None if _is_idle(pod) else _blocking_budget(api, pod)
    if blocking is not None:
        error = failure.BudgetError(
            "Cannot evict pod as it would violate the pod's disruption budget.", status=429, reason="TooManyRequests",
            retry_after=10,
        )  # fmt: skip
        text = f"The disruption budget {blocking} does not allow it"
        error.details = failure.Details(causes=(failure.Cause("DisruptionBudget", "", text),))
        raise error
    await api.delete_owned(
        kind, name, namespace, propagation=wanted.get("propagationPolicy") or "Background",
        grace_period_seconds=wanted.get("gracePeriodSeconds"), options=options,
    )  # fmt: skip
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _is_idle(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Pending" or phase in FINISHED or bool(pod["metadata"].get("deletionTimestamp"))


def _blocking_budget(api: Objects, pod: Object) -> str | None:
    """Return the name of a disruption budget that forbids the eviction of the pod, or None."""
    namespace = pod["metadata"]["namespace"]
    for budget in api.every(BUDGETS, namespace):
        given = budget["spec"].get("selector")
        if given is None:
            continue  # an absent selector selects no pods, an empty one all
        selector = selectors.from_object(given)
        if not selector.selects(pod["metadata"].get("labels")):
            continue
        pods = [p for p in api.every(PODS, namespace) if selector.selects(p["metadata"].get("labels"))]
        healthy = sum(is_true(pod, CONDITION_READY) for pod in pods)
        if is_true(pod, CONDITION_READY) and healthy - 1 < _healthy_wanted(budget["spec"], len(pods)):
            return str(budget["metadata"]["name"])
    return None


def _healthy_wanted(spec: Object, pods: int) -> int:
    if "minAvailable" in spec:
        return _share(spec["minAvailable"], pods)
    return pods - _share(spec.get("maxUnavailable", 0), pods)


def _share(amount: int | str, whole: int) -> int:
    """Return a number, or a percentage of `whole`, rounded up."""
    if isinstance(amount, str) and amount.endswith("%"):
        return -(-int(amount[:-1]) * whole // 100)
    return int(amount)


def _token(api: Objects, body: Object) -> Object:
    _decoded("authentication.TokenRequest", body)
    return {
        **body,
        "status": {"token": f"sandbox-{metadata.new_uid(api.chance)}", "expirationTimestamp": api.now_text()},
    }


def _decoded(message: str, body: Object) -> None:
    try:
        decoding.walk(builtin(message), body, (), [])
    except decoding.WrongTypeError as error:
        raise failure.bad_request(str(error)) from error
