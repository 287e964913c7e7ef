"""Worlds of a manager with two workers, from seeds: each job runs in one cluster and comes to its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.api_client import NONE, ROUGH, Faults
from tests.sim.chosen import SELDOM, SLOW, few_seeds, seeds
from tests.sim.cluster_dispatch import DISPATCHERS
from tests.sim.clusters import LOST_SECONDS, Clusters, simulated_clusters
from tests.sim.clusters_actor import ClustersActor, running
from tests.sim.clusters_plan import draw_all_kinds, draw_clusters
from tests.sim.objects import job
from tests.sim.plan import End, Plan


async def lived(seed: int, plan: Plan, faults: Faults, **settings: Any) -> tuple[Clusters, ClustersActor]:
    """Three worlds that a plan was carried out on."""
    async with simulated_clusters(seed, faults=faults, **settings) as clusters:
        actor = ClustersActor(clusters, plan)
        await actor.run()
        return clusters, actor


@SLOW
@pytest.mark.parametrize("seed", seeds("4,5"))
async def test_whatever_happens_clusters_run_each_job_once(seed: int) -> None:
    """Forty steps, every third world without faults: networks are cut, controllers killed, copies and originals deleted,
    queues drained.  Each Job comes to the end it must come to, and nothing is left on the workers.

    In 4 a Job ends before the manager's own has started; in 5 the watch brings the end of a Workload before its job's.
    """
    await lived(seed, draw_clusters(seed), NONE if seed % 3 == 0 else ROUGH)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=SELDOM) for n in range(8)])
async def test_job_sets_run_in_one_of_the_clusters_beside_jobs(seed: int) -> None:
    """The same with JobSets, whose child Jobs and pods are the worker's alone."""
    await lived(seed, draw_clusters(seed, job_sets=True), NONE if seed % 3 == 0 else ROUGH, job_sets=True)


@pytest.mark.parametrize("seed", few_seeds("", "0,1,2,3,4,5,6,7,13,28"))
@pytest.mark.parametrize("dispatcher", DISPATCHERS)
async def test_dispatchers_send_clusters_all_kinds(seed: int, dispatcher: str) -> None:
    """The same with single pods, groups of pods, JobSets and training jobs, for each dispatcher, whose nominations other
    clients change.

    In 13 the copies of a group are deleted on their worker while they run, in 28 the Workload of a job that runs there.
    """
    faults = NONE if seed % 3 == 0 else ROUGH
    await lived(seed, draw_all_kinds(seed), faults, more_kinds=True, dispatcher=dispatcher)


@pytest.mark.parametrize("seed", [pytest.param(5, marks=SELDOM)])
async def test_a_seed_is_three_clusters(seed: int) -> None:
    """The same seed does the same on all clusters, and every object has the same bytes in the same order."""
    first, _ = await lived(seed, draw_clusters(seed, steps=20), ROUGH)
    second, _ = await lived(seed, draw_clusters(seed, steps=20), ROUGH)

    assert first.fingerprint() == second.fingerprint()


async def test_what_a_lost_worker_ran_goes_to_the_other() -> None:
    """It starts there after the time limit and not before; a worker that is back ends what it still runs."""
    async with simulated_clusters("lost") as clusters:
        actor = ClustersActor(clusters, Plan(ends={"train": End.COMPLETE}))
        await actor.submit("train", pods=2, topology=None, run_seconds=300, retries=100)
        await clusters.manager.pass_time(5)
        (first,) = [name for name, world in clusters.workers.items() if running(world)]
        (second,) = set(clusters.workers) - {first}
        await actor.cut(first)
        await clusters.manager.pass_time(LOST_SECONDS - 5)
        early = running(clusters.workers[second])
        await clusters.manager.pass_time(40)
        both = [running(world) for world in clusters.workers.values()]
        await actor.mend()
        await clusters.manager.pass_time(60)
        late = running(clusters.workers[first])
        actor.check(actor.always)
        await actor.end()

    assert early == set()
    assert both == [{"train"}, {"train"}]
    assert late == set()
    assert actor.once.moves == {"train"}


async def test_a_job_in_two_clusters_would_be_found() -> None:
    """The check between clusters sees pods of one job on two workers that the manager reaches."""
    async with simulated_clusters("twice") as clusters:
        actor = ClustersActor(clusters, Plan())
        for world in clusters.workers.values():
            await world.submit(job("train", pods=1, topology=None, run_seconds=300))
        await clusters.manager.pass_time(5)

        assert actor.once.breaches
