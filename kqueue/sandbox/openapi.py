"""The OpenAPI documents for `kubectl explain` and for field validation.

They have names and types of the fields of built-in kinds, with a link instead of descriptions; custom kinds have the
descriptions of their definition.
"""

from __future__ import annotations

from typing import Any

from kqueue.sandbox.api import Object
from kqueue.sandbox.decoding import METADATA, shape_of
from kqueue.sandbox.registry import KindRegistry, ServedKind
from kqueue.sandbox.shape import FieldShape, builtin

REF = "#/components/schemas/"
PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
PACKAGES = {
    "meta": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}
_SCALARS: dict[str, Object] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "integer": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "time": {"type": "string", "format": "date-time"},
    "micro_time": {"type": "string", "format": "date-time"},
    "quantity": {"type": "string", "description": "An amount such as 2, 500m or 4Gi."},
    "int_or_string": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "any": {"type": "object"},
}
VERSION_2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
VERSION_2 = {"swagger": "2.0", "info": {"title": "kqueue sandbox", "version": "v1.36.3"}, "paths": {}}
"""`/openapi/v2`, which names no kind.

kubectl reads it for kinds that the newer documents do not have, such as lists, and ignores missing ones.
"""
VERSION_2_BYTES = b"\n\x032.0\x12\x19\n\x0ekqueue sandbox\x12\x07v1.36.3"
"""The same as protobuf, the only form that kubectl requests."""
_ELSEWHERE = "https://kubernetes.io/docs/reference/kubernetes-api/"
_METADATA_NOTE = "Standard object's metadata."
_API_VERSION_NOTE = "The version of this object's schema."
_KIND_NOTE = "The kind of this object."


def index(registry: KindRegistry, others: dict[str, list[str]]) -> Object:
    """Return `/openapi/v3`, the paths of all documents; `others` are groups of other servers behind this one."""
    paths: Object = {}
    for group, versions in {**others, **registry.groups()}.items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def document(registry: KindRegistry, group: str, version: str) -> Object | None:
    """Return the document of one group and version; None if the version is not served."""
    kinds = registry.served(group, version)
    if not kinds:
        return None
    schemas: dict[str, Object] = {}
    paths: Object = {}
    for kind in kinds:
        _add_kind(kind, schemas)
        paths |= _paths(kind)
    info = {"title": "kqueue sandbox", "version": "v1.36.3"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _full_name(message: str) -> str:
    package, _, name = message.partition(".")
    return f"{PACKAGES.get(package, f'io.k8s.api.{package}.v1')}.{name}"


def _kind_name(kind: ServedKind) -> str:
    if kind.custom is None:
        return _full_name(shape_of(kind).message)
    reverse = ".".join(reversed(kind.resource.group.split(".")))
    return f"{reverse}.{kind.resource.version}.{kind.kind}"


def _identity(kind: ServedKind) -> Object:
    return {"group": kind.resource.group, "version": kind.resource.version, "kind": kind.kind}


def _add_kind(kind: ServedKind, schemas: dict[str, Object]) -> None:
    _add_message(METADATA, builtin(METADATA), schemas)
    schema: Object
    if kind.custom is None:
        shape = shape_of(kind)
        _add_message(shape.message, shape, schemas)
        schema = schemas[_full_name(shape.message)]
    else:
        schema = dict(kind.custom.schema)
        schema["properties"] = {
            **(schema.get("properties") or {}),
            "apiVersion": {"type": "string", "description": _API_VERSION_NOTE},
            "kind": {"type": "string", "description": _KIND_NOTE},
            "metadata": {"allOf": [{"$ref": REF + _full_name(METADATA)}], "description": _METADATA_NOTE},
        }
        schemas[_kind_name(kind)] = schema
    schema["x-kubernetes-group-version-kind"] = [_identity(kind)]


def _add_message(message: str, shape: FieldShape, schemas: dict[str, Object]) -> None:
    name = _full_name(message)
    if name in schemas:
        return
    note = f"The sandbox knows the fields' names and types; their descriptions are at {_ELSEWHERE}"
    schema: Object = {"type": "object", "description": note, "properties": {}}
    schemas[name] = schema
    schema["properties"] = {key: _schema(field, schemas) for key, field in (shape.fields or {}).items()}


def _schema(shape: FieldShape, schemas: dict[str, Object]) -> Object:
    if shape.type == "object":
        _add_message(shape.message, shape, schemas)
        return {"allOf": [{"$ref": REF + _full_name(shape.message)}], "default": {}}
    if shape.type == "map":
        assert shape.element is not None
        return {"type": "object", "additionalProperties": _schema(shape.element, schemas)}
    if shape.type == "list":
        assert shape.element is not None
        out: dict[str, Any] = {"type": "array", "items": _schema(shape.element, schemas)}
        if shape.apply.keys:
            out |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(shape.apply.keys)}
        elif shape.apply.is_set:
            out["x-kubernetes-list-type"] = "set"
        if shape.patch.merge_key:
            out["x-kubernetes-patch-merge-key"] = shape.patch.merge_key
        if shape.patch.merge:
            out["x-kubernetes-patch-strategy"] = "merge,retainKeys" if shape.patch.retain else "merge"
        return out
    return dict(_SCALARS[shape.type])


def _paths(kind: ServedKind) -> Object:
    resource = kind.resource
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if kind.namespaced:
        root += "/namespaces/{namespace}"
    identity, reference = _identity(kind), {"$ref": REF + _kind_name(kind)}
    content = {"application/json": {"schema": reference}}
    answer = {
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-group-version-kind": identity,
    }
    validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    written = {**answer, "parameters": [validation]}
    patched = {**written, "requestBody": {"content": {type_: {"schema": {"type": "object"}} for type_ in PATCH_TYPES}}}
    body = {"requestBody": {"content": {"*/*": {"schema": reference}}}}
    return {
        f"{root}/{resource.plural}": {
            "get": {**answer, "x-kubernetes-action": "list"},
            "post": {**written, **body, "x-kubernetes-action": "post"},
        },
        f"{root}/{resource.plural}/{{name}}": {
            "get": {**answer, "x-kubernetes-action": "get"},
            "put": {**written, **body, "x-kubernetes-action": "put"},
            "patch": {**patched, "x-kubernetes-action": "patch"},
            "delete": {**answer, "x-kubernetes-action": "delete"},
        },
    }
