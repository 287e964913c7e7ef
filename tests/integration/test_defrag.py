"""Stored plans on an API server: what it stores has the hash that was shown, and nothing else can be approved."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.defragmentation_plan import DefragmentationPlan
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.errors import ApiError
from kqueue.operations.defrag import storing
from kqueue.runtime.client import connect
from kqueue.state.defrag.document import plan_hash, plan_object
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.unit.cli.defrag_cluster import NOW, answered, cluster

Plane = ControlPlane | SandboxPlane


@pytest.mark.parametrize("consent", [{}, {"u": "Never"}])
async def test_a_plan_is_stored_approved_and_ended(either_plane: Plane, consent: dict[str, str]) -> None:
    made: dict[str, Any] = plan_object(answered(cluster(**consent)))
    name, digest = made["metadata"]["name"], made["status"]["hash"]
    async with await connect(either_plane.kubeconfig) as client:
        await storing.save(client, made)
        stored = await storing.plan_named(client, name)
        assert plan_hash(stored["spec"], stored["status"]) == digest
        assert DefragmentationPlan.read(stored).status.hash == digest
        if isinstance(either_plane, ControlPlane):
            with pytest.raises(ApiError, match="must be the hash"):
                await client.patch(DEFRAGMENTATION_PLANS, name, {"spec": {"approved": f"sha256:{'0' * 64}"}})
        approved = await storing.approve(client, name, digest, NOW)
        assert (approved["spec"]["approved"], approved["status"]["phase"]) == (digest, "Approved")
        ended = await storing.abort(client, name, NOW)
        assert ended["status"]["phase"] == "Aborted"
        await client.delete(DEFRAGMENTATION_PLANS, name)
