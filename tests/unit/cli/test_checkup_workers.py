"""The doctor's look at worker clusters: two API servers, one of them the manager's."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.clock import FakeClock, SystemClock
from kqueue.config import load
from kqueue.config.model import Configuration
from kqueue.controllers.resources import MULTIKUEUE_CLUSTERS, NAMESPACES
from kqueue.errors import ForbiddenError
from kqueue.operations.checkup.values import CheckVerdict, StepStatus
from kqueue.operations.checkup.workers import WorkersCheck, rights
from kqueue.runtime.certificate_secret import SECRETS
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.transport import Call
from kqueue.sandbox import Sandbox, SandboxOptions
from tests.unit.controllers.builders import EARLIER
from tests.unit.controllers.fakes import FakeClient

JSON = dict[str, Any]
OWN = load(None).namespace
ACCOUNTS = ResourceType("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = ResourceType(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
RULES = [
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["workloads"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["patch"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]},
]
"""The rights that docs/how-to/several-clusters.md lists."""


BASIC: JSON = {
    "apiGroups": ["authorization.k8s.io"],
    "resources": ["selfsubjectaccessreviews"],
    "verbs": ["create"],
}
"""The right of all users of real clusters, by the role system:basic-user."""


@asynccontextmanager
async def server(*, crds: bool = True) -> AsyncIterator[tuple[Sandbox, Client]]:
    """An API server on which nobody runs."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),) if crds else ()))
    await sandbox.start()
    try:
        async with Client(sandbox.url) as client:
            yield sandbox, client
    finally:
        await sandbox.stop()


