"""The registry of starting gangs: leaders of flavors, and the order of rejections."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.state.gangs import Gangs, StartingGang
from tests.builders import START


def gang(name: str, scheduled: int = 0, quorum: int = 5, *, keeps: str = "default", **more: Any) -> StartingGang:
    given: dict[str, Any] = {"since": START, "uid": f"uid-{name}", "flavors": frozenset({"default"}), **more}
    return StartingGang(
        key=f"ns/f:{name}", workload=f"ns/{name}", scheduled=scheduled, quorum=quorum, keeps=keeps, until=START, **given
    )


def noted(*gangs: StartingGang) -> tuple[Gangs, list[str]]:
    """A registry of these gangs, and the flavors that lost their leader."""
    found, lost = Gangs(), list[str]()
    found.on_leader = lost.append
    for one in gangs:
        found.note(one)
    return found, lost


def leader(gangs: Gangs, flavor: str = "default") -> str:
    one = gangs.leaders.get(flavor)
    return one.workload.removeprefix("ns/") if one is not None else ""


@pytest.mark.parametrize(
    ("gangs", "want"),
    [
        pytest.param([gang("a", 4), gang("b", 2)], "a", id="the most complete one"),
        pytest.param([gang("a", 4, 100), gang("b", 2, 5)], "b", id="by share, not by number"),
        pytest.param([gang("a", 2), gang("b", 2, since=START - timedelta(days=1))], "b", id="then the older one"),
        pytest.param([gang("a", 2, uid="z"), gang("b", 2, uid="y")], "b", id="then the lower UID"),
        pytest.param([gang("a", 4, keeps=""), gang("b", 2)], "b", id="all members of the other find nodes"),
    ],
)
def test_the_leader_is_the_gang_closest_to_its_quorum(gangs: list[StartingGang], want: str) -> None:
    """G3.51: in any order of events."""
    assert leader(noted(*gangs)[0]) == want
    assert leader(noted(*reversed(gangs))[0]) == want


def test_a_flavor_is_told_of_when_its_leader_changes() -> None:
    """G3.53: not when a first leader appears, nor when the leader makes progress."""
    gangs, lost = noted(gang("a", 2), gang("b", 1), gang("a", 3))
    before = list(lost)
    gangs.note(gang("b", 4))
    changed = leader(gangs), list(lost)
    gangs.note(gang("b", 5, keeps=""))
    gangs.drop("ns/a")
    gangs.drop("ns/a")

    assert before == []
    assert changed == ("b", ["default"])
    assert lost == ["default"] * 3
    assert gangs.leaders == {}


def test_a_gang_keeps_one_flavor_at_a_time() -> None:
    """G7.9."""
    gangs, lost = noted(gang("a", 2), gang("a", 2, keeps="other"))
    assert (leader(gangs), leader(gangs, "other")) == ("", "a")
    assert lost == ["default"]


def test_the_least_complete_of_the_gangs_that_share_a_flavor_goes_first() -> None:
    """G3.47: also if it may not be rejected yet; one that stands elsewhere holds nobody back."""
    near, far = gang("near", 4, rejectable=START), gang("far", 2, rejectable=START)
    elsewhere = gang("elsewhere", 1, rejectable=START, flavors=frozenset({"other"}), keeps="other")
    later = gang("later", 1, rejectable=START + timedelta(seconds=5))
    gangs, _ = noted(near, far, elsewhere)
    assert gangs.rejected_before(near) == START
    assert gangs.rejected_before(far) is None
    gangs.note(later)
    assert gangs.rejected_before(far) == later.rejectable
    gangs.note_rejection("ns/far", START)
    assert gangs.last_rejection(frozenset({"default"})) == START
    assert gangs.last_rejection(frozenset({"other"})) is None
