"""Writes to managed pods, on top of what other clients have written meanwhile."""

from __future__ import annotations

import pytest

from kqueue.controllers.resources import PODS
from kqueue.errors import ConflictError
from kqueue.jobs.switches import JobFeatures
from tests.unit.controllers.pod_world import Pods
from tests.unit.jobs.pods import make_pod


def changed_meanwhile(*, strict: bool) -> Pods:
    """A world whose pod another client has changed, and whose watch has not brought the change."""
    world = Pods(make_pod("p"), switches=JobFeatures(strict_finalizers=strict))
    world.client.change(PODS, "team/p", {"metadata": {"annotations": {"seen": "later"}}})
    return world


async def test_a_strict_writer_removes_the_finalizer_only_from_the_version_that_it_read() -> None:
    """The version that the decision was made on is not there any more."""
    world = changed_meanwhile(strict=True)
    pod = world.writes.newest("team/p")
    assert pod is not None

    with pytest.raises(ConflictError):
        await world.writes.let_go(pod)

    assert world.finalizer("p")


async def test_a_lenient_writer_removes_the_finalizer_from_any_version() -> None:
    """RemoveFinalizersWithStrictPatch is off."""
    world = changed_meanwhile(strict=False)
    pod = world.writes.newest("team/p")
    assert pod is not None

    assert await world.writes.let_go(pod)

    assert not world.finalizer("p")
