"""Turns a document into a placement request, or into the list of all its problems."""

from __future__ import annotations

from typing import Any

from kqueue.core.topology import HOSTNAME, Membership, membership
from kqueue.placing.cluster import cluster
from kqueue.placing.document import pointer
from kqueue.placing.fields import FieldProblem, Problems
from kqueue.placing.requests import output_options, pod_sets, switches, workload
from kqueue.placing.values import Case, FlavorNodes, Switches

_KEYS = ("name", "topology", "flavor", "nodes", "usage", "algorithm", "workload", "podSets", "output")


def read(document: Any) -> Case | list[FieldProblem]:
    """Return the placement request of a document, or all its problems."""
    problems = Problems()
    fields = problems.fields(document, "", _KEYS)
    name = fields.text("name")
    found_cluster = cluster(problems, fields)
    levels = found_cluster.levels
    chosen = switches(problems, fields)
    unhealthy, owned, together = workload(problems, fields, levels)
    asked = pod_sets(problems, fields, levels, together=together)
    output = output_options(problems, fields)
    if problems:
        return problems.found
    members = members_of(problems, found_cluster, chosen)
    return problems.found or Case(
        name=name,
        cluster=found_cluster,
        members=members,
        switches=chosen,
        pod_sets=asked,
        unhealthy_nodes=unhealthy,
        owned_by_single_pod=owned,
        output=output,
        noted=tuple(problems.remarks),
    )


def members_of(problems: Problems, found: FlavorNodes, chosen: Switches) -> Membership:
    """Return the nodes of the topology, by leaf; note nodes that share a host name where that is an error."""
    members = membership(
        found.nodes,
        levels=found.levels,
        node_labels=found.node_labels,
        merge_duplicate_hostnames=chosen.duplicate_hostnames == "merge",
    )
    if chosen.duplicate_hostnames == "error" and found.is_hostname:
        _check_hostnames(problems, found, members)
    return members


def _check_hostnames(problems: Problems, found: FlavorNodes, members: Membership) -> None:
    """Note nodes of the flavor that share a host name."""
    for i, node in enumerate(found.nodes):
        if node.name in members.duplicates:
            problems.add(
                pointer(pointer(f"/nodes/{i}", "labels"), HOSTNAME),
                f"node {members.duplicates[node.name]} has the host name {node.labels[HOSTNAME]!r}, too: correct one "
                "of them, or set algorithm.duplicateHostnames to drop or merge",
            )
