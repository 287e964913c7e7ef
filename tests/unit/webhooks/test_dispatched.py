"""Jobs whose queue sends them to other clusters: the webhook names MultiKueue as their controller.

Ids such as `3.4` are items of the specification of the integrations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.config.declared import DeclaredKind
from kqueue.config.object_path import look, put
from kqueue.jobs.catalog import BY_FRAMEWORK, webhook_path
from kqueue.jobs.declared import Declared
from kqueue.jobs.managed_by import managed_by_path
from kqueue.jobs.patch import apply_merge_patch
from kqueue.kinds import FRAMEWORKS
from tests.unit.webhooks.test_surroundings import POLICY, QUEUE, Object, World, request
from webhooks.review import ReviewResult
from webhooks.routes import routes
from webhooks.surroundings import LookupFailedError

MANAGER = "kueue.x-k8s.io/multikueue"
FAR = replace(POLICY, dispatches=True)
JOB = "batch/job"


def owned(framework: str = JOB, *, queue: str = "far", by: str = "", **metadata: Any) -> Object:
    """An object of a kind; `by` is the controller that it names."""
    kind = BY_FRAMEWORK[framework]
    labels = {QUEUE: queue} if queue else {}
    made = {
        "apiVersion": kind.gvk.api_version,
        "kind": kind.gvk.kind,
        "metadata": {"name": "j", "labels": labels, **metadata},
        "spec": {},
    }
    return dict(put(made, managed_by_path(kind), by)) if by else made


async def reviewed(world: World, obj: Object, framework: str = JOB, policy: Any = FAR) -> ReviewResult:
    path = f"/mutate-{webhook_path(BY_FRAMEWORK[framework])}"
    handler = routes([framework], policy.switches, policy=policy, lookups=world)[path]
    return await handler(request(obj))


@pytest.mark.parametrize("framework", [name for name, row in FRAMEWORKS.items() if row.managed_by])
@pytest.mark.parametrize("names_own", [False, True])
async def test_a_job_of_a_queue_that_sends_jobs_away(framework: str, names_own: bool) -> None:
    """3.4: of every kind, where the field is empty or has the kind's own controller."""
    world, kind = World(), BY_FRAMEWORK[framework]
    world.far = {"far"}
    obj = owned(framework, by=kind.own_controller if names_own else "")

    result = await reviewed(world, obj, framework)

    assert not result.problems
    after = apply_merge_patch(obj, result.patch)
    assert look(after, managed_by_path(kind)) == MANAGER
    assert kind.is_suspended(after)


@pytest.mark.parametrize(
    ("obj", "policy", "far", "asked"),
    [
        pytest.param(owned(), FAR, set(), ["far far"], id="3.4 its queue runs jobs here"),
        pytest.param(owned(by="example.com/own"), FAR, {"far"}, [], id="3.4 its user named another controller"),
        pytest.param(owned(by=MANAGER), FAR, {"far"}, [], id="3.4 it names this one already"),
        pytest.param(owned(), POLICY, {"far"}, [], id="3.4 MultiKueue does not run here"),
        pytest.param(owned(queue=""), FAR, {"far"}, ["queue"], id="3.4 it is not queued"),
        pytest.param(owned(deletionTimestamp="2026-01-01T00:00:00Z"), FAR, {"far"}, [], id="3.3 it is being deleted"),
    ],
)
async def test_jobs_whose_controller_stays(obj: Object, policy: Any, far: set[str], asked: list[str]) -> None:
    """Nothing is looked up where the answer does not matter."""
    world = World()
    world.far = far

    result = await reviewed(world, obj, policy=policy)

    assert look(apply_merge_patch(obj, result.patch), ("spec", "managedBy")) == look(obj, ("spec", "managedBy"))
    assert world.asked == asked


@pytest.mark.parametrize("path", ["spec.run.by", None])
async def test_a_declared_kind_is_sent_away_by_its_declared_field(path: str | None) -> None:
    """3.4, with the gate of custom kinds: a kind without the field starts here."""
    told = {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "managedBy": path,
        "podSets": [{"template": "spec.engine"}],
        "succeeded": {"condition": "Arrived"},
        "ready": {"count": "status.ready"},
    }
    kind, world = Declared(DeclaredKind.model_validate(told)), World()
    world.far = {"far"}
    handlers = routes([], FAR.switches, policy=FAR, lookups=world, declared=[kind])
    obj: Object = {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "metadata": {"name": "ice", "labels": {QUEUE: "far"}},
        "spec": {"engine": {"spec": {"containers": [{"name": "c"}]}}},
    }

    after = apply_merge_patch(obj, (await handlers[f"/mutate-{webhook_path(kind)}"](request(obj))).patch)

    assert look(after, ("spec", "suspend")) is True
    assert look(after, ("spec", "run", "by")) == (MANAGER if path else None)


async def test_the_default_queue_sends_jobs_away_too() -> None:
    """3.1, 3.4: the queue that the webhook itself has named counts."""
    world = World()
    world.queues, world.far = ("ns",), {"default"}
    result = await reviewed(world, owned(queue=""))
    assert result.patch["spec"]["managedBy"] == MANAGER


async def test_a_job_whose_queue_cannot_be_read_is_refused() -> None:
    """It would start here, and could not be sent away any more."""
    world = World()
    world.fails = LookupFailedError("queue far: no answer")
    result = await reviewed(world, owned())
    assert result.fault is not None
    assert "queue far" in result.fault.sentence
