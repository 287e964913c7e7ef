"""Keeps the conversion webhook in kqueue's CustomResourceDefinitions correct: where it is, and whom to trust.

Only `spec.conversion` and a label that says so are written, only in definitions that have both versions, and only where
they differ from what is wanted.  Several replicas may write at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import structlog

from kqueue.api.names import GROUP, OLDER_VERSION, VERSION
from kqueue.api.v1beta1.names import CONVERT_PATH
from kqueue.config import Configuration
from kqueue.controllers.resources import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS
from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.manager.registration import covers, retried, target_of
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from webhooks.configuration import KEPT_BY, OURSELVES, WebhookEndpoint, is_ours

JSON = dict[str, Any]
DEFINITIONS = ResourceType(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
CONVERTED = (
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    ResourceType(GROUP, VERSION, "multikueueclusters", "MultiKueueCluster", namespaced=False),
    WORKLOADS,
)
"""The kinds whose definitions name the conversion webhook."""
_INJECTED = "cert-manager.io/inject-ca-from"
"""Start of the annotations of a definition into which cert-manager writes the authority."""

_log = structlog.get_logger(__name__)


def definition_of(kind: ResourceType) -> str:
    """Return the name of a kind's definition."""
    return f"{kind.plural}.{kind.group}"


class ConversionRegistrar:
    """Writes the conversion webhook into the definitions.  `url` as in `registration.Registrar`."""

    def __init__(self, client: Client, configuration: Configuration, *, url: str = "") -> None:
        self._client, self._configuration, self._url = client, configuration, url
        self._refused = ""

    async def bring(self, ca_bundle: bytes) -> bool:
        """Correct all definitions.  Return whether one was written.

        A definition that is missing, is being deleted, or has one version, is left alone.  Without the right to patch
        definitions the reviews of new objects still have to work: the log names the missing right, once.

        Raises:
            ApiError: the API server failed, or another writer wrote at every attempt.
        """
        target = target_of(self._configuration, self._url, ca_bundle)
        try:
            names = map(definition_of, CONVERTED)
            written = [await retried(partial(self._once, name, target)) for name in names]
        except ForbiddenError as e:
            if str(e) != self._refused:
                self._refused = str(e)
                _log.warning("objects of v1beta1 cannot be converted: we may not write definitions", error=str(e))
            return False
        if any(written):
            _log.info("conversion is registered", url=self._url or target.service)
        return any(written)

    async def _once(self, name: str, target: WebhookEndpoint) -> bool:
        try:
            found = await self._client.get_json(DEFINITIONS, name)
        except NotFoundError:
            return False
        metadata, spec = found["metadata"], found["spec"]
        has_both = {VERSION, OLDER_VERSION} <= {version["name"] for version in spec["versions"]}
        if not has_both or metadata.get("deletionTimestamp"):
            return False
        is_injected = any(note.startswith(_INJECTED) for note in metadata.get("annotations") or {})
        wanted = _conversion(target, with_authority=not is_injected)
        present = spec.get("conversion") or {}
        if covers(present, wanted) and is_ours(metadata):
            return False
        other = "service" if target.url else "url"
        wanted["webhook"]["clientConfig"][other] = None
        marked = {"resourceVersion": metadata["resourceVersion"], "labels": {KEPT_BY: OURSELVES}}
        await self._client.patch(DEFINITIONS, name, {"metadata": marked, "spec": {"conversion": wanted}})
        return True


def _conversion(target: WebhookEndpoint, *, with_authority: bool) -> JSON:
    client = target.client_config(CONVERT_PATH)
    if not with_authority:
        del client["caBundle"]
    return {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}}
