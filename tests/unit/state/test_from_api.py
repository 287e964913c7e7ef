"""What the watches bring, read: nodes, pods, queues, workloads; and what cannot be read is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest

from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import LabelSelector
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.topology import (
    Algorithm,
    NodeFacts,
    NodeRules,
    NodeTerm,
    PodFacts,
    Profile,
    Requirement,
    SliceLayer,
    Taint,
    Toleration,
    TopologyRequest,
    WeightedTerm,
)
from kqueue.core.workload import Head, Preempts
from kqueue.errors import InvalidObjectError
from kqueue.state import from_api
from kqueue.state.from_api import QueueOrder

JSON = dict[str, Any]
T = TypeVar("T")

PREFIX = "kueue.x-k8s.io/"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
MOVED = datetime(2026, 1, 1, 2, tzinfo=UTC)


def read(kind: type[T], **obj: Any) -> T:
    return msgspec.convert(obj, kind)


def make_node(*, status: JSON | None = None, **spec: Any) -> wire_core.Node:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "7500m", "memory": "1Gi"}}
    metadata = {"name": "n1", "labels": {"rack": "r1"}}
    return read(wire_core.Node, metadata=metadata, spec=spec, status=ready | (status or {}))


def make_pod(
    *,
    phase: str = "Running",
    labels: JSON | None = None,
    annotations: JSON | None = None,
    deleted: bool = False,
    owners: Sequence[JSON] = (),
    **spec: Any,
) -> wire_core.Pod:
    metadata: JSON = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "5"}
    metadata |= {"labels": labels or {}, "annotations": annotations or {}, "ownerReferences": owners}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return read(wire_core.Pod, metadata=metadata, spec=spec, status={"phase": phase})


def asking(**requests: str) -> JSON:
    """A pod spec of one container with these requests."""
    return {"containers": [{"resources": {"requests": requests}}]}


def make_workload(
    *,
    pod_sets: list[JSON] | None = None,
    conditions: dict[str, tuple[str, str]] | None = None,
    status: JSON | None = None,
    metadata: JSON | None = None,
    **spec: Any,
) -> wire.Workload:
    """A Workload of four pods; `conditions` are (status, reason), all since two o'clock."""
    made = [
        {"type": kind, "status": value, "reason": reason, "lastTransitionTime": "2026-01-01T02:00:00Z"}
        for kind, (value, reason) in (conditions or {}).items()
    ]
    meta = {"name": "w", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    default = [{"name": "main", "count": 4, "template": {"spec": asking(cpu="1500m")}}]
    return read(
        wire.Workload,
        metadata=meta | (metadata or {}),
        spec={"queueName": "main", "podSets": default if pod_sets is None else pod_sets, **spec},
        status={"conditions": made, **(status or {})},
    )


def wants(profile: str) -> JSON:
    """The metadata of a workload that chooses how it is placed."""
    return {"annotations": {"kqueue.dev/placement-profile": profile}}


def replacing(key: str) -> JSON:
    """The metadata of a slice that takes over from an older one."""
    return {"annotations": {PREFIX + "workload-slice-replacement-for": key}}


def labelled(label: str) -> JSON:
    """The pods of `make_workload` with a label."""
    return {"name": "main", "count": 4, "template": {"metadata": {"labels": {label: "a"}}, "spec": asking(cpu="1500m")}}


def head_of(workload: wire.Workload, *, topology_only: bool = False) -> Head:
    return from_api.head(workload, queue="team", topology_only=topology_only, last_tried={})


# --- what cannot be read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        pytest.param("lots", ["'lots' is not a quantity", "such as 500m"], id="no-number"),
        pytest.param("-1", ["must not be negative", "write 0 or more", "-1"], id="negative"),
    ],
)
@pytest.mark.parametrize(
    ("look", "path"),
    [
        pytest.param(
            lambda bad: from_api.node_facts(make_node(status={"allocatable": {"cpu": bad}})),
            "status.allocatable[cpu]",
            id="of-a-node",
        ),
        pytest.param(
            lambda bad: from_api.pod_view(make_pod(nodeName="n1", **asking(cpu=bad))),
            "spec.containers[0].resources.requests[cpu]",
            id="of-a-pod",
        ),
        pytest.param(
            lambda bad: head_of(
                make_workload(pod_sets=[{"name": "main", "template": {"spec": {"initContainers": [
                    {"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": bad}}}]}}}])
            ),
            "spec.podSets[0].template.spec.initContainers[1].resources.limits[cpu]",
            id="of-an-init-container",
        ),
        pytest.param(
            lambda bad: head_of(
                make_workload(pod_sets=[{"name": "a", "template": {}}, {"name": "b", "template": {"spec": {
                    "overhead": {"cpu": bad}}}}])
            ),
            "spec.podSets[1].template.spec.overhead[cpu]",
            id="of-the-second-pod-set",
        ),
        pytest.param(
            lambda bad: head_of(
                make_workload(pod_sets=[{"name": "a", "template": {"spec": {"resources": {"requests": {"cpu": bad}}}}}])
            ),
            "spec.podSets[0].template.spec.resources.requests[cpu]",
            id="of-a-pod-as-a-whole",
        ),
        pytest.param(
            lambda bad: from_api.admission(reserved([{"name": "main", "resourceUsage": {"cpu": bad}}])),
            "status.admission.podSetAssignments[main].resourceUsage[cpu]",
            id="of-an-admission",
        ),
    ],
)  # fmt: skip
def test_an_amount_that_cannot_be_read_is_named(
    look: Callable[[str], object], path: str, text: str, facts: list[str]
) -> None:
    """The error has the field's path, what stands there, and what to write instead."""
    with pytest.raises(InvalidObjectError) as caught:
        look(text)

    (error,) = caught.value.errors
    assert (error.path, error.value) == (path, text)
    assert all(fact in str(error) for fact in facts)


