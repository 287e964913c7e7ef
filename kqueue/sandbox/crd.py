"""Custom kinds at run time: turns a CustomResourceDefinition into served kinds."""

from __future__ import annotations

from typing import Any

from kqueue.sandbox import json_path, scale
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.custom_schema import CustomSchema
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.strategy import PLAIN, ClusterView, WriteStrategy
from kqueue.sandbox.table import AGE, NAME, Moment, TableColumn, age_text

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")


def kinds_of(definition: Object) -> list[ServedKind]:
    """Return all served versions of a definition, as kinds."""
    spec = definition["spec"]
    stored = next(version["name"] for version in spec["versions"] if version["storage"])
    return [_kind(spec, version, stored) for version in spec["versions"] if version["served"]]


def _kind(spec: Object, version: Object, stored: str) -> ServedKind:
    names, group = spec["names"], spec["group"]
    subresources = version.get("subresources") or {}
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    return ServedKind(
        resource=GroupVersionResource(group, version["name"], names["plural"]),
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        storage=f"{group}/{names['plural']}",
        singular=names.get("singular", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        subresources=("scale",) if "scale" in subresources else (),
        scale=scale.of_definition(subresources.get("scale")),
        generation=True,
        columns=_columns(version.get("additionalPrinterColumns") or []),
        strategy=WriteStrategy(prepare_create=_drop_status) if "status" in subresources else PLAIN,
        selectable=_selectable(version.get("selectableFields") or []),
        custom=CustomSchema(schema),
        unconditional_update=False,
        stored=f"{group}/{stored}",
        converts=(spec.get("conversion") or {}).get("strategy") == "Webhook" and len(spec["versions"]) > 1,
        deprecation=_deprecation(spec, version),
    )


def _drop_status(obj: Object, _: ClusterView) -> None:
    obj.pop("status", None)


def _deprecation(spec: Object, version: Object) -> str:
    if not version.get("deprecated"):
        return ""
    name = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
    return str(version.get("deprecationWarning") or f"{name} is deprecated")


def _selectable(fields: list[Object]) -> dict[str, tuple[str, ...]]:
    paths = [str(field["jsonPath"]).removeprefix(".") for field in fields]
    return {path: tuple(path.split(".")) for path in paths}


def _columns(described: list[Object]) -> tuple[TableColumn, ...]:
    """Return the name, then the definition's columns, or the age if the definition has none."""
    if not described:
        return (NAME, AGE)
    return (NAME, *(_column(each) for each in described))


def _column(described: Object) -> TableColumn:
    values = json_path.compiled(described["jsonPath"])
    is_date = described["type"] == "date"

    def cell(obj: Object, moment: Moment) -> Any:
        found = values(obj)
        if not found:
            return None
        if is_date:
            return age_text(str(found[0]), moment.now)
        return _shown(found, described["type"])

    return TableColumn(
        described["name"],
        cell,
        type=described["type"],
        format=described.get("format", ""),
        priority=described.get("priority", 0),
        description=described.get("description", ""),
    )


def _shown(found: list[Any], kind: str) -> Any:
    """Return the cell for the values at a path: a single scalar as it is, several or nested values as text."""
    value = found[0]
    if kind in ("integer", "number", "boolean"):
        return value if isinstance(value, int | float) else None
    if len(found) == 1 and isinstance(value, str):
        return value
    if len(found) == 1 and isinstance(value, bool):
        return "true" if value else "false"
    if len(found) == 1 and isinstance(value, list | dict):
        return str(value)
    return " ".join(str(each) for each in found) if len(found) > 1 else str(value)
