"""Entries of one cycle that want the same: who preempts, who keeps room free, who waits for whom, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kqueue.core import flavors, nomination
from kqueue.core.decision import ALL_LOOKS, Admit, Decision, Outcome, Preempt, Retargeted, SecondLooks, Wait
from kqueue.core.explain import WaitReason
from kqueue.core.ordering import OrderRules
from kqueue.core.preemption import find_targets
from kqueue.core.quota import QuotaNode
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import (
    Admission,
    Admitted,
    Claim,
    Flavor,
    Head,
    PodSetAssignment,
    QueueSpec,
    Replaced,
    Snapshot,
)
from tests.builders import GPU, make_head, make_queue, make_view, plan
from tests.unit.core.preemption_cases import ANY, GPUS, LOWER, NEVER, cohort, leaf, runs, world


def quotas_of(
    roots: Sequence[QuotaNode], running: Sequence[Admitted] = (), specs: Sequence[QueueSpec] = ()
) -> Snapshot:
    """Queues over one flavor without topology."""
    return replace(world(roots, running, specs), flavors={"gpu": Flavor(name="gpu")})


def wants(name: str, queue: str, gpus: int, *, priority: int = 0, age: int = 0) -> Head:
    """One pod that wants so many devices."""
    return make_head(name, queue=queue, pods=1, gpus=gpus, required=None, priority=priority, age=age)


def short(decision: Decision) -> tuple[str, str]:
    """Who, and what became of it: `admitted`, `preempts ...`, or the outcome of one that waits."""
    match decision:
        case Admit():
            return decision.head.uid, "admitted"
        case Preempt():
            return decision.head.uid, "preempts " + " ".join(sorted(t.admitted.uid for t in decision.targets))
        case Wait():
            return decision.head.uid, decision.outcome.value


def decide(snapshot: Snapshot, *heads: Head, **more: Any) -> dict[str, str]:
    """What became of whom; everybody has one decision."""
    decisions = [short(decision) for decision in plan(snapshot, heads, **more)]
    assert sorted(uid for uid, _ in decisions) == sorted(head.uid for head in heads)
    return dict(decisions)


def waits(snapshot: Snapshot, *heads: Head, **more: Any) -> Mapping[str, Wait]:
    return {d.head.uid: d for d in plan(snapshot, heads, **more) if isinstance(d, Wait)}


# --- an entry whose quota was taken in its cycle -----------------------------------------------------------------


def _two_of_three_fit(**spec: Any) -> Snapshot:
    """`b` has a running workload of lower priority; of what is free `a` needs more than half for itself."""
    roots = [cohort("team", leaf("a", nominal=4), leaf("b", nominal=4), leaf("c"))]
    specs = [make_queue("a"), make_queue("b", **spec), make_queue("c")]
    return quotas_of(roots, [runs("in-b", "b", 1)], specs)


@pytest.mark.parametrize(
    ("spec", "high", "low"),
    [
        pytest.param({"preempts_own": LOWER}, "preempts in-b", "Skipped", id="it preempts, and its room is kept"),
        pytest.param({}, "Skipped", "admitted", id="it may preempt nothing, so what is left is given away"),
    ],
)
def test_an_entry_that_lost_its_quota_preempts_in_the_same_cycle(spec: dict[str, Any], high: str, low: str) -> None:
    """It fitted when the cycle began.  A workload after it would only be preempted for it by the next cycle."""
    heads = [wants("first", "a", 4), wants("high", "b", 4, priority=9), wants("low", "c", 2)]

    assert decide(_two_of_three_fit(**spec), *heads) == {"first": "admitted", "high": high, "low": low}


# --- what a waiting entry keeps free -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reclaims", "lesser"),
    [
        pytest.param(LOWER, "Skipped", id="it keeps free what it has a right to"),
        pytest.param(NEVER, "Skipped", id="also where it takes nothing back"),
    ],
)
def test_an_entry_that_waits_keeps_its_quota_from_those_after_it(reclaims: Any, lesser: str) -> None:
    """`a` lent to a greater workload of `b` what its head needs now; `b`'s next one does not get the rest."""
    roots = [cohort("team", leaf("a", nominal=6, borrows=2), leaf("b", nominal=4))]
    running = [runs("in-a", "a", 1, priority=9), runs("in-b", "b", 6, priority=9)]
    snapshot = quotas_of(roots, running, [make_queue("a", reclaims=reclaims)])

    decided = decide(snapshot, wants("waits", "a", 5), wants("small", "b", 1))

    assert decided == {"waits": "NoCandidates", "small": lesser}
    assert snapshot.nodes["a"].usage[GPUS] == 4


