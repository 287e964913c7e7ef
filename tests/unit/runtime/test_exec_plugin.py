"""Programs that print credentials: what they get, what they may print, and how long they may run."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kqueue.clock import FakeClock, SystemClock
from kqueue.errors import ConfigError
from kqueue.runtime.exec_plugin import MOST_OUTPUT, SECONDS, ExecPlugin

V1 = "client.authentication.k8s.io/v1"


def program(folder: Path, text: str) -> str:
    """A shell script, which stands for any program."""
    file = folder / "plugin"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def credential(**status: Any) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


def printing(folder: Path, text: str) -> str:
    """A program that prints a text."""
    (folder / "output").write_text(text)
    return program(folder, f"cat {folder}/output")


async def test_a_token_with_its_end(tmp_path: Path) -> None:
    command = printing(tmp_path, credential(token="t", expirationTimestamp="2026-01-01T01:00:00Z"))
    found = await ExecPlugin(name="p", command=command).identity(None, SystemClock())
    assert found.authorization == "Bearer t"
    assert found.expires == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert (found.certificate, found.key) == (None, None)


async def test_a_certificate_with_its_key(tmp_path: Path) -> None:
    command = printing(tmp_path, credential(clientCertificateData="cert", clientKeyData="key"))
    found = await ExecPlugin(name="p", command=command).identity(None, SystemClock())
    assert found.authorization is None
    assert found.certificate is not None
    assert found.key is not None
    assert (found.certificate.content, found.key.content) == (b"cert", b"key")


async def test_a_program_gets_its_arguments_and_few_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret of this process, no shell for the arguments, and no input."""
    monkeypatch.setenv("KQUEUE_SECRET", "s")
    seen = tmp_path / "seen"
    script = (
        f'printf "%s\\n" "$@" > {seen}.arguments; env > {seen}.variables; cat > {seen}.input; cat {tmp_path}/output'
    )
    (tmp_path / "output").write_text(credential(token="t"))
    plugin = ExecPlugin(
        name="p", command=program(tmp_path, script), arguments=("$HOME", "a; b"), variables={"REGION": "west"}
    )
    await plugin.identity({"server": "https://w"}, SystemClock())

    assert (tmp_path / "seen.arguments").read_text() == "$HOME\na; b\n"
    assert (tmp_path / "seen.input").read_text() == ""
    variables = dict(
        line.split("=", 1) for line in (tmp_path / "seen.variables").read_text().splitlines() if "=" in line
    )
    assert "KQUEUE_SECRET" not in variables
    assert variables["REGION"] == "west"
    assert variables["PATH"] == os.environ["PATH"]
    assert json.loads(variables["KUBERNETES_EXEC_INFO"]) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://w"}},
    }


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        pytest.param("no JSON", "no ExecCredential", id="no JSON"),
        pytest.param("[]", "no ExecCredential", id="no object"),
        pytest.param("\xff\xfe", "no ExecCredential", id="no text"),
        pytest.param(json.dumps({"apiVersion": V1, "kind": "Secret"}), "did not answer in", id="another kind"),
        pytest.param(
            json.dumps({"apiVersion": f"{V1}beta1", "kind": "ExecCredential", "status": {"token": "t"}}),
            "did not answer in",
            id="another version",
        ),
        pytest.param(json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "neither a token", id="no status"),
        pytest.param(credential(token=""), "neither a token", id="an empty token"),
        pytest.param(credential(clientCertificateData="c"), "neither a token", id="a certificate without its key"),
        pytest.param(credential(token="t", clientKeyData="k"), "neither a token", id="a key without its certificate"),
        pytest.param(credential(token="t\r\nHost: x"), "no header can have", id="a token that would end the header"),
        pytest.param(credential(token=7), "no ExecCredential", id="a token of another type"),
        pytest.param("x" * (MOST_OUTPUT + 1), "printed more than", id="too much"),
    ],
)  # fmt: skip
async def test_what_is_printed_wrongly_is_refused(tmp_path: Path, printed: str, said: str) -> None:
    """The text itself is not shown: it may hold a token."""
    command = printing(tmp_path, printed)
    with pytest.raises(ConfigError, match=said) as caught:
        await ExecPlugin(name="p", command=command).identity(None, SystemClock())
    assert "Host: x" not in str(caught.value)


async def test_a_program_that_fails_is_told_without_its_words(tmp_path: Path) -> None:
    """They may hold a secret, and conditions have more readers than the log."""
    command = program(tmp_path, "echo secret-word >&2; exit 3")
    with pytest.raises(ConfigError, match="ended with code 3") as caught:
        await ExecPlugin(name="p", command=command).identity(None, SystemClock())
    assert "secret-word" not in str(caught.value)


async def test_a_missing_program_is_told_with_the_hint(tmp_path: Path) -> None:
    plugin = ExecPlugin(name="p", command=str(tmp_path / "none"), hint="install it so")
    with pytest.raises(ConfigError, match=r"none cannot be run: .*; install it so"):
        await plugin.identity(None, SystemClock())


async def test_an_unknown_version_runs_nothing(tmp_path: Path) -> None:
    command = program(tmp_path, f"touch {tmp_path}/ran")
    plugin = ExecPlugin(name="p", command=command, api_version="client.authentication.k8s.io/v1alpha1")
    with pytest.raises(ConfigError, match="v1alpha1 is unknown"):
        await plugin.identity(None, SystemClock())
    assert not (tmp_path / "ran").exists()


async def _ends(pid: int) -> None:
    """Wait until a process has ended."""
    async with asyncio.timeout(10):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("cut", [False, True], ids=["too slow", "cancelled"])
async def test_a_program_that_hangs_is_ended_with_all_it_started(tmp_path: Path, cut: bool) -> None:
    clock = FakeClock()
    command = program(
        tmp_path, f"sleep 600 & echo $! > {tmp_path}/child.part; mv {tmp_path}/child.part {tmp_path}/child; wait"
    )
    asked = asyncio.ensure_future(ExecPlugin(name="p", command=command).identity(None, clock))
    async with asyncio.timeout(10):
        while not (tmp_path / "child").exists():
            await asyncio.sleep(0.01)
    child = int((tmp_path / "child").read_text())
    if cut:
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    else:
        await clock.advance(SECONDS + 1)
        with pytest.raises(ConfigError, match="did not end within 20 s"):
            await asked
    await _ends(child)


async def test_a_child_that_holds_the_output_open_does_not_hang_us(tmp_path: Path) -> None:
    """The program itself has ended; the time counts all the same."""
    clock = FakeClock()
    (tmp_path / "output").write_text(credential(token="t"))
    command = program(
        tmp_path, f"cat {tmp_path}/output; sleep 600 & echo $! > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/child"
    )
    asked = asyncio.ensure_future(ExecPlugin(name="p", command=command).identity(None, clock))
    async with asyncio.timeout(10):
        while not (tmp_path / "child").exists():
            await asyncio.sleep(0.01)
    await clock.advance(SECONDS + 1)
    with pytest.raises(ConfigError, match="did not end"):
        await asked
    await _ends(int((tmp_path / "child").read_text()))