def test_a_workload_with_one_unreadable_pod_set_still_shows_the_others() -> None:
    """What one pod requests is for show: a pod set that cannot be read counts as requesting nothing."""
    good, bad = asking(cpu="1", memory="1Ki"), asking(cpu="lots")
    workload = make_workload(
        pod_sets=[{"name": "bad", "template": {"spec": bad}}, {"name": "good", "template": {"spec": good}}]
    )

    assert from_api.requests_per_pod(workload) == {"bad": {}, "good": {"cpu": 1000, "memory": 1024}}


# --- nodes and pods --------------------------------------------------------------------------------------------------


def test_a_node_is_read_whole() -> None:
    """Labels, amounts in integers, taints in order, and whether it takes pods."""
    node = make_node(unschedulable=True, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])

    assert from_api.node_facts(node) == NodeFacts(
        name="n1",
        labels={"rack": "r1"},
        allocatable={"cpu": 7500, "memory": 1 << 30},
        taints=(Taint("gpu", "yes", "NoSchedule"),),
        ready=True,
        unschedulable=True,
    )


def test_equal_nodes_share_what_they_have_in_common() -> None:
    """A hundred thousand nodes are of a few kinds: amounts and values of labels are kept once."""
    first, second = (
        from_api.node_facts(
            msgspec.json.decode(
                b'{"metadata":{"name":"n","labels":{"zone":"z-1"}},"status":{"allocatable":{"cpu":"8","pods":"110"}}}',
                type=wire_core.Node,
            )
        )
        for _ in range(2)
    )
    assert first.allocatable is second.allocatable
    assert first.labels["zone"] is second.labels["zone"]


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        pytest.param([{"type": "Ready", "status": "True"}], True, id="it-says-so"),
        pytest.param([{"type": "Ready", "status": "False"}], False, id="it-says-no"),
        pytest.param([{"type": "Ready", "status": "Unknown"}], False, id="it-is-silent"),
        pytest.param([], False, id="it-has-not-said-anything"),
        pytest.param(
            [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}],
            True,
            id="other-conditions-do-not-matter",
        ),
    ],
)
def test_a_node_is_ready_only_when_it_says_so(conditions: list[JSON], ready: bool) -> None:
    """Silence is not readiness."""
    assert from_api.node_facts(make_node(status={"conditions": conditions})).ready is ready


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        pytest.param(
            [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}], None, id="it-is"
        ),
        pytest.param([], None, id="it-never-was"),
        pytest.param(
            [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-02T00:00:00Z"}],
            datetime(2026, 1, 2, tzinfo=UTC),
            id="it-stopped-then",
        ),
        pytest.param([{"type": "Ready", "status": "False"}], datetime(1970, 1, 1, tzinfo=UTC), id="nobody-knows-since"),
    ],
)
def test_since_when_a_node_is_not_ready(conditions: list[JSON], since: datetime | None) -> None:
    """A node without the condition is told apart from one that lost it."""
    assert from_api.node_facts(make_node(status={"conditions": conditions})).not_ready_since == since


