"""The cluster of all groups of pods of an owner."""

from __future__ import annotations

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.jobs.multikueue.sets import ANYWHERE, SetPlace, heeded, place_of
from tests.unit.controllers.builders import condition, make_workload, read

QUOTA = condition("QuotaReserved")


def group(
    index: int, *, cluster: str = "", nominated: tuple[str, ...] = (), quota: bool = True, evicted: bool = False
) -> wire.Workload:
    conditions = [*([QUOTA] if quota else []), *([condition("Evicted")] if evicted else [])]
    status = {"conditions": conditions, "nominatedClusterNames": list(nominated)}
    meta = {"annotations": {"kueue.x-k8s.io/component-workload-index": str(index)}}
    made = make_workload(f"g{index}", metadata={"name": f"g{index}", "namespace": "ns", "uid": f"u{index}", **meta})
    found: wire.Workload = read(
        wire.Workload, {**made, "status": status | ({"clusterName": cluster} if cluster else {})}
    )
    return found


@pytest.mark.parametrize(
    ("mine", "others", "want"),
    [
        pytest.param(group(0), [], ANYWHERE, id="it is alone"),
        pytest.param(group(0), [group(1)], ANYWHERE, id="the lowest number leads"),
        pytest.param(group(1), [group(0)], SetPlace(waits_for="g0"), id="others wait"),
        pytest.param(group(10), [group(9)], SetPlace(waits_for="g9"), id="by number, not by text"),
        pytest.param(group(1), [group(0, quota=False)], ANYWHERE, id="without quota it cannot lead"),
        pytest.param(group(1), [group(0, evicted=True)], ANYWHERE, id="evicted it cannot lead"),
        pytest.param(group(0), [group(1, nominated=("a",))], SetPlace(waits_for="g1"), id="one is on its way already"),
        pytest.param(
            group(1, nominated=("a",)), [group(0, nominated=("a",))], SetPlace(waits_for="g0"), id="of two the lower"
        ),
        pytest.param(group(1), [group(0), group(2, cluster="b")], SetPlace(cluster="b"), id="all follow one"),
        pytest.param(
            group(2, cluster="b"), [group(0), group(1, cluster="a")], SetPlace(cluster="a"), id="the lower decides"
        ),
        pytest.param(
            group(1), [group(0, cluster="a", evicted=True)], ANYWHERE, id="what leaves a cluster is not heeded"
        ),
        pytest.param(group(1, evicted=True), [group(0, cluster="a")], ANYWHERE, id="what leaves heeds no other"),
    ],
)
def test_where_a_group_may_go(mine: wire.Workload, others: list[wire.Workload], want: SetPlace) -> None:
    assert place_of(mine, others) == want


@pytest.mark.parametrize(
    ("place", "barred"),
    [(ANYWHERE, ""), (SetPlace(cluster="a"), "bc"), (SetPlace(waits_for="g0"), "abc")],
    ids=["anywhere", "one", "none yet"],
)
def test_clusters_that_a_group_must_not_use(place: SetPlace, barred: str) -> None:
    assert "".join(name for name in "abc" if place.bars(name)) == barred


def test_other_groups_heed_quota_and_clusters() -> None:
    assert heeded(group(0)) == heeded(group(1))
    assert heeded(group(0, cluster="a")) != heeded(group(0))
    assert heeded(group(0, nominated=("a",))) != heeded(group(0))
    assert heeded(group(0, quota=False)) is heeded(None) is None
