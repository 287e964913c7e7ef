"""The section of the configuration file about joint placement; it is kqueue's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kqueue.config.duration import Duration, duration_text
from kqueue.config.section import Section, refuse_any
from kqueue.errors import FieldError

_SHORTEST, _LONGEST = timedelta(milliseconds=100), timedelta(seconds=60)


class JointPolicy(Section):
    """A policy of joint placement."""

    name: str
    """Its name."""
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Its weight, in thousandths."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Its parameters by name."""


class JointPlacementSettings(Section):
    """Rounds in which all waiting workloads with the placement profile `joint` are planned together.  They need the
    feature gate JointPlacement."""

    default: bool = False
    """Whether workloads are planned jointly where no object names a profile."""
    within: Literal["BestFit", "balanced", "optimal"] = "BestFit"
    """The profile that chooses the domains inside one workload."""
    order: Literal["Strict", "Priority"] = "Strict"
    """`Strict`: no plan leaves a workload out in order to admit a later one.  `Priority`: among workloads of one
    priority, the plan that uses more units is better; a unit counts more the longer its workload has waited."""
    max_workloads: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """The most workloads of a round."""
    max_per_queue: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The most workloads of one ClusterQueue in a round."""
    time_limit: Duration = timedelta(seconds=5)
    """The time after which a round without a plan is given up, 100ms to 60s; ordinary cycles try its workloads then."""
    policies: tuple[JointPolicy, ...] = (JointPolicy(name="topology"),)
    """The costs of places: at most four policies, whose costs are summed with their weights.  ClusterQueues may name
    others with annotation `kqueue.dev/joint-policies`; all ClusterQueues of a flavor must agree on them."""
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 16_384
    """The most searches for domains that the repairs of one candidate make."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if not _SHORTEST <= self.time_limit <= _LONGEST:
            refuse_any([FieldError("timeLimit", "must be from 100ms to 60s", duration_text(self.time_limit))])
        return self
