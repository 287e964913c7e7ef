"""The check of a planner's answer against the hosts that it was asked about."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.core.hints import PlanHint
from kqueue.core.joint.host_room import HostRoom
from tests.builders import make_head
from tests.unit.core.joint.worlds import racks, world_of


def hint(*places: tuple[tuple[str, ...], int], pod_set: str = "main", flavor: str = "gpu") -> PlanHint:
    """A hint for one pod set."""
    return PlanHint(flavors={pod_set: {"nvidia.com/gpu": flavor}}, places={pod_set: list(places)}, plan="p")


def hosts() -> list[tuple[str, ...]]:
    """The paths of all hosts."""
    return list(racks(2, 2).tree.paths)


@pytest.mark.mechanism("2.29")
@pytest.mark.parametrize(
    ("made", "problem"),
    [
        pytest.param(lambda a, b: [hint((a, 1)), hint((b, 1))], "", id="a host each"),
        pytest.param(lambda a, b: [hint((a, 1)), hint((a, 1))], "more than is free", id="one host for both"),
        pytest.param(lambda a, b: [hint((a, 2))], "more than is free", id="two pods on one host"),
        pytest.param(lambda a, b: [hint(((*a[:-1], "none"), 1))], "does not have", id="no such host"),
        pytest.param(lambda a, b: [hint((a, 0))], "does not have", id="no pods"),
        pytest.param(lambda a, b: [hint((a, 1), pod_set="other")], "no pod set other", id="no such pod set"),
        pytest.param(lambda a, b: [hint((a, 1), flavor="none")], "no pod set main", id="no such flavor"),
        pytest.param(lambda a, b: [PlanHint(flavors={}, places={}, plan="p")], "", id="without places"),
    ],
)
def test_an_answer_that_overdraws_hosts_is_found(made: Any, problem: str) -> None:
    room = HostRoom(world_of(racks(2, 2)).topologies)
    first, second = hosts()[:2]
    told = [room.take(make_head(f"w{n}", pods=2), one) for n, one in enumerate(made(first, second))]
    assert problem in told[-1]
    assert bool(told[-1]) is bool(problem)
    assert not any(told[:-1])
