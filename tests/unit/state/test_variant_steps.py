"""What concurrent admission writes next: life-cycle 18 and 21, sentence by sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.model.variants import VariantPolicy, variant_name
from kqueue.state.variant_steps import (
    StepKind,
    VariantFamily,
    VariantStep,
    gate_to_open,
    reason_to_wait,
    steps,
    wanted_active,
)
from tests.unit.state.families import (
    FLAVORS,
    NOW,
    PARENT,
    POLICY,
    RETAIN,
    UID,
    admitted,
    clock,
    condition,
    evicted,
    family,
    gate_at,
    parent_json,
    reserving,
    variant_json,
    waiting,
)

JSON = dict[str, Any]
Told = list[tuple[str, str]]


def told(found: VariantFamily) -> Told:
    """Kind and flavor of each step, in order."""
    return [(step.kind.value, step.flavor) for step in steps(found, NOW)]


def all_of(**statuses: JSON) -> list[JSON]:
    """The variants for all flavors; a flavor without a status waits."""
    by = {name.replace("_", "-"): status for name, status in statuses.items()}
    return [variant_json(flavor, by.get(flavor, waiting())) for flavor in FLAVORS]


def only(step: StepKind, found: VariantFamily) -> list[VariantStep]:
    return [one for one in steps(found, NOW) if one.kind is step]


# --- 1: variants are made, and others removed


def test_missing_variants_are_created() -> None:
    """18.1: one for each flavor of the ClusterQueue."""
    assert told(family()) == [("Create", flavor) for flavor in FLAVORS]
    assert told(family(None, variant_json("spot", waiting()))) == [("Create", "reserved"), ("Create", "on-demand")]
    assert told(family(None, *all_of())) == []


@pytest.mark.parametrize(
    ("parent", "want"),
    [
        pytest.param(parent_json(), {"reserved": True, "spot": True, "on-demand": True}, id="it waits"),
        pytest.param(parent_json(active=False), dict.fromkeys(FLAVORS, False), id="it is inactive"),
        pytest.param(parent_json(annotations={"kueue.x-k8s.io/admission-gated-by": "x"}), dict.fromkeys(FLAVORS, False), id="it is gated"),
    ],
)  # fmt: skip
def test_a_variant_is_created_as_active_as_it_may_be(parent: JSON, want: dict[str, bool]) -> None:
    """Otherwise it could be admitted before it is deactivated."""
    assert {s.flavor: s.active for s in only(StepKind.CREATE, family(parent))} == want


@pytest.mark.parametrize(
    ("other", "part"),
    [
        pytest.param(variant_json("gone", waiting()), "no longer one", id="its flavor has left the ClusterQueue"),
        pytest.param(variant_json("spot", admitted("spot"), cpus=64), "pod sets", id="it is forged"),
        pytest.param(variant_json("spot", {"conditions": [condition("Finished")]}), "finished", id="it can hold no quota any more"),
    ],
)  # fmt: skip
def test_other_workloads_of_the_parent_are_deleted(other: JSON, part: str) -> None:
    """18.1: variants of flavors no longer in the CQ; and what only calls itself a variant."""
    [step] = only(StepKind.DELETE, family(parent_json(), other))

    assert step.key == f"ns/{other['metadata']['name']}"
    assert part in step.message


def test_the_variants_of_a_parent_that_is_being_deleted_are_left_to_the_collector() -> None:
    """Nothing is created for it any more."""
    leaving = parent_json(metadata={"deletionTimestamp": clock(11)})
    assert told(family(leaving, variant_json("gone"))) == []


# --- 2: evictions


def test_the_parent_of_an_evicted_variant_is_evicted_first() -> None:
    """18.2: its Evicted condition, reason VariantEvicted; the variant keeps its quota while the job stops."""
    found = family(parent_json(admitted("spot")), *all_of(spot=admitted("spot", evicted())))

    step = next(steps(found, NOW))

    assert (step.kind, step.reason, step.message) == (StepKind.EVICT_PARENT, "VariantEvicted", "made room")


@pytest.mark.parametrize(
    ("parent", "want"),
    [
        pytest.param(parent_json(admitted("spot", evicted("VariantEvicted"))), [], id="its pods still end"),
        pytest.param(parent_json(waiting(evicted("VariantEvicted"))), [("Release", "spot")], id="they have ended"),
        pytest.param(parent_json(admitted("reserved")), [("Release", "spot")], id="it runs by another variant"),
        pytest.param(parent_json(), [("Release", "spot")], id="it never ran by this one"),
    ],
)
def test_a_variant_is_released_after_its_parent(parent: JSON, want: Told) -> None:
    """18.2: when the parent has no reservation any more."""
    found = family(parent, *all_of(spot=admitted("spot", evicted()), reserved=admitted("reserved")))

    assert [step for step in told(found) if step[0] in ("Release", "EvictParent")] == want


@pytest.mark.parametrize(
    ("reason", "hour", "want"),
    [
        pytest.param("PodsReadyTimeout", 11, [("EvictVariant", "spot")], id="its pods were not ready in time"),
        pytest.param("NodeFailures", 10, [("EvictVariant", "spot")], id="in the second of the admission"),
        pytest.param("NodeFailures", 9, [], id="before the variant was admitted"),
        pytest.param("VariantEvicted", 11, [], id="because of a variant"),
        pytest.param("ConcurrentAdmission", 11, [], id="because no variant was admitted"),
    ],
)
def test_the_variant_of_an_evicted_parent_is_evicted(reason: str, hour: float, want: Told) -> None:
    """With its reason: otherwise the parent would get the same admission again at once."""
    for status in (admitted("spot", evicted(reason, hour=hour)), waiting(evicted(reason, hour=hour))):
        found = family(parent_json(status), *all_of(spot=admitted("spot", hour=10)))

        assert [step for step in told(found) if step[0] == "EvictVariant"] == want


def test_the_variant_of_a_deactivated_parent_is_only_deactivated() -> None:
    """The reason of its parent's eviction must not keep it from being activated later."""
    gone = evicted("DeactivatedDueToMaximumExecutionTimeExceeded")
    found = family(parent_json(admitted("spot", gone), active=False), *all_of(spot=admitted("spot")))

    assert told(found) == [("Deactivate", flavor) for flavor in FLAVORS]


