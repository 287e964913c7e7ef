"""Requirements on labels and fields: the operators of label selectors and of node selector terms.

Source: Kubernetes `metav1.LabelSelectorRequirement` and `v1.NodeSelectorRequirement`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
"""The texts that `Gt` and `Lt` compare."""
LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
"""The operators of label selectors; terms of node selectors have `Gt` and `Lt` as well."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression on a label or field: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class RequirementFields(Protocol):
    """Any class with the fields of a requirement."""

    @property
    def key(self) -> str:
        """The label."""

    @property
    def operator(self) -> str:
        """How its value is compared."""

    @property
    def values(self) -> Collection[str]:
        """The values with which its value is compared."""


def holds(operator: str, values: Collection[str], value: str | None) -> bool:
    """Whether a label with `value` (None: there is no such label) meets a requirement.

    A missing label meets NotIn and DoesNotExist.  `Gt` and `Lt` need exactly one value, and integers on both sides.  An
    unknown operator is never met.
    """
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and len(values) == 1 and compare(operator, value, next(iter(values)))
        case _:
            return False


def compare(operator: str, left: str, right: str) -> bool:
    """Whether `left` is above (`Gt`) or below (`Lt`) `right`; False unless both are decimal integers."""
    if not (INTEGER.fullmatch(left) and INTEGER.fullmatch(right)):
        return False
    return int(left) > int(right) if operator == "Gt" else int(left) < int(right)


def labels_match(
    match_labels: Mapping[str, str], requirements: Iterable[RequirementFields], labels: Mapping[str, str]
) -> bool:
    """Whether `labels` meet both parts of a label selector; empty parts are met by all labels.

    An absent selector means something else from field to field of the API, so each caller decides it.
    """
    for key, value in match_labels.items():
        if labels.get(key) != value:
            return False
    for each in requirements:
        if each.operator not in LABEL_OPERATORS or not holds(each.operator, each.values, labels.get(each.key)):
            return False
    return True
