"""Decoding of objects from clients: checks types, drops or refuses unknown fields, and removes nulls."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Literal

from kqueue.sandbox import failure, quantity
from kqueue.sandbox.api import Object
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.shape import ANY, FieldShape, builtin

Validation = Literal["Ignore", "Warn", "Strict"]
"""Handling of fields that the kind does not have."""

_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_WORDS = {
    "string": "a string",
    "bytes": "base64 text",
    "bool": "true or false",
    "integer": "an integer",
    "number": "a number",
    "quantity": "a quantity such as 2, 500m or 4Gi",
    "time": "a time such as 2026-01-31T12:00:00Z",
    "micro_time": "a time such as 2026-01-31T12:00:00.000000Z",
    "int_or_string": "an integer or a string",
    "object": "an object",
    "map": "an object",
    "list": "a list",
}
METADATA = "meta.ObjectMeta"
_INT64 = range(-(2**63), 2**63)

Path = tuple[Any, ...]
"""A path as (parent path, key), built without copying; () at the root."""


def dotted(path: Path) -> str:
    """Return a path as text: `spec.containers[0].name`."""
    parts: list[str] = []
    while path:
        path, key = path
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(parts)).removeprefix(".")


class WrongTypeError(ValueError):
    """A field has a value of the wrong type."""

    def __init__(self, path: Path, wanted: str, found: Any) -> None:
        super().__init__(f"{dotted(path)} must be {wanted}, found {failure.shown(found)}")


def shape_of(kind: ServedKind) -> FieldShape:
    """Return the fields of a kind."""
    if kind.custom is not None:
        shape: FieldShape = kind.custom.shape
        return shape
    message = MESSAGES.get((kind.resource.group, kind.kind))
    return ANY if message is None else builtin(message)


def check(kind: ServedKind, obj: Object, validation: Validation, warnings: list[str]) -> None:
    """Remove fields from `obj`, in place, that the kind does not have.

    Raises:
        InvalidError: a value has the wrong type (built-in kinds only; schemas check custom kinds), or, with `Strict`, a
            field is unknown.
    """
    unknown: list[str] = []
    try:
        if kind.custom is None:
            walk(shape_of(kind), obj, (), unknown)
        else:
            walk(builtin(METADATA), obj["metadata"], ((), "metadata"), unknown)
            kind.custom.prune(obj, unknown)
    except WrongTypeError as error:
        raise failure.undecodable(kind.resource, kind.kind, str(error)) from error
    if unknown and validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise failure.undecodable(kind.resource, kind.kind, f"strict decoding error: {listed}")
    if unknown and validation == "Warn":
        warnings.extend(text for path in unknown if (text := f'unknown field "{path}"') not in warnings)


def walk(shape: FieldShape, value: Any, path: Path, unknown: list[str]) -> Any:
    """Return `value` in canonical form; change containers in place, and list removed fields in `unknown`.

    Raises:
        WrongTypeError: a value has the wrong type.
    """
    match shape.type:
        case "string" | "bytes":
            if type(value) is str:
                return value
        case "object":
            if type(value) is dict:
                return _object(shape, value, path, unknown)
        case "map":
            if type(value) is dict:
                return _map(shape, value, path, unknown)
        case "list":
            if type(value) is list:
                return _list(shape, value, path, unknown)
        case "any":
            return value
        case _:
            return _special(shape.type, value, path)
    raise WrongTypeError(path, _WORDS[shape.type], value)


def _object(shape: FieldShape, value: Object, path: Path, unknown: list[str]) -> Object:
    fields = shape.fields
    if fields is None:
        return value
    gone: list[str] = []
    for key, item in value.items():
        field = fields.get(key)
        if field is None:
            if not shape.open:
                gone.append(key)
                unknown.append(dotted((path, key)))
        elif item is None:
            gone.append(key)
        elif field.type == "string":
            if type(item) is not str:
                raise WrongTypeError((path, key), "a string", item)
        else:
            new = walk(field, item, (path, key), unknown)
            if new is not item:
                value[key] = new
            if not new and new in ({}, []) and field.type != "object":
                gone.append(key)
    for key in gone:
        del value[key]
    return value


def _map(shape: FieldShape, value: Object, path: Path, unknown: list[str]) -> Object:
    element = shape.element
    assert element is not None
    if element.type == "string":
        for key, item in value.items():
            if type(item) is not str:
                raise WrongTypeError((path, key), "a string", item)
        return value
    for key, item in value.items():
        value[key] = walk(element, item, (path, key), unknown)
    return value


def _list(shape: FieldShape, value: list[Any], path: Path, unknown: list[str]) -> list[Any]:
    element = shape.element
    assert element is not None
    for index, item in enumerate(value):
        value[index] = walk(element, item, (path, index), unknown)
    return value


def _special(type_: str, value: Any, path: Path) -> Any:
    kind = type(value)
    match type_:
        case "bool" if kind is bool:
            return value
        case "integer" if kind is int and value in _INT64:
            return value
        case "number" if kind is int or kind is float:
            return value
        case "int_or_string" if kind is int or kind is str:
            return value
        case "quantity" if kind is int or kind is str or kind is float:
            try:
                return quantity.canonical(str(value))
            except ValueError:
                raise WrongTypeError(path, _WORDS[type_], value) from None
        case "time" if kind is str:
            return value if _SECONDS.fullmatch(value) else _time(value, path, "seconds")
        case "micro_time" if kind is str:
            return _time(value, path, "microseconds")
        case _:
            raise WrongTypeError(path, _WORDS[type_], value)


def _time(value: str, path: Path, precision: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise WrongTypeError(path, _WORDS["time"], value) from None
    if moment.tzinfo is None:
        raise WrongTypeError(path, _WORDS["time"], value)
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


MESSAGES: dict[tuple[str, str], str] = {
    (group, kind): f"{package}.{kind}"
    for package, group, kinds in (
        (
            "core",
            "",
            "Namespace Node Pod PodTemplate Service ConfigMap Secret ServiceAccount Event Endpoints LimitRange "
            "ResourceQuota PersistentVolumeClaim PersistentVolume ReplicationController Binding",
        ),
        ("apps", "apps", "Deployment DaemonSet StatefulSet ReplicaSet ControllerRevision"),
        ("batch", "batch", "Job CronJob"),
        ("events", "events.k8s.io", "Event"),
        ("coordination", "coordination.k8s.io", "Lease"),
        (
            "admissionregistration",
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
        ),
        ("apiextensions", "apiextensions.k8s.io", "CustomResourceDefinition"),
        ("rbac", "rbac.authorization.k8s.io", "Role RoleBinding ClusterRole ClusterRoleBinding"),
        ("scheduling", "scheduling.k8s.io", "PriorityClass"),
        ("node", "node.k8s.io", "RuntimeClass"),
        ("discovery", "discovery.k8s.io", "EndpointSlice"),
        ("policy", "policy", "PodDisruptionBudget Eviction"),
        ("networking", "networking.k8s.io", "Ingress IngressClass NetworkPolicy"),
        ("storage", "storage.k8s.io", "StorageClass"),
        ("resource", "resource.k8s.io", "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice"),
        ("authentication", "authentication.k8s.io", "TokenReview TokenRequest SelfSubjectReview"),
        (
            "authorization",
            "authorization.k8s.io",
            "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview LocalSubjectAccessReview",
        ),
    )
    for kind in kinds.split()
}
"""The built-in message of each group and kind."""
