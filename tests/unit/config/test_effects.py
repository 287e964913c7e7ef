"""Nothing in a configuration file is silently without effect: the code asks about it, or a warning says so."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pydantic import BaseModel

from kqueue.config import parse, without_effect
from kqueue.config.gates import GATES
from kqueue.config.load import _section_in
from kqueue.config.model import Configuration
from kqueue.errors import ConfigError
from kqueue.jobs.switches import GATES as SWITCHES

ROOT = Path(__file__).resolve().parents[3]
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def sources(leave_out: str) -> str:
    """All product code but that of one folder or file."""
    files = [path for room in ("kqueue", "webhooks") for path in (ROOT / room).rglob("*.py")]
    return "\n".join(path.read_text() for path in files if leave_out not in path.as_posix())


def texts(*leave_out: str) -> set[str]:
    """All texts in product code but that of some files."""
    files = [path for room in ("kqueue", "webhooks") for path in (ROOT / room).rglob("*.py")]
    kept = [path for path in files if not path.as_posix().endswith(leave_out)]
    nodes = (node for path in kept for node in ast.walk(ast.parse(path.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_gate_is_asked_about_or_warned_of() -> None:
    """By a text that is the gate's name, or as a switch of the jobs."""
    asked = texts("kqueue/config/without_effect.py", "kqueue/config/gates.py") & GATES.keys() | set(SWITCHES.values())

    assert asked - set(without_effect._PARTLY) == without_effect._GATES


def leaves(section: type[BaseModel], path: str = "") -> Iterator[tuple[str, str]]:
    """(path, name) of every field that holds no further section."""
    for name, field in section.model_fields.items():
        below = _section_in(field.annotation)
        here = f"{path}.{name}".lstrip(".")
        if below is None:
            yield here, name
        else:
            yield from leaves(below, here)


def test_every_field_is_read_or_warned_of() -> None:
    """`resourceLock` has one value that is allowed, and declared kinds are read where they are declared."""
    read = set(re.findall(r"\.(\w+)", sources("kqueue/config/")))
    exceptions = ("leader_election.resource_lock", "integrations.declared_kinds.")
    unread = [
        path
        for path, name in leaves(Configuration)
        if name not in read
        and not any(path == without or path.startswith(f"{without}.") for without in without_effect._PATHS)
        and not path.startswith(exceptions)
    ]

    assert set(unread) == {"feature_gates", "tls.min_version", "tls.cipher_suites"}, "read by methods of their sections"


def test_no_field_that_is_read_is_warned_of() -> None:
    """The code reads no field of a section without effect; a name that stands in other sections, too, proves nothing."""
    sections = "config|configuration|settings|gangs|tas|resources"
    named = set(re.findall(rf"(?:{sections})\.(?=(\w+))", sources("kqueue/config/")))
    names = Counter(name for _, name in leaves(Configuration))
    read = [
        path
        for path, name in leaves(Configuration)
        if names[name] == 1
        and name in named
        and any(path == without or path.startswith(f"{without}.") for without in without_effect._PATHS)
    ]

    assert read == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param("namespace: ''", "c.namespace == 'ours'", id="the own namespace"),
        pytest.param(
            "health: {healthProbeBindAddress: ''}", "c.health.health_probe_bind_address == ':8081'", id="probes"
        ),
        pytest.param(
            "health: {readinessEndpointName: ''}", "c.health.readiness_endpoint_name == '/readyz'", id="a path"
        ),
        pytest.param("metrics: {bindAddress: ''}", "c.metrics.bind_address == ':8443'", id="metrics"),
        pytest.param("leaderElection: {resourceName: ''}", "'c1f6bfd2' in c.leader_election.resource_name", id="Lease"),
        pytest.param("tls: {minVersion: ''}", "c.tls.min_version == 'VersionTLS12'", id="the oldest TLS"),
        pytest.param(
            "resources: {quotaCheckStrategy: ''}", "c.resources.quota_check_strategy[0] == 'B'", id="strategy"
        ),
        pytest.param("multiKueue: {origin: ''}", "c.multi_kueue.origin == 'multikueue'", id="origin"),
        pytest.param("webhook: {host: ''}", "c.webhook.host == ''", id="an empty host means all"),
        pytest.param("pprofBindAddress: ''", "c.pprof_bind_address == ''", id="no profiling"),
    ],
)
def test_empty_text_is_the_default_where_the_compatible_file_says_so(text: str, read: str) -> None:
    c = parse(HEAD + text, source="f", own_namespace="ours")

    assert eval(read, {"c": c})


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        pytest.param("featureGates: {QuotaCheckStrategy: false}\nresources: {quotaCheckStrategy: Odd}", True, id="off"),
        pytest.param("resources: {quotaCheckStrategy: Odd}", False, id="on"),
        pytest.param("featureGates: {DisableWaitForPodsReady: true}\nwaitForPodsReady: {timeout: -5m}", True, id="ready off"),
        pytest.param("waitForPodsReady: {timeout: -5m}", False, id="ready on"),
    ],
)  # fmt: skip
def test_what_a_gate_switches_off_is_not_checked(text: str, fine: bool) -> None:
    with nullcontext() if fine else pytest.raises(ConfigError):
        parse(HEAD + text, source="f")


