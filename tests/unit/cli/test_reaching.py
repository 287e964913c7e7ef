"""The flags that say which cluster: where they may stand, and what they become."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from kqueue.cli.reaching import ReachFlags, flags_behind_name, reaches_cluster
from kqueue.errors import ConfigError

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: one, context: {cluster: c, user: u, namespace: of-context}}]
"""


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param("list pods", "list pods", id="nothing-to-move"),
        pytest.param("-n team list pods", "list -n team pods", id="one-flag-and-its-value"),
        pytest.param("-nteam list", "list -nteam", id="short-flag-with-its-value"),
        pytest.param("--namespace=team list", "list --namespace=team", id="long-flag-with-its-value"),
        pytest.param("--as a --as-group b -s c list x", "list --as a --as-group b -s c x", id="several"),
        pytest.param("--debug -n a list", "--debug list -n a", id="others-stay"),
        pytest.param("-n", "-n", id="a-flag-without-value-and-name"),
        pytest.param("-n team", "-n team", id="no-name"),
        pytest.param("", "", id="nothing"),
        pytest.param("-- -n", "-- -n", id="behind-two-dashes-there-are-no-flags"),
        pytest.param("list -n team", "list -n team", id="flags-behind-the-name"),
    ],
)
def test_flags_in_front_of_a_name_go_behind_it(arguments: str, want: str) -> None:
    """kubectl takes them in both places."""
    assert flags_behind_name(arguments.split()) == want.split()


def test_a_command_gets_what_the_flags_say() -> None:
    """Its own parameters stay, and `reach` holds the rest."""
    got: list[object] = []
    app = typer.Typer()

    @app.command()
    @reaches_cluster
    def show(name: str, *, loud: bool = False, reach: ReachFlags) -> None:
        got.extend([name, loud, reach])

    flags = "--kubeconfig k --context c --cluster cl --user u -s http://s --token t --as a --as-group g --as-group h"
    typer.main.get_command(app).main(
        args=["x", "--loud", "-n", "team", *flags.split(), "--request-timeout", "3s"], standalone_mode=False
    )
    assert got == [
        "x",
        True,
        ReachFlags(
            namespace="team",
            kubeconfig=Path("k"),
            context="c",
            cluster="cl",
            user="u",
            server="http://s",
            token="t",
            act_as="a",
            act_as_group=("g", "h"),
            request_timeout="3s",
        ),
    ]


@pytest.mark.parametrize(
    ("reach", "namespace", "seconds"),
    [
        pytest.param(ReachFlags(), "of-context", 30.0, id="nothing-said"),
        pytest.param(ReachFlags(namespace="team"), "team", 30.0, id="a-namespace"),
        pytest.param(ReachFlags(request_timeout="0"), "of-context", 30.0, id="zero-is-no-limit-of-ones-own"),
        pytest.param(ReachFlags(request_timeout="7"), "of-context", 7.0, id="a-bare-number-is-seconds"),
        pytest.param(ReachFlags(request_timeout="1m"), "of-context", 60.0, id="a-duration"),
    ],
)
async def test_a_session_works_where_the_flags_say(
    reach: ReachFlags, namespace: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace of the flag wins over that of the context."""
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    async with reach.session() as session:
        assert session.namespace == namespace
        assert session.client.settings.call_timeout == seconds


@pytest.mark.parametrize("text", [pytest.param("soon", id="no-duration"), pytest.param("-1s", id="negative")])
async def test_a_wrong_limit_is_named(text: str) -> None:
    """With its flag."""
    with pytest.raises(ConfigError, match=f"--request-timeout {text}"):
        async with ReachFlags(request_timeout=text).session():
            pass
