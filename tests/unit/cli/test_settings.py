"""`kqueue config` and `kqueue timings`: what is printed is what a controller runs with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from kqueue.cli import app
from kqueue.config import Timings, load

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
OLD_HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"


@pytest.fixture(autouse=True)
def no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings as they are, whoever runs the tests."""
    for field in asdict(Timings()):
        monkeypatch.delenv(f"KQUEUE_TIMING_{field.upper()}", raising=False)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEAD, id="nothing-set"),
        pytest.param(HEAD + "waitForPodsReady: {timeout: 5m, blockAdmission: true}\n", id="a-duration"),
        pytest.param(HEAD + "leaderElection: {leaderElect: false, leaseDuration: 20s}\n", id="election"),
        pytest.param(HEAD + "namespace: batch\nfeatureGates: {PriorityBoost: true}\n", id="a-gate"),
        pytest.param(
            HEAD + "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Exists}]}\n", id="a-selector"
        ),
        pytest.param(HEAD + "tls: {minVersion: VersionTLS13}\n", id="tls"),
        pytest.param(OLD_HEAD, id="an-older-file-that-waits-for-no-pods"),
    ],
)
def test_a_printed_configuration_read_again_is_the_same(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every default is filled in and nothing is lost: the output is a file for the next controller."""
    given, printed = tmp_path / "given.yaml", tmp_path / "printed.yaml"
    given.write_text(text)
    assert app.run(["config", "show", str(given)]) == 0
    printed.write_text(capsys.readouterr().out)
    assert app.run(["config", "show", str(printed)]) == 0

    assert capsys.readouterr().out == printed.read_text()
    settings = load(given).model_dump(exclude={"feature_gates"})
    assert load(printed).model_dump(exclude={"feature_gates"}) == settings
    assert all(load(printed).enabled(gate) == on for gate, on in load(given).feature_gates.items())


def test_a_configuration_is_printed_for_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON says the same as YAML, and plain text would say less, so it is YAML."""
    pages = {}
    for output in ("yaml", "json", "text"):
        assert app.run(["config", "show", "-o", output]) == 0
        pages[output] = capsys.readouterr().out

    assert json.loads(pages["json"]) == yaml.safe_load(pages["yaml"])
    assert pages["text"] == pages["yaml"]
    assert yaml.safe_load(pages["yaml"])["kind"] == "Configuration"


def test_a_check_names_every_mistake_and_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All at once, with path and nearest known name; the exit code tells programs, and `-o json` what to mend."""
    file = tmp_path / "file.yaml"
    file.write_text(HEAD + "waitForPodReady: {}\nintegrations: {frameworks: [batch/jobs]}\n")

    assert app.run(["config", "check", str(file)]) == 2
    said = capsys.readouterr().err
    assert "waitForPodReady" in said
    assert "waitForPodsReady" in said
    assert "integrations.frameworks[0]" in said
    assert "batch/job" in said

    assert app.run(["config", "check", str(file), "-o", "json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert not answer["valid"]
    assert {p["path"] for p in answer["problems"]} == {"waitForPodReady", "integrations.frameworks[0]"}


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        pytest.param("joint: {policies: [{name: spraeding}]}", "joint.policies", "no policy spraeding", id="policy"),
        pytest.param("joint: {policies: [{name: packing, parameters: {even: 1}}]}", "joint.policies",
                     "no such parameter", id="parameter of a policy"),
        pytest.param("plugins: {enabled: [{name: missing}]}", "plugins", "install the package", id="plugin"),
    ],
)  # fmt: skip
def test_a_check_finds_what_keeps_a_controller_from_starting(
    text: str, path: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what depends on the installed packages."""
    file = tmp_path / "file.yaml"
    file.write_text(f"{HEAD}featureGates: {{JointPlacement: true}}\n{text}\n")

    assert app.run(["config", "check", str(file)]) == 2
    assert words in capsys.readouterr().err
    assert app.run(["config", "check", str(file), "-o", "json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["path"] == path


def test_a_gate_with_an_effect_gives_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"{HEAD}featureGates: {{JointPlacement: true, SparkApplicationIntegration: true}}\n")

    assert app.run(["config", "check", str(file)]) == 0
    assert "effect" not in capsys.readouterr().err


def test_a_check_of_a_good_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What has no effect is a warning: it keeps no controller from starting."""
    file = tmp_path / "file.yaml"
    file.write_text(HEAD + "pprofBindAddress: ':6060'\n")

    assert app.run(["config", "check", str(file)]) == 0
    printed = capsys.readouterr()
    assert str(file) in printed.out
    assert "pprofBindAddress" in printed.err
    assert app.run(["config", "check", str(file), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"]
    assert [w.split(":")[0] for w in answer["warnings"]] == ["pprofBindAddress"]


def test_gates_can_be_given_beside_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the controller's own flag; a gate that does not exist is named, and the exit code is 2."""
    assert app.run(["config", "show", "--feature-gates", "PriorityBoost=true"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["featureGates"]["PriorityBoost"] is True
    assert app.run(["config", "show", "--feature-gates", "PriorityBost=true"]) == 2
    assert "PriorityBost" in capsys.readouterr().err


def test_timings_are_printed_under_the_names_that_override_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each printed name, set in the environment, changes the printed value."""
    assert app.run(["timings", "-o", "yaml"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == {f"KQUEUE_TIMING_{field.upper()}": value for field, value in asdict(Timings()).items()}

    for variable, seconds in printed.items():
        monkeypatch.setenv(variable, str(seconds * 2))
    assert app.run(["timings", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {name: seconds * 2 for name, seconds in printed.items()}


def test_timings_are_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """One per line, the values one below the other."""
    assert app.run(["timings"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert len(lines) == len(asdict(Timings()))
    assert {len(line) - len(line.split()[1]) for line in lines} == {
        len(max((x.split()[0] for x in lines), key=len)) + 2
    }


def test_what_a_file_holds_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fields and values of somebody else's file are named, escaped."""
    file = tmp_path / "hostile.yaml"
    file.write_text('apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"a\\e[2J\\u202E": "\\e[31m"\n')
    app.run(["config", "check", str(file)])
    out, err = capsys.readouterr()

    assert "\\x1b[2J" in out + err
    assert all(line.isprintable() for line in (out + err).splitlines())
