"""`kqueue migrate check` on a cluster: each fault is found, and what is fine is left in peace."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kqueue.api import names
from kqueue.cli.app import run
from kqueue.config import load, parse
from kqueue.controllers.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, WORKLOADS
from kqueue.errors import ForbiddenError
from kqueue.jobs.ancestry import owner_kinds
from kqueue.operations.migration.cluster import judge_checks, judge_claims, judge_labelled, judge_writers, look
from kqueue.operations.migration.definitions import judge_definitions
from kqueue.operations.migration.findings import MigrationFinding
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.sandbox import Sandbox

JSON = dict[str, Any]
STATEFUL_SETS = ResourceType("apps", "v1", "statefulsets", "StatefulSet")
NEW, OLD = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def told(found: list[MigrationFinding]) -> list[tuple[str, str]]:
    """Level and field of each finding."""
    return [(finding.level.value, finding.field) for finding in found]


def definition(*versions: str, storage: str, stored: list[str]) -> JSON:
    """A CustomResourceDefinition of Kueue."""
    served = [{"name": v, "served": True, "storage": v == storage} for v in versions]
    return {
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": {"group": names.GROUP, "versions": served},
        "status": {"storedVersions": stored},
    }


CRD = "CustomResourceDefinition workloads.kueue.x-k8s.io"


@pytest.mark.parametrize(
    ("crd", "wanted"),
    [
        pytest.param(definition("v1beta2", storage="v1beta2", stored=["v1beta2"]), [], id="one version"),
        pytest.param(definition("v1beta1", "v1beta2", storage="v1beta2", stored=["v1beta2"]), [], id="as kqueue has it"),
        pytest.param(definition("v1beta1", "v1beta2", storage="v1beta2", stored=["v1beta1", "v1beta2"]),
                     [("note", f"{CRD} status.storedVersions")], id="v1beta1 is stored"),
        pytest.param(definition("v1beta1", storage="v1beta1", stored=["v1beta1"]),
                     [("note", f"{CRD} status.storedVersions")], id="an older Kueue"),
        pytest.param(definition("v1alpha1", "v1beta1", storage="v1beta1", stored=["v1alpha1", "v1beta1"]),
                     [("work", f"{CRD} status.storedVersions")], id="Kueue is too old"),
    ],
)  # fmt: skip
def test_versions_of_definitions(crd: JSON, wanted: list[tuple[str, str]]) -> None:
    """What the API server would refuse when kqueue's definitions come."""
    assert told(list(judge_definitions([crd]))) == wanted


def admission_check(controller: str, *, active: str = "True") -> JSON:
    """One named `check`."""
    conditions = [{"type": "Active", "status": active}]
    return {"metadata": {"name": "check"}, "spec": {"controllerName": controller}, "status": {"conditions": conditions}}


FIELDS = {"admissionChecks": ["check"]}, {"admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}}


@pytest.mark.parametrize("spec", FIELDS)
@pytest.mark.parametrize(
    ("check", "level"),
    [
        (admission_check(names.MULTIKUEUE_CONTROLLER), "work"),
        (admission_check(names.PROVISIONING_REQUEST_CONTROLLER), None),
        (admission_check("example.com/budget", active="False"), "work"),
        (admission_check("example.com/budget"), None),
    ],
)
def test_checks_without_a_controller(check: JSON, level: str | None, spec: JSON) -> None:
    """Work where a ClusterQueue names it, by the field of either version; else a note."""
    queue = {"metadata": {"name": "team"}, "spec": spec}
    running = [names.PROVISIONING_REQUEST_CONTROLLER]
    used, unused = list(judge_checks([check], [queue], running)), list(judge_checks([check], [], running))

    assert [finding.level.value for finding in used] == ([level] if level else [])
    assert [finding.level.value for finding in unused] == (["note"] if level else [])
    assert all("team" in finding.why for finding in used)


def test_a_controller_that_the_configuration_names_answers() -> None:
    check = admission_check(names.MULTIKUEUE_CONTROLLER)
    queue = {"metadata": {"name": "team"}, "spec": FIELDS[0]}

    assert list(judge_checks([check], [queue], [names.MULTIKUEUE_CONTROLLER])) == []


def workload(*, claims: bool, finished: bool = False) -> JSON:
    """A Workload of one pod set."""
    spec = {"containers": [], **({"resourceClaims": [{"name": "gpu"}]} if claims else {})}
    conditions = [{"type": "Finished", "status": "True"}] if finished else []
    return {
        "metadata": {"namespace": "team", "name": "job-a"},
        "spec": {"podSets": [{"template": {"spec": spec}}]},
        "status": {"conditions": conditions},
    }


def test_claims_of_jobs_that_have_not_finished() -> None:
    """Named by namespace and name."""
    (found,) = judge_claims([workload(claims=True), workload(claims=False)])

    assert (found.level.value, "team/job-a" in found.why) == ("work", True)
    assert list(judge_claims([workload(claims=True, finished=True), workload(claims=False)])) == []


def test_manifests_of_an_old_version() -> None:
    """By who has written fields of the object itself in it; status is a controller's."""
    entries = [
        {"manager": "kubectl", "apiVersion": OLD},
        {"manager": "kueue", "apiVersion": OLD, "subresource": "status"},
        {"manager": "helm", "apiVersion": NEW},
    ]
    (found,) = judge_writers("LocalQueue", [{"metadata": {"namespace": "a", "name": "q", "managedFields": entries}}])

    assert (found.level.value, found.field) == ("note", "LocalQueue apiVersion")
    assert found.why.startswith("kubectl has written 1 as v1beta1, which is deprecated")
    assert "a/q" in found.why


def test_manifests_of_a_version_that_is_not_served() -> None:
    """They cannot be applied to kqueue."""
    entries = [{"manager": "kubectl", "apiVersion": OLD.replace("v1beta1", "v1alpha1")}]
    (found,) = judge_writers("Cohort", [{"metadata": {"name": "all", "managedFields": entries}}])

    assert (found.level.value, "which kqueue does not serve" in found.why) == ("work", True)


def test_labelled_objects_of_kinds_that_are_not_queued() -> None:
    """Those that another object controls are that object's."""
    kinds = owner_kinds(())
    loose = {"metadata": {"namespace": "a", "name": "x"}}
    owned = {"metadata": {"namespace": "a", "name": "y", "ownerReferences": [{"controller": True}]}}
    (wrapper,) = judge_labelled(kinds["workload.codeflare.dev", "AppWrapper"], [loose, owned])
    (stateful,) = judge_labelled(kinds["apps", "StatefulSet"], [loose])

    assert "1 objects" in wrapper.why
    assert "add workload.codeflare.dev/appwrapper to configuration.integrations.frameworks" in wrapper.remedy
    assert "add statefulset to configuration.integrations.frameworks" in stateful.remedy
    assert list(judge_labelled(kinds["workload.codeflare.dev", "AppWrapper"], [owned])) == []


def check_object() -> JSON:
    return {"metadata": {"name": "check"}, "spec": {"controllerName": names.MULTIKUEUE_CONTROLLER}}


def stateful_set() -> JSON:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    metadata = {"name": "served", "namespace": "default", "labels": {names.QUEUE_NAME_LABEL: "main"}}
    return {
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "serviceName": "x", "template": template},
    }