# --- 3 and 4: which variants are tried

BOUND = VariantPolicy(flavors=FLAVORS, last_acceptable="reserved")


@pytest.mark.parametrize(
    ("statuses", "policy", "want"),
    [
        pytest.param({}, POLICY, {*FLAVORS}, id="18.4 none is admitted: all"),
        pytest.param({}, RETAIN, {*FLAVORS}, id="18.4 none is admitted, whatever the mode: all"),
        pytest.param({}, BOUND, {*FLAVORS}, id="18.4 none is admitted, whatever the last acceptable: all"),
        pytest.param({"spot": reserving("spot")}, RETAIN, {*FLAVORS}, id="18.3 a reservation is no admission"),
        pytest.param({"spot": admitted("spot")}, RETAIN, {"spot"}, id="18.3 RetainFirstAdmission: all others are not"),
        pytest.param({"spot": admitted("spot")}, POLICY, {"reserved", "spot"}, id="18.3 less preferred ones are not"),
        pytest.param({"on_demand": admitted("on-demand")}, POLICY, {*FLAVORS}, id="18.4 more preferred ones are"),
        pytest.param({"on_demand": admitted("on-demand")}, BOUND, {"reserved", "on-demand"}, id="18.3 those after lastAcceptableFlavorName are not"),
        pytest.param({"reserved": admitted("reserved")}, POLICY, {"reserved"}, id="18.3 the most preferred is admitted"),
        pytest.param({"reserved": admitted("reserved"), "spot": admitted("spot")}, POLICY, {"reserved"}, id="18.3 checks admitted two"),
        pytest.param({"spot": admitted("spot", evicted())}, POLICY, {"reserved", "spot"}, id="the admitted one leaves: its job still runs"),
    ],
)  # fmt: skip
def test_the_admitted_variant_decides_who_is_tried(
    statuses: dict[str, JSON], policy: VariantPolicy, want: set[str]
) -> None:
    """Variants that are not wanted are deactivated, and those that are activated again."""
    active = family(parent_json(), *all_of(**statuses), policy=policy)
    inactive = [v | {"spec": v["spec"] | {"active": False}} for v in all_of(**statuses)]

    assert wanted_active(active, NOW) == want
    assert {s.flavor for s in only(StepKind.DEACTIVATE, active)} == {*FLAVORS} - want
    assert {s.flavor for s in only(StepKind.ACTIVATE, family(parent_json(), *inactive, policy=policy))} == want


