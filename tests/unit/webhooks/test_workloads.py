"""What the schema cannot say about Workloads, and how they may change."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from webhooks import workloads

Object = dict[str, Any]
ON = JobFeatures()
ELASTIC_ANNOTATION = {"kueue.x-k8s.io/elastic-job": "true"}


def pod_set(name: str = "main", count: int = 2, *, requests: Object | None = None, **parts: Any) -> Object:
    container: Object = {"name": "c", "resources": {"requests": {"cpu": "1"} if requests is None else requests}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container]}}} | parts


def workload(*pod_sets: Object, annotations: dict[str, str] | None = None, **status: Any) -> Object:
    return {
        "metadata": {"name": "w", "annotations": annotations or {}},
        "spec": {"podSets": list(pod_sets) or [pod_set()]},
        "status": status,
    }


RESERVED = [{"type": "QuotaReserved", "status": "True"}]


def reserved(*pod_sets: Object, assigned: Object | None = None, **more: Any) -> Object:
    one = {"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}, "flavors": {"cpu": "f"}} | (assigned or {})
    admission = {"clusterQueue": "q", "podSetAssignments": [one]}
    return workload(*pod_sets, **({"conditions": RESERVED, "admission": admission} | more))


def paths(new: Object, old: Object | None = None, switches: JobFeatures = ON, subresource: str = "") -> list[str]:
    return [problem.path for problem in workloads.problems(new, old, switches, subresource=subresource)]


SPEC = "spec.podSets[0].template.spec"
CPU = f"{SPEC}.containers[0].resources"


def spec_with(**spec: Any) -> Object:
    return pod_set(template={"spec": {"containers": [{"name": "c"}], **spec}})


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(workload(), [], id="sound"),
        pytest.param(workload(pod_set(minCount=1), pod_set("b")), [], id="one-minimum"),
        pytest.param(
            workload(pod_set(minCount=1), pod_set("b", minCount=1)), ["spec.podSets[1].minCount"], id="two-minimums"
        ),
        pytest.param(workload(pod_set(requests={"pods": 1})), [f"{CPU}.requests[pods]"], id="pods-are-reserved"),
        pytest.param(workload(pod_set(requests={"cpu": "-1"})), [f"{CPU}.requests[cpu]"], id="negative"),
        pytest.param(workload(pod_set(requests={"cpu": "one"})), [f"{CPU}.requests[cpu]"], id="malformed"),
        pytest.param(workload(pod_set(requests={"cpu": 0.5})), [f"{CPU}.requests[cpu]"], id="a-fraction-unquoted"),
        pytest.param(
            workload(spec_with(initContainers=[{"name": "i", "resources": {"limits": {"pods": 1}}}])),
            [f"{SPEC}.initContainers[0].resources.limits[pods]"],
            id="limits-of-init-containers",
        ),
        pytest.param(
            workload(spec_with(resources={"requests": {"memory": "-1Gi"}})),
            [f"{SPEC}.resources.requests[memory]"],
            id="requests-of-the-pod",
        ),
        pytest.param(
            workload(pod_set(template={"spec": {"nodeName": "n"}})), [f"{SPEC}.containers"], id="no-containers"
        ),
        pytest.param(workload(spec_with(tolerations="all")), [f"{SPEC}.tolerations"], id="a-template-nobody-can-read"),
        pytest.param(
            workload(pod_set(template={"spec": {"containers": [{"name": 1}]}})),
            [f"{SPEC}.containers[0].name"],
            id="a-container-nobody-can-read",
        ),
        pytest.param(workload(spec_with(nodeSelector=None)), [f"{SPEC}.nodeSelector"], id="a-null-that-would-stay"),
        pytest.param(
            workload(
                pod_set(
                    template={
                        "metadata": {"labels": {"a b": "x", "l": "x y"}, "annotations": {"a b": "anything at all"}},
                        "spec": {"containers": []},
                    }
                )
            ),
            [
                "spec.podSets[0].template.metadata.labels[a b]",
                "spec.podSets[0].template.metadata.labels[l]",
                "spec.podSets[0].template.metadata.annotations[a b]",
            ],
            id="metadata",
        ),
        pytest.param(
            workload(
                pod_set(
                    template={"metadata": {"annotations": {"A/B": "x" * 262_144}}, "spec": {"containers": []}},
                )
            ),
            ["spec.podSets[0].template.metadata.annotations"],
            id="annotations-too-large",
        ),
        pytest.param(
            workload(pod_set(topologyRequest={"podSetSliceSize": 2})),
            ["spec.podSets[0].topologyRequest.podSetSliceRequiredTopology"],
            id="slice-size-without-level",
        ),
        pytest.param(
            workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack"})),
            ["spec.podSets[0].topologyRequest.podSetSliceSize"],
            id="slice-level-without-size",
        ),
        pytest.param(
            workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0})),
            ["spec.podSets[0].topologyRequest.podSetSliceSize"],
            id="empty-slices",
        ),
        pytest.param(
            workload(
                pod_set(
                    topologyRequest={"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 0}]},
                )
            ),
            ["spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[0].size"],
            id="empty-layers",
        ),
        pytest.param(
            workload(annotations={"kueue.x-k8s.io/admission-gated-by": "gate"}),
            ["metadata.annotations[kueue.x-k8s.io/admission-gated-by]"],
            id="gates",
        ),
        pytest.param(workload(conditions=RESERVED), ["status.admission"], id="reserved-nothing"),
        pytest.param(reserved(), [], id="reserved"),
        pytest.param(
            reserved(assigned={"name": "other"}),
            ["status.admission.podSetAssignments[0].name"],
            id="assigned-to-nobody",
        ),
        pytest.param(
            reserved(assigned={"resourceUsage": {"cpu": "1500m", "memory": 3, "gpu": 4}}),
            ["status.admission.podSetAssignments[0].resourceUsage[memory]"],
            id="usage-that-cannot-be-divided",
        ),
        pytest.param(
            reserved(assigned={"resourceUsage": {"cpu": "x"}}),
            ["status.admission.podSetAssignments[0].resourceUsage[cpu]"],
            id="usage-that-is-no-quantity",
        ),
        pytest.param(reserved(assigned={"count": 0, "resourceUsage": {"cpu": 3}}), [], id="usage-of-no-pods"),
        pytest.param(
            workload(conditions=[{"type": "not a type", "status": "True"}]),
            ["status.conditions[0].type"],
            id="condition",
        ),
        pytest.param(
            workload(reclaimablePods=[{"name": "main", "count": 3}, {"name": "x", "count": 1}]),
            ["status.reclaimablePods[0].count", "status.reclaimablePods[1].name"],
            id="reclaimable-pods-that-are-not-there",
        ),
        pytest.param(
            workload(
                admissionChecks=[
                    {
                        "name": "c",
                        "podSetUpdates": [
                            {
                                "name": "x",
                                "labels": {"a b": "v"},
                                "nodeSelector": {"k": "v v"},
                                "annotations": {"k k": ""},
                                "tolerations": [{"key": "k k", "operator": "Exists"}, {"operator": "Exists"}],
                            }
                        ],
                    }
                ]
            ),
            [
                f"status.admissionChecks[0].podSetUpdates[0].{part}"
                for part in ("name", "labels[a b]", "nodeSelector[k]", "annotations[k k]", "tolerations[0].key")
            ],
            id="updates-of-checks",
        ),
    ],
)
def test_a_workload_is_checked_where_the_schema_cannot(obj: Object, expected: list[str]) -> None:
    """Each mistake is named by its path."""
    assert paths(obj) == expected


@pytest.mark.parametrize(
    ("boost", "sound"),
    [
        ("0", True),
        ("+5", True),
        ("-2147483648", True),
        ("", False),
        ("2147483648", False),
        ("1.5", False),
        ("x", False),
    ],
)
def test_a_boost_is_a_whole_number(boost: str, sound: bool) -> None:
    """Of 32 bits, and only while its gate is on."""
    obj = workload(annotations={"kueue.x-k8s.io/priority-boost": boost})

    assert bool(paths(obj, switches=JobFeatures(priority_boost=True))) is not sound
    assert paths(obj) == []


def test_switches_take_rules_away() -> None:
    """Each gate's rule goes with it; that `pods` is reserved stays."""
    off = JobFeatures(pod_set_metadata=False, non_negative=False, slice_size=False, admission_gated_by=False)
    obj = workload(
        pod_set(
            requests={"cpu": "-1"},
            topologyRequest={"podSetSliceSize": 2},
        ),
        annotations={"kueue.x-k8s.io/admission-gated-by": "gate"},
    )
    obj["spec"]["podSets"][0]["template"]["metadata"] = {"labels": {"a b": "x"}}

    assert len(paths(obj)) == 4
    assert paths(obj, switches=off) == []
    assert paths(workload(pod_set(requests={"pods": 1})), switches=off) == [f"{CPU}.requests[pods]"]


