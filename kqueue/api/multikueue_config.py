"""MultiKueueConfig: worker clusters to choose from."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kqueue.api.model import ATOMIC, ApiModel, Resource, Rule, Served


class MultiKueueConfigSpec(ApiModel):
    """The clusters, and the manager of the quota."""

    clusters: Annotated[
        tuple[Annotated[str, Field(max_length=256)], ...],
        Field(min_length=1, max_length=20),
        ATOMIC,
        Rule(
            cel="self.all(x, self.exists_one(y, x == y))",
            message="each cluster may be named only once",
            holds=lambda names: len(set(names)) == len(names),
        ),
    ]
    """MultiKueueCluster objects, in the order in which the incremental dispatcher tries them."""
    quota_management: Literal["Manual", "Automated"] | None = None
    """Whether the manager's quota is set by hand or follows the worker clusters.  Absent means Manual."""


class MultiKueueConfig(Resource):
    """Worker clusters that a MultiKueue check may send workloads to."""

    served: ClassVar = Served(plural="multikueueconfigs", short_names=("mkconf",))
    kind: str = "MultiKueueConfig"
    """Kind of the object."""
    spec: MultiKueueConfigSpec | None = None
    """The clusters, and the manager of the quota."""
