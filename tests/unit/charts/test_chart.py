"""The chart renders what its goldens say, refuses wrong values in words, and fits the code.

Goldens are made anew by `KQUEUE_REMAKE_GOLDENS=1 .venv/bin/pytest tests/unit/charts`; read the difference.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kqueue import __version__
from kqueue.api.run_time_names import RUN_TIMES_CONFIG_MAP
from kqueue.cli.app import build
from kqueue.clock import FakeClock
from kqueue.config import Timings, parse
from kqueue.config.model import Configuration
from kqueue.config.policy import ClusterProfile, ExecConfig, Integrations
from kqueue.jobs import ancestry
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.unmanaged import kinds_not_queued
from kqueue.kinds import FRAMEWORKS, GANG_DIALECTS
from kqueue.manager.operator import Operator
from kqueue.manager.visibility import catalog_of
from kqueue.observe import Checks, Metrics
from kqueue.operations.migration.chart import chart_in
from kqueue.runtime.client import Client
from tests.fast_yaml import documents
from tests.unit.charts.rendering import (
    CHART,
    NAMESPACE,
    Object,
    by_template,
    configuration,
    helm,
    objects,
    one,
    rendered_text,
)
from tools.crds import FOLDER as CRDS
from webhooks.configuration import MUTATING_NAME, VALIDATING_NAME, is_ours

GOLDENS = Path(__file__).parent / "goldens"
ALL_FRAMEWORKS = ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset"]
EVERYTHING: Object = {
    "image": {"repository": "registry.example.com/kqueue", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "configuration": {
        "leaderElection": {"resourceName": "other.example.com"},
        "health": {"readinessEndpointName": "/ready"},
        "integrations": {
            "frameworks": [*ALL_FRAMEWORKS, "scheduling.x-k8s.io/podgroup"],
            "externalFrameworks": ["Sim.v1.lab.example.com"],
            "declaredKinds": [
                {
                    "apiVersion": "train.example.com/v1",
                    "kind": "Train",
                    "podSets": [{"template": "spec.template", "replicas": "spec.replicas"}],
                    "succeeded": {"condition": "Complete"},
                    "ready": {"count": "status.ready"},
                }
            ],
        },
        "objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "1h"}},
    },
    "env": [{"name": "KQUEUE_TIMING_AUDIT_INTERVAL", "value": "60s"}],
    "controller": {
        "extraVolumes": [
            {"name": "plugins", "image": {"reference": "registry.example.com/auth:1"}},
            {"name": "kubeconfigs", "secret": {"secretName": "workers"}},
        ],
        "extraVolumeMounts": [
            {"name": "plugins", "mountPath": "/opt/plugins", "readOnly": True},
            {"name": "kubeconfigs", "mountPath": "/etc/multikueue/kubeconfigs", "readOnly": True},
        ],
        "env": [{"name": "AWS_ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": {"name": "record", "key": "id"}}}],
        "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/record"},
    },
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "priorityClassName": "",
    "certManager": {"issuerRef": {"kind": "ClusterIssuer", "name": "internal"}},
    "monitoring": {"serviceMonitor": True, "alerts": True, "dashboard": True, "labels": {"release": "prometheus"}},
    "dashboard": {
        "enable": True,
        "certificateSecret": "page-tls",
        "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
    },
    "networkPolicy": {"enable": True, "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
}  # fmt: skip
CASES = {
    "default": {},
    "cert-manager": {"certManager": {"enable": True}},
    "everything": EVERYTHING,
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_what_the_golden_says(case: str) -> None:
    """All but what only repeats a file, and the roles of users where another golden has them."""
    left_out = {"crds.yaml"} | ({"user-roles.yaml"} if case != "default" else set())
    parts = by_template(rendered_text(CASES[case]))
    shown = [document for name, documents in parts.items() if name not in left_out for document in documents]
    text = "".join(d for d in shown if "kind: PrometheusRule" not in d and "  kqueue.json: " not in d)
    golden = GOLDENS / f"{case}.yaml"
    if os.environ.get("KQUEUE_REMAKE_GOLDENS"):
        golden.write_text(text)

    assert text == golden.read_text()


def test_alerts_and_dashboard_stand_as_in_their_files() -> None:
    """Braces in them are not for Helm."""
    made = objects(EVERYTHING)
    files = CHART / "files"

    assert one(made, "PrometheusRule", "kqueue")["spec"] == yaml.safe_load((files / "alerts.yaml").read_text())
    dashboard = one(made, "ConfigMap", "kqueue-dashboard")["data"]["kqueue.json"]
    assert json.loads(dashboard) == json.loads((files / "dashboard.json").read_text())


def hooks(made: list[Object], event: str) -> dict[str, Object]:
    """Objects of a hook, by kind."""
    return {o["kind"]: o for o in made if event in o["metadata"].get("annotations", {}).get("helm.sh/hook", "")}


@pytest.mark.parametrize("event", ["pre-install", "pre-upgrade"])
def test_the_preflight_needs_nothing_of_the_release(event: str) -> None:
    """Its account, rights and configuration come with it; no priority class whose quota is not there yet."""
    found = hooks(objects({}), event)
    pod = found["Job"]["spec"]["template"]["spec"]
    rules = found["ClusterRole"]["rules"] + found["Role"]["rules"]

    assert found["ServiceAccount"]["metadata"]["name"] == pod["serviceAccountName"] == "kqueue-preflight"
    assert found["ConfigMap"]["data"]["config.yaml"] == configuration(objects({}))
    assert pod["volumes"][0]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert "priorityClassName" not in pod
    assert all(rule["verbs"] == ["get"] and rule["resourceNames"] for rule in rules)
    assert {name for rule in rules for name in rule["resourceNames"] if name.endswith((".x-k8s.io", "kqueue.dev"))} == {
        o["metadata"]["name"] for o in objects({}) if o["kind"] == "CustomResourceDefinition"
    }
    assert hooks(objects({"preflight": {"enable": False}}), event) == {}


def test_helm_test_reads_only_and_asks_only_for_what_is_installed() -> None:
    """No step for webhook configurations of somebody else, none for an API that is off."""
    full, little = (
        hooks(objects(values), "test")
        for values in ({}, {"webhook": {"register": False}, "featureGates": [{"name": "VisibilityOnDemand", "enabled": False}]})
    )  # fmt: skip
    only = [
        [a.partition("=")[2] for a in found["Job"]["spec"]["template"]["spec"]["containers"][0]["args"] if "only" in a]
        for found in (full, little)
    ]
    verbs = {verb for found in (full, little) for kind in ("Role", "ClusterRole") for r in found[kind]["rules"] for verb in r["verbs"]}  # fmt: skip

    assert only == [["kinds", "webhooks", "certificates", "visibility", "controller"], ["kinds", "controller"]]
    assert verbs == {"get", "list"}


NEW_VALUES: Object = {
    "nameOverride": None,
    "fullnameOverride": None,
    "featureGates": None,
    "topologySpreadConstraints": None,
    "serviceAnnotations": None,
    "preflight": None,
    "dashboard": None,
    "controller": dict.fromkeys(
        ("livenessProbe", "readinessProbe", "extraVolumes", "extraVolumeMounts", "env", "serviceAccountAnnotations")
    ),
    "webhook": {"livenessProbe": None, "readinessProbe": None},
}
"""What values of an older chart do not have."""


def test_values_of_an_older_chart_render_the_defaults() -> None:
    """`helm upgrade --reuse-values` gives a chart the defaults of the release before."""
    assert rendered_text(NEW_VALUES) == rendered_text({"preflight": {"enable": False}})


def test_feature_gates_of_the_list_and_of_the_configuration_are_all_given() -> None:
    """One that switches the visibility API off also takes its objects away."""
    listed = [{"name": "VisibilityOnDemand", "enabled": False}, {"name": "PriorityBoost", "enabled": True}]
    made = objects({"featureGates": listed, "configuration": {"featureGates": {"PartialAdmission": False}}})
    gates = parse(configuration(made), source="test").feature_gates

    assert gates == {"VisibilityOnDemand": False, "PriorityBoost": True, "PartialAdmission": False}
    assert not any(o["kind"] == "APIService" for o in made)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        pytest.param({"nameOverride": "queueing"}, "queueing", id="nameOverride"),
        pytest.param({"nameOverride": "queueing", "fullnameOverride": "team"}, "team", id="fullnameOverride wins"),
    ],
)
def test_names_follow_the_override_and_fit_each_other(values: Object, name: str) -> None:
    """Every reference leads to an object of the chart; names that other programs know stay."""
    made = objects({**EVERYTHING, **values, "certManager": {"enable": True}})
    names = {(o["kind"], o["metadata"]["name"]) for o in made}
    changed = {(kind, old.replace(name, "kqueue", 1)) for kind, old in names if old.startswith(name)}
    bindings = [o for o in made if o["kind"].endswith("Binding") and not o["roleRef"]["name"].startswith("extension-")]
    pods = [o["spec"]["template"]["spec"] for o in made if o["kind"] in ("Deployment", "Job")]
    configs = {v["configMap"]["name"] for pod in pods for v in pod["volumes"] if "configMap" in v}
    stops = {arg for pod in pods for arg in pod["containers"][0]["args"] if arg.startswith("--stop=")}
    left = {n for _kind, n in names if n.startswith("kqueue")}
    default = {(o["kind"], o["metadata"]["name"]) for o in objects({**EVERYTHING, "certManager": {"enable": True}})}

    assert {(b["roleRef"]["kind"], b["roleRef"]["name"]) for b in bindings} <= names
    assert {("ServiceAccount", s["name"]) for b in bindings for s in b["subjects"]} <= names
    assert {("ServiceAccount", pod["serviceAccountName"]) for pod in pods} <= names
    assert {("ConfigMap", config) for config in configs} <= names
    assert stops == {f"--stop={NAMESPACE}/{name}-controller", f"--stop={NAMESPACE}/{name}-webhook"}
    roles = (
        "explanations-viewer-role",
        "gangs-viewer-role",
        "quotas-viewer-role",
        "simulations-role",
        "starttimes-viewer-role",
        "summaries-viewer-role",
        "whatifs-role",
        "decision-record-reader-role",
        "metrics-reader",
    )
    assert left == {f"kqueue-{role}" for role in roles}
    assert changed | {(kind, n) for kind, n in names if not n.startswith(name)} == default


def test_constraints_probes_and_annotations_stand_where_they_belong() -> None:
    """A constraint without a selector gets that of its Deployment; one with a selector keeps it."""
    spread = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**spread, "labelSelector": {"matchLabels": {"app": "x"}}}
    values = {
        "topologySpreadConstraints": [spread, own],
        "controller": {"livenessProbe": {"failureThreshold": 9}},
        "webhook": {"readinessProbe": {"periodSeconds": 7}},
        "serviceAnnotations": {"webhook": {"a": "1"}, "metrics": {"b": "2"}, "visibility": {"c": "3"}},
    }
    made = objects(values)
    shown = {o["metadata"]["name"]: o["metadata"].get("annotations") for o in made if o["kind"] == "Service"}

    for component in ("controller", "webhook"):
        deployment = one(made, "Deployment", f"kqueue-{component}")["spec"]
        first, second = deployment["template"]["spec"]["topologySpreadConstraints"]
        assert first == {**spread, "labelSelector": deployment["selector"]}
        assert second == own
    assert container(made, "controller")["livenessProbe"]["failureThreshold"] == 9
    assert container(made, "webhook")["readinessProbe"]["periodSeconds"] == 7
    assert container(made, "webhook")["livenessProbe"]["periodSeconds"] == 20
    assert shown == {
        "kueue-webhook-service": {"a": "1"},
        "kqueue-metrics": {"b": "2"},
        "kueue-visibility-server": {"c": "3"},
    }


KUEUE_VALUES = """
nameOverride: batch
enableCertManager: true
enablePrometheus: true
controllerManager:
  replicas: 2
  imagePullSecrets: [{name: registry}]
  featureGates: [{name: PriorityBoost, enabled: true}]
  livenessProbe: {initialDelaySeconds: 15, periodSeconds: 20, timeoutSeconds: 1, failureThreshold: 3, successThreshold: 1}
  readinessProbe: {initialDelaySeconds: 5, periodSeconds: 10, timeoutSeconds: 1, failureThreshold: 3, successThreshold: 1}
  nodeSelector: {pool: system}
  tolerations: [{key: system, operator: Exists}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  manager: {priorityClassName: system-cluster-critical, image: {pullPolicy: Always}}
metricsService: {annotations: {a: b}}
managerConfig:
  controllerManagerConfigYaml: |-
    apiVersion: config.kueue.x-k8s.io/v1beta1
    kind: Configuration
    health: {healthProbeBindAddress: ":8081"}
    metrics: {bindAddress: ":8443", enableClusterQueueResources: true}
    webhook: {port: 9443}
    leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
    internalCertManagement: {enable: false}
    integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}
