"""Carries out a plan on a manager with two workers, and checks after every step what must hold on and between them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any

from kqueue.api import names
from kqueue.errors import NotFoundError
from kqueue.sandbox.api import JOB_SETS, JOBS, PODS, GroupVersionResource, Object
from tests.sim import invariants
from tests.sim.actor import END_SECONDS, REST_SECONDS, Actor, BrokenWorldError
from tests.sim.api_client import NONE
from tests.sim.cluster_dispatch import nominate
from tests.sim.clusters import CUSTOM, LOST_SECONDS, Clusters
from tests.sim.custom import KINDS, adapter_of, kind_of, made, resource_of
from tests.sim.kinds import group_of, workload_of_group
from tests.sim.kinds_actor import KindsActor, members_of
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS
from tests.sim.plan import End, Plan, Step
from tests.sim.reading import Breaches, Invariant
from tests.sim.world import World, is_true, owner_of

_BACK_SECONDS = 45
"""Seconds after a worker is reached again, within which what ran there in the meantime is ended."""
ALWAYS: tuple[Invariant, ...] = (
    invariants.nothing_was_breached_on_the_way,
    invariants.audits_find_nothing,
    invariants.one_workload_per_job,
    invariants.released_pods_are_in_their_domains,
)
AT_REST: tuple[Invariant, ...] = (
    invariants.no_gate_is_left_over,
    invariants.watches_are_true,
    invariants.cache_equals_the_api,
    invariants.status_tells_the_usage,
    invariants.waiting_workloads_say_why,
    invariants.queues_count_who_waits,
)


class OneCluster:
    """No job has running pods in two clusters, as seen at each moment.

    What ran on a worker that was cut off may run elsewhere, too, until a while after the worker is reached again.
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._excused: dict[str, float] = {}
        """By cluster, the time until which its pods may be of jobs that others run."""
        self.breaches: list[str] = []
        self.moves: set[str] = set()
        """Jobs that ran on more than one cluster, one after the other."""
        self._ran: defaultdict[str, set[str]] = defaultdict(set)

    def look(self) -> None:
        """Note jobs that run twice."""
        manager, now = self._clusters.manager, self._clusters.clock.monotonic()
        for name in self._clusters.workers:
            was_apart = now < self._excused.get(name, -1.0)
            if name in manager.cut or (was_apart and not manager.is_connected(name)):
                self._excused[name] = now + _BACK_SECONDS
        where: defaultdict[str, set[str]] = defaultdict(set)
        for name, world in self._clusters.workers.items():
            for job in running(world):
                where[job].add(name)
                self._ran[job].add(name)
        self.moves = {job for job, clusters in self._ran.items() if len(clusters) > 1}
        for job, clusters in where.items():
            trusted = [name for name in clusters if now >= self._excused.get(name, -1.0)]
            if len(clusters) > 1 and len(trusted) == len(clusters):
                self.breaches.append(f"at t={now:.1f} {job} runs in {sorted(clusters)}")


def running(world: World) -> set[str]:
    """Return the names of the queued jobs, pods and groups with running pods that nobody has told to end."""
    return {
        pod["metadata"].get("labels", {}).get("jobset.sigs.k8s.io/jobset-name")
        or owner_of(pod)
        or group_of(pod)
        or pod["metadata"]["name"]
        for pod in world.objects(PODS)
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    }


