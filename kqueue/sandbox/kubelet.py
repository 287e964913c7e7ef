"""The kubelets of all simulated nodes: bound pods start, run for a while and end; deleted pods stop.

Annotations of a pod: `sandbox.kqueue.dev/run-seconds` is its run time, `sandbox.kqueue.dev/stop-seconds` the time of
its termination after a deletion, and `sandbox.kqueue.dev/fail: "true"` makes it fail after its run time.
Without the first, a pod with restart policy Always runs until it is deleted, and other pods run for the default time.
A container is never restarted: a failed pod stays failed, whatever its restart policy.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from kqueue.clock import Clock
from kqueue.errors import NotFoundError
from kqueue.kube.conditions import condition, with_conditions
from kqueue.kube.names import CONDITION_READY
from kqueue.sandbox.api import PODS, Api, Object
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.json_object import (
    annotation,
    is_deleting,
    is_terminal,
    key_of,
    parsed_time,
    split_key,
    stamp,
    uid_of,
)
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.names import FAIL_ANNOTATION, RUN_SECONDS_ANNOTATION, STOP_SECONDS_ANNOTATION

DEFAULT_RUN_SECONDS = 10.0
_KILLED = 137  # exit code of a container after SIGKILL
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """Times of simulated pods.

    `run_seconds` is the run time of pods without the annotation and without restart policy Always; None: until deleted.
    `start_seconds` passes between binding and running; `stop_seconds` between deletion and the end of the containers,
    cut to the grace period.  `speed` divides run times: at 60, an hour takes a minute.
    """

    run_seconds: float | None = DEFAULT_RUN_SECONDS
    start_seconds: float = 0.0
    stop_seconds: float = 0.0
    speed: float = 1.0


class Kubelet:
    """Simulates the kubelets of all nodes.  Pods of a node that is missing or not ready do not change."""

    def __init__(self, api: Api, *, pods: Mirror, nodes: Mirror, clock: Clock, options: KubeletOptions) -> None:
        self._api, self._clock, self._options = api, clock, options
        self._pods, self._nodes = pods, nodes
        self._since: dict[str, float] = {}  # UID -> monotonic time of the start: status holds whole seconds only
        self._seen: dict[str, float] = {}  # UID -> when the pod was first seen bound
        self.loop = ControllerLoop("kubelet", self._reconcile, clock=clock)
        pods.on_change(self._on_pod)
        nodes.on_change(self._on_node)

    async def run(self) -> None:
        """Run pods until cancelled."""
        await self._pods.synced.wait()
        await self._nodes.synced.wait()
        await self.loop.run()

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or uid_of(old) != uid_of(new)):
            self._since.pop(uid_of(old), None)
            self._seen.pop(uid_of(old), None)
        if new is not None and (new["spec"].get("nodeName") or is_deleting(new)):
            self.loop.add(key_of(new))

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        if new is not None and is_alive(new) and (old is None or not is_alive(old)):
            for key in self._pods.by("node", new["metadata"]["name"]):
                self.loop.add(key)

    async def _reconcile(self, key: str) -> float | None:
        namespace, name = split_key(key)
        try:
            pod = self._api.get(PODS, name, namespace=namespace)
            return await self._advance(pod)
        except NotFoundError:
            return None

    async def _advance(self, pod: Object) -> float | None:
        """Do the pod's next step; return seconds until the one after it, None if an event will start it."""
        node = pod["spec"].get("nodeName")
        if not node:
            if is_deleting(pod):
                await self._remove(pod)
            return None
        host = self._nodes.get(node)
        if host is None or not is_alive(host):
            return None
        if is_deleting(pod):
            return await self._stop(pod)
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        if phase == "Pending":
            return await self._start(pod, host)
        return await self._finish(pod) if phase == "Running" else None

    async def _start(self, pod: Object, host: Object) -> float | None:
        uid = uid_of(pod)
        seen = self._seen.setdefault(uid, self._clock.monotonic())
        left = seen + self._options.start_seconds - self._clock.monotonic()
        if left > 0:
            return left
        self._since[uid] = self._clock.monotonic()
        await self._write(pod, self._running(pod, host))
        return self._run_time(pod)

    async def _finish(self, pod: Object) -> float | None:
        run_time = self._run_time(pod)
        if run_time is None:
            return None
        left = self._started(pod) + run_time - self._clock.monotonic()
        if left > 0:
            return left
        failed = annotation(pod, FAIL_ANNOTATION) == "true"
        await self._write(pod, self._ended(pod, exit_code=1 if failed else 0))
        return None

    async def _stop(self, pod: Object) -> float | None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        if not is_terminal(pod):
            asked = parsed_time(pod["metadata"]["deletionTimestamp"])
            due = self._clock.now() if asked is None else asked - timedelta(seconds=grace)
            left = min(grace, self._stop_time(pod)) - (self._clock.now() - due).total_seconds()
            if left > 0:
                return left
            pod = await self._write(pod, self._ended(pod, exit_code=_KILLED))
        if grace:
            await self._remove(pod)
        return None

    async def _remove(self, pod: Object) -> None:
        if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
            return  # deleted with its last finalizer
        namespace, name = split_key(key_of(pod))
        await self._api.delete(PODS, name, namespace=namespace, grace_period_seconds=0)

    async def _write(self, pod: Object, status: Object) -> Object:
        namespace, name = split_key(key_of(pod))
        lock = {"resourceVersion": pod["metadata"]["resourceVersion"], "uid": uid_of(pod)}
        patch = {"metadata": lock, "status": status}
        written = await self._api.patch(PODS, name, patch, namespace=namespace, subresource="status")
        self._pods.remember(written)
        return written

    def _run_time(self, pod: Object) -> float | None:
        seconds = _seconds(pod, RUN_SECONDS_ANNOTATION)
        if seconds is not None:
            return seconds / self._options.speed
        if (pod["spec"].get("restartPolicy") or "Always") == "Always" or self._options.run_seconds is None:
            return None
        return self._options.run_seconds / self._options.speed

    def _stop_time(self, pod: Object) -> float:
        seconds = _seconds(pod, STOP_SECONDS_ANNOTATION)
        return self._options.stop_seconds if seconds is None else seconds

    def _started(self, pod: Object) -> float:
        """Return the monotonic time of the start; from the status if another process started the pod."""
        known = self._since.get(uid_of(pod))
        if known is not None:
            return known
        started = parsed_time((pod.get("status") or {}).get("startTime")) or self._clock.now()
        known = self._clock.monotonic() - (self._clock.now() - started).total_seconds()
        return self._since.setdefault(uid_of(pod), known)

    def _running(self, pod: Object, host: Object) -> Object:
        now = stamp(self._clock.now())
        address, held = (
            _address(uid_of(pod)),
            [
                {"type": kind, "status": "True", "reason": None, "message": None}
                for kind in (
                    "PodScheduled",
                    "PodReadyToStartContainers",
                    "Initialized",
                    "ContainersReady",
                    CONDITION_READY,
                )
            ],
        )
        return {
            "phase": "Running",
            "startTime": now,
            "hostIP": _internal_address(host),
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": _conditions(pod, held, now),
            "containerStatuses": [
                _container(pod, entry, running=True, state={"running": {"startedAt": now}})
                for entry in pod["spec"].get("containers") or ()
            ],
        }

    def _ended(self, pod: Object, *, exit_code: int) -> Object:
        now = stamp(self._clock.now())
        reason = "PodFailed" if exit_code else "PodCompleted"
        held = [
            {"type": kind, "status": "False", "reason": reason, "message": None}
            for kind in ("ContainersReady", CONDITION_READY)
        ]
        terminated = {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": (pod.get("status") or {}).get("startTime") or now,
            "finishedAt": now,
        }
        return {
            "phase": "Failed" if exit_code else "Succeeded",
            "conditions": _conditions(pod, held, now),
            "containerStatuses": [
                _container(pod, entry, running=False, state={"terminated": terminated})
                for entry in pod["spec"].get("containers") or ()
            ],
        }