def test_a_group_of_gates_names_those_without_effect() -> None:
    """Gates that are named beside the group are told by themselves."""
    warnings = parse(HEAD + "featureGates: {AllAlpha: true, FailureRecoveryPolicy: false}", source="f").warnings

    assert len(warnings) == 1
    assert warnings[0].startswith("featureGates.AllAlpha: has no effect yet on ")
    assert "WorkloadRequestUseMergePatch" in warnings[0]
    assert "FailureRecoveryPolicy" not in warnings[0]
    assert "TASBalancedPlacement" not in warnings[0]


LABELS = "metrics: {customLabels: [{name: team}, {name: tier, sourceKind: Workload, trackedValues: [gold]}]}\n"


@pytest.mark.parametrize(
    ("gates", "warned"),
    [
        pytest.param("", True, id="their gate is off"),
        pytest.param("featureGates: {CustomMetricLabels: true}", False, id="their gate is on"),
    ],
)
def test_custom_labels_need_their_gate(gates: str, warned: bool) -> None:
    """Who gives some while it is off is told so."""
    found = parse(HEAD + LABELS + gates, source="f")

    assert any("customLabels" in warning and "CustomMetricLabels" in warning for warning in found.warnings) is warned


PROGRAM = "{apiVersion: client.authentication.k8s.io/v1, command: c, interactiveMode: Never}"
PROFILES = "multiKueue: {clusterProfile: {accessProviders: [{name: a, execConfig: " + PROGRAM + "}]}}\n"


@pytest.mark.parametrize(
    ("gates", "warned"),
    [
        pytest.param("", True, id="their gate is off"),
        pytest.param("featureGates: {MultiKueueClusterProfile: true}", False, id="their gate is on"),
    ],
)
def test_cluster_profiles_need_their_gate(gates: str, warned: bool) -> None:
    """A configuration that names programs while the gate is off gets a warning."""
    found = parse(HEAD + PROFILES + gates, source="f")

    assert any("clusterProfile" in warning and "set it to true" in warning for warning in found.warnings) is warned


@pytest.mark.parametrize(
    ("gates", "controllers", "want"),
    [
        pytest.param({}, None, ["provisioning-request"], id="multikueue must be named"),
        pytest.param({}, ["multikueue"], ["multikueue"], id="named"),
        pytest.param({"MultiKueue": False}, ["provisioning-request", "multikueue"], ["provisioning-request"], id="off"),
    ],
)
def test_controllers_of_checks_run_where_they_are_named(
    gates: dict[str, bool], controllers: list[str] | None, want: list[str]
) -> None:
    """A controller whose feature gate is off does not run, although it is named."""
    named = {} if controllers is None else {"controllers": [f"kueue.x-k8s.io/{name}" for name in controllers]}
    found = Configuration.model_validate({"featureGates": gates, "admissionChecks": named})
    assert [name.partition("/")[2] for name in found.check_controllers()] == want
