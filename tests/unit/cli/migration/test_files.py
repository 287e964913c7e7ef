"""`kqueue migrate check` on files: what converts, what is left behind, what needs work, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kqueue.api import names
from kqueue.cli.app import run
from kqueue.config import parse

JSON = dict[str, Any]
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
OLD = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
INNER = "managerConfig.controllerManagerConfigYaml: "


def checked(capsys: pytest.CaptureFixture[str], flag: str, file: Path) -> tuple[int, JSON]:
    """Exit code, and the report for programs."""
    code = run(["migrate", "check", flag, str(file), "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def levels(report: JSON) -> dict[str, str]:
    """Level of each field."""
    return {finding["field"]: finding["level"] for finding in report["findings"]}


def values_file(tmp_path: Path, **values: Any) -> Path:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    return file


@pytest.mark.parametrize(
    ("text", "field", "level", "words"),
    [
        pytest.param("resources: {deviceClassMappings: [{name: gpu, deviceClassNames: [a]}]}",
                     "resources", "converts", "configuration.resources", id="classes of devices"),
        pytest.param("multiKueue: {gcInterval: 2m}", "multiKueue", "converts", "configuration.multiKueue", id="MultiKueue"),
        pytest.param("multiKueue: {externalFrameworks: [{name: Kind.v1.example.com}]}", "multiKueue.externalFrameworks",
                     "work", "keep Kueue", id="own kinds on other clusters"),
        pytest.param("featureGates: {PartialAdmision: true}", "featureGates.PartialAdmision", "work",
                     "correct featureGates.PartialAdmision", id="a gate that does not exist"),
        pytest.param("fairSharing: {preemptionStrategies: [Never]}", "fairSharing.preemptionStrategies", "work",
                     "correct fairSharing", id="a value that is none"),
        pytest.param("controller: {cacheSyncTimeout: 60000000000}", "controller.cacheSyncTimeout", "note", "leave", id="no effect"),
        pytest.param("webhook: {port: 9000}", "webhook", "note", "leave it out", id="what the chart fills in"),
        pytest.param("internalCertManagement: {enable: false}", "internalCertManagement.enable", "converts",
                     "certManager.enable=true", id="cert-manager"),
        pytest.param("manageJobsWithoutQueueName: true", "manageJobsWithoutQueueName", "converts",
                     "configuration.manageJobsWithoutQueueName", id="the same field"),
    ],
)  # fmt: skip
def test_each_setting_of_a_configuration_is_told(
    text: str, field: str, level: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its field, its level and a remedy; only what needs work fails the check."""
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + text)
    code, report = checked(capsys, "--config", file)
    found = next(finding for finding in report["findings"] if finding["field"] == field)

    assert (found["level"], words in found["remedy"], bool(found["why"])) == (level, True, True), found
    assert (code, report["ready"]) == ((1, False) if level == "work" else (0, True))


JOBS_ONLY = {"integrations": {"frameworks": ["batch/job"]}}
"""What a Configuration without frameworks means; the default of kqueue's chart has more kinds."""


def test_a_v1beta1_configuration_keeps_its_meaning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """v1beta1 does not evict what does not get ready unless asked to, and v1beta2 does."""
    file = tmp_path / "config.yaml"
    file.write_text(
        f"{OLD}waitForPodsReady: {{enable: false}}\nqueueVisibility: {{}}\nmetrics: {{bindAddress: ':1'}}\n"
    )
    code, report = checked(capsys, "--config", file)
    values = report["values"]["configuration"]
    new = parse(
        json.dumps({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **values}), source="x"
    )

    assert (code, values) == (0, {"featureGates": {"DisableWaitForPodsReady": True}, **JOBS_ONLY})
    assert new.wait_for_pods_ready is None
    assert levels(report)["apiVersion"] == "converts"
    assert levels(report)["queueVisibility"] == "note"


def test_the_controller_of_multikueue_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kueue runs it without a name in the configuration, and kqueue only with it."""
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}multiKueue: {{origin: here}}\n")
    code, report = checked(capsys, "--config", file)
    values = report["values"]["configuration"]
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **values}

    assert code == 0
    assert names.MULTIKUEUE_CONTROLLER in parse(json.dumps(document), source="x").check_controllers()


def test_values_of_the_chart_become_values_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each at its place; what has no counterpart is told."""
    file = values_file(
        tmp_path,
        fullnameOverride="batch",
        enableCertManager=True,
        enableKueueViz=False,
        kubernetesClusterDomain="cluster.local",
        controllerManager={
            "replicas": 3,
            "featureGates": [{"name": "PriorityBoost", "enabled": True}],
            "livenessProbe": {"periodSeconds": 3},
            "manager": {"image": {"repository": "r", "tag": "t", "pullPolicy": "Always"}, "resources": {"limits": {"cpu": 2}}},
        },
        managerConfig={"controllerManagerConfigYaml": f"{HEAD}manageJobsWithoutQueueName: true\n"},
        metricsService={"annotations": {"a": "b"}, "type": "NodePort"},
    )  # fmt: skip
    code, report = checked(capsys, "--values", file)

    assert code == 0
    assert report["values"] == {
        "configuration": {"manageJobsWithoutQueueName": True, **JOBS_ONLY},
        "fullnameOverride": "batch",
        "certManager": {"enable": True},
        "controller": {"replicas": 3, "livenessProbe": {"periodSeconds": 3}},
        "webhook": {"livenessProbe": {"periodSeconds": 3}},
        "featureGates": [{"name": "PriorityBoost", "enabled": True}],
        "image": {"pullPolicy": "Always"},
        "serviceAnnotations": {"metrics": {"a": "b"}},
    }
    assert {field for field, level in levels(report).items() if level == "note"} == {
        *("kubernetesClusterDomain", "controllerManager.manager.image.repository", "metricsService.type"),
        *("controllerManager.manager.image.tag", "controllerManager.manager.resources"),
    }


