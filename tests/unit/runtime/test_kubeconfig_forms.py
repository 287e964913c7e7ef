"""Each form of a kubeconfig and of a pod's service account: what is read, and what is imported for it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.errors import ConfigError
from kqueue.runtime import kubeconfig as module
from kqueue.runtime.access import Access, Identity, Pem
from kqueue.runtime.client import connect
from kqueue.runtime.kubeconfig import RENEWAL_PAUSE, TOKEN_SECONDS, cluster_of, find_cluster
from kqueue.runtime.kubeconfig_file import KubeconfigEntry, choose, read_kubeconfig
from kqueue.runtime.kubeconfig_library import _library
from tests.unit.runtime.test_rotated_certificates import QUICK, Own, Server, bundle, own, server

__all__ = ["server"]

SERVER = "https://c.example:6443"
CA = bundle().ca
OWN = own()
Document = dict[str, Any]


def inline(content: bytes) -> str:
    return base64.b64encode(content).decode()


def document(user: Document, **cluster: object) -> Document:
    """A kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }


def write(path: Path, content: Document) -> Path:
    """The kubeconfig as a file, with the files that it may name beside it."""
    for name, data in {"ca.crt": CA, "tls.crt": OWN.certificate, "tls.key": OWN.key, "token": b"of-file"}.items():
        (path.parent / name).write_bytes(data)
    path.write_text(json.dumps(content))
    return path


FORMS: list[Any] = [
    pytest.param({"token": "t"}, {}, "Bearer t", id="token"),
    pytest.param({"tokenFile": "token"}, {}, "Bearer of-file", id="token-file-beside-the-kubeconfig"),
    pytest.param({"token": "t", "tokenFile": "token"}, {}, "Bearer t", id="token-before-token-file"),
    pytest.param({"username": "jane", "password": "secret"}, {}, "Basic amFuZTpzZWNyZXQ=", id="name-and-password"),
    pytest.param(
        {"client-certificate-data": inline(OWN.certificate), "client-key-data": inline(OWN.key)}, {}, None,
        id="client-certificate-in-the-file",
    ),
    pytest.param({"client-certificate": "tls.crt", "client-key": "tls.key"}, {}, None, id="client-certificate-files"),
    pytest.param({"token": "t"}, {"certificate-authority-data": inline(CA)}, "Bearer t", id="authority-in-the-file"),
    pytest.param({"token": "t"}, {"certificate-authority": "ca.crt"}, "Bearer t", id="authority-file"),
    pytest.param({"token": "t"}, {"insecure-skip-tls-verify": True}, "Bearer t", id="server-is-not-checked"),
    pytest.param({"token": "t"}, {"tls-server-name": "other.example"}, "Bearer t", id="another-name-in-the-certificate"),
    pytest.param({"token": "t"}, {"proxy-url": "http://proxy.example:3128"}, "Bearer t", id="proxy"),
    pytest.param({"token": "t"}, {"server": "http://c.example/"}, "Bearer t", id="plain-http"),
    pytest.param({}, {}, None, id="nobody"),
]  # fmt: skip


@pytest.mark.parametrize(("user", "cluster", "header"), FORMS)
async def test_a_form_means_what_the_client_library_says(
    user: Document, cluster: Document, header: str | None, tmp_path: Path
) -> None:
    """Address, header, TLS and proxy are those of the library, which reads the same file by itself."""
    path = write(tmp_path / "config", document(user, **cluster))
    theirs: Any = _library().Configuration()
    loader = _library().kube_config
    await loader.load_kube_config_from_dict(loader.KubeConfigMerger(str(path)).config, client_configuration=theirs)

    access = await module.access_of(choose(read_kubeconfig([path]), None), "")

    assert access.identity.authorization == header == theirs.api_key.get("BearerToken")
    assert access.server == theirs.host
    assert access.tls_server_name == theirs.tls_server_name
    assert access.proxy == theirs.proxy
    assert access.verify == theirs.verify_ssl
    for ours, file in (
        (access.ca, theirs.ssl_ca_cert),
        (access.identity.certificate, theirs.cert_file),
        (access.identity.key, theirs.key_file),
    ):
        assert (ours.content if ours else None) == (Path(file).read_bytes() if file else None)


def by_data(certificate: Own, authority: bytes) -> tuple[Document, Document]:
    return (
        {"client-certificate-data": inline(certificate.certificate), "client-key-data": inline(certificate.key)},
        {"certificate-authority-data": inline(authority)},
    )


def by_files(certificate: Own, authority: bytes) -> tuple[Document, Document]:
    return (
        {"client-certificate": "tls.crt", "client-key": "tls.key"},
        {"certificate-authority": "ca.crt"},
    )


def unchecked(certificate: Own, authority: bytes) -> tuple[Document, Document]:
    return by_data(certificate, authority)[0], {"insecure-skip-tls-verify": True, "tls-server-name": "unknown.example"}


