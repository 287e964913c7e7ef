"""The tests' interface to a cluster, real or simulated: kubeconfig, requests, kubectl, nodes, clean-up."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from tests.fast_yaml import documents
from tests.integration.controlplane import binaries
from tests.integration.controlplane.access import APPLY_PATCH, MERGE_PATCH, Access, Object, RequestError

BLOCK_LABEL = "cloud.provider.com/topology-block"
RACK_LABEL = "cloud.provider.com/topology-rack"
HOSTNAME_LABEL = "kubernetes.io/hostname"
GPU_NODE: Mapping[str, str] = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
OUR_GROUPS = ("kueue.x-k8s.io", "kqueue.dev")
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD_MAKERS = (
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    *(f"/apis/apps/v1/{kind}" for kind in ("deployments", "replicasets", "statefulsets", "daemonsets")),
)
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLUSTER_RBAC = tuple(f"/apis/rbac.authorization.k8s.io/v1/{kind}" for kind in ("clusterrolebindings", "clusterroles"))
SELECTED = dict.fromkeys(CLUSTER_RBAC, "?labelSelector=%21kubernetes.io%2Fbootstrapping")
"""Which objects of a kind a test may have left: the API server labels the roles that it makes itself."""
DELETION = {PODS: "?gracePeriodSeconds=0", **dict.fromkeys(POD_MAKERS, "?propagationPolicy=Background")}
"""How objects of a kind are deleted."""
WEBHOOKS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in ("mutating", "validating")
)
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
OURS = "app.kubernetes.io/managed-by%3Dkqueue"
WAIT_SECONDS = 60
SHOWN_CHARACTERS = 4_000
POLL_SECONDS = 0.05


class KubectlError(Exception):
    """kubectl ended with a status other than 0; carries its words."""


class Cluster:
    """One cluster behind a kubeconfig.  The same class serves the real control plane and the sandbox.

    Args:
        kubeconfig: an administrator's way in.
        service_accounts: the cluster gives each namespace a `default` service account and refuses pods before that.
    """

    def __init__(self, kubeconfig: Path, *, service_accounts: bool = False) -> None:
        self.kubeconfig = kubeconfig
        self.access = Access.read(kubeconfig)
        self._service_accounts = service_accounts
        self._namespaces: list[str] = []
        self._kept: tuple[asyncio.AbstractEventLoop, aiohttp.ClientSession] | None = None

    @property
    def url(self) -> str:
        """The API server's address."""
        return self.access.url

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Object:
        """One request; `Access.request` says how it answers and fails."""
        async with self._session() as session:
            return await self.access.request(method, path, body, content_type=content_type, session=session)

    @asynccontextmanager
    async def kept_open(self) -> AsyncIterator[None]:
        """While the block runs, requests on its event loop share connections: a handshake costs more than most requests."""
        before = self._kept
        async with self.access.session() as session:
            self._kept = (asyncio.get_running_loop(), session)
            try:
                yield
            finally:
                self._kept = before

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """The kept connections, where there are any for this event loop; else new ones."""
        kept = self._kept
        if kept is not None and kept[0] is asyncio.get_running_loop() and not kept[1].closed:
            yield kept[1]
            return
        async with self.access.session() as session:
            yield session

    async def get(self, path: str) -> Object:
        """The object or list at `path`.  Raises RequestError."""
        return await self.request("GET", path)

    async def exists(self, path: str) -> bool:
        """Whether there is something at `path`."""
        try:
            await self.get(path)
        except RequestError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def ready(self) -> bool:
        """Whether the API server answers and says that it is ready."""
        try:
            await self.get("/readyz")
        except (aiohttp.ClientError, TimeoutError, RequestError):
            return False
        return True

    async def until(
        self, path: str, wanted: Callable[[Object], bool], *, what: str, seconds: float = WAIT_SECONDS
    ) -> Object:
        """The object or list at `path`, as soon as `wanted` says yes to it; one that is missing is asked for again.

        Raises:
            TimeoutError: it says what was waited for and what was there last.
        """
        last: Object | str = "nothing"
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        last = found = await self.get(path)
                        if wanted(found):
                            return found
                    except RequestError as error:
                        if error.status not in (404, 429):  # 429: the API server has just started
                            raise
                        last = str(error)
                    except aiohttp.ClientConnectionError as error:  # the next try has a connection of its own
                        last = str(error)
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} s: {what}; last seen at {path}: {shown(last)}") from None

    async def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """What the real kubectl prints.

        A coroutine, because what kubectl asks may be answered by a webhook on the test's own event loop.

        Raises:
            KubectlError: its status is not 0.
            FileNotFoundError: there is no kubectl, neither built nor on PATH.
        """
        program = binaries.kubectl()
        if program is None:
            raise FileNotFoundError(f"no kubectl: {binaries.REMEDY}")
        kubectl = await asyncio.create_subprocess_exec(
            program,
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.kubeconfig.parent / 'kubectl-cache'}",
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(self.kubeconfig.parent)},
        )
        try:
            out, err = await kubectl.communicate(None if stdin is None else stdin.encode())
        finally:
            if kubectl.returncode is None:
                kubectl.kill()
                await kubectl.wait()
        if kubectl.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: {(err or out).decode().strip()}")
        return out.decode()

    async def apply(self, obj: Object, path: str) -> Object:
        """Server-side apply of one object to its collection at `path`."""
        name = obj["metadata"]["name"]
        return await self.request(
            "PATCH", f"{path}/{name}?fieldManager=tests&force=true", obj, content_type=APPLY_PATCH
        )

    async def apply_crds(self, folder: Path) -> list[str]:
        """Apply all CustomResourceDefinitions in `folder/*.yaml`; returns their names when all are served."""
        wanted = [crd for file in sorted(folder.glob("*.yaml")) for crd in documents(file.read_text())]
        await asyncio.gather(*(self.apply(crd, CRDS) for crd in wanted))
        names = [crd["metadata"]["name"] for crd in wanted]
        await asyncio.gather(
            *(self.until(f"{CRDS}/{name}", is_established, what=f"{name} is Established") for name in names)
        )
        return names

    async def add_nodes(
        self,
        shape: Sequence[int],
        *,
        levels: Sequence[str] = (BLOCK_LABEL, RACK_LABEL),
        allocatable: Mapping[str, str] = GPU_NODE,
        labels: Mapping[str, str] | None = None,
        prefix: str = "node",
        wait: bool = True,
    ) -> list[str]:
        """Make nodes in a tree of domains.

        Args:
            shape: how many domains per level, and hosts last: `(2, 4, 8)` is 2 blocks of 4 racks of 8 hosts.
            levels: the label of each level above the host, widest first; one less than `shape` has numbers.
            allocatable: what each node has.
            labels: more labels, the same for all.
            prefix: host `prefix-0-3-7` stands in `block-0` and `rack-0-3`.
            wait: until all are ready and without the taint of fresh nodes.

        Returns:
            The names of the nodes, in order.
        """
        if len(shape) != len(levels) + 1:
            raise ValueError(f"shape {tuple(shape)} needs one number per level {tuple(levels)} and one for the hosts")
        nodes = [
            node(place, levels=levels, allocatable=allocatable, labels=labels or {}, prefix=prefix)
            for place in itertools.product(*map(range, shape))
        ]
        async with self.kept_open():
            await asyncio.gather(*(self.request("POST", NODES, each) for each in nodes))
        names = [each["metadata"]["name"] for each in nodes]
        if wait:
            await self.until(NODES, lambda found: all_ready(found["items"], names), what=f"{len(names)} ready nodes")
        return names

    async def create_namespace(self, prefix: str = "test") -> str:
        """A fresh namespace that pods can be made in; returns its name."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{prefix}-"}}
        name: str = (await self.request("POST", NAMESPACES, body))["metadata"]["name"]
        self._namespaces.append(name)
        if self._service_accounts:
            account = f"{NAMESPACES}/{name}/serviceaccounts/default"
            await self.until(account, lambda _: True, what=f"a default service account in {name}")
        return name

    async def reset(self) -> None:
        """Delete what a test left: webhooks, APIServices, roles, our objects, pods, their owners, nodes, priority classes.

        Finalizers are struck out, because whoever would have removed them has ended with the test.  Returns when none
        is left.  Namespaces from `create_namespace` are deleted too, and finish on their own (a real one takes five
        seconds); a namespace of a fixed name stays, so that the next test can use it at once.
        """
        async with self.kept_open():
            await asyncio.gather(
                *(self.request("DELETE", path) for path in (*WEBHOOKS, f"{API_SERVICES}?labelSelector={OURS}"))
            )
            await self._forget_conversion()
            kinds = [*POD_MAKERS, *await self._our_collections(), PODS, NODES, *CLUSTER_RBAC, PRIORITY_CLASSES]
            left = dict(zip(kinds, await asyncio.gather(*map(self._left, kinds)), strict=True))
            if any(left[kind] for kind in POD_MAKERS):
                left[PODS].append({})  # makers make pods until they are gone
            for kind in kinds:
                if left[kind]:
                    await self._erase(kind)
            await asyncio.gather(*map(self._end_namespace, self._namespaces))
        self._namespaces.clear()

    async def _end_namespace(self, namespace: str) -> None:
        if await self.exists(f"{NAMESPACES}/{namespace}"):  # a test may have ended it
            await self.request("DELETE", f"{NAMESPACES}/{namespace}")

    async def _forget_conversion(self) -> None:
        """Let the API server convert by itself: the webhook that did it has ended with the test."""
        for crd in (await self.get(CRDS))["items"]:
            if (crd["spec"].get("conversion") or {}).get("strategy") == "Webhook":
                patch = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
                await self.request("PATCH", f"{CRDS}/{crd['metadata']['name']}", patch, content_type=MERGE_PATCH)

    async def _our_collections(self) -> list[str]:
        """Paths of all kinds of our groups that are served."""
        found = []
        for group in (await self.get("/apis"))["groups"]:
            if group["name"] in OUR_GROUPS:
                version = group["preferredVersion"]["groupVersion"]
                resources = (await self.get(f"/apis/{version}"))["resources"]
                found += [f"/apis/{version}/{each['name']}" for each in resources if "/" not in each["name"]]
        return found

    async def _left(self, kind: str) -> list[Object]:
        """The objects of a kind in all namespaces that a reset is to delete; none where the kind is not served."""
        while True:
            try:
                listed = (await self.get(f"{kind}{SELECTED.get(kind, '')}"))["items"]
            except RequestError as error:
                if error.status == 404:
                    return []
                if error.status not in (
                    429,
                    500,
                ):  # until the API server has begun its caches anew, and converts itself
                    raise
                await asyncio.sleep(POLL_SECONDS)
            else:
                own = kind == PRIORITY_CLASSES
                return [obj for obj in listed if not (own and obj["metadata"]["name"].startswith("system-"))]

    async def _erase(self, kind: str) -> None:
        """Delete what is left of a kind, finalizers or not, until nothing is."""
        async with asyncio.timeout(WAIT_SECONDS):
            while left := await self._left(kind):
                await asyncio.gather(
                    *(self._strike(object_path(kind, obj), obj, DELETION.get(kind, "")) for obj in left)
                )

    async def _strike(self, path: str, obj: Object, query: str) -> None:
        try:
            if obj["metadata"].get("finalizers"):
                await self.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            await self.request("DELETE", f"{path}{query}")
        except RequestError as error:
            if error.status not in (404, 409, 429, 500):  # gone, changed or not converted: the next round sees it
                raise


def node(
    place: Sequence[int],
    *,
    levels: Sequence[str],
    allocatable: Mapping[str, str],
    labels: Mapping[str, str],
    prefix: str,
) -> Object:
    """The node at `place` in the tree, as a kubelet reports it once it is ready; a later report costs four more writes."""
    name = "-".join([prefix, *map(str, place)])
    domains = {
        label: "-".join([label.rsplit("-", 1)[-1].rsplit("/", 1)[-1], *map(str, place[: depth + 1])])
        for depth, label in enumerate(levels)
    }
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
    ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, **domains, HOSTNAME_LABEL: name}},
        "status": {"allocatable": dict(allocatable), "capacity": dict(allocatable), "conditions": [ready]},
    }


def all_ready(nodes: Sequence[Object], names: Sequence[str]) -> bool:
    """Whether all nodes of these names are ready and have lost the taint that fresh nodes get."""
    ready = {each["metadata"]["name"] for each in nodes if has_condition(each, "Ready") and not is_fresh(each)}
    return ready.issuperset(names)


def is_fresh(obj: Object) -> bool:
    """Whether a node still carries the not-ready taint."""
    taints = obj["spec"].get("taints") or ()
    return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)


def is_established(crd: Object) -> bool:
    """Whether a CustomResourceDefinition is served."""
    return has_condition(crd, "Established")


def has_condition(obj: Object, kind: str) -> bool:
    """Whether the object's status carries this condition as True."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def object_path(collection: str, obj: Object) -> str:
    """The path of one object, from the path of its kind in all namespaces."""
    group, _, plural = collection.rpartition("/")
    namespace, name = obj["metadata"].get("namespace"), obj["metadata"]["name"]
    return f"{group}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{collection}/{name}"


def shown(found: Object | str) -> str:
    """What an error message says of what was there: nobody reads managed fields, nor the hundredth object."""
    if isinstance(found, str):
        return found
    items = found.get("items", [found])
    for each in items:
        each.get("metadata", {}).pop("managedFields", None)
    text = json.dumps(items, separators=(",", ":"))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ... ({len(items)} objects)"