@pytest.mark.parametrize(
    "parent",
    [
        pytest.param(parent_json(active=False), id="18.3 the parent is inactive"),
        pytest.param(parent_json(annotations={"kueue.x-k8s.io/admission-gated-by": "x"}), id="it is gated"),
        pytest.param(parent_json(waiting(requeueState={"count": 1, "requeueAt": clock(13)})), id="it waits for a time"),
        pytest.param(parent_json(waiting(condition("Requeued", "False", "PodsReadyTimeout"))), id="it is not queued again yet"),
    ],
)  # fmt: skip
def test_no_variant_is_tried_for_a_parent_that_must_wait(parent: JSON) -> None:
    """And none of them gives it an admission."""
    found = family(parent, *all_of(spot=admitted("spot", hour=11.5)))

    assert told(found) == [("Deactivate", flavor) for flavor in FLAVORS]


def test_a_parent_that_lost_its_variant_waits_for_no_time() -> None:
    """Its variants are tried at once."""
    parent = parent_json(waiting(evicted("VariantEvicted"), condition("Requeued", "False", "VariantEvicted")))
    assert told(family(parent, *all_of())) == []


def test_a_variant_that_a_check_rejected_is_not_tried_again() -> None:
    """It would be rejected without end.  It is made anew when its parent is inactive."""
    status = waiting(evicted("DeactivatedDueToAdmissionCheck"))
    rejected = variant_json("spot", status, active=False)
    others = [variant_json(flavor, waiting()) for flavor in ("reserved", "on-demand")]

    assert told(family(parent_json(), rejected, *others)) == []
    assert told(family(parent_json(active=False), rejected))[:1] == [("Delete", "")]


# --- 5: the parent follows its variant


def test_the_parent_gets_the_admission_of_its_variant() -> None:
    """18.5: a variant is admitted and the parent not."""
    found = family(parent_json(waiting()), *all_of(spot=admitted("spot")))
    assert ("AdmitParent", "spot") in told(found)


@pytest.mark.parametrize(
    ("parent", "variants"),
    [
        pytest.param(parent_json(waiting()), all_of(spot=reserving("spot")), id="the variant waits for checks"),
        pytest.param(parent_json(waiting()), all_of(spot=admitted("spot", evicted())), id="the variant leaves"),
        pytest.param(parent_json(admitted("spot", evicted())), all_of(spot=admitted("spot")), id="the parent leaves"),
        pytest.param(parent_json(admitted("spot")), all_of(spot=admitted("spot")), id="the parent has it"),
        pytest.param(parent_json(waiting()), [variant_json("spot", admitted("spot"), cpus=64)], id="a forged variant"),
    ],
)
def test_the_parent_gets_no_other_admission(parent: JSON, variants: list[JSON]) -> None:
    """Neither early nor twice."""
    assert "AdmitParent" not in dict(told(family(parent, *variants)))


def test_an_admission_that_changed_is_copied_again() -> None:
    """The variant has other domains or counts now."""
    changed = admitted("spot")
    changed["admission"]["podSetAssignments"][0]["count"] = 3
    assert ("AdmitParent", "spot") in told(family(parent_json(admitted("spot")), *all_of(spot=changed)))


