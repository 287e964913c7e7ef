"""Worker clusters by ClusterProfile: a cluster manager describes the cluster, and a program gives the credentials.

A ClusterProfile names providers of credentials, and the address of the cluster for each.  Which program belongs to a
provider, and with which arguments and variables it runs, says the configuration of kqueue alone; the description only
becomes data that the program gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kqueue.api import multikueue_names as words
from kqueue.clock import Clock
from kqueue.config.policy import AccessProvider, MultiKueue
from kqueue.controllers.worker_cluster import WorkerSourceError
from kqueue.errors import ConfigError, ForbiddenError, NotFoundError
from kqueue.runtime.access import Access
from kqueue.runtime.client import Client
from kqueue.runtime.exec_plugin import ExecPlugin
from kqueue.runtime.kubeconfig import ClusterAccess, access_of, cluster_of
from kqueue.runtime.kubeconfig_file import KubeconfigEntry, SelectedEntries
from kqueue.runtime.kubeconfig_secret import MOST_BYTES, InsecureKubeconfigError, refuse_insecure
from kqueue.runtime.resources import ResourceType

JSON = dict[str, Any]
CLUSTER_PROFILES = ResourceType("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile")
_LISTS = ("accessProviders", "credentialProviders")
"""Fields of the status with the providers, the newer first."""
_CLUSTER_FIELDS = ("server", "tls-server-name", "certificate-authority-data", "proxy-url", "disable-compression")
"""Fields of a cluster that `spec.cluster` of an ExecCredential has.  Source: client-go."""
_EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster that `spec.cluster.config` of an ExecCredential has.  Source: client-go."""
_PAUSE = 5.0
"""Seconds in which a program is not run again for the same connection, however often its credentials are refused."""


@dataclass(frozen=True, slots=True)
class Provider:
    """The program for the clusters of one provider; `gets_cluster`: its input describes the cluster."""

    plugin: ExecPlugin
    gets_cluster: bool = False
    asks: bool = False
    """Whether the program cannot do without a person who answers it."""


def providers_of(settings: MultiKueue) -> dict[str, Provider]:
    """Return the programs of the configuration by the name of their provider."""
    section = settings.cluster_profile
    listed = section.access_providers or section.credentials_providers if section is not None else ()
    return {each.name: _provider(each) for each in listed}


def _provider(given: AccessProvider) -> Provider:
    program = given.exec_config
    plugin = ExecPlugin(
        name=f"provider {given.name}",
        command=program.command,
        arguments=program.args,
        variables={each.name: each.value for each in program.env},
        api_version=program.api_version,
        hint=program.install_hint,
    )
    return Provider(plugin, gets_cluster=program.provide_cluster_info, asks=program.interactive_mode == "Always")


class ClusterProfiles:
    """Reads ClusterProfiles of our namespace, and connects the clusters that they describe."""

    def __init__(self, client: Client, namespace: str, providers: Mapping[str, Provider], *, clock: Clock) -> None:
        self._client, self._namespace, self._providers, self._clock = client, namespace, providers, clock

    async def read(self, name: str) -> bytes:
        """Return the description of a cluster for the first of its providers that has a program.

        It raises WorkerSourceError when there is none, and ApiError when our own API server does not answer.
        """
        where = f"ClusterProfile {self._namespace}/{name}"
        try:
            found = await self._client.get_json(CLUSTER_PROFILES, name, self._namespace)
        except NotFoundError as e:
            raise _bad(f"{where} not found; its cluster manager creates it") from e
        except ForbiddenError as e:
            raise _bad(f"{where} may not be read by kqueue: {e}") from e
        offered = _offered(found)
        for provider, cluster in offered:
            if provider in self._providers:
                content = msgspec.json.encode({"provider": provider, "cluster": cluster}, order="sorted")
                if len(content) > MOST_BYTES:
                    raise _bad(f"{where} describes its cluster with more than {MOST_BYTES} bytes")
                return content
        has, ours = (", ".join(sorted(each)) or "none" for each in ({name for name, _ in offered}, self._providers))
        raise _bad(
            f"{where} has no provider that multiKueue.clusterProfile.accessProviders names (it has: {has};"
            f" configured: {ours})"
        )

    async def access(self, name: str, content: bytes) -> ClusterAccess:
        """Return how to reach the cluster that a description of ClusterProfile `name` is of; its program is run.

        Raises:
            InsecureKubeconfigError: the description asks for something that one from outside may not.
            WorkerSourceError: the program has no credentials, or the description is incomplete.
        """
        where, said = f"ClusterProfile {name}", msgspec.json.decode(content)
        cluster: JSON = said["cluster"]
        chosen = SelectedEntries(KubeconfigEntry("its cluster", cluster), KubeconfigEntry("no user"), "")
        refuse_insecure(chosen, where)
        runs = _Runs(self._providers[said["provider"]], chosen, self._clock)
        try:
            return await cluster_of(where, runs.load, clock=self._clock)
        except InsecureKubeconfigError:
            raise
        except ConfigError as e:
            raise _bad(str(e)) from e


class _Runs:
    """The runs of one program for one connection."""

    def __init__(self, provider: Provider, chosen: SelectedEntries, clock: Clock) -> None:
        self._provider, self._chosen, self._clock = provider, chosen, clock
        self._last: Access | None = None
        self._at = 0.0

    async def load(self) -> Access:
        """Run the program, unless it has just been run.  Raises ConfigError when it has no credentials."""
        if self._last is not None and self._clock.monotonic() - self._at < _PAUSE:
            return self._last
        plugin = self._provider.plugin
        if self._provider.asks:
            raise ConfigError(f"{plugin.name}: interactiveMode Always needs a terminal, which a controller has not")
        access = await access_of(self._chosen)
        cluster = _exec_cluster(self._chosen.cluster.fields) if self._provider.gets_cluster else None
        identity = await plugin.identity(cluster, self._clock)
        self._last, self._at = replace(access, identity=identity), self._clock.monotonic()
        return self._last


def _bad(message: str) -> WorkerSourceError:
    return WorkerSourceError(message, words.REASON_BAD_CLUSTER_PROFILE)


def _offered(profile: JSON) -> Sequence[tuple[str, JSON]]:
    """Return the providers of a ClusterProfile that describe the cluster, with their descriptions."""
    status = profile.get("status")
    found: list[tuple[str, JSON]] = []
    for field in _LISTS:
        listed = status.get(field) if isinstance(status, dict) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict) and isinstance(each.get("cluster"), dict):
                found.append((str(each.get("name")), each["cluster"]))
    return found


def _exec_cluster(cluster: Mapping[str, Any]) -> JSON:
    """Return `spec.cluster` of the ExecCredential that a program gets."""
    found = {key: cluster[key] for key in _CLUSTER_FIELDS if cluster.get(key)}
    for each in cluster.get("extensions") or ():
        if isinstance(each, dict) and each.get("name") == _EXTENSION:
            found["config"] = each.get("extension")
    return found
