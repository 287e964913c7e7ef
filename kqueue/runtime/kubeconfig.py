"""Finds the cluster that flags or environment name: a kubeconfig, or the pod's own service account.

This module reads tokens, token files, passwords and client certificates, which most kubeconfigs have.  A client library
runs plugins and calls providers (`kubeconfig_library`), and is imported for them only.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from kqueue.clock import Clock, SystemClock
from kqueue.errors import ConfigError
from kqueue.runtime.access import Access, Identity, read_token
from kqueue.runtime.credentials import Credentials, NoCredentials
from kqueue.runtime.kubeconfig_file import KubeconfigEntry, SelectedEntries, choose, read_kubeconfig
from kqueue.runtime.kubeconfig_library import identity_by_library, needs_library


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How to reach an API server."""

    server: str
    """Base URL."""
    credentials: Credentials = field(default_factory=NoCredentials)
    tls: ssl.SSLContext | None = None
    """None: plain HTTP, or the CAs of the system."""
    tls_server_name: str | None = None
    """Expected name in the server's certificate; None: the host of the URL."""
    proxy: str | None = None
    namespace: str = "default"
    """The default namespace of commands."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of every request: the user to impersonate."""


_USER, _GROUP = "Impersonate-User", "Impersonate-Group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Flags that override the kubeconfig; empty fields leave its value."""

    cluster: str = ""
    """Name of another cluster entry."""
    user: str = ""
    """Name of another user entry."""
    server: str = ""
    """Base URL."""
    token: str = ""
    """Bearer token, instead of all credentials of the user entry."""
    act_as: str = ""
    """User to act as."""
    act_as_groups: tuple[str, ...] = ()
    """Groups to act as; they need a user."""

    def headers_over(self, found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return the headers that name the user to impersonate; `found` are those of the kubeconfig.

        Another user replaces all of them, and groups replace groups.
        """
        kept = () if self.act_as else found
        if self.act_as_groups:
            kept = tuple(one for one in kept if one[0] != _GROUP)
        user = [(_USER, self.act_as)] if self.act_as else []
        return (*user, *kept, *((_GROUP, group) for group in self.act_as_groups))


_AS_IT_IS = Overrides()


async def find_cluster(
    kubeconfig: Path | None, context: str | None, overrides: Overrides = _AS_IT_IS, *, clock: Clock | None = None
) -> ClusterAccess:
    """Return the cluster of the first source that applies.

    The sources are: `kubeconfig`; the files in the environment's KUBECONFIG; the pod's own service account;
    `~/.kube/config`.  `context` None means the kubeconfig's current context.

    Raises:
        ConfigError: no source applies, or the source cannot be read; names the path and the remedy.
    """
    return await _cluster(_source(kubeconfig, context, overrides, clock or SystemClock()), overrides)


async def cluster_of(name: str, load: Callable[[], Awaitable[Access]], *, clock: Clock | None = None) -> ClusterAccess:
    """Return the cluster of a source of the caller: `load` reads it, and reads it again when it is refused.

    Raises:
        ConfigError: the source cannot be read; the text begins with `name`.
    """
    return await _cluster(_Source(name, load, _AS_IT_IS, clock or SystemClock()), _AS_IT_IS)


async def _cluster(source: _Source, overrides: Overrides) -> ClusterAccess:
    access = await source.load()
    url = urlsplit(access.server)
    from_environment = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
    return ClusterAccess(
        server=access.server,
        credentials=source,
        tls=source.tls(access),
        tls_server_name=access.tls_server_name,
        proxy=access.proxy or from_environment,
        namespace=access.namespace or "default",
        headers=overrides.headers_over(access.acts_as),
    )


_Loader = Callable[[], Awaitable[Access]]
"""Reads a source."""

TOKEN_SECONDS = 60.0
"""Seconds after which a token file is read again; the kubelet replaces a token long before its expiry."""


RENEWED_BEFORE = timedelta(minutes=1)
"""Time before the end of a token at which another one is asked for."""
RENEWAL_PAUSE = 10.0
"""Seconds between two attempts to renew a token."""


class _Source:
    """A source of configuration that can be read again, and therefore serves as credentials."""

    def __init__(self, name: str, load: _Loader, overrides: Overrides, clock: Clock) -> None:
        self.name = name
        self._load, self._overrides, self._clock = load, overrides, clock
        self._access: Access | None = None
        """The result of the last load."""
        self._authorization: str | None = None
        self._read_at = 0.0
        self._trust: tuple[object, ...] = ()

    async def load(self) -> Access:
        """Read the source.  Raises ConfigError when it cannot be used."""
        try:
            found = await self._load()
        except ConfigError as e:
            raise ConfigError(f"{self.name} cannot be used: {e}") from e
        if urlsplit(found.server).scheme not in {"http", "https"}:
            raise ConfigError(
                f"{self.name}: the cluster of the chosen context needs a `server` that begins with https:// "
                f"(found {found.server!r})"
            )
        if self._overrides.token:
            found = replace(found, identity=Identity(authorization=f"Bearer {self._overrides.token}"))
        self._access, self._authorization = found, found.identity.authorization
        self._read_at = self._clock.monotonic()
        return found

    async def header(self) -> str | None:
        """Return the header's value; a token file is read again each minute, and a token that ends soon is renewed."""
        access = self._access or await self.load()
        file = access.identity.token_file
        if file is not None and self._clock.monotonic() - self._read_at >= TOKEN_SECONDS:
            self._read_at = self._clock.monotonic()
            with suppress(ConfigError):  # the former token may still be valid; if not, `reload` raises the error
                self._authorization = read_token(file)
        if self._ends_soon(access.identity):
            self._read_at = self._clock.monotonic()  # other requests go on with the former token
            with suppress(ConfigError):
                await self.load()
        return self._authorization

    def _ends_soon(self, identity: Identity) -> bool:
        """Whether a token is to be renewed now: one that fails to be is tried again after a while."""
        if identity.expires is None or identity.expires - self._clock.now() > RENEWED_BEFORE:
            return False
        return self._clock.monotonic() - self._read_at >= RENEWAL_PAUSE

    def tls(self, access: Access) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for plain HTTP."""
        self._trust = access.trust
        try:
            return access.tls()
        except ConfigError as e:
            raise ConfigError(f"{self.name}: {e}") from e

    async def reload(self) -> ssl.SSLContext | None:
        """Load everything again: token file, exec plugin, kubeconfig, CA and client certificate."""
        access = await self.load()
        return self.tls(access) if access.trust != self._trust else None


def _source(kubeconfig: Path | None, context: str | None, overrides: Overrides, clock: Clock) -> _Source:
    from_files = partial(_from_files, context=context, overrides=overrides, clock=clock)
    if kubeconfig is not None:
        return from_files(f"kubeconfig {kubeconfig}", [kubeconfig], remedy="check --kubeconfig")
    named = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        shown = os.pathsep.join(map(str, named))
        return from_files(f"kubeconfig {shown} (from KUBECONFIG)", named, remedy="check or unset KUBECONFIG")
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        if overrides.cluster or overrides.user:
            raise ConfigError("inside a cluster there is no kubeconfig to take --cluster and --user from: give one")
        return _Source("the pod's service account", partial(_load_in_cluster, overrides), overrides, clock)
    default = Path("~/.kube/config")
    remedy = "give --kubeconfig, set KUBECONFIG, or run inside a cluster"
    return from_files(f"kubeconfig {default}", [default], remedy=remedy)


def _from_files(
    name: str, files: list[Path], *, context: str | None, overrides: Overrides, clock: Clock, remedy: str
) -> _Source:
    files = [f.expanduser() for f in files]
    if not any(f.is_file() for f in files):
        raise ConfigError(f"{name} does not exist: {remedy}")

    async def load() -> Access:
        chosen = choose(read_kubeconfig(files), context, cluster=overrides.cluster, user=overrides.user)
        return await access_of(chosen, overrides.server)

    return _Source(name, load, overrides, clock)


async def access_of(chosen: SelectedEntries, server: str = "") -> Access:
    """Return the access that the entries describe, at `server` where one is given.  TLS is read for https only."""
    cluster, user = chosen.cluster, chosen.user
    server = (server or cluster.text("server")).rstrip("/")
    over_tls = urlsplit(server).scheme == "https"
    if needs_library(user):
        identity = await identity_by_library(user)
    else:
        identity = _identity(user, over_tls=over_tls)
    return Access(
        server=server,
        identity=identity,
        ca=cluster.pem("certificate-authority") if over_tls else None,
        verify=not cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or None,
        namespace=chosen.namespace,
        acts_as=tuple(_acts_as(user)),
    )


def _acts_as(user: KubeconfigEntry) -> Iterator[tuple[str, str]]:
    """Yield the headers for the fields `as`, `as-uid`, `as-groups` and `as-user-extra` of a user.

    Requests without them would have the rights of the user itself, which are larger in general.
    """
    found = [(_USER, user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    found += [(_GROUP, group) for group in user.texts("as-groups")]
    extra = user.fields.get("as-user-extra") or {}
    if not isinstance(extra, Mapping):
        raise ConfigError(f"{user.what}: as-user-extra must have a list of texts for each key")
    of_extra = KubeconfigEntry(f"{user.what}: as-user-extra", extra)
    for key in extra:
        found += [(f"Impersonate-Extra-{quote(str(key), safe='')}", value) for value in of_extra.texts(key)]
    found = [(header, value) for header, value in found if value]
    if found and found[0][0] != _USER:
        raise ConfigError(f"{user.what}: as-uid, as-groups and as-user-extra need a user: add as")
    for header, value in found:
        if not value.isprintable():
            raise ConfigError(f"{user.what}: the value for {header} has characters that no header may have")
        yield header, value


def _identity(user: KubeconfigEntry, *, over_tls: bool) -> Identity:
    """Return the identity of a user with a token, a token file, or a name and a password, and a client certificate."""
    authorization, file = None, None
    if token := user.text("token"):
        authorization = f"Bearer {token}"
    elif (file := user.path("tokenFile")) is not None:
        authorization = read_token(file)
    elif user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Identity(
        authorization=authorization,
        token_file=file,
        certificate=user.pem("client-certificate") if over_tls else None,
        key=user.pem("client-key") if over_tls else None,
    )


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder of the kubelet with token, CA and namespace of a pod's service account."""


async def _load_in_cluster(overrides: Overrides) -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not port:
        raise ConfigError("KUBERNETES_SERVICE_PORT is not set; give --kubeconfig outside of a cluster")
    token_file = SERVICE_ACCOUNT / "token"
    account = KubeconfigEntry("the service account", {"ca": "ca.crt"}, SERVICE_ACCOUNT)
    return Access(
        server=overrides.server or f"https://{f'[{host}]' if ':' in host else host}:{port}",
        identity=Identity(authorization=read_token(token_file), token_file=token_file),
        ca=account.pem("ca"),
        namespace=_own_namespace(),
    )


def _own_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return ""
