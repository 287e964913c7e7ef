"""Worker clusters by ClusterProfile: which description counts, which program runs, and what it gets."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from kqueue.clock import FakeClock, SystemClock
from kqueue.config import Configuration
from kqueue.controllers.cluster_profiles import CLUSTER_PROFILES, ClusterProfiles, Provider, providers_of
from kqueue.controllers.worker_cluster import WorkerSourceError
from kqueue.errors import ForbiddenError, UnreachableError
from kqueue.runtime.exec_plugin import ExecPlugin
from kqueue.runtime.kubeconfig_secret import MOST_BYTES, InsecureKubeconfigError
from tests.unit.controllers.builders import JSON
from tests.unit.controllers.fakes import FakeClient

SERVER = {"server": "https://worker:6443"}
BAD = "BadClusterProfile"


def profile(*providers: Any, old: bool = False, **status: Any) -> JSON:
    """A ClusterProfile with these providers; `old`: in the field of older cluster managers."""
    field = "credentialProviders" if old else "accessProviders"
    return {"metadata": {"name": "p", "namespace": "own"}, "status": {field: list(providers), **status}}


def offer(name: str, **cluster: Any) -> JSON:
    return {"name": name, "cluster": {**SERVER, **cluster}}


def profiles(obj: JSON | None = None, *, clock: Any = None, **commands: str) -> ClusterProfiles:
    """Profiles with these programs by the names of their providers."""
    client = FakeClient()
    if obj is not None:
        client.put(CLUSTER_PROFILES, obj)
    known = {
        name: Provider(ExecPlugin(name=name, command=command), gets_cluster=True) for name, command in commands.items()
    }
    return ClusterProfiles(client, "own", known, clock=clock or SystemClock())


def counting(folder: Path, *tokens: str) -> str:
    """A program that prints one token after the other, and stores its input."""
    for number, token in enumerate(tokens):
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}
        (folder / f"answer{number}").write_text(json.dumps(answer))
    file = folder / "plugin"
    file.write_text(
        f"#!/bin/sh\nn=$(cat {folder}/runs 2>/dev/null || echo 0)\necho $((n + 1)) > {folder}/runs\n"
        f'printf %s "$KUBERNETES_EXEC_INFO" > {folder}/told\ncat {folder}/answer$n\n'
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(profile(offer("a")), "a", id="its provider"),
        pytest.param(profile(offer("x"), offer("b"), offer("a")), "b", id="the first with a program"),
        pytest.param(profile(offer("a"), old=True), "a", id="the older field"),
        pytest.param(profile(offer("b"), credentialProviders=[offer("a")]), "b", id="the newer field first"),
        pytest.param(profile("a", {"name": "a"}, {"cluster": 7}, offer("b")), "b", id="what is no description"),
    ],
)
async def test_the_first_provider_with_a_program_counts(obj: JSON, want: str) -> None:
    found = json.loads(await profiles(obj, a="p", b="p").read("p"))
    assert found == {"provider": want, "cluster": SERVER}


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        pytest.param(None, "own/p not found", id="no object, or no such kind"),
        pytest.param(profile(), r"it has: none; configured: a\b", id="no provider"),
        pytest.param(
            profile(offer("x"), offer("y")), r"it has: x, y; configured: a\b", id="no program for its providers"
        ),
        pytest.param({"metadata": {"name": "p", "namespace": "own"}}, "it has: none", id="no status yet"),
        pytest.param(profile(offer("a", blob="x" * MOST_BYTES)), "more than", id="too large"),
    ],
)
async def test_a_profile_that_is_of_no_use(obj: JSON | None, said: str) -> None:
    with pytest.raises(WorkerSourceError, match=said) as caught:
        await profiles(obj, a="p").read("p")
    assert caught.value.reason == BAD


async def test_a_profile_that_we_may_not_read_is_told_and_a_silent_server_is_not() -> None:
    client = FakeClient()
    found = ClusterProfiles(client, "own", {}, clock=FakeClock())
    client.fail(ForbiddenError("no", status=403), verb="get", times=1)
    with pytest.raises(WorkerSourceError, match="may not be read"):
        await found.read("p")
    client.fail(UnreachableError("cut"), verb="get", times=1)
    with pytest.raises(UnreachableError):
        await found.read("p")


async def test_a_program_is_told_what_the_profile_says_and_no_more(tmp_path: Path) -> None:
    """Arguments and variables in extensions of the profile are no arguments and no variables here."""
    extensions = [
        {"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "w"}},
        {"name": "multicluster.x-k8s.io/clusterprofiles/auth/exec/additional-args", "extension": ["--evil"]},
    ]
    obj = profile(offer("a", extensions=extensions, **{"tls-server-name": "w", "command": "/bin/evil"}))
    found = profiles(obj, a=counting(tmp_path, "t"))
    access = await found.access("p", await found.read("p"))

    assert json.loads((tmp_path / "told").read_text())["spec"] == {
        "interactive": False,
        "cluster": {**SERVER, "tls-server-name": "w", "config": {"clusterName": "w"}},
    }
    assert (access.server, access.tls_server_name) == ("https://worker:6443", "w")
    assert await access.credentials.header() == "Bearer t"


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        pytest.param({"insecure-skip-tls-verify": True}, "lets any server pose", id="any server"),
        pytest.param({"certificate-authority": "/etc/passwd"}, "names a file", id="a file of ours"),
        pytest.param({"server": "http://worker"}, "clear text", id="clear text"),
    ],
)
async def test_an_insecure_profile_runs_no_program(tmp_path: Path, cluster: JSON, said: str) -> None:
    found = profiles(profile(offer("a", **cluster)), a=counting(tmp_path, "t"))
    with pytest.raises(InsecureKubeconfigError, match=said):
        await found.access("p", await found.read("p"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param({"server": ""}, id="no address"),
        pytest.param({"server": 7}, id="an address that is a number"),
        pytest.param({"certificate-authority-data": "bm8="}, id="no certificate"),
    ],
)
async def test_an_incomplete_profile_is_told(tmp_path: Path, cluster: JSON) -> None:
    found = profiles(profile(offer("a", **cluster)), a=counting(tmp_path, "t"))
    with pytest.raises(WorkerSourceError) as caught:
        await found.access("p", await found.read("p"))
    assert caught.value.reason == BAD


async def test_a_program_without_credentials_is_told(tmp_path: Path) -> None:
    found = profiles(profile(offer("a")), a=str(tmp_path / "none"))
    with pytest.raises(WorkerSourceError, match="cannot be run") as caught:
        await found.access("p", await found.read("p"))
    assert caught.value.reason == BAD


async def test_refused_credentials_are_renewed_but_not_at_every_refusal(tmp_path: Path) -> None:
    """A worker that refuses all credentials does not make the controller start programs all the time."""
    clock = FakeClock()
    found = profiles(profile(offer("a")), clock=clock, a=counting(tmp_path, "one", "two"))
    access = await found.access("p", await found.read("p"))
    await access.credentials.reload()
    assert await access.credentials.header() == "Bearer one"
    await clock.advance(6)
    await access.credentials.reload()
    assert await access.credentials.header() == "Bearer two"
    assert (tmp_path / "runs").read_text().strip() == "2"


async def test_a_program_that_needs_a_person_is_not_run(tmp_path: Path) -> None:
    section = {"name": "a", "execConfig": {**EXEC, "command": counting(tmp_path, "t"), "interactiveMode": "Always"}}
    config = Configuration.model_validate({"multiKueue": {"clusterProfile": {"accessProviders": [section]}}})
    client = FakeClient()
    client.put(CLUSTER_PROFILES, profile(offer("a")))
    found = ClusterProfiles(client, "own", providers_of(config.multi_kueue), clock=SystemClock())
    with pytest.raises(WorkerSourceError, match="needs a terminal"):
        await found.access("p", await found.read("p"))
    assert not (tmp_path / "runs").exists()


EXEC: JSON = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "/plugins/a"}


@pytest.mark.parametrize("field", ["accessProviders", "credentialsProviders"])
def test_programs_come_from_the_configuration(field: str) -> None:
    exec_config = {
        **EXEC,
        "args": ["--x"],
        "env": [{"name": "REGION", "value": "west"}],
        "provideClusterInfo": True,
        "installHint": "so",
    }
    section = {field: [{"name": "a", "execConfig": exec_config}]}
    found = providers_of(Configuration.model_validate({"multiKueue": {"clusterProfile": section}}).multi_kueue)
    plugin = ExecPlugin(
        name="provider a", command="/plugins/a", arguments=("--x",), variables={"REGION": "west"}, hint="so"
    )
    assert found == {"a": Provider(plugin, gets_cluster=True)}


def test_without_the_section_there_is_no_program() -> None:
    assert providers_of(Configuration().multi_kueue) == {}
