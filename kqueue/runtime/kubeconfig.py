"""Which cluster the surroundings name: a kubeconfig, or the pod's own service account.

The one module that knows `kubernetes_asyncio`, and it is asked for nothing but what a kubeconfig means: address, TLS,
who we are.  It is imported on first use, because importing it costs 0.3 s and 40 MiB.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kqueue.errors import ConfigError
from kqueue.runtime.credentials import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How to reach an API server."""

    server: str
    """Base URL."""
    credentials: Credentials
    tls: ssl.SSLContext | None
    """None for plain HTTP."""
    tls_server_name: str | None
    """Name to expect in the server's certificate; None for the URL's host."""
    proxy: str | None


async def find_cluster(kubeconfig: Path | None, context: str | None) -> Cluster:
    """The cluster of the first source that applies.

    The sources are: `kubeconfig`; the files in the environment's KUBECONFIG; the pod's own service account;
    `~/.kube/config`.  `context` None means the kubeconfig's current context.

    Raises:
        ConfigError: none applies, or the one that does cannot be read; names the path and the remedy.
    """
    source = _source(kubeconfig, context)
    cfg = await source.load()
    url = urlsplit(cfg.host)
    from_environment = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
    return Cluster(
        server=cfg.host,
        credentials=source,
        tls=_tls(cfg, source.name) if url.scheme == "https" else None,
        tls_server_name=cfg.tls_server_name,
        proxy=cfg.proxy or from_environment,
    )


_Loader = Callable[[Any], Awaitable[None]]
"""Fills a `kubernetes_asyncio.client.Configuration`."""


class _Source:
    """A place that configuration comes from; it can be read again, and so it serves as our credentials."""

    def __init__(self, name: str, load_into: _Loader) -> None:
        self.name = name
        self._load_into = load_into
        self._cfg: Any = None

    async def load(self) -> Any:
        from kubernetes_asyncio.client import Configuration

        cfg: Any = Configuration()
        cfg.host = ""  # or it stays at http://localhost when the cluster entry has no server
        try:
            await self._load_into(cfg)
        except Exception as e:  # the library raises whatever its parsing stumbles over
            raise ConfigError(f"{self.name} cannot be used: {e or type(e).__name__}") from e
        if urlsplit(cfg.host).scheme not in {"http", "https"}:
            raise ConfigError(
                f"{self.name}: the cluster of the chosen context needs a `server` that begins with https:// "
                f"(found {cfg.host!r})"
            )
        self._cfg = cfg
        return cfg

    async def header(self) -> str | None:
        """Asks the configuration, which reads a service account's token file again each minute."""
        if self._cfg is None:
            await self.load()
        header: str | None = await self._cfg.get_api_key_with_prefix("BearerToken")
        return header

    async def reload(self) -> None:
        """Load everything again: token file, exec plugin, kubeconfig.  TLS settings stay as they were."""
        await self.load()


def _source(kubeconfig: Path | None, context: str | None) -> _Source:
    if kubeconfig is not None:
        return _from_files(f"kubeconfig {kubeconfig}", [kubeconfig], context, remedy="check --kubeconfig")
    named = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        shown = os.pathsep.join(map(str, named))
        return _from_files(f"kubeconfig {shown} (from KUBECONFIG)", named, context, remedy="check or unset KUBECONFIG")
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _Source("the pod's service account", _load_in_cluster)
    default = Path("~/.kube/config")
    remedy = "give --kubeconfig, set KUBECONFIG, or run inside a cluster"
    return _from_files(f"kubeconfig {default}", [default], context, remedy=remedy)


def _from_files(name: str, files: list[Path], context: str | None, *, remedy: str) -> _Source:
    files = [f.expanduser() for f in files]
    if not any(f.is_file() for f in files):
        raise ConfigError(f"{name} does not exist: {remedy}")

    async def load_into(cfg: Any) -> None:
        from kubernetes_asyncio.config import load_kube_config

        paths = os.pathsep.join(map(str, files))
        await load_kube_config(paths, context=context, client_configuration=cfg, persist_config=False)

    return _Source(name, load_into)


async def _load_in_cluster(cfg: Any) -> None:
    from kubernetes_asyncio import config

    load: Callable[..., None] = config.load_incluster_config
    load(client_configuration=cfg)


def _tls(cfg: Any, name: str) -> ssl.SSLContext:
    """TLS as the kubeconfig says; with one CA file this costs 0.3 ms, with the system's CAs 21 ms."""
    try:
        tls = ssl.create_default_context(cafile=cfg.ssl_ca_cert)
        # Python 3.13 made strict checking the default; cluster CAs in the field fail it, and kubectl does not ask it.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if cfg.cert_file:
            tls.load_cert_chain(cfg.cert_file, cfg.key_file)
    except OSError as e:  # SSLError is one too
        raise ConfigError(f"{name}: its CA or client certificate cannot be loaded: {e}") from e
    if not cfg.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
