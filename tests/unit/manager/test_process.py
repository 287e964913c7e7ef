"""One process from its first line to its last, beside an API server in the same loop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.clock import FakeClock, SystemClock
from kqueue.config import Configuration, Timings, parse
from kqueue.controllers.record import ObjectReference
from kqueue.errors import ConfigError
from kqueue.manager.operator import Operator
from kqueue.manager.process import Flags, _Served, run_webhooks, running
from kqueue.observe import Metrics
from kqueue.runtime.certificates import make_bundle, write_bundle
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.transport import RequestRecord
from kqueue.sandbox import Sandbox, SandboxOptions

VALIDATING = ResourceType(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)


def make_configuration(text: str = "") -> Configuration:
    """The defaults without leader election, and `text`."""
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    return parse(head + (text or "leaderElection: {leaderElect: false}\n"), source="test")


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """How to reach an API server with our kinds and no nodes."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await sandbox.start()
    try:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"
    finally:
        await sandbox.stop()


@pytest.fixture
def address() -> str:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def make_flags(kubeconfig: Path, address: str, **more: Any) -> Flags:
    """Probes and metrics on one address."""
    return Flags(kubeconfig=kubeconfig, **{"health_address": address, "metrics_address": address, **more})


async def fetch(url: str, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and body."""
    async with aiohttp.ClientSession() as session, session.get(url, ssl=tls or True) as response:
        return response.status, await response.text()


async def listens(address: str) -> bool:
    """Whether anybody answers there."""
    try:
        _, writer = await asyncio.open_connection(*address.split(":"))
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_a_process_serves_probes_and_metrics_while_it_runs(kubeconfig: Path, address: str) -> None:
    """Ready once its watches have synced; its own requests are counted; afterwards the address is free again."""
    requests: list[RequestRecord] = []
    flags = make_flags(kubeconfig, address, parts=frozenset({"core"}))
    async with running(
        make_configuration(), flags, timings=Timings(metrics_cache=0), on_request=requests.append
    ) as process:
        await asyncio.wait_for(process.operator.ready.wait(), 20)
        ready = await fetch(f"http://{address}/readyz")
        alive = await fetch(f"http://{address}/healthz")
        _, page = await fetch(f"http://{address}/metrics")

    assert (ready[0], alive[0]) == (200, 200)
    assert re.search(r'^kqueue_api_requests_total{[^}]*resource="nodes"', page, re.MULTILINE), page[:2000]
    for lane in ("status", "words"):
        assert re.search(rf'^kqueue_api_requests_waiting{{lane="{lane}"[^}}]*}} 0', page, re.MULTILINE), page[:2000]
    assert "nodes" in {record.resource for record in requests}
    assert process.task.done()
    assert not await listens(address)


async def test_events_that_wait_at_the_end_are_written(kubeconfig: Path, address: str) -> None:
    """Stopping a process loses no event that it had recorded."""
    seen = list[RequestRecord]()
    flags = make_flags(kubeconfig, address)
    async with running(make_configuration(), flags, on_request=seen.append) as process:
        about = ObjectReference(api_version="v1", kind="Node", namespace="", name="node-0", uid="u")
        process.operator.manager.events.record(about, reason="Tested", message="recorded last")
    assert [record.status for record in seen if record.resource == "events"] == [201]


async def test_a_process_without_an_api_server_lives_and_is_not_ready(tmp_path: Path, address: str) -> None:
    """It keeps trying; the probe names every watch that has not come up."""
    cluster = "{name: c, cluster: {server: 'http://127.0.0.1:1'}}"
    context = "{name: x, context: {cluster: c, user: ''}}"
    (tmp_path / "kubeconfig").write_text(f"current-context: x\nclusters: [{cluster}]\ncontexts: [{context}]\n")
    async with running(make_configuration(), make_flags(tmp_path / "kubeconfig", address)) as process:
        alive = await fetch(f"http://{address}/healthz")
        status, page = await fetch(f"http://{address}/readyz")
        ended = process.task.done()

    assert (alive[0], status, ended) == (200, 503, False)
    assert all(f"watch-{resource}" in page for resource in ("nodes", "pods", "workloads.kueue.x-k8s.io", "jobs.batch"))


async def test_probes_and_metrics_can_be_off(kubeconfig: Path, address: str) -> None:
    """`0` opens nothing; the configuration's addresses are not used then."""
    configuration = make_configuration(
        f"leaderElection: {{leaderElect: false}}\nhealth: {{healthProbeBindAddress: '{address}'}}\n"
    )
    async with running(configuration, make_flags(kubeconfig, "0")):
        off = await listens(address)
    async with running(configuration, Flags(kubeconfig=kubeconfig, metrics_address="0")):
        on = await listens(address)

    assert (off, on) == (False, True)


async def test_webhooks_in_the_process_are_registered_where_they_listen(kubeconfig: Path, address: str) -> None:
    """The port that was free is the one the API server is told, with the authority that signed the certificate."""
    flags = make_flags(
        kubeconfig,
        address,
        parts=frozenset({"webhooks"}),
        webhook_host="127.0.0.1",
        webhook_port=0,
        webhook_url="https://127.0.0.1:{port}",
    )
    async with running(make_configuration(), flags) as process:
        (registered,) = await process.operator.client.list_json(VALIDATING)
        target = registered["webhooks"][0]["clientConfig"]
        base = re.match(r"https://(127\.0\.0\.1:[0-9]+)/", target["url"])
        assert base is not None
        served = await listens(base[1])

    assert served
    assert not await listens(base[1])
    assert target["caBundle"]


async def test_a_taken_address_is_named_and_nothing_is_left_open(kubeconfig: Path, address: str) -> None:
    """The setting, the address, and the port is free for the next try."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"metrics\.bindAddress.*{busy}"):
            async with running(make_configuration(), make_flags(kubeconfig, address, metrics_address=busy)):
                pass

    assert not await listens(address)


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    """Before anything is opened."""
    with pytest.raises(ConfigError, match="missing"):
        async with running(make_configuration(), Flags(kubeconfig=tmp_path / "missing")):
            pass


async def test_what_ended_the_controller_is_raised_as_it_is(kubeconfig: Path, address: str) -> None:
    """A setting that only the running controller refuses comes out as one sentence, not as a bundle of tasks."""
    sound = make_configuration("leaderElection: {leaderElect: true}\n")
    odd = sound.leader_election.model_copy(update={"lease_duration": timedelta(seconds=15.5)})  # no file can say this
    configuration = sound.model_copy(update={"leader_election": odd})
    with pytest.raises(ConfigError, match="leaseDuration: must be whole seconds"):
        async with running(configuration, make_flags(kubeconfig, address)) as process:
            await asyncio.wait({process.task}, timeout=20)


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param([ZeroDivisionError()], id="a-bug"),
        pytest.param([ConfigError("x"), ZeroDivisionError()], id="a-bug-beside-an-error"),
    ],
)
async def test_a_bug_in_the_controller_keeps_its_traceback(
    errors: list[Exception], kubeconfig: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the group is hidden when one of its errors is not ours."""

    async def broken(_: Operator) -> None:
        raise ExceptionGroup("tasks", errors)

    monkeypatch.setattr(Operator, "run", broken)
    with pytest.raises(ExceptionGroup) as caught:
        async with running(make_configuration(), make_flags(kubeconfig, address)) as process:
            await asyncio.wait({process.task}, timeout=20)

    assert list(caught.value.exceptions) == errors


async def test_webhooks_answer_until_they_are_told_to_stop(kubeconfig: Path, tmp_path: Path, address: str) -> None:
    """With the certificates of a folder, ready when the API server knows of them; SIGTERM closes the port."""
    host, port = address.split(":")
    folder = tmp_path / "certificates"
    bundle = make_bundle(["127.0.0.1"], now=SystemClock().now())
    write_bundle(bundle, folder)
    work = asyncio.create_task(
        run_webhooks(make_configuration(), webhook_flags(kubeconfig, folder, host=host, port=int(port))),
        name="webhooks",
    )
    async with asyncio.timeout(20):
        while not work.done() and not await listens(address):
            await asyncio.sleep(0.005)
        status, _ = await fetch(f"https://{address}/nowhere", ssl.create_default_context(cadata=bundle.ca.decode()))
        os.kill(os.getpid(), signal.SIGTERM)
        await work

    assert status == 404
    assert not await listens(address)


async def test_webhooks_without_certificates_do_not_start(kubeconfig: Path, tmp_path: Path) -> None:
    """The folder is named."""
    folder = tmp_path / "empty"
    with pytest.raises(ConfigError, match=re.escape(str(folder))):
        await run_webhooks(make_configuration(), webhook_flags(kubeconfig, folder, host="127.0.0.1", port=0))


def webhook_flags(kubeconfig: Path, folder: Path, *, host: str, port: int) -> Flags:
    return Flags(
        kubeconfig=kubeconfig,
        health_address="0",
        metrics_address="0",
        webhook_host=host,
        webhook_port=port,
        webhook_certificates=folder,
    )


@pytest.mark.parametrize(
    ("left", "said"),
    [
        pytest.param(timedelta(days=30), None, id="plenty"),
        pytest.param(timedelta(minutes=4), "it expires at 2026-01-01T00:04:00Z and was not renewed", id="hardly any"),
        pytest.param(timedelta(seconds=-1), "it expired at 2025-12-31T23:59:59Z", id="none"),
    ],
)
def test_readiness_knows_how_long_the_certificate_lasts(left: timedelta, said: str | None) -> None:
    """And the metric follows each new one."""
    clock = FakeClock()
    served = _Served(clock, Metrics(clock=clock), least=300)
    assert served.check() == "there is none yet"

    served.is_now(clock.now() + left)

    told = served.check()
    assert (told is None) if said is None else (said in (told or ""))