"""


def test_what_the_migration_check_proposes_is_what_the_chart_takes() -> None:
    """Everything that converts: the chart renders it, and the processes take its configuration."""
    made = objects(chart_in(KUEUE_VALUES, source="test").values)
    read = parse(configuration(made), source="test")

    assert read.warnings == ()
    assert read.feature_gates == {"PriorityBoost": True, "DisableWaitForPodsReady": True}
    assert read.integrations.frameworks == ("batch/job", "jobset.x-k8s.io/jobset")
    assert {"Certificate", "ServiceMonitor"} <= {o["kind"] for o in made}


def container(made: list[Object], component: str) -> Object:
    """The container of a Deployment."""
    spec: Object = one(made, "Deployment", f"kqueue-{component}")["spec"]["template"]["spec"]
    return dict(spec["containers"][0])


def test_helm_lint_has_nothing_to_say() -> None:
    """But that there is no icon."""
    done = helm("lint", "--strict", str(CHART), "--kube-version", "1.36")
    said = [line for line in done.stdout.splitlines() if line.startswith("[") and "icon is recommended" not in line]

    assert (done.returncode, said) == (0, [])


def profiles(**program: Any) -> Object:
    """Values with one program that gives credentials of clusters."""
    full = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/opt/plugins/auth", "interactiveMode": "Never"}
    provider = {"name": "cloud", "execConfig": {**full, **program}}
    return {"configuration": {"multiKueue": {"clusterProfile": {"accessProviders": [provider]}}}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"controler": {}}, "'controler' not allowed", id="a value that does not exist"),
        pytest.param({"controller": {"replicas": 0}}, "'/controller/replicas': minimum", id="no replica"),
        pytest.param({"controller": {"replicas": "two"}}, "got string, want integer", id="a text where a number belongs"),
        pytest.param({"webhook": {"logLevel": "loud"}}, "value must be one of 'debug', 'info'", id="no such level"),
        pytest.param({"controller": None}, "missing property 'controller'", id="a section that is taken away"),
        pytest.param(
            {"configuration": {"integrations": {"frameworks": ["job"]}}},
            "'/configuration/integrations/frameworks/0': value must be one of 'batch/job'",
            id="a framework that does not exist",
        ),
        pytest.param(
            {"configuration": {"featureGates": {"PartialAdmission": "on"}}}, "got string, want boolean", id="a gate that is no boolean"
        ),
        pytest.param({"env": [{"name": "A", "value": 1}]}, "'/env/0/value': got number, want string", id="a number in env"),
        pytest.param({"controller": {"extraVolumes": [{"name": "scratch", "emptyDir": {}}]}}, "'not' failed", id="a volume of the chart's own"),
        pytest.param({"controller": {"extraVolumes": [{"name": "a"}]}}, "minProperties", id="a volume without a source"),
        pytest.param(
            {"controller": {"extraVolumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}},
            "controller.extraVolumes: a is given twice", id="two volumes of a name"),
        pytest.param(
            {"controller": {"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]}},
            "controller.extraVolumeMounts: a is no volume", id="a mount of no volume"),
        pytest.param(
            {"controller": {"extraVolumeMounts": [{"name": "a", "mountPath": "/etc/kqueue/config.yaml"}]}},
            "'/controller/extraVolumeMounts/0/mountPath': 'not' failed", id="a mount over the configuration"),
        pytest.param({"controller": {"extraVolumeMounts": {"name": "a"}}}, "got object, want array", id="mounts that are no list"),
        pytest.param({"controller": {"env": [{"value": "a"}]}}, "missing property 'name'", id="a variable without a name"),
        pytest.param({"controller": {"serviceAccountAnnotations": {"a": 1}}}, "got number, want string", id="an annotation that is a number"),
        pytest.param(profiles(command=""), "/execConfig/command'", id="a program without a name"),
        pytest.param(profiles(arguments=["a"]), "'arguments' not allowed", id="a field that no program has"),
        pytest.param(profiles(interactiveMode="Yes"), "value must be one of 'Never', 'IfAvailable', 'Always'", id="how a program may ask"),
        pytest.param({"image": {"tag": "a/b"}}, "'/image/tag': 'a/b' does not match", id="a tag with a slash"),
        pytest.param({"image": {"digest": "abc"}}, "'/image/digest'", id="a digest that is none"),
        pytest.param({"nameOverride": "Batch_Q"}, "'/nameOverride': 'Batch_Q' does not match", id="a name that is none"),
        pytest.param({"featureGates": {"A": True}}, "'/featureGates': got object, want array", id="gates that are no list"),
        pytest.param({"featureGates": [{"name": "A"}]}, "missing property 'enabled'", id="a gate without a value"),
        pytest.param(
            {"featureGates": [{"name": "PriorityBoost", "enabled": True}],
             "configuration": {"featureGates": {"PriorityBoost": True}}},
            "featureGates: PriorityBoost is given twice", id="a gate that is given twice"),
        pytest.param({"controller": {"livenessProbe": {"period": 1}}}, "'period' not allowed", id="a setting no probe has"),
        pytest.param({"controller": {"livenessProbe": {"successThreshold": 2}}}, "value must be 1", id="a liveness probe that wants two"),
        pytest.param({"topologySpreadConstraints": [{"maxSkew": 0}]}, "'/topologySpreadConstraints/0'", id="half a constraint"),
        pytest.param({"serviceAnnotations": {"web": {}}}, "'web' not allowed", id="annotations of no Service"),
        pytest.param({"preflight": {"deadlineSeconds": 1}}, "'/preflight/deadlineSeconds': minimum", id="no time to look"),
        pytest.param({"networkPolicy": {"apiServerPorts": []}}, "minItems", id="no way to the API server"),
        pytest.param({"uninstall": {"deadlineSeconds": 1}}, "minimum", id="no time to let go"),
        pytest.param({"dashboard": {"enable": True, "replicas": 2}}, "'replicas' not allowed", id="sessions in two processes"),
        pytest.param(
            {"dashboard": {"enable": True, "plainHTTP": True, "certificateSecret": "a"}},
            "dashboard.plainHTTP: there is no use", id="a certificate without TLS"),
        pytest.param(
            {"configuration": {"integration": {}}},
            "configuration.integration: unknown; known are leaderElection, health",
            id="a section that does not exist",
        ),
        pytest.param(
            {"configuration": {"namespace": "x"}},
            "configuration.namespace: the chart fills this in",
            id="what has to fit the release",
        ),
        pytest.param(
            {"configuration": {"metrics": {"bindAddress": ":1"}}},
            "configuration.metrics.bindAddress: the chart fills this in",
            id="what has to fit the Services",
        ),
        pytest.param(
            {"configuration": {"leaderElection": {"leaderElect": False}}},
            "all of them would decide",
            id="two replicas that do not elect",
        ),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_in_words(values: Object, words: str) -> None:
    """Before anything is made."""
    done = helm("template", "kqueue", str(CHART), "--kube-version", "1.36", values=values)

    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr


def test_one_replica_need_not_elect() -> None:
    """Nobody else decides."""
    values = {"controller": {"replicas": 1}, "configuration": {"leaderElection": {"leaderElect": False}}}

    assert parse(configuration(objects(values)), source="test").leader_election.leader_elect is False


def test_a_cluster_that_is_too_old_is_refused() -> None:
    """Conditions of webhooks and the pause before a stop came with 1.30."""
    done = helm("template", "kqueue", str(CHART), "--kube-version", "1.29")

    assert "requires kubeVersion: >=1.30" in done.stderr


def test_definitions_are_ours_and_outlive_the_release() -> None:
    """As in config/crd, and with the word that keeps Helm from deleting them."""
    made = [o for o in objects() if o["kind"] == "CustomResourceDefinition"]
    policies = {o["metadata"].pop("annotations")["helm.sh/resource-policy"] for o in made}
    labels = {o["metadata"].pop("labels")["app.kubernetes.io/name"] for o in made}
    ours = [crd for path in CRDS.glob("*.yaml") for crd in documents(path.read_text())]

    assert (policies, labels) == ({"keep"}, {"kqueue"})
    assert sorted(made, key=lambda o: str(o["metadata"]["name"])) == sorted(ours, key=lambda o: o["metadata"]["name"])


@pytest.mark.parametrize("case", CASES)
def test_the_configuration_is_one_that_the_processes_take(case: str) -> None:
    """In the release's namespace; nothing in it is without effect."""
    read = parse(configuration(objects(CASES[case])), source="test")

    assert (read.namespace, read.warnings) == ("kueue-system", ())
    assert read.internal_cert_management.enable is (case == "default" or case == "everything")


