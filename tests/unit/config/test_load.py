"""The configuration file: what is read, and what each mistake is answered with."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.config import ConfigFileError, Configuration, load, parse
from kqueue.config.dispatchers import DISPATCHER_BEST_DOMAIN, DISPATCHERS
from kqueue.config.gangs import GangSettings
from kqueue.config.gates import GATES
from kqueue.errors import ConfigError
from kqueue.jobs.gang.dialect import DEFAULT_TIMEOUTS
from kqueue.jobs.registry import features_for, timeouts_for
from kqueue.kinds import FRAMEWORKS, GANG_DIALECTS


def read(version: str = "v1beta2", flag: str = "", **fields: Any) -> Configuration:
    """A file with these fields, parsed."""
    document = {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration", **fields}
    return parse(yaml.safe_dump(document), source="config.yaml", feature_gates=flag)


def problems(version: str = "v1beta2", flag: str = "", **fields: Any) -> list[str]:
    """What is wrong with such a file."""
    with pytest.raises(ConfigFileError) as caught:
        read(version, flag, **fields)
    return [str(problem) for problem in caught.value.problems]


def test_without_a_file_all_defaults_hold(tmp_path: Path) -> None:
    """No file, no flags: the documented defaults, in the default namespace."""
    configuration = load(None, namespace_file=tmp_path / "missing")
    assert configuration.namespace == "kueue-system"
    assert configuration.leader_election.resource_namespace == "kueue-system"
    assert (configuration.client_connection.qps, configuration.client_connection.burst) == (300.0, 500)
    assert (configuration.webhook.port, configuration.health.health_probe_bind_address) == (9443, ":8081")
    assert configuration.integrations.frameworks == ("batch/job",)
    assert configuration.wait_for_pods_ready is not None
    assert configuration.wait_for_pods_ready.recovery_timeout == timedelta(minutes=30)
    assert not configuration.tas.merge_duplicate_hostnames
    assert configuration.warnings == ()


def test_the_pods_namespace_is_the_default(tmp_path: Path) -> None:
    """In a pod the service account's namespace is used, blanks removed; the file's own beats it."""
    namespace_file, config = tmp_path / "namespace", tmp_path / "config.yaml"
    namespace_file.write_text(" batch\n")
    config.write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnamespace: other\n")
    assert load(None, namespace_file=namespace_file).leader_election.resource_namespace == "batch"
    assert load(config, namespace_file=namespace_file).namespace == "other"


def test_values_are_read() -> None:
    """A file's values arrive with their types."""
    configuration = read(
        health={"healthProbeBindAddress": "127.0.0.1:8080"},
        clientConnection={"qps": 50, "burst": 7},
        leaderElection={"leaderElect": False, "leaseDuration": "1m", "resourceNamespace": "leases"},
        controller={"groupKindConcurrency": {"Job.batch": 9}},
        integrations={"labelKeysToCopy": ["team"]},
        internalCertManagement={"enable": False, "webhookServiceName": ""},
        resources=None,
        tas={"mergeDuplicateHostnames": True},
    )
    assert configuration.client_connection.qps == 50.0
    assert configuration.tas.merge_duplicate_hostnames
    assert configuration.leader_election.lease_duration == timedelta(minutes=1)
    assert configuration.leader_election.resource_namespace == "leases"
    assert configuration.controller.group_kind_concurrency == {"Job.batch": 9}
    assert configuration.warnings == ()