MARKED = {PREFIX + "podset-required-topology": "rack"}


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        pytest.param(make_pod(nodeName="n1"), True, id="running"),
        pytest.param(make_pod(nodeName="n1", phase="Pending"), True, id="bound-and-starting"),
        pytest.param(make_pod(nodeName="n1", deleted=True), True, id="on-its-way-out"),
        pytest.param(make_pod(), False, id="on-no-node"),
        pytest.param(make_pod(nodeName="n1", phase="Succeeded"), False, id="succeeded"),
        pytest.param(make_pod(nodeName="n1", phase="Failed"), False, id="failed"),
        pytest.param(make_pod(nodeName="n1", annotations=MARKED), False, id="marked-as-placed-by-us"),
        pytest.param(make_pod(nodeName="n1", annotations=MARKED | {PREFIX + "workload": "w"}), False, id="of-a-gang"),
    ],
)
def test_pods_of_others_take_room_while_they_are_on_a_node(pod: wire_core.Pod, counts: bool) -> None:
    """Ours are counted by their Workload's assignment instead, never twice."""
    assert (from_api.pod_view(pod).foreign is not None) is counts


def test_a_pod_of_others_takes_what_its_containers_ask_for() -> None:
    """Sidecars run beside the containers, init containers before them, overhead comes on top; no `pods` entry."""
    init = [
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        {"resources": {"requests": {"cpu": "3", "memory": "1Ki"}}},
    ]
    pod = make_pod(nodeName="n1", initContainers=init, overhead={"cpu": "10m"}, **asking(cpu="1", memory="4Ki"))

    view = from_api.pod_view(pod)
    assert view == from_api.PodView("ns/p", PodFacts(node="n1", requests=(("cpu", 3110), ("memory", 4096))))


def test_equal_requests_are_kept_once() -> None:
    """Thousands of pods of one DaemonSet share one tuple."""
    first, second = (from_api.pod_view(make_pod(nodeName=n, **asking(cpu="123m"))).foreign for n in ("n1", "n2"))

    assert first is not None
    assert second is not None
    assert first.requests is second.requests


def test_a_pod_of_a_gang_is_known_by_its_workload_and_pod_set() -> None:
    """All that the ungater needs: gates, selector, labels that number it, whether it has ended or is being deleted."""
    pod = make_pod(
        phase="Failed",
        labels={PREFIX + "podset": "workers", "index": "3"},
        annotations=MARKED | {PREFIX + "workload": "w", PREFIX + "pod-index-offset": "8"},
        deleted=True,
        schedulingGates=[{"name": "other"}, {"name": PREFIX + "topology"}],
        nodeSelector={"rack": "r1"},
    )

    assert from_api.pod_view(pod).gang == from_api.GangPod(
        key="ns/p",
        uid="u",
        resource_version="5",
        workload="ns/w",
        pod_set="workers",
        gates=("other", PREFIX + "topology"),
        node_selector={"rack": "r1"},
        labels={PREFIX + "podset": "workers", "index": "3"},
        index_offset="8",
        terminal=True,
        failed=True,
        deleting=True,
    )


def test_a_pod_of_a_gang_is_known_by_who_controls_it() -> None:
    """Other owners do not matter: they may come and go."""
    owners: list[JSON] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": True},
    ]
    gang = from_api.pod_view(make_pod(annotations=MARKED | {PREFIX + "workload": "w"}, owners=owners)).gang

    assert gang is not None
    assert gang.controller == ("batch/v1/Job", "2")


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, "ns/w", id="any other job's by their Workload"),
        pytest.param({PREFIX + "workload-slice-name": "s"}, "ns/s", id="an elastic job's by what all its Workloads share"),
    ],
)  # fmt: skip
def test_pods_are_found_by_what_their_workloads_share(annotations: JSON, want: str) -> None:
    """A Workload and the pods that it is to place name the same."""
    gang = from_api.pod_view(make_pod(annotations=MARKED | annotations | {PREFIX + "workload": "w"})).gang
    metadata = {"name": "w", "namespace": "ns", "annotations": annotations}
    workload = msgspec.convert({"metadata": metadata}, wire.Workload)

    assert gang is not None
    assert (gang.siblings, from_api.siblings_key(workload)) == (want, want)


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param({PREFIX + "podset": "a"}, {PREFIX + "workload": "w"}, ("ns/w", "a"), id="label-and-annotation"),
        pytest.param(
            {}, {PREFIX + "topology-workload": "w", PREFIX + "topology-podset": "b"}, ("ns/w", "b"), id="aliases"
        ),
        pytest.param(
            {PREFIX + "podset": "a"},
            {PREFIX + "workload": "w", PREFIX + "topology-workload": "x", PREFIX + "topology-podset": "b"},
            ("ns/w", "a"),
            id="aliases-lose",
        ),
        pytest.param({}, {PREFIX + "workload": "w"}, ("ns/w", "main"), id="the-only-pod-set-needs-no-name"),
        pytest.param({PREFIX + "podset": "a"}, {}, None, id="of-no-workload"),
    ],
)
def test_a_gang_pod_may_be_labelled_in_two_ways(labels: JSON, annotations: JSON, want: tuple[str, str] | None) -> None:
    """The aliases are read where the usual names are missing."""
    gang = from_api.pod_view(make_pod(labels=labels, annotations=MARKED | annotations)).gang

    assert (None if gang is None else (gang.workload, gang.pod_set)) == want


