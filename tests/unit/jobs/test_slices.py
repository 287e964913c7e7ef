"""Workload slices of an elastic job: which one it runs by, which one takes over, and when counts change."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.slices import Counts, Slice, SlicePlan, SliceStep, counts_of, origin_of, plan, slice_of, with_counts

REPLACED, OUT_OF_SYNC = "WorkloadSliceReplaced", "OutOfSync"


def some(name: str, count: int = 3, **more: Any) -> Slice:
    """A slice; its name is its UID, and all are made in one second unless said otherwise."""
    counts: Counts = more.pop("counts", (("main", count),))
    if "replaces" in more:
        more["replaces"] = f"ns/{more['replaces']}"
    return Slice(key=f"ns/{name}", uid=name, created=more.pop("created", "t0"), counts=counts, **more)


def shown(found: SlicePlan) -> tuple[str, str | None, str | None, dict[str, str]]:
    """A plan without namespaces."""

    def bare(key: str | None) -> str | None:
        return key.removeprefix("ns/") if key is not None else None

    ends = {key.removeprefix("ns/"): reason for key, reason in found.ends.items()}
    return found.step.value, bare(found.runs), bare(found.wants), ends


HELD = some("a", reserved=True)
NEXT = some("b", 5, replaces="a")


@pytest.mark.parametrize(
    ("slices", "wanted", "want"),
    [
        pytest.param([], 3, ("Create", None, None, {}), id="1-none"),
        pytest.param([some("a", finished=True)], 3, ("Create", None, None, {}), id="1-none-that-is-not-finished"),
        pytest.param([some("a")], 3, ("Keep", "a", "a", {}), id="2b-equal-counts"),
        pytest.param([some("a")], 5, ("Resize", "a", "a", {}), id="2c-not-reserved-grows-in-place"),
        pytest.param([HELD], 2, ("Resize", "a", "a", {}), id="2c-reserved-shrinks-in-place"),
        pytest.param([HELD], 5, ("Grow", "a", "a", {}), id="2d-reserved-grows-by-a-new-one"),
        pytest.param([HELD, NEXT], 5, ("Keep", "a", "b", {}), id="3-pending-replacement-is-selected"),
        pytest.param([HELD, NEXT], 7, ("Resize", "a", "b", {}), id="3-pending-replacement-is-resized-no-third"),
        pytest.param([HELD, NEXT], 2, ("Resize", "a", "b", {}), id="3-pending-replacement-shrinks-too"),
        pytest.param(
            [HELD, some("b", 5, replaces="a", reserved=True)],
            5,
            ("Keep", "b", "b", {"a": REPLACED}),
            id="3-already-replaced-by-a-reserved-one-does-not-count",
        ),
        pytest.param(
            [HELD, some("b", 5, replaces="a", reserved=True)],
            7,
            ("Keep", "b", "b", {"a": REPLACED}),
            id="3-a-third-is-refused-until-the-first-has-ended",
        ),
        pytest.param(
            [HELD, some("b", 5, replaces="a", reserved=True, evicted=True)],
            5,
            ("Keep", "b", "b", {"a": REPLACED}),
            id="3-replaced-by-one-that-was-evicted-since",
        ),
        pytest.param(
            [HELD, NEXT, some("c", 7, replaces="a")],
            7,
            ("Keep", "a", "c", {"b": OUT_OF_SYNC}),
            id="3-others-are-out-of-sync",
        ),
        pytest.param(
            [some("a"), some("b", 5, replaces="a"), some("c", 7, replaces="b")],
            7,
            ("Keep", "c", "c", {"a": REPLACED, "b": REPLACED}),
            id="3-none-reserved-the-newest",
        ),
        pytest.param(
            [some("z", 5, created="t0"), some("a", 3, created="t1")],
            3,
            ("Keep", "a", "a", {"z": OUT_OF_SYNC}),
            id="S-oldest-first-by-time",
        ),
        pytest.param(
            [some("z", reserved=True), some("b", 5, replaces="z", reserved=True)],
            5,
            ("Keep", "b", "b", {"z": REPLACED}),
            id="S-same-second-a-replacement-is-younger",
        ),
        pytest.param(
            [some("z"), some("b", 5, replaces="z")],
            5,
            ("Keep", "b", "b", {"z": REPLACED}),
            id="S-same-second-a-pending-replacement-too",
        ),
        pytest.param(
            [some("b", 5), some("a", 3)], 5, ("Keep", "b", "b", {"a": OUT_OF_SYNC}), id="S-same-second-by-uid"
        ),
        pytest.param(
            [some("a", reserved=True, evicted=True), NEXT],
            5,
            ("Keep", "a", "b", {}),
            id="evicted-is-stopped-before-its-quota-goes",
        ),
        pytest.param(
            [some("a", evicted=True), NEXT],
            5,
            ("Keep", "b", "b", {"a": REPLACED}),
            id="evicted-without-quota-makes-way",
        ),
        pytest.param(
            [some("a", reserved=True, evicted=True)], 5, ("Keep", "a", "a", {}), id="evicted-does-not-change-counts"
        ),
        pytest.param(
            [some("a", active=False, evicted=True), NEXT],
            5,
            ("Resize", "a", "a", {"b": OUT_OF_SYNC}),
            id="switched-off-speaks-for-the-job",
        ),
        pytest.param(
            [HELD, some("b", 5, replaces="a", deleting=True)],
            5,
            ("Keep", "a", "a", {"b": OUT_OF_SYNC}),
            id="a-replacement-that-is-deleted-ends-before-another-is-made",
        ),
        pytest.param(
            [some("a", reserved=True, deleting=True), NEXT],
            5,
            ("Keep", "a", "b", {}),
            id="a-running-one-that-is-deleted-is-stopped-first",
        ),
        pytest.param(
            [some("a", reserved=True, replaces="b"), some("b", reserved=True, replaces="a")],
            3,
            ("Keep", "b", "b", {"a": REPLACED}),
            id="a-ring-by-hand",
        ),
        pytest.param([some("a", reserved=True, replaces="a")], 3, ("Keep", "a", "a", {}), id="one-that-names-itself"),
    ],
)
def test_what_is_next(slices: list[Slice], wanted: int, want: tuple[object, ...]) -> None:
    """Each sentence of the rules about one, two and more slices, and what goes wrong in between."""
    assert shown(plan((("main", wanted),), slices, standing={})) == want
    assert shown(plan((("main", wanted),), slices[::-1], standing={})) == want, "their order does not matter"


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        pytest.param((("w", 2), ("v", 1)), SliceStep.RESTART, id="other-order"),
        pytest.param((("v", 1),), SliceStep.RESTART, id="one-fewer"),
        pytest.param((("v", 1), ("w", 1)), SliceStep.RESIZE, id="one-smaller-none-larger"),
        pytest.param((("v", 2), ("w", 1)), SliceStep.GROW, id="mixed"),
        pytest.param((("v", 1), ("w", 3)), SliceStep.GROW, id="one-larger"),
    ],
)
def test_several_pod_sets(wanted: Counts, want: SliceStep) -> None:
    """Other names are another job; one that is larger makes it a scale-up."""
    held = some("a", counts=(("v", 1), ("w", 2)), reserved=True)
    assert plan(wanted, [held], standing={}).step is want


@pytest.mark.parametrize(
    ("slices", "wanted", "standing", "want"),
    [
        pytest.param([HELD], 2, 3, SliceStep.WAIT, id="one-too-many-still-runs"),
        pytest.param([HELD], 2, 2, SliceStep.RESIZE, id="it-has-ended"),
        pytest.param([HELD, NEXT], 2, 3, SliceStep.WAIT, id="a-replacement-must-not-shrink-below-them-either"),
        pytest.param([HELD, NEXT], 4, 3, SliceStep.RESIZE, id="a-replacement-that-still-holds-them"),
        pytest.param([some("a")], 2, 3, SliceStep.RESIZE, id="no-quota-to-keep"),
        pytest.param([HELD], 5, 4, SliceStep.GROW, id="growing-does-not-wait"),
    ],
)
def test_quota_of_fewer_pods_stays_until_they_are_gone(
    slices: list[Slice], wanted: int, standing: int, want: SliceStep
) -> None:
    """Told to end is not ended."""
    assert plan((("main", wanted),), slices, standing={"main": standing}).step is want


def test_a_workload_as_a_slice() -> None:
    """What is read of a Workload, with and without what may be missing."""
    bare = {"metadata": {"namespace": "ns", "name": "a", "uid": "u"}, "spec": {"podSets": [{"name": "main"}]}}
    full = {
        "metadata": {
            "namespace": "ns",
            "name": "b",
            "uid": "v",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-01T00:00:01Z",
            "annotations": {
                "kueue.x-k8s.io/workload-slice-replacement-for": "ns/a",
                "kueue.x-k8s.io/workload-slice-name": "first",
            },
        },
        "spec": {"active": False, "podSets": [{"name": "v", "count": 0}, {"name": "w", "count": 2}]},
        "status": {
            "conditions": [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Evicted", "Finished")]
        },
    }
    assert slice_of(bare) == Slice(key="ns/a", uid="u", created="", counts=(("main", 1),))
    assert slice_of(full) == Slice(
        key="ns/b",
        uid="v",
        created="2026-01-01T00:00:00Z",
        counts=(("v", 0), ("w", 2)),
        reserved=True,
        evicted=True,
        active=False,
        deleting=True,
        finished=True,
        replaces="ns/a",
    )
    assert (origin_of(bare), origin_of(full)) == ("a", "first")


def test_other_counts_leave_the_rest_alone() -> None:
    """Only counts of pod sets that are named change."""
    pod_sets = [{"name": "v", "count": 1, "template": {"spec": {}}}, {"name": "w", "count": 2}]
    assert with_counts(pod_sets, (("v", 4),)) == [
        {"name": "v", "count": 4, "template": {"spec": {}}},
        {"name": "w", "count": 2},
    ]
    assert counts_of(pod_sets) == (("v", 1), ("w", 2))