def test_values_without_a_configuration_are_not_judged_by_a_guess(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The defaults of Kueue's chart switch kinds on that kqueue does not manage."""
    code, report = checked(capsys, "--values", values_file(tmp_path, enableCertManager=True))
    (found,) = [finding for finding in report["findings"] if finding["level"] == "work"]

    assert (code, found["field"]) == (1, "managerConfig.controllerManagerConfigYaml")
    assert "--all" in found["remedy"]


def test_a_gate_of_the_list_wins_over_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kueue takes the list as a flag; kqueue's chart refuses a gate that is given twice."""
    file = values_file(
        tmp_path,
        controllerManager={"featureGates": [{"name": "PriorityBoost", "enabled": True}]},
        managerConfig={"controllerManagerConfigYaml": f"{HEAD}featureGates: {{PriorityBoost: false, PartialAdmission: true}}"},
    )  # fmt: skip
    _code, report = checked(capsys, "--values", file)

    assert report["values"]["featureGates"] == [{"name": "PriorityBoost", "enabled": True}]
    assert report["values"]["configuration"]["featureGates"] == {"PartialAdmission": True}


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        pytest.param({"controllerManager": {"replicass": 2}}, "controllerManager.replicass",
                     "did you mean controllerManager.replicas?", id="a misspelt value"),
        pytest.param({"controllerManager": {"featureGates": [{"name": "PriorityBost", "enabled": True}]}},
                     "controllerManager.featureGates[PriorityBost]", "did you mean PriorityBoost?", id="a misspelt gate"),
        pytest.param({"managerConfig": {"controllerManagerConfigYaml": f"{HEAD}integration: {{}}"}},
                     f"{INNER}integration", "integrations", id="a misspelt section"),
    ],
)  # fmt: skip
def test_values_that_are_wrong_need_work(
    values: JSON, field: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its path in the file."""
    code, report = checked(capsys, "--values", values_file(tmp_path, **values))
    (found, *_) = [finding for finding in report["findings"] if finding["level"] == "work"]

    assert (code, found["field"], words in found["why"]) == (1, field, True), found


WRONG = [
    ("--values", None, "no such file; write the file by: helm get values"),
    ("--values", "", "is empty; write the file by"),
    ("--values", "a: [", "not valid YAML"),
    ("--values", "- a", "must be a mapping that has values of Kueue's chart"),
    ("--values", "{}", "has no value of Kueue's chart, such as controllerManager; write"),
    ("--values", "image: {}", "has no value of Kueue's chart, such as controllerManager; write"),
    ("--values", HEAD, "is a Configuration, not a values file; give a Configuration by --config"),
    ("--values", "controllerManager: 3", "controllerManager: must be a mapping, got 3"),
    ("--values", "controllerManager: {featureGates: {A: true}}", "controllerManager.featureGates: must be a list"),
    ("--values", "controllerManager: {featureGates: [{name: A, enabled: 'on'}]}", "featureGates: must be a list"),
    ("--values", "managerConfig: {controllerManagerConfigYaml: {a: b}}", "must be text with a Configuration"),
    ("--values", "managerConfig: {controllerManagerConfigYaml: 'a: ['}", "controllerManagerConfigYaml: not valid YAML"),
    ("--values", "managerConfig: {controllerManagerConfigYaml: 'kind: Job'}", "kind: must be Configuration"),
    ("--config", None, "no such file; give --config"),
    ("--config", "a: [", "not valid YAML"),
    ("--config", "a: b", "kind: must be Configuration"),
    ("--config", "- a", "must be a mapping that begins with apiVersion and kind"),
    ("--config", "apiVersion: config.kueue.x-k8s.io/v1alpha1\nkind: Configuration", "apiVersion: must be"),
]


@pytest.mark.parametrize(("flag", "text", "words"), WRONG)
def test_wrong_files_are_refused_in_words(
    flag: str, text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, nothing on stdout, and what to do."""
    file = tmp_path / "file.yaml"
    if text is not None:
        file.write_text(text)
    code = run(["migrate", "check", flag, str(file)])
    said = capsys.readouterr()

    assert (code, said.out, words in said.err) == (2, "", True), said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--values", "a", "--config", "b"], "give either --values or --config"),
        (["--no-live"], "--no-live leaves nothing to look at"),
        (["--values"], "requires an argument"),
        (["-o", "xml"], "xml"),
    ],
)
def test_wrong_calls_are_refused_in_words(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    code = run(["migrate", "check", *arguments])

    assert (code, words in capsys.readouterr().err) == (2, True)


def test_the_text_names_field_reason_and_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that a file says drives the terminal."""
    file = values_file(tmp_path, controllerManager={"a\x1b[31m": 1})
    code = run(["migrate", "check", "--values", str(file)])
    out = capsys.readouterr().out

    assert code == 1
    assert "\x1b" not in out
    assert out.splitlines()[0].startswith("work      controllerManager.a")
    assert out.splitlines()[2].strip().startswith("remedy: correct the name")
    assert out.splitlines()[-1] == "2 findings: 0 convert, 0 are left behind, 2 need work"
