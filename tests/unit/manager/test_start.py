"""What `kqueue controller` and `kqueue webhook` import until they are ready, and what comes with it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.sandbox.cluster import Sandbox, SandboxOptions

PROBE = """
import http.client, json, os, sys, threading, time
from kqueue.__main__ import main

def report():
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.02)
        try:
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
            connection.request("GET", "/readyz")
            ready = connection.getresponse().status == 200
        except OSError:
            continue
        if ready:
            print(json.dumps(sorted(sys.modules)), flush=True)
            os._exit(0)
    os._exit(1)

port = sys.argv.pop()
sys.argv += ["--health-address", "127.0.0.1:" + port, "--metrics-address", "0", "--log-level", "error"]
threading.Thread(target=report, daemon=True).start()
main()
"""

THREADS = """
import os, sys
from kqueue.__main__ import main

sys.argv = ["kqueue", "version"]
try:
    main()
finally:
    import numpy
    print(len(os.listdir("/proc/self/task")), file=sys.stderr)
"""


def free_port() -> str:
    """A port on which no process listens now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        pytest.param(["controller", "--no-leader-elect"], "kqueue.manager.operator", id="the-controller"),
        pytest.param(
            ["webhook", "--host", "127.0.0.1", "--port", "0", "--url", "https://127.0.0.1:{port}"],
            "kqueue.manager.admission",
            id="the-webhooks",
        ),
    ],
)
async def test_a_start_imports_only_what_the_process_uses(command: list[str], needed: str, tmp_path: Path) -> None:
    """Nothing that draws for terminals, no models of the CRDs, no second HTTP client, nothing of other commands.

    What explains why a workload waits is only imported where the visibility API is served.
    """
    unused = (
        "rich",
        "pygments",
        "urllib3",
        "kqueue.api.model",
        "kqueue.cli.explain",
        "kqueue.cli.ctl",
        "kqueue.core.why",
    )
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await sandbox.start()
    try:
        sandbox.write_kubeconfig(tmp_path / "config")
        arguments = [sys.executable, "-c", PROBE, *command, "--kubeconfig", str(tmp_path / "config"), free_port()]
        done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, timeout=90)
    finally:
        await sandbox.stop()
    assert done.returncode == 0, done.stderr
    imported = set(json.loads(done.stdout))
    assert needed in imported
    assert imported.isdisjoint(unused), sorted(imported & set(unused))


CLIENT = """
import sys
from kqueue.cli.app import run

code = run(sys.argv[1:])
print(code, *sorted(sys.modules))
"""


@pytest.mark.parametrize("command", [["explain", "workload", "w"], ["stop", "workload", "w"], ["list", "workloads"]])
def test_a_client_imports_nothing_that_draws_and_no_planner(command: list[str], tmp_path: Path) -> None:
    """Until it has asked the API server, which takes most of its time then."""
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "one", "context": {"cluster": "c", "user": "u"}}
    parts = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "one"}
    (tmp_path / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))
    arguments = [sys.executable, "-c", CLIENT, *command, "--kubeconfig", str(tmp_path / "config")]

    done = subprocess.run(arguments, capture_output=True, text=True, timeout=90, check=True)

    code, *imported = done.stdout.split()
    assert (code, "no answer from http://127.0.0.1:1" in done.stderr) == ("1", True), done.stderr
    assert {"rich", "numpy", "kqueue.core.cycle", "kqueue.sandbox", "kqueue.api.model"}.isdisjoint(imported)


def test_webhooks_import_no_planner() -> None:
    """A process that only reviews objects starts without numpy, which takes a third of its time."""
    code = "import sys, kqueue.manager.process, kqueue.manager.admission; print(*sorted(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True)

    assert {"numpy", "kqueue.core.topology", "kqueue.model"}.isdisjoint(done.stdout.split())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux tells them")
def test_numpy_starts_no_threads_in_our_processes() -> None:
    """Those of OpenBLAS spin for a while, one on each core beyond the first; nothing of ours would use them."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    arguments = [sys.executable, "-c", THREADS]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=90, env=environment)
    assert (done.returncode, done.stderr) == (0, "1\n")


def test_a_controller_counts_processes_before_it_imports_much() -> None:
    """A predecessor that is gone by then is followed sooner: see `kqueue.runtime.process_mark`."""
    script = (
        "import sys; from kqueue.cli.app import run; from kqueue.runtime import process_mark as marks;"
        "marks.remember_processes = lambda: print('structlog' in sys.modules, 'kqueue.manager.operator' in sys.modules);"
        "sys.exit(run(['controller', '--parts', 'none']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "False False\n"), done.stderr
