"""`kqueue doctor --before-install`: what would make an installation fail or have two managers, and what is fine."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.cli.doctor import _STEPS, _Scope
from kqueue.clock import FakeClock
from kqueue.config import load, parse
from kqueue.controllers.resources import NAMESPACES
from kqueue.manager.registration import CONFIGURATIONS
from kqueue.operations.checkup.before import BeforeInstall
from kqueue.operations.checkup.canary import Plan
from kqueue.operations.checkup.values import StepStatus
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from webhooks.configuration import KEPT_BY, VALIDATING_NAME

JSON = dict[str, Any]
DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment")
_MUTATING, VALIDATING = CONFIGURATIONS.values()


def deployment(replicas: int) -> JSON:
    """Kueue's own."""
    labels = {"app": "kueue"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "kueue-controller-manager", "namespace": "kueue-system"}, "spec": spec}


@pytest.mark.parametrize(("only", "wanted"), [((), list(_STEPS)), (("webhooks",), ["api-server", "webhooks"])])
async def test_steps_that_are_chosen(client: Client, only: tuple[str, ...], wanted: list[str]) -> None:
    """The API server is always asked first; each name leads to the check of that name."""
    found = _Scope(only=only).checks(
        client, "default", Plan(namespace="", queue=""), configuration=load(None), clock=FakeClock()
    )

    assert [name for name, _check in found] == wanted
    assert [check.__name__ for _name, check in found] == [name.replace("-", "_") for name in wanted]


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("v1.29.9", StepStatus.FAILED),
        ("v1.30.0", StepStatus.OK),
        ("v1.36.3+k3s1", StepStatus.OK),
        ("odd", StepStatus.OK),
    ],
)
async def test_an_api_server_that_is_too_old(
    client: Client, version: str, status: StepStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Chart.yaml says."""

    async def said() -> JSON:
        return {"gitVersion": version}

    monkeypatch.setattr(client, "version", said)

    assert (await BeforeInstall(client, load(None)).api_server()).status is status


async def test_definitions_that_the_api_server_would_not_replace(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored in a version that no kqueue has; those of this kqueue are fine."""
    before = BeforeInstall(client, load(None))
    fine = await before.definitions()
    get = client.get_json

    async def old(resource: ResourceType, name: str, *arguments: Any, **more: Any) -> JSON:
        found = await get(resource, name, *arguments, **more)
        if name == "workloads.kueue.x-k8s.io":
            found["status"]["storedVersions"] = ["v1alpha1", "v1beta1"]
        return found

    monkeypatch.setattr(client, "get_json", old)
    bad = await before.definitions()

    assert fine.status is StepStatus.OK
    assert bad.status is StepStatus.FAILED
    assert "upgrade Kueue" in bad.remedy
    assert [line.partition(":")[0] for line in bad.details] == [
        "CustomResourceDefinition workloads.kueue.x-k8s.io status.storedVersions"
    ]


@pytest.mark.parametrize(("replicas", "status"), [(1, StepStatus.FAILED), (0, StepStatus.OK)])
async def test_kueue_that_still_runs(client: Client, replicas: int, status: StepStatus) -> None:
    """Scaled to 0 it is stopped."""
    await client.create(NAMESPACES, {"metadata": {"name": "kueue-system"}})
    await client.create(DEPLOYMENTS, deployment(replicas), "kueue-system")
    found = await BeforeInstall(client, load(None)).other_manager()

    assert found.status is status
    assert replicas == 0 or "scale deployment kueue-controller-manager --replicas 0" in found.remedy


@pytest.mark.parametrize(("labels", "status"), [({}, StepStatus.FAILED), ({KEPT_BY: "kqueue"}, StepStatus.OK)])
async def test_webhook_configurations_of_kueue_that_are_left(
    client: Client, labels: dict[str, str], status: StepStatus
) -> None:
    """Those of an earlier kqueue are ours; with webhook.register=false they are not looked at."""
    await client.create(VALIDATING, {"metadata": {"name": VALIDATING_NAME, "labels": labels}})
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    without = parse(f"{head}webhook: {{registerWebhooks: false}}", source="test")
    found = await BeforeInstall(client, load(None)).other_manager()

    assert found.status is status
    assert status is StepStatus.OK or found.remedy.endswith(f"validatingwebhookconfiguration {VALIDATING_NAME}")
    assert (await BeforeInstall(client, without).other_manager()).status is StepStatus.OK


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--before-install", "--queue", "main"], "leave --queue and --only out"),
        (["--before-install", "--only", "kinds"], "leave --queue and --only out"),
        (["--only", "kind"], "no such step; did you mean kinds?"),
    ],
)
def test_wrong_calls_are_refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, before anything is asked."""
    assert run(["doctor", *arguments]) == 2
    assert words in capsys.readouterr().err