@pytest.mark.parametrize("form", [by_data, by_files, unchecked])
async def test_a_server_sees_the_client_certificate(
    form: Callable[[Own, bytes], tuple[Document, Document]], server: Server, tmp_path: Path
) -> None:
    """Over a connection with TLS."""
    authority = bundle()
    async with server.serving(authority, OWN):
        user, cluster = form(OWN, authority.ca)
        path = tmp_path / "config"
        write(path, document(user, **cluster, server=f"https://127.0.0.1:{server.port}"))
        (tmp_path / "ca.crt").write_bytes(authority.ca)
        server.wanted = OWN
        async with await connect(path, settings=QUICK) as client:
            assert (await client.version())["gitVersion"] == "v1.0.0"


async def test_keys_from_the_kubeconfig_are_in_no_file_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    user, cluster = by_data(OWN, CA)
    assert (await find_cluster(write(tmp_path / "config", document(user, **cluster)), None)).tls is not None
    assert list(temporary.iterdir()) == []


async def test_text_around_an_authority_is_ignored(tmp_path: Path) -> None:
    """Bundles of authorities have names of any language in front of each certificate."""
    path = write(tmp_path / "config", document({"token": "t"}, **{"certificate-authority": "ca.crt"}))
    (tmp_path / "ca.crt").write_bytes("# Tanúsítvány\n".encode() + CA)
    tls = (await find_cluster(path, None)).tls
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1


async def test_several_files_are_merged_as_kubectl_merges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file that has a name decides, paths are relative to the file, and missing files are left out."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    write(first / "config", {"current-context": "x", "users": [{"name": "u", "user": {"tokenFile": "token"}}]})
    write(second / "config", document({"token": "of-second"}) | {"current-context": "other"})
    (first / "token").write_text("of-first")
    files = [tmp_path / "missing", first / "config", second / "config"]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
    cluster = await find_cluster(None, None)
    assert (cluster.server, await cluster.credentials.header()) == (SERVER, "Bearer of-first")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        pytest.param("[]", "no kubeconfig", id="a-list"),
        pytest.param("{", "cannot be read", id="no-yaml"),
        pytest.param("clusters: 1", "clusters must be a list", id="clusters-are-a-number"),
        pytest.param("users: [{user: {}}]", "each of users needs a name", id="a-user-without-a-name"),
        pytest.param("", "no current-context", id="empty"),
        pytest.param(document({"token": ["t"]}), "user 'u': token must be a text", id="token-is-a-list"),
        pytest.param(document({"tokenFile": "no"}), "no cannot be read: No such file", id="token-file-is-missing"),
        pytest.param(document({"tokenFile": "empty"}), "is empty", id="token-file-is-empty"),
        pytest.param(
            document({}, **{"certificate-authority": "no"}), "cluster 'c': certificate-authority .*no cannot be read",
            id="authority-is-missing",
        ),
        pytest.param(
            document({}, **{"certificate-authority-data": "YQ="}), "certificate-authority-data is not base64",
            id="authority-is-not-base64",
        ),
        pytest.param(
            document({}, **{"certificate-authority-data": inline(b"no certificate")}),
            "CA or client certificate cannot be loaded", id="authority-is-no-certificate",
        ),
        pytest.param(
            document({"client-certificate-data": inline(OWN.certificate), "client-key-data": inline(own().key)}),
            "CA or client certificate cannot be loaded", id="key-of-another-certificate",
        ),
        pytest.param(
            document({}, **{"insecure-skip-tls-verify": "yes"}), "insecure-skip-tls-verify must be true or false",
            id="no-boolean",
        ),
        pytest.param(
            document({}) | {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "v"}}]},
            "no user 'v': check context 'x'", id="context-with-an-unknown-user",
        ),
        pytest.param(document({"exec": {"command": "x"}}), "user 'u': ", id="plugin-without-a-version"),
        pytest.param(document({"as-groups": ["g"]}), "user 'u': as-uid, as-groups and .* need a user", id="groups-alone"),
        pytest.param(document({"as": "a", "as-groups": "g"}), "as-groups must be a list of texts", id="groups-as-text"),
        pytest.param(document({"as": "a", "as-user-extra": ["x"]}), "as-user-extra must have a list", id="extra-list"),
        pytest.param(document({"as": "a\nb"}), "Impersonate-User has characters", id="a-line-break-in-a-header"),
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_named_and_no_secret_is_shown(
    content: str | Document, match: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "config", {})
    (tmp_path / "empty").write_text("\n")
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError, match=match) as caught:
        await find_cluster(path, None)
    assert str(caught.value).startswith(f"kubeconfig {path}")
    assert inline(OWN.certificate) not in str(caught.value)


def test_values_with_secrets_do_not_print_them() -> None:
    entry, pem = KubeconfigEntry("user 'u'", {"token": "secret"}), Pem(b"secret")
    identity = Identity(authorization="secret", key=pem)
    assert "secret" not in repr((entry, pem, identity))


async def test_the_token_of_a_file_is_read_again_each_minute(tmp_path: Path) -> None:
    """A file that cannot be read for a moment leaves the former token in use."""
    clock = FakeClock()
    path = write(tmp_path / "config", document({"tokenFile": "token"}))
    cluster = await find_cluster(path, None, clock=clock)
    (tmp_path / "token").write_text("new\n")
    assert await cluster.credentials.header() == "Bearer of-file"
    await clock.advance(TOKEN_SECONDS)
    assert await cluster.credentials.header() == "Bearer new"
    (tmp_path / "token").unlink()
    await clock.advance(TOKEN_SECONDS)
    assert await cluster.credentials.header() == "Bearer new"