@pytest.mark.parametrize(
    ("node", "alone", "used", "asks", "kept"),
    [
        pytest.param(leaf("a", nominal=6), True, 3, 5, 3, id="what is left of the nominal quota"),
        pytest.param(leaf("a", nominal=6), True, 7, 5, 0, id="nothing where more than that is used"),
        pytest.param(leaf("a", nominal=6), False, 3, 8, 3, id="all that is free where it borrows without a limit"),
        pytest.param(leaf("a", nominal=6, borrows=2), False, 1, 8, 5, id="what is free below the borrowing limit"),
        pytest.param(leaf("a", nominal=6, borrows=2), False, 9, 8, -1, id="less than nothing beyond it"),
    ],
)
def test_what_a_waiting_entry_keeps_follows_from_what_its_queue_may_use(
    node: QuotaNode, alone: bool, used: int, asks: int, kept: int
) -> None:
    """Added to what its queue uses, for the rest of the cycle."""
    roots = [node] if alone else [cohort("team", node, leaf("b", nominal=8))]
    running = [runs("in-a", "a", used, priority=9)] + ([runs("in-b", "b", 8, priority=9)] if not alone else [])
    snapshot = quotas_of(roots, running, [make_queue("a", borrow_preempts=True)])

    assert decide(snapshot, wants("waits", "a", asks)) == {"waits": "NoCandidates"}
    assert snapshot.nodes["a"].usage[GPUS] - used == kept


def test_a_queue_that_may_reclaim_from_anybody_keeps_nothing_free() -> None:
    """It takes it back when it needs it; now its own workloads are in the way, which it does not preempt."""
    roots = [cohort("team", leaf("a", nominal=6), leaf("b", nominal=4))]
    spec = make_queue("a", reclaims=ANY, borrow_preempts=True)
    snapshot = quotas_of(roots, [runs("in-a", "a", 6, priority=9)], [spec])

    assert decide(snapshot, wants("waits", "a", 5), wants("small", "b", 4)) == {
        "waits": "NoCandidates",
        "small": "admitted",
    }


@pytest.mark.parametrize(
    ("claims", "order", "outcome"),
    [
        pytest.param(True, OrderRules(preemptors_first=True), "Skipped", id="others left for it, and it comes first"),
        pytest.param(False, OrderRules(preemptors_first=True), "admitted", id="nobody left for it"),
        pytest.param(True, OrderRules(), "admitted", id="preemptors do not come first"),
    ],
)
def test_a_preemptor_that_comes_first_keeps_room_free_though_it_may_reclaim(
    claims: bool, order: OrderRules, outcome: str
) -> None:
    """It has lost whom it could have preempted, and waits for the rest."""
    roots = [cohort("team", leaf("a", nominal=6), leaf("b", nominal=6))]
    running = [runs("in-a", "a", 3, priority=9), runs("in-b", "b", 6)]
    claim = Claim(key="default/p", uid="p", queue="a", usage={GPUS: 1}, victims={})
    snapshot = replace(quotas_of(roots, running, [make_queue("a", reclaims=ANY)]), claims=(claim,) if claims else ())
    decided = decide(snapshot, wants("p", "a", 5, age=1), wants("other", "b", 2), order=order)

    assert decided == {"p": "NoCandidates", "other": outcome}


# --- the same victims ----------------------------------------------------------------------------------------------


def reclaiming(*sizes: int, a: int = 4, b: int = 4) -> Snapshot:
    """`a` and `b` take back what `c` has borrowed from them in workloads of these sizes, last ones first."""
    roots = [cohort("team", leaf("a", nominal=a), leaf("b", nominal=b), leaf("c"))]
    running = [runs(f"c{i}", "c", size, reserved=i) for i, size in enumerate(sizes)]
    return quotas_of(roots, running, [make_queue("a", reclaims=ANY), make_queue("b", reclaims=ANY)])