def test_the_chart_knows_every_section_of_the_configuration() -> None:
    """A new one is either the user's or the chart's to fill in."""
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    listed = {
        word for found in re.findall(r"\$(?:known|filled) := list ([^}]*?) -}}", helpers) for word in found.split()
    }

    assert {word.strip('"') for word in listed} - {"apiVersion", "kind"} == {
        field.alias or name for name, field in Configuration.model_fields.items()
    }


def test_the_schema_knows_every_framework() -> None:
    """And no other."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    integrations = schema["properties"]["configuration"]["properties"]["integrations"]

    assert integrations["properties"]["frameworks"]["items"]["enum"] == [*FRAMEWORKS, *GANG_DIALECTS]


def test_the_schema_knows_the_settings_of_cluster_profiles() -> None:
    """And no other; what it takes, the processes take."""
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["configuration"]["properties"]
    shown = schema["multiKueue"]["properties"]["clusterProfile"]
    program = shown["properties"]["accessProviders"]["items"]["properties"]["execConfig"]
    full = profiles(args=["a"], env=[{"name": "A", "value": "b"}], installHint="x", provideClusterInfo=True)

    for model, part in ((ClusterProfile, shown), (ExecConfig, program)):
        assert set(part["properties"]) == {field.alias or name for name, field in model.model_fields.items()}
    read = parse(configuration(objects(full)), source="test")
    assert read.multi_kueue.cluster_profile is not None
    assert read.multi_kueue.cluster_profile.access_providers[0].exec_config.args == ("a",)


def granted(role: Object) -> dict[tuple[str, str], set[str]]:
    """(group, resource) to verbs."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            verbs.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return verbs