def test_a_gang_pod_is_gated_by_the_topology_gate_alone() -> None:
    """Other gates belong to others."""

    def gated(*gates: str) -> bool:
        pod = make_pod(annotations=MARKED | {PREFIX + "workload": "w"}, schedulingGates=[{"name": g} for g in gates])
        gang = from_api.pod_view(pod).gang
        assert gang is not None
        return gang.gated

    assert (gated(), gated("other"), gated("other", PREFIX + "topology")) == (False, False, True)


def test_the_rules_of_a_template_are_read_whole() -> None:
    """Selector sorted, terms and tolerations in order, absent parts of a toleration empty."""
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    spec = read(
        wire_core.PodSpec,
        nodeSelector={"z": "1", "a": "2"},
        tolerations=[{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, named]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}],
            }
        },
    )
    pool = NodeTerm((Requirement("pool", "In", ("a", "b")),))

    assert from_api.node_rules(spec) == NodeRules(
        selector=(("a", "2"), ("z", "1")),
        required=(pool, NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),))),
        tolerations=(Toleration(operator="Exists"), Toleration("k", "", "v", "NoSchedule")),
        preferred=(WeightedTerm(5, pool),),
    )


def test_no_required_affinity_is_not_the_same_as_one_that_nothing_meets() -> None:
    """A template without terms demands nothing; an empty list of terms matches nothing."""
    empty: JSON = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}

    assert from_api.node_rules(read(wire_core.PodSpec)).required is None
    assert from_api.node_rules(read(wire_core.PodSpec, affinity={"nodeAffinity": {}})).required is None
    assert from_api.node_rules(read(wire_core.PodSpec, affinity=empty)).required == ()


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
    assert from_api.flavor(read(wire.ResourceFlavor, metadata={"name": "f"}, spec=spec)).topology == want


def test_a_flavor_is_read_whole() -> None:
    """Labels, taints and tolerations."""
    spec = {
        "nodeLabels": {"pool": "gpu"},
        "nodeTaints": [{"key": "spot", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    flavor = from_api.flavor(read(wire.ResourceFlavor, metadata={"name": "f"}, spec=spec))

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
    spec, columns, problem = from_api.queue_spec(queue)

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
    weight, why = from_api.weight(queue.spec.fair_sharing)
    assert weight == billionths
    assert (why.startswith(problem), bool(why)) == (True, bool(problem))
    all_problems = from_api.queue_spec(queue)[2]
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
    _, columns, problem = from_api.queue_spec(queue)

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
    made, _, _ = from_api.queue_spec(make_queue(**spec))
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

    assert from_api.selector_matches(parsed, {"team": "a"}) is of_a
    assert from_api.selector_matches(parsed, {}) is of_nobody


# --- workloads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "may"),
    [
        pytest.param(make_workload(), True, id="new"),
        pytest.param(make_workload(conditions={"QuotaReserved": ("False", "WaitingForQuota")}), True, id="waits"),
        pytest.param(make_workload(conditions={"Evicted": ("True", "Preempted")}), True, id="evicted"),
        pytest.param(
            make_workload(metadata={"annotations": {PREFIX + "admission-gated-by": ""}}), True, id="an-empty-gate"
        ),
        pytest.param(make_workload(metadata={"annotations": {PREFIX + "admission-gated-by": "x"}}), False, id="gated"),
        pytest.param(make_workload(conditions={"QuotaReserved": ("True", "QuotaReserved")}), False, id="reserved"),
        pytest.param(make_workload(conditions={"QuotaReserved": ("False", "OnHold")}), False, id="on-hold"),
        pytest.param(
            make_workload(conditions={"WaitingForReplacementPods": ("True", "")}), False, id="waits-for-its-pods"
        ),
        pytest.param(
            make_workload(conditions={"WaitingForReplacementPods": ("False", "")}), True, id="has-all-its-pods"
        ),
        pytest.param(make_workload(conditions={"Finished": ("True", "Failed")}), False, id="finished"),
        pytest.param(make_workload(active=False), False, id="switched-off"),
        pytest.param(make_workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False, id="deleted"),
    ],
)
def test_who_may_wait_in_a_queue(workload: wire.Workload, may: bool) -> None:
    """Only who could be admitted: not gated, not over, no reservation, not on hold."""
    assert from_api.is_queueable(workload) is may


OWNED = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]}
HOLDS = {"admission": {"clusterQueue": "q", "podSetAssignments": []}}


