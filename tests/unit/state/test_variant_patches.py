"""The writes of concurrent admission: each is decided again on the newest object."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.model.variants import variant_fault
from kqueue.state import variant_patches as patches
from kqueue.state.conditions import Stamp
from tests.unit.controllers.builders import JSON, status_of
from tests.unit.state.families import (
    GATE,
    NOW,
    admission,
    admitted,
    condition,
    evicted,
    gate_at,
    parent_json,
    reserving,
    variant_json,
    waiting,
    workload,
)

STAMP = Stamp(NOW)
SPOT = workload(variant_json("spot", admitted("spot")))


def after(patch: JSON | None) -> JSON:
    assert patch is not None
    return patch


def test_a_new_variant_is_one_of_its_parent() -> None:
    """18: the parent's labels without its mark, annotations and spec, its flavor, and the preemption gate."""
    parent = parent_json(
        admitted("spot"),
        annotations={"team": "ml", "kueue.x-k8s.io/admission-gated-by": "x"},
        preemptionGates=[{"name": "own"}],
        metadata=None,
    )

    made = patches.variant_of(parent, "spot", active=False)

    assert variant_fault(workload(made | {"status": {}}), workload(parent)) == ""
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": "job-uid"}
    assert made["metadata"]["annotations"] == {"team": "ml", "kueue.x-k8s.io/workload-allowed-resource-flavors": "spot"}
    assert made["spec"] == parent["spec"] | {"active": False, "preemptionGates": [{"name": "own"}, {"name": GATE}]}
    assert "status" not in made


def test_the_parent_is_admitted_as_its_variant() -> None:
    """18.5: the same admission, QuotaReserved and Admitted; an earlier eviction is over."""
    parent = workload(parent_json(waiting(evicted("VariantEvicted", "made room"))))

    written = after(patches.admit_parent(parent, SPOT, stamp=STAMP))

    assert written["status"]["admission"] == admission("spot")
    assert {kind: status_of(written, kind)[0] for kind in ("QuotaReserved", "Admitted", "Evicted")} == {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}  # fmt: skip
    assert status_of(written, "PodsReady") == ("", "")


def test_readiness_is_awaited_where_the_variant_awaits_it() -> None:
    """With waitForPodsReady the parent starts its clock, too."""
    variant = workload(variant_json("spot", admitted("spot", condition("PodsReady", "False", "WaitForStart"))))
    written = after(patches.admit_parent(workload(parent_json()), variant, stamp=STAMP))

    assert status_of(written, "PodsReady") == ("False", "WaitForStart")


@pytest.mark.parametrize(
    ("parent", "variant"),
    [
        pytest.param(parent_json(admitted("spot")), SPOT, id="it has it"),
        pytest.param(parent_json(active=False), SPOT, id="it was deactivated"),
        pytest.param(parent_json(waiting(condition("Finished"))), SPOT, id="it has finished"),
        pytest.param(parent_json(admitted("reserved", evicted())), SPOT, id="its pods still end"),
        pytest.param(parent_json(), workload(variant_json("spot", reserving("spot"))), id="checks are pending"),
        pytest.param(parent_json(), workload(variant_json("spot", waiting())), id="the variant has lost it"),
    ],
)
def test_the_parent_is_not_admitted_any_more(parent: JSON, variant: wire.Workload) -> None:
    """The state may have changed since the decision."""
    assert patches.admit_parent(workload(parent), variant, stamp=STAMP) is None


def test_only_the_condition_of_an_evicted_parent_is_written() -> None:
    """18.2: the eviction is counted on its variant."""
    parent = workload(parent_json(admitted("spot")))

    written = after(patches.evict_parent(parent, reason="VariantEvicted", message="made room", stamp=STAMP))

    assert list(written["status"]) == ["conditions"]
    assert status_of(written, "Evicted") == ("True", "VariantEvicted")
    for other in (parent_json(waiting()), parent_json(admitted("spot", evicted()))):
        assert patches.evict_parent(workload(other), reason="r", message="m", stamp=STAMP) is None


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [("Preempted", ("True", "Preempted")), ("FlavorMigration", ("False", "FlavorMigration")), ("Deactivated", ("False", "Deactivated"))],
)  # fmt: skip
def test_a_released_variant_waits_again(reason: str, requeued: tuple[str, str]) -> None:
    """18.2: Requeued and reasons as of any other Workload."""
    variant = workload(variant_json("spot", admitted("spot", evicted(reason))))

    written = after(patches.release_variant(variant, stamp=STAMP))

    assert written["status"]["admission"] is None
    assert status_of(written, "QuotaReserved")[0] == "False"
    assert status_of(written, "Requeued") == requeued
    assert patches.release_variant(SPOT, stamp=STAMP) is None


