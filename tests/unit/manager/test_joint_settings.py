"""The section `joint` of the configuration in the form of rounds."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.config.joint import JointPlacementSettings
from kqueue.core.joint.movable import MoveLimits, MovePolicy
from kqueue.core.joint.settings import VictimChoice
from kqueue.manager.rules import round_settings


def settings(**rescheduling: Any) -> JointPlacementSettings:
    return JointPlacementSettings.model_validate({"rescheduling": rescheduling})


def test_the_defaults_propose_no_victims_and_look_at_moves() -> None:
    found = round_settings(JointPlacementSettings())
    assert found.joint.victims is VictimChoice.CYCLE
    assert found.joint.least_gain == 2_000
    assert found.moves == MoveLimits()


@pytest.mark.parametrize(
    ("migration", "policy"),
    [("Never", MovePolicy.NEVER), ("Propose", MovePolicy.PROPOSE), ("Auto", MovePolicy.PROPOSE)],
)
def test_victims_and_limits_of_moves_are_those_of_the_file(migration: str, policy: MovePolicy) -> None:
    given = settings(
        preemption="Joint",
        migration=migration,
        minGain=1_500,
        maxMovesPerHour=2,
        maxPodsPerHour=9,
        cooldown="2h",
        maxCheckpointAge="90s",
    )
    found = round_settings(given)
    assert (found.joint.victims, found.joint.least_gain) == (VictimChoice.JOINT, 1_500)
    assert found.moves == MoveLimits(migration=policy, checkpoint_age=90, cooldown=7200, moves=2, pods=9)