@pytest.mark.parametrize(
    ("workload", "over"),
    [
        pytest.param(make_workload(metadata=OWNED, status=HOLDS), False, id="it runs"),
        pytest.param(make_workload(metadata=OWNED, status=HOLDS, active=False), False, id="switched-off-with-a-job-that-ends"),
        pytest.param(make_workload(metadata=OWNED, active=False), True, id="switched-off-and-given-back"),
        pytest.param(make_workload(status=HOLDS, active=False), False, id="switched-off-and-not-given-back"),
        pytest.param(make_workload(metadata=OWNED, conditions={"Finished": ("True", "Failed")}), True, id="finished"),
    ],
)  # fmt: skip
def test_what_is_over_holds_nothing(workload: wire.Workload, over: bool) -> None:
    """Quota goes with the last pod, also of what its user has switched off."""
    assert from_api.is_over(workload) is over


@pytest.mark.parametrize(
    ("evicted", "want"),
    [
        pytest.param(None, CREATED, id="never-evicted"),
        pytest.param(("True", "PodsReadyTimeout"), MOVED, id="its-pods-were-never-ready"),
        pytest.param(("True", "AdmissionCheck"), MOVED, id="a-check-said-later"),
        pytest.param(("True", "Preempted"), CREATED, id="preempted-keeps-its-place"),
        pytest.param(("False", "PodsReadyTimeout"), CREATED, id="that-eviction-is-over"),
    ],
)
def test_the_place_in_the_queue_is_by_creation_but_for_some_evictions(
    evicted: tuple[str, str] | None, want: datetime
) -> None:
    """Who could not use its quota goes to the back; who lost it to others does not."""
    workload = make_workload(conditions={} if evicted is None else {"Evicted": evicted})

    assert from_api.queue_time(workload) == want
    assert from_api.pending(workload).timestamp == want
    assert head_of(workload).timestamp == want


@pytest.mark.parametrize(
    ("order", "conditions", "want"),
    [
        pytest.param(
            QueueOrder(by_timeout=False), {"Evicted": ("True", "PodsReadyTimeout")}, CREATED, id="timeouts-do-not-count"
        ),
        pytest.param(
            QueueOrder(by_timeout=False), {"Evicted": ("True", "AdmissionCheck")}, MOVED, id="checks-count-always"
        ),
        pytest.param(
            QueueOrder(by_reclaim=True),
            {"Preempted": ("True", "InCohortReclaimWhileBorrowing")},
            MOVED + timedelta(milliseconds=1),
            id="behind-the-one-that-borrows-now",
        ),
        pytest.param(
            QueueOrder(by_reclaim=True), {"Preempted": ("True", "InClusterQueue")}, CREATED, id="other-preemptions"
        ),
        pytest.param(
            QueueOrder(by_reclaim=True),
            {"Preempted": ("False", "InCohortReclaimWhileBorrowing")},
            CREATED,
            id="that-preemption-is-over",
        ),
    ],
)
def test_the_configuration_says_which_evictions_move_a_workload_back(
    order: QueueOrder, conditions: dict[str, tuple[str, str]], want: datetime
) -> None:
    """While it waits and, for whoever may preempt it, while it runs."""
    workload = make_workload(conditions=conditions)

    assert from_api.pending(workload, order).timestamp == want
    assert from_api.head(workload, queue="q", topology_only=False, last_tried={}, order=order).timestamp == want


BOOSTED = "kueue.x-k8s.io/priority-boost"


@pytest.mark.parametrize(
    ("boost", "counts", "want"),
    [
        pytest.param("5", True, 12, id="more"),
        pytest.param("+5", True, 12, id="more with a sign"),
        pytest.param("-9", True, -2, id="less"),
        pytest.param("5", False, 7, id="where nobody asks about it"),
        pytest.param("a lot", True, 7, id="no number"),
        pytest.param("", True, 7, id="nothing"),
        pytest.param("1.5", True, 7, id="a fraction"),
        pytest.param("2147483647", True, 2147483654, id="as much as there is"),
        pytest.param("2147483648", True, 7, id="more than 32 bits"),
        pytest.param("9" * 5000, True, 7, id="very much more"),
        pytest.param("\u0665", True, 7, id="digits of another script"),
    ],
)
def test_a_boost_is_a_part_of_the_priority(boost: str, counts: bool, want: int) -> None:
    """For whoever waits and whoever runs; a change of it alone is news, and another shape."""
    order, metadata = QueueOrder(boosts=counts), {"annotations": {BOOSTED: boost}}
    workload, plain = make_workload(priority=7, metadata=metadata), make_workload(priority=7)
    item = from_api.pending(workload, order)

    assert item.priority == want
    assert from_api.head(workload, queue="q", topology_only=False, last_tried={}, order=order).priority == want
    same = from_api.pending(plain, order)
    assert (item.shape == same.shape, item.version == same.version) == (want == 7, want == 7)


