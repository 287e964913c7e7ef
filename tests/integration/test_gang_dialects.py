"""Every dialect of gangs, end to end: complete, incomplete, evicted, with a killed member, and with a controller that is
killed at its writes.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.audit import auditing
from tests.chaos.world import Change
from tests.integration.conftest import CRDS, running
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.gang_dialects import DIALECTS, QUORUM, Dialect, Home, Life, Plane, home, live
from tests.integration.mortal import Fate, mortal
from tests.integration.road import Object, condition, has
from tests.integration.test_pods import gates

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

CHOSEN = os.environ.get("KQUEUE_GANG_WRITES", "")
"""The writes at which the controller is killed: one as in `17`, or all from one on as in `1-`; empty: a drawn one."""
LEAST_WRITES = 20
"""Every life has more writes than that."""
either_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
FLAGS = {
    "kube-apiserver": [
        "--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ],
    "kube-controller-manager": ["--feature-gates=GenericWorkload=true"],
    "kube-scheduler": ["--feature-gates=GenericWorkload=true,GangScheduling=true"],
}  # fmt: skip


@pytest.fixture
def gated_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane that serves Kubernetes' own PodGroups."""
    (tmp_path / "gated").mkdir()
    with running(tmp_path / "gated", crds=(CRDS,), flags=FLAGS) as plane:
        yield plane


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.controlplane)])
def wanted_real_plane(request: pytest.FixtureRequest, dialect: Dialect) -> ControlPlane | None:
    """The real control plane, with feature gates where the dialect needs them; None for the sandbox."""
    if request.param == "sandbox":
        return None
    found: ControlPlane = request.getfixturevalue("gated_plane" if dialect.gated else "real_plane")
    return found


async def tell(at_home: Home, fate: Fate | None = None, *, patient: bool = False) -> tuple[Life, Fate]:
    """The life of a gang with a controller of this fate, and with what holds at any moment."""
    gang = await at_home.gang()
    fate = fate or Fate()
    fate.within = f"/namespaces/{gang.namespace}/"
    async with auditing(gang.cluster, time.monotonic, kinds=("Workload", "Pod")) as audit:
        async with mortal(at_home.plane.kubeconfig, at_home.configuration, fate):
            life = await live(gang, patient=patient)
            await gang.erase()
        history = [c for c in await audit.drain() if c.obj["metadata"]["namespace"] == gang.namespace]
    assert breaches(history, at_home.dialect) == [], f"killed at {fate.at}, after: {fate.after}"
    return life, fate


def breaches(history: Iterable[Change], dialect: Dialect) -> list[str]:
    """What must not be: members at large without quota or beyond the quorum, a third reservation, a second Workload."""
    found, pods, workload, reservations, uids = list[str](), dict[str, Object](), dict[str, Any](), 0, set[str]()
    for change in history:
        uid = change.obj["metadata"]["uid"]
        if change.kind == "Pod":
            pods[uid] = change.obj
            if change.deleted:
                del pods[uid]
        elif dialect.owns(change.obj):
            uids.add(uid)
            reservations += has(change.obj, "QuotaReserved") and not has(workload, "QuotaReserved")
            workload = {} if change.deleted else change.obj
        at_large = sum(map(is_at_large, pods.values()))
        if at_large > (QUORUM if has(workload, "QuotaReserved") else 0):
            found.append(f"{at_large} members at large at {change.revision}")
    if (reservations, len(uids)) != (2, 1):
        found.append(f"{reservations} reservations of {len(uids)} Workloads")
    return found


def is_at_large(pod: Object) -> bool:
    """Whether a member was released, has not ended, and is to go on."""
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return "admission" not in gates(pod) and not ended and "deletionTimestamp" not in pod["metadata"]


@pytest.mark.proves("gang by labels", "queueing")
@pytest.mark.proves("gang by labels", "replacement pods")
@pytest.mark.proves("gang by labels", "eviction and requeue")
@pytest.mark.proves("gang by labels", "finished")
@pytest.mark.proves("PodGroup", "queueing")
@pytest.mark.proves("PodGroup", "replacement pods")
@pytest.mark.proves("PodGroup", "eviction and requeue")
@pytest.mark.proves("PodGroup", "finished")
@pytest.mark.proves("BatchProcess", "queueing")
@pytest.mark.proves("BatchProcess", "replacement pods")
@pytest.mark.proves("BatchProcess", "eviction and requeue")
@pytest.mark.proves("BatchProcess", "finished")
@pytest.mark.proves("Volcano PodGroup", "queueing")
@pytest.mark.proves("Volcano PodGroup", "replacement pods")
@pytest.mark.proves("Volcano PodGroup", "eviction and requeue")
@pytest.mark.proves("Volcano PodGroup", "finished")
@pytest.mark.proves("Kubernetes PodGroup", "queueing")
@pytest.mark.proves("Kubernetes PodGroup", "replacement pods")
@pytest.mark.proves("Kubernetes PodGroup", "eviction and requeue")
@pytest.mark.proves("Kubernetes PodGroup", "finished")
@pytest.mark.mechanism("0.11", "3.33", "4.4", "4.5", "4.18")
@either_dialect
async def test_a_gang_gathers_runs_is_mended_is_evicted_whole_and_ends(either_plane: Plane, dialect: Dialect) -> None:
    """Nothing starts before all three are there with room for all; a killed member is replaced alone; all go at once."""
    async with home(either_plane, dialect) as at_home:
        life, _ = await tell(at_home, patient=True)

    assert dialect.makes_pods or "the group has 2 of 3 pods; it waits for 1 more" in life.told
    assert life.unqueued == []
    if life.said:
        assert life.said["ErrWorkloadCompose"] == life.told
        assert life.said["Scheduled"].startswith("3 pods were released together by ClusterQueue team; domains: ")
        assert life.said["Running"] == "3 of 3 pods run; the quorum is 3"
    assert life.early == [["admission", "topology"]] * (0 if dialect.makes_pods else QUORUM)
    assert len(life.first.items() & life.mended.items()) == QUORUM - 1
    assert not life.mended.items() & life.again.items()
    assert condition(life.evicted, "Evicted")["reason"] == "ClusterQueueStopped"
    assert not dialect.api_version or [owner["kind"] for owner in life.finished["metadata"]["ownerReferences"]] == [
        dialect.kind
    ]
    assert condition(life.finished, "Finished")["reason"] == "Succeeded"
    assert "3 pods " in condition(life.finished, "Finished")["message"]


@pytest.mark.seldom
@pytest.mark.mechanism("4.8")
@either_dialect
async def test_a_controller_killed_at_a_write_changes_nothing(
    either_plane: Plane, dialect: Dialect, request: pytest.FixtureRequest
) -> None:
    """The same life, with a controller that dies before (odd numbers) or after a write, and another one from then on."""
    first, goes_on = CHOSEN.removesuffix("-"), CHOSEN.endswith("-")
    number = int(first) if first else random.Random(request.node.name).randint(1, LEAST_WRITES)
    async with home(either_plane, dialect) as at_home:
        for at in itertools.count(number) if goes_on else [number]:
            life, fate = await tell(at_home, Fate(at, after=at % 2 == 0))
            assert condition(life.finished, "Finished")["reason"] == "Succeeded"
            if not fate.struck:
                break
            print(f"{dialect.framework}: killed at {fate.writes[-1]}, write {at}")

    assert fate.struck or at > LEAST_WRITES
