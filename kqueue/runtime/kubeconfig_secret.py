"""Reads the kubeconfig of another cluster, which came from a Secret or a mounted file.

Such a text chooses neither what this process reads nor what it runs: a kubeconfig with the path of a file would send
that file's content to the server that the same kubeconfig names, and a plugin is a program.  So all credentials must be
in the text itself, and servers must prove who they are.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from kqueue.clock import Clock
from kqueue.errors import ConfigError
from kqueue.runtime.access import Access
from kqueue.runtime.kubeconfig import ClusterAccess, access_of, cluster_of
from kqueue.runtime.kubeconfig_file import KubeconfigEntry, SelectedEntries, choose, parse_kubeconfig

MOST_BYTES = 256 * 1024
"""A kubeconfig with three certificates has 10 KiB."""
_FILES = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
    "tokenFile": "token",
}
"""Fields that name files, and those that have the content instead."""
_PROGRAMS = ("exec", "auth-provider")


class InsecureKubeconfigError(ConfigError):
    """A kubeconfig asks for something that one from outside may not.  The text names the field and the remedy."""


async def cluster_in(content: bytes, name: str, *, clock: Clock) -> ClusterAccess:
    """Return the cluster of the current context of a kubeconfig; `name` is its name in messages.

    Raises:
        InsecureKubeconfigError: it names files or programs, or does not let the server prove who it is.
        ConfigError: it is too large, no kubeconfig, or incomplete.
    """
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{name} has more than {MOST_BYTES} bytes; keep one cluster, one user and one context in it")
    chosen = choose(parse_kubeconfig(content, name), None)
    refuse_insecure(chosen, name)

    async def load() -> Access:
        return await access_of(chosen)

    return await cluster_of(name, load, clock=clock)


def refuse_insecure(chosen: SelectedEntries, name: str) -> None:
    """Refuse entries of a text from outside.

    Raises:
        InsecureKubeconfigError: they ask for more than such a text may.
        ConfigError: no request could be sent with them.
    """
    for field in ("server", "proxy-url"):
        if not _is_address(chosen.cluster.text(field)):
            raise ConfigError(f"{name}: {chosen.cluster.what}: {field} is no address, such as https://HOST:6443")
    token = chosen.user.text("token")
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(
            f"{name}: {chosen.user.what}: token has characters that no header can have, such as line ends"
        )
    for problem in (*_of_entry(chosen.cluster), *_of_entry(chosen.user), *_of_server(chosen)):
        raise InsecureKubeconfigError(f"{name}: {problem}")


def _of_entry(entry: KubeconfigEntry) -> list[str]:
    files = [
        f"{entry.what}: {field} names a file of this process; put the content into {instead}"
        for field, instead in _FILES.items()
        if entry.fields.get(field)
    ]
    programs = [
        f"{entry.what}: {field} is a program that would run here; use a token or a client certificate"
        for field in _PROGRAMS
        if entry.fields.get(field)
    ]
    return [*files, *programs]


def _of_server(chosen: SelectedEntries) -> list[str]:
    cluster = chosen.cluster
    if cluster.flag("insecure-skip-tls-verify"):
        return [f"{cluster.what}: insecure-skip-tls-verify lets any server pose as the cluster; give its CA"]
    url = urlsplit(cluster.text("server"))
    if url.scheme == "http" and not _is_loopback(url.hostname or ""):
        return [
            f"{cluster.what}: server {cluster.text('server')} would get the credentials in clear text; use https://"
        ]
    return []


def _is_address(text: str) -> bool:
    """Whether a web address has a host and a port that can be read; the connection refuses a missing address."""
    try:
        return urlsplit(text).port != 0
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    """Whether an address is of this machine, so that nothing is sent over a network."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
