"""Checks whether kqueue can be installed or upgraded: refused objects, and other controllers of the same kinds."""

from __future__ import annotations

import re
from typing import Any

from kqueue.config import Configuration
from kqueue.errors import NotFoundError
from kqueue.manager.registration import CONFIGURATIONS
from kqueue.operations.checkup.values import CheckVerdict, failed, ok
from kqueue.operations.migration.definitions import judge_definitions
from kqueue.operations.migration.findings import Level
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from webhooks.configuration import MUTATING_NAME, VALIDATING_NAME, is_ours

JSON = dict[str, Any]
_DEFINITIONS = ResourceType(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment")
_OLDEST = (1, 30)
"""The first version with match conditions of webhooks and the sleep action of preStop hooks."""
_KUEUE = "kueue-controller-manager"
"""The Deployment of Kueue's own manifests and chart."""
_PAGE = "docs/how-to/migrate-from-kueue.md"


class BeforeInstall:
    """The checks; each is a coroutine without arguments.  All objects are read by name, so that few rights suffice."""

    def __init__(self, client: Client, configuration: Configuration) -> None:
        self._client, self._configuration = client, configuration

    async def api_server(self) -> CheckVerdict:
        """Whether the API server answers, and is new enough."""
        version = await self._client.version()
        said = str(version.get("gitVersion", ""))
        match = re.match(r"v(\d+)\.(\d+)", said)
        server = f"Kubernetes {said or 'of an unknown version'} at {self._client.server}"
        if match and (int(match[1]), int(match[2])) < _OLDEST:
            return failed(f"{server} is too old", f"upgrade the cluster to {_OLDEST[0]}.{_OLDEST[1]} or newer")
        return ok(server)

    async def definitions(self) -> CheckVerdict:
        """Check whether the API server accepts kqueue's definitions in place of the present ones."""
        from kqueue.api.crd_files import load_crds

        names = [crd["metadata"]["name"] for crd in load_crds()]
        there = [found for name in names if (found := await self._get(_DEFINITIONS, name)) is not None]
        bad = [finding for finding in judge_definitions(there) if finding.level is Level.WORK]
        if bad:
            lines = (f"{finding.field}: {finding.why}" for finding in bad)
            return failed(f"{len(bad)} definitions cannot be replaced", bad[0].remedy, *lines)
        return ok(f"{len(there)} of {len(names)} kinds are installed, and kqueue's can replace them")

    async def other_manager(self) -> CheckVerdict:
        """Whether Kueue was removed: two managers of the same queues would assign the same quota twice."""
        own = self._configuration.namespace
        kueue = await self._get(_DEPLOYMENTS, _KUEUE, own)
        if kueue is not None and (kueue.get("spec") or {}).get("replicas", 1):
            return failed(
                f"Kueue runs: Deployment {own}/{_KUEUE}",
                f"kubectl -n {own} scale deployment {_KUEUE} --replicas 0   # step 2 of {_PAGE}",
            )
        if not self._configuration.webhook.register_webhooks:
            return ok("no Kueue runs in this namespace; kqueue does not write webhook configurations")
        for resource, name in zip(CONFIGURATIONS.values(), (MUTATING_NAME, VALIDATING_NAME), strict=True):
            found = await self._get(resource, name)
            if found is not None and not is_ours(found["metadata"]):
                return failed(
                    f"{resource.kind} {name} exists, and kqueue did not create it",
                    f"stop Kueue (step 2 of {_PAGE}), then: kubectl delete {resource.kind.lower()} {name}",
                )
        return ok("no Kueue runs in this namespace, and no webhook configuration of it is left")

    async def _get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JSON | None:
        try:
            return await self._client.get_json(resource, name, namespace)
        except NotFoundError:
            return None
