"""Objects of every form that a schema allows, drawn by hypothesis."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from kqueue.api.definitions import KINDS, crd
from kqueue.sandbox.custom_schema import CustomSchema

JSON = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "node-1", "node-2", "rack-a-1", "rack-a-2"])
TIME = "2026-01-31T12:00:00Z"


@cache
def schema_of(kind: str, version: str) -> JSON:
    """The schema of a kind in a version, as its definition has it."""
    model = next(model for model in KINDS if model.__name__ == kind)
    found: JSON = next(v for v in crd(model)["spec"]["versions"] if v["name"] == version)["schema"]["openAPIV3Schema"]
    return found


@cache
def objects(kind: str, version: str) -> st.SearchStrategy[JSON]:
    """Objects of a kind that its schema allows."""
    schema = schema_of(kind, version)
    parts = {name: schema["properties"][name] for name in ("spec", "status")}
    fields = st.fixed_dictionaries({}, optional={name: _values(part, name) for name, part in parts.items()})
    notes = st.dictionaries(st.sampled_from(["kqueue.dev/v1beta1", "a"]), st.sampled_from(["", "{}", "x"]), min_size=1)
    metadata = st.fixed_dictionaries({"name": NAMES}, optional={"annotations": notes})
    whole = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind}
    return st.builds(lambda meta, found: {**whole, "metadata": meta, **found}, metadata, fields)


def _values(schema: JSON, name: str) -> st.SearchStrategy[Any]:
    if name == "topologyAssignment":
        return _assignments("domains" in schema["properties"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from([0, 7, "500m", "16Gi"])
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return st.just({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}})
    match schema["type"]:
        case "object":
            return _records(schema)
        case "array":
            return _lists(schema, name)
        case "string":
            return st.just(TIME) if schema.get("format") == "date-time" else NAMES
        case "boolean":
            return st.booleans()
        case _:
            low = schema.get("minimum", -5)
            return st.integers(low, low + 9)


def _records(schema: JSON) -> st.SearchStrategy[JSON]:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return st.dictionaries(NAMES, _values(extra, ""), max_size=2)
    fields = {name: _values(inner, name) for name, inner in schema.get("properties", {}).items()}
    required = schema.get("required", [])
    optional = {name: field for name, field in fields.items() if name not in required}
    return st.fixed_dictionaries({name: fields[name] for name in required}, optional=optional)


def _lists(schema: JSON, name: str) -> st.SearchStrategy[list[Any]]:
    items, least = _values(schema["items"], name), schema.get("minItems", 0)
    keys = schema.get("x-kubernetes-list-map-keys")
    unique: Any = None
    if keys:
        unique = lambda item: tuple(item.get(key) for key in keys)  # noqa: E731
    elif schema.get("x-kubernetes-list-type") == "set":
        unique = lambda item: item  # noqa: E731
    return st.lists(items, min_size=least, max_size=max(least, 2), unique_by=unique)


def _assignments(has_domains: bool) -> st.SearchStrategy[JSON]:
    """Assignments of one or two levels: domain by domain, or in slices that are cut anyhow, some of them broken."""

    def of_width(width: int) -> st.SearchStrategy[JSON]:
        levels = [f"level-{i}" for i in range(width)]
        values = st.lists(NAMES, min_size=width, max_size=width)
        domain = st.fixed_dictionaries({"values": values, "count": st.integers(1, 3)})
        if has_domains:
            return st.fixed_dictionaries({"levels": st.just(levels), "domains": st.lists(domain, max_size=5)})
        return st.fixed_dictionaries({"levels": st.just(levels), "slices": st.lists(_slices(width), max_size=3)})

    return st.integers(1, 2).flatmap(of_width)


def _slices(width: int) -> st.SearchStrategy[JSON]:
    def of_size(size: int) -> st.SearchStrategy[JSON]:
        roots = st.lists(NAMES, min_size=size, max_size=size)
        ends = {"prefix": NAMES, "suffix": NAMES}
        individual = st.fixed_dictionaries({"roots": roots}, optional=ends)
        values = st.one_of(NAMES.map(lambda v: {"universal": v}), individual.map(lambda v: {"individual": v}))
        counts = st.one_of(
            st.integers(1, 3).map(lambda n: {"universal": n}),
            st.lists(st.integers(1, 3), min_size=size, max_size=size).map(lambda n: {"individual": n}),
        )
        return st.fixed_dictionaries(
            {
                "domainCount": st.sampled_from([size, size, size, size + 1]),  # the last one contradicts itself
                "valuesPerLevel": st.lists(values, min_size=width, max_size=width),
                "podCounts": counts,
            }
        )

    return st.integers(1, 4).flatmap(of_size)


def unknown_fields(obj: JSON) -> list[str]:
    """Fields that the API server would drop, because the schema of the object's version does not have them."""
    found: list[str] = []
    version = str(obj["apiVersion"]).partition("/")[2]
    CustomSchema(schema_of(obj["kind"], version)).prune(obj, found)
    return found