@pytest.mark.parametrize("process", ["controller", "webhook"])
def test_every_owner_that_is_followed_may_be_read(process: str) -> None:
    """A review that may not look its owner up refuses the creation."""
    made = objects(EVERYTHING)
    known = ancestry.owner_kinds((), EVERYTHING["configuration"]["integrations"]["externalFrameworks"])
    role = granted(one(made, "ClusterRole", f"kqueue-{process}"))

    for owner in known.values():
        assert "get" in role[owner.gvk.group, owner.resource], owner
    assert "get" in role["train.example.com", "trains"]


@pytest.mark.parametrize("manages", [False, True])
def test_nodes_may_be_patched_only_where_taints_are_managed(manages: bool) -> None:
    """`nodeClasses.manageTaints`, G2.18."""
    made = objects({"configuration": {"nodeClasses": {"manageTaints": True}}} if manages else {})
    rights = granted(one(made, "ClusterRole", "kqueue-controller"))["", "nodes"]

    assert rights == ({"list", "watch", "get", "patch"} if manages else {"list", "watch"})


MAPPED = {"resources": {"deviceClassMappings": [{"name": "gpus", "deviceClassNames": ["gpu"]}]}}
NO_DEVICES = {
    "KueueDRAIntegration": False,
    "KueueDRAIntegrationExtendedResource": False,
    "KueueDRAIntegrationPartitionableDevices": False,
}


