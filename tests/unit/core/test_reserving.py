"""Reservations as values: stages, the choice of domains, and conditions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kqueue.core.reserving import (
    DomainCandidate,
    DomainOccupant,
    EndSource,
    ReservationProblem,
    ReservationRefusal,
    ReservationStage,
    ReservedTime,
    choose_domains,
    verdicts,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return NOW + timedelta(minutes=minutes)


def reserved(begins: int = 60, ends: int = 120, drain_from: int | None = None) -> ReservedTime:
    drained = at(drain_from) if drain_from is not None else None
    return ReservedTime(begins=at(begins), ends=at(ends), drain_from=drained)


def occupant(
    key: str, ends: int | None = None, *, source: EndSource = EndSource.PROMISED, loses: int = 0
) -> DomainOccupant:
    when = at(ends) if ends is not None else None
    return DomainOccupant(key=key, uid=key, queue="q", pods=1, ends=when, source=source, loses=loses)


@pytest.mark.parametrize(
    ("time", "stage", "next_change"),
    [
        pytest.param(reserved(), ReservationStage.DRAINING, 60, id="it drains from its creation on"),
        pytest.param(reserved(drain_from=30), ReservationStage.WAITING, 30, id="it waits until drainFrom"),
        pytest.param(reserved(drain_from=0), ReservationStage.DRAINING, 60, id="drainFrom is reached"),
        pytest.param(reserved(begins=0), ReservationStage.OPEN, 120, id="from is reached"),
        pytest.param(reserved(begins=-60, ends=0), ReservationStage.ENDED, None, id="to is reached"),
        pytest.param(
            reserved(begins=60, ends=60), ReservationStage.ENDED, None, id="a time that ends as it begins is over"
        ),
        pytest.param(
            reserved(begins=60, ends=30), ReservationStage.ENDED, None, id="a time that ends before it begins is over"
        ),
    ],
)
def test_the_stage_follows_from_the_time(time: ReservedTime, stage: ReservationStage, next_change: int | None) -> None:
    assert time.stage(NOW) is stage
    assert time.next_change(NOW) == (at(next_change) if next_change is not None else None)


@pytest.mark.parametrize(
    ("begins", "ends", "overlaps"),
    [
        pytest.param(0, 60, False, id="ends as the other begins"),
        pytest.param(120, 180, False, id="begins as the other ends"),
        pytest.param(0, 61, True, id="ends after the other has begun"),
        pytest.param(70, 80, True, id="is within the other"),
    ],
)
def test_times_overlap_where_both_are_open(begins: int, ends: int, overlaps: bool) -> None:
    assert reserved(begins, ends).overlaps(reserved()) is overlaps
    assert reserved().overlaps(reserved(begins, ends)) is overlaps


@pytest.mark.parametrize(
    ("one", "late"),
    [
        pytest.param(occupant("w", 60), False, id="ends as it begins"),
        pytest.param(occupant("w", 61), True, id="ends after it begins"),
        pytest.param(occupant("w"), True, id="an unknown end is late"),
        pytest.param(occupant("w", source=EndSource.EVICTED), False, id="is being evicted"),
    ],
)
def test_a_workload_is_late_unless_it_is_known_to_end(one: DomainOccupant, late: bool) -> None:
    assert one.is_late(at(60)) is late


@pytest.mark.parametrize(
    ("occupants", "chosen"),
    [
        pytest.param({"a": [occupant("w")], "b": []}, ("b",), id="an empty domain first"),
        pytest.param(
            {"a": [occupant("w", loses=50)], "b": [occupant("v", loses=40)]}, ("b",), id="the least loss of work"
        ),
        pytest.param(
            {"a": [occupant("w", 50, loses=900)], "b": [occupant("v", loses=1)]},
            ("a",),
            id="workloads that end in time lose nothing",
        ),
        pytest.param({"a": [occupant("w", 50)], "b": [occupant("v", 40)]}, ("b",), id="the earliest drained"),
        pytest.param({"b": [], "a": []}, ("a",), id="then by path"),
    ],
)
def test_the_domain_with_the_least_loss_is_chosen(
    occupants: dict[str, list[DomainOccupant]], chosen: tuple[str, ...]
) -> None:
    candidates = [DomainCandidate(path=(path,), hosts=4, occupants=some) for path, some in occupants.items()]
    assert choose_domains(candidates, 1, at(60)) == tuple((path,) for path in chosen)


def told(
    time: ReservedTime, *occupants: DomainOccupant, refusal: ReservationRefusal | None = None, queue: str = ""
) -> dict[str, str]:
    found = verdicts(time, NOW, refusal=refusal, hosts=4, queue=queue, occupants=occupants)
    return {verdict.kind: f"{verdict.holds} {verdict.reason}" for verdict in found}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param(
            told(reserved(drain_from=30)),
            {"Planned": "True Planned", "Draining": "False NotBegun", "Ready": "False NotBegun"},
            id="it waits",
        ),
        pytest.param(
            told(reserved(), occupant("w")),
            {"Planned": "True Planned", "Draining": "True WorkloadsRun", "Ready": "False NotBegun"},
            id="it drains",
        ),
        pytest.param(
            told(reserved(begins=0), occupant("w")),
            {"Planned": "True Planned", "Draining": "True WorkloadsRun", "Ready": "False WorkloadsRun"},
            id="it has begun, and a workload still runs",
        ),
        pytest.param(
            told(reserved(begins=0)),
            {"Planned": "True Planned", "Draining": "False Empty", "Ready": "True Ready"},
            id="it is ready",
        ),
        pytest.param(
            told(reserved(), refusal=ReservationRefusal(problem=ReservationProblem.OVERLAPS, message="m")),
            {"Planned": "False Overlaps", "Draining": "False NotPlanned", "Ready": "False NotPlanned"},
            id="nothing is reserved",
        ),
    ],
)
def test_conditions_say_how_far_a_reservation_is(conditions: dict[str, str], expected: dict[str, str]) -> None:
    assert conditions == expected | {"Ended": "False TimeIsNotOver"}


def test_an_ended_reservation_says_so_and_leaves_planned_as_it_was() -> None:
    assert told(reserved(begins=-60, ends=0)) == {
        "Draining": "False Ended",
        "Ready": "False Ended",
        "Ended": "True TimeIsOver",
    }


def test_the_number_of_late_workloads_is_told() -> None:
    found = verdicts(
        reserved(), NOW, refusal=None, hosts=4, queue="", occupants=(occupant("w"), occupant("v", 50)), remark="r"
    )
    assert found[0].message == "4 hosts are reserved for maintenance; r"
    assert found[1].message == ("2 workloads run there, and 1 of them may not end before the reservation begins")