@pytest.mark.parametrize(
    ("parent", "variants", "want"),
    [
        pytest.param(admitted("spot"), {}, True, id="no variant is admitted"),
        pytest.param(admitted("spot"), {"reserved": admitted("reserved")}, True, id="another variant is"),
        pytest.param(admitted("spot", evicted()), {}, False, id="it is evicted already"),
        pytest.param(waiting(), {}, False, id="it has no quota"),
    ],
)
def test_a_parent_without_an_admitted_variant_is_evicted(parent: JSON, variants: dict[str, JSON], want: bool) -> None:
    """18.5: reason ConcurrentAdmission."""
    found = only(StepKind.EVICT_PARENT, family(parent_json(parent), *all_of(**variants)))
    assert [step.reason for step in found] == ["ConcurrentAdmission"] * want


@pytest.mark.parametrize(
    ("told_by_parent", "told_by_variant", "want"),
    [
        pytest.param({"ready": "True"}, {"ready": "False"}, True, id="PodsReady"),
        pytest.param({"ready": "True"}, {"ready": "True"}, False, id="the variant has it"),
        pytest.param({"ended": 1}, {}, True, id="ended pods"),
        pytest.param({"failed": "h1"}, {}, True, id="failed hosts"),
        pytest.param({"failed": "h1"}, {"failed": "h1"}, False, id="the variant has these, too"),
    ],
)
def test_the_pods_of_the_parent_are_told_on_its_variant(
    told_by_parent: JSON, told_by_variant: JSON, want: bool
) -> None:
    """18.5: PodsReady, and the pods whose quota is free."""

    def status(ready: str = "", ended: int = 0, failed: str = "") -> JSON:
        ready_ = [condition("PodsReady", ready, "Started")] if ready else []
        more: JSON = {"reclaimablePods": [{"name": "main", "count": ended}]} if ended else {}
        more |= {"unhealthyNodes": [{"name": failed}]} if failed else {}
        return admitted("spot", *ready_, **more)

    found = family(parent_json(status(**told_by_parent)), *all_of(spot=status(**told_by_variant)))
    assert (("CopyPods", "spot") in told(found)) is want


def test_the_variants_of_a_finished_parent_finish() -> None:
    """18.5: with its reason, and nothing else happens."""
    ended = condition("Finished", reason="Succeeded", message="done")
    found = family(parent_json(admitted("spot", ended)), variant_json("spot", admitted("spot")), variant_json("reserved", {"conditions": [ended]}))  # fmt: skip

    assert list(steps(found, NOW)) == [
        VariantStep(kind=StepKind.FINISH, flavor="spot", key=f"ns/{variant_name(PARENT, UID, 'spot')}", reason="Succeeded", message="done")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "change", "want"),
    [
        pytest.param(waiting(), {"priority": 9}, True, id="a number"),
        pytest.param(admitted("spot"), {"priority": 9}, True, id="a number, while it runs"),
        pytest.param(waiting(), {"priorityClassRef": {"group": "g", "kind": "k", "name": "n"}}, True, id="a class"),
        pytest.param(admitted("spot"), {"priorityClassRef": {"group": "g", "kind": "k", "name": "n"}}, False, id="a class, while it runs: the API refuses it"),
    ],
)  # fmt: skip
def test_variants_have_the_priority_of_their_parent(status: JSON, change: JSON, want: bool) -> None:
    """Whoever raises only that of a variant gains nothing."""
    assert (("Amend", "spot") in told(family(parent_json(**change), *all_of(spot=status)))) is want


# --- why the parent waits


def says(reason: str, message: str, status: str = "False") -> JSON:
    return {"conditions": [condition("QuotaReserved", status, reason, f"{message}; see kqueue explain v -n ns")]}