@dataclass
class Clusters:
    """A manager and a worker, named `west`."""

    manager: Client
    worker: Client
    there: str
    """The worker's address."""
    here: str

    async def look(self, clock: Any = None) -> CheckVerdict:
        """What the doctor says."""
        return await WorkersCheck(self.manager, load(None), clock or SystemClock()).workers()

    async def name(self, server: str, token: str = "admin", cluster: str = "west") -> None:
        """A MultiKueueCluster whose Secret leads to a server."""
        text = json.dumps(kubeconfig(server, token)).encode()
        data = {"kubeconfig": base64.b64encode(text).decode()}
        await self.manager.create(SECRETS, {"metadata": {"name": cluster, "namespace": OWN}, "data": data})
        await self.refer(cluster, kubeConfig={"location": cluster})

    async def refer(self, cluster: str, **source: JSON) -> None:
        """A MultiKueueCluster of this source."""
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "MultiKueueCluster",
            "metadata": {"name": cluster},
            "spec": {"clusterSource": source},
        }
        await self.manager.create(MULTIKUEUE_CLUSTERS, body)

    async def account(self, rules: list[JSON]) -> str:
        """A user of the worker with these rights; returns its token."""
        where = {"name": "manager", "namespace": "default"}
        await self.worker.create(ACCOUNTS, {"metadata": where})
        await self.worker.create(ROLES, {"metadata": {"name": "manager"}, "rules": rules})
        await self.worker.create(
            BINDINGS,
            {
                "metadata": {"name": "manager"},
                "roleRef": {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": "manager"},
                "subjects": [{"kind": "ServiceAccount", **where}],
            },
        )
        path = ACCOUNTS.path("default", "manager", "token")
        call = Call(
            method="POST",
            verb="create",
            resource=ACCOUNTS,
            path=path,
            what="token",
            lane=Lane.JOBS,
            body=b'{"spec":{}}',
        )
        return str(json.loads(await self.worker.send(call))["status"]["token"])


def kubeconfig(server: str, token: str) -> JSON:
    return {
        "current-context": "w",
        "clusters": [{"name": "w", "cluster": {"server": server}}],
        "users": [{"name": "w", "user": {"token": token}}],
        "contexts": [{"name": "w", "context": {"cluster": "w", "user": "w"}}],
    }


@asynccontextmanager
async def clusters(*, crds: bool = True) -> AsyncIterator[Clusters]:
    """Both API servers; `crds`: kqueue's kinds are on the worker."""
    async with server() as (here, manager), server(crds=crds) as (there, worker):
        await manager.create(NAMESPACES, {"metadata": {"name": OWN}})
        yield Clusters(manager, worker, there.url, here.url)


def jwt(clock: FakeClock, after: timedelta) -> str:
    """A token that names its end, as those of ServiceAccounts do."""
    claims = json.dumps({"exp": int((clock.now() + after).timestamp())}).encode()
    return f"h.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.s"


async def test_a_worker_with_the_documented_rights_is_fine() -> None:
    """The table of docs/how-to/several-clusters.md is enough, and nothing is written on the worker."""
    async with clusters() as world:
        await world.name(world.there, await world.account([*RULES, BASIC]))
        verdict = await world.look()
        assert (verdict.status, verdict.message) == (StepStatus.OK, "1 worker cluster")
        assert verdict.details[0].startswith("west: Kubernetes v1.")
        assert len(verdict.details) == 1


async def test_rights_that_are_missing_are_named() -> None:
    """Without watches nothing runs; without others something will be refused."""
    async with clusters() as world:
        rules = [{**RULES[0], "verbs": ["get", "list", "create", "patch", "delete"]}, *RULES[1:3], BASIC]
        await world.name(world.there, await world.account(rules))
        verdict = await world.look()
        assert (verdict.status, verdict.message) == (StepStatus.FAILED, "1 of 1 worker cluster cannot be used")
        assert verdict.details[1:] == (
            "  the user of the kubeconfig may not: watch workloads.kueue.x-k8s.io",
            "  the user of the kubeconfig may not, in all namespaces: get namespaces/kube-system",
        )


async def test_rights_that_cannot_be_asked_for_are_no_fault() -> None:
    async with clusters() as world:
        await world.name(world.there, await world.account(RULES))
        verdict = await world.look()
        assert verdict.status is StepStatus.WARNING
        assert "cannot be asked for" in verdict.details[1]


async def test_the_manager_itself_is_no_worker() -> None:
    async with clusters() as world:
        await world.name(world.here)
        verdict = await world.look()
        assert verdict.status is StepStatus.FAILED
        assert "leads to this very cluster" in verdict.details[1]


async def test_a_worker_without_kqueue_is_told() -> None:
    async with clusters(crds=False) as world:
        await world.name(world.there)
        verdict = await world.look()
        assert verdict.status is StepStatus.FAILED
        assert "it serves no kueue.x-k8s.io/v1beta2; install" in verdict.details[1]


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [
        pytest.param(timedelta(hours=-1), StepStatus.FAILED, "has expired", id="over"),
        pytest.param(timedelta(days=3), StepStatus.WARNING, "expires on", id="soon"),
        pytest.param(timedelta(days=300), StepStatus.OK, "", id="later"),
    ],
)
async def test_a_token_that_ends_is_told_before(after: timedelta, status: StepStatus, said: str) -> None:
    clock = FakeClock()
    async with clusters() as world:
        await world.name(world.there, jwt(clock, after))
        verdict = await world.look(clock)
        assert verdict.status is status
        assert said in " ".join(verdict.details[1:])


async def test_every_cluster_has_its_line() -> None:
    """One that does not answer, one without a Secret, and one whose credentials only the controller can have."""
    async with clusters() as world:
        await world.name(world.there, cluster="a-good")
        await world.name("http://127.0.0.1:9", cluster="b-silent")
        await world.refer("c-lost", kubeConfig={"location": "none"})
        await world.refer("d-profile", clusterProfileRef={"name": "p"})
        verdict = await world.look()
        assert verdict.message == "2 of 4 worker clusters cannot be used"
        told = "\n".join(verdict.details)
        assert "a-good: Kubernetes" in told
        assert "b-silent\n  " in told
        assert "no answer from http://127.0.0.1:9" in told
        assert f"Secret {OWN}/none not found" in told
        assert "d-profile\n  the controller has not said yet" in told


