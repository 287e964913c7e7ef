"""Carries out a plan on a world, and checks all invariants after every step."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from kqueue.api import names
from kqueue.errors import ForbiddenError, InvalidError, NotFoundError
from kqueue.kube import names as kube_names
from kqueue.sandbox.api import DAEMONSETS, JOBS, NODES, PODS, Object
from kqueue.sandbox.json_object import stamp
from kqueue.sandbox.nodes import new_node
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants
from tests.sim.api_client import NONE
from tests.sim.objects import CLUSTER_QUEUES, FLAVORS, FOREIGN, GPU, NAMESPACE, WORKLOADS, job, ours_of, template
from tests.sim.plan import End, Plan, Step
from tests.sim.reading import Invariant
from tests.sim.tenancy import PEACEFUL
from tests.sim.world import World, is_true

REST_SECONDS = 150
"""Seconds without faults after which nothing is pending: more than the longest retry, watch pause and expectation."""
QUIET_SECONDS = 2.5
"""Seconds after the last event within which all its consequences are written, without faults."""
_MOST_PAUSES = 20
END_SECONDS = 2400
"""Longest time that all Jobs of a plan need once everything is repaired."""


class BrokenWorldError(AssertionError):
    """An invariant is broken.  The message says how to replay the world."""


class Actor:
    """One plan on one world."""

    always: ClassVar[tuple[Invariant, ...]] = invariants.ALWAYS
    at_rest: ClassVar[tuple[Invariant, ...]] = invariants.AT_REST
    named: ClassVar[str] = ""
    """The name that `-k` finds the test by; empty: the name of its tenants."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan = world, plan

    async def run(self) -> None:
        """Do every step; then repair everything, and wait for the end of all Jobs."""
        for number, step in enumerate(self.plan.steps):
            self.world.log.append(f"{number:3} t={self.world.clock.monotonic():.1f} {step}")
            try:
                await self._do(step)
            except BrokenWorldError:
                raise
            except Exception as e:
                raise BrokenWorldError(self._replay([f"{type(e).__name__}: {e}"])) from e
            self.check(self.always)
        await self.end()

    async def _do(self, step: Step) -> None:
        if self.world.controller is None:
            self.world.start_controller()
        await getattr(self, step.action)(**step.arguments)
        await self.world.pass_time(step.seconds)

    def check(self, which: tuple[Invariant, ...]) -> None:
        """Raise BrokenWorldError if one of these invariants is broken."""
        found = invariants.breaches(self.world, which)
        if found:
            raise BrokenWorldError(self._replay(found))

    def _replay(self, found: list[str]) -> str:
        told = "\n".join(f"  {line}" for line in found[:20])
        log = "\n".join(self.world.log)
        kind = self.named or ("whatever" if self.world.tenancy is PEACEFUL else "rivals")
        again = f"KQUEUE_SIM_SEEDS={self.world.seed} pytest tests/sim -k {kind}"
        moment = f"seed {self.world.seed}, at t={self.world.clock.monotonic():.1f}"
        return f"{moment}:\n{told}\nWhat was done (again: {again}):\n{log}"

    # --- the end -----------------------------------------------------------------------------------------------------

    async def rest(self) -> None:
        """Wait without faults until nothing is pending, and check the invariants of rest."""
        await self._calm(REST_SECONDS)
        await self._pause()
        self.check(self.always + self.at_rest)
        assert self.world.controller is not None
        self.world.controller.client.faults = self.world.faults

    async def _pause(self) -> None:
        """Wait for a moment without recent events; Jobs end and others start all the time."""
        for _ in range(_MOST_PAUSES):
            left = self._stirred() + QUIET_SECONDS - self.world.clock.monotonic()
            if left <= 0:
                return
            await self.world.pass_time(left)

    def _stirred(self) -> float:
        """Return the time of the last event, in seconds of the world's clock."""
        return self.world.history.stirred

    async def _calm(self, seconds: float) -> None:
        if self.world.controller is None:
            self.world.start_controller()
        assert self.world.controller is not None
        self.world.controller.client.faults = NONE
        self.world.slow.clear()
        await self.world.pass_time(seconds)

    async def end(self) -> None:
        """Repair everything, and check that every Job reaches the end in its plan."""
        self.world.log.append(f"    t={self.world.clock.monotonic():.1f} everything is repaired")
        await self.repair()
        for _ in range(0, END_SECONDS, REST_SECONDS):
            await self._calm(REST_SECONDS)
            await self.restore()
            await self._switch_on()
            if self.ends() == self.plan.ends:
                break
        await self._calm(REST_SECONDS)
        await self._pause()
        self.check(self.always + self.at_rest)
        ends = self.ends()
        if ends != self.plan.ends:
            wrong = [
                f"{n} is {ends.get(n)}, not {end}{self._why(n)}"
                for n, end in self.plan.ends.items()
                if ends.get(n) != end
            ]
            raise BrokenWorldError(self._replay(wrong))
        self.check((invariants.nothing_is_held,))
        changes = self.world.history.changes
        await self._calm(REST_SECONDS)
        if self.world.history.changes != changes:
            raise BrokenWorldError(self._replay(["something is written although nothing happens any more"]))

    def _why(self, name: str) -> str:
        return f" ({self.world.refused[name]})" if name in self.world.refused else ""

    def ends(self) -> dict[str, End]:
        """Return the end of each Job that was ever submitted."""
        return {name: self._end(name) for name in self.plan.ends}

    def _end(self, name: str) -> End:
        found = self.world.find(JOBS, name)
        if found is None:
            return End.WAITING if name in self.world.refused and self.plan.ends[name] is End.WAITING else End.GONE
        if is_true(found, "Complete"):
            return End.COMPLETE
        return End.FAILED if is_true(found, "Failed") else End.WAITING

    async def repair(self) -> None:
        """Undo everything that keeps good Jobs from running."""
        await self.resume()
        await self.repair_nodes()
        await self.remove_strangers()
        await self.restore()
        for name in self.plan.ends:
            if name.startswith("endless"):
                await self.delete_job(name)
        await self._switch_on()

    async def _switch_on(self) -> None:
        """Activate Workloads that were deactivated by users' changes of Jobs."""
        for workload in self.world.objects(WORKLOADS):
            if not workload["spec"].get("active", True):
                await self._patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": True}})

    async def restore(self) -> None:
        """Restore flavors, cohorts and queues; wait first for the end of pending deletions."""
        self.world.disturb_all()
        for resource, obj in self.world.tenancy.objects:
            found = self.world.find(resource, obj["metadata"]["name"])
            if found is None:
                await self.world.api.create(resource, obj, namespace=obj["metadata"].get("namespace"))
            elif "spec" in obj and not found["metadata"].get("deletionTimestamp"):
                await self.world.api.update(resource, {**found, "spec": obj["spec"]})

    async def _patch(self, resource: Any, name: str, patch: Object, **how: Any) -> None:
        with contextlib.suppress(NotFoundError):
            await self.world.api.patch(resource, name, patch, namespace=NAMESPACE, **how)

    # --- actions -----------------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Nothing."""

    async def submit(self, name: str, *, slow: float = 0.0, **settings: Any) -> None:
        """A user creates a Job; the webhook may refuse it.  `slow`: seconds of each controller's write to it."""
        self.world.slow[name] = slow
        try:
            await self.world.submit(job(name, **settings))
        except (ForbiddenError, InvalidError) as e:
            self.world.refused[name] = str(e)

    async def delete_job(self, name: str) -> None:
        """A user deletes a Job."""
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(JOBS, name, namespace=NAMESPACE)

    async def suspend_job(self, name: str) -> None:
        """A user suspends a Job, in any state."""
        self.world.disturbed.add(name)
        await self._patch(JOBS, name, {"spec": {"suspend": True}})

    async def start_job_by_hand(self, name: str) -> None:
        """A user un-suspends a Job without admission."""
        self.world.disturbed.add(name)
        with contextlib.suppress(ForbiddenError):
            await self._patch(JOBS, name, {"spec": {"suspend": False}})

    async def delete_workload(self, name: str) -> None:
        """A user deletes the Workload of a Job."""
        self.world.disturbed.add(name)
        workload = self.world.workload_of(name)
        if workload is not None:
            with contextlib.suppress(NotFoundError):
                await self.world.api.delete(WORKLOADS, workload["metadata"]["name"], namespace=NAMESPACE)

    async def hold(self, queue: str, policy: str) -> None:
        """A ClusterQueue is stopped."""
        self.world.disturb_all()
        await self._patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": policy}})

    async def resume(self) -> None:
        """All ClusterQueues are resumed."""
        for queue in self.world.objects(CLUSTER_QUEUES):
            await self._patch(CLUSTER_QUEUES, queue["metadata"]["name"], {"spec": {"stopPolicy": "None"}})

    async def configure(self, plural: str, name: str, change: Object) -> None:
        """The spec of a queue or cohort changes; the API server may refuse the change."""
        self.world.disturb_all()
        with contextlib.suppress(InvalidError, ForbiddenError):
            await self._patch(ours_of(plural), name, {"spec": change})

    async def delete(self, plural: str, name: str) -> None:
        """A queue or cohort is deleted; the deletion ends when nothing uses it any more."""
        self.world.disturb_all()
        resource = ours_of(plural)
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(resource, name, namespace=NAMESPACE)

    async def delete_flavor(self, name: str) -> None:
        """A flavor is deleted, and removed from all ClusterQueues, while workloads use it."""
        self.world.disturb_all()
        for queue in self.world.objects(CLUSTER_QUEUES):
            groups = [
                {**group, "flavors": [flavor for flavor in group["flavors"] if flavor["name"] != name]}
                for group in queue["spec"].get("resourceGroups") or ()
            ]
            groups = [group for group in groups if group["flavors"]]
            await self._patch(CLUSTER_QUEUES, queue["metadata"]["name"], {"spec": {"resourceGroups": groups}})
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(FLAVORS, name)

    async def set_quota(self, queue: str, gpus: int) -> None:
        """A ClusterQueue's quota of GPUs changes."""
        found = self.world.find(CLUSTER_QUEUES, queue)
        assert found is not None
        groups = found["spec"]["resourceGroups"]
        flavors = [
            {**f, "resources": [{**r, "nominalQuota": str(gpus)} if r["name"] == GPU else r for r in f["resources"]]}
            for f in groups[0]["flavors"]
        ]
        await self._patch(CLUSTER_QUEUES, queue, {"spec": {"resourceGroups": [{**groups[0], "flavors": flavors}]}})

    async def cordon(self, name: str) -> None:
        """A node is cordoned."""
        await self._patch(NODES, name, {"spec": {"unschedulable": True}})

    async def taint(self, name: str) -> None:
        """A node gets a NoExecute taint, which evicts its pods."""
        await self._patch(NODES, name, {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}})

    async def move_node(self, name: str, like: str | None) -> None:
        """A node gets the labels of another node, or (None) of no pool."""
        self.world.moved.add(name)
        labels: Object = {POOL_LABEL: "none"}
        if like is not None:
            labels = next(dict(b.labels) for b in self.world.topology.blueprints() if b.name == like)
        await self._label(name, {k: v for k, v in labels.items() if k != kube_names.HOSTNAME_LABEL})

    async def _label(self, node: str, labels: Object) -> None:
        await self._patch(NODES, node, {"metadata": {"labels": labels}})

    async def choose_profile(self, queue: str, profile: str) -> None:
        """A ClusterQueue gets another placement profile."""
        annotations = {names.PLACEMENT_PROFILE_ANNOTATION: profile}
        await self._patch(CLUSTER_QUEUES, queue, {"metadata": {"annotations": annotations}})

    async def remove_node(self, name: str) -> None:
        """A node is deleted."""
        with contextlib.suppress(NotFoundError):
            await self.world.api.delete(NODES, name)

    async def repair_nodes(self) -> None:
        """Every node exists and accepts pods."""
        for number, blueprint in enumerate(self.world.topology.blueprints()):
            node = self.world.find(NODES, blueprint.name)
            if node is None:
                await self.world.api.create(
                    NODES, new_node(blueprint, number=number, now=stamp(self.world.clock.now()))
                )
            elif node["spec"].get("unschedulable") or node["spec"].get("taints"):
                await self._patch(NODES, blueprint.name, {"spec": {"unschedulable": None, "taints": None}})
            if node is not None and blueprint.name in self.world.moved:
                await self._label(blueprint.name, dict(blueprint.labels))

    async def add_foreign_pod(self, name: str, node: str | None, gpus: int) -> None:
        """Add a foreign pod, bound to `node` or by the scheduler."""
        made = template(gpus=gpus, run_seconds=None)
        spec = {**made["spec"], "restartPolicy": "Always", **({"nodeName": node} if node else {})}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        await self.world.api.create(PODS, pod, namespace=NAMESPACE)

    async def add_foreign_job(self, name: str) -> None:
        """Add a foreign Job, without a queue."""
        await self.world.submit(job(name, queue=None, pods=2, gpus=1, topology=None, run_seconds=5))

    async def add_daemon_set(self, name: str) -> None:
        """Add a DaemonSet with small pods on every node."""
        labels = {"app": name}
        made = template(gpus=0, run_seconds=None)
        made["metadata"]["labels"] = labels
        made["spec"]["restartPolicy"] = "Always"
        spec = {"selector": {"matchLabels": labels}, "template": made}
        metadata = {"name": name, "namespace": NAMESPACE}
        obj = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}
        await self.world.api.create(DAEMONSETS, obj, namespace=NAMESPACE)

    async def remove_strangers(self) -> None:
        """Delete all foreign objects."""
        for resource in (DAEMONSETS, JOBS, PODS):
            for obj in self.world.objects(resource):
                if obj["metadata"]["name"].startswith(FOREIGN):
                    with contextlib.suppress(NotFoundError):
                        await self.world.api.delete(resource, obj["metadata"]["name"], namespace=NAMESPACE)

    async def kill(self, at_write: int, *, after: bool, down: float) -> None:
        """Kill the controller, now (0) or at one of its next writes; start a new one after `down` seconds."""
        if at_write:
            self.world.arm_kill(at_write, after=after)
            await self.world.pass_time(5)
        self.world.kill_controller()
        await self.world.pass_time(down)
        self.world.start_controller()
