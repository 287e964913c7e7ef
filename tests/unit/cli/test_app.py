"""The command line: help, outputs, exit codes."""

from __future__ import annotations

import importlib.machinery
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from kqueue import __version__
from kqueue.cli import app
from kqueue.errors import ConfigError, KqueueError


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments, and with -h, the help is shown."""
    assert app.run(["--help"]) == 0
    page = capsys.readouterr().out
    assert all(f"\n  {command} " in page for command in ("version", "config", "timings"))


def test_help_imports_nothing_heavy() -> None:
    """`kqueue --help` stays fast because what commands need is imported when they run."""
    heavy = ("numpy", "aiohttp", "pydantic", "kubernetes_asyncio", "msgspec", "prometheus_client", "structlog", "yaml")
    script = f"""
import sys
from kqueue.cli.app import run
code = run(["--help"])
print(sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == "[]"


def test_the_module_is_the_command() -> None:
    """`python -m kqueue` works, and its errors are one line on stderr with exit code 2."""
    command = [sys.executable, "-m", "kqueue", "config", "check", "missing.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "kqueue: missing.yaml: no such file; give --config the path of a Configuration file\n"


def test_version_is_told_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """Text by default, JSON and YAML on request."""
    assert app.run(["version"]) == 0
    assert f"version   v{__version__}" in capsys.readouterr().out
    assert app.run(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == f"v{__version__}"
    assert app.run(["version", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["version"] == f"v{__version__}"


def test_a_configuration_is_checked_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The effective file comes out on stdout, fields without effect on stderr."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
        "clientConnection: {qps: 7}\nqueueVisibility: {}\n"
    )
    assert app.run(["config", "show", str(path)]) == 0
    out, err = capsys.readouterr()
    printed = yaml.safe_load(out)
    assert printed["clientConnection"]["qps"] == 7.0
    assert printed["featureGates"] == {"DisableWaitForPodsReady": True}
    assert err == "kqueue: warning: queueVisibility: accepted, but has no effect\n"


def test_all_mistakes_of_a_file_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per mistake, exit code 2, no traceback."""
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwebhook: {prt: 1, port: 0}\n")
    assert app.run(["config", "check", str(path)]) == 2
    err = capsys.readouterr().err
    assert "webhook.prt: unknown field; did you mean port?" in err
    assert "webhook.port: must be at least 1 (found 0)" in err
    assert "Traceback" not in err


def test_timings_show_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Overrides are visible, and a misspelt one is exit code 2."""
    monkeypatch.setenv("KQUEUE_TIMING_UNGATER_WINDOW", "250ms")
    assert app.run(["timings", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["KQUEUE_TIMING_UNGATER_WINDOW"] == 0.25
    monkeypatch.setenv("KQUEUE_TIMING_NONSENSE", "1")
    assert app.run(["timings"]) == 2
    assert "KQUEUE_TIMING_NONSENSE: unknown timing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["nope"], "No such command 'nope'", id="unknown-command"),
        pytest.param(["version", "--nope"], "No such option: --nope", id="unknown-option"),
        pytest.param(["version", "-o", "xml"], "'xml' is not one of", id="bad-choice"),
    ],
)
def test_a_wrong_call_is_exit_code_2(arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Mistakes in the call name what was wrong."""
    assert app.run(arguments) == 2
    assert want in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(ConfigError("port 1 is taken"), 2, id="setting"),
        pytest.param(KqueueError("no answer"), 1, id="failure"),
        pytest.param(typer.Exit(3), 3, id="chosen-code"),
    ],
)
def test_errors_become_exit_codes(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What kqueue raises on purpose is one sentence and a code."""
    _with_command(monkeypatch, error)
    assert app.run(["fail"]) == code
    err = capsys.readouterr().err
    assert err == (f"kqueue: {error}\n" if isinstance(error, KqueueError) else "")


def test_debug_lets_the_traceback_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --debug the error is raised as it is."""
    _with_command(monkeypatch, ConfigError("x"))
    with pytest.raises(ConfigError):
        app.run(["--debug", "fail"])


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw keeps its traceback."""
    _with_command(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        app.run(["fail"])


def _with_command(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Add a command `fail` that raises `error`."""
    build = app.build

    def extended(options: app._Options | None = None) -> typer.Typer:
        application = build(options)

        @application.command()
        def fail() -> None:
            raise error

        return application

    monkeypatch.setattr(app, "build", extended)


@pytest.mark.parametrize("command", [["demo"], ["sandbox", "--port", "0"]])
def test_a_simulated_cluster_without_its_library_is_one_sentence(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image comes without the extra."""

    def found(name: str, package: str | None = None) -> object:
        return None if name == "jsonpatch" else importlib.machinery.ModuleSpec(name, None)

    monkeypatch.setattr("importlib.util.find_spec", found)

    assert app.run(command) == 2
    assert capsys.readouterr().err == (
        "kqueue: the simulated cluster needs the library jsonpatch: pip install 'kqueue[sandbox]'\n"
    )
