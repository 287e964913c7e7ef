"""Other clients write the same Workloads, each in its own way: kqueue follows, settles, and then writes no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from kqueue.manager.process import running
from kqueue.runtime.transport import RequestRecord
from tests.integration.other_writers import RUNNING, TRANSITIONS, WRITERS, Transition, Writer, charged, now, unmet
from tests.integration.road import KUEUE, Object
from tests.integration.teams import FAST, Plane, Teams, configuration, flags, post

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

QUIET_SECONDS = 1.5
"""No write for so long: longer than every window in which writes are collected."""
WRITES = 5
"""As many may follow one act: an eviction by a check costs four, and a turn in the queue is told."""


async def make_queues(plane: Plane) -> Teams:
    """ClusterQueues with room, without, and with a check that nobody answers; each behind a LocalQueue of its name."""
    await plane.cluster.add_nodes((1, 1, 2), labels={"pool": "gpu"})
    namespace = await plane.cluster.create_namespace("writers")
    await post(plane, "resourceflavors", "plain", {})
    await post(plane, "admissionchecks", "nodes", {"controllerName": "example.com/nodes"})
    teams = Teams(plane.cluster, namespace)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now()}

    def answers(check: Object) -> None:
        check["status"] = {"conditions": [active]}

    await Writer(plane.cluster, "merge").write(f"{KUEUE}/admissionchecks/nodes/status", answers)
    for name, cpus in (("open", "1000"), ("closed", "0"), ("checked", "1000"), ("jobs", "1000")):
        quotas = [{"name": "cpu", "nominalQuota": cpus}, {"name": "nvidia.com/gpu", "nominalQuota": "1000"}]
        groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "plain", "resources": quotas}]}]
        checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]}} if name == "checked" else {}
        await post(plane, "clusterqueues", name, {"namespaceSelector": {}, "resourceGroups": groups, **checks})
        await post(plane, "localqueues", name, {"clusterQueue": name}, namespace=namespace)
    return teams


class Trial:
    """All transitions, each with a workload of its own for every writer."""

    def __init__(self, plane: Plane, teams: Teams) -> None:
        self._plane, self._teams = plane, teams
        self._trials = {f"{name}-by-{how}": (found, how) for name, found in TRANSITIONS.items() for how in WRITERS}
        self.writes = 0

    def count(self, record: RequestRecord) -> None:
        """One request of kqueue."""
        self.writes += record.verb == "patch" and record.resource.startswith("workloads")

    async def make(self) -> None:
        """All workloads are where their acts meet them."""
        await asyncio.gather(*(self._make(name, found) for name, (found, _how) in self._trials.items()))
        await self._settled(
            {name: found.before.want for name, (found, _how) in self._trials.items() if not found.before.acts}
        )
        by_hand = Writer(self._plane.cluster, "merge")
        for name, (found, _how) in self._trials.items():
            for part, act in found.before.acts:
                await by_hand.write(await self._path(name, part), act)
        await self._settled({name: found.before.want for name, (found, _how) in self._trials.items()})

    async def _make(self, name: str, found: Transition) -> None:
        if found.before is RUNNING:
            await self._teams.submit(name, queue="jobs", pods=1, gpus=1)
            return
        container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        spec = {"queueName": found.before.queue, "podSets": [{"name": "main", "count": 2, "template": template}]}
        await post(self._plane, "workloads", name, spec, namespace=self._teams.namespace)

    async def act(self) -> dict[str, Object | None]:
        """Every client writes its act; what the API server answered, None where it refused."""
        answers: dict[str, Object | None] = {}
        for name, (found, how) in self._trials.items():
            answers[name] = await Writer(self._plane.cluster, how).write(await self._path(name, found.part), found.act)
        return answers

    async def _path(self, name: str, part: str) -> str:
        is_job = self._trials[name][0].before is RUNNING
        workload = (await self._teams.workload_of(name))["metadata"]["name"] if is_job else name
        return f"{self._teams.workloads}/{workload}" + ("/status" if part == "status" else "")

    async def settled(self, answers: Mapping[str, Object | None]) -> None:
        """All is as the acts want it, and as it was where they were refused."""
        wanted = {name: found for name, (found, _how) in self._trials.items()}
        await self._settled(
            {name: t.before.want if answers[name] is None else t.want for name, t in wanted.items()},
            {name: t.gone for name, t in wanted.items() if answers[name] is not None},
        )

    async def _settled(
        self, want: Mapping[str, Mapping[str, tuple[str, str] | str]], gone: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        wrong: dict[str, str] = {}

        def met(listed: Object) -> bool:
            by_name = {_name(w): w for w in listed["items"]}
            looks = {
                n: unmet(by_name.get(n, {}), conditions, (gone or {}).get(n, ())) for n, conditions in want.items()
            }
            wrong.clear()
            wrong.update({name: text for name, text in looks.items() if text})
            return not wrong

        try:
            await self._teams.cluster.until(self._teams.workloads, met, what="all have settled", seconds=30)
        except TimeoutError:
            raise AssertionError("\n".join(f"{name}: {text}" for name, text in wrong.items())) from None

    async def quiet(self) -> None:
        """Nothing is written any more."""
        async with asyncio.timeout(30):
            before = -1
            while before != self.writes:
                before = self.writes
                await asyncio.sleep(QUIET_SECONDS)  # that nothing happens can only be seen in time that passes

    async def accounted(self) -> None:
        """Each ClusterQueue reports what the Workloads hold that name it."""
        held: dict[str, int] = {}
        for workload in (await self._plane.cluster.get(self._teams.workloads))["items"]:
            queue = workload["spec"]["queueName"]
            held[queue] = held.get(queue, 0) + charged(workload)

        def same(listed: Object) -> bool:
            return {q["metadata"]["name"]: _reserved(q) for q in listed["items"]} == held

        await self._plane.cluster.until(f"{KUEUE}/clusterqueues", same, what=f"usage {held}", seconds=10)


def _name(workload: Object) -> str:
    """The name of its Job, or its own where it has none."""
    owners = workload["metadata"].get("ownerReferences")
    return str(owners[0]["name"] if owners else workload["metadata"]["name"])


def _reserved(queue: Object) -> int:
    (flavor,) = queue["status"]["flavorsReservation"]
    return next(int(r["total"]) for r in flavor["resources"] if r["name"] == "cpu")


@asynccontextmanager
async def trial_on(plane: Plane) -> AsyncIterator[Trial]:
    """A controller, and workloads that have come to where the acts meet them."""
    trial = Trial(plane, await make_queues(plane))
    async with running(configuration(), flags(plane), timings=FAST, on_request=trial.count):
        await trial.make()
        yield trial


async def test_every_transition_settles_whoever_writes_it_and_however(either_plane: Plane) -> None:
    """Merge patch, server-side apply with and without force, update: each act is followed within a bound of time and
    writes, then nothing is written, and quota is what the Workloads say.
    """
    async with trial_on(either_plane) as trial:
        await trial.quiet()
        before = trial.writes
        answers = await trial.act()
        await trial.settled(answers)
        await trial.quiet()
        await trial.accounted()

        assert trial.writes - before <= WRITES * len(answers)
        refused = {name for name, answer in answers.items() if answer is None}
        assert all(name.endswith("-by-apply") for name in refused)
        left = answers["end-by-force"]
        assert left is not None
        assert "admission" in left["status"]  # a field that another manager wrote: this is what kqueue has to clear
