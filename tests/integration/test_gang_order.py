"""The members of a gang are handled one after the other, in a ClusterQueue with profile back-to-back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby

import pytest

from kqueue.state import gang_hold
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import Object, has
from tests.integration.test_gangs import LabelledGangs, named, world
from tests.integration.test_plugins import hold, use_profile

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
GANGS, SIZE = ("a", "b", "c"), 5


async def changes(cluster: Cluster, path: str, since: str) -> list[Object]:
    """All versions of the objects at `path` that were written after a resource version, in the order of the writes."""
    query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": "1"}
    async with cluster.access.session() as session, session.get(path, params=query) as answer:
        return [json.loads(line)["object"] for line in (await answer.read()).splitlines() if line.strip()]


def firsts(versions: list[Object], reached: Callable[[Object], bool]) -> list[str]:
    """The names of the objects in the order in which they first were so."""
    return list(dict.fromkeys(found["metadata"]["name"] for found in versions if reached(found)))


def runs(gangs: list[str]) -> list[int]:
    return [len(list(run)) for _gang, run in groupby(gangs)]


async def gather(gangs: LabelledGangs, quorum: int) -> str:
    """The members of three gangs are made in turn and wait for their ClusterQueue; the resource version after that."""
    for number in range(SIZE):
        for gang in GANGS:
            await gangs.create_labelled(gang, f"{gang}-{number}", quorum=str(quorum))
    for gang in GANGS:
        await gangs.base_of(gang)
    return str((await gangs.cluster.get(gangs.workloads))["metadata"]["resourceVersion"])


def gang_of(workload: Object, bases: dict[str, str]) -> str:
    own: dict[str, str] = workload["metadata"]["annotations"]
    return bases[own.get("kqueue.dev/extra-of", workload["metadata"]["name"])]


@pytest.mark.mechanism("0.9")
@pytest.mark.parametrize(("quorum", "own"), [(5, 1), (3, 3)])
async def test_reservations_of_a_gang_are_one_run(
    either_plane: Plane, quorum: int, own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 0.9: of three gangs of five.  Releases of gangs that were admitted together are sent at the same time.

    The limit of five seconds has unit tests; here it is out of reach, because a busy machine may need longer for a run.
    """
    monkeypatch.setattr(gang_hold, "HOLD_FOR", timedelta(minutes=1))
    async with world(either_plane, gpus=8 * SIZE * len(GANGS)) as gangs:
        await use_profile(gangs.cluster, "team", "back-to-back")
        await hold(gangs.cluster, "team")
        since = await gather(gangs, quorum)
        bases = {(await gangs.base_of(gang))["metadata"]["name"]: gang for gang in GANGS}
        await hold(gangs.cluster, "team", policy=None)
        await gangs.until_running(*(name for gang in GANGS for name in named(gang, SIZE)))
        workloads = await changes(gangs.cluster, gangs.workloads, since)

    by_name = {workload["metadata"]["name"]: workload for workload in workloads}
    reserved = firsts(workloads, lambda w: has(w, "QuotaReserved"))
    assert runs([gang_of(by_name[name], bases) for name in reserved]) == [own] * len(GANGS)