def test_a_pending_workload_knows_its_place() -> None:
    """Key, queue, priority and until when it is to wait."""
    state = {"requeueState": {"count": 1, "requeueAt": "2026-01-01T02:00:00Z"}}
    item = from_api.pending(
        make_workload(priority=7, status=state, conditions={"Requeued": ("False", "PodsReadyTimeout")})
    )

    assert (item.key, item.uid, item.local_queue, item.priority) == ("ns/w", "u", "ns/main", 7)
    assert (item.not_before, item.on_hold) == (MOVED, True)
    assert from_api.pending(make_workload(queueName=None)).local_queue == "ns/"
    assert not from_api.pending(make_workload(conditions={"Requeued": ("True", "BackoffFinished")})).on_hold


@pytest.mark.parametrize(
    ("other", "same_shape", "same_version"),
    [
        pytest.param(make_workload(metadata={"name": "x", "uid": "v"}), True, True, id="a-twin"),
        pytest.param(make_workload(priority=1), False, True, id="another-priority"),
        pytest.param(make_workload(pod_sets=[]), False, True, id="other-pods"),
        pytest.param(make_workload(pod_sets=[labelled("job-name")]), True, True, id="pods-with-the-name-of-their-job"),
        pytest.param(make_workload(metadata={"generation": 2}), True, False, id="edited-by-its-user"),
        pytest.param(make_workload(metadata=wants("optimal")), False, False, id="wants-another-profile"),
        pytest.param(make_workload(metadata=replacing("ns/older")), False, True, id="takes-over-from-another-one"),
        pytest.param(make_workload(conditions={"Evicted": ("True", "Preempted")}), True, False, id="evicted"),
        pytest.param(
            make_workload(status={"reclaimablePods": [{"name": "main", "count": 1}]}), False, False, id="needs-less"
        ),
        pytest.param(
            make_workload(conditions={"QuotaReserved": ("False", "WaitingForQuota")}),
            True,
            True,
            id="told-why-it-waits",
        ),
    ],
)
def test_equal_requests_have_equal_shapes_and_changes_that_matter_change_the_version(
    other: wire.Workload, same_shape: bool, same_version: bool
) -> None:
    """Equals are parked together; a parked one is tried again when what decides about it has changed."""
    one, two = from_api.pending(make_workload()), from_api.pending(other)

    assert (one.shape == two.shape) is same_shape
    assert (one.version == two.version) is same_version


