"""A short fault campaign, so that the tool itself stays whole; `make chaos` runs the long one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Plan
from tests.chaos.faults import FAULTS
from tests.integration.controlplane.plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]


async def test_three_losses_of_the_lead_leave_no_breach(plane: ControlPlane, tmp_path: Path) -> None:
    """Each kind of fault that cannot fail to cost the lead does so; all Jobs end, and the judge has seen them."""
    told: list[tuple[str, object]] = []
    plan = Plan(losses=3, kinds=["kill", "stop", "regain"], seed=1, backlog=8, between=(0.5, 1.0), rest_every=3)
    campaign = Campaign(plan, plane.cluster, tmp_path, lambda what, facts: told.append((what, facts)))
    outcome = await campaign.run()

    assert outcome.breaches == [], json.dumps([str(each) for each in outcome.breaches], indent=1)
    assert [line.number for line in outcome.lines] == [1, 2, 3]
    assert {line.kind for line in outcome.lines} == {"kill", "stop", "regain"} <= set(FAULTS)
    assert all(line.lost and 0 < line.seconds < 40 for line in outcome.lines)
    assert outcome.totals.completed >= 8
    assert outcome.totals.completed == outcome.rests[-1]["completed"]
    assert {what for what, _ in told} == {"loss", "rest"}