@pytest.mark.parametrize(
    ("configuration", "reads"),
    [
        pytest.param({}, False, id="no-mapping"),
        pytest.param(MAPPED, True, id="mapping"),
        pytest.param({**MAPPED, "featureGates": NO_DEVICES}, False, id="gate-off"),
        pytest.param({**MAPPED, "featureGates": {"AllBeta": False}}, False, id="all-beta-off"),
    ],
)
def test_devices_are_read_only_where_they_count(configuration: dict[str, Any], reads: bool) -> None:
    """`resources.deviceClassMappings` with gate KueueDRAIntegration."""
    rights = granted(one(objects({"configuration": configuration}), "ClusterRole", "kqueue-controller"))

    for kind in ("resourceclaimtemplates", "resourceclaims", "deviceclasses", "resourceslices"):
        assert rights.get(("resource.k8s.io", kind), set()) == ({"list", "watch"} if reads else set())


@pytest.mark.parametrize("respects", [False, True])
def test_budgets_are_read_only_where_preemption_respects_them(respects: bool) -> None:
    """`preemption.respectDisruptionBudgets`, G5.22."""
    made = objects({"configuration": {"preemption": {"respectDisruptionBudgets": True}}} if respects else {})
    rights = granted(one(made, "ClusterRole", "kqueue-controller"))

    assert rights.get(("policy", "poddisruptionbudgets"), set()) == ({"list", "watch"} if respects else set())


@pytest.mark.parametrize(
    ("configuration", "requests"),
    [
        pytest.param({}, True, id="by default"),
        pytest.param({"admissionChecks": None}, True, id="values of an older chart"),
        pytest.param({"admissionChecks": {"controllers": []}}, False, id="no controller"),
    ],
)
def test_nodes_are_requested_only_where_the_controller_of_the_check_runs(configuration: Object, requests: bool) -> None:
    """`admissionChecks.controllers`: otherwise no right is given for it."""
    rights = granted(one(objects({"configuration": configuration}), "ClusterRole", "kqueue-controller"))
    found = {
        kind: rights.get(kind, set())
        for kind in (
            ("autoscaling.x-k8s.io", "provisioningrequests"),
            ("", "podtemplates"),
            ("kueue.x-k8s.io", "provisioningrequestconfigs"),
        )
    }

    want = [
        {"get", "list", "watch", "create", "delete"},
        {"get", "list", "watch", "create", "patch", "delete"},
        {"list", "watch"},
    ]
    assert list(found.values()) == (want if requests else [set()] * 3)