def test_two_preemptors_of_one_cycle_do_not_share_a_victim() -> None:
    """Both would have chosen the last one admitted; the later entry looks again and finds another."""
    decided = decide(reclaiming(4, 4), wants("pa", "a", 4, age=1), wants("pb", "b", 4))

    assert decided == {"pa": "preempts c1", "pb": "preempts c0"}


@pytest.mark.parametrize(
    ("sizes", "looks", "outcome", "retargeted"),
    [
        pytest.param((8,), ALL_LOOKS, "Deferred", Retargeted.DEFERRED_FIT, id="there is enough for both"),
        pytest.param((4, 4), ALL_LOOKS, "preempts c0", Retargeted.NEW_TARGETS, id="there is another victim"),
        pytest.param(
            (4, 4), SecondLooks(for_targets=False), "Skipped", None, id="it would have had another victim, unlooked for"
        ),
        pytest.param((8,), SecondLooks(for_targets=False), "Skipped", None, id="it would have fitted, unlooked for"),
        pytest.param(
            (4, 4), SecondLooks(for_domains=False), "preempts c0", Retargeted.NEW_TARGETS, id="it is not about domains"
        ),
    ],
)
def test_the_later_of_two_preemptors_looks_again_if_it_may(
    sizes: tuple[int, ...], looks: SecondLooks, outcome: str, retargeted: Retargeted | None
) -> None:
    """Else it has lost its victim in this cycle, which is counted as such and not as a second look."""
    first, second = plan(reclaiming(*sizes), [wants("pa", "a", 4, age=1), wants("pb", "b", 4)], looks=looks)

    assert isinstance(first, Preempt)
    assert short(second) == ("pb", outcome)
    assert not isinstance(second, Admit)
    assert second.retargeted == retargeted
    assert (isinstance(second, Wait) and second.is_robbed) is (outcome == "Skipped")


def test_one_whose_victims_leave_for_another_fits_when_they_have_left() -> None:
    """One victim makes room for both: the second has nobody to preempt, and waits for the first one's to leave."""
    snapshot = reclaiming(8)
    found = waits(snapshot, wants("pa", "a", 4, age=1), wants("pb", "b", 4))

    assert found.keys() == {"pb"}
    assert found["pb"].outcome is Outcome.DEFERRED
    assert found["pb"].reason is WaitReason.WAITING_FOR_PREEMPTED_WORKLOADS
    assert "preempted for default/pa" in found["pb"].message


def test_nobody_gets_what_is_to_come_free_for_two() -> None:
    """The room of one who will fit later is kept like that of the one who made it."""
    snapshot = reclaiming(7, a=4, b=4)
    decided = decide(snapshot, wants("pa", "a", 4, age=2), wants("pb", "b", 4, age=1), wants("pc", "c", 1, priority=0))

    assert decided == {"pa": "preempts c0", "pb": "Deferred", "pc": "Skipped"}


def test_who_left_for_a_preemptor_is_not_tried_before_it() -> None:
    """Though there is room for it, and its priority is higher by now."""
    (preempt,) = plan(reclaiming(4, a=8, b=0), [wants("p", "a", 8)])
    assert isinstance(preempt, Preempt)
    after = replace(reclaiming(a=8, b=0), claims=(preempt.claim,))

    assert decide(after, wants("c0", "c", 1, priority=99), wants("other", "b", 1)) == {"c0": "Yields", "other": "NoFit"}
    assert "default/p, which is admitted first" in waits(after, wants("c0", "c", 1))["c0"].message


def test_one_whose_room_is_kept_gets_it_although_greater_ones_keep_room_free() -> None:
    """A greater entry of another queue waits in the same cycle, and would keep all there is."""
    (preempt,) = plan(reclaiming(8), [wants("p", "a", 4)])
    assert isinstance(preempt, Preempt)
    roots = [cohort("team", leaf("a", nominal=4), leaf("b", nominal=4), leaf("c"))]
    after = quotas_of(roots, [runs("in-c", "c", 4, priority=9)], [make_queue("a", reclaims=ANY)])

    decided = decide(replace(after, claims=(preempt.claim,)), wants("p", "a", 4), wants("great", "b", 4, priority=99))

    assert decided == {"p": "admitted", "great": "NoCandidates"}


