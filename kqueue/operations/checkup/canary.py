"""A small gang that goes through a LocalQueue: suspended, admitted, gated, placed, released, bound and deleted.

It is one Job with minimal requests. It is deleted at every end of the check; the canary of a killed doctor ends by
itself after its limit, and the next doctor removes it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kqueue.api import names
from kqueue.clock import Clock, api_time
from kqueue.controllers.leftovers import GATES
from kqueue.controllers.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from kqueue.core.quantity import parse_quantity
from kqueue.errors import ApiError, ForbiddenError, InvalidError, KqueueError, NotFoundError
from kqueue.jobs.variants import without_variants
from kqueue.kube import names as kube_names
from kqueue.kube.conditions import condition
from kqueue.operations.checkup.installation import JOBS
from kqueue.operations.checkup.values import (
    CheckStep,
    CheckVerdict,
    StepStatus,
    failed,
    judged,
    many,
    ok,
    skipped,
    warning,
)
from kqueue.operations.questions import ask, path
from kqueue.runtime.client import Client, Propagation

JSON = dict[str, Any]
CANARY_LABEL = "kqueue.dev/canary"
_RUN_ANNOTATION = "kqueue.dev/canary-run"
"""The doctor that made the Job: host, process id, and the limit in seconds."""
_OLD = "canary-old"
_LOOK_SECONDS = 0.1
_GOODBYE_SECONDS = 30.0
_SLACK = timedelta(seconds=60)
_TINY: Mapping[str, str] = {"cpu": "10m", "memory": "16Mi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The form of the canary. `requests` empty: minimal amounts of the queue's resources."""

    namespace: str
    queue: str
    pods: int = 2
    image: str = "registry.k8s.io/pause:3.10"
    seconds: float = 60.0
    """Limit of all steps together, without the last."""
    requests: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """The findings about the canary so far."""

    job: str = ""
    uid: str = ""
    levels: tuple[str, ...] = ()
    """Levels of its flavor's topology; empty if the flavor has none."""
    deadline: float = 0.0
    workload: JSON = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    """Pods that were seen with a gate."""
    over: bool = False
    """A step failed, so the rest is not run."""