@pytest.mark.parametrize(
    ("configuration", "dispatches"),
    [
        pytest.param({}, False, id="by default"),
        pytest.param({"admissionChecks": {"controllers": ["kueue.x-k8s.io/multikueue"]}}, True, id="named"),
    ],
)
def test_worker_clusters_are_reached_only_where_multikueue_is_named(configuration: Object, dispatches: bool) -> None:
    """Secrets are read in the namespace of the release alone; jobs get the status of their copies."""
    declared = {"integrations": {"declaredKinds": [{"apiVersion": "example.com/v1", "kind": "Train"}]}}
    made = objects({"configuration": {**configuration, **declared}})
    rights = granted(one(made, "ClusterRole", "kqueue-controller"))
    roles = {each["metadata"]["name"]: granted(each) for each in made if each["kind"] == "Role"}

    assert rights.get(("kueue.x-k8s.io", "multikueueclusters"), set()) == ({"list", "watch"} if dispatches else set())
    sent = [row for row in FRAMEWORKS.values() if row.managed_by or row.sent_held]
    granted_to = {row.plural for row in sent if "patch" in rights.get((row.group, f"{row.plural}/status"), set())}
    always = {row.plural for row in sent if row.stop_writes_status}
    assert granted_to - always == ({row.plural for row in sent} - always if dispatches else set())
    assert ("patch" in rights.get(("example.com", "trains/status"), set())) == dispatches
    assert ("get" in roles.get("kqueue-worker-clusters", {}).get(("", "secrets"), set())) == dispatches


@pytest.mark.parametrize(
    ("gates", "reads"),
    [
        pytest.param({}, False, id="by default"),
        pytest.param({"MultiKueueClusterProfile": True}, True, id="switched on"),
        pytest.param({"AllAlpha": True}, True, id="with all alpha gates"),
        pytest.param({"AllAlpha": True, "MultiKueueClusterProfile": False}, False, id="with all but this"),
    ],
)
def test_cluster_profiles_are_read_only_where_their_gate_is_on(gates: Object, reads: bool) -> None:
    """In the namespace of the release alone."""
    named = {"admissionChecks": {"controllers": ["kueue.x-k8s.io/multikueue"]}, "featureGates": gates}
    made = objects({"configuration": named})
    roles = {each["metadata"]["name"]: granted(each) for each in made if each["kind"] == "Role"}

    found = roles["kqueue-worker-clusters"].get(("multicluster.x-k8s.io", "clusterprofiles"), set())
    assert found == ({"get"} if reads else set())


ON = {"featureGates": {"JointPlacement": True}}


@pytest.mark.parametrize(
    ("values", "metrics", "bandwidth"),
    [
        pytest.param({}, False, False, id="off"),
        pytest.param({"configuration": ON}, True, False, id="joint placement"),
        pytest.param({"featureGates": [{"name": "JointPlacement", "enabled": True}]}, True, False, id="in the list"),
        pytest.param({"configuration": {"featureGates": {"AllAlpha": True}}}, True, False, id="all gates"),
        pytest.param(
            {"configuration": {"featureGates": {"AllAlpha": True, "JointPlacement": False}}}, False, False, id="but it"
        ),
        pytest.param(
            {"configuration": {**ON, "joint": {"statistics": {"source": "none"}}}},
            False,
            False,
            id="nothing is measured",
        ),
        pytest.param(
            {"configuration": {**ON, "joint": {"statistics": {"bandwidthMetric": "bytes_in_use"}}}},
            *(True, True),
            id="with bandwidth",
        ),
    ],
)
def test_measured_use_is_read_only_with_joint_placement(values: Any, metrics: bool, bandwidth: bool) -> None:
    """J7.2."""
    rights = granted(one(objects(values), "ClusterRole", "kqueue-controller"))
    reads = {"get", "list"}
    for plural in ("nodes", "pods"):
        assert rights.get(("metrics.k8s.io", plural), set()) == (reads if metrics else set())
    found = rights.get(("custom.metrics.k8s.io", "nodes/bytes_in_use"), set())
    assert found == (reads if bandwidth else set())


@pytest.mark.parametrize(
    ("values", "plans"),
    [
        ({}, False),
        ({"featureGates": [{"name": "JointPlacement", "enabled": True}]}, True),
        ({"configuration": {"featureGates": {"AllAlpha": True}}}, True),
        ({"configuration": {"featureGates": {"AllAlpha": True, "JointPlacement": False}}}, False),
    ],
)  # fmt: skip
def test_plans_of_moves_are_written_only_where_there_are_any(values: Object, plans: bool) -> None:
    rights = granted(one(objects(values), "ClusterRole", "kqueue-controller"))
    wanted = {"get", "list", "watch", "create", "patch", "delete"} if plans else set()

    assert rights.get(("kqueue.dev", "defragmentationplans"), set()) == wanted
    assert rights.get(("kqueue.dev", "defragmentationplans/status"), set()) == ({"patch"} if plans else set())
    assert rights.get(("policy", "poddisruptionbudgets"), set()) == ({"list", "watch"} if plans else set())


def test_tenants_may_neither_write_nor_read_reservations() -> None:
    """The roles of batch administrators have the rights, and no role of namespaces does."""
    roles = {
        o["metadata"]["name"]: {label for label, value in o["metadata"]["labels"].items() if value == "true"}
        for o in objects({})
        if o["kind"] == "ClusterRole" and any("reservations" in rule.get("resources", ()) for rule in o["rules"])
    }
    assert roles == {
        "kqueue-controller": set(),
        "kueue-reservation-editor-role": {"rbac.kueue.x-k8s.io/batch-admin"},
        "kueue-reservation-viewer-role": {"rbac.kueue.x-k8s.io/batch-admin"},
    }
    controller = granted(one(objects({}), "ClusterRole", "kqueue-controller"))
    assert controller["kqueue.dev", "reservations"] == {"get", "list", "watch", "delete"}
    assert controller["kqueue.dev", "reservations/status"] == {"patch"}