# --- gates ---------------------------------------------------------------------------------------------------------


def gated(head: Head, *gates: str) -> Head:
    return replace(head, closed_gates=gates or ("g",))


def test_who_may_not_preempt_yet_says_which_gates_it_waits_for_and_keeps_nothing() -> None:
    """Others get what is free, and whom it would have preempted."""
    snapshot = reclaiming(5, a=5)
    head, other = gated(wants("pa", "a", 5, age=1), "x/first", "y/second"), wants("pb", "b", 4)
    found = waits(snapshot, head, other)

    assert found.keys() == {"pa"}
    assert (found["pa"].outcome, found["pa"].reason) == (Outcome.GATED, WaitReason.ADMISSION_GATED)
    assert "x/first, y/second" in found["pa"].message
    assert snapshot.nodes["b"].usage[GPUS] == 4


@pytest.mark.parametrize(
    ("snapshot", "asks", "outcome"),
    [
        pytest.param(reclaiming(4), 4, "admitted", id="there is room"),
        pytest.param(reclaiming(7), 9, "NoFit", id="it asks for more than there ever is"),
        pytest.param(reclaiming(8), 4, "Gated", id="there is whom to preempt"),
    ],
)
def test_a_closed_gate_matters_to_preemption_only(snapshot: Snapshot, asks: int, outcome: str) -> None:
    """Whatever needs nobody to leave goes on as without it."""
    assert decide(snapshot, gated(wants("p", "a", asks))) == {"p": outcome}


def test_who_may_not_preempt_fits_when_those_have_left_who_leave_for_others() -> None:
    """It makes nobody leave by that."""
    snapshot = reclaiming(8)

    assert decide(snapshot, wants("pa", "a", 4, age=1), gated(wants("pb", "b", 4))) == {
        "pa": "preempts c0",
        "pb": "Deferred",
    }


def test_a_gate_that_is_closed_again_ends_the_claim() -> None:
    """It needs more than its first victim leaves, and may not ask for more."""
    (preempt,) = plan(reclaiming(4, 4), [wants("p", "a", 4)])
    assert isinstance(preempt, Preempt)
    after = replace(reclaiming(4, 4), claims=(preempt.claim,))

    assert decide(after, gated(wants("p", "a", 8))) == {"p": "NoFit"}
    more = quotas_of(
        [cohort("team", leaf("a", nominal=8), leaf("c"))],
        [runs("c0", "c", 4), runs("c1", "c", 4, reserved=1)],
        [make_queue("a", reclaims=ANY)],
    )
    assert decide(replace(more, claims=(preempt.claim,)), gated(wants("p", "a", 8))) == {"p": "Gated"}


# --- slices ----------------------------------------------------------------------------------------------------------


def slice_of(older: Admitted, gpus: int, **more: Any) -> Head:
    """A slice that takes over from one that runs."""
    held = PodSetAssignment(name="main", flavors={GPU: "gpu"}, usage={GPU: older.usage[GPUS]}, count=1)
    admission = Admission(queue=older.queue, pod_sets=(held,))
    replaced = Replaced(key=older.key, admission=admission, requests={"main": {GPU: older.usage[GPUS]}})
    return replace(wants("newer", older.queue, gpus, **more), replaces=replaced)


def test_a_slice_does_not_preempt_the_one_that_it_takes_over_from() -> None:
    """The older one is of lower priority, and would do: another lesser workload has to go instead."""
    older, lesser = runs("older", "a", 3, reserved=9), runs("lesser", "a", 5)
    snapshot = quotas_of([leaf("a", nominal=8)], [older, lesser], [make_queue("a", preempts_own=LOWER)])

    assert decide(snapshot, slice_of(older, 4, priority=5)) == {"newer": "preempts lesser"}


