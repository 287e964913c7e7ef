"""Plugins at work in a plan: each point, its place in the order of calls, and its failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.decision import Admit, Decision, Outcome, Preempt, Wait
from kqueue.core.explain import BlockerKind, WaitReason
from kqueue.core.hooks import ProfileHooks
from kqueue.core.plan_cache import PlanCache
from kqueue.core.plugins import AGREED, Verdict
from kqueue.core.preemption import Target
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import Leaf
from kqueue.core.workload import Flavor, Head, Preempts, Snapshot, TopologyView
from tests.builders import GPU, LEVELS, make_head, make_node, make_queue, make_snapshot, make_view, plan
from tests.unit.core.preemption_cases import cohort, leaf, runs, world
from tests.unit.core.test_cycle_preemption import quotas_of, wants
from tests.unit.toys.toy_plugin import ToyPlugin

LOWER = Preempts.LOWER_PRIORITY
PLAIN = (Flavor(name="fast"), Flavor(name="slow"))


class Says:
    """A plugin with the given methods; it notes its calls."""

    def __init__(self, name: str, calls: list[str] | None = None, **methods: Any) -> None:
        self.name = name
        self.calls: list[str] = [] if calls is None else calls
        for method, answer in methods.items():
            setattr(self, method, self._method(method, answer))

    def _method(self, method: str, answer: Any) -> Any:
        def called(*about: Any) -> Any:
            self.calls.append(f"{self.name}.{method}")
            if isinstance(answer, Exception):
                raise answer
            return answer(*about) if callable(answer) else answer

        return called


def decide(snapshot: Snapshot, *heads: Head, **hooks: Any) -> dict[str, Decision]:
    found = plan(snapshot, heads, hooks={"default": ProfileHooks(**hooks)})
    return {decision.head.uid: decision for decision in found}


def two_flavors(amount: int = 8) -> Snapshot:
    return make_snapshot({"team": {"fast": amount, "slow": amount}}, flavors=PLAIN, topologies={})


def flavor_of(decision: Decision) -> str:
    assert isinstance(decision, Admit)
    return next(iter(decision.admission.pod_sets[0].flavors.values()))


def waiting(decision: Decision) -> Wait:
    assert isinstance(decision, Wait)
    return decision


# --- screen --------------------------------------------------------------------------------------------------------


def test_a_screen_ends_the_try_of_one_workload_g5_2() -> None:
    """Nothing is reserved for it, and the plugin's sentence is its reason."""
    night = Says("night", screen=lambda head: Verdict("it is day") if head.uid == "a" else AGREED)
    snapshot = two_flavors(1)
    found = decide(replace(snapshot), wants("a", "team", 1, priority=9), wants("b", "team", 1), screens=(night,))
    refused = waiting(found["a"])
    assert (refused.outcome, refused.reason) == (Outcome.PLUGIN, WaitReason.ADMISSION_GATED)
    assert [b.kind for b in refused.blockers] == [BlockerKind.PLUGIN]
    assert refused.message == "Plugin night: it is day"
    assert flavor_of(found["b"]) == "fast"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(ZeroDivisionError("planted"), "ZeroDivisionError: planted", id="it raises"),
        pytest.param(None, "TypeError: the answer is NoneType, not Verdict", id="it answers with another type"),
    ],
)
def test_a_plugin_that_fails_stops_nobody_else_g5_14(answer: Any, said: str) -> None:
    def screen(head: Head) -> Any:
        if head.uid == "b":
            return AGREED
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = decide(two_flavors(), wants("a", "team", 1), wants("b", "team", 1), screens=(Says("acme", screen=screen),))
    failed = waiting(found["a"])
    assert (failed.outcome, failed.error) == (Outcome.PLUGIN, None)
    assert failed.details == f"plugin acme failed: {said}"
    assert isinstance(found["b"], Admit)


