"""A placement request as core values: the inputs of `place`, and the inputs that its answer repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kqueue.core.topology import (
    HOSTNAME,
    DomainUsage,
    Membership,
    NodeFacts,
    PodSetRequest,
    Profile,
    Toleration,
    TopologyAssignment,
)
from kqueue.placing.document import pointer
from kqueue.placing.fields import FieldProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorNodes:
    """The nodes of one flavor and their usage.

    Args:
        topology: the topology's name, for failures.
        flavor: the flavor's name, for texts.
        levels: node label keys, widest first.
        foreign: per node, usage of pods that are not placed by topology; `pods` included.
        usage: usage of workloads placed by topology, of this flavor and (where they count) of others.
    """

    topology: str
    flavor: str
    levels: tuple[str, ...]
    node_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    nodes: tuple[NodeFacts, ...]
    foreign: Mapping[str, Mapping[str, int]]
    usage: tuple[DomainUsage, ...]
    other_usage: tuple[DomainUsage, ...]

    @property
    def is_hostname(self) -> bool:
        """Whether leaves are hosts."""
        return self.levels[-1] == HOSTNAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The profile of a placement, and the switches that decide which usage counts."""

    profile: Profile
    overlapping_flavors: bool = True
    skip_pod_owned: bool = True
    elastic_slices: bool = False
    simulate_empty: bool = False
    duplicate_hostnames: str = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """JSON pointers of the parts of a pod set.

    Args:
        pod_set: the pod set.
        group: the name of its group; the pod set itself if it names none.
        layers: level and size of each slice layer, as in the request.
        selector: by label key, each requirement of the node selector, including requirements from updates.
    """

    pod_set: str
    group: str
    layers: tuple[tuple[str, str], ...] = ()
    selector: Mapping[str, str] = field(default_factory=dict)

    def of(self, *keys: str | int) -> str:
        """Return the pointer of a part below the pod set, by its keys."""
        path = self.pod_set
        for key in keys:
            path = pointer(path, key)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPodSet:
    """A pod set of the input.

    Args:
        request: the request of the planner; its count may be 0.
        places: JSON pointers of its parts.
        conflict: the reason that its updates cannot be merged; None if they can.
        assignment: its admitted assignment, for a replacement.
        previous: the assignment of the workload slice that it replaces.
    """

    request: PodSetRequest
    places: Places
    conflict: FieldProblem | None = None
    assignment: TopologyAssignment | None = None
    previous: TopologyAssignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """The optional parts of the answer."""

    paths: bool = False
    encoding: str = "none"
    quality: bool = False
    remaining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A placement request.

    Args:
        members: nodes that are leaves of the topology, and nodes that are left out.
        noted: remarks on valid inputs that the author probably did not intend.
    """

    name: str
    cluster: FlavorNodes
    members: Membership
    switches: Switches
    pod_sets: tuple[AskedPodSet, ...]
    unhealthy_nodes: tuple[str, ...] = ()
    owned_by_single_pod: bool = False
    output: OutputOptions = field(default=OutputOptions())
    noted: tuple[FieldProblem, ...] = ()
