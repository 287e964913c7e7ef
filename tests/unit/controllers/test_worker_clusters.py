"""All worker clusters of a manager: where their kubeconfigs come from, and one connection for each object."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kqueue.api.wire import multikueue as api
from kqueue.clock import Clock, FakeClock
from kqueue.controllers.cluster_profiles import CLUSTER_PROFILES, ClusterProfiles, Provider
from kqueue.controllers.resources import MULTIKUEUE_CLUSTERS
from kqueue.controllers.worker_cluster import WorkerCluster, WorkerSourceError
from kqueue.controllers.worker_clusters import WorkerClusters
from kqueue.controllers.worker_sources import WorkerSources
from kqueue.errors import ForbiddenError, UnreachableError
from kqueue.runtime.access import Identity
from kqueue.runtime.certificate_secret import SECRETS
from kqueue.runtime.exec_plugin import ExecPlugin
from kqueue.runtime.kubeconfig_secret import MOST_BYTES
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, read, status_of
from tests.unit.controllers.fakes import FakeClient

TEXT = b"a kubeconfig"


def cluster(name: str = "a", **source: Any) -> JSON:
    """A MultiKueueCluster; by default of a Secret of its name."""
    return {"metadata": {"name": name}, "spec": {"clusterSource": source or {"kubeConfig": {"location": name}}}}


def typed(obj: JSON) -> api.MultiKueueCluster:
    found: api.MultiKueueCluster = read(api.MultiKueueCluster, obj)
    return found


def path(location: object) -> JSON:
    return {"location": str(location), "locationType": "Path"}


# --- sources ----------------------------------------------------------------------------------------------------------


def secret(**data: Any) -> JSON:
    return {"metadata": {"name": "a", "namespace": "own"}, "data": data}


async def content_of(obj: JSON, client: FakeClient, folder: Path | None = None) -> bytes:
    return await WorkerSources(client, "own", clock=FakeClock(), folder=folder).of(typed(obj))()


async def test_a_kubeconfig_is_read_from_a_secret_of_our_namespace() -> None:
    client = FakeClient()
    client.put(SECRETS, secret(kubeconfig=base64.b64encode(TEXT).decode()))
    assert await content_of(cluster(), client) == TEXT


@pytest.mark.parametrize(
    ("obj", "found", "said"),
    [
        pytest.param(cluster(), None, "Secret own/a not found", id="no Secret"),
        pytest.param(cluster(), secret(), "no key kubeconfig", id="no key"),
        pytest.param(cluster(), secret(kubeconfig=""), "no key kubeconfig", id="an empty one"),
        pytest.param(cluster(), secret(kubeconfig="?"), "not base64", id="no base64"),
        pytest.param(cluster(kubeConfig=None), None, "names no kubeconfig", id="nothing"),
        pytest.param(cluster(clusterProfileRef={"name": "x"}), None, "ClusterProfiles are not read", id="a profile"),
    ],
)
async def test_a_kubeconfig_that_is_not_there(obj: JSON, found: JSON | None, said: str) -> None:
    """The text names the Secret and the remedy."""
    client = FakeClient()
    if found is not None:
        client.put(SECRETS, found)
    with pytest.raises(WorkerSourceError, match=said):
        await content_of(obj, client)


async def test_a_secret_that_we_may_not_read_is_told_and_a_silent_server_is_not() -> None:
    client = FakeClient()
    client.fail(ForbiddenError("no", status=403), verb="get")
    with pytest.raises(WorkerSourceError, match="may not be read"):
        await content_of(cluster(), client)
    client.fail(UnreachableError("cut"), verb="get")
    with pytest.raises(UnreachableError):
        await content_of(cluster(), client)


async def test_a_kubeconfig_is_read_from_a_file_of_the_folder_alone(tmp_path: Path) -> None:
    """Also by way of a symbolic link, as the kubelet mounts Secrets; no link leads out of the folder."""
    folder = tmp_path / "kubeconfigs"
    (folder / "..data").mkdir(parents=True)
    (folder / "..data" / "real").write_bytes(TEXT)
    (folder / "west").symlink_to("..data/real")
    (tmp_path / "token").write_bytes(b"a secret")
    (folder / "out").symlink_to(tmp_path / "token")

    assert await content_of(cluster(kubeConfig=path(folder / "west")), FakeClient(), folder) == TEXT
    for outside in (folder / "out", tmp_path / "token", folder / ".." / "token"):
        with pytest.raises(WorkerSourceError, match="is not in"):
            await content_of(cluster(kubeConfig=path(outside)), FakeClient(), folder)
    with pytest.raises(WorkerSourceError, match="cannot be read"):
        await content_of(cluster(kubeConfig=path(folder / "none")), FakeClient(), folder)
    assert await content_of(cluster(kubeConfig=path(tmp_path / "token")), FakeClient()) == b"a secret"


async def test_a_cluster_profile_is_read_where_it_is_switched_on() -> None:
    """And the client is of the cluster that it describes, with what the program printed."""
    client, obj = FakeClient(), typed(cluster(clusterProfileRef={"name": "p"}))
    client.put(CLUSTER_PROFILES, PROFILE)
    profiles = ClusterProfiles(client, "own", {"echo": Provider(EchoPlugin(name="e", command="e"))}, clock=FakeClock())
    sources = WorkerSources(client, "own", clock=FakeClock(), profiles=profiles)
    content = await sources.of(obj)()
    made = await sources.connect(obj, content)
    try:
        assert made.server == "https://w:6443"
    finally:
        await made.close()


class EchoPlugin(ExecPlugin):
    """A program that is not run."""

    async def identity(self, cluster: JSON | None, clock: Clock) -> Identity:
        """Return a token."""
        return Identity(authorization="Bearer t")


PROFILE: JSON = {
    "metadata": {"name": "p", "namespace": "own"},
    "status": {"accessProviders": [{"name": "echo", "cluster": {"server": "https://w:6443"}}]},
}


async def test_no_more_of_a_file_is_read_than_a_kubeconfig_has(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"x" * (3 * MOST_BYTES))
    found = await content_of(cluster(kubeConfig=path(tmp_path / "huge")), FakeClient(), tmp_path)
    assert len(found) == MOST_BYTES + 1


# --- connections ------------------------------------------------------------------------------------------------------


class Connections:
    """The registry, with connections that only count."""

    def __init__(self) -> None:
        self.clock, self.client = FakeClock(), FakeClient()
        self.objects: Store[api.MultiKueueCluster] = Store("clusters")
        self.client.watch(MULTIKUEUE_CLUSTERS, self.objects, typed)
        self.up: list[str] = []
        """Locations of the kubeconfigs of the connections that run."""
        writer: StatusWriter[api.MultiKueueCluster] = StatusWriter(
            self.client,
            MULTIKUEUE_CLUSTERS,
            store=self.objects,
            decode=api.MultiKueueCluster,
            key_of=lambda obj: obj.metadata.name,
            version_of=lambda obj: obj.metadata.resource_version,
        )
        self.clusters = WorkerClusters(self.objects, self._make, writer, self.clock)
        self.objects.subscribe(self.clusters.on_cluster)

    def _make(self, obj: api.MultiKueueCluster) -> WorkerCluster:
        source = obj.spec.cluster_source.kube_config
        assert source is not None
        return cast("WorkerCluster", CountedConnection(source.location, self.up))

    async def bring(self) -> None:
        """The watch catches up."""
        self.client.sync()
        await self.clock.advance(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.clusters.run())
        await self.bring()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


class CountedConnection:
    """A connection that is up while it runs."""

    def __init__(self, location: str, up: list[str]) -> None:
        self.link, self.reason, self.message = None, "BadKubeConfig", f"no Secret {location}"
        self._location, self._up = location, up

    async def run(self) -> None:
        """Be there until cancelled."""
        self._up.append(self._location)
        try:
            await asyncio.Event().wait()
        finally:
            self._up.remove(self._location)


async def test_connections_follow_the_objects() -> None:
    """A new spec is a new connection; a status is not; all end with the leadership."""
    world = Connections()
    world.client.put(MULTIKUEUE_CLUSTERS, cluster("a"))
    async with world.running():
        assert world.up == ["a"]
        world.client.put(MULTIKUEUE_CLUSTERS, cluster("b"))
        await world.bring()
        before = world.clusters.connected["a"]
        world.client.change(MULTIKUEUE_CLUSTERS, "a", {"status": {"conditions": []}})
        await world.bring()
        assert (world.up, world.clusters.connected["a"] is before) == (["a", "b"], True)

        world.client.change(MULTIKUEUE_CLUSTERS, "a", cluster("a", kubeConfig={"location": "c"}))
        await world.bring()
        assert sorted(world.up) == ["b", "c"]

        world.client.drop(MULTIKUEUE_CLUSTERS, "b")
        await world.bring()
        assert world.up == ["c"]
    assert world.up == []
    assert world.clusters.connected == {}


async def test_an_object_says_what_its_connection_is() -> None:
    """The condition is written again when another client changes it."""
    world = Connections()
    world.client.put(MULTIKUEUE_CLUSTERS, cluster("a"))
    async with world.running():
        await world.clusters.reconcile("a")
        assert status_of(world.client.object(MULTIKUEUE_CLUSTERS, "a"), "Active") == ("False", "BadKubeConfig")
        await world.bring()
        writes = len(world.client.writes())
        await world.clusters.reconcile("a")
        assert len(world.client.writes()) == writes
    await world.clusters.reconcile("a")  # a follower writes nothing
    assert len(world.client.writes()) == writes
