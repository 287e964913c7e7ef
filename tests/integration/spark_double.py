"""SparkApplication, and a double of its operator and of the drivers.

An application that is not suspended has a driver; a driver that runs makes the executors, which it owns, and ends when
they have ended.  A changed or suspended application loses its pods first.  On the real control plane the driver asks
with a token that was made for its pod, as Spark does.  Source: the operator's documentation, and Spark's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from kqueue.kinds import FRAMEWORKS, Kind
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import Access, named, tls_context
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.doubles import ENDED, CustomDouble, Front, owned_by, playing

Object = dict[str, Any]
ROW = FRAMEWORKS["sparkoperator.k8s.io/sparkapplication"]
APP = "sparkoperator.k8s.io/app-name"
OVERHEAD_MIB = 384
ACCOUNT = "spark"
_OVER = ("COMPLETED", "FAILED")
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


@asynccontextmanager
async def spark_runs(plane: ControlPlane | SandboxPlane) -> AsyncIterator[None]:
    """SparkApplications have an operator while the block runs."""
    own = plane.kubeconfig if isinstance(plane, ControlPlane) else None
    async with playing(SparkDouble(plane.cluster.access, own).run()):
        yield


async def let_drivers_make_pods(cluster: Cluster, namespace: str) -> None:
    """The account of the drivers may make pods, as Spark needs it."""
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "driver"}, "rules": rules}
    bound: Object = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "driver"}}
    bound["roleRef"] = {"apiGroup": group, "kind": "Role", "name": "driver"}
    bound["subjects"] = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    await cluster.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    await cluster.request("POST", f"{_RBAC}/{namespace}/roles", role)
    await cluster.request("POST", f"{_RBAC}/{namespace}/rolebindings", bound)


class SparkDouble(CustomDouble):
    def __init__(self, front: Front, kubeconfig: Path | None) -> None:
        """Drivers ask for themselves, at the API server of the kubeconfig; without one the double asks for them."""
        super().__init__(front, [ROW])
        self._kubeconfig = kubeconfig
        self._ran: dict[str, Object] = {}
        """What runs, by the UID of the application; the operator starts anew what has changed."""

    async def look(self, row: Kind, obj: Object) -> None:
        path = f"/api/v1/namespaces/{obj['metadata']['namespace']}/pods"
        pods = await self.found(path, f"{APP}={obj['metadata']['name']}")
        state = obj.get("status", {}).get("applicationState", {}).get("state", "")
        if state in _OVER:
            return
        uid, wanted = obj["metadata"]["uid"], {key: value for key, value in obj["spec"].items() if key != "suspend"}
        if obj["spec"].get("suspend") or self._ran.get(uid, wanted) != wanted:
            await self.delete(path, pods)
            if not pods:
                self._ran.pop(uid, None)
            await self._say(row, obj, "SUSPENDING" if pods else "SUSPENDED")
            return
        self._ran[uid] = wanted
        drivers = [pod for pod in pods if pod["metadata"]["labels"]["spark-role"] == "driver"]
        if not drivers:
            await self.ask("POST", path, pod_of(obj, "driver"))
            await self._say(row, obj, "SUBMITTED")
            return
        await self._drive(row, obj, path, drivers[0], [pod for pod in pods if pod not in drivers])

    async def _drive(self, row: Kind, obj: Object, path: str, driver: Object, executors: list[Object]) -> None:
        if driver["status"].get("phase") != "Running":
            return
        number = obj["spec"]["executor"]["instances"]
        names = {pod["metadata"]["name"] for pod in executors}
        for index in range(1, number + 1):
            made = pod_of(obj, "executor", index=index, driver=driver)
            if made["metadata"]["name"] not in names:
                await self._as_driver(driver, path, made)
        phases = [pod["status"].get("phase") for pod in executors]
        if len(executors) == number and all(phase in ENDED for phase in phases):
            await self.delete(path, [driver])
            await self._say(row, obj, "COMPLETED")
            return
        states = {p["metadata"]["name"]: p["status"].get("phase", "").upper() for p in executors}
        await self._say(row, obj, "RUNNING", states)

    async def _as_driver(self, driver: Object, path: str, made: Object) -> None:
        """Make a pod with a token that is bound to the driver."""
        if self._kubeconfig is None:
            await self.ask("POST", path, made)
            return
        bound = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": driver["metadata"]["name"],
            "uid": driver["metadata"]["uid"],
        }
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        namespace = driver["metadata"]["namespace"]
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
        token = (await self.ask("POST", account, asked))["status"]["token"]
        await with_token(self._kubeconfig, token).request("POST", path, made)

    async def _say(self, row: Kind, obj: Object, state: str, executors: Object | None = None) -> None:
        told: Object = {"applicationState": {"state": state, "errorMessage": ""}}
        await self.tell(row, obj, {**told, "executorState": executors or {}})


def with_token(kubeconfig: Path, token: str) -> Access:
    """Requests with a token alone: a client certificate would count first."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = named(config["contexts"], config["current-context"])["context"]
    cluster = named(config["clusters"], context["cluster"])["cluster"]
    return Access(cluster["server"].rstrip("/"), tls_context(cluster, {}), {"Authorization": f"Bearer {token}"})


def pod_of(app: Object, role: str, *, index: int = 0, driver: Object | None = None) -> Object:
    """The pod of a driver, or of the executor with this index."""
    spec, section = app["spec"], app["spec"][role]
    memory = f"{int(section['memory'].removesuffix('m')) + OVERHEAD_MIB}Mi"
    amounts = {"cpu": str(section["cores"]), "memory": memory}
    limits = {"memory": memory, **({g["name"]: str(g["quantity"])} if (g := section.get("gpu")) else {})}
    container = {"name": role, "image": spec["image"], "resources": {"requests": amounts, "limits": limits}}
    labels = {**section.get("labels", {}), APP: app["metadata"]["name"], "spark-role": role}
    owner = {"apiVersion": "v1", "kind": "Pod", **driver} if driver is not None else app
    name = f"{app['metadata']['name']}-{role if driver is None else f'exec-{index}'}"
    body: Object = {
        "restartPolicy": "Never",
        "serviceAccountName": ACCOUNT,
        "containers": [container],
        "nodeSelector": {**spec.get("nodeSelector", {}), **section.get("nodeSelector", {})},
        "tolerations": section.get("tolerations", []),
        "schedulingGates": section.get("template", {}).get("spec", {}).get("schedulingGates", []),
    }
    metadata = {**owned_by(owner), "name": name, "labels": labels, "annotations": section.get("annotations", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
