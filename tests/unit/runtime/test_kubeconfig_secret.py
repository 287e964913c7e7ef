"""Kubeconfigs that came from outside: what they may say, and what they may not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kqueue.clock import FakeClock
from kqueue.errors import ConfigError
from kqueue.runtime.kubeconfig_secret import MOST_BYTES, InsecureKubeconfigError, cluster_in


def config(*, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any) -> bytes:
    """A kubeconfig with one cluster, one user and one context."""
    found = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://c.example", **(cluster or {})}}],
        "users": [{"name": "u", "user": user if user is not None else {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        **more,
    }
    return yaml.safe_dump(found).encode()


async def test_a_kubeconfig_with_everything_in_it_is_used() -> None:
    access = await cluster_in(config(), "Secret ns/west", clock=FakeClock())
    assert access.server == "https://c.example"
    assert await access.credentials.header() == "Bearer secret"
    assert access.tls is not None


@pytest.mark.parametrize("server", ["http://127.0.0.1:6443", "http://[::1]:6443"])
async def test_plain_text_stays_on_this_machine(server: str) -> None:
    access = await cluster_in(config(cluster={"server": server}), "it", clock=FakeClock())
    assert (access.server, access.tls) == (server, None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(config(user={"tokenFile": "/etc/shadow"}), "tokenFile", id="a file as token"),
        pytest.param(config(user={"client-certificate": "/x"}), "client-certificate names", id="a file as certificate"),
        pytest.param(config(user={"token": "t", "client-key": "/x"}), "client-key names", id="a file as key"),
        pytest.param(config(cluster={"certificate-authority": "/x"}), "certificate-authority-data", id="a file as CA"),
        pytest.param(config(user={"exec": {"command": "sh"}}), "exec is a program", id="a plugin"),
        pytest.param(config(user={"auth-provider": {"name": "gcp"}}), "auth-provider is", id="a provider"),
        pytest.param(config(cluster={"insecure-skip-tls-verify": True}), "insecure-skip", id="any server"),
        pytest.param(config(cluster={"server": "http://c.example"}), "clear text", id="plain text"),
        pytest.param(config(cluster={"server": "http://localhost"}), "clear text", id="a name that DNS decides"),
    ],
)
async def test_an_insecure_kubeconfig_is_refused(content: bytes, said: str) -> None:
    """The text names the Secret and the field, and never a credential."""
    with pytest.raises(InsecureKubeconfigError, match=said) as caught:
        await cluster_in(content, "Secret ns/west", clock=FakeClock())
    assert "Secret ns/west" in str(caught.value)


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\n" + "\n".join(
    f"c{n}: &c{n} [{', '.join([f'*c{n - 1}' if n else '*b'] * 9)}]" for n in range(9)
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"x" * (MOST_BYTES + 1), "more than", id="too large"),
        pytest.param(b"[1]", "no kubeconfig", id="a list"),
        pytest.param(b"{", "cannot be read", id="no YAML"),
        pytest.param(b"\xff\xfe\x00", "cannot be read", id="no text"),
        pytest.param(BOMB.encode(), "values", id="a text that grows"),
        pytest.param(b"", "no current-context", id="empty"),
        pytest.param(config(contexts=[]), "no context 'one'", id="no context"),
        pytest.param(config(cluster={"server": "ftp://x"}), "https://", id="no web address"),
        pytest.param(config(cluster={"server": ""}), "https://", id="no address"),
        pytest.param(config(cluster={"server": "https://[::1"}), "server is no address", id="half an address"),
        pytest.param(config(cluster={"server": "https://c:99999"}), "server is no address", id="no port"),
        pytest.param(config(cluster={"proxy-url": "http://c:x"}), "proxy-url is no address", id="no proxy"),
        pytest.param(config(user={"token": "a\r\nHost: b"}), "no header can have", id="a token of two lines"),
        pytest.param(config(cluster={"certificate-authority-data": "eA=="}), "CA", id="no certificate"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_read_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        await cluster_in(content, "Secret ns/west", clock=FakeClock())
    assert not isinstance(caught.value, InsecureKubeconfigError)
    assert "secret" not in str(caught.value)