class Canary:
    """A check by a canary gang."""

    def __init__(self, client: Client, plan: Plan, clock: Clock, tell: Callable[[CheckStep], None]) -> None:
        """`tell` is called with each step when it has ended."""
        self._client, self._plan, self._clock, self._tell = client, plan, clock, tell
        self._seen = _Seen()
        self._requests: dict[str, str] = {}

    async def fly(self) -> list[CheckStep]:
        """Run all steps. At every end, also after cancellation, the Job is deleted."""
        done: list[CheckStep] = []
        async with aclosing(self._steps()) as steps:
            async for step in steps:
                done.append(step)
        return done

    async def _steps(self) -> AsyncGenerator[CheckStep, None]:
        yield await self._step(_OLD, self._remove_old)
        yield await self._step("canary-room", self._look_for_room)
        try:
            if not self._seen.over:
                self._seen.deadline = self._clock.monotonic() + self._plan.seconds
                yield await self._step("canary-suspend", self._submit)
                for name, check in (
                    ("canary-workload", self._until_workload),
                    ("canary-quota", self._until_reserved),
                    ("canary-admit", self._until_admitted),
                    ("canary-start", self._until_started),
                    ("canary-gate", self._until_pods),
                    ("canary-ungate", self._until_ungated),
                    ("canary-bind", self._until_bound),
                ):
                    if not self._seen.over:
                        yield await self._step(name, check)
        finally:
            if self._seen.job:
                cleaned = await self._step("canary-cleanup", self._clean_up)
        if self._seen.job:
            yield cleaned

    async def _step(self, name: str, check: Callable[[], Awaitable[CheckVerdict]]) -> CheckStep:
        before = self._clock.monotonic()
        verdict = await judged(check, self._plan.seconds + _GOODBYE_SECONDS)
        self._seen.over = self._seen.over or (verdict.status is not StepStatus.OK and name != _OLD)
        step = CheckStep(name, self._clock.monotonic() - before, verdict)
        self._tell(step)
        return step

    # --- before ------------------------------------------------------------------------------------------------

    async def _remove_old(self) -> CheckVerdict:
        """Delete canaries of doctors that were killed."""
        try:
            jobs = await self._client.list_json(JOBS, label_selector=f"{CANARY_LABEL}=true")
        except ForbiddenError:
            jobs = await self._client.list_json(JOBS, self._plan.namespace, label_selector=f"{CANARY_LABEL}=true")
        old = [job for job in jobs if self._is_old(job)]
        for job in old:
            await self._delete(job["metadata"]["namespace"], job["metadata"]["name"])
        here = len(jobs) - len(old)
        busy = f"; {here} of other doctors are running" if here else ""
        if old:
            return ok(f"removed what killed doctors left behind: {many(len(old), 'Job')}{busy}")
        return ok(f"no canary was left behind{busy}")

    def _is_old(self, job: JSON) -> bool:
        """Whether the doctor that made the canary has ended: its process on this machine, or its time."""
        try:
            run = json.loads((job["metadata"].get("annotations") or {}).get(_RUN_ANNOTATION, ""))
            host, process, seconds = str(run["host"]), int(run["process"]), float(run["seconds"])
        except (ValueError, KeyError, TypeError):
            return True
        if host == socket.gethostname() and not _is_alive(process):
            return True
        made = api_time(job["metadata"].get("creationTimestamp"))
        return made is None or self._clock.now() - made > timedelta(seconds=seconds) + _SLACK

    async def _look_for_room(self) -> CheckVerdict:
        """Check the queue's resources, and whether so little is free that the canary would wait or preempt."""
        plan = self._plan
        try:
            local = await self._client.get_json(LOCAL_QUEUES, plan.queue, plan.namespace)
        except NotFoundError:
            return failed(
                f"LocalQueue {plan.namespace}/{plan.queue} does not exist",
                f"kubectl -n {plan.namespace} get localqueues lists all that exist",
            )
        name = local["spec"]["clusterQueue"]
        try:
            queue = await self._client.get_json(CLUSTER_QUEUES, name)
        except NotFoundError:
            return failed(f"ClusterQueue {name} does not exist", "create it, or correct the LocalQueue")
        active = condition(queue, names.CONDITION_ACTIVE)
        if active is not None and active["status"] != "True":
            return failed(f"ClusterQueue {name} admits nothing: {active['message']}", "correct that first")
        groups = queue["spec"].get("resourceGroups") or []
        covered = {resource for group in groups for resource in group["coveredResources"]}
        self._requests = dict(plan.requests) or {r: _TINY[r] for r in sorted(covered & _TINY.keys())}
        self._seen.levels = await self._levels(groups)
        short = await self._short_of(name)
        if short:
            return skipped(
                f"{', '.join(short)} of ClusterQueue {name} is used up: a canary would wait, or preempt workloads"
            )
        asks = ", ".join(f"{amount} {r}" for r, amount in self._requests.items()) or "no resource"
        return ok(f"{many(plan.pods, 'pod')} of {asks} each, by {plan.namespace}/{plan.queue} to ClusterQueue {name}")

    async def _levels(self, groups: Sequence[JSON]) -> tuple[str, ...]:
        """Return levels of the topology of the queue's first flavor that has one; else empty."""
        for group in groups:
            for entry in group["flavors"]:
                try:
                    flavor = await self._client.get_json(RESOURCE_FLAVORS, entry["name"])
                    spec = flavor.get("spec") or {}
                    if spec.get("topologyName"):
                        spec = {"topology": (await self._client.get_json(TOPOLOGIES, spec["topologyName"]))["spec"]}
                except NotFoundError:
                    continue
                if spec.get("topology"):
                    return tuple(level["nodeLabel"] for level in spec["topology"]["levels"])
        return ()

    async def _short_of(self, queue: str) -> list[str]:
        """Return resources of which no flavor has enough free; empty if no controller answers."""
        where = path(names.KQUEUE_VISIBILITY_GROUP, "v1alpha1", "queuesummaries")
        try:
            items = (await ask(self._client, where, {"clusterQueue": queue}))["items"]
        except KqueueError:
            return []
        short = []
        for resource, text in self._requests.items():
            left = [
                parse_quantity(column["available"], resource)
                for item in items
                for column in item["resources"]
                if column["resource"] == resource
            ]
            if left and max(left) < self._plan.pods * parse_quantity(text, resource):
                short.append(resource)
        return short

    # --- on the way --------------------------------------------------------------------------------------------

    async def _submit(self) -> CheckVerdict:
        name = f"kqueue-canary-{secrets.token_hex(4)}"
        self._seen.job = name  # before the request: without an answer it is unknown whether the Job exists
        try:
            job = await self._client.create(JOBS, self._job(name))
        except (ForbiddenError, InvalidError, NotFoundError) as e:
            self._seen.job = ""
            return failed(f"the API server refuses it: {e}", "try another namespace, or a user who may create Jobs")
        self._seen.uid = job["metadata"]["uid"]
        if not job["spec"].get("suspend"):
            return failed("the webhook did not suspend it", "see the steps webhooks and reviews")
        return ok(f"Job {name} was suspended by the webhook")

    def _job(self, name: str) -> JSON:
        plan = self._plan
        run = {"host": socket.gethostname(), "process": os.getpid(), "seconds": plan.seconds}
        notes: dict[str, str] = {}
        if len(self._seen.levels) > 1:
            notes[names.PREFERRED_TOPOLOGY_ANNOTATION] = self._seen.levels[-2]
        elif self._seen.levels:
            notes[names.UNCONSTRAINED_TOPOLOGY_ANNOTATION] = "true"
        container = {
            "name": "canary",
            "image": plan.image,
            "resources": {"requests": self._requests, "limits": self._requests},
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": plan.namespace,
                "labels": {names.QUEUE_NAME_LABEL: plan.queue, CANARY_LABEL: "true"},
                "annotations": {_RUN_ANNOTATION: json.dumps(run)},
            },
            "spec": {
                "parallelism": plan.pods,
                "completions": plan.pods,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "activeDeadlineSeconds": int(plan.seconds + _GOODBYE_SECONDS),
                "ttlSecondsAfterFinished": int(_SLACK.total_seconds()),
                "template": {
                    "metadata": {"labels": {CANARY_LABEL: "true"}, "annotations": notes},
                    "spec": {
                        "restartPolicy": "Never",
                        "terminationGracePeriodSeconds": 0,
                        "automountServiceAccountToken": False,
                        "containers": [container],
                    },
                },
            },
        }

    async def _until_workload(self) -> CheckVerdict:
        async def look() -> CheckVerdict | None:
            found = await self._client.list_json(
                WORKLOADS, self._plan.namespace, label_selector=f"{names.JOB_UID_LABEL}={self._seen.uid}"
            )
            found = without_variants(found)
            if not found:
                return None
            self._seen.workload = found[0]
            return ok(f"Workload {found[0]['metadata']['name']}")

        return await self._until(look, lambda: failed("no Workload was made for it", "look at the controller's log"))

    async def _until_reserved(self) -> CheckVerdict:
        return await self._until_condition(names.CONDITION_QUOTA_RESERVED, "quota is reserved")

    async def _until_admitted(self) -> CheckVerdict:
        return await self._until_condition(names.CONDITION_ADMITTED, "it is admitted")

    async def _until_condition(self, kind: str, words: str) -> CheckVerdict:
        async def look() -> CheckVerdict | None:
            self._seen.workload = await self._client.get_json(
                WORKLOADS, self._seen.workload["metadata"]["name"], self._plan.namespace
            )
            return ok(words) if self._condition(kind).get("status") == "True" else None

        def late() -> CheckVerdict:
            why = self._condition(kind).get("message") or self._condition(names.CONDITION_QUOTA_RESERVED).get("message")
            return failed(f"it waits: {why or 'without a reason in its status'}", "make room, or remove the cause")

        return await self._until(look, late)

    def _condition(self, kind: str) -> JSON:
        return condition(self._seen.workload, kind) or {}

    async def _until_started(self) -> CheckVerdict:
        async def look() -> CheckVerdict | None:
            job = await self._client.get_json(JOBS, self._seen.job, self._plan.namespace)
            return None if job["spec"].get("suspend") else ok("the Job is started")

        return await self._until(look, lambda: failed("the Job is still suspended", "look at the controller's log"))

    async def _until_pods(self) -> CheckVerdict:
        async def look() -> CheckVerdict | None:
            if len(await self._pods()) < self._plan.pods:
                return None
            if not self._seen.levels:
                return ok(f"{many(self._plan.pods, 'pod')}; without a topology they need no gate")
            seen = len(self._seen.gated)
            how = f"{seen} of them seen with the gate" if seen else "released before the first look"
            return ok(f"{many(self._plan.pods, 'pod')}, {how}")

        return await self._until(
            look, lambda: failed("its pods are not created", "kubectl describe job; look at quotas of the namespace")
        )

    async def _until_ungated(self) -> CheckVerdict:
        async def look() -> CheckVerdict | None:
            pods = await self._pods()
            if len(pods) < self._plan.pods or any(_gates(pod) for pod in pods):
                return None
            return ok("every pod is released" if self._seen.levels else "no pod is gated")

        return await self._until(
            look, lambda: failed("pods stay gated", "look at the controller's log for the ungater")
        )

    async def _until_bound(self) -> CheckVerdict:
        async def look() -> CheckVerdict | None:
            pods = await self._pods()
            nodes = {pod["spec"].get("nodeName") for pod in pods}
            if len(pods) < self._plan.pods or None in nodes or "" in nodes:
                return None
            return ok(f"pods are bound to {await self._places(sorted(map(str, nodes)))}")

        return await self._until(
            look, lambda: failed("pods are released but not bound to nodes", "kubectl describe pod: ask the scheduler")
        )

    async def _places(self, nodes: Sequence[str]) -> str:
        """Return the nodes and their domains, for people."""
        levels = [level for level in self._seen.levels if level != kube_names.HOSTNAME_LABEL]
        domains = set()
        for name in nodes if levels else ():
            try:
                labels = (await self._client.get_json(NODES, name))["metadata"].get("labels") or {}
            except ApiError:
                continue
            domains.add("/".join(labels.get(level, "?") for level in levels))
        inside = f" in {', '.join(sorted(domains))}" if domains else ""
        return f"{', '.join(nodes)}{inside}"

    async def _pods(self) -> list[JSON]:
        """Return the canary's pods, and remember the gated ones."""
        pods = await self._client.list_json(PODS, self._plan.namespace, label_selector=f"job-name={self._seen.job}")
        self._seen.gated.update(pod["metadata"]["uid"] for pod in pods if _gates(pod))
        return pods

    async def _until(
        self, look: Callable[[], Awaitable[CheckVerdict | None]], late: Callable[[], CheckVerdict]
    ) -> CheckVerdict:
        """Repeat `look` until it returns a verdict, or until the canary's time is over; then return `late()`."""
        while (verdict := await look()) is None:
            if self._clock.monotonic() >= self._seen.deadline:
                return late()
            await self._clock.sleep(_LOOK_SECONDS)
        return verdict

    # --- afterwards --------------------------------------------------------------------------------------------

    async def _clean_up(self) -> CheckVerdict:
        """Delete the Job, and wait until its Workload and pods are gone."""
        await self._delete(self._plan.namespace, self._seen.job)
        until = self._clock.monotonic() + _GOODBYE_SECONDS
        while left := await self._left():
            if self._clock.monotonic() >= until:
                return warning(
                    f"{', '.join(left)} still exist after {_GOODBYE_SECONDS:g} s", "look at their finalizers and nodes"
                )
            await self._clock.sleep(_LOOK_SECONDS)
        return ok("Job, Workload and pods are gone")

    async def _left(self) -> list[str]:
        left = []
        try:
            await self._client.get_json(JOBS, self._seen.job, self._plan.namespace)
            left.append("the Job")
        except NotFoundError:
            pass
        pods = await self._pods()
        if pods:
            left.append(f"{len(pods)} pods")
        if self._seen.workload:
            try:
                await self._client.get_json(WORKLOADS, self._seen.workload["metadata"]["name"], self._plan.namespace)
                left.append("the Workload")
            except NotFoundError:
                pass
        return left

    async def _delete(self, namespace: str, name: str) -> None:
        with suppress(NotFoundError):
            await self._client.delete(JOBS, name, namespace, propagation=Propagation.BACKGROUND)


def _gates(pod: JSON) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or () if gate["name"] in GATES]


def _is_alive(process: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True
    return True
