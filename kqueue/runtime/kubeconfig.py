"""Which cluster the surroundings name: a kubeconfig, or the pod's own service account.

The one module that knows `kubernetes_asyncio`, and it is asked for nothing but what a kubeconfig means: address, TLS,
who we are.  Of it only the parts that are needed are imported, on first use.
"""

from __future__ import annotations

import importlib.util
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kqueue.errors import ConfigError
from kqueue.runtime.credentials import Credentials, NoCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How to reach an API server."""

    server: str
    """Base URL."""
    credentials: Credentials = field(default_factory=NoCredentials)
    tls: ssl.SSLContext | None = None
    """None for plain HTTP, or the CAs of the system."""
    tls_server_name: str | None = None
    """Name to expect in the server's certificate; None for the URL's host."""
    proxy: str | None = None
    namespace: str = "default"
    """Where a person works who names no namespace."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of every request: whom to act as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What a person says against the kubeconfig; what is empty is as it says there."""

    cluster: str = ""
    """Name of another cluster entry."""
    user: str = ""
    """Name of another user entry."""
    server: str = ""
    """Base URL."""
    token: str = ""
    """Bearer token, in place of all that the user entry has."""
    act_as: str = ""
    """User to act as."""
    act_as_groups: tuple[str, ...] = ()
    """Groups to act as; they need a user to go with."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """What tells the API server whom to act as."""
        user = [("Impersonate-User", self.act_as)] if self.act_as else []
        return (*user, *(("Impersonate-Group", group) for group in self.act_as_groups))


_AS_IT_IS = Overrides()


async def find_cluster(kubeconfig: Path | None, context: str | None, overrides: Overrides = _AS_IT_IS) -> Cluster:
    """The cluster of the first source that applies.

    The sources are: `kubeconfig`; the files in the environment's KUBECONFIG; the pod's own service account;
    `~/.kube/config`.  `context` None means the kubeconfig's current context.

    Raises:
        ConfigError: none applies, or the one that does cannot be read; names the path and the remedy.
    """
    source = _source(kubeconfig, context, overrides)
    cfg = await source.load()
    url = urlsplit(cfg.host)
    from_environment = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
    return Cluster(
        server=cfg.host,
        credentials=source,
        tls=source.tls(),
        tls_server_name=cfg.tls_server_name,
        proxy=cfg.proxy or from_environment,
        namespace=source.namespace or "default",
        headers=overrides.headers,
    )


_Loader = Callable[[Any], Awaitable[str]]
"""Fills a `kubernetes_asyncio.client.Configuration` and returns the namespace to work in, empty where none is named."""


class _Source:
    """A place that configuration comes from; it can be read again, and so it serves as our credentials."""

    def __init__(self, name: str, load_into: _Loader, overrides: Overrides) -> None:
        self.name = name
        self.namespace = ""
        self._load_into, self._overrides = load_into, overrides
        self._cfg: Any = None
        self._trust: tuple[object, ...] = ()

    async def load(self) -> Any:
        cfg: Any = _library().Configuration()
        cfg.host = ""  # or it stays at http://localhost when the cluster entry has no server
        try:
            self.namespace = await self._load_into(cfg)
        except Exception as e:  # the library raises whatever its parsing stumbles over
            raise ConfigError(f"{self.name} cannot be used: {e or type(e).__name__}") from e
        self._override(cfg)
        if urlsplit(cfg.host).scheme not in {"http", "https"}:
            raise ConfigError(
                f"{self.name}: the cluster of the chosen context needs a `server` that begins with https:// "
                f"(found {cfg.host!r})"
            )
        self._cfg = cfg
        return cfg

    def _override(self, cfg: Any) -> None:
        cfg.host = self._overrides.server or cfg.host
        if self._overrides.token:
            cfg.api_key = {"BearerToken": f"Bearer {self._overrides.token}"}
            cfg.cert_file = cfg.key_file = cfg.refresh_api_key_hook = None

    async def header(self) -> str | None:
        """Asks the configuration, which reads a service account's token file again each minute."""
        if self._cfg is None:
            await self.load()
        header: str | None = await self._cfg.get_api_key_with_prefix("BearerToken")
        return header

    def tls(self) -> ssl.SSLContext | None:
        """What connections are made with, as it was loaded last; None for plain HTTP."""
        if urlsplit(self._cfg.host).scheme != "https":
            return None
        self._trust = _trust(self._cfg)
        return _tls(self._cfg, self.name)

    async def reload(self) -> ssl.SSLContext | None:
        """Load everything again: token file, exec plugin, kubeconfig, CA and client certificate."""
        cfg = await self.load()
        return self.tls() if _trust(cfg) != self._trust else None


