"""The state, watches, writers and reports of a process that the `setup` function of each controller uses.

Each controller module has one `setup(manager)` beside its reconciler.  It creates the reconciler, adds it to the
manager, and subscribes to the watches whose events enqueue a key.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.config import Configuration, Timings
from kqueue.controllers.held_pods import Sweep
from kqueue.controllers.owned_jobs import OwnedJobs
from kqueue.controllers.owner_context import OwnerContext
from kqueue.controllers.record import Recorder
from kqueue.controllers.short_stop import ShortStop
from kqueue.controllers.watches import Watches
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.core.hooks import HooksByProfile, PermitHooks
from kqueue.jobs.kind import JobKind
from kqueue.jobs.switches import JobFeatures
from kqueue.model import QueueOrder
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Controller, Reconcile
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.turns import Turns
from kqueue.runtime.workqueue import KeyRank
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage
from kqueue.state.moves import Moves
from kqueue.state.queues import Queues
from kqueue.state.reservations import Reservations
from kqueue.state.second_pass import SecondPass

KEYS_PER_TURN = 1000
"""The number of keys that a handler enqueues before the event loop runs other tasks."""

T = TypeVar("T")


class MoveMetrics(Protocol):
    """Counts moves of defragmentation plans."""

    def move_ended(self, result: str, pod_seconds: int) -> None:
        """Count a move that is over; `pod_seconds` is the work that it lost."""
        ...


class QueueDispatchMetrics(Protocol):
    """Counts Workloads of a ClusterQueue on worker clusters."""

    def dispatched(self, cluster: str) -> None:
        """Count a copy of a Workload that was created on a worker cluster."""
        ...

    def admitted_elsewhere(self, cluster: str) -> None:
        """Count a Workload that a worker cluster has admitted, and whose job it runs."""
        ...


class ControllerMetrics(Protocol):
    """Metrics that controllers report.  Numbers are present totals unless a method counts one event."""

    def workload_created(self, *, job_kind: str, seconds: float) -> None:
        """Count a Workload that was created when its owner was `seconds` old."""
        ...

    def recreation_stopped(self) -> None:
        """Count a Workload that was deactivated because it was created again too often."""
        ...

    def leaked_gates(self, pods: Mapping[str, int]) -> None:
        """Set the number of pods that stay gated, by reason."""
        ...

    def unmanaged_labelled(self, kind: str, objects: int) -> None:
        """Set the number of objects that name a queue and that no controller manages."""
        ...

    def cluster_queue(self, name: str) -> QueueDispatchMetrics:
        """Return the metrics of a ClusterQueue."""
        ...

    def rank_fallback(self, reason: str) -> None:
        """Count a workload whose pods were released although their ranks could not be used."""
        ...

    def learned_groups(self, groups: Callable[[], int]) -> None:
        """Call `groups` at each page for the number of groups whose run times are known."""
        ...

    @property
    def joint(self) -> MoveMetrics:
        """The metrics of moves."""
        ...


class PodCounter(Protocol):
    """Counts released pods, for metrics and the time from admission to release."""

    def on_released(self, workload: wire.Workload, in_order: bool | None) -> None:
        """Count a gang that the topology ungater has released."""
        ...

    def on_elastic_released(self, workload: wire.Workload, pods: int) -> None:
        """Count pods of an elastic job that were released."""
        ...

    def on_started(self, workload: wire.Workload, pods: int) -> None:
        """Count pods whose admission gate was removed."""
        ...


class Manager(Protocol):
    """One controller process, as its controllers use it."""

    client: Client
    """The client of the API server; it writes only while this process leads."""
    config: Configuration
    timings: Timings
    clock: Clock
    parts: frozenset[str]
    """The parts of kqueue that this process runs."""
    kinds: tuple[JobKind, ...]
    """The enabled job kinds."""
    watches: Watches
    cache: Cache
    queues: Queues
    second_pass: SecondPass
    fair_usage: FairUsage | None
    """The recent usage of LocalQueues; None: it does not affect the order."""
    switches: JobFeatures
    """Feature gates of job kinds."""
    turns: Turns
    """Spreads writes that only report a reason to users over time."""
    steps: WorkloadSteps
    """The steps for the Workload of any owner."""
    short_stop: ShortStop
    owned_jobs: OwnedJobs
    workload_writer: StatusWriter[wire.Workload]
    on_lead: list[Callable[[], None]]
    """Called when this process becomes the leader, before any write."""
    background: list[Callable[[], Coroutine[Any, Any, None]]]
    """Tasks that run beside the controllers while this process leads."""
    everywhere: list[Callable[[], Coroutine[Any, Any, None]]]
    """Tasks that run in every process, whether it leads or not; they write nothing."""
    on_configuration: list[Callable[[], Coroutine[Any, Any, None]]]
    """Called in order after queues, cohorts, flavors, topologies, checks or namespaces changed; many changes at once
    cause one call.
    """
    wake: Callable[[], None]
    """Wakes the scheduling loop."""
    moves: Moves
    """The resources that plans of moves keep for workloads."""
    reservations: Reservations
    """The hosts that are kept for Reservations."""
    leads: Callable[[], bool]
    is_loaded: Callable[[], bool]
    """Whether the process writes many decisions a second."""
    charge_pod: Callable[[str, str, Mapping[str, int] | None], None]
    """See `Intake.charge_pod`."""
    release_pod: Callable[[str], None]

    order: QueueOrder
    """The times that order workloads of equal priority."""

    @property
    def hooks(self) -> HooksByProfile:
        """The plugins of all points but `order` and `permit`, by profile."""
        ...

    @property
    def permits(self) -> PermitHooks:
        """The plugins that AdmissionChecks can name."""
        ...

    @property
    def metrics(self) -> ControllerMetrics:
        """The metrics that controllers report."""
        ...

    @property
    def counter(self) -> PodCounter:
        """The counter of pods that ungaters release."""
        ...

    def shared(self, make: Callable[[Manager], T]) -> T:
        """Return the only value of this process that `make` creates; `make` is called at the first use."""
        ...

    def recorder(self, controller: str) -> Recorder:
        """Return a recorder of events whose reporting controller has this name."""
        ...

    def controller(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 1,
        group_kind: str = "",
        rank_of: Callable[[str], KeyRank] | None = None,
    ) -> Controller:
        """Add a work queue whose keys `reconcile` processes while this process leads.

        `workers` is the number of keys at a time, unless the configuration has another number for `group_kind`
        (`Kind.group`, or `Kind`). `rank_of` is as in `Controller`.
        """
        ...

    def writer(self, resource: ResourceType, watch: Reflector[Any, Any], decode: type[Any]) -> StatusWriter[Any]:
        """Return a writer of objects of one kind, based on their watch."""
        ...

    def sweep(self) -> Sweep:
        """Return the intervals of checks of pods that stay gated."""
        ...

    def owner_context(self, framework: str) -> OwnerContext:
        """Return the context of the reconcilers of one kind of owners; their events name the framework's reconciler."""
        ...

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None: the watch has no namespace of that name."""
        ...

    def manages(self, namespace: str) -> bool:
        """Whether jobs of the namespace are managed (`managedJobsNamespaceSelector`)."""
        ...

    def pods_left(self, siblings: str) -> bool:
        """Whether pods that need the quota of a Workload, or of its siblings, have not ended; see `PodView`."""
        ...

    def host_of(self, node: str) -> str | None:
        """Return the hostname label of a node; None: the node is unknown or has no such label."""
        ...


Setup = Callable[[Manager], None]
"""A function that adds one controller to a process."""
