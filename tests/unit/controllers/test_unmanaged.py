"""Labelled objects of kinds that are switched off are counted, whatever the API server says of some kinds."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.config.policy import Integrations
from kqueue.controllers.unmanaged import UnmanagedCensus
from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.jobs.unmanaged import kinds_not_queued, names_of_loose, remedy
from kqueue.runtime.resources import ResourceType

DEFAULTS = ("batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset")


def kinds_of(*frameworks: str, **more: Any) -> set[str]:
    return {kind.gvk.kind for kind in kinds_not_queued(Integrations(frameworks=frameworks, **more))}


def test_the_kinds_of_the_charts_defaults_are_queued() -> None:
    built_in = {"Job", "JobSet", "Pod", "Deployment", "StatefulSet"}

    assert not kinds_of(*DEFAULTS) & built_in
    assert kinds_of("batch/job") & built_in == built_in - {"Job"}
    assert kinds_of("batch/job", "deployment") & built_in == {"JobSet", "StatefulSet"}


def test_kinds_that_another_controller_queues_are_left_out() -> None:
    assert {"RayJob", "AppWrapper"} <= kinds_of("batch/job")
    assert "RayJob" not in kinds_of("batch/job", external_frameworks=("RayJob.v1.ray.io",))


def made(name: str, *, controlled: bool = False) -> dict[str, Any]:
    owners = [{"kind": "ReplicaSet", "name": "r", "controller": True}] if controlled else []
    return {"metadata": {"namespace": "ns", "name": name, "ownerReferences": owners}}


def test_what_another_object_controls_is_not_counted() -> None:
    ended = made("c") | {"status": {"phase": "Succeeded"}}

    assert names_of_loose([made("a"), made("b", controlled=True), ended]) == ["ns/a"]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("JobSet", "add jobset.x-k8s.io/jobset to configuration.integrations.frameworks"),
        ("AppWrapper", "add workload.codeflare.dev/appwrapper to configuration.integrations.frameworks"),
    ],
)
def test_the_remedy_is_a_setting(kind: str, wanted: str) -> None:
    (gvk,) = [each.gvk for each in kinds_not_queued(Integrations(frameworks=("batch/job",))) if each.gvk.kind == kind]

    assert wanted in remedy(gvk)


class Server:
    """Lists what it was given; an error of a kind is raised."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    async def list_json(self, resource: ResourceType, *, label_selector: str, **_more: Any) -> list[dict[str, Any]]:
        assert label_selector == "kueue.x-k8s.io/queue-name"
        answer = self.found.get(resource.kind, NotFoundError("no such kind", status=404))
        if isinstance(answer, Exception):
            raise answer
        return list(answer)


async def test_each_kind_is_reported_and_one_that_may_not_be_listed_keeps_its_number() -> None:
    server, told = Server(), dict[str, int]()
    census = UnmanagedCensus(
        server,  # type: ignore[arg-type]
        kinds_not_queued(Integrations(frameworks=("batch/job",))),
        clock=FakeClock(),
        interval=300,
        report=told.__setitem__,
    )

    async def look() -> dict[str, int]:
        for kind in census._kinds:
            await census.look(kind)
        return dict(told)

    server.found = {"JobSet": [made("a"), made("b")], "Pod": [], "Deployment": [made("d")]}
    assert await look() == {"JobSet": 2, "Deployment": 1}
    server.found = {"JobSet": [], "Deployment": ForbiddenError("no", status=403)}
    assert await look() == {"JobSet": 0, "Deployment": 1}


async def test_a_missing_right_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Every look would say the same."""
    server = Server()
    server.found = {"JobSet": ForbiddenError("no", status=403)}
    kinds = [kind for kind in kinds_not_queued(Integrations(frameworks=("batch/job",))) if kind.gvk.kind == "JobSet"]
    census = UnmanagedCensus(
        server,  # type: ignore[arg-type]
        kinds,
        clock=FakeClock(),
        interval=300,
        report=lambda _kind, _number: None,
    )
    await census.look(kinds[0])
    await census.look(kinds[0])

    assert capsys.readouterr().out.count("labelled objects may not be listed") == 1
