"""Compute the shape of a pod, which determines its role in a group, and its resources.

The hash is byte-exact with the compatible system's, so that hand-written admissions can name its pod sets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kqueue.core.pod_requests import ContainerRequests, pod_requests
from kqueue.core.quantity import parse_quantity, read_quantity
from kqueue.jobs.fields import mapping, objects
from kqueue.kube.quantity import canonical

HASH_LENGTH = 8
_SHORT = 32
"""The largest length of a quantity that is cached: longer ones are not expected."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class _Type:
    """An API type: its fields in their order.  `kept` fields are written even when empty (pointers in the API's own
    types).
    """

    def __init__(self, fields: Mapping[str, _Type | None], kept: Sequence[str] = ()) -> None:
        self.fields, self.kept = fields, frozenset(kept)


def _plain(*fields: str, kept: Sequence[str] = ()) -> _Type:
    return _Type(dict.fromkeys(fields), kept)


_REQUIREMENT = _plain("key", "operator", "values")
_LABELS = _Type({"matchLabels": None, "matchExpressions": _REQUIREMENT})
_NODE_TERM = _Type({"matchExpressions": _REQUIREMENT, "matchFields": _REQUIREMENT})
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_POD_TERM = _Type(
    {
        "labelSelector": _LABELS,
        "namespaces": None,
        "topologyKey": None,
        "namespaceSelector": _LABELS,
        "matchLabelKeys": None,
        "mismatchLabelKeys": None,
    },
    kept=("labelSelector", "topologyKey", "namespaceSelector"),
)
_POD_AFFINITY = _Type(
    {
        _REQUIRED: _POD_TERM,
        _PREFERRED: _Type({"weight": None, "podAffinityTerm": _POD_TERM}, kept=("weight", "podAffinityTerm")),
    }
)
_AFFINITY = _Type(
    {
        "nodeAffinity": _Type(
            {
                _REQUIRED: _Type({"nodeSelectorTerms": _NODE_TERM}, kept=("nodeSelectorTerms",)),
                _PREFERRED: _Type({"weight": None, "preference": _NODE_TERM}, kept=("weight", "preference")),
            },
            kept=(_REQUIRED,),
        ),
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    },
    kept=("nodeAffinity", "podAffinity", "podAntiAffinity"),
)
_TOLERATION = _plain("key", "operator", "value", "effect", "tolerationSeconds", kept=("tolerationSeconds",))
_PORT = _plain("name", "hostPort", "containerPort", "protocol", "hostIP", kept=("containerPort",))
_SPREAD = _Type(
    {
        "maxSkew": None,
        "topologyKey": None,
        "whenUnsatisfiable": None,
        "labelSelector": _LABELS,
        "minDomains": None,
        "nodeAffinityPolicy": None,
        "nodeTaintsPolicy": None,
        "matchLabelKeys": None,
    },
    kept=("maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "minDomains"),
)
_CLAIM = _plain("name", "resourceClaimName", "resourceClaimTemplateName", kept=("name",))


def role_hash(spec: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> str:
    """Return eight hex digits that are equal for pods of one role.

    Image, command, environment, limits, labels and annotations do not matter; requests, ports, placement rules,
    priority and claims do.  `spec` is the pod's spec as stored by the API server.  `more` has further properties that
    distinguish the role; without it the hash is that of the compatible system.
    """
    hashed = shape_bytes(spec) + (json.dumps(more, sort_keys=True).encode() if more else b"")
    return hashlib.sha256(hashed).hexdigest()[:HASH_LENGTH]


def shape_bytes(spec: Mapping[str, Any]) -> bytes:
    """Return the hashed bytes: JSON without white space, in the compatible system's order of keys."""
    return _written({"spec": shape(spec)}).encode()


def shape(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hashed parts of a pod's spec, sorted; absent parts are None."""
    found: dict[str, Any] = {
        "affinity": _struct(mapping(spec, "affinity"), _AFFINITY) if spec.get("affinity") is not None else None,
        "containers": _containers(spec, "containers"),
        "initContainers": _containers(spec, "initContainers"),
        "nodeSelector": _sorted(mapping(spec, "nodeSelector")),
        "overhead": _amounts(mapping(spec, "overhead")),
        "priority": spec.get("priority"),
        "resourceClaims": _list(spec, "resourceClaims", _CLAIM),
        "runtimeClassName": spec.get("runtimeClassName"),
        "tolerations": _list(spec, "tolerations", _TOLERATION),
        "topologySpreadConstraints": _list(spec, "topologySpreadConstraints", _SPREAD),
    }
    if mapping(spec, "resources"):
        found["resources"] = {"requests": _amounts(mapping(spec, "resources", "requests"))}
    return dict(sorted(found.items()))


def _containers(spec: Mapping[str, Any], part: str) -> list[Any] | None:
    return [
        {
            "ports": _list(container, "ports", _PORT),
            "resources": {"requests": _amounts(mapping(container, "resources", "requests"))},
        }
        for container in objects(spec, part)
    ] or None


def _list(owner: Mapping[str, Any], key: str, kind: _Type) -> list[Any] | None:
    return [_struct(item, kind) for item in objects(owner, key)] or None


def _struct(value: Mapping[str, Any], kind: _Type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in kind.fields.items():
        part = value.get(name)
        if part is None:
            continue
        if inner is not None:
            part = (
                [_struct(item, inner) for item in part if isinstance(item, Mapping)]
                if isinstance(part, list)
                else _struct(mapping(part), inner)
            )
        elif isinstance(part, Mapping):
            part = _sorted(part)
        if name in kind.kept or part not in ("", 0, [], {}, None, False):
            found[name] = part
    return found


def _sorted(entries: Mapping[str, Any]) -> dict[str, Any] | None:
    return dict(sorted(entries.items())) or None


def _amounts(entries: Mapping[str, Any]) -> dict[str, str] | None:
    return {name: canonical_quantity(entries[name]) for name in sorted(entries)} or None


def canonical_quantity(written: object) -> str:
    """Return a quantity as Kubernetes writes it: `1000m` is `1`, `1024Mi` is `1Gi`, `0.5` is `500m`.

    Other text is returned unchanged.
    """
    if isinstance(written, str) and len(written) <= _SHORT:
        return _canonical_short(written)
    return _canonical(written)


@lru_cache(maxsize=4096)
def _canonical_short(written: str) -> str:
    """Return `_canonical`, cached, because pods of one cluster request the same few amounts."""
    return _canonical(written)


def _canonical(written: object) -> str:
    try:
        return canonical(read_quantity(written))  # type: ignore[arg-type]  # other types are refused there
    except ValueError:
        return str(written)


def _written(value: object) -> str:
    """Return JSON as the compatible system's language writes it: it escapes five more characters."""
    text = _ENCODER.encode(value)
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text


# --- requests of a pod


def exceeds(spec: Mapping[str, Any], template: Mapping[str, Any], paid: Mapping[str, int] | None = None) -> list[str]:
    """Return the resources of which a pod requests more than a template, sorted; empty: the template's quota covers the
    pod.

    `paid`: the admitted quota per pod; LimitRanges and runtime classes add requests to pods that no template has.
    """
    if _resources(spec) == _resources(template):
        return []
    has, more = _total(template), paid or {}
    return sorted(
        resource
        for resource, amount in _total(spec).items()
        if amount > max(has.get(resource, 0), more.get(resource, 0))
    )


def _resources(spec: Mapping[str, Any]) -> list[Any]:
    parts = [(c.get("restartPolicy"), c.get("resources") or {}) for c in objects(spec, "initContainers")]
    return [*parts, *(c.get("resources") or {} for c in objects(spec, "containers")), spec.get("resources") or {},
            spec.get("overhead") or {}]  # fmt: skip


def _total(spec: Mapping[str, Any]) -> dict[str, int]:
    level = mapping(spec, "resources")
    return pod_requests(
        [_asked(container) for container in objects(spec, "containers")],
        [_asked(container) for container in objects(spec, "initContainers")],
        pod_level=ContainerRequests(_read(level, "requests"), _read(level, "limits")) if level else None,
        overhead=_read(spec, "overhead"),
    )


def _asked(container: Mapping[str, Any]) -> ContainerRequests:
    resources = mapping(container, "resources")
    sidecar = container.get("restartPolicy") == "Always"
    return ContainerRequests(_read(resources, "requests"), _read(resources, "limits"), sidecar=sidecar)


def _read(owner: Mapping[str, Any], part: str) -> dict[str, int]:
    """Return amounts as integers, without entries that are no quantity."""
    found: dict[str, int] = {}
    for resource, written in mapping(owner, part).items():
        try:
            found[resource] = parse_quantity(written, resource)
        except ValueError:
            continue
    return found
