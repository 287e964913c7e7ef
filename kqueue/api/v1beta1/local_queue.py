"""LocalQueue in v1beta1: `status.flavorUsage`, and a list of flavors in the status."""

from __future__ import annotations

from kqueue.api.resource_flavor import ResourceFlavor
from kqueue.api.schema import schema as schema_of
from kqueue.api.v1beta1.editing import (
    TEXT,
    OlderKind,
    Schema,
    at,
    described,
    listed,
    record,
    rename,
    unlimited_conditions,
)


def _edit(schema: Schema) -> None:
    unlimited_conditions(schema)
    rename(schema, "status", "flavorsUsage", "flavorUsage")
    at(schema, "status")["properties"]["flavors"] = _flavors()


def _flavors() -> Schema:
    """Return the list of flavors; kqueue neither writes nor keeps it."""
    flavor = at(schema_of(ResourceFlavor), "spec")["properties"]
    topology = record(
        "Topology of the flavor.",
        ("name", "levels"),
        name=described(TEXT, "Name of the Topology."),
        levels=listed(
            "Node labels of the levels.", TEXT, minItems=1, maxItems=16, **{"x-kubernetes-list-type": "atomic"}
        ),
    )
    item = record(
        "A flavor of the ClusterQueue.",
        ("name",),
        name=described(TEXT, "Name of the flavor."),
        resources=listed("Resources of the flavor.", TEXT, maxItems=64, **{"x-kubernetes-list-type": "set"}),
        nodeLabels=flavor["nodeLabels"],
        nodeTaints=flavor["nodeTaints"],
        topology=topology,
    )
    return listed(
        "Flavors of the ClusterQueue.  Not written any more, and not kept.",
        item,
        maxItems=64,
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


LOCAL_QUEUE = OlderKind(kind="LocalQueue", edit=_edit, converts=True)
