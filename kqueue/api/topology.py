"""Topology: a hierarchy of node labels, such as block, rack, host."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from kqueue.api.fields import LabelKey
from kqueue.api.model import ATOMIC, ApiModel, Resource, Rule, Served
from kqueue.kube.names import HOSTNAME_LABEL


class TopologyLevel(ApiModel):
    """One step of the hierarchy."""

    node_label: LabelKey
    """Node label whose value names the domain of this level."""


def _different(levels: tuple[TopologyLevel, ...]) -> bool:
    return len({level.node_label for level in levels}) == len(levels)


def _hostname_last(levels: tuple[TopologyLevel, ...]) -> bool:
    return all(level.node_label != HOSTNAME_LABEL for level in levels[:-1])


TopologyLevels = Annotated[
    tuple[TopologyLevel, ...],
    Field(min_length=1, max_length=16),
    ATOMIC,
    Rule(
        cel="self.all(x, self.exists_one(y, x.nodeLabel == y.nodeLabel))",
        message="each level must have a node label of its own",
        holds=_different,
    ),
    Rule(
        cel=f"!self.exists(x, x.nodeLabel == '{HOSTNAME_LABEL}') || "
        f"self[size(self) - 1].nodeLabel == '{HOSTNAME_LABEL}'",
        message=f"{HOSTNAME_LABEL} must be the last level: nothing is narrower than a host",
        holds=_hostname_last,
    ),
    Rule(
        cel=f"self == oldSelf || (self[size(self) - 1].nodeLabel == '{HOSTNAME_LABEL}' && "
        f"oldSelf[size(oldSelf) - 1].nodeLabel == '{HOSTNAME_LABEL}')",
        message=f"levels can be changed only if {HOSTNAME_LABEL} is the last level before and after; "
        "create another Topology instead",
    ),
]


class TopologySpec(ApiModel):
    """The hierarchy."""

    levels: TopologyLevels
    """Levels, the widest first.  They can change only if kubernetes.io/hostname is the last one before and after."""


class Topology(Resource):
    """A hierarchy of node labels, such as block, rack, host, that defines the distance of two nodes."""

    rules = (
        Rule(
            cel="!has(oldSelf.spec) || has(self.spec)",
            message="the levels cannot be removed; delete the Topology instead",
        ),
    )
    served: ClassVar = Served(plural="topologies", short_names=("topo",))
    kind: str = "Topology"
    """Kind of the object."""
    spec: TopologySpec | None = None
    """The hierarchy."""
