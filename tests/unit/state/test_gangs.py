"""The registry of starting gangs: leaders of flavors, and the order of rejections."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    gangs.give_time(far, START)
    assert gangs.last_rejection(frozenset({"default"})) == START
    assert gangs.last_rejection(frozenset({"other"})) is None


class PlainGangs:
    """The same answers by looking at all gangs each time."""

    def __init__(self) -> None:
        self.all: dict[str, StartingGang] = {}

    def leader(self, flavor: str) -> str | None:
        found = [one for one in self.all.values() if one.keeps == flavor]
        return min(found, key=lambda one: one.rank).workload if found else None

    def rejected_before(self, one: StartingGang) -> datetime | None:
        others = [other for other in self.all.values() if other.workload != one.workload and other.rank > one.rank]
        beside = [other.rejectable for other in others if other.flavors & one.flavors]
        return max((at for at in beside if at is not None), default=None)


FLAVORS = ("", "a", "b")
NOTES = st.builds(
    lambda name, scheduled, keeps, flavors, rejectable: gang(
        name,
        scheduled,
        keeps=keeps,
        uid="same",
        flavors=flavors,
        rejectable=None if rejectable is None else START + timedelta(seconds=rejectable),
    ),
    name=st.sampled_from("stuvwxyz"),
    scheduled=st.integers(0, 4),
    keeps=st.sampled_from(FLAVORS),
    flavors=st.frozensets(st.sampled_from(FLAVORS[1:]), min_size=1),
    rejectable=st.none() | st.integers(0, 5),
)


@given(st.lists(st.tuples(NOTES, st.booleans()), max_size=40))
def test_ranks_give_the_answers_of_a_look_at_all_gangs(events: list[tuple[StartingGang, bool]]) -> None:
    """Leaders, their changes and the order of rejections, after each note and each end."""
    gangs, plain, lost = Gangs(), PlainGangs(), list[str]()
    gangs.on_leader = lost.append
    for one, ends in events:
        before = {flavor: plain.leader(flavor) for flavor in FLAVORS[1:]}
        lost.clear()
        if ends:
            gangs.drop(one.workload)
            plain.all.pop(one.workload, None)
        else:
            gangs.note(one)
            plain.all[one.workload] = one
        now = {flavor: plain.leader(flavor) for flavor in FLAVORS[1:]}
        assert {flavor: found.workload for flavor, found in gangs.leaders.items()} == {
            flavor: workload for flavor, workload in now.items() if workload is not None
        }
        assert sorted(lost) == [flavor for flavor in now if before[flavor] not in (None, now[flavor])]
        answers = [(gangs.rejected_before(each), plain.rejected_before(each)) for each in plain.all.values()]
        assert all(found == wanted for found, wanted in answers), answers


def compared(gangs: int) -> int:
    """The comparisons of ranks that one event makes among so many gangs that start and lack nodes."""
    count = 0

    class Counted(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            nonlocal count
            count += 1
            return str.__lt__(self, other)

    found, _ = noted(*(gang(f"{index:05}", 1, uid=Counted(f"{index:05}"), rejectable=START) for index in range(gangs)))
    count = 0
    found.note(gang("00000", 1, uid=Counted("zzz"), rejectable=START))
    return count


def test_an_event_of_a_gang_compares_it_with_few_of_a_thousand() -> None:
    """Notes of a crowd that starts at once do not look at the whole crowd each time."""
    assert 0 < compared(1_000) <= 100