@pytest.mark.parametrize(
    ("fields", "path", "want"),
    [
        pytest.param({"metrix": {}}, "metrix", "did you mean metrics?", id="misspelt-section"),
        pytest.param({"qqq": 1}, "qqq", "known here are", id="unknown-section-lists-the-known"),
        pytest.param({"metrics": {"bindAddres": "0"}}, "metrics.bindAddres", "did you mean bindAddress", id="nested"),
        pytest.param({"metrics": {"bind_address": "0"}}, "metrics.bind_address", "unknown field", id="snake-case"),
        pytest.param({"metrics": {"bindAddress": 0}}, "metrics.bindAddress", "put it in quotes", id="unquoted-zero"),
        pytest.param({"metrics": {"bindAddress": "80"}}, "metrics.bindAddress", "host:port", id="no-colon"),
        pytest.param({"metrics": {"bindAddress": ":99999"}}, "metrics.bindAddress", "65535", id="port-too-high"),
        pytest.param({"metrics": {"bindAddress": "::1:80"}}, "metrics.bindAddress", "brackets", id="bare-ipv6"),
        pytest.param({"metrics": []}, "metrics", "must be a mapping", id="list-for-a-section"),
        pytest.param(
            {"health": {"readinessEndpointName": "ready"}}, "health.readinessEndpointName", "slash", id="path"
        ),
        pytest.param(
            {"health": {"readinessEndpointName": "/healthz"}}, "health.livenessEndpointName", "differ", id="same-path"
        ),
        pytest.param({"joint": {"timeLimit": "99ms"}}, "joint.timeLimit", "from 0.1s to 1m", id="short-round"),
        pytest.param({"joint": {"steps": 0}}, "joint.steps", "at least 1", id="no-steps"),
        pytest.param({"joint": {"maxWorkloads": 0}}, "joint.maxWorkloads", "at least 1", id="no-workloads"),
        pytest.param(
            {"joint": {"statistics": {"samples": 101}}}, "joint.statistics.samples", "at most 100", id="samples"
        ),
        pytest.param(
            {"joint": {"statistics": {"interval": "4s"}}}, "joint.statistics.interval", "from 5s to 10m", id="interval"
        ),
        pytest.param(
            {"joint": {"rescheduling": {"maxMovesPerHour": -1}}},
            "joint.rescheduling.maxMovesPerHour",
            "at least 0",
            id="negative-moves",
        ),
        pytest.param(
            {"joint": {"rescheduling": {"parallelMoves": 5}}},
            "joint.rescheduling.parallelMoves",
            "at most 4",
            id="parallel-moves",
        ),
        pytest.param(
            {"joint": {"rescheduling": {"moveTimeout": "25h"}}},
            "joint.rescheduling.moveTimeout",
            "from 10s to 24h",
            id="move-timeout",
        ),
        pytest.param(
            {"joint": {"defrag": {"budget": {"maxPodMinutes": -5}}}},
            "joint.defrag.budget.maxPodMinutes",
            "at least 0",
            id="negative-budget",
        ),
        pytest.param({"webhook": {"port": 0}}, "webhook.port", "at least 1", id="port-zero"),
        pytest.param({"webhook": {"port": "9443"}}, "webhook.port", "without quotes", id="quoted-number"),
        pytest.param(
            {"manageJobsWithoutQueueName": "true"}, "manageJobsWithoutQueueName", "true or false", id="quoted-bool"
        ),
        pytest.param({"clientConnection": {"qps": 0}}, "clientConnection.qps", "negative number", id="no-rate"),
        pytest.param({"clientConnection": {"qps": float("nan")}}, "clientConnection.qps", "finite", id="nan"),
        pytest.param({"clientConnection": {"burst": 0}}, "clientConnection.burst", "at least 1", id="no-burst"),
        pytest.param(
            {"leaderElection": {"leaseDuration": "5s"}}, "leaderElection.leaseDuration", "longer than", id="short-lease"
        ),
        pytest.param(
            {"leaderElection": {"leaseDuration": "15500ms"}},
            "leaderElection.leaseDuration",
            "whole",
            id="half-a-second",
        ),
        pytest.param(
            {"leaderElection": {"leaseDuration": 15}}, "leaderElection.leaseDuration", "as text", id="bare-duration"
        ),
        pytest.param(
            {"leaderElection": {"resourceLock": "endpoints"}}, "leaderElection.resourceLock", "'leases'", id="old-lock"
        ),
        pytest.param(
            {"controller": {"groupKindConcurrency": {"jobs": 1}}},
            "controller.groupKindConcurrency.jobs",
            "Kind.group",
            id="plural-kind",
        ),
        pytest.param(
            {"internalCertManagement": {"webhookServiceName": "9a"}},
            "internalCertManagement.webhookServiceName",
            "DNS label",
            id="service-name",
        ),
        pytest.param({"tls": {"minVersion": "VersionTLS11"}}, "tls.minVersion", "VersionTLS12", id="old-tls"),
        pytest.param({"tls": {"cipherSuites": ["X"]}}, "tls.cipherSuites[0]", "unknown cipher", id="cipher"),
        pytest.param({"tls": {"curvePreferences": [1]}}, "tls.curvePreferences[0]", "must be one of", id="curve"),
        pytest.param(
            {"tls": {"minVersion": "VersionTLS13", "cipherSuites": ["TLS_AES_128_GCM_SHA256"]}},
            "tls.cipherSuites",
            "left out",
            id="ciphers-with-1.3",
        ),
        pytest.param(
            {"managedJobsNamespaceSelector": {}}, "managedJobsNamespaceSelector", "kube-system", id="selects-everything"
        ),
        pytest.param(
            {"managedJobsNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kueue-system"}}},
            "managedJobsNamespaceSelector",
            "must not match namespace kueue-system",
            id="selects-ourselves",
        ),
        pytest.param(
            {
                "managedJobsNamespaceSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]
                }
            },
            "managedJobsNamespaceSelector.matchExpressions[0].values",
            "left out with operator Exists",
            id="values-with-exists",
        ),
        pytest.param({"waitForPodsReady": {"timeout": "-1s"}}, "waitForPodsReady.timeout", "negative", id="negative"),
        pytest.param({"waitForPodsReady": {"enable": True}}, "waitForPodsReady.enable", "v1beta1", id="older-switch"),
        pytest.param(
            {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Now"}}},
            "waitForPodsReady.requeuingStrategy.timestamp",
            "'Eviction' or 'Creation'",
            id="enumeration",
        ),
        pytest.param(
            {"integrations": {"frameworks": ["job"]}}, "integrations.frameworks[0]", "unknown", id="framework"
        ),
        pytest.param(
            {"integrations": {"frameworks": ["pod", "pod"]}}, "integrations.frameworks", "repeat pod", id="twice"
        ),
        pytest.param(
            {"integrations": {"externalFrameworks": ["Job.v1.batch"]}},
            "integrations.externalFrameworks[0]",
            "enabled framework",
            id="external-is-internal",
        ),
        pytest.param(
            {"integrations": {"frameworks": ["sparkoperator.k8s.io/sparkapplication"]}},
            "integrations.frameworks",
            "needs feature gate SparkApplicationIntegration",
            id="framework-behind-a-gate",
        ),
        pytest.param(
            {"multiKueue": {"dispatcherName": "kqueue.dev/best-domian"}},
            "multiKueue.dispatcherName",
            "did you mean kqueue.dev/best-domain?",
            id="misspelt-dispatcher",
        ),
        pytest.param(
            {"multiKueue": {"dispatcherName": "incremental"}},
            "multiKueue.dispatcherName",
            "must be one of kueue.x-k8s.io/multikueue-dispatcher-all-at-once,",
            id="dispatcher-without-a-domain",
        ),
        pytest.param(
            {"multiKueue": {"dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-random"}},
            "multiKueue.dispatcherName",
            "a domain of its own",
            id="dispatcher-in-a-domain-of-ours",
        ),
        pytest.param(
            {"multiKueue": {"dispatcherName": "example.com/"}},
            "multiKueue.dispatcherName",
            "as in example.com/dispatcher",
            id="dispatcher-without-a-name",
        ),
        pytest.param(
            {"multiKueue": {"incrementalDispatcherConfig": {}}},
            "multiKueue.incrementalDispatcherConfig",
            "dispatcherName",
            id="other-dispatcher",
        ),
        pytest.param(
            {"multiKueue": {"bestDomainConfig": {}}},
            "multiKueue.bestDomainConfig",
            "dispatcherName",
            id="settings-of-another-dispatcher",
        ),
        pytest.param(
            {"multiKueue": {"dispatcherName": DISPATCHER_BEST_DOMAIN, "bestDomainConfig": {"answerTimeout": "0s"}}},
            "multiKueue.bestDomainConfig.answerTimeout",
            "from 100ms",
            id="no-time-to-answer",
        ),
        pytest.param(
            {"multiKueue": {"dispatcherName": DISPATCHER_BEST_DOMAIN, "bestDomainConfig": {"patience": "1ms"}}},
            "multiKueue.bestDomainConfig.patience",
            "1s or more",
            id="no-patience",
        ),
        pytest.param(
            {"fairSharing": {}}, "fairSharing.preemptionStrategies", "is required", id="strategies-are-required"
        ),
        pytest.param(
            {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare", "LessThanOrEqualToFinalShare"]}},
            "fairSharing.preemptionStrategies",
            "in that order",
            id="strategies-in-the-wrong-order",
        ),
        pytest.param(
            {"resources": {"quotaCheckStrategy": "IgnoreUndeclared", "excludeResourcePrefixes": ["x"]}},
            "resources.excludeResourcePrefixes",
            "left out",
            id="two-ways-to-ignore",
        ),
        pytest.param(
            {"resources": {"transformations": [{"input": "a", "outputs": {"b": "many"}}]}},
            "resources.transformations[0].outputs.b",
            "quantity",
            id="quantity",
        ),
        pytest.param(
            {"resources": {"deviceClassMappings": [{"name": "g", "deviceClassNames": ["c"], "sources": [{}]}]}},
            "resources.deviceClassMappings[0].sources[0]",
            "exactly one",
            id="empty-source",
        ),
        pytest.param(
            {
                "resources": {
                    "deviceClassMappings": [
                        {"name": "g", "deviceClassNames": ["c"]},
                        {"name": "h", "deviceClassNames": ["c"]},
                    ]
                }
            },
            "resources.deviceClassMappings[1].deviceClassNames",
            "which g already counts",
            id="device-class-twice",
        ),
        pytest.param(
            {"metrics": {"customLabels": [{"name": "a"}, {"name": "a"}]}},
            "metrics.customLabels",
            "two labels",
            id="label",
        ),
        pytest.param(
            {"metrics": {"customLabels": [{"name": "a", "sourceKind": "Workload"}]}},
            "metrics.customLabels[0].trackedValues",
            "must be given",
            id="unbounded-label",
        ),
        pytest.param({"visibilityServer": {"bindAddress": "me"}}, "visibilityServer.bindAddress", "IP", id="no-ip"),
        pytest.param({"featureGates": {"Nope": True}}, "featureGates.Nope", "unknown feature gate", id="gate"),
        pytest.param(
            {"featureGates": {"MultiKueue": "on"}}, "featureGates.MultiKueue", "true or false", id="gate-text"
        ),
        pytest.param({"namespace": "Kueue"}, "namespace", "DNS label", id="namespace"),
        *(
            pytest.param({"gangs": settings}, f"gangs.{path}", want, id=f"gangs-{path}")
            for settings, path, want in (
                ({"scheduleTimeout": {"base": "0s"}}, "scheduleTimeout.base", "1s or more (found '0s')"),
                ({"scheduleTimeout": {"perMember": "-1s"}}, "scheduleTimeout.perMember", "negative"),
                ({"scheduleTimeout": {"maximum": "59s"}}, "scheduleTimeout.maximum", "not be below base, 1m"),
                ({"rejectPercentage": 101}, "rejectPercentage", "at most 100"),
                ({"rejectPercentage": -1}, "rejectPercentage", "at least 0"),
                ({"rejectAfter": "soon"}, "rejectAfter", "duration"),
                ({"backoff": {"base": "999ms"}}, "backoff.base", "1s or more (found '0.999s')"),
                ({"backoff": {"maximum": "9s"}}, "backoff.maximum", "not be below base, 10s"),
                ({"backoff": {"limit": 0}}, "backoff.limit", "at least 1"),
                ({"takeOverSchedulers": ["volcano", "volcano"]}, "takeOverSchedulers", "not repeat volcano"),
                ({"takeOverSchedulers": [""]}, "takeOverSchedulers[0]", "a scheduler's name"),
            )
        ),
        *(
            pytest.param({"runTimes": settings}, f"runTimes.{path}", want, id=f"run-times-{number}")
            for number, (settings, path, want) in enumerate(
                (
                    ({"learn": "x"}, "learn", "true or false"),
                    ({"maxGroups": 9}, "maxGroups", "at least 10"),
                    ({"maxGroups": 5001}, "maxGroups", "at most 5000"),
                    ({"interval": "59s"}, "interval", "from 1m to 1h"),
                    ({"interval": "61m"}, "interval", "from 1m to 1h"),
                )
            )
        ),
        *(
            pytest.param({"startTimes": settings}, f"startTimes.{path}", want, id=f"start-times-{number}")
            for number, (settings, path, want) in enumerate(
                (
                    ({"annotate": "x"}, "annotate", "true or false"),
                    ({"interval": "59s"}, "interval", "from 1m to 1h"),
                    ({"writesPerSecond": 0}, "writesPerSecond", "at least 1"),
                    ({"writesPerSecond": 51}, "writesPerSecond", "at most 50"),
                    ({"smallestChange": "9s"}, "smallestChange", "from 10s to 24h"),
                )
            )
        ),
        pytest.param({"nodeClasses": {"manageTaints": "x"}}, "nodeClasses.manageTaints", "true or false", id="taints"),
    ],
)
def test_a_mistake_names_its_field_and_the_remedy(fields: dict[str, Any], path: str, want: str) -> None:
    """Each bad value is refused with its path and what to write instead."""
    assert any(p.startswith(f"{path}: ") and want in p for p in problems(**fields)), problems(**fields)