def test_nobody_may_do_everything_or_read_secrets_of_others() -> None:
    """No star in any rule; Secrets in the own namespace only, and there by name."""
    made = objects(EVERYTHING)
    rules = [(o, rule) for o in made if o["kind"] in ("Role", "ClusterRole") for rule in o.get("rules") or ()]
    starred = [o["metadata"]["name"] for o, rule in rules if any("*" in values for values in rule.values())]
    secrets = [(o["kind"], rule) for o, rule in rules if "secrets" in rule.get("resources", ())]

    assert starred == []
    assert {kind for kind, _rule in secrets} == {"Role"}
    assert all(rule.get("resourceNames") or rule["verbs"] == ["create"] for _kind, rule in secrets)


def test_the_webhooks_may_change_two_configurations_and_create_none() -> None:
    """The chart makes both, empty; Helm's merge leaves alone what it has never written."""
    made = objects({})
    rules = one(made, "ClusterRole", "kqueue-webhook")["rules"]
    allowed = [rule for rule in rules if "admissionregistration.k8s.io" in rule["apiGroups"]]
    kept = [o for o in made if o["kind"].endswith("WebhookConfiguration")]

    assert [(rule["verbs"], len(rule["resourceNames"])) for rule in allowed] == [(["get", "patch"], 1)] * 2
    assert {o["metadata"]["name"] for o in kept} == {MUTATING_NAME, VALIDATING_NAME}
    assert all(is_ours(o["metadata"]) and "webhooks" not in o for o in kept)


def test_the_conversion_is_written_in_five_definitions_only() -> None:
    """By name, by the webhooks and by the removal; the chart names the Service of its namespace, and no authority."""
    made = objects({})
    converted = {o["metadata"]["name"]: o["spec"]["conversion"] for o in made if "conversion" in o.get("spec", {})}
    roles = [one(made, "ClusterRole", f"kqueue-{role}")["rules"] for role in ("webhook", "uninstall")]
    allowed = [rule for rules in roles for rule in rules if "apiextensions.k8s.io" in rule["apiGroups"]]
    own = objects({"webhook": {"register": False}, "crds": {"conversionCABundle": "QUJD"}})
    told = [o["spec"]["conversion"]["webhook"]["clientConfig"] for o in own if "conversion" in o.get("spec", {})]

    assert [(rule["verbs"], set(rule["resourceNames"])) for rule in allowed] == [(["get", "patch"], set(converted))] * 2
    assert all("caBundle" not in each["webhook"]["clientConfig"] for each in converted.values())
    assert {each["webhook"]["clientConfig"]["service"]["namespace"] for each in converted.values()} == {NAMESPACE}
    assert [each["caBundle"] for each in told] == ["QUJD"] * 5


def test_whoever_manages_the_webhook_configurations_gets_no_rights_for_ours() -> None:
    """No object, no right, and the processes are told."""
    made = objects({"webhook": {"register": False}})
    rules = one(made, "ClusterRole", "kqueue-webhook")["rules"]
    written = yaml.safe_load(one(made, "ConfigMap", "kqueue-configuration")["data"]["config.yaml"])

    assert not any(o["kind"].endswith("WebhookConfiguration") for o in made)
    assert not any("admissionregistration.k8s.io" in rule["apiGroups"] for rule in rules)
    assert written["webhook"] == {"registerWebhooks": False}


def test_the_network_is_closed_but_for_what_is_served_and_asked() -> None:
    """By default; every port that is let in is one that a pod has, and out go DNS and the API server only."""
    made = objects({})
    spec = one(made, "NetworkPolicy", "kqueue")["spec"]
    pods = [o["spec"]["template"]["spec"] for o in made if o["kind"] == "Deployment"]
    ports = {port["name"] for pod in pods for c in pod["containers"] for port in c["ports"]}
    more = {"to": [{"namespaceSelector": {}}], "ports": [{"port": 4318, "protocol": "TCP"}]}
    wider = one(objects({"networkPolicy": {"egress": [more]}}), "NetworkPolicy", "kqueue")["spec"]

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for rule in spec["ingress"] for port in rule["ports"]} == ports
    assert [sorted(port["port"] for port in rule["ports"]) for rule in spec["egress"]] == [[53, 53, 443, 6443]]
    assert wider["egress"] == [*spec["egress"], more]


def test_rights_follow_the_frameworks() -> None:
    """Where only Jobs are queued nobody may delete Jobs or touch JobSets; pods without quota are ended everywhere."""
    only_jobs = {"configuration": {"integrations": {"frameworks": ["batch/job"]}}}
    few = granted(one(objects(only_jobs), "ClusterRole", "kqueue-controller"))
    many = granted(one(objects(EVERYTHING), "ClusterRole", "kqueue-controller"))

    assert ("delete" in few["", "pods"], "delete" in few["batch", "jobs"]) == (True, False)
    assert few["jobset.x-k8s.io", "jobsets"] == {"get", "list"}
    assert {"delete", "patch", "watch"} <= many["jobset.x-k8s.io", "jobsets"] & many["train.example.com", "trains"]