class ClustersActor(KindsActor):
    """One plan on three worlds."""

    always, at_rest = ALWAYS, AT_REST
    named = "clusters"

    def __init__(self, clusters: Clusters, plan: Plan) -> None:
        super().__init__(clusters.manager, plan)
        self.clusters, self.manager = clusters, clusters.manager
        self.once = OneCluster(clusters)
        self.manager.on_settled.append(self.once.look)

    # --- checks ------------------------------------------------------------------------------------------------------

    def check(self, which: tuple[Invariant, ...]) -> None:
        """Raise BrokenWorldError if an invariant is broken on a cluster, or between them."""
        found = list(self.once.breaches)
        for name, world in self.clusters.worlds.items():
            found += [f"{name}: {told}" for told in invariants.breaches(world, which)]
        if which != self.always:
            found += [f"copies: {told}" for told in self._copies()]
        if found:
            raise BrokenWorldError(self._replay(found))

    def _copies(self) -> Breaches:
        """At rest a worker has the copies of living originals with quota alone, and one of them runs the job."""
        originals = {w["metadata"]["name"]: w for w in self.manager.objects(WORKLOADS)}
        for cluster, world in self.clusters.workers.items():
            for copy in world.objects(WORKLOADS):
                original = originals.get(copy["metadata"]["name"])
                if original is None or is_true(original, "Finished") or not is_true(original, "QuotaReserved"):
                    yield f"{cluster} has {copy['metadata']['name']}, which has ended or has no quota"
                elif original["status"].get("clusterName", cluster) != cluster:
                    yield f"{cluster} has {copy['metadata']['name']}, which {original['status']['clusterName']} runs"
            for resource in self._kinds(world):
                for job in world.objects(resource):
                    name, labels = job["metadata"]["name"], job["metadata"].get("labels") or {}
                    if names.MULTIKUEUE_ORIGIN_LABEL in labels and self.manager.find(resource, name) is None:
                        yield f"{cluster} has {resource.plural}/{name}, which is gone"

    @staticmethod
    def _kinds(world: World) -> tuple[GroupVersionResource, ...]:
        """Return the kinds of objects that the manager copies to a worker."""
        enabled = world.configured.integrations.frameworks
        custom = [resource_of(KINDS[prefix]) for prefix in CUSTOM if KINDS[prefix].framework in enabled]
        job_sets = [JOB_SETS] if "jobset.x-k8s.io/jobset" in enabled else []
        return (JOBS, *job_sets, *custom, PODS)

    def _resource_of(self, name: str) -> GroupVersionResource:
        kind = kind_of(name)
        if kind is not None:
            return resource_of(kind)
        found = (kind for kind in self._kinds(self.manager) if self.manager.find(kind, name) is not None)
        return next(found, JOBS)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _do(self, step: Step) -> None:
        self._start()
        await Actor._do(self, step)  # what must hold at any moment is looked at in all of them

    def _start(self) -> None:
        for world in self.clusters.worlds.values():
            if world.controller is None:
                world.start_controller()

    def _set_faults(self, *, are_on: bool) -> None:
        for world in self.clusters.worlds.values():
            assert world.controller is not None
            world.controller.client.faults = world.faults if are_on else NONE
        self.manager.set_faults(self.manager.faults if are_on else NONE)

    async def _calm(self, seconds: float) -> None:
        self._start()
        self._set_faults(are_on=False)
        await self.world.pass_time(seconds)

    async def rest(self) -> None:
        """Mend all networks, wait until nothing is pending, and check the invariants of rest."""
        await self.mend()
        await self._calm(REST_SECONDS)
        await self._pause()
        self.check(self.always + self.at_rest)
        self._set_faults(are_on=True)

    def _stirred(self) -> float:
        """Return the time of the last event on any cluster, in seconds of the common clock."""
        return max(world.history.stirred for world in self.clusters.worlds.values())

    async def end(self) -> None:
        """Repair everything, and check that every job reaches its end, leaves nothing, and lets all be quiet."""
        self.world.log.append(f"    t={self.world.clock.monotonic():.1f} everything is repaired")
        await self.repair()
        for _ in range(0, END_SECONDS, REST_SECONDS):
            await self._calm(REST_SECONDS)
            await self.give_back_pods()
            if self.ends() == self.plan.ends:
                break
        await self._calm(REST_SECONDS)
        await self._pause()
        self.check(self.always + self.at_rest)
        ends = self.ends()
        wrong = [f"{n} is {ends.get(n)}, not {end}" for n, end in self.plan.ends.items() if ends.get(n) != end]
        for cluster, world in self.clusters.workers.items():
            left = [obj["metadata"]["name"] for r in (WORKLOADS, *self._kinds(world)) for obj in world.objects(r)]
            wrong += [f"{cluster} still has {left}"] if left else []
        if wrong:
            raise BrokenWorldError(self._replay(wrong))
        self.check((invariants.nothing_is_held,))
        await self._nothing_is_written()

    async def _nothing_is_written(self) -> None:
        before = {name: world.history.changes for name, world in self.clusters.worlds.items()}
        await self._calm(REST_SECONDS)
        after = {name: world.history.changes for name, world in self.clusters.worlds.items()}
        if after != before:
            raise BrokenWorldError(self._replay([f"something is written at rest: changes {before}, then {after}"]))

    def _end(self, name: str) -> End:
        kind = kind_of(name)
        found = self.manager.find(resource_of(kind), name) if kind is not None else None
        if kind is None or found is None:
            return super()._end(name)
        ended = adapter_of(kind).finished(found)
        return End.WAITING if ended is None else End.COMPLETE if ended.success else End.FAILED

    async def repair(self) -> None:
        """Mend networks, resume queues, and delete the endless jobs."""
        await self.mend()
        await self.resume()
        for name in self.plan.ends:
            if name.startswith("endless"):
                await self.delete_job(name)

    # --- actions -----------------------------------------------------------------------------------------------------

    async def submit_custom(self, name: str, **settings: Any) -> None:
        """A user creates an object of a custom kind."""
        await self._create(self._resource_of(name), name, made(name, **settings))

    async def nominate(self, name: str, clusters: tuple[str, ...]) -> None:
        """Another client writes nominated clusters into the Workload of a job that waits for one."""
        workload = self._workload_of(name)
        if workload is not None and is_true(workload, "QuotaReserved") and not workload["status"].get("clusterName"):
            await nominate(self.manager, workload, clusters)

    def _workload_of(self, name: str) -> Object | None:
        return self.manager.workload_of(name) or workload_of_group(self.manager, name)

    async def delete_copy_of_job(self, name: str) -> None:
        """Someone deletes a job, or the pods of a group, on the workers."""
        for world in self.clusters.workers.values():
            pods = [(PODS, each["metadata"]["name"]) for each in members_of(world, name)]
            for resource, each in pods or [(kind, name) for kind in self._kinds(world)]:
                with contextlib.suppress(NotFoundError):
                    await world.api.delete(resource, each, namespace=NAMESPACE)

    async def delete_copy_of_workload(self, name: str) -> None:
        """Someone deletes a Workload on the workers."""
        workload = self._workload_of(name)
        if workload is None:
            return
        for world in self.clusters.workers.values():
            with contextlib.suppress(NotFoundError):
                await world.api.delete(WORKLOADS, workload["metadata"]["name"], namespace=NAMESPACE)

    async def hold_on(self, cluster: str, policy: str) -> None:
        """The queue of a worker is stopped."""
        await self.clusters.workers[cluster].api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": policy}})

    async def resume(self) -> None:
        """The queues of all clusters are resumed."""
        for world in self.clusters.worlds.values():
            await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "None"}})

    async def cut(self, cluster: str) -> None:
        """The manager does not reach a worker any more."""
        self.manager.set_cut(cluster, is_cut=True)

    async def mend(self) -> None:
        """The manager reaches all workers."""
        for name in list(self.manager.cut):
            self.manager.set_cut(name, is_cut=False)

    async def lose(self, cluster: str) -> None:
        """The manager does not reach a worker for so long that what runs there is dispatched anew."""
        await self.cut(cluster)
        await self.manager.pass_time(LOST_SECONDS + 60)

    async def kill_in(self, cluster: str, at_write: int, *, after: bool, down: float) -> None:
        """Kill the controller of a cluster, now (0) or at one of its next writes; it starts anew after `down` seconds."""
        world = self.clusters.worlds[cluster]
        if at_write:
            world.arm_kill(at_write, after=after)
            await self.manager.pass_time(5)
        world.kill_controller()
        await self.manager.pass_time(down)
        world.start_controller()
