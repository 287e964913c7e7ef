"""Where the credentials of worker clusters come from: Secrets and ClusterProfiles of our namespace, or files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from pathlib import Path

from kqueue.api import multikueue_names as words
from kqueue.api.wire import multikueue as api
from kqueue.clock import Clock
from kqueue.controllers.cluster_profiles import ClusterProfiles
from kqueue.controllers.worker_cluster import WorkerSourceError
from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.runtime.certificate_secret import SECRETS
from kqueue.runtime.client import Client, client_of
from kqueue.runtime.kubeconfig_secret import MOST_BYTES, cluster_in
from kqueue.runtime.transport import ClientSettings

KUBECONFIG_FOLDER = Path("/etc/multikueue/kubeconfigs")
"""The folder of kubeconfigs that are files.  Source: Kueue."""
_ANSWER_MAX = 64 << 20
"""The largest answer of a worker cluster, in bytes: a page of a list, with 500 copies of up to 130 KiB each."""
_LINK = ClientSettings(call_timeout=10.0, attempts=2, answer_max=_ANSWER_MAX)
"""A worker that does not answer, or answers without end, is found out soon."""


class WorkerSources:
    """Reads kubeconfigs and ClusterProfiles, and opens clients with them."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        clock: Clock,
        folder: Path | None = KUBECONFIG_FOLDER,
        profiles: ClusterProfiles | None = None,
    ) -> None:
        """`folder` is where files of kubeconfigs must lie, None: anywhere; `profiles` None: ClusterProfiles are off."""
        self._client, self._namespace, self._clock, self._folder = client, namespace, clock, folder
        self._profiles = profiles

    def of(self, cluster: api.MultiKueueCluster) -> Callable[[], Awaitable[bytes]]:
        """Return a function that reads the kubeconfig of a cluster, or its description by a ClusterProfile.

        It raises WorkerSourceError when there is none, and ApiError when our own API server does not answer.
        """

        async def read() -> bytes:
            source = cluster.spec.cluster_source
            if source.cluster_profile_ref is not None:
                return await self._profiles_on().read(source.cluster_profile_ref.name)
            if source.kube_config is None:
                raise WorkerSourceError("spec.clusterSource names no kubeconfig; name a Secret")
            if source.kube_config.location_type == "Path":
                return self._file(Path(source.kube_config.location))
            return await self._secret(source.kube_config.location)

        return read

    async def connect(self, cluster: api.MultiKueueCluster, content: bytes) -> Client:
        """Open a client with what `of` has read; no request is sent to the cluster.

        Raises:
            ConfigError, WorkerSourceError: the kubeconfig or the ClusterProfile cannot be used.
        """
        profile = cluster.spec.cluster_source.cluster_profile_ref
        if profile is not None:
            access = await self._profiles_on().access(profile.name, content)
        else:
            access = await cluster_in(content, f"The kubeconfig of {cluster.metadata.name}", clock=self._clock)
        return client_of(access, _LINK, clock=self._clock)

    def _profiles_on(self) -> ClusterProfiles:
        if self._profiles is None:
            message = (
                "ClusterProfiles are not read while feature gate MultiKueueClusterProfile is off; switch it on, or"
                " name a kubeconfig in spec.clusterSource.kubeConfig"
            )
            raise WorkerSourceError(message, words.REASON_CLUSTER_PROFILE_DISABLED)
        return self._profiles

    async def _secret(self, name: str) -> bytes:
        where, key = f"Secret {self._namespace}/{name}", words.KUBECONFIG_KEY
        try:
            found = await self._client.get_json(SECRETS, name, self._namespace)
        except NotFoundError as e:
            raise WorkerSourceError(f"{where} not found; create it with key {key}") from e
        except ForbiddenError as e:
            raise WorkerSourceError(f"{where} may not be read by kqueue: {e}") from e
        data = (found.get("data") or {}).get(key)
        if not isinstance(data, str) or not data:
            raise WorkerSourceError(f"{where} has no key {key}; add a kubeconfig there")
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as e:
            raise WorkerSourceError(f"{where}: key {key} is not base64") from e

    def _file(self, path: Path) -> bytes:
        """Return the content of a file, which symbolic links must not lead out of the folder."""
        try:
            real = path.resolve(strict=True)
            if self._folder is not None and not real.is_relative_to(self._folder.resolve()):
                raise WorkerSourceError(f"{path} is not in {self._folder}; mount the kubeconfig there")
            with real.open("rb") as file:
                return file.read(MOST_BYTES + 1)
        except (OSError, RuntimeError) as e:
            raise WorkerSourceError(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}") from e
