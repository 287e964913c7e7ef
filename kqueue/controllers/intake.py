"""Applies watch events to the cache and the queues, and publishes wake-ups.

Handlers are plain functions that run when an event is read, so cache and queues change together.  An event that frees
or changes capacity publishes a `WakeUp` (`docs/architecture.md` lists all sources and scopes).  The ClusterQueues that
the wake-ups of one window can help are flushed together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.selectors import selector_matches
from kqueue.clock import Clock
from kqueue.core import quota
from kqueue.core.node_classes import NodeClass
from kqueue.core.topology import NodeFacts, PodFacts
from kqueue.core.workload import Admission, Claim
from kqueue.isolation import isolated_logged
from kqueue.model import DEFAULT_ORDER, PodView, QueueOrder
from kqueue.model.pending import LastTry, Pending
from kqueue.model.variants import is_parent
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage
from kqueue.state.holding import Holding
from kqueue.state.profile_orders import ProfileOrders
from kqueue.state.quarantine import Quarantine
from kqueue.state.queue_policy import POLICIES
from kqueue.state.queues import Queues
from kqueue.state.wake_up import Haste, WakeUp, WakeUpSource

_log = structlog.get_logger(__name__)


_FLUSH_MIN = 0.02
"""The shortest window in seconds, however quick the tries are: it collects several watch events."""
_FLUSH_REST = 2
"""Windows last this many times as long as the tries before them, so tries take at most a third of the time."""


class Window:
    """Collects names and passes them on together; `seconds` returns the length of a window that begins with the first
    name.

    A wake-up of trees is collected as it is, and becomes names (`names_of`) when they are read: a thousand changes in
    one tree walk the tree once.
    """

    def __init__(
        self,
        clock: Clock,
        seconds: Callable[[], float],
        act: Callable[[frozenset[str]], None],
        names_of: Callable[[WakeUp], Iterable[str]] = lambda _: (),
    ) -> None:
        self._clock, self._seconds, self._act, self._names_of = clock, seconds, act, names_of
        self._names: set[str] = set()
        self._wake_ups: set[WakeUp] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, names: Iterable[str]) -> None:
        """Add names to the open window, or open one."""
        self._names.update(names)
        self._open()

    def add_trees(self, wake_up: WakeUp) -> None:
        """Add the names of trees to the open window, or open one."""
        self._wake_ups.add(wake_up)
        self._open()

    def _open(self) -> None:
        if (self._names or self._wake_ups) and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._wait())

    @property
    def names(self) -> Collection[str]:
        """The collected names. Callers must not change them."""
        if self._wake_ups:
            wake_ups, self._wake_ups = self._wake_ups, set()
            self._names.update(self._names_of(WakeUp.together(wake_ups)))
        return self._names

    def now(self) -> None:
        """Pass the collected names on now."""
        if self.names:
            self._hand_over()

    async def _wait(self) -> None:
        await self._clock.sleep(self._seconds())
        if self.names:
            self._hand_over()

    def _hand_over(self) -> None:
        names, self._names = frozenset(self._names), set()
        with isolated_logged(_log, "collected names could not be handled", names=len(names)):
            self._act(names)

    async def close(self) -> None:
        """Drop the collected names."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeState:
    """The state that events change.

    Args:
        fair_usage: the recent usage of LocalQueues; None: it does not affect the order.
        quarantine: workloads that are not tried because of an error.
        orders: the orders of workloads by the profile of their ClusterQueue.
    """

    cache: Cache
    queues: Queues
    fair_usage: FairUsage | None = None
    quarantine: Quarantine = field(default_factory=Quarantine)
    orders: ProfileOrders = field(default_factory=ProfileOrders)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """The settings by which events are collected; windows in seconds.

    Args:
        order: as in `model.queue_time`.
        waits_for_ready: whether the loop may wait until the pods of a workload are ready.
        concurrent: whether parents of variants wait in no queue.
    """

    flush_window: float = 1.0
    node_window: float = 1.0
    foreign_drain: float = 10.0
    order: QueueOrder = DEFAULT_ORDER
    waits_for_ready: bool = False
    concurrent: bool = False


DEFAULT_SETTINGS = IntakeSettings()


