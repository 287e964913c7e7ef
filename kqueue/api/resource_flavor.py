"""ResourceFlavor: a class of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from kqueue.api.fields import ObjectName, Taint, Tolerations
from kqueue.api.model import ATOMIC, ATOMIC_MAP, ApiModel, Resource, Rule, Served
from kqueue.api.topology import TopologyLevels


class InlineTopology(ApiModel):
    """A hierarchy of the flavor's own, without a Topology object."""

    levels: TopologyLevels
    """Levels, the widest first."""


class ResourceFlavorSpec(ApiModel):
    """Which nodes belong to the flavor, and how they are arranged."""

    rules = (
        Rule(
            cel="!(has(self.topologyName) || has(self.topology)) || "
            "(has(self.nodeLabels) && size(self.nodeLabels) > 0)",
            message="a flavor with a topology needs at least one node label that says which nodes it is for",
            holds=lambda s: (s.topology_name is None and s.topology is None) or len(s.node_labels) > 0,
            field=".nodeLabels",
        ),
        Rule(
            cel="!has(self.topologyName) || !has(self.topology)",
            message="topologyName and topology exclude each other",
            holds=lambda s: s.topology_name is None or s.topology is None,
        ),
    )
    node_labels: Annotated[Mapping[str, str], Field(max_length=8), ATOMIC_MAP] = {}
    """Labels that only the nodes of this flavor have.  Admitted pods get them as node selector."""
    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8), ATOMIC] = ()
    """Taints that the nodes of this flavor have.  A workload can use the flavor only if its pods tolerate them."""
    tolerations: Tolerations = ()
    """Tolerations that admitted pods get, so that they can run on the nodes of this flavor."""
    topology_name: ObjectName | None = None
    """Topology of the nodes; turns topology-aware placement on.  Once set it can neither be changed nor removed."""
    topology: InlineTopology | None = None
    """Topology of the nodes, written here instead of in an object of its own."""


class ResourceFlavor(Resource):
    """A class of nodes: those that share labels and taints, and so differ from others in price, speed or place."""

    rules = (
        Rule(
            cel="!has(oldSelf.spec) || !has(oldSelf.spec.topologyName) || "
            "(has(self.spec) && has(self.spec.topologyName) && self.spec.topologyName == oldSelf.spec.topologyName)",
            message="topologyName can neither be changed nor removed; create another ResourceFlavor instead",
            field=".spec.topologyName",
        ),
        Rule(
            cel="!has(oldSelf.spec) || !has(oldSelf.spec.topology) || (has(self.spec) && has(self.spec.topology))",
            message="topology cannot be removed; create another ResourceFlavor instead",
            field=".spec.topology",
        ),
    )
    served: ClassVar = Served(plural="resourceflavors", short_names=("flavor", "flavors", "rf"))
    kind: str = "ResourceFlavor"
    """Kind of the object."""
    spec: ResourceFlavorSpec = ResourceFlavorSpec()
    """Which nodes belong to the flavor, and how they are arranged."""
