"""Rows of defragmentation plans: one plan for a gang that needs a whole rack, on a cluster without an empty one.

Racks of 16 hosts with 8 GPUs, filled by gangs of 2 to 12 whole hosts from a fixed seed; then every fourth gang leaves.  In
each empty rack one host is taken again.  At most 700 gangs agree to move.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kqueue.core.joint.defrag import DefragPlan, DefragSettings, Goal, NoPlan, defragment
from kqueue.core.joint.moving import RunningGang, charge, placed, release
from kqueue.core.topology import Capacity, PodSetRequest, TopologyRequest
from kqueue.core.topology.request import DEFAULT_PROFILE
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import TopologyView
from tests.bench._joint_worlds import GPU, tree_of
from tests.bench.table import Figure, Row, at_most, check, timed

HOSTS, WILLING = 16, 700
REQUIRED = TopologyRequest(required="rack")
UNWILLING = ("kqueue.dev/reschedule: Never",)


def world(racks: int, seed: int = 1) -> tuple[TopologyView, list[RunningGang]]:
    """The racks, and the gangs that run on them."""
    chance, tree = random.Random(seed), tree_of(racks, HOSTS)
    view = TopologyView("dc", tree, Capacity.of(tree))
    views, running = {"gpu": view}, list[RunningGang]()
    for number in range(racks * HOSTS):
        request = PodSetRequest(name="main", count=chance.randint(2, 12), requests={GPU: 8}, topology=REQUIRED)
        requests = {"gpu": (request,)}
        target = placed(requests, views, DEFAULT_PROFILE)
        if target is None:
            break
        charge(target.usage, views)
        running.append(
            RunningGang(
                key=f"ns/g{number:05}",
                queue="team",
                requests=requests,
                places=target.places,
                usage=target.usage,
                lost=chance.choice([60, 360, 1260, 3660]),
                immovable=UNWILLING,
            )
        )
    chance.shuffle(running)
    for gang in running[: len(running) // 4]:
        release(gang.usage, views)
    stay = running[len(running) // 4 :]
    willing = [replace(gang, immovable=()) for gang in stay[:WILLING]]
    return view, [*willing, *stay[WILLING:], *_fillers(view)]


def _fillers(view: TopologyView) -> list[RunningGang]:
    """One host in each empty rack."""
    found, row = list[RunningGang](), view.capacity.row(GPU)
    assert row is not None
    for rack in range(view.tree.domains(0)):
        leaves = view.tree.leaves_of(0, rack)
        if int(row[leaves].sum()) < 8 * HOSTS:
            continue
        path = view.tree.paths[leaves.start]
        usage = {"gpu": (DomainUsage(view.tree.written(leaves.start), {GPU: 8}, 1),)}
        request = PodSetRequest(name="main", count=1, requests={GPU: 8}, topology=REQUIRED)
        charge(usage, {"gpu": view})
        found.append(
            RunningGang(
                key=f"ns/filler-{path[0]}",
                queue="team",
                requests={"gpu": (request,)},
                places={"main": [(path, 1)]},
                usage=usage,
                immovable=UNWILLING,
            )
        )
    return found


def one_plan(racks: int) -> Iterator[Figure]:
    """The time of a plan whose counts of pods are new, and the plan."""
    view, running = world(racks)
    request = PodSetRequest(name="main", count=HOSTS, requests={GPU: 8}, topology=REQUIRED)
    goal = Goal(flavor="gpu", level=0, requests=(request,))
    plans = list[DefragPlan | NoPlan]()

    def plan() -> None:
        fresh = {"gpu": TopologyView("dc", view.tree, view.capacity.fork())}
        plans.append(defragment(fresh, goal, running, DefragSettings(pod_seconds=10**6)))

    times = timed(plan)
    found = plans[-1]
    check(isinstance(found, DefragPlan), f"there is no plan: {found}")
    assert isinstance(found, DefragPlan)
    check(found.after.slots > found.before.slots, "the moves make no room")
    yield Figure("plan_ms", times, goal=at_most(1_000))
    yield Figure("moves", [len(found.moves)])
    yield Figure("gangs", [len(running)])


ROWS = tuple(Row(f"defrag/plan_{racks * HOSTS}", partial(one_plan, racks)) for racks in (160, 782))
