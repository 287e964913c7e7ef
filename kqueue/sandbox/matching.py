"""Kubernetes' rules for pods on nodes: selector, required affinity, taints, requests.

All are plain functions of JSON.  Malformed rules match nothing, as in the scheduler.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kqueue.kube.requirement import holds
from kqueue.kube.taints import Taint, Toleration
from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import Object


def node_shape(pod: Object) -> str:
    """Return a text that is equal for pods with equal rules about nodes."""
    spec = pod["spec"]
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return json.dumps([spec.get("nodeSelector") or {}, affinity, spec.get("tolerations") or []], sort_keys=True)


def required_terms(pod: Object) -> list[Object] | None:
    """Return the required node selector terms, of which one must match; None if the pod has none."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return None if affinity is None else list(affinity.get("nodeSelectorTerms") or [])


def selects(pod: Object, name: str, labels: Mapping[str, str]) -> bool:
    """Whether node selector and required node affinity match a node of this name and these labels."""
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = required_terms(pod)
    return terms is None or any(_term_matches(term, name, labels) for term in terms)


def named_node(pod: Object) -> str | None:
    """Return the node that the pod's affinity names by `metadata.name`, as in pods of DaemonSets, or None."""
    terms = required_terms(pod)
    if terms is None or len(terms) != 1:
        return None
    for rule in terms[0].get("matchFields") or ():
        values = rule.get("values") or []
        if rule.get("key") == "metadata.name" and rule.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return None


def _term_matches(term: Object, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False  # an empty term matches no node
    return all(_rule_matches(rule, labels) for rule in expressions) and all(
        _rule_matches(rule, {"metadata.name": name}) for rule in fields
    )


def _rule_matches(rule: Object, labels: Mapping[str, str]) -> bool:
    return holds(rule.get("operator") or "", rule.get("values") or (), labels.get(rule.get("key", "")))


def taint_of(taint: Object) -> Taint:
    """Return a node's taint as a value."""
    return Taint(taint.get("key") or "", taint.get("value") or "", taint.get("effect") or "")


def taint_json(taint: Taint) -> Object:
    """Return a taint as JSON of a Node."""
    return {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}


def taints_of(node: Object) -> tuple[Taint, ...]:
    """Return all taints of a node."""
    return tuple(map(taint_of, (node.get("spec") or {}).get("taints") or ()))


def toleration_of(toleration: Object) -> Toleration:
    """Return a pod's toleration as a value.  The sandbox does not compare numbers: Gt and Lt tolerate nothing."""
    operator = toleration.get("operator") or "Equal"
    return Toleration(
        toleration.get("key") or "",
        operator if operator in ("Equal", "Exists") else "none",
        toleration.get("value") or "",
        toleration.get("effect") or "",
    )


def tolerations_of(pod: Object) -> tuple[Toleration, ...]:
    """Return all tolerations of a pod."""
    return tuple(map(toleration_of, pod["spec"].get("tolerations") or ()))


def pod_requests(pod: Object) -> dict[str, int]:
    """Return the pod's requests: cpu in milli, the rest in base units, and `pods: 1`.

    The result is the larger one of the sum of containers and sidecars and the peak of init containers, which run one by
    one, plus overhead; pod-level requests replace the sum of the containers.
    """
    spec = pod["spec"]
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(running, own)
            own = {}
        _raise_to(peak, {name: running.get(name, 0) + own.get(name, 0) for name in {*running, *own}})
    for container in spec.get("containers") or ():
        _add(running, _container_requests(container))
    _raise_to(running, peak)
    running.update(_container_requests(spec))
    _add(running, _amounts(spec.get("overhead") or {}))
    running["pods"] = 1
    return running


def _container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(written: Mapping[str, Any]) -> dict[str, int]:
    return {name: amount(quantity, name) for name, quantity in written.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, quantity in more.items():
        total[name] = total.get(name, 0) + quantity


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, quantity in floor.items():
        total[name] = max(total.get(name, 0), quantity)
