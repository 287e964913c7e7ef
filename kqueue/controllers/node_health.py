"""Tells which workloads lost a node: puts its host on their list of failed hosts, or takes it off again.

A node that is gone has failed at once.  One that is not ready, or has a taint that the pods do not tolerate, has failed
for a workload when none of its pods runs there any more: until then it may come back, and other domains would spoil
the accounting of pods that still run.  Pods of the workload count by the node that runs them, whether or not they carry
the annotations and the node selector of placed pods.

Pods that are pinned to a failed host and were never bound are ended, so that their job makes new ones, which go to the
replacement.  So are pods that were released to a host, and never bound, of a workload that is not admitted any more.

A node may look well and still be bad for one workload.  Failures of its pods are remembered by node, and a node on
which they fail repeatedly has failed for this workload, too, once none of its pods is there any more.

Keys are host names: the label of the nodes, which assignments and node selectors name.
Source: KEP-2724, node failures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from functools import partial

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.manager import Manager
from kqueue.controllers.record import ObjectReference, Recorder, Reporter, workload_reference
from kqueue.controllers.resources import PODS
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.core.topology import HOSTNAME, NodeFacts, Taint, stands_on
from kqueue.core.topology.matching import tolerates
from kqueue.errors import NotFoundError
from kqueue.model import GangPod, PodView
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store, split_key
from kqueue.state import failures, host_status, status
from kqueue.state.cache import Cache

_log = structlog.get_logger(__name__)

EVENT_AVOIDED = "NodeAvoided"
HOST_INDEX = "host"
PLACE_INDEX = "place"
FIXED_DELAY = 30.0
"""Seconds for which a node may be not ready where pods are not looked at.  Source: the compatible system."""
_REPELLING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSwitches:
    """What counts as a failure; each field names its gate."""

    on_pod_termination: bool = True
    """TASReplaceNodeOnPodTermination: a bad node has failed only when the pods on it have stopped."""
    after_fixed_time: bool = False
    """TASReplaceNodeDueToNotReadyOverFixedTime: ... or when it was not ready for 30 s."""
    on_taints: bool = True
    """TASReplaceNodeOnNodeTaints: untolerated taints are signs of failure, too."""


class _Taints(Enum):
    """How a workload bears the taints of a node, from the mildest."""

    BORNE = auto()
    BORNE_FOR_A_TIME = auto()
    NOT_BORNE = auto()


@dataclass(slots=True)
class _Findings:
    """Workloads by what is to be done about one host, and pods that must end."""

    failed: dict[str, wire.Workload] = field(default_factory=dict)
    healthy: list[str] = field(default_factory=list)
    stuck: list[tuple[str, GangPod]] = field(default_factory=list)


def hosts_of_node(node: NodeFacts) -> list[str]:
    """Index of nodes by host name."""
    return [node.labels[HOSTNAME]] if HOSTNAME in node.labels else []


def places_of_pod(view: PodView) -> set[tuple[str, str]]:
    """Index of gang pods by the host that they are pinned to, and of all pods of Workloads by the node that they are
    on.
    """
    pod = view.gang
    if pod is None:
        return {("node", _node_of(view))} if _node_of(view) else set()
    pinned = pod.node_selector.get(HOSTNAME)
    places = {("host", pinned)} if pinned else set()
    return places | {("node", pod.node)} if pod.node else places


class NodeHealth:
    """Reconciles hosts."""

    def __init__(
        self,
        *,
        client: Client,
        nodes: Store[NodeFacts],
        pods: Store[PodView],
        writer: WorkloadBook,
        cache: Cache,
        flavors: Callable[[str], wire.ResourceFlavor | None],
        recorder: Recorder,
        clock: Clock,
        switches: FailureSwitches | None = None,
    ) -> None:
        """`cache` must have been told of a Workload before `observe_workload` is."""
        self._client, self._nodes, self._pods, self._writer = client, nodes, pods, writer
        self._cache, self._flavors, self._recorder, self._clock = cache, flavors, recorder, clock
        self._switches = switches or FailureSwitches()
        self._hosts: dict[str, frozenset[str]] = {}
        self._standing: defaultdict[str, set[str]] = defaultdict(set)
        nodes.add_index(HOST_INDEX, hosts_of_node)
        pods.add_index(PLACE_INDEX, places_of_pod)

    # --- what to look at ---------------------------------------------------------------------------------------

    def observe_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> set[str]:
        """Keep in mind which hosts a Workload holds; returns the hosts that it has left and to which its pods are still
        on their way.
        """
        if old is not None and new is not None and _holds_the_same(old.status, new.status):
            return set()
        seen = new if new is not None else old
        assert seen is not None
        key = model.workload_key(seen)
        holding = self._cache.held.holding(key)
        hosts: set[str] = set()
        for held in holding.admission.pod_sets if holding is not None else ():
            if held.topology is not None and held.topology.levels[-1] == HOSTNAME:
                hosts.update(domain.values[-1] for domain in held.topology.domains)
        left = self._hosts.pop(key, frozenset()) - hosts
        for host in left:
            self._standing[host].discard(key)
            if not self._standing[host]:
                del self._standing[host]
        if hosts:
            self._hosts[key] = frozenset(hosts)
            for host in hosts:
                self._standing[host].add(key)
        goes_on = new is not None and not model.condition_true(new, names.CONDITION_FINISHED)
        return {host for host in left if self._has_strays(key, host)} if goes_on else set()

    def _has_strays(self, key: str, host: str) -> bool:
        views = self._pods.by_index(PLACE_INDEX, ("host", host))
        pods = [view.gang for view in views if view.gang is not None and view.gang.workload == key]
        return bool(self._stuck(pods, host))

    def hosts_of_node_event(self, old: NodeFacts | None, new: NodeFacts | None) -> set[str]:
        """Hosts to look at after this change of a node.  A healthy node that appears is of interest only where used."""
        hosts = {host for node in (old, new) if node is not None for host in hosts_of_node(node)}
        if old is not None and new is not None and old.labels.get(HOSTNAME) == new.labels.get(HOSTNAME):
            same = (old.ready, old.not_ready_since, old.taints) == (new.ready, new.not_ready_since, new.taints)
            return set() if same else hosts
        return {host for host in hosts if host in self._standing}

    def hosts_of_pod_event(self, old: PodView | None, new: PodView | None) -> set[str]:
        """Hosts to look at after this change of a pod.

        It has failed there; or it ends or waits to get there, and the host is troubled or not its workload's any more.
        """
        before, after = old.gang if old is not None else None, new.gang if new is not None else None
        pod = after or before
        if pod is None:
            return self._hosts_of_unmarked(old, new)
        if pod.node and after is not None and not after.terminal and not after.deleting:
            return set()
        host = pod.node_selector.get(HOSTNAME) or self._host_of(pod.node)
        if host is None:
            return set()
        fell = after is not None and after.failed and bool(after.node) and (before is None or not before.failed)
        strays = not pod.node and not pod.gated and pod.workload not in self._standing.get(host, ())
        return {host} if fell or strays or self._is_troubled(self._node(host)) else set()

    def _hosts_of_unmarked(self, old: PodView | None, new: PodView | None) -> set[str]:
        """The host of a pod that ends on a troubled node and lacks the annotations of placed pods."""
        name = _node_of(old) if old is not None else ""
        runs_on = new is not None and _node_of(new) == name and not new.leaving
        host = self._host_of(name)
        return {host} if host is not None and not runs_on and self._is_troubled(self._node(host)) else set()

    def troubled_hosts(self) -> Iterator[str]:
        """Used hosts whose nodes are gone or bad, and those that workloads list as failed: all that may need a look."""
        for host in self._standing:
            if self._is_troubled(self._node(host)):
                yield host
        for key in self._hosts:
            workload = self._writer.newest(key)
            for listed in workload.status.unhealthy_nodes if workload is not None else ():
                yield listed.name

    def _host_of(self, node_name: str) -> str | None:
        node = self._nodes.get(node_name) if node_name else None
        return node.labels.get(HOSTNAME) if node is not None else None

    def _node(self, host: str) -> NodeFacts | None:
        nodes = self._nodes.by_index(HOST_INDEX, host)
        return min(nodes, key=lambda node: node.name) if nodes else None

    def _is_troubled(self, node: NodeFacts | None) -> bool:
        return node is None or not node.ready or bool(_repelling(node))

    # --- one host ----------------------------------------------------------------------------------------------

    async def reconcile(self, host: str) -> Result:
        """Look at one host, and at every workload that stands on it or has pods pinned to it."""
        node = self._node(host)
        gone = node is None or (not node.ready and node.not_ready_since is None)
        left = self._until_overdue(node)
        if not gone and left > 0 and not self._switches.on_pod_termination:
            return Result(requeue_after=left)
        overdue = node is not None and node.not_ready_since is not None and left <= 0
        await self._blame(host, node)
        findings = _Findings()
        for key, workload in self._concerned(host).items():
            siblings = model.siblings_key(workload)
            pods = [pod for pod in self._pods_at(host, node) if pod.siblings == siblings]
            if _waits(workload):
                if self._cache.held.holding(key) is None:
                    findings.stuck += [(key, pod) for pod in self._stuck(pods, host) if _lacks_admission(pod)]
                continue
            if not self._stands(key, host):
                findings.healthy.append(key)
                findings.stuck += [(key, pod) for pod in self._stuck(pods, host)]
                continue
            if gone or (overdue and self._switches.after_fixed_time):
                findings.failed[key] = workload
                stuck = self._stuck(pods, host)
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
        """Placed workloads that stand on the host, those with pods that are pinned to it all the same, and workloads
        that are not admitted and have such pods.
        """
        pinned = {v.gang.workload for v in self._pods.by_index(PLACE_INDEX, ("host", host)) if v.gang is not None}
        found = {key: self._writer.newest(key) for key in sorted({*self._standing.get(host, ()), *pinned})}
        return {k: obj for k, obj in found.items() if obj is not None and (model.is_placed(obj) or _waits(obj))}

    def _stands(self, key: str, host: str) -> bool:
        """Whether the workload holds the host now; what the watch has told may be behind a repair."""
        holding = self._cache.held.holding(key)
        held = holding.admission.pod_sets if holding is not None else ()
        return any(p.topology is not None and stands_on(p.topology, (host,)) for p in held)

    def _pods_at(self, host: str, node: NodeFacts | None) -> list[GangPod]:
        """Pods pinned to the host or on its node."""
        views = {view.key: view for view in self._pods.by_index(PLACE_INDEX, ("host", host))}
        if node is not None:
            views |= {view.key: view for view in self._pods.by_index(PLACE_INDEX, ("node", node.name))}
        return [view.gang for view in views.values() if view.gang is not None]

    @staticmethod
    def _stuck(pods: Iterable[GangPod], host: str) -> list[GangPod]:
        """Released to the host, and never bound."""
        return [
            pod
            for pod in pods
            if not pod.node
            and not pod.gated
            and not pod.terminal
            and not pod.deleting
            and pod.node_selector.get(HOSTNAME) == host
        ]

    def _judge(
        self,
        key: str,
        workload: wire.Workload,
        host: str,
        node: NodeFacts,
        pods: Sequence[GangPod],
        findings: _Findings,
    ) -> list[GangPod]:
        """Sort one workload that stands on the node; returns the pods that must end."""
        patient = self._switches.on_pod_termination
        borne = self._bears(key, workload, host, node) if node.ready and self._switches.on_taints else _Taints.BORNE
        if node.ready and borne is _Taints.BORNE:
            if self._has_had_enough(workload, host, pods):
                findings.failed[key] = workload
            else:
                findings.healthy.append(key)
            return []
        runs = any(pod.node == node.name and not pod.deleting and not pod.terminal for pod in pods)
        runs = runs or self._runs_unmarked(model.siblings_key(workload), node)
        looks_at_pods = patient or (node.ready and borne is _Taints.BORNE_FOR_A_TIME)
        if looks_at_pods and runs:
            findings.healthy.append(key)
        else:
            findings.failed[key] = workload
        return self._stuck(pods, host) if looks_at_pods else []

    def _runs_unmarked(self, siblings: str, node: NodeFacts) -> bool:
        """Whether the node runs a pod of the job that lacks the annotations of placed pods."""
        views = self._pods.by_index(PLACE_INDEX, ("node", node.name))
        return any(view.gang is None and view.workload == siblings and not view.leaving for view in views)

    def _bears(self, key: str, workload: wire.Workload, host: str, node: NodeFacts) -> _Taints:
        """The worst that any pod set with pods on the host has to say of the node's taints."""
        holding = self._cache.held.holding(key)
        assert holding is not None
        worst = _Taints.BORNE
        for held in holding.admission.pod_sets:
            if held.topology is None or all(domain.values[-1] != host for domain in held.topology.domains):
                continue
            tolerations = self._tolerations(workload, held.name, set(held.flavors.values()))
            for taint in _repelling(node):
                worst = max(worst, _bears_taint(taint, tolerations), key=lambda borne: borne.value)
        return worst

    def _tolerations(
        self, workload: wire.Workload, pod_set: str, flavors: Collection[str]
    ) -> list[wire_core.Toleration]:
        """Of the template, of the flavors, and of what admission checks add."""
        found = [t for spec in workload.spec.pod_sets if spec.name == pod_set for t in spec.template.spec.tolerations]
        for name in sorted(flavors):
            flavor = self._flavors(name)
            found += flavor.spec.tolerations if flavor is not None else ()
        for check in workload.status.admission_checks:
            found += [t for update in check.pod_set_updates if update.name == pod_set for t in update.tolerations]
        return found

    # --- doing it ----------------------------------------------------------------------------------------------

    async def _blame(self, host: str, node: NodeFacts | None) -> None:
        """Remember which workloads had pods that failed here; what is known already is not written again."""
        fell: dict[str, datetime] = {}
        for pod in self._pods_at(host, node):
            if _fell(pod) and self._stands(pod.workload, host):
                fell[pod.workload] = max(pod.created, fell.get(pod.workload, pod.created))
        for key, created in sorted(fell.items()):
            written = await self._writer.write(key, partial(self._blamed, host=host, created=created))
            if written is not None:
                times = failures.failures_on(written, host, self._clock.now())
                _log.info("pods of workload failed on node", workload=key, host=host, times=times)
                self._tell_avoided(written, host)

    def _tell_avoided(self, workload: wire.Workload, host: str) -> None:
        """Warn the user of a host on which the workload has failed again."""
        times = failures.failures_on(workload, host, self._clock.now())
        if times >= failures.REPEATEDLY:
            message = (
                f"The workload failed on node {host} {times} times: the node is avoided for it where others have room"
            )
            self._recorder.record(workload_reference(workload), reason=EVENT_AVOIDED, message=message, warning=True)

    def _blamed(self, workload: wire.Workload, *, host: str, created: datetime) -> status.Patch | None:
        if not model.is_placed(workload):
            return None
        return host_status.blame(workload, host, created, stamp=status.Stamp(self._clock.now()))

    def _has_had_enough(self, workload: wire.Workload, host: str, pods: Iterable[GangPod]) -> bool:
        """Whether pods failed here repeatedly, and none is here any more that could go on."""
        here = [pod for pod in pods if not pod.deleting]
        return (
            host in failures.avoided(workload, self._clock.now())
            and any(_fell(pod) for pod in here)
            and all(pod.terminal for pod in here)
        )

    async def _act(self, host: str, node: NodeFacts | None, findings: _Findings) -> None:
        evicted: set[str] = set()
        for key in findings.failed:
            written = await self._writer.write(key, lambda w: self._mark(w, host))
            if written is None:
                continue
            if model.condition_true(written, names.CONDITION_EVICTED):
                evicted.add(key)
                message = next(c.message for c in written.status.conditions if c.type == names.CONDITION_EVICTED)
                reason = f"EvictedDueTo{names.REASON_NODE_FAILURES}"
                self._recorder.record(workload_reference(written), reason=reason, message=message)
            _log.info("node has failed for workload", workload=key, host=host, evicted=key in evicted)
        if not self._switches.after_fixed_time or (node is not None and node.ready):
            entries = {host, node.name} if node is not None else {host}
            for key in findings.healthy:
                if await self._writer.write(key, lambda w: host_status.unmark_unhealthy(w, entries)) is not None:
                    _log.info("node is no failure for workload any more", workload=key, host=host)
        for key, pod in findings.stuck:
            if key not in evicted:
                await self._end(pod, host)

    def _mark(self, workload: wire.Workload, host: str) -> status.Patch | None:
        if not model.is_placed(workload):
            return None
        return host_status.mark_unhealthy(workload, host, stamp=status.Stamp(self._clock.now()))

    async def _end(self, pod: GangPod, host: str) -> None:
        """Let a pod fail that can never run, so that its job makes another one."""
        namespace, name = split_key(pod.key)
        message = f"The pod was pinned to node {host}, which has failed or is not its place any more"
        try:
            now = await self._client.get_json(PODS, name, namespace)
            if now["metadata"]["uid"] != pod.uid or now["spec"].get("nodeName"):
                return
            added = {
                "type": "TerminatedByKueue",
                "status": "True",
                "reason": "UnschedulableOnAssignedNode",
                "message": message,
                "lastTransitionTime": status.Stamp(self._clock.now()).text,
            }
            conditions = [*now.get("status", {}).get("conditions", ()), added]
            patch = {
                "metadata": {"resourceVersion": now["metadata"]["resourceVersion"]},
                "status": {"phase": "Failed", "conditions": conditions},
            }
            await self._client.patch(PODS, name, patch, namespace, subresource="status")
        except NotFoundError:
            return
        reference = ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid)
        self._recorder.record(reference, reason=names.EVENT_POD_TERMINATED_BY_KUEUE, message=message)


