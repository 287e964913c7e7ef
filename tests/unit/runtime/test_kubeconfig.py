"""Which cluster is meant, and as whom, when a person says more than the kubeconfig."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kqueue import errors
from kqueue.runtime.client import client_of
from kqueue.runtime.kubeconfig import ClusterAccess, Overrides, find_cluster
from tests.unit.runtime.fake_server import FakeServer

TEXT = """
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: c, cluster: {server: "http://c.example"}}
- {name: d, cluster: {server: "http://d.example"}}
users:
- {name: u, user: {token: of-u}}
- {name: v, user: {token: of-v}}
contexts:
- {name: one, context: {cluster: c, user: u, namespace: team-a}}
- {name: two, context: {cluster: d, user: v}}
"""


async def found(tmp_path: Path, context: str | None = None, **overrides: str) -> ClusterAccess:
    """The cluster that the kubeconfig and the overrides name."""
    path = tmp_path / "config"
    path.write_text(TEXT)
    return await find_cluster(path, context, Overrides(**overrides))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("context", "overrides", "want"),
    [
        pytest.param(None, {}, ("http://c.example", "Bearer of-u", "team-a"), id="as-the-context-says"),
        pytest.param("two", {}, ("http://d.example", "Bearer of-v", "default"), id="another-context"),
        pytest.param(None, {"cluster": "d"}, ("http://d.example", "Bearer of-u", "team-a"), id="another-cluster"),
        pytest.param(None, {"user": "v"}, ("http://c.example", "Bearer of-v", "team-a"), id="another-user"),
        pytest.param("two", {"cluster": "c", "user": "u"}, ("http://c.example", "Bearer of-u", "default"), id="both"),
        pytest.param(None, {"server": "http://e"}, ("http://e", "Bearer of-u", "team-a"), id="another-server"),
        pytest.param(None, {"token": "mine"}, ("http://c.example", "Bearer mine", "team-a"), id="another-token"),
    ],
)
async def test_what_is_given_wins_and_the_rest_stays(
    context: str | None, overrides: dict[str, str], want: tuple[str, str, str], tmp_path: Path
) -> None:
    """Server, token and namespace, also after the credentials were read again."""
    cluster = await found(tmp_path, context, **overrides)
    await cluster.credentials.reload()
    assert (cluster.server, await cluster.credentials.header(), cluster.namespace) == want


@pytest.mark.parametrize(
    ("context", "overrides", "match"),
    [
        pytest.param(None, {"cluster": "x"}, "x", id="no-such-cluster"),
        pytest.param(None, {"user": "x"}, "x", id="no-such-user"),
        pytest.param("x", {"cluster": "c", "user": "u"}, "no context 'x'", id="no-such-context"),
        pytest.param(None, {"server": "x"}, "https://", id="server-is-no-url"),
    ],
)
async def test_a_name_that_is_not_in_the_file_is_told(
    context: str | None, overrides: dict[str, str], match: str, tmp_path: Path
) -> None:
    """The error names the file and the name."""
    with pytest.raises(errors.ConfigError, match=match) as caught:
        await found(tmp_path, context, **overrides)
    assert str(tmp_path / "config") in str(caught.value)


async def test_inside_a_cluster_there_are_no_entries_to_choose_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that could have no effect is refused."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    with pytest.raises(errors.ConfigError, match="--user"):
        await find_cluster(None, None, Overrides(user="u"))


async def test_every_request_says_whom_to_act_as(server: FakeServer, tmp_path: Path) -> None:
    """One header for the user, and one for each group."""
    path = tmp_path / "config"
    path.write_text(TEXT)
    overrides = Overrides(server=server.url, act_as="jane", act_as_groups=("a", "b"))

    async with client_of(await find_cluster(path, None, overrides)) as client:
        await client.version()

    headers = server.headers[-1]
    assert (headers.getall("Impersonate-User"), headers.getall("Impersonate-Group")) == (["jane"], ["a", "b"])


AS_BOB = {"as": "bob", "as-uid": "7", "as-groups": ["g", "h"], "as-user-extra": {"team/name": ["x"]}}


@pytest.mark.parametrize(
    ("overrides", "want"),
    [
        pytest.param(
            {},
            {"User": ["bob"], "Uid": ["7"], "Group": ["g", "h"], "Extra-team%2Fname": ["x"]},
            id="as-the-kubeconfig-says",
        ),
        pytest.param({"act_as": "jane"}, {"User": ["jane"]}, id="another-user-replaces-all"),
        pytest.param(
            {"act_as_groups": ("k",)},
            {"User": ["bob"], "Uid": ["7"], "Group": ["k"], "Extra-team%2Fname": ["x"]},
            id="other-groups-replace-groups",
        ),
    ],
)
async def test_a_kubeconfig_may_name_whom_to_act_as(
    overrides: dict[str, Any], want: dict[str, list[str]], server: FakeServer, tmp_path: Path
) -> None:
    """Without it requests would have the larger rights of the user itself."""
    path = tmp_path / "config"
    path.write_text(TEXT.replace("{token: of-u}", json.dumps({"token": "of-u", **AS_BOB})))

    async with client_of(await find_cluster(path, None, Overrides(server=server.url, **overrides))) as client:
        await client.version()

    sent = server.headers[-1]
    names = {name for name in sent if name.lower().startswith("impersonate-")}
    assert {name.removeprefix("Impersonate-"): sent.getall(name) for name in names} == want