async def test_a_token_is_renewed_before_it_ends() -> None:
    """While that fails the former one is used, and the source is asked rarely."""
    clock, asked = FakeClock(), list[Access | ConfigError]()

    def until(token: str, minutes: int) -> Access:
        identity = Identity(authorization=f"Bearer {token}", expires=clock.now() + timedelta(minutes=minutes))
        return Access(server="https://s", identity=identity)

    answers: list[Access | ConfigError] = [until("one", 10), ConfigError("not now"), until("two", 20)]

    async def load() -> Access:
        asked.append(found := answers[len(asked)])
        if isinstance(found, ConfigError):
            raise found
        return found

    credentials = (await cluster_of("s", load, clock=clock)).credentials
    await clock.advance(500)
    assert (await credentials.header(), len(asked)) == ("Bearer one", 1)
    await clock.advance(50)
    assert [await credentials.header() for _ in range(3)] == ["Bearer one"] * 3
    assert len(asked) == 2
    await clock.advance(RENEWAL_PAUSE)
    assert (await credentials.header(), await credentials.header(), len(asked)) == ("Bearer two", "Bearer two", 3)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's service account."""
    write(tmp_path / "config", {}).unlink()
    (tmp_path / "token").write_text("of-pod\n")
    (tmp_path / "namespace").write_text("kqueue-system")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    return tmp_path


async def test_a_pod_uses_its_service_account(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    cluster = await find_cluster(None, None, clock=clock)
    assert (cluster.server, await cluster.credentials.header()) == ("https://10.0.0.1:443", "Bearer of-pod")
    assert cluster.namespace == "kqueue-system"
    assert cluster.tls is not None
    assert len(cluster.tls.get_ca_certs()) == 1
    (pod / "token").write_text("next")
    await clock.advance(TOKEN_SECONDS)
    assert await cluster.credentials.header() == "Bearer next"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert (await find_cluster(None, None)).server == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        pytest.param("token", "token file .*token cannot be read", id="no-token"),
        pytest.param("ca.crt", r"ca.crt cannot be read", id="no-authority"),
        pytest.param("", "KUBERNETES_SERVICE_PORT", id="no-port"),
    ],
)
async def test_a_pod_without_a_part_of_its_account_says_which(
    spoil: str, match: str, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spoil:
        (pod / spoil).unlink()
    else:
        monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(ConfigError, match=match) as caught:
        await find_cluster(None, None)
    assert "the pod's service account" in str(caught.value)


PLUGIN = """
import json, sys
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": STATUS}))
"""


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({"token": "of-plugin"}, ("Bearer of-plugin", None), id="token"),
        pytest.param(
            {"clientCertificateData": OWN.certificate.decode(), "clientKeyData": OWN.key.decode()},
            (None, OWN.certificate), id="certificate",
        ),
    ],
)  # fmt: skip
async def test_a_plugin_says_who_we_are_and_the_rest_is_read_by_us(
    status: Document, want: tuple[str | None, bytes | None], tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN.replace("STATUS", repr(status)))
    version = "client.authentication.k8s.io/v1"
    run = {"apiVersion": version, "command": sys.executable, "args": [str(plugin)], "interactiveMode": "Never"}
    path = write(tmp_path / "config", document({"exec": run}, **{"certificate-authority": "ca.crt"}))

    access = await module.access_of(choose(read_kubeconfig([path]), None), "")

    certificate = access.identity.certificate
    assert (access.identity.authorization, certificate.content if certificate else None) == want
    assert (access.server, access.ca) == (SERVER, Pem(CA))


def imported(kubeconfig: Path | None, pod: Path) -> set[str]:
    """Modules of a new process that has found its cluster."""
    script = f"""
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from kqueue.runtime import kubeconfig
kubeconfig.SERVICE_ACCOUNT = Path({str(pod)!r})
asyncio.run(kubeconfig.find_cluster({f"Path({str(kubeconfig)!r})" if kubeconfig else None}, None))
print(*sys.modules, sep="\\n")
"""
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=in_pod, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_library_is_imported_for_plugins_and_providers_only(pod: Path) -> None:
    user, cluster = by_data(OWN, CA)
    simple = write(pod / "simple", document({**user, "token": "t"}, **cluster))
    oidc = {"id-token": f"h.{inline(b'{}')}.s"}
    provider = write(pod / "provider", document({"auth-provider": {"name": "oidc", "config": oidc}}))
    (pod / "token").write_text("of-pod")

    for modules in (imported(simple, pod), imported(None, pod)):
        assert not [name for name in modules if name.startswith("kubernetes_asyncio")]
    assert "yaml" not in imported(None, pod), "a controller in a pod reads no kubeconfig"
    assert "kubernetes_asyncio.config.kube_config" in imported(provider, pod)
