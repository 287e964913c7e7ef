"""WorkloadPriorityClass: a named queueing priority."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from kqueue.api.fields import Int32
from kqueue.api.model import Column, Resource, Served


class WorkloadPriorityClass(Resource):
    """A named queueing priority.  It orders workloads and preemption, and leaves the priority of pods alone."""

    served: ClassVar = Served(
        plural="workloadpriorityclasses",
        short_names=("wpc",),
        columns=(
            Column(name="Value", path=".value", type="integer", description="Priority; the larger one comes first"),
        ),
    )
    kind: str = "WorkloadPriorityClass"
    """Kind of the object."""
    value: Int32
    """Priority of workloads that name this class; the larger one comes first.  A change reaches existing workloads."""
    description: Annotated[str, Field(max_length=2048)] | None = None
    """Purpose of the class."""
