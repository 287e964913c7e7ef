"""Types that several kinds share: names, quantities, counts, conditions, label selectors, taints and tolerations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema

from kqueue.api.bounds import INT32_MAX, INT64_MAX
from kqueue.api.model import ATOMIC, ApiModel, Rule, keyed

DNS_LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
REASON_PATTERN: Final = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_QUANTITY: Final = re.compile(QUANTITY_PATTERN.removesuffix("$") + r"\Z")

Int32 = Annotated[int, Field(strict=True, ge=-(2**31), le=INT32_MAX)]
Count = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
PositiveCount = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]
Int64 = Annotated[int, Field(strict=True, ge=-(2**63), le=INT64_MAX)]
Bool = Annotated[bool, Field(strict=True)]
Time = AwareDatetime

ObjectName = Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN_PATTERN)]
"""Name of a cluster-scoped object, or of a LocalQueue."""
PodSetName = Annotated[str, Field(max_length=63, pattern=DNS_LABEL_PATTERN)]
"""Name of a pod set."""
CheckName = Annotated[str, Field(min_length=1, max_length=316)]
"""Name of an AdmissionCheck, as a reference."""
LabelKey = Annotated[str, Field(min_length=1, max_length=316, pattern=LABEL_KEY_PATTERN)]
"""Key of a label, as a topology level."""
LevelName = Annotated[str, Field(max_length=63)]
"""Topology level, as requested."""


def _quantity(value: Any) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _QUANTITY.match(value):
        return value
    raise ValueError("not a quantity; write a number with an optional suffix, such as 500m, 2 or 16Gi")


Quantity = Annotated[
    str | int,
    BeforeValidator(_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A Kubernetes quantity, as given."""

ResourceList = Mapping[str, Quantity]
"""Resource name to quantity."""


class Condition(ApiModel):
    """One aspect of the object's state."""

    type: Annotated[str, Field(max_length=316, pattern=LABEL_KEY_PATTERN)]
    """Which aspect."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=REASON_PATTERN)]
    """Why, as one word for programs."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, as a sentence for people.  May be empty."""
    last_transition_time: Time
    """Since when the status is what it is."""
    observed_generation: Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)] | None = None
    """Generation of the spec that this condition speaks of."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=16), keyed("type")]


class LabelSelectorRequirement(ApiModel):
    """One rule about a label."""

    key: str
    """Label that the rule is about."""
    operator: str
    """How the label is compared with the values: In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[str, ...], ATOMIC] = ()
    """Values to compare with; at least one for In and NotIn, none otherwise."""


class LabelSelector(ApiModel):
    """Labels that must match, all of them.  Without any rule it matches everything."""

    match_labels: Mapping[str, str] = {}
    """Labels with exactly these values."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], ATOMIC] = ()
    """Rules about labels."""


Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(ApiModel):
    """A mark that keeps pods away from nodes."""

    key: str
    """Name of the taint."""
    value: str | None = None
    """Value of the taint."""
    effect: Effect
    """The effect on pods that do not tolerate it."""
    time_added: Time | None = None
    """When the taint was added; only meaningful for NoExecute."""


class Toleration(ApiModel):
    """A taint that pods tolerate."""

    rules = (
        Rule(
            cel="has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            message="a toleration without key needs operator Exists, so that it matches every taint",
            holds=lambda t: t.key is not None or t.operator == "Exists",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            message="tolerationSeconds needs effect NoExecute",
            holds=lambda t: t.toleration_seconds is None or t.effect == "NoExecute",
        ),
        Rule(
            cel="!has(self.value) || !has(self.operator) || self.operator != 'Exists'",
            message="a toleration with operator Exists must not have a value",
            holds=lambda t: t.value is None or t.operator != "Exists",
        ),
    )
    key: str | None = None
    """Taint to tolerate; absent means every taint, and needs operator Exists."""
    operator: Literal["Equal", "Exists"] | None = None
    """Equal compares the value, Exists takes any value; absent means Equal."""
    value: str | None = None
    """Value of the taint; not with operator Exists."""
    effect: Effect | None = None
    """Effect to tolerate; absent means every effect."""
    toleration_seconds: Int64 | None = None
    """How long a NoExecute taint is tolerated; absent means for ever."""


Tolerations = Annotated[tuple[Toleration, ...], Field(max_length=8), ATOMIC]