def test_a_slice_whose_older_one_has_to_leave_waits_for_the_preemptor() -> None:
    """The preemptor of the same cycle comes first, and what the older slice holds is for it."""
    older = runs("older", "c", 4)
    roots = [cohort("team", leaf("a", nominal=4), leaf("c", nominal=1))]
    snapshot = quotas_of(roots, [older], [make_queue("a", reclaims=ANY)])

    assert decide(snapshot, wants("p", "a", 4), slice_of(older, 5)) == {"p": "preempts older", "newer": "Yields"}


# --- one at a time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "decided"),
    [
        pytest.param({}, {"one": "admitted", "two": "admitted", "p": "preempts in-c"}, id="all that fit"),
        pytest.param(
            {"held_by": "default/slow"},
            {"one": "Held", "two": "Held", "p": "preempts in-c"},
            id="nobody while pods are not ready, but room is made",
        ),
        pytest.param(
            {"one_at_a_time": True}, {"one": "admitted", "two": "Held", "p": "preempts in-c"}, id="one, and then nobody"
        ),
    ],
)
def test_admission_may_wait_for_pods(rules: dict[str, Any], decided: dict[str, str]) -> None:
    """Those that are held up have their room, and say for whom they wait."""
    roots = [leaf("a", nominal=4), leaf("b", nominal=4), leaf("c", nominal=4)]
    specs = [make_queue("c", preempts_own=LOWER)]
    heads = [wants("one", "a", 4, age=2), wants("two", "b", 4, age=1), wants("p", "c", 4, priority=5)]

    def world_now() -> Snapshot:
        return quotas_of([*map(replace, roots)], [runs("in-c", "c", 4)], specs)

    assert decide(world_now(), *heads, **rules) == decided
    for uid, wait in waits(world_now(), *heads, **rules).items():
        assert wait.reason is WaitReason.WAITING_FOR_PODS_READY, uid
        assert rules.get("held_by", "default/one") in wait.message


def test_the_room_of_one_that_is_held_up_is_not_counted_on() -> None:
    """A later entry of the cycle may not preempt for room that would have been gone."""
    roots = [cohort("team", leaf("a", nominal=4), leaf("b", nominal=4))]
    snapshot = quotas_of(roots, [], [])

    decided = decide(snapshot, wants("first", "a", 6, priority=1), wants("second", "b", 4), held_by="default/slow")

    assert decided == {"second": "Held", "first": "Skipped"}


# --- bugs ------------------------------------------------------------------------------------------------------------