def test_all_mistakes_come_at_once() -> None:
    """Whoever repairs a file sees everything that is wrong with it, not one thing per start."""
    found = problems(
        metrics={"bindAddress": "x"},
        webhook={"prt": 1, "port": 0},
        featureGates={"Nope": True},
        leaderElection={"leaseDuration": "1s", "renewDeadline": "1s"},
    )
    assert {p.split(":")[0] for p in found} == {
        "metrics.bindAddress",
        "webhook.prt",
        "webhook.port",
        "featureGates.Nope",
        "leaderElection.leaseDuration",
        "leaderElection.renewDeadline",
    }


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [1", r"config.yaml: not valid YAML: line \d+, column \d+", id="broken"),
        pytest.param("a: 1\nb: 2\na: 3\n", "line 3, column 1: a is given twice, first on line 1", id="field-twice"),
        pytest.param("- 1", "must be a mapping", id="list"),
        pytest.param("just text", "must be a mapping", id="text"),
        pytest.param("a: 1\n---\nb: 2\n", "exactly one document, found 2", id="two-documents"),
        pytest.param("# nothing\n", "exactly one document, found 0", id="comments-only"),
        pytest.param("? [a, b]\n: 1\n", "not valid YAML: line 1", id="a-list-as-a-key"),
        pytest.param("a: \x07", "not valid YAML", id="control-character"),
        pytest.param("a: &x [*x]\n", "is inside of the value that it names", id="alias-of-itself"),
        pytest.param("kind: Deployment\napiVersion: apps/v1\n", "kind: must be Configuration", id="other-kind"),
        pytest.param("kind: Configuration\n", "apiVersion: must be config.kueue.x-k8s.io/v1beta2", id="no-version"),
        pytest.param(
            "kind: Configuration\napiVersion: config.kueue.x-k8s.io/v1alpha1\n", "v1alpha1", id="unknown-version"
        ),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str, want: str) -> None:
    """Text that is not one Configuration is refused with its place."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=want):
        load(path)


def test_a_value_that_holds_itself_is_refused() -> None:
    """YAML can say what JSON cannot; it is an error and no crash."""
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmetrics: &m {x: *m}\n"
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse(text, source="config.yaml")


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(lambda path: None, "no such file", id="missing"),
        pytest.param(lambda path: path.mkdir(), "cannot be read", id="directory"),
        pytest.param(lambda path: path.write_bytes(b""), "is empty", id="empty"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe"), "not UTF-8", id="binary"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Any, want: str) -> None:
    """The path stands in the error."""
    path = tmp_path / "config.yaml"
    make(path)
    with pytest.raises(ConfigError, match=f"config.yaml: .*{want}"):
        load(path)


class TestOlderVersion:
    """v1beta1 files keep their own defaults."""

    def test_features_are_off_unless_enabled(self) -> None:
        """Waiting for pods and fair sharing need `enable: true`."""
        configuration = read("v1beta1", waitForPodsReady={"timeout": "1m"}, fairSharing={"enable": False})
        assert configuration.wait_for_pods_ready is None
        assert configuration.fair_sharing is None
        assert read("v1beta1").wait_for_pods_ready is None

    def test_enabled_features_have_the_older_defaults(self) -> None:
        """Five minutes and blocked admission; both strategies."""
        configuration = read("v1beta1", waitForPodsReady={"enable": True}, fairSharing={"enable": True})
        ready, sharing = configuration.wait_for_pods_ready, configuration.fair_sharing
        assert ready is not None
        assert (ready.timeout, ready.recovery_timeout) == (timedelta(minutes=5), timedelta(minutes=5))
        assert ready.block_admission
        assert sharing is not None
        assert sharing.preemption_strategies == ("LessThanOrEqualToFinalShare", "LessThanInitialShare")

    def test_its_dead_fields_are_named_in_warnings(self) -> None:
        """What v1beta1 accepted without effect still is, loudly."""
        configuration = read(
            "v1beta1", queueVisibility={}, integrations={"podOptions": {}, "frameworks": ["batch/job"]}
        )
        assert [w.split(":")[0] for w in configuration.warnings] == ["queueVisibility", "integrations.podOptions"]

    def test_newer_fields_are_refused(self) -> None:
        """A field of v1beta2 in a v1beta1 file is a mistake, also inside lists."""
        found = problems(
            "v1beta1", visibilityServer={}, metrics={"customLabels": [{"name": "a", "sourceKind": "Cohort"}]}
        )
        assert [p.split(":")[0] for p in found] == ["visibilityServer", "metrics.customLabels.sourceKind"]
        assert all("change apiVersion" in p for p in found)


def test_the_flag_sets_gates() -> None:
    """Gates may come from the flag."""
    assert read(flag="ConcurrentAdmission=true").enabled("ConcurrentAdmission")


def test_gates_in_the_file_and_the_flag_exclude_each_other() -> None:
    """Nobody has to guess which of two wins."""
    found = problems(flag="MultiKueue=false", featureGates={"MultiKueue": True})
    assert found == ["featureGates: must be left out of the file when --feature-gates is given"]


def test_waiting_for_pods_can_be_switched_off() -> None:
    """With the gate nothing of the section is even checked."""
    gates = {"DisableWaitForPodsReady": True}
    assert read(featureGates=gates, waitForPodsReady={"timeout": "x"}).wait_for_pods_ready is None


def test_a_zero_timeout_means_the_default() -> None:
    """0s for the timeout is "not given"; 0s for the recovery switches it off."""
    ready = read(waitForPodsReady={"timeout": "0s", "recoveryTimeout": "0s"}).wait_for_pods_ready
    assert ready is not None
    assert (ready.timeout, ready.recovery_timeout) == (timedelta(minutes=30), timedelta(0))


def test_settings_without_effect_are_named() -> None:
    """A setting that nothing acts on yet is never taken in silence."""
    configuration = read(
        multiKueue={"externalFrameworks": [{"name": "Kind.v1.example.com"}]},
        controller={"cacheSyncTimeout": 1},
        featureGates={"FailureRecoveryPolicy": True, "MultiKueue": True},
        resources={
            "quotaCheckStrategy": "IgnoreUndeclared",
            "transformations": [{"input": "a", "outputs": {"b": "1"}}],
        },
    )
    assert [w.split(":")[0] for w in configuration.warnings] == [
        "controller.cacheSyncTimeout",
        "multiKueue.externalFrameworks",
        "featureGates.FailureRecoveryPolicy",
    ]


@pytest.mark.parametrize("on", [True, False])
def test_mapped_devices_count_only_with_their_gate(on: bool) -> None:
    gates = [name for name in GATES if name.startswith("KueueDRAIntegration")]
    configuration = read(
        resources={"deviceClassMappings": [{"name": "gpus", "deviceClassNames": ["gpu"]}]},
        featureGates={} if on else dict.fromkeys(gates, False),
    )
    told = [w for w in configuration.warnings if w.startswith("resources.deviceClassMappings")]
    assert bool(told) is not on


@pytest.mark.parametrize(
    ("settings", "without_effect"),
    [
        pytest.param({"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}, [], id="fair-sharing"),
        pytest.param({"waitForPodsReady": {"blockAdmission": True}}, [], id="admission-one-by-one"),
        pytest.param(
            {
                "waitForPodsReady": {
                    "timeout": "1m",
                    "recoveryTimeout": "0s",
                    "requeuingStrategy": {
                        "timestamp": "Creation",
                        "backoffBaseSeconds": 1,
                        "backoffMaxSeconds": 2,
                        "backoffLimitCount": 3,
                    },
                },
                "featureGates": {"FinishOrphanedWorkloads": False},
            },
            [],
            id="life-cycle",
        ),
        pytest.param(
            {
                "objectRetentionPolicies": {"workloads": {"afterFinished": "1h"}},
                "multiKueue": {"gcInterval": "5m", "externalFrameworks": [{"name": "Kind.v1.example.com"}]},
            },
            ["multiKueue.externalFrameworks"],
            id="a-part-of-a-section",
        ),
        pytest.param({"featureGates": {"PrioritizePreemptorWorkloads": True}}, [], id="a-gate-of-order"),
        pytest.param(
            {
                "featureGates": {
                    "FlavorFungibility": False,
                    "FlavorFungibilityPreserveScanProgress": False,
                    "RecomputeAssignmentUponPreemptionTargetsOverlap": False,
                    "SchedulingEquivalenceHashing": False,
                    "UnadmittedWorkloadsExplicitStatus": True,
                    "TASRecomputeAssignmentWithinSchedulingCycle": False,
                }
            },
            [],
            id="gates-of-cycles",
        ),
    ],
)
def test_settings_with_effect_are_not_warned_of(settings: dict[str, Any], without_effect: list[str]) -> None:
    """Neither when they stand beside some that have none."""
    assert [w.split(":")[0] for w in read(**settings).warnings] == without_effect


def test_protected_namespaces_are_not_managed() -> None:
    """By default jobs without a queue are managed everywhere but in kube-system and our own namespace."""
    configuration = read()
    managed = {name: configuration.manages_namespace(name, {}) for name in ("kube-system", "kueue-system", "team")}
    assert managed == {"kube-system": False, "kueue-system": False, "team": True}


def test_a_selector_of_users_decides() -> None:
    """Labels decide when the file says so; NotIn is met by a missing label."""
    selector = {
        "matchLabels": {"managed": "yes"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["free"]},
            {"key": "frozen", "operator": "DoesNotExist"},
        ],
    }
    configuration = read(managedJobsNamespaceSelector=selector)
    assert configuration.manages_namespace("a", {"managed": "yes"})
    assert not configuration.manages_namespace("a", {"managed": "yes", "tier": "free"})
    assert not configuration.manages_namespace("a", {"managed": "yes", "frozen": ""})
    assert not configuration.manages_namespace("a", {})


def test_every_framework_can_be_enabled() -> None:
    """All names of the compatible system are known."""
    configuration = read(
        integrations={"frameworks": list(FRAMEWORKS)}, featureGates={"SparkApplicationIntegration": True}
    )
    assert len(configuration.integrations.kinds()) == len(FRAMEWORKS)


def test_tls_settings_reach_the_context() -> None:
    """Version and ciphers are set on a server's context."""
    tls = read(tls={"cipherSuites": ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]}).tls
    assert tls is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.apply(context)
    chosen = [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
    assert chosen == ["ECDHE-RSA-AES256-GCM-SHA384"]
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_what_is_printed_reads_back() -> None:
    """The dump of a configuration is a valid file with the same meaning."""
    first = read(clientConnection={"qps": 5}, waitForPodsReady={"recoveryTimeout": "90s"})
    dump = first.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert read(**dump).model_dump() == first.model_dump()


def test_gangs_and_node_classes_may_be_left_out() -> None:
    """G1.19: the defaults, and no warning; given, every value arrives."""
    without = read()
    assert (without.gangs, without.node_classes.manage_taints, without.warnings) == (GangSettings(), False, ())
    gangs = read(
        gangs={
            "scheduleTimeout": {"base": "5s", "perMember": "0s", "maximum": "5s"},
            "rejectPercentage": 0,
            "backoff": {"base": "1s", "maximum": "1s", "limit": 3},
            "takeOverSchedulers": ["volcano"],
        }
    ).gangs
    assert gangs.schedule_timeout.maximum == timedelta(seconds=5)
    assert (gangs.reject_percentage, gangs.backoff.limit, gangs.take_over_schedulers) == (0, 3, ("volcano",))
    assert gangs.reject_after == timedelta(seconds=10)


def test_all_mistakes_of_gangs_come_at_once() -> None:
    """G1.18: also two in one section."""
    found = problems(
        gangs={"scheduleTimeout": {"base": "0s"}, "rejectPercentage": 200, "backoff": {"base": "0s", "maximum": "0s"}}
    )
    assert [p.split(":")[0] for p in found] == [
        "gangs.scheduleTimeout.base",
        "gangs.rejectPercentage",
        "gangs.backoff.base",
    ]


def test_the_default_deadline_of_a_gang() -> None:
    """The configuration's defaults are those that gangs have without one."""
    assert timeouts_for(Configuration()) == DEFAULT_TIMEOUTS


def test_dialects_of_gangs_are_frameworks() -> None:
    """Each may be on without `pod`, is no kind of job, and has an effect."""
    configuration = read(integrations={"frameworks": list(GANG_DIALECTS)})
    assert (configuration.integrations.kinds(), configuration.warnings) == (frozenset(), ())
    assert features_for(configuration).gangs == ("pod", *GANG_DIALECTS)
    assert features_for(Configuration()).gangs == ("pod",)


@pytest.mark.parametrize("name", [*DISPATCHERS, "example.com/dispatcher"])
def test_dispatchers_of_kqueue_and_of_others_are_accepted(name: str) -> None:
    """Another controller's dispatcher has a name with a domain of its own."""
    assert read(multiKueue={"dispatcherName": name}).multi_kueue.dispatcher_name == name
