"""Lists failed hosts in the status of Workloads, and removes hosts from the list that have recovered.

A node that is gone has failed at once.  A node that is not ready, or has a taint that the pods do not tolerate, has
failed for a workload when no pod of the workload runs there.  Until then the node may recover, and running
pods would not be counted after a move to other domains.  Pods of the workload count by the node that runs them, with or
without the annotations and the node selector of placed pods.

The reconciler ends pods that are pinned to a failed host and were never bound, so that their job creates new pods for
the replacement host.  It also ends pods that were released to a host and never bound if their workload is no longer
admitted.

A ready node may be bad for only one workload.  Failures of pods are recorded by node.  A node on which pods of a
workload failed repeatedly has failed for this workload as soon as none of its pods runs there.

Keys are hosts: the hostname label of nodes, which assignments and node selectors name.
Source: KEP-2724, node failures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.host_marks import HostMarks
from kqueue.controllers.hosts import HostIndex, hosts_of_node, node_of, stuck_on
from kqueue.controllers.manager import Manager
from kqueue.controllers.pinned_pods import PinnedPods
from kqueue.controllers.record import Reporter
from kqueue.controllers.taint_tolerance import TaintTolerance, Tolerance
from kqueue.core.topology import HOSTNAME, NodeFacts, uses_host
from kqueue.model import GangPod, PodView
from kqueue.runtime.controller import Result
from kqueue.state import failures
from kqueue.state.cache import Cache

_log = structlog.get_logger(__name__)

FIXED_DELAY = 30.0
"""Seconds for which a node may be not ready if pods are not checked.  Source: the compatible system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSwitches:
    """The conditions under which a node has failed; each field names its feature gate."""

    on_pod_termination: bool = True
    """TASReplaceNodeOnPodTermination: a bad node has failed only when its pods have stopped."""
    after_fixed_time: bool = False
    """TASReplaceNodeDueToNotReadyOverFixedTime: a node that was not ready for 30 s has failed, too."""
    on_taints: bool = True
    """TASReplaceNodeOnNodeTaints: taints that pods do not tolerate are failures, too."""


@dataclass(slots=True)
class _Findings:
    """The workloads for which one host has failed or recovered, and the pods that must end."""

    failed: dict[str, wire.Workload] = field(default_factory=dict)
    healthy: list[str] = field(default_factory=list)
    stuck: list[tuple[str, GangPod]] = field(default_factory=list)


