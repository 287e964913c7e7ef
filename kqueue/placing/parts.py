"""The parts that several objects of the document share: quantities, tolerations, node affinity, assignments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kqueue.core.quantity import CPU, INT64_MAX, format_quantity, parse_exactly, parse_quantity
from kqueue.core.topology import (
    NodeTerm,
    Requirement,
    Toleration,
    TopologyAssignment,
    WeightedTerm,
    decode,
)
from kqueue.errors import InvalidObjectError
from kqueue.placing.document import Number
from kqueue.placing.fields import COUNT_MAX, Fields, Problems, quoted

EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
"""Effects of taints."""
_OPERATORS = ("", "Equal", "Exists", "Gt", "Lt")
_INDEX = re.compile(r"\[(\d+)\]")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def quantities(problems: Problems, fields: Fields, key: str) -> dict[str, int]:
    """Return amounts by resource, cpu in milli, others in base units; empty if the key is absent."""
    return {resource: quantity(problems, value, path, resource) for resource, path, value in fields.members(key)}


def quantity(problems: Problems, value: Any, path: str, resource: str) -> int:
    """Return an amount of a resource; 0 if the value is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | Number):
        problems.add(path, f"expected a quantity such as 500m, 2, 1.5 or 16Gi, found {quoted(value)}")
        return 0
    try:
        amount = parse_quantity(str(value), resource)
    except ValueError as e:
        problems.add(path, str(e))
        return 0
    if amount < 0:
        problems.add(path, f"a quantity is never negative here, found {quoted(value)}: write 0 or more")
        return 0
    if amount == INT64_MAX and _is_above(str(value), amount, resource):
        problems.remark(
            path,
            f"{quoted(value)} is cut to {format_quantity(amount, resource)}, the largest amount: write no more",
        )
    return amount


def _is_above(text: str, amount: int, resource: str) -> bool:
    """Whether the quantity is larger than `amount`."""
    return parse_exactly(text) * (1000 if resource == CPU else 1) > amount


def tolerations(problems: Problems, fields: Fields, key: str) -> tuple[Toleration, ...]:
    """Return tolerations in the form of a pod template; empty if the key is absent."""
    found = []
    for path, item in fields.items(key):
        entry = problems.fields(item, path, ("key", "operator", "value", "effect", "tolerationSeconds"))
        found.append(
            Toleration(
                entry.optional_text("key") or "",
                entry.choice("operator", _OPERATORS, "") if entry.has("operator") else "",
                entry.optional_text("value") or "",
                entry.choice("effect", ("", *EFFECTS), "") if entry.has("effect") else "",
            )
        )
    return tuple(found)


def node_affinity(
    problems: Problems, value: Any, path: str
) -> tuple[tuple[NodeTerm, ...] | None, tuple[WeightedTerm, ...]]:
    """Return required terms (None: nothing is required) and preferred ones.  Placing checks their contents."""
    fields = problems.fields(value, path, (_REQUIRED, _PREFERRED))
    required: tuple[NodeTerm, ...] | None = None
    if fields.has(_REQUIRED):
        selector = problems.fields(fields.value(_REQUIRED), fields.path(_REQUIRED), ("nodeSelectorTerms",))
        required = tuple([_term(problems, item, where) for where, item in selector.items("nodeSelectorTerms")])
    preferred = []
    if fields.has(_PREFERRED):
        for where, item in fields.items(_PREFERRED):
            entry = problems.fields(item, where, ("weight", "preference"))
            entry.require("weight", "a whole number")
            entry.require("preference", "an object with matchExpressions or matchFields")
            term = _term(problems, entry.value("preference", {}), entry.path("preference"))
            preferred.append(WeightedTerm(entry.integer("weight", 0, least=0), term))
    return required, tuple(preferred)


def _term(problems: Problems, value: Any, path: str) -> NodeTerm:
    fields = problems.fields(value, path, ("matchExpressions", "matchFields"))
    return NodeTerm(_requirements(problems, fields, "matchExpressions"), _requirements(problems, fields, "matchFields"))


def _requirements(problems: Problems, fields: Fields, key: str) -> tuple[Requirement, ...]:
    found = []
    for path, item in fields.items(key) if fields.has(key) else ():
        entry = problems.fields(item, path, ("key", "operator", "values"))
        entry.require("key", "a label key")
        entry.require("operator", "In, NotIn, Exists, DoesNotExist, Gt or Lt")
        values = entry.texts("values") if entry.has("values") else ()
        found.append(Requirement(entry.text("key"), entry.text("operator"), values))
    return tuple(found)


def written_values(
    problems: Problems, fields: Fields, key: str, width: int | None, form: str = "values"
) -> tuple[str, ...]:
    """Return the values that name a domain, `width` of them (None: at least one)."""
    if not fields.require(key, "the written values of a domain"):
        return ()
    before = len(problems.found)
    values = fields.texts(key)
    if len(problems.found) == before and (len(values) != width if width is not None else not values):
        wanted = "at least one value" if width is None else "the host name alone" if width == 1 else f"{width} values"
        problems.add(fields.path(key), f"expected {wanted} ({form}), found {len(values)} values")
    return values


def assignment(problems: Problems, value: Any, path: str, levels: Sequence[str]) -> TopologyAssignment | None:
    """Return an assignment in one of its two forms for a topology with these written levels; None if it is invalid.

    `levels` is empty if the topology itself is invalid, and is then not compared.
    """
    fields = problems.fields(value, path, ("levels", "domains", "slices"))
    before = len(problems.found)
    fields.require("levels", "the list of levels that values are written for")
    if fields.given("domains") and fields.given("slices"):
        problems.add(fields.path("slices"), "an assignment has either domains or slices: leave one of them out")
    elif not fields.given("slices"):
        fields.require("domains", "a list of {values, count}, or slices in its place,")
    for where, item in fields.items("domains"):
        problems.fields(item, where, ("values", "count"))
    for where, item in fields.items("slices"):
        _check_slice(problems, item, where)
    if len(problems.found) > before or not isinstance(value, dict):
        return None
    try:
        found = decode(value, "")
    except InvalidObjectError as e:
        for error in e.errors:
            where = path + _INDEX.sub(r"/\1", error.path).replace(".", "/")
            problems.add(where, f"{error.problem}, found {quoted(error.value)}")
        return None
    if levels and found.levels != tuple(levels):
        problems.add(fields.path("levels"), f"the levels of this topology are written {', '.join(levels)}")
    for i, domain in enumerate(found.domains):
        if domain.count > COUNT_MAX:
            problems.add(fields.path("domains"), f"entry {i} has more than {COUNT_MAX} pods")
    return found


def _check_slice(problems: Problems, value: Any, path: str) -> None:
    """Note unknown keys of the compressed form, which its decoder ignores."""
    fields = problems.fields(value, path, ("domainCount", "valuesPerLevel", "podCounts"))
    for where, item in fields.items("valuesPerLevel"):
        entry = problems.fields(item, where, ("universal", "individual"))
        if entry.has("individual"):
            parts = problems.fields(entry.value("individual"), entry.path("individual"), ("prefix", "suffix", "roots"))
            parts.optional_text("prefix")
            parts.optional_text("suffix")
    if fields.has("podCounts"):
        problems.fields(fields.value("podCounts"), fields.path("podCounts"), ("universal", "individual"))