TOPOLOGIES = [
    pytest.param(None, TopologyRequest(implied=True), False, id="no-request"),
    pytest.param({"podIndexLabel": "i"}, TopologyRequest(implied=True), False, id="only-how-pods-are-numbered"),
    pytest.param({"required": "rack"}, TopologyRequest(required="rack"), True, id="required"),
    pytest.param({"preferred": "rack"}, TopologyRequest(preferred="rack"), True, id="preferred"),
    pytest.param({"unconstrained": True}, TopologyRequest(unconstrained=True), True, id="unconstrained"),
    pytest.param({"unconstrained": False}, TopologyRequest(unconstrained=False), True, id="false-is-a-word-too"),
    pytest.param(
        {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
        TopologyRequest(slices=(SliceLayer("rack", 4),)),
        True,
        id="slices",
    ),
    pytest.param(
        {"podSetSliceRequiredTopology": "rack"},
        TopologyRequest(slices=(SliceLayer("rack", 0),)),
        True,
        id="a-slice-without-size-is-left-to-be-refused",
    ),
    pytest.param({"podSetSliceSize": 4}, TopologyRequest(), True, id="a-size-without-level-is-left-to-be-refused"),
    pytest.param(
        {
            "podSetSliceRequiredTopology": "x",
            "podSetSliceSize": 9,
            "podsetSliceRequiredTopologyConstraints": [
                {"topology": "block", "size": 8},
                {"topology": "rack", "size": 4},
            ],
        },
        TopologyRequest(slices=(SliceLayer("block", 8), SliceLayer("rack", 4))),
        True,
        id="layers-win-over-a-single-slice",
    ),
]


@pytest.mark.parametrize(("request_", "want", "asks"), TOPOLOGIES)
def test_a_topology_request_is_read(request_: JSON | None, want: TopologyRequest, asks: bool) -> None:
    """Who asks for a place is told apart from who gets one because its queue has no other nodes."""
    pod_set = {"name": "main", "template": {}} | ({} if request_ is None else {"topologyRequest": request_})
    (made,) = head_of(make_workload(pod_sets=[pod_set]), topology_only=True).pod_sets

    assert made.asks_topology is asks
    assert made.request.topology == want


def test_a_place_is_implied_only_where_all_flavors_have_a_topology() -> None:
    """In a queue with other flavors a pod set without a request gets none."""
    (made,) = head_of(make_workload()).pod_sets

    assert not made.request.topology.implied


def test_a_head_has_what_its_pods_ask_for() -> None:
    """Per pod, cpu in milli; the pods that have ended are not asked for again."""
    grouped = {"name": "b", "count": 2, "template": {}, "topologyRequest": {"required": "rack", "podSetGroupName": "g"}}
    template = {"spec": asking(cpu="1500m") | {"nodeSelector": {"pool": "a"}}}
    workload = make_workload(
        pod_sets=[{"name": "a", "count": 4, "template": template}, grouped],
        status={"reclaimablePods": [{"name": "a", "count": 1}, {"name": "b", "count": 3}]},
        priority=3,
    )
    head = from_api.head(workload, queue="team", topology_only=False, last_tried={("a", "cpu"): 1})
    a, b = head.pod_sets

    assert (head.key, head.uid, head.queue, head.priority) == ("ns/w", "u", "team", 3)
    assert head.last_tried == {("a", "cpu"): 1}
    assert (a.request.count, a.request.requests, a.quota_requests) == (3, {"cpu": 1500}, {"cpu": 1500})
    assert (a.request.ended, b.request.ended) == (1, 2)
    assert (a.request.group, a.request.rules.selector) == (None, (("pool", "a"),))
    assert (b.request.count, b.request.group) == (0, "g")


def reserved(assignments: list[JSON], **more: Any) -> wire.Workload:
    """A Workload that holds these."""
    held = {"clusterQueue": "team", "podSetAssignments": assignments}
    status = {"admission": held, **more.pop("status", {})}
    return make_workload(conditions={"QuotaReserved": ("True", "QuotaReserved")}, status=status, **more)


@pytest.mark.parametrize(
    ("admitted", "reclaimable", "want"),
    [
        pytest.param(None, 0, 10_000, id="all-pods-run"),
        pytest.param(None, 4, 6_000, id="some-have-ended"),
        pytest.param(None, 10, 0, id="all-have-ended"),
        pytest.param(None, 12, 0, id="more-than-there-are"),
        pytest.param(6, 3, 6_000, id="admitted-with-fewer-and-still-needs-them"),
        pytest.param(6, 5, 5_000, id="admitted-with-fewer-and-needs-less"),
    ],
)
def test_pods_that_have_ended_give_their_quota_back(admitted: int | None, reclaimable: int, want: int) -> None:
    """Ten pods of one core, perhaps fewer admitted: usage follows what is still needed."""
    entry = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": str(admitted or 10)}}
    workload = reserved(
        [entry | ({} if admitted is None else {"count": admitted})],
        pod_sets=[{"name": "main", "count": 10, "template": {}}],
        status={"reclaimablePods": [{"name": "main", "count": reclaimable}]},
    )
    admission = from_api.admission(workload)

    assert admission is not None
    assert admission.usage() == {FlavorResource("spot", "cpu"): want}
    assert admission.pod_sets[0].count == (admitted or 10)


def test_places_that_were_given_back_are_not_held() -> None:
    """Of its own pod set only; an entry of a pod set that it does not have does no harm."""

    def on_racks(**pods: int) -> JSON:
        slices = [
            {"domainCount": 1, "valuesPerLevel": [{"universal": rack}], "podCounts": {"universal": count}}
            for rack, count in pods.items()
        ]
        return {"levels": ["rack"], "slices": slices}

    workload = reserved(
        [{"name": name, "count": 3, "topologyAssignment": on_racks(r1=2, r2=1)} for name in ("main", "other")],
        pod_sets=[{"name": name, "count": 3, "template": {}} for name in ("main", "other")],
        status={"finishedPods": [{"name": name, "topologyAssignment": on_racks(r1=1)} for name in ("main", "gone")]},
    )
    admission = from_api.admission(workload)

    assert admission is not None
    held = [p.topology and {d.values[0]: d.count for d in p.topology.domains} for p in admission.pod_sets]
    assert held == [{"r1": 1, "r2": 1}, {"r1": 2, "r2": 1}]


def test_usage_without_a_flavor_is_not_charged() -> None:
    """There is no column that it could be charged to."""
    admission = from_api.admission(
        reserved([{"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1", "memory": "1Gi"}}])
    )

    assert admission is not None
    assert admission.usage() == {FlavorResource("spot", "cpu"): 1000}


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_workload(), id="never-admitted"),
        pytest.param(make_workload(status={"admission": {"clusterQueue": "team"}}), id="admission-without-reservation"),
        pytest.param(
            make_workload(conditions={"QuotaReserved": ("True", "QuotaReserved")}), id="reservation-without-admission"
        ),
    ],
)
def test_without_a_reservation_nothing_is_held(workload: wire.Workload) -> None:
    """Both the condition and the admission must be there."""
    assert from_api.admission(workload) is None


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

    spec, _, problem = from_api.queue_spec(queue, Profile(unconstrained=Algorithm.BEST_FIT))

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

    spec, _, why = from_api.queue_spec(queue)

    assert spec.minimum_runtime == seconds
    assert why == (f"metadata.annotations[kqueue.dev/minimum-runtime]: {problem}" if problem else "")
    assert from_api.same_queue(queue, without) is (text is None)