def test_only_queues_of_the_profile_ask_its_plugins_g5_18() -> None:
    no: Any = Says("no", screen=Verdict("never"))
    snapshot = make_snapshot(
        {"team": {"fast": 8}, "other": {"fast": 8}},
        specs=[make_queue("other", flavors=("fast",), plugin_profile="night")],
        flavors=PLAIN,
        topologies={},
    )
    heads = [wants("a", "team", 1), wants("b", "other", 1)]
    found = {d.head.uid: d for d in plan(snapshot, heads, hooks={"night": ProfileHooks(screens=(no,))})}
    assert (type(found["a"]), type(found["b"])) == (Admit, Wait)


def test_a_workload_without_a_place_in_the_order_is_not_tried_g5_14() -> None:
    head = replace(wants("a", "team", 1), plugin_problem="plugin acme failed: KeyError: 'x'")
    [found] = plan(two_flavors(), [head])
    assert waiting(found).details == "plugin acme failed: KeyError: 'x'"


# --- filter --------------------------------------------------------------------------------------------------------


def test_a_refused_flavor_is_passed_g5_3() -> None:
    acme = Says("acme", allows_flavor=lambda _pods, flavor: "no licence" if flavor.name == "fast" else "")
    assert flavor_of(decide(two_flavors(), wants("a", "team", 1), filters=(acme,))["a"]) == "slow"


def test_a_workload_without_an_allowed_flavor_says_why_g5_11() -> None:
    acme = Says("acme", allows_flavor="no licence")
    found = waiting(decide(two_flavors(), wants("a", "team", 1), filters=(acme,))["a"])
    assert found.reason is WaitReason.NO_MATCHING_FLAVOR
    assert found.message == "Plugin acme: no licence (flavor fast)"
    assert "plugin acme: no licence (flavor slow)" in found.details


@pytest.mark.mechanism("3.18")
def test_later_filters_are_not_called_after_a_refusal_g5_12() -> None:
    """Row 3.18, for flavors and for nodes."""
    calls: list[str] = []
    first = Says("first", calls, allows_flavor="no", allows_node="no")
    second = Says("second", calls, allows_flavor="", allows_node="")
    decide(two_flavors(), wants("a", "team", 1), filters=(first, second))
    assert calls == ["first.allows_flavor"] * 2

    calls.clear()
    first = Says("first", calls, allows_node="no")
    decide(make_snapshot({"team": {"gpu": 64}}), make_head("a", pods=1), filters=(first, second))
    assert set(calls) == {"second.allows_flavor", "first.allows_node"}


def test_refused_nodes_get_no_pods_g5_3() -> None:
    acme = Says("acme", allows_node=lambda _pods, node: "" if node.name.startswith("b0-r1") else "too old")
    found = decide(make_snapshot({"team": {"gpu": 64}}), make_head("a", pods=2), filters=(acme,))["a"]
    assert isinstance(found, Admit)
    topology = found.admission.pod_sets[0].topology
    assert topology is not None
    assert {domain.values[-1][:5] for domain in topology.domains} == {"b0-r1"}


def test_a_workload_without_an_allowed_node_says_why_g5_11() -> None:
    acme = Says("acme", allows_node="too old")
    found = waiting(decide(make_snapshot({"team": {"gpu": 64}}), make_head("a", pods=2), filters=(acme,))["a"])
    assert found.reason is WaitReason.TOPOLOGY_PLACEMENT_FAILED
    assert "8 by plugin acme: too old" in found.details