async def test_what_the_controller_says_counts_where_the_doctor_cannot_look() -> None:
    """It runs no programs, and reads no files of another machine."""
    client = FakeClient()
    for name, status in (("bad", "False"), ("good", "True")):
        told = {"type": "Active", "status": status, "reason": "R", "message": "m", "lastTransitionTime": EARLIER}
        source = {"kubeConfig": {"location": "/etc/multikueue/kubeconfigs/a", "locationType": "Path"}}
        client.put(
            MULTIKUEUE_CLUSTERS,
            {"metadata": {"name": name}, "spec": {"clusterSource": source}, "status": {"conditions": [told]}},
        )
    verdict = await WorkersCheck(cast("Client", Listed(client)), load(None), FakeClock()).workers()
    assert verdict.status is StepStatus.FAILED
    assert verdict.details == ("bad", "  R: m", "good: connected, says the controller")


async def test_a_user_who_may_not_look_hears_so() -> None:
    """That is no fault of the installation."""
    client = FakeClient()
    client.put(MULTIKUEUE_CLUSTERS, {"metadata": {"name": "a"}, "spec": SECRET_SOURCE})
    client.fail(ForbiddenError("secrets", status=403), verb="get", times=9)
    verdict = await WorkersCheck(cast("Client", Listed(client)), load(None), FakeClock()).workers()
    assert verdict.status is StepStatus.WARNING
    assert verdict.details == ("a", "  you may not read its kubeconfig: secrets")

    refused = Listed(client, ForbiddenError("multikueueclusters", status=403))
    verdict = await WorkersCheck(cast("Client", refused), load(None), FakeClock()).workers()
    assert verdict.status is StepStatus.SKIPPED


SECRET_SOURCE: JSON = {"clusterSource": {"kubeConfig": {"location": "a"}}}


class Listed:
    """A fake server that lists as the client does."""

    def __init__(self, client: FakeClient, refusal: ForbiddenError | None = None) -> None:
        self._client, self._refusal = client, refusal

    async def list_json(self, resource: ResourceType) -> list[JSON]:
        """All objects of a kind."""
        if self._refusal is not None:
            raise self._refusal
        return [found for key in self._client.keys(resource) if (found := self._client.object(resource, key))]

    async def get_json(self, resource: ResourceType, name: str, namespace: str | None = None) -> JSON:
        """One object."""
        return await self._client.get_json(resource, name, namespace)


async def test_without_worker_clusters_there_is_nothing_to_say() -> None:
    assert (await WorkersCheck(cast("Client", Listed(FakeClient())), load(None), FakeClock()).workers()).details == ()


@pytest.mark.parametrize(
    ("given", "further"),
    [
        pytest.param({"integrations": {"frameworks": ["batch/job"]}}, [], id="kinds-that-can-be-sent"),
        pytest.param({"integrations": {"frameworks": ["batch/job", "deployment"]}}, ["pods"], id="deployments"),
        pytest.param(
            {"integrations": {"frameworks": ["batch/job", "statefulset"]}}, ["statefulsets.apps"], id="owners"
        ),
        pytest.param({"integrations": {"frameworks": ["batch/job", "pod"]}}, ["pods"], id="pods"),
        pytest.param(
            {"multiKueue": {"dispatcherName": "kqueue.dev/best-domain"}},
            ["placements.visibility.kqueue.dev"],
            id="questions",
        ),
    ],
)
def test_rights_follow_the_configuration(given: JSON, further: list[str]) -> None:
    """A manager that sends only Jobs away needs no right on others."""
    found = rights(Configuration.model_validate(given))

    assert {str(right.resource) for right in found} == {
        "workloads.kueue.x-k8s.io",
        "namespaces",
        "jobs.batch",
        *further,
    }
    assert {right.verb for right in found if str(right.resource) == "jobs.batch"} >= {"create", "patch", "delete"}
