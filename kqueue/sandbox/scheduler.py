"""The simulated scheduler: binds ungated pods to nodes that fit, or writes the reason that none fits.

It implements the rules that queueing depends on (gates, selectors, required affinity, taints, requests, claims for
devices, priority order), and leaves out the rest of the stock scheduler: preferences, spreading constraints, volumes,
preemption.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from kqueue.clock import Clock
from kqueue.errors import ApiError, NotFoundError
from kqueue.kube.conditions import with_conditions
from kqueue.kube.timetable import Timetable
from kqueue.sandbox.api import PODS, Api, GroupVersionResource, Object
from kqueue.sandbox.claims import NO_DEVICES, SimulatedClaims, has_claims
from kqueue.sandbox.json_object import is_deleting, is_terminal, key_of, split_key, stamp, uid_of
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.node_table import NodeTable, NoFit, PodFit

BINDINGS = GroupVersionResource("", "v1", "pods/binding")
SCHEDULER_NAME = "default-scheduler"
_WRITES = 32  # concurrent writes; with admission webhooks on pods a write takes a round trip
_TURN = 100  # pods between two yields to the event loop
_RETRY_SECONDS = 1.0
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    """A pod without a node, and the causes in its last condition that no node fits; None: no condition yet."""

    fit: PodFit
    reported_causes: tuple[str, ...] | None = None


class Scheduler:
    """Binds pods in passes over all waiting pods, the highest priority first and then the oldest.

    Within a pass free resources only shrink, so after one pod found no node, equal pods are not tried.  A pass runs
    when pods appear, when resources become free and when nodes change.
    """

    def __init__(self, api: Api, *, pods: Mirror, nodes: Mirror, claims: SimulatedClaims, clock: Clock) -> None:
        self._api, self._clock, self._claims = api, clock, claims
        self._pods, self._nodes = pods, nodes
        self._table = NodeTable()
        self._homes: dict[str, str] = {}  # UID of a charged pod -> its node
        self._waiting: dict[str, _Waiting] = {}
        self._writing: set[str] = set()
        self._work = asyncio.Event()
        self._slots = asyncio.Semaphore(_WRITES)
        self._passing = False
        self._retries = Timetable(clock, self._look_again)
        pods.on_change(self._on_pod)
        nodes.on_change(self._on_node)
        claims.on_change(self._work.set)

    @property
    def idle(self) -> bool:
        """Whether no pass is due and no write is running; pods that fit no node may wait."""
        return not self._passing and not self._work.is_set() and not self._writing

    async def run(self) -> None:
        """Schedule until cancelled."""
        await self._pods.synced.wait()
        await self._nodes.synced.wait()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._work.wait()
                    self._passing = True
                    self._work.clear()
                    await self._pass(group)
                    self._passing = False
        finally:
            self._retries.clear()

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._table.remove_node(old["metadata"]["name"])
            self._work.set()
        elif new is not None and self._table.set_node(new):
            self._work.set()

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        self._account(old, new)
        if new is not None:
            self._enqueue(key_of(new), new)
        elif old is not None:
            self._waiting.pop(key_of(old), None)

    def _enqueue(self, key: str, pod: Object) -> None:
        """Add the pod to the waiting ones, unless gates hold it, about which a scheduler writes nothing."""
        if pod["spec"].get("schedulingGates") or not _wants_node(pod):
            self._waiting.pop(key, None)
            return
        known = self._waiting.get(key)
        if known is not None and known.fit.pod["spec"] == pod["spec"] and uid_of(known.fit.pod) == uid_of(pod):
            return  # other changes of the pod free no resources
        try:
            self._waiting[key] = _Waiting(PodFit.of(pod))
            self._work.set()
        except ValueError as error:
            log.warning("pod cannot be scheduled", pod=key, error=str(error))

    def _account(self, old: Object | None, new: Object | None) -> None:
        """Charge bound, active pods to their nodes; release ended and deleted ones."""
        if old is not None and (new is None or uid_of(new) != uid_of(old)):
            self._release(uid_of(old))
        if new is None:
            return
        node, uid = new["spec"].get("nodeName"), uid_of(new)
        if is_terminal(new) or (not node and uid not in self._writing):
            self._release(uid)
        elif node and self._homes.get(uid) != node:
            self._release(uid)
            try:
                self._charge(node, uid, PodFit.of(new).requests)
            except ValueError as error:
                log.warning("pod of unknown size", pod=key_of(new), error=str(error))

    def _charge(self, node: str, uid: str, requests: tuple[tuple[str, int], ...]) -> None:
        self._homes[uid] = node
        self._table.charge(node, uid, requests)

    def _release(self, uid: str) -> None:
        self._claims.forget(uid)
        node = self._homes.pop(uid, None)
        if node is not None and self._table.release(node, uid) and self._waiting:
            self._work.set()

    async def _pass(self, group: asyncio.TaskGroup) -> None:
        failed: dict[tuple[str, tuple[tuple[str, int], ...]], NoFit] = {}
        for turn, key in enumerate(sorted(self._waiting, key=self._rank), start=1):
            if turn % _TURN == 0:
                await asyncio.sleep(0)
            waiting = self._waiting.get(key)
            if waiting is None or uid_of(waiting.fit.pod) in self._writing:
                continue
            fit = waiting.fit
            look = (fit.shape, fit.requests)
            found = self._with_devices(fit) if has_claims(fit.pod) else failed.get(look) or self._table.find(fit)
            if not isinstance(found, NoFit):
                self._charge(found, uid_of(fit.pod), fit.requests)
                await self._spawn(group, fit.pod, partial(self._bind, fit.pod, found))
                continue
            if not has_claims(fit.pod):
                failed[look] = found
            kinds = tuple(cause for cause, _ in found.causes)
            if waiting.reported_causes != kinds:  # a change of the numbers alone is not written
                waiting.reported_causes = kinds
                await self._spawn(group, fit.pod, partial(self._say_unschedulable, fit.pod, found))

    def _with_devices(self, fit: PodFit) -> str | NoFit:
        """Return the node for a pod with claims, and keep its devices there; or the reason for none."""
        pod = self._pods.get(key_of(fit.pod)) or fit.pod  # its status names the claims
        plan = self._claims.plan(pod)
        if isinstance(plan, str):
            return self._table.find(fit, among=(), otherwise=plan)
        found = self._table.find(fit, among=plan.by_node, otherwise=NO_DEVICES)
        if not isinstance(found, NoFit):
            self._claims.assume(pod, plan, found)
        return found

    def _rank(self, key: str) -> tuple[int, str]:
        pod = self._waiting[key].fit.pod
        return (-int(pod["spec"].get("priority") or 0), pod["metadata"].get("creationTimestamp") or "")

    async def _spawn(
        self, group: asyncio.TaskGroup, pod: Object, write: Callable[[], Coroutine[Any, Any, Object]]
    ) -> None:
        self._writing.add(uid_of(pod))
        await self._slots.acquire()
        group.create_task(self._written(pod, write))

    async def _written(self, pod: Object, write: Callable[[], Coroutine[Any, Any, Object]]) -> None:
        """Carry out one write; after a failure, try again later."""
        uid, key = uid_of(pod), key_of(pod)
        try:
            written = await write()
        except ApiError as error:
            self._writing.discard(uid)
            self._take_back(pod)
            if not isinstance(error, NotFoundError):
                log.warning("write of the simulated scheduler failed", pod=key, error=str(error))
                self._retries.add(key, _RETRY_SECONDS)
        else:
            self._writing.discard(uid)
            self._pods.remember(written)
        finally:
            self._slots.release()

    def _take_back(self, pod: Object) -> None:
        """Release the assumed charge, unless the pod was bound after all."""
        current = self._pods.get(key_of(pod))
        if current is None or uid_of(current) != uid_of(pod) or not current["spec"].get("nodeName"):
            self._release(uid_of(pod))

    def _look_again(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is not None:
            self._waiting.pop(key, None)
            self._enqueue(key, pod)

    async def _bind(self, pod: Object, node: str) -> Object:
        namespace, name = split_key(key_of(pod))
        if has_claims(pod):
            await self._claims.allocate(self._api.get(PODS, name, namespace=namespace))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._api.create(BINDINGS, binding, namespace=namespace)
        return self._api.get(PODS, name, namespace=namespace)

    async def _say_unschedulable(self, pod: Object, misfit: NoFit) -> Object:
        return await self._say(pod, "Unschedulable", misfit.message())

    async def _say(self, pod: Object, reason: str, message: str) -> Object:
        namespace, name = split_key(key_of(pod))
        current = self._api.get(PODS, name, namespace=namespace)
        if current["spec"] != pod["spec"]:
            return current  # the pod has changed; its event adds it again
        change = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        present = (current.get("status") or {}).get("conditions") or []
        conditions = with_conditions(present, [change], stamp(self._clock.now()))
        lock = {"resourceVersion": current["metadata"]["resourceVersion"]}
        return await self._api.patch(
            PODS,
            name,
            {"metadata": lock, "status": {"conditions": conditions}},
            namespace=namespace,
            subresource="status",
        )


def _wants_node(pod: Object) -> bool:
    spec = pod["spec"]
    return not (
        spec.get("nodeName")
        or is_deleting(pod)
        or is_terminal(pod)
        or (spec.get("schedulerName") or SCHEDULER_NAME) != SCHEDULER_NAME
    )