@pytest.mark.parametrize("framework", GANG_DIALECTS)
def test_rights_for_group_objects_follow_the_dialect(framework: str) -> None:
    """G2.18: the controller reads them, and writes their status unless kube-scheduler owns it; webhooks read them."""
    made = objects({"configuration": {"integrations": {"frameworks": [framework]}}})
    roles = {who: granted(one(made, "ClusterRole", f"kqueue-{who}")) for who in ("controller", "webhook")}
    group_objects = {
        (kind.group, dialect.plural): (name, dialect)
        for name in GANG_DIALECTS
        for dialect in [dialect_of(name)]
        for kind in dialect.kinds[:1]
    }

    for (group, plural), (name, dialect) in group_objects.items():
        allowed = roles["controller"].get((group, plural), set())
        assert ({"get", "list", "watch"} <= allowed) is (name == framework)
        assert roles["webhook"].get((group, plural), set()) == ({"get"} if name == framework else set())
        status = roles["controller"].get((group, f"{plural}/status"), set())
        assert ("patch" in status) is (name == framework and dialect.framework != "scheduling.k8s.io/podgroup")


def test_users_may_make_group_objects_as_they_may_make_jobs() -> None:
    """G4.24: in the groups of all dialects, whichever is on."""
    made = objects()
    for name in GANG_DIALECTS:
        for kind in dialect_of(name).kinds[:1]:
            job, group = (one(made, "ClusterRole", f"kueue-{each}-editor-role") for each in ("job", kind.kind.lower()))

            assert group["rules"][0]["verbs"] == job["rules"][0]["verbs"]
            assert kind.group in group["rules"][0]["apiGroups"]
            assert {key for key in group["metadata"]["labels"] if "batch-" in key} == {
                key for key in job["metadata"]["labels"] if "batch-" in key
            }


def test_the_definition_of_podgroups_is_optional() -> None:
    """G3.P1: other projects bring it, too."""

    def defined(values: Object) -> set[str]:
        return {o["metadata"]["name"] for o in objects(values) if o["kind"] == "CustomResourceDefinition"}

    assert defined({"crds": {"podGroup": True}}) - defined({}) == {"podgroups.scheduling.x-k8s.io"}
    workspace = {"batchprocesses.workspace.brainpp.cn"}
    assert defined({"crds": {"workspaceBatchProcess": True}}) - defined({}) == workspace


def test_labelled_objects_of_every_kind_may_be_counted() -> None:
    """Whichever of them is switched off."""
    role = granted(one(objects(), "ClusterRole", "kqueue-controller"))
    kinds = kinds_not_queued(Integrations(frameworks=()))

    assert len(kinds) > 10
    assert [k.gvk.kind for k in kinds if "list" not in role.get((k.gvk.group, k.resource), set())] == []


def hardened(pod: Object) -> list[Any]:
    """What matters of a pod's security."""
    container = pod["containers"][0]["securityContext"]
    return [
        pod["securityContext"]["runAsNonRoot"],
        pod["securityContext"]["seccompProfile"]["type"],
        container["readOnlyRootFilesystem"],
        container["allowPrivilegeEscalation"],
        container["capabilities"],
    ]


async def test_the_visibility_api_is_reached_where_it_is_served() -> None:
    """An APIService for each group and version that a controller answers, and none where its gate is off."""
    clock = FakeClock()
    async with Client("http://127.0.0.1:1", clock=clock) as client:
        operator = Operator(
            client=client,
            config=Configuration(),
            timings=Timings(),
            clock=clock,
            metrics=Metrics(clock=clock),
            checks=Checks(),
        )
        served = {f"{version}.{group}" for group, version in catalog_of(operator).group_versions()}
    made, off = objects(), objects({"configuration": {"featureGates": {"VisibilityOnDemand": False}}})
    patched = [rule["resourceNames"] for rule in one(made, "ClusterRole", "kqueue-visibility")["rules"][-1:]]

    assert {o["metadata"]["name"] for o in made if o["kind"] == "APIService"} == served == set(*patched)
    assert [o["metadata"]["name"] for o in off if o["kind"] == "APIService" or "-visibility" in json.dumps(o)] == []


@pytest.mark.parametrize("case", CASES)
def test_every_argument_is_one_that_the_command_takes(case: str) -> None:
    """Parsed, not run."""
    command: Any = typer.main.get_command(build())
    pods = [o["spec"]["template"]["spec"] for o in objects(CASES[case]) if o["kind"] in ("Deployment", "Job")]

    for pod in pods:
        name, *arguments = pod["containers"][0]["args"]
        assert command.commands[name].make_context(name, arguments).params


def test_every_pod_runs_with_the_least_that_it_needs() -> None:
    """Deployments and Jobs alike."""
    pods = [o["spec"]["template"]["spec"] for o in objects() if o["kind"] in ("Deployment", "Job")]

    assert len(pods) >= 2
    assert all(hardened(pod) == [True, "RuntimeDefault", True, False, {"drop": ["ALL"]}] for pod in pods)
    assert all(set(pod["containers"][0]["resources"]) == {"requests", "limits"} for pod in pods)


def test_the_chart_has_the_version_of_the_package() -> None:
    """Both, because they are released together."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize(("settings", "there"), [({}, True), ({"runTimes": {"learn": False}}, False)])
def test_learned_run_times_need_rights_on_one_config_map(settings: Object, there: bool) -> None:
    made = objects({"configuration": settings})
    rules = [rule for o in made if o["kind"] == "Role" for rule in o["rules"] if rule["resources"] == ["configmaps"]]
    ours = [rule for rule in rules if rule.get("resourceNames") == [RUN_TIMES_CONFIG_MAP]]
    assert [sorted(rule["verbs"]) for rule in ours] == ([["create", "get", "patch"]] if there else [])
    assert any("run-times" in o["metadata"]["name"] for o in made if o["kind"] == "RoleBinding") is there
