"""A joint placement as values: several workloads, their queues, and the settings of the round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.settings import JointSettings
from kqueue.core.joint.statistics import NodeStatistics
from kqueue.core.joint.traits import NO_TRAITS, Traits
from kqueue.core.quota import Quota
from kqueue.core.topology import DomainUsage, Membership, PodSetRequest, TopologyAssignment
from kqueue.placing.fields import FieldProblem
from kqueue.placing.values import AskedPodSet, FlavorNodes, OutputOptions, Switches

STRICT_FIFO, BEST_EFFORT = "StrictFIFO", "BestEffortFIFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQueue:
    """A queue of the input.

    Args:
        cohort: None: the queue borrows from no other.
        quota: by resource; resources without an entry have no limit.
        weight: of its fair share, in billionths.
    """

    name: str
    cohort: str | None = None
    strategy: str = BEST_EFFORT
    quota: Mapping[str, Quota]
    weight: int = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWorkload:
    """A workload of the input.

    Args:
        path: its JSON pointer.
        waited: seconds.
        profile: how domains are chosen for its pods.
        traits: what it tells the policies.
    """

    name: str
    path: str
    pod_sets: tuple[AskedPodSet, ...]
    queue: str
    priority: int
    waited: int
    profile: str
    traits: Traits = NO_TRAITS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPods:
    """Pods of a running workload.

    Args:
        path: the JSON pointer of the assignment.
    """

    path: str
    request: PodSetRequest
    assignment: TopologyAssignment

    def usage(self) -> list[DomainUsage]:
        """Return the usage of their domains."""
        return [DomainUsage(d.values, self.request.requests, d.count) for d in self.assignment.domains]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorkload:
    """A workload of the input that runs already, and stays where it is."""

    name: str
    queue: str
    pods: tuple[RunningPods, ...]
    traits: Traits = NO_TRAITS


@dataclass(frozen=True, slots=True, kw_only=True)
class JointCase:
    """A joint placement.

    Args:
        running: empty if the placement is as if no admitted workload were there.
        exact: whether the optimum is computed, too.
    """

    name: str
    cluster: FlavorNodes
    members: Membership
    switches: Switches
    queues: tuple[AskedQueue, ...]
    workloads: tuple[AskedWorkload, ...]
    running: tuple[RunningWorkload, ...]
    settings: JointSettings
    policies: tuple[PolicySpec, ...]
    statistics: NodeStatistics
    exact: bool
    output: OutputOptions
    noted: tuple[FieldProblem, ...] = ()