def test_a_profile_that_does_not_exist_is_named_with_the_remedy() -> None:
    """The queue says so and stays closed, instead of placing in a way that nobody asked for."""
    queue = make_queue()
    annotations = {"kqueue.dev/placement-profile": "tight"}
    queue = msgspec.structs.replace(queue, metadata=msgspec.structs.replace(queue.metadata, annotations=annotations))

    _, _, problem = from_api.queue_spec(queue)

    assert "metadata.annotations[kqueue.dev/placement-profile]: 'tight' is no profile" in problem
    assert "use one of BestFit, LeastFreeCapacity, optimal, balanced" in problem


@pytest.mark.parametrize(
    ("metadata", "algorithm", "problem"),
    [
        pytest.param({}, None, "", id="leaves-it-to-its-queue"),
        pytest.param(wants("balanced"), Algorithm.BALANCED, "", id="chooses-for-itself"),
        pytest.param(
            wants("tight"),
            None,
            "metadata.annotations[kqueue.dev/placement-profile]: 'tight' is no profile; "
            "use one of BestFit, LeastFreeCapacity, optimal, balanced",
            id="names-none-that-exists",
        ),
    ],
)
def test_a_workload_may_choose_how_its_pods_are_placed(
    metadata: JSON, algorithm: Algorithm | None, problem: str
) -> None:
    """What cannot be read is told, and does not look like no choice."""
    head = head_of(make_workload(metadata=metadata))

    assert (head.algorithm, head.problem) == (algorithm, problem)


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        pytest.param({}, None, id="none"),
        pytest.param(replacing("ns/older"), "ns/older", id="the-older-one"),
        pytest.param(replacing("other/older"), None, id="not-one-of-another-namespace"),
        pytest.param(replacing("ns/w"), None, id="not-itself"),
        pytest.param(replacing("older"), None, id="not-a-name-alone"),
    ],
)
def test_a_slice_says_which_one_it_replaces(metadata: JSON, key: str | None) -> None:
    """Only within its namespace: what others hold is not its to take."""
    assert from_api.replaced_key(make_workload(metadata=metadata)) == key


def test_the_profiles_that_may_be_named_are_those_that_there_are() -> None:
    """Whoever checks a job's annotation knows the same names as whoever places its pods."""
    assert set(names.PLACEMENT_PROFILES) == set(Algorithm)


def test_pods_of_one_form_share_their_requests_and_others_do_not() -> None:
    """What is remembered of a form tells apart containers, init containers, sidecars, limits and overhead."""

    def requests(**spec: Any) -> Any:
        pod = read(wire_core.Pod, metadata={"name": "p", "namespace": "n"}, spec={"nodeName": "h", **spec})
        facts = from_api.pod_view(pod).foreign
        assert facts is not None
        return facts.requests

    one = {"resources": {"requests": {"cpu": "1"}}}
    plain = requests(containers=[one])

    assert plain is requests(containers=[one]) == (("cpu", 1000),)
    assert dict(requests(containers=[one, one]))["cpu"] == 2000
    assert dict(requests(containers=[one], initContainers=[one]))["cpu"] == 1000
    assert dict(requests(containers=[one], initContainers=[{**one, "restartPolicy": "Always"}]))["cpu"] == 2000
    assert dict(requests(containers=[{"resources": {"limits": {"cpu": "3"}}}]))["cpu"] == 3000
    assert dict(requests(containers=[one], overhead={"cpu": "250m"}))["cpu"] == 1250
    assert dict(requests(containers=[one], resources={"requests": {"cpu": "5"}}))["cpu"] == 5000