class NodeHealth:
    """The reconciler of hosts."""

    def __init__(
        self,
        *,
        hosts: HostIndex,
        marks: HostMarks,
        cache: Cache,
        taints: TaintTolerance,
        pinned: PinnedPods,
        clock: Clock,
        switches: FailureSwitches | None = None,
    ) -> None:
        """Create the reconciler.

        Args:
            hosts: the nodes and pods of each host.
            marks: writes failed hosts to Workloads.
            cache: the usage of Workloads; it must get each event of a Workload before `observe_workload` does.
            taints: compares taints with the tolerations of Workloads.
            pinned: ends pods that can never run.
            clock: gives the time for which a node has not been ready.
            switches: the conditions of a failure; None: the defaults.
        """
        self._hosts, self._marks, self._cache, self._taints = hosts, marks, cache, taints
        self._pinned, self._clock = pinned, clock
        self._switches = switches or FailureSwitches()
        self._hosts_of: dict[str, frozenset[str]] = {}
        self._workloads_on: defaultdict[str, set[str]] = defaultdict(set)

    # --- hosts to reconcile -------------------------------------------------------------------------------------

    def observe_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> set[str]:
        """Record the hosts of a Workload.

        Returns the hosts that the Workload no longer uses although pods of it will still start there.
        """
        if old is not None and new is not None and _holds_the_same(old.status, new.status):
            return set()
        seen = new if new is not None else old
        assert seen is not None
        key = model.workload_key(seen)
        holding = self._cache.held.of_pods(key)
        hosts: set[str] = set()
        for held in holding.admission.pod_sets if holding is not None else ():
            if held.topology is not None and held.topology.levels[-1] == HOSTNAME:
                hosts.update(domain.values[-1] for domain in held.topology.domains)
        left = self._hosts_of.pop(key, frozenset()) - hosts
        for host in left:
            self._workloads_on[host].discard(key)
            if not self._workloads_on[host]:
                del self._workloads_on[host]
        if hosts:
            self._hosts_of[key] = frozenset(hosts)
            for host in hosts:
                self._workloads_on[host].add(key)
        goes_on = new is not None and not model.condition_true(new, names.CONDITION_FINISHED)
        return {host for host in left if self._has_strays(key, host)} if goes_on else set()

    def _has_strays(self, key: str, host: str) -> bool:
        return bool(stuck_on((pod for pod in self._hosts.pinned(host) if pod.workload == key), host))

    def hosts_of_node_event(self, old: NodeFacts | None, new: NodeFacts | None) -> set[str]:
        """Return the hosts to reconcile after a change of a node.

        A new healthy node is returned only if workloads use its host.
        """
        hosts = {host for node in (old, new) if node is not None for host in hosts_of_node(node)}
        if old is not None and new is not None and old.labels.get(HOSTNAME) == new.labels.get(HOSTNAME):
            same = (old.ready, old.not_ready_since, old.taints) == (new.ready, new.not_ready_since, new.taints)
            return set() if same else hosts
        return {host for host in hosts if host in self._workloads_on}

    def hosts_of_pod_event(self, old: PodView | None, new: PodView | None) -> set[str]:
        """Return the hosts to reconcile after a change of a pod.

        A host is returned if the pod has failed on it.  It is also returned if the pod ends or waits to start, and the
        host is troubled or no longer used by the pod's workload.
        """
        before, after = old.gang if old is not None else None, new.gang if new is not None else None
        pod = after or before
        if pod is None:
            return self._hosts_of_unmarked(old, new)
        if pod.node and after is not None and not after.terminal and not after.deleting:
            return set()
        host = pod.node_selector.get(HOSTNAME) or self._hosts.of_node(pod.node)
        if host is None:
            return set()
        fell = after is not None and after.failed and bool(after.node) and (before is None or not before.failed)
        strays = not pod.node and not pod.gated and pod.workload not in self._workloads_on.get(host, ())
        return {host} if fell or strays or self._hosts.is_troubled(host) else set()

    def _hosts_of_unmarked(self, old: PodView | None, new: PodView | None) -> set[str]:
        """Return the host of a pod that ends on a troubled node and lacks the annotations of placed pods."""
        name = node_of(old) if old is not None else ""
        runs_on = new is not None and node_of(new) == name and not new.leaving
        host = self._hosts.of_node(name)
        return {host} if host is not None and not runs_on and self._hosts.is_troubled(host) else set()

    def troubled_hosts(self) -> Iterator[str]:
        """Yield the used hosts whose nodes are gone or bad, and the hosts that workloads list as failed."""
        for host in self._workloads_on:
            if self._hosts.is_troubled(host):
                yield host
        for key in self._hosts_of:
            workload = self._marks.newest(key)
            for listed in workload.status.unhealthy_nodes if workload is not None else ():
                yield listed.name

    # --- one host ----------------------------------------------------------------------------------------------

    async def reconcile(self, host: str) -> Result:
        """Check one host, and every workload that uses it or has pods pinned to it."""
        node = self._hosts.node(host)
        gone = node is None or (not node.ready and node.not_ready_since is None)
        left = self._until_overdue(node)
        if not gone and left > 0 and not self._switches.on_pod_termination:
            return Result(requeue_after=left)
        overdue = node is not None and node.not_ready_since is not None and left <= 0
        await self._blame(host, node)
        findings = _Findings()
        for key, workload in self._concerned(host).items():
            siblings = model.siblings_key(workload)
            pods = [pod for pod in self._hosts.pods_at(host, node) if pod.siblings == siblings]
            if _waits(workload):
                if self._cache.held.of_pods(key) is None:
                    findings.stuck += [(key, pod) for pod in stuck_on(pods, host) if _lacks_admission(pod)]
                continue
            if not self._is_on_host(key, host):
                findings.healthy.append(key)
                findings.stuck += [(key, pod) for pod in stuck_on(pods, host)]
                continue
            if gone or (overdue and self._switches.after_fixed_time):
                findings.failed[key] = workload
                stuck = stuck_on(pods, host)
            else:
                assert node is not None
                stuck = self._judge(key, workload, host, node, pods, findings)
            findings.stuck += [(key, pod) for pod in stuck]
        await self._act(host, node, findings)
        return Result(requeue_after=left if left > 0 and self._switches.after_fixed_time else None)

    def _until_overdue(self, node: NodeFacts | None) -> float:
        if node is None or node.not_ready_since is None:
            return 0.0
        return FIXED_DELAY - (self._clock.now() - node.not_ready_since).total_seconds()

    def _concerned(self, host: str) -> dict[str, wire.Workload]:
        """Return the placed workloads that use the host or have pods pinned to it, and unadmitted workloads with such
        pods.
        """
        pinned = {pod.workload for pod in self._hosts.pinned(host)}
        found = {key: self._marks.newest(key) for key in sorted({*self._workloads_on.get(host, ()), *pinned})}
        return {k: obj for k, obj in found.items() if obj is not None and (model.is_placed(obj) or _waits(obj))}

    def _is_on_host(self, key: str, host: str) -> bool:
        """Whether the workload uses the host according to the cache; the watch may be behind a repair."""
        holding = self._cache.held.of_pods(key)
        held = holding.admission.pod_sets if holding is not None else ()
        return any(p.topology is not None and uses_host(p.topology, (host,)) for p in held)

    def _judge(
        self,
        key: str,
        workload: wire.Workload,
        host: str,
        node: NodeFacts,
        pods: Sequence[GangPod],
        findings: _Findings,
    ) -> list[GangPod]:
        """Add one workload that uses the host to the findings; return the pods that must end."""
        patient = self._switches.on_pod_termination
        checks_taints = node.ready and self._switches.on_taints
        tolerance = self._tolerance(key, workload, host, node) if checks_taints else Tolerance.FOREVER
        if node.ready and tolerance is Tolerance.FOREVER:
            if self._has_had_enough(workload, host, pods):
                findings.failed[key] = workload
            else:
                findings.healthy.append(key)
            return []
        runs = any(pod.node == node.name and not pod.deleting and not pod.terminal for pod in pods)
        runs = runs or self._hosts.runs_unmarked(model.siblings_key(workload), node)
        looks_at_pods = patient or (node.ready and tolerance is Tolerance.FOR_A_TIME)
        if looks_at_pods and runs:
            findings.healthy.append(key)
        else:
            findings.failed[key] = workload
        return stuck_on(pods, host) if looks_at_pods else []

    def _tolerance(self, key: str, workload: wire.Workload, host: str, node: NodeFacts) -> Tolerance:
        """Return how long the pod sets with pods on the host tolerate the node's taints."""
        holding = self._cache.held.of_pods(key)
        assert holding is not None
        here = [
            held
            for held in holding.admission.pod_sets
            if held.topology is not None and any(domain.values[-1] == host for domain in held.topology.domains)
        ]
        return self._taints.of(workload, here, node)

    # --- writes ------------------------------------------------------------------------------------------------

    async def _blame(self, host: str, node: NodeFacts | None) -> None:
        """Record the workloads whose pods failed on the host.  A failure that is recorded already is not
        written again.
        """
        fell: dict[str, datetime] = {}
        for pod in self._hosts.pods_at(host, node):
            if _fell(pod) and self._is_on_host(pod.workload, host):
                fell[pod.workload] = max(pod.created, fell.get(pod.workload, pod.created))
        for key, created in sorted(fell.items()):
            await self._marks.blame(key, host, created)

    def _has_had_enough(self, workload: wire.Workload, host: str, pods: Iterable[GangPod]) -> bool:
        """Whether pods of the workload failed here repeatedly, and no pod here can keep running."""
        here = [pod for pod in pods if not pod.deleting]
        return (
            host in failures.avoided(workload, self._clock.now())
            and any(_fell(pod) for pod in here)
            and all(pod.terminal for pod in here)
        )

    async def _act(self, host: str, node: NodeFacts | None, findings: _Findings) -> None:
        evicted: set[str] = set()
        for key in findings.failed:
            if await self._marks.mark(key, host):
                evicted.add(key)
        if not self._switches.after_fixed_time or (node is not None and node.ready):
            entries = {host, node.name} if node is not None else {host}
            for key in findings.healthy:
                await self._marks.unmark(key, host, entries)
        for key, pod in findings.stuck:
            if key not in evicted:
                await self._pinned.end(pod, host)


