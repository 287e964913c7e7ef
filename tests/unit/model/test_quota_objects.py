"""From flavors, ClusterQueues and selectors to what planning sees."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import LabelSelector
from kqueue.api.wire.selectors import selector_matches
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.topology import Algorithm, Profile, Taint, Toleration
from kqueue.core.topology.placers import JOINT
from kqueue.core.workload import Preempts
from tests.unit.state.wire_objects import JSON, read

# --- queues and flavors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"topologyName": "dc"}, "dc", id="by-name"),
        pytest.param({"topology": {"levels": [{"nodeLabel": "rack"}]}}, "f (inline)", id="levels-of-its-own"),
        pytest.param({"topologyName": "dc", "topology": {"levels": [{"nodeLabel": "rack"}]}}, "dc", id="the-name-wins"),
    ],
)
def test_a_flavor_may_have_a_topology_by_name_or_inline(spec: JSON, want: str | None) -> None:
    """The name made for inline levels is none that an object could have."""
    assert model.flavor(read(wire.ResourceFlavor, metadata={"name": "f"}, spec=spec)).topology == want


def test_a_flavor_is_read_whole() -> None:
    """Labels, taints and tolerations."""
    spec = {
        "nodeLabels": {"pool": "gpu"},
        "nodeTaints": [{"key": "spot", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    flavor = model.flavor(read(wire.ResourceFlavor, metadata={"name": "f"}, spec=spec))

    assert (flavor.name, flavor.node_labels) == ("f", {"pool": "gpu"})
    assert flavor.taints == (Taint("spot", "", "NoSchedule"),)
    assert flavor.tolerations == (Toleration("spot", "Exists"),)


def make_queue(resources: list[JSON] | None = None, **spec: Any) -> wire.ClusterQueue:
    quotas = [{"name": "cpu", "nominalQuota": "10"}] if resources is None else resources
    groups = [{"coveredResources": [r["name"] for r in quotas], "flavors": [{"name": "spot", "resources": quotas}]}]
    return read(wire.ClusterQueue, metadata={"name": "team"}, spec={"resourceGroups": groups, **spec})


def test_the_quotas_of_a_queue_are_read_per_column() -> None:
    """Nominal and limits as integers; a limit of 0 is a limit, an absent one is none."""
    limits = {"borrowingLimit": "500m", "lendingLimit": 0}
    queue = make_queue([{"name": "cpu", "nominalQuota": "10", **limits}, {"name": "memory", "nominalQuota": "1Gi"}])
    spec, columns, problem = model.queue_spec(queue)

    assert columns == {
        FlavorResource("spot", "cpu"): Quota(10_000, 500, 0),
        FlavorResource("spot", "memory"): Quota(1 << 30, None, None),
    }
    assert problem == ""
    assert [(g.resources, g.flavors) for g in spec.groups] == [(("cpu", "memory"), ("spot",))]


@pytest.mark.parametrize(
    ("sharing", "billionths", "problem"),
    [
        pytest.param(None, 10**9, "", id="without-fair-sharing-it-is-1"),
        pytest.param({}, 10**9, "", id="not-said-it-is-1"),
        pytest.param({"weight": 3}, 3 * 10**9, "", id="a-number"),
        pytest.param({"weight": "250m"}, 250_000_000, "", id="a-fraction"),
        pytest.param({"weight": "2n"}, 2, "", id="the-least-there-is"),
        pytest.param({"weight": 0}, 0, "", id="none-at-all"),
        pytest.param({"weight": "-1"}, 10**9, "spec.fairSharing.weight: must not be negative", id="negative"),
        pytest.param({"weight": "much"}, 10**9, "spec.fairSharing.weight: 'much' is not a quantity", id="no-quantity"),
    ],
)
def test_the_weight_of_a_queue_is_read_exactly(sharing: JSON | None, billionths: int, problem: str) -> None:
    """Billionths; what cannot be read counts as 1, and keeps the queue from admitting with all else that is wrong."""
    queue = make_queue([{"name": "cpu", "nominalQuota": "many"}], fairSharing=sharing)
    weight, why = model.weight(queue.spec.fair_sharing)
    assert weight == billionths
    assert (why.startswith(problem), bool(why)) == (True, bool(problem))
    all_problems = model.queue_spec(queue)[2]
    assert "'many' is not a quantity" in all_problems
    assert problem in all_problems


def test_a_quota_that_cannot_be_read_does_not_hide_the_others() -> None:
    """Every mistake is named with its field; what can be read is."""
    queue = make_queue(
        [
            {"name": "cpu", "nominalQuota": "many"},
            {"name": "memory", "nominalQuota": "1Ki"},
            {"name": "gpu", "nominalQuota": "1", "lendingLimit": "-1"},
        ]
    )
    _, columns, problem = model.queue_spec(queue)

    assert columns == {FlavorResource("spot", "memory"): Quota(1024)}
    assert "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota[cpu]: 'many' is not a quantity" in problem
    assert "spec.resourceGroups[0].flavors[0].resources[2].lendingLimit[gpu]: must not be negative" in problem


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        pytest.param({}, {}, id="as-the-api-fills-in"),
        pytest.param(
            {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"}},
            {"borrow_before_next_flavor": False, "preempt_before_next_flavor": True},
            id="fungibility",
        ),
        pytest.param(
            {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}}, {"prefers_preemption": True}, id="taste"
        ),
        pytest.param(
            {"preemption": {"reclaimWithinCohort": "Any"}}, {"reclaims": Preempts.ANY}, id="reclaims-from-any"
        ),
        pytest.param(
            {"preemption": {"reclaimWithinCohort": "LowerPriority"}},
            {"reclaims": Preempts.LOWER_PRIORITY},
            id="reclaims-from-some",
        ),
        pytest.param(
            {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}},
            {"preempts_own": Preempts.LOWER_OR_NEWER_EQUAL},
            id="preempts-its-own",
        ),
        pytest.param(
            {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7}}},
            {"borrow_preempts": True, "borrow_preempts_up_to": 7},
            id="preempts-while-borrowing",
        ),
    ],
)
def test_the_policies_of_a_queue_are_read(spec: JSON, changed: JSON) -> None:
    """Each policy sets its own switch and no other; the defaults are those of the API."""
    made, _, _ = model.queue_spec(make_queue(**spec))
    switches = {
        "borrow_before_next_flavor": True,
        "preempt_before_next_flavor": False,
        "prefers_preemption": False,
        "preempts_own": Preempts.NEVER,
        "reclaims": Preempts.NEVER,
        "borrow_preempts": False,
        "borrow_preempts_up_to": None,
    }

    assert {name: getattr(made, name) for name in switches} == switches | changed


def rule(operator: str, *values: str) -> JSON:
    return {"matchExpressions": [{"key": "team", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "of_a", "of_nobody"),
    [
        pytest.param(None, False, False, id="none-selects-nothing"),
        pytest.param({}, True, True, id="an-empty-one-selects-all"),
        pytest.param({"matchLabels": {"team": "a"}}, True, False, id="label"),
        pytest.param({"matchLabels": {"team": "a", "stage": "x"}}, False, False, id="all-labels-must-match"),
        pytest.param(rule("In", "a", "b"), True, False, id="in"),
        pytest.param(rule("NotIn", "a"), False, True, id="not-in-holds-without-the-label"),
        pytest.param(rule("Exists"), True, False, id="exists"),
        pytest.param(rule("DoesNotExist"), False, True, id="does-not-exist"),
        pytest.param(rule("Near", "a"), False, False, id="an-unknown-operator-selects-nothing"),
        pytest.param({"matchLabels": {"team": "a"}, **rule("NotIn", "a")}, False, False, id="labels-and-rules"),
    ],
)
def test_selectors_select(selector: JSON | None, of_a: bool, of_nobody: bool) -> None:
    """As Kubernetes reads label selectors."""
    parsed = None if selector is None else read(LabelSelector, **selector)

    assert selector_matches(parsed, {"team": "a"}) is of_a
    assert selector_matches(parsed, {}) is of_nobody


# --- workloads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "profile"),
    [
        pytest.param({}, Profile(unconstrained=Algorithm.BEST_FIT), id="the-controller's"),
        pytest.param(
            {"kqueue.dev/placement-profile": "optimal"},
            Profile(constrained=Algorithm.OPTIMAL, unconstrained=Algorithm.BEST_FIT),
            id="its-own",
        ),
    ],
)
def test_a_queue_may_choose_how_its_pods_are_placed(chosen: dict[str, str], profile: Profile) -> None:
    """For requests that name a level; the rest is as the controller was told."""
    queue = make_queue()
    queue = msgspec.structs.replace(queue, metadata=msgspec.structs.replace(queue.metadata, annotations=chosen))

    spec, _, problem = model.queue_spec(queue, Profile(unconstrained=Algorithm.BEST_FIT))

    assert (spec.profile, problem) == (profile, "")


@pytest.mark.parametrize(
    ("text", "seconds", "problem"),
    [
        pytest.param(None, 0, "", id="none"),
        pytest.param("0", 0, "", id="nothing"),
        pytest.param("10m", 600, "", id="minutes"),
        pytest.param("1h30m", 5400, "", id="hours"),
        pytest.param("1500ms", 2, "", id="a-second-that-has-begun-counts"),
        pytest.param("soon", 0, "'soon' must be a duration such as 300ms, 5m or 1h30m", id="no-duration"),
        pytest.param("600", 0, "'600' must be a duration such as 300ms, 5m or 1h30m", id="no-unit"),
        pytest.param("-5m", 0, "'-5m' must not be negative; write 0 or more", id="negative"),
    ],
)
def test_a_queue_may_protect_its_workloads_for_a_time(text: str | None, seconds: int, problem: str) -> None:
    """What cannot be read keeps it from admitting, and a change of it alone is a change of the queue."""
    without = make_queue()
    annotations = {} if text is None else {"kqueue.dev/minimum-runtime": text}
    queue = msgspec.structs.replace(
        without, metadata=msgspec.structs.replace(without.metadata, annotations=annotations)
    )

    spec, _, why = model.queue_spec(queue)

    assert spec.minimum_runtime == seconds
    assert why == (f"metadata.annotations[kqueue.dev/minimum-runtime]: {problem}" if problem else "")
    assert model.same_queue(queue, without) is (text is None)


def test_a_profile_that_does_not_exist_is_named_with_the_remedy() -> None:
    """The queue says so and stays closed, instead of placing in a way that nobody asked for."""
    queue = make_queue()
    annotations = {"kqueue.dev/placement-profile": "tight"}
    queue = msgspec.structs.replace(queue, metadata=msgspec.structs.replace(queue.metadata, annotations=annotations))

    _, _, problem = model.queue_spec(queue)

    assert "metadata.annotations[kqueue.dev/placement-profile]: 'tight' is no profile" in problem
    assert "use one of BestFit, LeastFreeCapacity, optimal, balanced, joint" in problem


def test_the_profiles_that_may_be_named_are_those_that_there_are() -> None:
    """Whoever checks a job's annotation knows the same names as whoever places its pods."""
    assert set(names.PLACEMENT_PROFILES) == {*Algorithm, JOINT}