def is_alive(node: Object) -> bool:
    """Whether the node's kubelet works: its condition Ready has status True."""
    ready = condition(node, CONDITION_READY)
    return ready is not None and ready.get("status") == "True"


def _conditions(pod: Object, changes: list[Object], now: str) -> list[Object]:
    merged = with_conditions((pod.get("status") or {}).get("conditions") or [], changes, now)
    return [{key: value for key, value in entry.items() if value is not None} for entry in merged]


def _seconds(pod: Object, key: str) -> float | None:
    """Return the seconds in an annotation; None if it is missing, or no number of seconds."""
    written = annotation(pod, key)
    if written is None:
        return None
    try:
        seconds = float(written)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds) and seconds >= 0:
        return seconds
    log.warning("no number of seconds, the default holds", pod=key_of(pod), annotation=key, found=written)
    return None


def _container(pod: Object, container: Object, *, running: bool, state: dict[str, Any]) -> Object:
    name, image = container["name"], container.get("image", "")
    uid = uid_of(pod)
    return {
        "name": name,
        "image": image,
        "imageID": f"simulated://{image}",
        "containerID": f"simulated://{hashlib.sha256(f'{uid}/{name}'.encode()).hexdigest()}",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _address(uid: str) -> str:
    """Return a pod's stable address in 10.128.0.0/9; two pods rarely have the same one."""
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:3]) | 0x800000
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _internal_address(node: Object) -> str:
    for entry in (node.get("status") or {}).get("addresses") or ():
        if entry.get("type") == "InternalIP":
            return str(entry.get("address"))
    return ""