def _holds_the_same(old: wire.WorkloadStatus, new: wire.WorkloadStatus) -> bool:
    return (old.admission, old.finished_pods) == (new.admission, new.finished_pods)


def _waits(workload: wire.Workload) -> bool:
    """Whether the workload has no quota and has not finished, so that none of its pods may run."""
    return workload.status.admission is None and not model.condition_true(workload, names.CONDITION_FINISHED)


def _lacks_admission(pod: GangPod) -> bool:
    """Whether the pod must end only because its Workload is not admitted.

    A pod with a gate does not run.  A pod of an elastic job may belong to another slice that is admitted.
    """
    return not pod.gates and pod.slice_name is None


def _fell(pod: GangPod) -> bool:
    """Whether the pod failed by itself on a node: it is not being deleted."""
    return pod.failed and bool(pod.node) and not pod.deleting


def setup(manager: Manager) -> None:
    """Add the reconciler of failed hosts, if the configuration enables the replacement of failed hosts."""
    watches, config, window = manager.watches, manager.config, manager.timings.node_failure_pod_window
    if not config.enabled("TASFailedNodeReplacement"):
        return
    client, clock, recorder = manager.client, manager.clock, manager.recorder(Reporter.NODES)
    health = NodeHealth(
        hosts=HostIndex(watches.nodes.store, watches.pods.store),
        marks=HostMarks(book=manager.workload_writer, recorder=recorder, clock=clock),
        cache=manager.cache,
        taints=TaintTolerance(watches.flavors.store.get),
        pinned=PinnedPods(client=client, recorder=recorder, clock=clock),
        clock=clock,
        switches=FailureSwitches(
            on_pod_termination=config.enabled("TASReplaceNodeOnPodTermination"),
            after_fixed_time=config.enabled("TASReplaceNodeDueToNotReadyOverFixedTime"),
            on_taints=config.enabled("TASReplaceNodeOnNodeTaints"),
        ),
    )
    controller = manager.controller("node_health", health.reconcile, workers=4)

    def on_node(old: NodeFacts | None, new: NodeFacts | None) -> None:
        for host in health.hosts_of_node_event(old, new):
            controller.enqueue(host)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        for host in health.hosts_of_pod_event(old, new):
            controller.enqueue(host, after=window)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for host in health.observe_workload(old, new):
            controller.enqueue(host, after=window)

    def enqueue_failed_hosts() -> None:
        for host in health.troubled_hosts():
            controller.enqueue(host)

    watches.nodes.subscribe(on_node)
    watches.pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    manager.on_lead.append(enqueue_failed_hosts)
