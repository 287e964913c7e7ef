"""Base classes of the models of kqueue's kinds, and their metadata for the schema generator.

A field's docstring is what `kubectl explain` shows.  Bounds and patterns are pydantic's; what a list is to the API
server is said by `Keyed`, `UNIQUE` and `ATOMIC`; rules that need more than one field, or the object before the change,
are `Rule`s.  `kqueue.api.schema` turns all of it into CustomResourceDefinitions, and pydantic checks the same here,
except for what depends on the object before the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kqueue.api.names import API_VERSION, GROUP, VERSION
from kqueue.errors import FieldError, InvalidObjectError

RULES_KEY: Final = "x-kubernetes-validations"
"""Where a schema carries its rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Something that must hold beyond the shape of one field.

    `cel` is what the API server evaluates; `message` one sentence for the person who broke it; `holds` the same in
    Python, None where the rule compares with the object before the change.  `field` moves the server's complaint to a
    field below, as in `.spec.queueName`.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    field: str | None = None

    def as_schema(self) -> dict[str, str]:
        """Return the rule as the API server reads it."""
        place = {} if self.field is None else {"fieldPath": self.field}
        return {"rule": self.cel, "message": self.message} | place

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        found[RULES_KEY] = [*found.get(RULES_KEY, []), self.as_schema()]
        return found

    def _check(self, value: Any) -> Any:
        if self.holds is not None and not self.holds(value):
            raise ValueError(self.message)
        return value


class ApiModel(BaseModel):
    """Base of all models: frozen, camelCase outside, unknown fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules between the fields of this object."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        broken = [rule.message for rule in self.rules if rule.holds is not None and not rule.holds(self)]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        found = handler.resolve_ref_schema(reference)
        if cls.rules:
            found[RULES_KEY] = [rule.as_schema() for rule in cls.rules]
        if cls.model_config.get("extra") == "allow":
            found["x-kubernetes-preserve-unknown-fields"] = True
        for name, field in cls.model_fields.items():
            if isinstance(field.default_factory, type) and issubclass(field.default_factory, ApiModel):
                # The API server fills the fields of an object only where the object is there.
                found["properties"][field.alias or name]["default"] = {}
        return reference

    @classmethod
    def read(cls, obj: Mapping[str, Any]) -> Self:
        """Return the model of a JSON object.

        Raises:
            InvalidObjectError: the object breaks its schema; carries every mistake with its path.
        """
        try:
            return cls.model_validate(obj)
        except ValidationError as error:
            raise InvalidObjectError(cls.__name__, field_errors(error)) from error

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def field_errors(error: ValidationError) -> list[FieldError]:
    """Return every mistake that pydantic found, with the path as `kubectl` users know it."""
    return [
        FieldError(
            path=field_path(found["loc"]),
            problem=found["msg"].removeprefix("Value error, "),
            value=found["input"] if isinstance(found["input"], str | int | float | bool) else None,
        )
        for found in error.errors(include_url=False, include_context=False)
    ]


def field_path(parts: tuple[str | int, ...]) -> str:
    """Write `("spec", "podSets", 0, "count")` as `spec.podSets[0].count`; the empty path is the object itself."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "(object)"


@dataclass(frozen=True, slots=True)
class Keyed:
    """Marks a list whose items are identified by some of their fields (camelCase names); no two may be equal there."""

    keys: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}

    def _check(self, items: tuple[ApiModel, ...]) -> tuple[ApiModel, ...]:
        names = {to_camel(name): name for item in items[:1] for name in type(item).model_fields}
        seen: set[tuple[object, ...]] = set()
        for item in items:
            key = tuple(getattr(item, names[key]) for key in self.keys)
            if key in seen:
                shown = ", ".join(f"{name} {value!r}" for name, value in zip(self.keys, key, strict=True))
                raise ValueError(f"two items have {shown}; remove or rename one")
            seen.add(key)
        return items


@dataclass(frozen=True, slots=True)
class _ListType:
    """Marks a list of plain values, or one that is written as a whole."""

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.name == "atomic":
            return handler(source)
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"x-kubernetes-list-type": self.name}

    def _check(self, items: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({item for item in items if items.count(item) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is listed more than once; remove the repetition")
        return items


ATOMIC: Final = _ListType("atomic")
"""Marks a list that is always written as a whole."""
UNIQUE: Final = _ListType("set")
"""Marks a list of different values, in any order."""


@dataclass(frozen=True, slots=True)
class _AtomicMap:
    """Marks a map that is always written as a whole."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"x-kubernetes-map-type": "atomic"}


ATOMIC_MAP: Final = _AtomicMap()
"""Marks a map that is always written as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of `kubectl get`; a wide one needs `-o wide`."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How the API server offers a kind.  Without columns `kubectl get` shows name and age."""

    group: str = GROUP
    version: str = VERSION
    plural: str
    kind: str = ""
    """Name of the kind; empty: that of the class."""
    namespaced: bool = False
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    selectable_fields: tuple[str, ...] = ()


class ObjectMeta(ApiModel):
    """Metadata of an object, as far as we read it."""

    name: str = ""
    """Name, unique per kind and namespace."""
    namespace: str = ""
    """Namespace; empty for cluster-scoped kinds."""
    uid: str = ""
    """Identity, never used again."""
    resource_version: str = ""
    """Version, changed by every write."""
    generation: int = 0
    """Number of changes of the spec."""
    labels: Mapping[str, str] = {}
    """Keys and values to select by."""
    annotations: Mapping[str, str] = {}
    """Keys and values for programs."""
    finalizers: tuple[str, ...] = ()
    """Finalizers: the object is deleted when the list is empty."""


class Resource(ApiModel):
    """Base of the kinds.  `served` has the names under which the API server serves them."""

    served: ClassVar[Served]

    api_version: str = API_VERSION
    """Group and version of this representation of the object."""
    kind: str = ""
    """Kind of the object."""
    metadata: ObjectMeta = ObjectMeta()
    """Name, labels, owners and so on."""

    @classmethod
    def has_status(cls) -> bool:
        """Whether the kind has a status, written apart from the rest."""
        return "status" in cls.model_fields


def keyed(*keys: str) -> Keyed:
    """Mark a list whose items are identified by these fields."""
    return Keyed(keys)


def rule_list(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rules of a generated schema; empty if it has none."""
    return cast("list[dict[str, str]]", found.get(RULES_KEY, []))