def test_a_variant_is_evicted_as_its_parent() -> None:
    """Its gate is closed, as with any eviction (21)."""
    variant = workload(variant_json("spot", admitted("spot"), gate=gate_at(9)))

    written = after(patches.evict_variant(variant, reason="NodeFailures", message="m", stamp=STAMP))

    assert status_of(written, "Evicted") == ("True", "NodeFailures")
    assert [gate["position"] for gate in written["status"]["preemptionGates"]] == ["Closed"]
    assert "schedulingStats" not in written["status"], "it is counted on the parent"
    assert (
        patches.evict_variant(workload(variant_json("spot", waiting())), reason="r", message="m", stamp=STAMP) is None
    )


def test_the_pods_are_told_as_the_parent_tells_them() -> None:
    """18.5: also that nothing is known of them."""
    ended: Any = [{"name": "main", "count": 1}]
    parent = workload(parent_json(admitted("spot", condition("PodsReady", reason="Started"), reclaimablePods=ended)))

    written = after(patches.copy_pods(SPOT, parent, stamp=STAMP))

    assert status_of(written, "PodsReady") == ("True", "Started")
    assert written["status"]["reclaimablePods"] == ended
    ready = workload(variant_json("spot", admitted("spot", condition("PodsReady", reason="Started"))))
    plain = workload(parent_json(admitted("spot")))
    assert status_of(after(patches.copy_pods(ready, plain, stamp=STAMP)), "PodsReady") == ("", "")
    assert patches.copy_pods(SPOT, plain, stamp=STAMP) is None
    assert patches.copy_pods(workload(variant_json("spot", waiting())), parent, stamp=STAMP) is None


def test_failed_hosts_go_to_the_variant_and_come_back_as_other_hosts() -> None:
    """The planner replaces those of the variant, because that holds the quota."""
    failed: Any = [{"name": "h1"}]
    parent = workload(parent_json(admitted("spot", unhealthyNodes=failed)))

    assert after(patches.copy_pods(SPOT, parent, stamp=STAMP))["status"]["unhealthyNodes"] == failed

    moved = variant_json("spot", admitted("spot"))
    moved["status"]["admission"]["podSetAssignments"][0]["count"] = 3
    written = after(patches.admit_parent(parent, workload(moved), stamp=STAMP))
    assert written["status"]["unhealthyNodes"] is None
    assert written["status"]["admission"] == moved["status"]["admission"]


@pytest.mark.parametrize(
    ("variant", "want"),
    [
        pytest.param(variant_json("spot"), {GATE: "Open"}, id="a gate without a state is closed"),
        pytest.param(variant_json("spot", gate=gate_at(9, "Closed")), {GATE: "Open"}, id="a closed gate"),
        pytest.param(variant_json("spot", gate=gate_at(9)), None, id="an open gate"),
        pytest.param(variant_json("spot", preemptionGates=[{"name": "own"}, {"name": GATE}]), {"own": "Closed", GATE: "Open"}, id="other gates stay closed"),
        pytest.param(variant_json("spot", preemptionGates=[]), None, id="no gate"),
    ],
)  # fmt: skip
def test_the_gate_of_a_variant_is_opened(variant: JSON, want: dict[str, str] | None) -> None:
    """18.6: only ours."""
    written = patches.open_gate(workload(variant), stamp=STAMP)
    found = written and {gate["name"]: gate["position"] for gate in written["status"]["preemptionGates"]}

    assert found == want


def test_plain_fields_are_written_only_when_they_differ() -> None:
    """The mark of the parent, and activity and priority of its variants."""
    parent, variant = workload(parent_json(priority=9)), workload(variant_json("spot"))

    assert patches.label(parent, on=True) is None
    assert after(patches.label(parent, on=False)) == {"metadata": {"labels": {"kueue.x-k8s.io/concurrent-admission-parent": None}}}  # fmt: skip
    assert after(patches.label(workload(parent_json(metadata={"labels": {}})), on=True))["metadata"]["labels"] == {"kueue.x-k8s.io/concurrent-admission-parent": "true"}  # fmt: skip
    assert patches.switch(variant, active=True) is None
    assert patches.switch(variant, active=False) == {"spec": {"active": False}}
    assert patches.priority_of_parent(variant, parent) == {"spec": {"priority": 9, "priorityClassRef": None}}
    assert patches.priority_of_parent(variant, workload(parent_json())) is None