def test_an_elastic_workload_has_no_minimum() -> None:
    """Its size follows the job."""
    obj = workload(pod_set(minCount=1), annotations=ELASTIC_ANNOTATION)

    assert paths(obj) == ["spec.podSets[0].minCount"]
    assert paths(obj, switches=JobFeatures(elastic_jobs=False)) == []


def test_minimums_are_dropped_while_partial_admission_is_off() -> None:
    """On create, from every pod set, and nothing else changes."""
    obj = workload(pod_set(minCount=1), pod_set("b"))
    patch = workloads.defaults(obj, JobFeatures(partial_admission=False))

    assert apply_merge_patch(obj, patch) == workload(pod_set(), pod_set("b"))
    assert workloads.defaults(obj, ON) == {}
    assert workloads.defaults(workload(), JobFeatures(partial_admission=False)) == {}


def check(state: str, label: str) -> Object:
    return {"name": "c", "state": state, "podSetUpdates": [{"name": "main", "labels": {"l": label}}]}


TOPOLOGY = {"topologyAssignment": {"levels": ["rack"], "slices": []}, "delayedTopologyRequest": "Ready"}
GATED = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(workload(), workload(pod_set(count=5), pod_set("b")), [], id="pending-pod-sets-change-freely"),
        pytest.param(reserved(), reserved(pod_set(count=1)), [], id="fewer-pods"),
        pytest.param(reserved(), reserved(pod_set(count=3)), ["spec.podSets[0].count"], id="more-pods"),
        pytest.param(reserved(), reserved(pod_set(requests={"cpu": 2})), ["spec.podSets[0]"], id="other-requests"),
        pytest.param(reserved(), reserved(pod_set(requests={"cpu": "1000m"})), [], id="the-same-requests-otherwise"),
        pytest.param(reserved(), reserved(pod_set(topologyRequest={})), [], id="empty-is-absent"),
        pytest.param(reserved(), reserved(pod_set(), pod_set("b")), ["spec.podSets"], id="one-more-pod-set"),
        pytest.param(
            reserved(), workload(pod_set(count=3)), ["spec.podSets[0].count"], id="not-even-while-giving-quota-back"
        ),
        pytest.param(
            reserved(reclaimablePods=[{"name": "main", "count": 1}]),
            reserved(reclaimablePods=[{"name": "main", "count": 2}]),
            [],
            id="more-is-given-back",
        ),
        pytest.param(
            reserved(reclaimablePods=[{"name": "main", "count": 2}]),
            reserved(reclaimablePods=[{"name": "main", "count": 1}]),
            ["status.reclaimablePods"],
            id="less-is-given-back",
        ),
        pytest.param(
            reserved(reclaimablePods=[{"name": "main", "count": 0}]),
            reserved(),
            ["status.reclaimablePods"],
            id="an-entry-goes-away",
        ),
        pytest.param(
            reserved(reclaimablePods=[{"name": "main", "count": 2}]), workload(), [], id="it-goes-with-the-reservation"
        ),
        pytest.param(workload(), reserved(), [], id="admitted"),
        pytest.param(reserved(), workload(), [], id="evicted"),
        pytest.param(reserved(), reserved(assigned=TOPOLOGY), [], id="placed-later"),
        pytest.param(reserved(), reserved(assigned={"resourceUsage": {"cpu": 2}}), [], id="the-same-usage-otherwise"),
        pytest.param(
            reserved(), reserved(assigned={"flavors": {"cpu": "g"}}), ["status.admission"], id="another-flavor"
        ),
        pytest.param(
            reserved(),
            reserved(admission={"clusterQueue": "other", "podSetAssignments": []}),
            ["status.admission"],
            id="another-queue",
        ),
        pytest.param(
            workload(admissionChecks=[check("Ready", "a")]),
            workload(admissionChecks=[check("Ready", "b")]),
            ["status.admissionChecks[0].podSetUpdates"],
            id="updates-of-a-ready-check",
        ),
        pytest.param(
            workload(admissionChecks=[check("Pending", "a")]),
            workload(admissionChecks=[check("Ready", "b")]),
            [],
            id="updates-of-a-check-that-becomes-ready",
        ),
        pytest.param(
            workload(nominatedClusterNames=["a", "b"]), workload(clusterName="b"), [], id="a-nominated-cluster"
        ),
        pytest.param(
            workload(nominatedClusterNames=["a"]),
            workload(clusterName="b"),
            ["status.clusterName"],
            id="another-cluster",
        ),
        pytest.param(workload(), workload(clusterName="b"), ["status.clusterName"], id="no-cluster-was-nominated"),
        pytest.param(workload(clusterName="b"), workload(clusterName="b"), [], id="the-cluster-stays"),
        pytest.param(
            workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a.io/b,a.io/c"}),
            workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a.io/c"}),
            [],
            id="a-gate-opens",
        ),
        pytest.param(
            workload(),
            workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a.io/c"}),
            [GATED],
            id="a-gate-appears",
        ),
        pytest.param(
            workload(conditions=RESERVED), workload(conditions=RESERVED), [], id="broken-before-may-be-written"
        ),
    ],
)
def test_what_may_change_depends_on_the_reservation(old: Object, new: Object, expected: list[str]) -> None:
    """Compared by meaning."""
    assert paths(new, old) == expected


