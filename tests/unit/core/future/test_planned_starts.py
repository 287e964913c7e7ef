"""Start times with backfill by time: a drain keeps the room of the first workload in line, as cycles do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kqueue.core.backfill.plans import LineRule
from kqueue.core.future.start_times import start_times
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Claim, Head
from tests.builders import make_head, make_snapshot, make_view
from tests.unit.core.backfill.lines import at, gang, limited
from tests.unit.core.future.worlds import Times, ask, seconds, waits

LINE = LineRule(name="ClusterQueue/team", guesses=False)


def starts(
    running: Sequence[tuple[Head, Times]], waiting: Sequence[tuple[Head, Times]], *, with_line: bool
) -> dict[str, object]:
    """The intervals of the workloads that wait, in two racks of four hosts."""
    snapshot = make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": make_view((1, 2, 4))})
    question = ask(snapshot, running, [waits(head, times) for head, times in waiting])
    question = replace(question, line_of={"team": LINE} if with_line else {})
    return dict(seconds(start_times(question)))


RUNNING = [(gang("r"), 100), (make_head("s", pods=2), 50)]
BIG = gang("big", age=10)


@pytest.mark.parametrize(
    ("with_line", "small", "expected"),
    [
        pytest.param(False, (200, None), {"big": (100, 100), "small": (0, 0)}, id="small ones delay a gang"),
        pytest.param(True, (200, None), {"big": (50, 50), "small": (100, 100)}, id="not with backfill by time"),
        pytest.param(True, (50, 50), {"big": (50, 50), "small": (0, 0)}, id="a small one that ends in time starts"),
    ],
)
def test_a_drain_keeps_room(
    with_line: bool, small: tuple[int, int | None], expected: dict[str, tuple[int, int]]
) -> None:
    """Half of a rack is free, and the other half at 50; the other rack at 100."""
    run_time, promised = small
    head = limited(make_head("small", pods=1), promised)

    found = starts(RUNNING, [(BIG, 400), (head, run_time)], with_line=with_line)

    assert found == expected


@pytest.mark.parametrize(
    ("open_to", "expected"),
    [
        pytest.param(frozenset({"team"}), (30, 30), id="of its ClusterQueue from its begin on"),
        pytest.param(frozenset[str](), (90, 90), id="of others after its end"),
    ],
)
def test_a_reservation_opens(open_to: frozenset[str], expected: tuple[int, int]) -> None:
    """All hosts are free, and reserved from 30 to 90 seconds; a gang without a limit waits."""
    snapshot = make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": make_view((1, 2, 4))})
    tree = snapshot.topologies["gpu"].tree
    hosts = tuple(DomainUsage(tree.written(leaf), {"nvidia.com/gpu": 8}, 1) for leaf in range(len(tree)))
    claim = Claim(
        key="people",
        uid="r",
        queue="",
        usage={},
        victims={},
        domains={"gpu": hosts},
        at=at(30),
        until=at(90),
        open_to=open_to,
    )
    question = ask(replace(snapshot, claims=(claim,)), [], [waits(gang("g"), 400)])

    assert seconds(start_times(question)) == {"g": expected}