def test_nodes_are_asked_about_once_per_form_and_version_g5_3() -> None:
    """Another workload of the same form, another plan and another number of pods ask nothing; a changed node does."""
    acme = Says("acme", allows_node="")
    hooks, cache = {"default": ProfileHooks(filters=(acme,))}, PlanCache()
    view = make_view((1, 2, 2))
    head = make_head("a", pods=1)
    for uid in ("a", "b"):
        snapshot = make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": view})
        list(plan(snapshot, [replace(head, uid=uid, key=f"default/{uid}")], hooks=hooks, cache=cache))
    assert acme.calls == ["acme.allows_node"] * 4

    changed = make_node("b0-r0-h0", rack="b0-r0", gpus=16)
    tree, _ = view.tree.edited([0], [Leaf(tuple(changed.labels[level] for level in LEVELS), (changed,))])
    view = TopologyView("dc", tree, type(view.capacity).of(tree))
    list(plan(make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": view}), [head], hooks=hooks, cache=cache))
    assert acme.calls == ["acme.allows_node"] * 5


def test_a_filter_that_fails_lets_the_workload_wait_g5_14() -> None:
    for method in ("allows_flavor", "allows_node"):
        acme = Says("acme", None, **{method: OSError("disk")})
        found = decide(make_snapshot({"team": {"gpu": 64}}), make_head("a", pods=1), filters=(acme,))["a"]
        assert waiting(found).details == "plugin acme failed: OSError: disk"


# --- victims -------------------------------------------------------------------------------------------------------


def full_queue(*running: tuple[str, int]) -> Snapshot:
    roots = [cohort("all", leaf("team", nominal=2))]
    held = [runs(name, "team", gpus, priority=0) for name, gpus in running]
    return quotas_of(roots, held, [make_queue("team", preempts_own=LOWER)])


def stays(*uids: str) -> Any:
    return lambda _head, targets: frozenset(uids) & {target.admitted.uid for target in targets}


def targets_of(decision: Decision) -> list[str]:
    return sorted(t.admitted.uid for t in decision.targets) if isinstance(decision, Preempt) else []


@pytest.mark.parametrize(
    ("running", "vetoed", "gone"),
    [
        pytest.param([("a", 2)], ["a"], [], id="the only one stays"),
        pytest.param([("a", 1), ("b", 1)], ["a"], ["b"], id="the other one goes"),
        pytest.param([("a", 1), ("b", 1)], ["a", "b"], [], id="both stay"),
        pytest.param([("a", 1), ("b", 1)], [], ["b"], id="nobody is protected"),
    ],
)
@pytest.mark.mechanism("3.27")
def test_vetoed_workloads_stay_g5_4(running: list[tuple[str, int]], vetoed: list[str], gone: list[str]) -> None:
    """Row 3.27.  Of two equal ones, the later UID goes first here."""
    acme = Says("acme", veto=stays(*vetoed))
    found = decide(full_queue(*running), wants("high", "team", 1, priority=9), victims=(acme,))["high"]
    assert targets_of(found) == gone or (len(gone) == 1 and len(targets_of(found)) == 1 and not vetoed)
    if not gone:
        assert waiting(found).outcome is Outcome.PLUGIN
        count = "2 workloads" if len(vetoed) == 2 else "1 workload"
        assert f"plugin acme: {count} must not be preempted for it" in waiting(found).details


def test_a_veto_of_the_second_choice_ends_the_search_g5_4() -> None:
    """Of three, the plugin is asked about the first and the second choice, and nobody whom it protects goes."""
    acme = Says("acme", veto=stays("a", "b", "c"))
    snapshot = full_queue(("a", 1), ("b", 1))
    found = decide(snapshot, wants("high", "team", 1, priority=9), victims=(acme,))["high"]
    assert targets_of(found) == []
    assert acme.calls == ["acme.veto"] * 2


def two_victims() -> Snapshot:
    """A workload of priority 5 holds the first flavor, one of priority 1 the second one."""
    fast, slow = FlavorResource("fast", GPU), FlavorResource("slow", GPU)
    roots = [cohort("all", leaf("team", nominal={fast: 1, slow: 1}))]
    held = [runs("dear", "team", {fast: 1}, priority=5), runs("cheap", "team", {slow: 1}, priority=1)]
    spec = make_queue("team", flavors=("fast", "slow"), preempts_own=LOWER, preempt_before_next_flavor=True)
    return replace(world(roots, held, [spec]), flavors={flavor.name: flavor for flavor in PLAIN})


def highest(_head: Head, targets: Sequence[Target]) -> tuple[int, ...]:
    return (max(target.admitted.priority for target in targets),)


def test_sets_of_targets_are_compared_between_flavors_g5_4() -> None:
    """Without a plugin the search ends at the first flavor in which somebody may be preempted."""
    high = wants("high", "team", 1, priority=9)
    assert targets_of(decide(two_victims(), high)["high"]) == ["dear"]

    acme = Says("acme", rank=highest)
    assert targets_of(decide(two_victims(), high, victims=(acme,))["high"]) == ["cheap"]
    assert acme.calls == ["acme.rank"] * 2

    equal = Says("acme", rank=())
    assert targets_of(decide(two_victims(), high, victims=(equal,))["high"]) == ["dear"]


# --- score ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "taken"),
    [
        pytest.param({"fast": 1, "slow": 2}, "slow", id="the higher score"),
        pytest.param({"fast": 7, "slow": 7}, "fast", id="the order of the queue decides"),
    ],
)
def test_the_flavor_with_the_highest_score_is_taken_g5_5(scores: Mapping[str, int], taken: str) -> None:
    acme = Says("acme", score=lambda _prepared, flavor: scores[flavor.name])
    assert flavor_of(decide(two_flavors(), wants("a", "team", 1), scores=(acme,))["a"]) == taken


def test_scores_of_several_plugins_are_added_and_normalised_g5_5() -> None:
    one = Says("one", score=lambda _prepared, flavor: 60 if flavor.name == "fast" else 10)
    two = Says(
        "two",
        prepare=lambda head: head.uid,
        score=lambda prepared, flavor: 1 if (prepared, flavor.name) == ("a", "slow") else 0,
        normalise=lambda scores: {name: score * 100 for name, score in scores.items()},
    )
    assert flavor_of(decide(two_flavors(), wants("a", "team", 1), scores=(one, two))["a"]) == "slow"
    assert two.calls == ["two.prepare", "two.score", "two.score", "two.normalise"]


def test_only_flavors_that_fit_are_scored_g5_5() -> None:
    snapshot = make_snapshot({"team": {"fast": 1, "slow": 8}}, flavors=PLAIN, topologies={})
    seen: list[str] = []

    def score(_prepared: Head, flavor: Flavor) -> int:
        seen.append(flavor.name)
        return 50

    acme = Says("acme", score=score)
    assert flavor_of(decide(snapshot, wants("a", "team", 2), scores=(acme,))["a"]) == "slow"
    assert seen == ["slow"]


@pytest.mark.parametrize("score", [-1, 101, 1.5, None])
def test_scores_out_of_bounds_are_failures_g5_5(score: Any) -> None:
    acme = Says("acme", score=score)
    found = waiting(decide(two_flavors(), wants("a", "team", 1), scores=(acme,))["a"])
    assert f"plugin acme failed: ValueError: the score of flavor fast is {score!r}" in found.details


# --- the order of calls --------------------------------------------------------------------------------------------


@pytest.mark.mechanism("3.17")
def test_calls_of_one_try_go_in_order_g5_12() -> None:
    """Row 3.17, as far as a plan goes: scores where it fits, victims where it does not."""
    calls: list[str] = []
    toy: Any = ToyPlugin({"calls": calls})
    hooks = {"screens": (toy,), "filters": (toy,), "victims": (toy,), "scores": (toy,)}
    decide(make_snapshot({"team": {"gpu": 64}}), make_head("a", pods=1), **hooks)
    assert list(dict.fromkeys(calls)) == ["screen", "allows_flavor", "allows_node", "prepare", "score", "normalise"]

    calls.clear()
    decide(full_queue(("a", 2)), wants("high", "team", 1, priority=9), **hooks)
    assert list(dict.fromkeys(calls)) == ["screen", "allows_flavor", "rank", "veto"]


def test_without_plugins_nothing_is_asked() -> None:
    """An empty profile is as good as none."""
    with_hooks = list(plan(two_flavors(), [wants("a", "team", 1)], hooks={"default": ProfileHooks()}))
    without = list(plan(two_flavors(), [wants("a", "team", 1)]))
    assert with_hooks == without
