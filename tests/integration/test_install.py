"""The chart on a real control plane: installed, used, upgraded and removed, under the rights that it gives.

Pods of the release run as processes with the arguments, the configuration and the ServiceAccounts of their manifests.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kqueue.sandbox.crd_files import SIMULATED
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.installed import rights
from tests.integration.installed.kubelet import Kubelet
from tests.integration.installed.release import NAMESPACE, Release
from tests.integration.installed.services import ServiceNetwork, egress_file
from tests.integration.road import Road, job, make_road

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]

Object = dict[str, Any]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(slots=True)
class Site:
    """A cluster, the chart's release on it, and what runs of it."""

    plane: ControlPlane
    release: Release
    kubelet: Kubelet
    network: ServiceNetwork
    folder: Path

    @property
    def cluster(self) -> Cluster:
        """The administrator's way in."""
        return self.plane.cluster

    def asked(self) -> list[rights.Asked]:
        """What our processes asked for so far."""
        return rights.asked(self.folder, NAMESPACE)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A control plane of its own: its API server writes down who asks for what, and reaches Services by a proxy."""
    with tempfile.TemporaryDirectory(prefix="kq-") as short:  # a socket's path may have 107 characters
        folder = Path(short)
        socket = folder / "cluster.sock"
        flags = [
            *rights.flags(folder, NAMESPACE),
            f"--egress-selector-config-file={egress_file(folder, socket)}",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as some distributions have it
        ]
        (folder / "plane").mkdir()
        (folder / "pods").mkdir()
        started = ControlPlane.start(
            folder / "plane", parts=ALL_PARTS, crds=[SIMULATED], flags={"kube-apiserver": flags}
        )
        async with started as plane:
            kubelet = Kubelet(plane, NAMESPACE, folder / "pods")
            network = ServiceNetwork(plane.cluster, kubelet.backends)
            async with network.serving(socket), kubelet.running():
                yield Site(plane, Release(plane.kubeconfig, folder), kubelet, network, folder)


async def submit(road: Road, name: str, **settings: Any) -> Object:
    """A Job as a user writes it: not suspended."""
    made = job(name, road.namespace, **settings)
    made["spec"]["suspend"] = False
    return await road.cluster.request("POST", road.jobs, made)


async def test_what_the_chart_installs_runs_a_gang_under_the_rights_that_it_gives() -> None:
    """A gang is held by the webhooks, admitted, placed, stopped and finished; nothing is forbidden on the way."""
    async with site() as there:
        await there.cluster.add_nodes((1, 1, 1), prefix="system")
        await there.release.install({})
        await there.kubelet.until_ready(controller=2, webhook=2)
        road = await make_road(there.cluster, shape=(1, 2, 4))
        created = await submit(road, "gang", pods=4, run_seconds=2)
        await road.until_complete("gang")
        racks = await road.racks_of("gang")
        requests = there.asked()

        assert created["spec"]["suspend"] is True
        assert len(racks) == 1
        assert rights.refused(requests) == []
        assert there.kubelet.crashed == []