def _source(kubeconfig: Path | None, context: str | None, overrides: Overrides) -> _Source:
    if kubeconfig is not None:
        return _from_files(f"kubeconfig {kubeconfig}", [kubeconfig], context, overrides, remedy="check --kubeconfig")
    named = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        shown = os.pathsep.join(map(str, named))
        remedy = "check or unset KUBECONFIG"
        return _from_files(f"kubeconfig {shown} (from KUBECONFIG)", named, context, overrides, remedy=remedy)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        if overrides.cluster or overrides.user:
            raise ConfigError("inside a cluster there is no kubeconfig to take --cluster and --user from: give one")
        return _Source("the pod's service account", _load_in_cluster, overrides)
    default = Path("~/.kube/config")
    remedy = "give --kubeconfig, set KUBECONFIG, or run inside a cluster"
    return _from_files(f"kubeconfig {default}", [default], context, overrides, remedy=remedy)


def _from_files(name: str, files: list[Path], context: str | None, overrides: Overrides, *, remedy: str) -> _Source:
    files = [f.expanduser() for f in files]
    if not any(f.is_file() for f in files):
        raise ConfigError(f"{name} does not exist: {remedy}")

    async def load_into(cfg: Any) -> str:
        library = _library().kube_config
        merged: Any = library.KubeConfigMerger(os.pathsep.join(map(str, files))).config
        chosen = _with_context(merged.value, context, overrides)
        loader: Any = await library.load_kube_config_from_dict(merged, context=chosen, client_configuration=cfg)
        return loader.current_context["context"].get("namespace") or ""

    return _Source(name, load_into, overrides)


def _with_context(config: Any, context: str | None, overrides: Overrides) -> str | None:
    """The name of the context to use, which is a new one where another cluster or user is to be in it."""
    if not (overrides.cluster or overrides.user):
        return context
    named = context or config.get("current-context")
    found = next((each["context"] for each in config["contexts"] if each["name"] == named), None)
    if found is None and (context or not (overrides.cluster and overrides.user)):
        raise ConfigError(f"it has no context {named!r}: check --context")
    if overrides.user and not any(each["name"] == overrides.user for each in config["users"]):
        raise ConfigError(f"it has no user {overrides.user!r}: check --user")  # the library would go on as nobody
    plain = getattr(found, "value", found) or {}  # merged files hold their parts in nodes that remember the path
    wanted = {"cluster": overrides.cluster, "user": overrides.user}
    made = {**plain, **{key: value for key, value in wanted.items() if value}}
    config["contexts"].append({"name": _OVERRIDDEN, "context": made})
    return _OVERRIDDEN


_OVERRIDDEN = "(as the command line says)"


_PARTS = ("kubernetes_asyncio", "kubernetes_asyncio.client")
_RARELY_USED = "urllib3"
"""What the library imports, and uses only to encode a user's name and password."""


@cache
def _library() -> SimpleNamespace:
    """The parts of the library that know what a kubeconfig means: `Configuration`, `kube_config`, `incluster_config`.

    Importing all of it imports 700 classes of objects, which takes 0.25 s.  So empty packages stand in for its two
    packages while these parts are imported.  Where `urllib3` is not loaded, the library gets a module that
    imports it on first use: 25 ms of CPU less.
    """
    loaded = {name: sys.modules.pop(name) for name in (*_PARTS, _RARELY_USED) if name in sys.modules}
    root = importlib.util.find_spec("kubernetes_asyncio")
    assert root is not None, "kqueue is installed with what it needs"
    folder = Path(next(iter(root.submodule_search_locations or ())))
    try:
        for name, place in zip(_PARTS, (folder, folder / "client"), strict=True):
            sys.modules[name] = empty = ModuleType(name)
            empty.__path__ = [str(place)]
        sys.modules[_RARELY_USED] = loaded.get(_RARELY_USED) or _on_first_use(_RARELY_USED)
        client: Any = sys.modules[_PARTS[1]]
        client.Configuration = importlib.import_module("kubernetes_asyncio.client.configuration").Configuration
        client.ApiClient = object  # named by functions that are not called here
        config = {name: importlib.import_module(f"kubernetes_asyncio.config.{name}") for name in _CONFIG_PARTS}
    finally:
        for name in (*_PARTS, _RARELY_USED):
            sys.modules.pop(name, None)
        sys.modules.update(loaded)
    return SimpleNamespace(Configuration=client.Configuration, **config)


def _on_first_use(name: str) -> ModuleType:
    """A module whose attributes are those of the module `name`, which is imported when one of them is read."""
    module = ModuleType(name)
    module.__dict__["__getattr__"] = lambda attribute: getattr(importlib.import_module(name), attribute)
    return module


_CONFIG_PARTS = ("kube_config", "incluster_config")


async def _load_in_cluster(cfg: Any) -> str:
    _library().incluster_config.load_incluster_config(client_configuration=cfg)
    return _own_namespace()


def _own_namespace() -> str:
    try:
        return _OWN_NAMESPACE.read_text().strip()
    except OSError:
        return ""


_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _trust(cfg: Any) -> tuple[object, ...]:
    """What a TLS context is made of: equal where nothing of it has changed."""

    def content(path: str | None) -> bytes | None:
        try:
            return Path(path).read_bytes() if path else None
        except OSError:
            return None

    return content(cfg.ssl_ca_cert), content(cfg.cert_file), content(cfg.key_file), cfg.verify_ssl


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