async def test_a_cluster_is_looked_at_as_a_whole(client: Client) -> None:
    """Judged by what the configuration manages; kinds that are not installed are passed over."""
    assert [f for f in await look(client, load(None)) if f.level.value == "work"] == []
    await client.create(ADMISSION_CHECKS, check_object())
    rule = {"admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}}
    await client.create(CLUSTER_QUEUES, {"metadata": {"name": "team"}, "spec": rule})
    await client.create(STATEFUL_SETS, stateful_set(), "default")
    without = parse(f"{HEAD}integrations: {{frameworks: [batch/job]}}", source="test")
    serving = parse(f"{HEAD}integrations: {{frameworks: [batch/job, pod, statefulset]}}", source="test")
    check = ("work", "AdmissionCheck check spec.controllerName")
    label = ("work", f"StatefulSet metadata.labels[{names.QUEUE_NAME_LABEL}]")

    assert [f for f in told(await look(client, without)) if f[0] == "work"] == [check, label]
    assert [f for f in told(await look(client, serving)) if f[0] == "work"] == [check]


async def test_claims_are_a_finding_only_where_they_do_not_count(client: Client) -> None:
    [pod_set] = workload(claims=True)["spec"]["podSets"]
    pod_set["template"]["spec"]["containers"] = [{"name": "main", "image": "a"}]
    spec = {"podSets": [{"name": "main", "count": 1, **pod_set}]}
    await client.create(WORKLOADS, {"metadata": {"name": "claims"}, "spec": spec}, "default")
    mapped = f"{HEAD}resources: {{deviceClassMappings: [{{name: gpus, deviceClassNames: [gpu]}}]}}"
    claims = ("work", "Workload spec.podSets[].template.spec.resourceClaims")

    assert claims in told(await look(client, load(None)))
    assert claims not in told(await look(client, parse(mapped, source="test")))


async def test_what_may_not_be_read_is_a_finding(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is not over while a part of the cluster was not looked at."""
    listed = client.list_json

    async def refused(resource: ResourceType, *arguments: Any, **more: Any) -> Any:
        if resource == WORKLOADS:
            raise ForbiddenError("workloads is forbidden")
        return await listed(resource, *arguments, **more)

    monkeypatch.setattr(client, "list_json", refused)
    (found,) = [f for f in await look(client, load(None)) if f.level.value == "work"]

    assert (found.field, "was not looked at" in found.why) == ("Workload", True)


async def test_the_command_fails_while_something_needs_work(
    sandbox: Sandbox, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And passes when it is gone."""
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    config = tmp_path / "config.yaml"
    config.write_text(f"{HEAD}integrations: {{frameworks: [batch/job]}}\n")
    call = ["migrate", "check", "-o", "json", "--kubeconfig", str(tmp_path / "kubeconfig")]
    call += ["--live", "--config", str(config)]
    fine = await asyncio.to_thread(run, call)
    json.loads(capsys.readouterr().out)
    await client.create(STATEFUL_SETS, stateful_set(), "default")
    code = await asyncio.to_thread(run, call)
    report = json.loads(capsys.readouterr().out)

    assert (fine, code, report["ready"]) == (0, 1, False)
