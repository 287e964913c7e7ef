"""Label and field selectors: the objects in specs, and the text in query strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kqueue.kube.requirement import LABEL_OPERATORS, Requirement, holds
from kqueue.sandbox import failure, metadata
from kqueue.sandbox.api import Object
from kqueue.sandbox.registry import ServedKind

Labels = Mapping[str, str]
Test = Callable[[Object], bool]

_SET = re.compile(r"\s*(\S+?)\s+(in|notin)\s*\(([^)]*)\)\s*")
_PAIR = re.compile(r"\s*([^\s=!<>]+)\s*(==|=|!=|<|>)\s*([^\s=!<>]*)\s*")
_WORD = re.compile(r"\s*(!?)\s*([^\s=!<>()]+)\s*")
_SPLIT = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class LabelRequirements:
    """Requirements that must all match; an empty list selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Labels | None) -> bool:
        """Whether labels meet all requirements."""
        present = labels or {}
        return all(holds(each.operator, each.values, present.get(each.key)) for each in self.requirements)


EVERYTHING = LabelRequirements()


def from_object(selector: Object) -> LabelRequirements:
    """Parse the `matchLabels`/`matchExpressions` form; an empty selector selects everything.

    The meaning of a missing selector differs from field to field of the API, so each caller decides it.
    """
    found = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        found.append(Requirement(each.get("key", ""), each.get("operator", ""), tuple(each.get("values") or ())))
    return LabelRequirements(tuple(found))


def object_causes(selector: Object | None, path: str) -> list[failure.Cause]:
    """Return all mistakes in the object form."""
    found = metadata.label_causes((selector or {}).get("matchLabels"), f"{path}.matchLabels")
    for index, each in enumerate((selector or {}).get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = each.get("operator", ""), each.get("values") or ()
        if operator not in LABEL_OPERATORS:
            found.append(failure.invalid(f"{where}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not values:
            found.append(failure.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            found.append(
                failure.forbidden_field(
                    f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                )
            )
        if problem := metadata.qualified_name_problem(each.get("key", "")):
            found.append(failure.invalid(f"{where}.key", each.get("key", ""), problem))
    return found


def parse_labels(text: str) -> LabelRequirements:
    """Parse the text form: `a=b,c!=d,e in (f,g),!h,i`.

    Raises:
        InvalidError: 400, naming the part that cannot be parsed.
    """
    if not text.strip():
        return EVERYTHING
    return LabelRequirements(tuple(_requirement(part) for part in _SPLIT.split(text)))


def _requirement(part: str) -> Requirement:
    found = None
    if match := _SET.fullmatch(part):
        values = tuple(value.strip() for value in match[3].split(","))
        found = Requirement(match[1], "In" if match[2] == "in" else "NotIn", values)
    elif match := _PAIR.fullmatch(part):
        operator = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}[match[2]]
        found = Requirement(match[1], operator, (match[3],))
    elif match := _WORD.fullmatch(part):
        found = Requirement(match[2], "DoesNotExist" if match[1] else "Exists")
    if found is None:
        raise failure.bad_request(f"unable to parse requirement: {part!r} is not a label selector")
    problem = metadata.qualified_name_problem(found.key)
    if problem is None and found.operator in ("In", "NotIn"):
        problem = next((p for value in found.values if (p := metadata.label_value_problem(value))), None)
    if problem is not None:
        raise failure.bad_request(f"unable to parse requirement: {part!r}: {problem}")
    return found


def parse_fields(text: str, kind: ServedKind) -> Test | None:
    """Parse the text form of a field selector (`a=b,c!=d`); return None for an empty one.

    Raises:
        InvalidError: 400 for a field without support for selectors, or text that is no selector.
    """
    if not text.strip():
        return None
    tests: list[tuple[tuple[str, ...], str, bool]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([\w.\-/]+?)\s*(==|=|!=)(.*)", part)
        if match is None:
            raise failure.bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
        tests.append((_keys(match[1], kind), match[3].replace("\\,", ",").strip(), match[2] != "!="))
    return lambda obj: all((_field(obj, keys) == value) is wanted for keys, value, wanted in tests)


def _keys(field: str, kind: ServedKind) -> tuple[str, ...]:
    if field == "metadata.name" or (field == "metadata.namespace" and kind.namespaced):
        return tuple(field.split("."))
    keys = kind.selectable.get(field)
    if keys is None:
        raise failure.bad_request(f'field label not supported: "{field}"')
    return keys


def _field(obj: Object, keys: tuple[str, ...]) -> str:
    value: object = obj
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return {"unschedulable": "false", "hostNetwork": "false", "succeeded": "0"}.get(keys[-1], "")
    return str(value)