def test_elastic_workloads_may_shrink() -> None:
    """Fewer pods while reserved, and their entries of reclaimable pods with them; never more."""
    old = reserved(reclaimablePods=[{"name": "main", "count": 1}]) | {"metadata": {"annotations": ELASTIC_ANNOTATION}}
    fewer = reserved(pod_set(count=1), reclaimablePods=[]) | {"metadata": old["metadata"]}
    more = reserved(pod_set(count=3), reclaimablePods=[{"name": "main", "count": 1}]) | {"metadata": old["metadata"]}

    off = JobFeatures(elastic_jobs=False)
    assert paths(fewer, old) == []
    assert set(paths(fewer, old, off)) == {"spec.podSets[0].count", "status.reclaimablePods"}
    assert paths(more, old) == ["spec.podSets[0].count"]


def test_placement_is_fixed_while_topology_is_off() -> None:
    """The exception belongs to its gate."""
    assert paths(reserved(assigned=TOPOLOGY), reserved(), JobFeatures(topology=False)) == ["status.admission"]


def test_a_status_write_is_not_refused_for_the_spec() -> None:
    """The controller must be able to say what is wrong with it."""
    bad = workload(pod_set(requests={"cpu": "x"}))

    assert paths(bad, bad, subresource="status") == []
    assert paths(bad, bad) == [f"{CPU}.requests[cpu]"]


def test_nothing_stands_in_the_way_of_a_deletion() -> None:
    """A bad object can lose its finalizer."""
    bad = workload(pod_set(requests={"cpu": "x"}), conditions=RESERVED)
    bad["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert paths(bad, workload()) == []