@pytest.mark.parametrize(
    ("variants", "want"),
    [
        pytest.param(
            [says("WaitingForQuota", "no room"), says("WaitingForQuota", "nor here"), {}],
            ("WaitingForQuota", "Tried by variants; reserved: no room; spot: nor here"), id="all for the same reason",
        ),
        pytest.param(
            [says("WaitingForQuota", "no room"), says("AdmissionGated", "gated"), {}],
            ("PendingEvaluation", "Tried by variants; reserved: no room; spot: gated"), id="for several reasons",
        ),
        pytest.param(
            [says("WaitingForQuota", "no room"), reserving("spot"), {}],
            ("PendingEvaluation", "Tried by variants; reserved: no room; spot: its checks are pending"), id="one has quota",
        ),
        pytest.param([says("Suspended", "stopped"), says("WaitingForQuota", "no room"), {}], None, id="the queue is stopped: that is written on the parent itself"),
        pytest.param([{}, {}, {}], None, id="none was tried"),
    ],
)  # fmt: skip
def test_the_parent_says_why_its_variants_wait(variants: list[JSON], want: tuple[str, str] | None) -> None:
    """By flavor; a parent that is admitted, or held back itself, says nothing of them."""
    made = [variant_json(flavor, status) for flavor, status in zip(FLAVORS, variants, strict=True)]

    assert reason_to_wait(family(None, *made), NOW) == want
    for parent in (parent_json(admitted("spot")), parent_json(active=False)):
        assert reason_to_wait(family(parent, *made), NOW) is None


# --- 6: preemption gates

BLOCKED = condition("BlockedOnPreemptionGates", reason="PreemptionGated")
UNTRIED: JSON = {"conditions": []}


@pytest.mark.parametrize(
    ("variants", "want"),
    [
        pytest.param([waiting(), waiting(), waiting()], None, id="nobody needs to preempt"),
        pytest.param([waiting(BLOCKED), waiting(BLOCKED), waiting()], "reserved", id="the first one that is blocked"),
        pytest.param([waiting(), waiting(BLOCKED), waiting(BLOCKED)], "spot", id="variants that are not blocked are skipped"),
        pytest.param([UNTRIED, waiting(BLOCKED), waiting(BLOCKED)], None, id="one without QuotaReserved ends the search"),
        pytest.param([waiting(BLOCKED), UNTRIED, waiting()], "reserved", id="one behind the candidate does not"),
        pytest.param([admitted("reserved"), waiting(BLOCKED), waiting()], "spot", id="one that may not be queued is skipped"),
    ],
)  # fmt: skip
def test_gates_are_opened_in_the_order_of_flavors(variants: list[JSON], want: str | None) -> None:
    """18.6: only variants that may be queued count."""
    found = family(None, *(variant_json(f, s) for f, s in zip(FLAVORS, variants, strict=True)))
    gate = gate_to_open(found)

    assert (gate.flavor if gate is not None else None) == want


@pytest.mark.parametrize(
    ("opened", "want"),
    [
        pytest.param(gate_at(11 + 56 / 60), [], id="four minutes ago"),
        pytest.param(gate_at(11 + 55 / 60), [("OpenGate", "spot")], id="five minutes ago"),
        pytest.param(gate_at(11.99, "Closed"), [("OpenGate", "reserved")], id="closed by an eviction: it is the candidate"),
    ],
)  # fmt: skip
def test_one_gate_is_opened_in_five_minutes(opened: JSON, want: Told) -> None:
    """18.6: variants whose gate is open are skipped; else look again then."""
    first = variant_json("reserved", waiting(BLOCKED), gate=opened)
    found = family(None, first, variant_json("spot", waiting(BLOCKED)), variant_json("on-demand", waiting()))

    assert told(found) == want
    gate = gate_to_open(found)
    assert gate is not None
    assert want or gate.due == NOW + timedelta(minutes=1)


def test_a_variant_that_does_not_exist_yet_was_not_tried() -> None:
    """So no gate behind it is opened."""
    assert gate_to_open(family(None, variant_json("spot", waiting(BLOCKED)))) is None
