"""What the watches bring and nobody can read, and what becomes of nodes and pods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import NodeFacts, NodeRules, NodeTerm, PodFacts, Requirement, Taint, Toleration, WeightedTerm
from kqueue.errors import InvalidObjectError
from tests.unit.state.wire_objects import (
    JSON,
    PREFIX,
    asking,
    head_of,
    make_node,
    make_pod,
    make_workload,
    read,
    reserved,
)

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
            lambda bad: model.node_facts(make_node(status={"allocatable": {"cpu": bad}})),
            "status.allocatable[cpu]",
            id="of-a-node",
        ),
        pytest.param(
            lambda bad: model.pod_view(make_pod(nodeName="n1", **asking(cpu=bad))),
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
            lambda bad: model.admission(reserved([{"name": "main", "resourceUsage": {"cpu": bad}}])),
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


# --- nodes and pods --------------------------------------------------------------------------------------------------


def test_a_node_is_read_whole() -> None:
    """Labels, amounts in integers, taints in order, and whether it takes pods."""
    node = make_node(unschedulable=True, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])

    assert model.node_facts(node) == NodeFacts(
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
        model.node_facts(
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
    assert model.node_facts(make_node(status={"conditions": conditions})).ready is ready


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
    assert model.node_facts(make_node(status={"conditions": conditions})).not_ready_since == since


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
        pytest.param(make_pod(nodeName="n1", annotations=MARKED), True, id="marked-as-placed-by-us"),
        pytest.param(make_pod(nodeName="n1", annotations=MARKED | {PREFIX + "workload": "w"}), True, id="of-a-gang"),
    ],
)
def test_pods_take_room_while_they_are_on_a_node(pod: wire_core.Pod, counts: bool) -> None:
    """Whatever marks they carry: the ledger compares them with what their Workload holds there."""
    assert (model.pod_view(pod).bound is not None) is counts


def test_a_pod_of_others_takes_what_its_containers_ask_for() -> None:
    """Sidecars run beside the containers, init containers before them, overhead comes on top; no `pods` entry."""
    init = [
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        {"resources": {"requests": {"cpu": "3", "memory": "1Ki"}}},
    ]
    pod = make_pod(nodeName="n1", initContainers=init, overhead={"cpu": "10m"}, **asking(cpu="1", memory="4Ki"))

    view = model.pod_view(pod)
    assert view == model.PodView("ns/p", PodFacts(node="n1", requests=(("cpu", 3110), ("memory", 4096))))


BY_JOB = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": True}]
BY_ANOTHER = [{**BY_JOB[0], "uid": "other"}]
OF_W = {PREFIX + "workload": "w"}


@pytest.mark.parametrize(
    ("pod", "needs", "stray"),
    [
        pytest.param(make_pod(nodeName="n1", annotations=OF_W), True, False, id="a-node-runs-it-whoever-made-it"),
        pytest.param(make_pod(nodeName="n1", annotations=OF_W, deleted=True), True, False, id="it-is-ending"),
        pytest.param(make_pod(annotations=OF_W, owners=BY_JOB), True, False, id="the-job-controls-it-and-it-may-be-bound"),
        pytest.param(make_pod(annotations=OF_W, owners=BY_JOB, deleted=True), False, False, id="it-was-deleted-before-a-node-ran-it"),
        pytest.param(make_pod(annotations=OF_W, owners=BY_ANOTHER), False, False, id="another-job-controls-it"),
        pytest.param(make_pod(annotations=OF_W, owners=BY_JOB, schedulingGates=[{"name": "any"}]), False, False, id="a-gate-holds-it"),
        pytest.param(make_pod(annotations=OF_W), False, True, id="it-only-names-the-workload"),
        pytest.param(make_pod(annotations=MARKED | OF_W), False, True, id="it-only-says-that-it-is-placed"),
        pytest.param(make_pod(annotations=OF_W, labels={PREFIX + "managed": "true"}), False, False, id="it-is-queued-itself"),
        pytest.param(make_pod(annotations=OF_W, nodeName="n1", phase="Failed"), False, False, id="it-has-ended"),
        pytest.param(make_pod(nodeName="n1"), False, False, id="it-names-none"),
    ],
)  # fmt: skip
def test_only_pods_that_may_run_for_the_job_need_its_quota(pod: wire_core.Pod, needs: bool, stray: bool) -> None:
    """Anybody may write the name of a Workload onto a pod; one that can never run keeps nothing from others."""
    view = model.pod_view(pod)

    assert view.needs_quota({"job"}) is needs
    assert view.stray_of == ("ns/w" if stray else "")


def test_equal_requests_are_kept_once() -> None:
    """Thousands of pods of one DaemonSet share one tuple."""
    first, second = (model.pod_view(make_pod(nodeName=n, **asking(cpu="123m"))).bound for n in ("n1", "n2"))

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

    assert model.pod_view(pod).gang == model.GangPod(
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
    gang = model.pod_view(make_pod(annotations=MARKED | {PREFIX + "workload": "w"}, owners=owners)).gang

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
    gang = model.pod_view(make_pod(annotations=MARKED | annotations | {PREFIX + "workload": "w"})).gang
    metadata = {"name": "w", "namespace": "ns", "annotations": annotations}
    workload = msgspec.convert({"metadata": metadata}, wire.Workload)

    assert gang is not None
    assert (gang.siblings, model.siblings_key(workload)) == (want, want)


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
    gang = model.pod_view(make_pod(labels=labels, annotations=MARKED | annotations)).gang

    assert (None if gang is None else (gang.workload, gang.pod_set)) == want


def test_a_gang_pod_is_gated_by_the_topology_gate_alone() -> None:
    """Other gates belong to others."""

    def gated(*gates: str) -> bool:
        pod = make_pod(annotations=MARKED | {PREFIX + "workload": "w"}, schedulingGates=[{"name": g} for g in gates])
        gang = model.pod_view(pod).gang
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

    assert model.node_rules(spec) == NodeRules(
        selector=(("a", "2"), ("z", "1")),
        required=(pool, NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),))),
        tolerations=(Toleration(operator="Exists"), Toleration("k", "", "v", "NoSchedule")),
        preferred=(WeightedTerm(5, pool),),
    )


def test_no_required_affinity_is_not_the_same_as_one_that_nothing_meets() -> None:
    """A template without terms demands nothing; an empty list of terms matches nothing."""
    empty: JSON = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}

    assert model.node_rules(read(wire_core.PodSpec)).required is None
    assert model.node_rules(read(wire_core.PodSpec, affinity={"nodeAffinity": {}})).required is None
    assert model.node_rules(read(wire_core.PodSpec, affinity=empty)).required == ()


# --- workloads -------------------------------------------------------------------------------------------------------


def test_pods_of_one_form_share_their_requests_and_others_do_not() -> None:
    """What is remembered of a form tells apart containers, init containers, sidecars, limits and overhead."""

    def requests(**spec: Any) -> Any:
        pod = read(wire_core.Pod, metadata={"name": "p", "namespace": "n"}, spec={"nodeName": "h", **spec})
        facts = model.pod_view(pod).bound
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