class Intake:
    """Keeps cache and queues consistent with the watches."""

    def __init__(
        self,
        state: IntakeState,
        *,
        namespace_labels: Callable[[str], Mapping[str, str] | None],
        wake: Callable[[], None],
        clock: Clock,
        settings: IntakeSettings = DEFAULT_SETTINGS,
        tries: Callable[[], float] | None = None,
    ) -> None:
        """Take the state and the functions; `wake` wakes the scheduling loop.

        `tries` returns the seconds that tries have taken so far: if tries are quick, windows are shorter.  None:
        windows have their full length.
        """
        self._clock, self._fair_usage, self._quarantine = clock, state.fair_usage, state.quarantine
        self._cache, self._queues, self._wake, self._orders = state.cache, state.queues, wake, state.orders
        self._namespace_labels, self._order = namespace_labels, settings.order
        self._concurrent = settings.concurrent
        self._waits_for_ready, self._flush_window, self._tries = settings.waits_for_ready, settings.flush_window, tries
        self._cache.gangs.on_leader = self.on_leader
        self._cache.gangs.on_promise = self.on_promise
        self._tried = self._flushing = 0.0  # seconds: all tries until the last window opened; flushes so far
        self._flushes = Window(clock, self._flush_after, self._flush, self._helped_by)
        self._changed_nodes = Window(clock, lambda: settings.node_window, self._flush)
        self._freed_nodes = Window(clock, lambda: settings.foreign_drain, self._drain)
        self._windows = {
            Haste.AT_ONCE: self._flushes,
            Haste.SOON: self._flushes,
            Haste.WITH_NODES: self._changed_nodes,
        }

    async def close(self) -> None:
        """Stop the windows."""
        await self._flushes.close()
        await self._changed_nodes.close()
        await self._freed_nodes.close()

    def look_at_parked(self, *, fitting: bool) -> int:
        """Activate parked workloads at once whose result may differ after capacity was freed or changed.

        `fitting`: only workloads whose missing quota was freed; the others follow with the next flush.  Returns the
        largest number of workload shapes that became active in one ClusterQueue; 0: none.
        """
        if fitting:
            return self._queues.bring_back(self._flushes.names, self._fits_now)
        most = max((self._queues.shape_counts(name)[1] for name in self._flushes.names), default=0)
        self._flushes.now()
        return most

    def _fits_now(self, queue: str, item: Pending, verdict: LastTry) -> bool:
        node = self._cache.quota.node_of(queue)
        if node is None or not self._may_enter(queue, item):
            return False
        return any(quota.available(node, column) >= amount for column, amount in verdict.lacks)

    # --- workloads ---------------------------------------------------------------------------------------------

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Follow a Workload that reserves quota, waits, is over, or is gone."""
        seen = new if new is not None else old
        assert seen is not None
        key = model.workload_key(seen)
        self._quarantine.observe(key, new)
        try:
            self._take_in(key, old, new)
        except Exception as e:
            if new is not None and model.is_queueable(new) and self._cache.held.holding(key) is None:
                self._keep_out(key, new, e)
            raise

    def _keep_out(self, key: str, obj: wire.Workload, error: Exception) -> None:
        """Quarantine a workload that could not be queued: no later step would try it or give a reason."""
        self._queues.delete(key)
        queue = self._queues.cluster_queue_of(f"{obj.metadata.namespace}/{obj.spec.queue_name}") or ""
        now = self._clock.now()
        self._quarantine.strike(key, obj, error, doing="taking it in", queue=queue, now=now, for_good=True)
        self._publish(WakeUp(source=WakeUpSource.WORKLOAD))

    def _take_in(self, key: str, old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        assert seen is not None
        held = self._cache.held.holding(key)
        gave_back = self._cache.held.on_workload(key, new, old)
        if self._fair_usage is not None and self._fair_usage.is_entering(key):
            self._follow_usage(self._fair_usage, key, new)
        if gave_back or (new is not None and _is_leaving(new)):
            self._queues.end_hold(key)
        if new is None or model.is_over(new):
            self._queues.delete(key)
            self._help_others(seen, held)
            return
        holding = self._cache.held.holding(key)
        if gave_back or _shrank(held, holding) or _weighs_another(held, holding):
            self._help_others(seen, held)
        if self._waits_for_ready and _is_ready(holding) and not _is_ready(held):
            self._publish(WakeUp(source=WakeUpSource.WORKLOAD))
        if not model.is_queueable(new) or (self._concurrent and is_parent(new)):
            if self._queues.is_known(key):
                self._queues.delete(key)
                self._publish(WakeUp(source=WakeUpSource.WORKLOAD))  # capacity reserved for the workload is free
        elif holding is None and key not in self._quarantine:
            self._queues.push(self._quarantine.delayed(self._cache.requests.pending(new, self._order)))

    def _follow_usage(self, fair: FairUsage, key: str, new: wire.Workload | None) -> None:
        holding = self._cache.held.holding(key)
        admitted = holding is not None and holding.admitted
        used = self._cache.held.held_through(holding.local_queue, holding.queue).used if holding is not None else {}
        fair.follow(key, new, admitted=admitted, used=used, now=self._clock.now())

    def _help_others(self, obj: wire.Workload, held: Holding | None) -> None:
        """Publish that quota or nodes of a workload may be free; `held` is the workload's usage until then."""
        queue = self._queues.cluster_queue_of(model.local_queue_key(obj))
        trees, flavors = {queue} if queue is not None else set[str](), frozenset[str]()
        if held is not None:
            trees.add(held.queue)
            pod_sets = held.admission.pod_sets
            flavors = frozenset(f for p in pod_sets if p.topology is not None for f in p.flavors.values())
        self._publish(WakeUp(source=WakeUpSource.WORKLOAD, trees_of=frozenset(trees), nodes_of=flavors))

    def on_claim_ended(self, claim: Claim) -> None:
        """Publish that a preemptor was admitted or gave up: its victims may be tried, and the capacity that it kept is
        free.
        """
        trees = frozenset({claim.queue, *(queue for queue, _key in claim.victims.values())})
        self._publish(WakeUp(source=WakeUpSource.CLAIM, trees_of=trees, nodes_of=frozenset(claim.domains)))

    def on_leader(self, flavor: str) -> None:
        """Publish that a flavor is no longer kept for the gang for which it was."""
        self._publish(WakeUp(source=WakeUpSource.GANG, flavors=frozenset({flavor})))

    def on_promise(self, queue: str) -> None:
        """Publish that the amounts that were promised to a gang of this ClusterQueue are free for others."""
        self._publish(WakeUp(source=WakeUpSource.GANG, trees_of=frozenset({queue})))

    # --- queues ------------------------------------------------------------------------------------------------

    def on_cluster_queue(self, old: wire.ClusterQueue | None, new: wire.ClusterQueue | None) -> None:
        """Follow a ClusterQueue that was created, changed or deleted."""
        seen = new if new is not None else old
        assert seen is not None
        name = seen.metadata.name
        changed = old is None or new is None or not model.same_queue(old, new)
        self._cache.quota.on_cluster_queue(name, new)
        self._cache.budgets.on_cluster_queue(name, new)
        fair = self._fair_usage
        by_usage = fair is not None and fair.on_cluster_queue(name, new)
        if new is None:
            self._queues.remove_cluster_queue(name)
        else:
            usage = fair.usage if fair is not None and by_usage else None
            order = self._orders.of(name, model.plugin_profile(new.metadata))
            self._queues.set_cluster_queue(name, POLICIES[new.spec.queueing_strategy], usage=usage, order=order)
        if changed:
            cohorts = {obj.spec.cohort_name or "" for obj in (old, new) if obj is not None}
            mine = frozenset({name})
            source, parents = WakeUpSource.CLUSTER_QUEUE, frozenset(cohorts - {""})
            self._publish(WakeUp(source=source, cluster_queues=mine, trees_of=mine, cohorts=parents))

    def on_budget(self, queue: str) -> None:
        """Publish that a budget of a ClusterQueue has renewed, or is larger."""
        self._publish(WakeUp(source=WakeUpSource.CLUSTER_QUEUE, cluster_queues=frozenset({queue})))

    def on_cohort(self, old: wire.Cohort | None, new: wire.Cohort | None) -> None:
        """Follow a Cohort that was created, changed or deleted; workloads of its whole tree are tried again."""
        seen = new if new is not None else old
        assert seen is not None
        name = seen.metadata.name
        if old is not None and new is not None and old.spec == new.spec:
            return  # only its status was written
        self._cache.quota.on_cohort(name, new)
        cohorts = {name, *(obj.spec.parent_name or "" for obj in (old, new) if obj is not None)}
        self._publish(WakeUp(source=WakeUpSource.COHORT, cohorts=frozenset(cohorts - {""})))

    def on_local_queue(self, old: wire.LocalQueue | None, new: wire.LocalQueue | None) -> None:
        """Follow a LocalQueue that was created, stopped, resumed, changed or deleted."""
        seen = new if new is not None else old
        assert seen is not None
        key = f"{seen.metadata.namespace}/{seen.metadata.name}"
        open_for_business = (
            new is not None and new.spec.stop_policy == "None" and new.metadata.deletion_timestamp is None
        )
        if self._fair_usage is not None:
            self._fair_usage.on_local_queue(key, new, self._clock.now())
        self._queues.set_local_queue(key, new.spec.cluster_queue if new is not None and open_for_business else None)

    def on_flavor(self, old: wire.ResourceFlavor | None, new: wire.ResourceFlavor | None) -> None:
        """Follow a ResourceFlavor that was created, changed or deleted."""
        seen = new if new is not None else old
        assert seen is not None
        name = seen.metadata.name
        self._cache.on_flavor(name, new)
        if old is None or new is None or old.spec != new.spec or _class_of(old) != _class_of(new):
            self._publish(WakeUp(source=WakeUpSource.FLAVOR, flavors=frozenset({name})))

    def on_topology(self, old: wire.Topology | None, new: wire.Topology | None) -> None:
        """Follow a Topology that was created, changed or deleted."""
        seen = new if new is not None else old
        assert seen is not None
        name = seen.metadata.name
        self._cache.quota.on_topology(name, new)
        flavors = frozenset(self._cache.quota.flavors_of_topology(name))
        self._publish(WakeUp(source=WakeUpSource.TOPOLOGY, flavors=flavors))

    def on_check(self, old: wire.AdmissionCheck | None, new: wire.AdmissionCheck | None) -> None:
        """Follow an AdmissionCheck that was created, changed or deleted; queues may become active."""
        seen = new if new is not None else old
        assert seen is not None
        self._cache.quota.on_check(seen.metadata.name, new)
        self._publish(WakeUp(source=WakeUpSource.CHECK, everywhere=True))

    def on_namespace(self, old: wire_core.Namespace | None, new: wire_core.Namespace | None) -> None:
        """Follow a namespace that was created or whose labels changed; queues may select it now."""
        if new is not None and (old is None or old.metadata.labels != new.metadata.labels):
            self._publish(WakeUp(source=WakeUpSource.NAMESPACE, everywhere=True))

    # --- nodes and foreign pods --------------------------------------------------------------------------------

    def on_node(self, old: NodeFacts | None, new: NodeFacts | None) -> None:
        """Follow a node that was created, changed or deleted; heartbeats change nothing."""
        seen = new if new is not None else old
        assert seen is not None
        before = self._cache.ledger.flavors_of(seen.name)
        if self._cache.on_node(seen.name, new):
            flavors = frozenset({*before, *self._cache.ledger.flavors_of(seen.name)})
            self._publish(WakeUp(source=WakeUpSource.NODE, flavors=flavors))

    def on_pod(self, old: PodView | None, new: PodView | None) -> None:
        """Follow a bound pod that was created, changed or deleted.

        Capacity that a pod without a Workload frees is used later, because such pods come and go often.
        """
        seen = new if new is not None else old
        assert seen is not None
        before, after = old.bound if old is not None else None, new.bound if new is not None else None
        if before != after:
            queue = self._cache.held.charged_pod(seen.key)
            self._freed_nodes.add(self._cache.on_pod(seen.key, after))
            if queue is not None and self._cache.held.charged_pod(seen.key) is None:
                self._publish(WakeUp(source=WakeUpSource.CHARGED_POD, trees_of=frozenset({queue})))

    def recount_pod(self, key: str, facts: PodFacts | None) -> None:
        """Follow the devices of a bound pod, which its claims name."""
        self._freed_nodes.add(self._cache.on_pod(key, facts))

    def charge_pod(self, pod: str, local_queue: str, amounts: Mapping[str, int] | None = None) -> None:
        """Charge a running pod (namespace/name) to the ClusterQueue of a LocalQueue until the pod has ended.

        `amounts` are the amounts to charge; None: all requests.  No effect if the LocalQueue has no ClusterQueue, or no
        event has reported the pod yet.
        """
        queue = self._queues.cluster_queue_of(local_queue)
        if queue is not None and self._cache.held.charge_pod(pod, local_queue, queue, amounts):
            _log.warning("a pod runs without quota and is charged", pod=pod, cluster_queue=queue)

    def release_pod(self, pod: str) -> None:
        """End the charge of a pod."""
        queue = self._cache.held.release_pod(pod)
        if queue is not None:
            self._publish(WakeUp(source=WakeUpSource.CHARGED_POD, trees_of=frozenset({queue})))

    # --- flushes -----------------------------------------------------------------------------------------------

    def retry_all(self) -> None:
        """Try all waiting workloads again: an audit has corrected the state on which they were tried."""
        self._publish(WakeUp(source=WakeUpSource.AUDIT, everywhere=True))

    def _publish(self, wake_up: WakeUp) -> None:
        """Collect the ClusterQueues that a change can help, and wake the scheduling loop if the change is urgent."""
        haste = wake_up.source.haste
        window = self._windows[haste]
        if window is self._flushes and wake_up.is_of_trees:
            window.add_trees(wake_up)
        else:
            window.add(self._helped_by(wake_up))
        if haste is Haste.AT_ONCE:
            self._wake()

    def _helped_by(self, wake_up: WakeUp) -> frozenset[str]:
        return self._queues.helped_by(wake_up, self._cache.quota)

    def _drain(self, nodes: frozenset[str]) -> None:
        flavors = frozenset(f for node in nodes for f in self._cache.ledger.flavors_of(node))
        self._publish(WakeUp(source=WakeUpSource.FOREIGN_POD, flavors=flavors))

    def _flush_after(self) -> float:
        """Return the seconds until the next flush: a multiple of the time that tries have taken since the last one."""
        if self._tries is None:
            return self._flush_window
        tried = self._tries() + self._flushing
        took, self._tried = tried - self._tried, tried
        return min(self._flush_window, max(_FLUSH_MIN, _FLUSH_REST * took))

    def _flush(self, queues: frozenset[str]) -> None:
        began = self._clock.monotonic()
        moved = self._queues.flush(queues, self._may_enter)
        self._flushing += self._clock.monotonic() - began
        if moved:
            _log.debug("workloads are tried again", cluster_queues=len(queues), workloads=moved)
        self._wake()

    def _may_enter(self, queue: str, item: Pending) -> bool:
        obj = self._cache.quota.queue_object(queue)
        labels = self._namespace_labels(item.key.partition("/")[0])
        return obj is not None and labels is not None and selector_matches(obj.spec.namespace_selector, labels)


def _is_leaving(obj: wire.Workload) -> bool:
    """Whether a workload was evicted and still holds quota."""
    kinds = (names.CONDITION_EVICTED, names.CONDITION_QUOTA_RESERVED)
    return all(model.condition_true(obj, kind) for kind in kinds)


def _is_ready(holding: Holding | None) -> bool:
    return holding is not None and holding.ready


def _shrank(before: Holding | None, after: Holding | None) -> bool:
    """Whether a workload keeps running with less usage than before, because some of its pods have ended for good."""
    if before is None or after is None or before.admission == after.admission:
        return False
    left = after.admission.usage()
    return any(left.get(column, 0) < amount for column, amount in before.admission.usage().items()) or (
        _places(after.admission) < _places(before.admission)
    )


def _weighs_another(before: Holding | None, after: Holding | None) -> bool:
    """Whether a workload keeps running with another priority, so that other workloads may preempt it now."""
    return before is not None and after is not None and before.priority != after.priority


def _places(admission: Admission) -> int:
    return sum(held.topology.count for held in admission.pod_sets if held.topology is not None)


def _class_of(flavor: wire.ResourceFlavor) -> NodeClass:
    return model.node_class(flavor.metadata.annotations)
