"""A label selector, as in `managedJobsNamespaceSelector`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from kqueue.config.section import Section, refuse
from kqueue.errors import FieldError
from kqueue.kube.requirement import labels_match


class RequirementSettings(Section):
    """One condition on a label."""

    key: str
    """Label to compare."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared with the values."""
    values: tuple[str, ...] = ()
    """At least one for In and NotIn, none otherwise."""

    @model_validator(mode="after")
    def _values_fit_the_operator(self) -> Self:
        wants_values = self.operator in {"In", "NotIn"}
        if wants_values != bool(self.values):
            rule = "must have at least one value" if wants_values else "must be left out"
            refuse(FieldError("values", f"{rule} with operator {self.operator}"))
        return self


class SelectorSettings(Section):
    """All of `match_labels` and `match_expressions` must hold; an empty selector matches everything."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels with exactly these values."""
    match_expressions: tuple[RequirementSettings, ...] = ()
    """Rules about labels."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with `labels` is selected."""
        return labels_match(self.match_labels, self.match_expressions, labels)