def test_a_head_on_which_the_cycle_breaks_keeps_its_claim_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody has one decision, and the broken one says what happened."""
    real = flavors.assign

    def breaks_on_p(head: Head, *args: Any, **kwargs: Any) -> flavors.Assignment:
        if head.uid == "p":
            raise ZeroDivisionError("by hand")
        return real(head, *args, **kwargs)

    monkeypatch.setattr(flavors, "assign", breaks_on_p)
    snapshot = quotas_of([cohort("team", leaf("a", nominal=4), leaf("b", nominal=4))])

    assert decide(snapshot, wants("p", "a", 4), wants("sound", "b", 4)) == {"p": "Broken", "sound": "admitted"}


# --- what they say ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "in_cohort", "facts"),
    [
        pytest.param({}, False, ["ClusterQueue a has withinClusterQueue Never"], id="it preempts nobody"),
        pytest.param(
            {"reclaims": LOWER},
            True,
            ["withinClusterQueue Never and reclaimWithinCohort LowerPriority"],
            id="in a cohort",
        ),
        pytest.param(
            {"preempts_own": LOWER},
            False,
            ["withinClusterQueue LowerPriority, and the 1 of lower priority", "not enough"],
            id="those whom it may preempt are too few",
        ),
    ],
)
def test_who_has_nobody_to_preempt_says_which_policies_keep_it_from_that(
    settings: dict[str, Any], in_cohort: bool, facts: list[str]
) -> None:
    """After what is asked and what is free."""
    roots = [cohort("team", leaf("a", nominal=8))] if in_cohort else [leaf("a", nominal=8)]
    running = [runs("lesser", "a", 2), runs("greater", "a", 5, priority=9)]
    wait = waits(quotas_of(roots, running, [make_queue("a", **settings)]), wants("p", "a", 6, priority=5))["p"]

    for fact in [f"asks for 6 {GPU}", f"1 {GPU} free", f"5 {GPU} more needed", *facts]:
        assert fact in wait.details, wait.details


def test_hosts_are_kept_for_a_preemptor_too() -> None:
    """A victim leaves one host of a rack; the other one, free all the time, goes to nobody else meanwhile."""
    spec = make_queue("team", preempts_own=LOWER)
    victim = runs("victim", "team", 8, domains={"gpu": (DomainUsage(("b0-r0-h0",), {GPU: 8}, 1),)})

    def hosts(*running: Admitted) -> Snapshot:
        view = make_view((1, 1, 2))
        view.capacity.charge([u for w in running for u in w.domains["gpu"]])
        made = world([leaf("team", nominal=99), leaf("b", nominal=99)], running, [spec], topologies={"gpu": view})
        return replace(made, flavors={"gpu": Flavor(name="gpu", topology="dc")})

    (preempt,) = plan(hosts(victim), [make_head("p", pods=2, priority=5)])
    assert isinstance(preempt, Preempt)
    small = make_head("small", queue="b", pods=1, priority=99)

    assert decide(hosts(victim), small) == {"small": "admitted"}
    assert decide(replace(hosts(victim), claims=(preempt.claim,)), small) == {"small": "NoCandidates"}
    assert decide(replace(hosts(), claims=(preempt.claim,)), make_head("p", pods=2, priority=5)) == {"p": "admitted"}


@pytest.mark.parametrize(
    ("used", "small"),
    [
        pytest.param(8, "admitted", id="it waits for quota"),
        pytest.param(0, "Skipped", id="it has the quota and waits for hosts"),
    ],
)
def test_hosts_are_kept_only_for_an_entry_that_has_quota(used: int, small: str) -> None:
    """The older entry wants two hosts, of which one is taken; another ClusterQueue without a Cohort wants the other."""
    running = runs("in-b", "b", 8, domains={"gpu": (DomainUsage(("b0-r0-h0",), {GPU: 8}, 1),)})
    view = make_view((1, 1, 2))
    view.capacity.charge(running.domains["gpu"])
    roots = [leaf("a", nominal=16), leaf("b", nominal=99)]
    specs = [make_queue("a"), make_queue("b")]
    made = world(roots, [running, runs("in-a", "a", used)], specs, topologies={"gpu": view})
    snapshot = replace(made, flavors={"gpu": Flavor(name="gpu", topology="dc")})
    waits_first = make_head("waits", queue="a", pods=2, age=10)

    decided = decide(snapshot, waits_first, make_head("small", queue="b", pods=1))

    assert decided == {"waits": "NoCandidates", "small": small}


# --- what is not searched ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nominal", "gpus", "rack", "searched"),
    [
        pytest.param(2, 2, 8, True, id="preemption may help"),
        pytest.param(2, 3, 8, False, id="more than the quota"),
        pytest.param(9, 2, 1, False, id="more than any rack of an empty cluster"),
    ],
)
@pytest.mark.mechanism("3.24")
def test_what_never_fits_is_not_searched_for_victims(
    nominal: int, gpus: int, rack: int, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a flavor with too little quota, nor one whose domains are too small even when they are empty."""
    calls: list[object] = []

    def counted(*about: Any, **more: Any) -> Any:
        calls.append(about)
        return find_targets(*about, **more)

    monkeypatch.setattr(nomination, "find_targets", counted)
    roots = [cohort("all", leaf("team", nominal=nominal))]
    snapshot = world(roots, [runs("a", "team", 2)], [make_queue("team", preempts_own=LOWER)])
    flavor = Flavor(name="gpu", topology="dc")
    snapshot = replace(snapshot, flavors={"gpu": flavor}, topologies={"gpu": make_view((1, 1, 1), gpus=rack)})
    head = make_head("high", queue="team", pods=1, gpus=gpus, priority=9)
    list(plan(snapshot, [head]))
    assert bool(calls) is searched