def _holds_the_same(old: wire.WorkloadStatus, new: wire.WorkloadStatus) -> bool:
    return (old.admission, old.finished_pods) == (new.admission, new.finished_pods)


def _node_of(view: PodView) -> str:
    """Name of the node that runs a pod of a Workload; empty where no node does, or the pod names no Workload."""
    if view.gang is not None:
        return view.gang.node
    return view.bound.node if view.bound is not None and view.workload else ""


def _waits(workload: wire.Workload) -> bool:
    """Whether it holds no quota and has not finished: no pod of it may run now."""
    return workload.status.admission is None and not model.condition_true(workload, names.CONDITION_FINISHED)


def _lacks_admission(pod: GangPod) -> bool:
    """Whether nothing but the admission of its Workload keeps the pod back.  Of an elastic job another slice may be
    admitted, and a pod with a gate does not run.
    """
    return not pod.gates and pod.slice_name is None


def _fell(pod: GangPod) -> bool:
    """Whether the pod failed by itself: nobody takes it away, and it had a node to fail on."""
    return pod.failed and bool(pod.node) and not pod.deleting


def _repelling(node: NodeFacts) -> list[Taint]:
    return [taint for taint in node.taints if taint.effect in _REPELLING]


def _bears_taint(taint: Taint, tolerations: Iterable[wire_core.Toleration]) -> _Taints:
    """Without limit, for a time (`tolerationSeconds`), or not at all.  Comparing operators do not count here."""
    matching = [
        toleration
        for toleration in tolerations
        if toleration.operator not in ("Gt", "Lt") and tolerates(model.toleration(toleration), taint)
    ]
    if not matching:
        return _Taints.NOT_BORNE
    forever = any(toleration.toleration_seconds is None for toleration in matching)
    return _Taints.BORNE if forever else _Taints.BORNE_FOR_A_TIME


def setup(manager: Manager) -> None:
    """Add the reconciler of failed hosts, where failed hosts are replaced."""
    watches, config, window = manager.watches, manager.config, manager.timings.node_failure_pod_window
    if not config.enabled("TASFailedNodeReplacement"):
        return
    health = NodeHealth(
        client=manager.client,
        nodes=watches.nodes.store,
        pods=watches.pods.store,
        writer=manager.workload_writer,
        cache=manager.cache,
        flavors=watches.flavors.store.get,
        recorder=manager.recorder(Reporter.NODES),
        clock=manager.clock,
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
