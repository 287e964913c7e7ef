"""What each kind says in the other version, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhooks.conversion.catalog import NotConvertedError, converted

JSON = dict[str, Any]
OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"
NOTE = "kqueue.dev/v1beta1"
HOST = "kubernetes.io/hostname"


def obj(
    kind: str, version: str, *, spec: JSON | None = None, status: JSON | None = None, notes: JSON | None = None
) -> JSON:
    metadata: JSON = {"name": "x", **({"annotations": notes} if notes else {})}
    found = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}
    return {key: value for key, value in found.items() if value is not None}


def row(kind: str, old: JSON, new: JSON, *, part: str = "spec", because: str) -> Any:
    return pytest.param(kind, part, old, new, id=because)


WORKLOAD_CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
BOTH_WAYS = [
    row("ClusterQueue", {"cohort": "all"}, {"cohortName": "all"}, because="the-cohort"),
    row(
        "ClusterQueue",
        {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}},
        {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}},
        because="present-words-stay",
    ),
    row(
        "ClusterQueue",
        {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}},
        {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}},
        because="a-field-that-v1beta1-lacks-elsewhere",
    ),
    row(
        "LocalQueue",
        {"flavorUsage": [{"name": "a", "resources": []}]},
        {"flavorsUsage": [{"name": "a", "resources": []}]},
        part="status",
        because="usage-by-flavor",
    ),
    row(
        "Workload",
        {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass", "priority": 1},
        {"priorityClassRef": WORKLOAD_CLASS, "priority": 1},
        because="a-workload-priority-class",
    ),
    row(
        "Workload",
        {"priorityClassName": "high", "priorityClassSource": "scheduling.k8s.io/priorityclass", "priority": 1},
        {"priorityClassRef": POD_CLASS, "priority": 1},
        because="a-priority-class-of-pods",
    ),
    row(
        "Workload",
        {"accumulatedPastExexcutionTimeSeconds": 3},
        {"accumulatedPastExecutionTimeSeconds": 3},
        part="status",
        because="the-misspelt-field",
    ),
    row(
        "Workload",
        {"preemptionGates": [{"name": "g"}]},
        {"preemptionGates": [{"name": "g"}]},
        because="preemption-gates",
    ),
    row(
        "MultiKueueCluster",
        {"kubeConfig": {"location": "s", "locationType": "Secret"}},
        {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
        because="a-kubeconfig",
    ),
    row(
        "MultiKueueCluster",
        {"kubeConfig": {"location": "", "locationType": "Secret"}, "clusterProfileRef": {"name": "p"}},
        {"clusterSource": {"clusterProfileRef": {"name": "p"}}},
        because="a-profile",
    ),
]


@pytest.mark.parametrize(("kind", "part", "old", "new"), BOTH_WAYS)
def test_both_ways(kind: str, part: str, old: JSON, new: JSON) -> None:
    """The same meaning in both versions."""
    assert converted(obj(kind, OLD) | {part: old}, NEW) == obj(kind, NEW) | {part: new}
    assert converted(obj(kind, NEW) | {part: new}, OLD) == obj(kind, OLD) | {part: old}


ONE_WAY = [
    row(
        "ClusterQueue",
        {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
        {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}},
        because="the-old-words",
    ),
    row(
        "ClusterQueue",
        {"admissionChecks": ["a", "b", "a"], "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}},
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}},
        because="a-list-of-checks-wins",
    ),
    row(
        "ClusterQueue",
        {"admissionChecks": [], "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}},
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}},
        because="an-empty-list-does-not",
    ),
    row("ClusterQueue", {"admissionChecksStrategy": {}}, {}, because="a-strategy-without-checks-is-none"),
    row(
        "ClusterQueue",
        {"pendingWorkloadsStatus": {"lastChangeTime": "x"}, "fairSharing": {"weightedShare": 1,
         "admissionFairSharingStatus": {}}, "pendingWorkloads": 2},
        {"fairSharing": {"weightedShare": 1}, "pendingWorkloads": 2},
        part="status",
        because="status-of-queues-that-went",
    ),
    row(
        "Cohort",
        {"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {}}},
        {"fairSharing": {"weightedShare": 1}},
        part="status",
        because="status-of-cohorts-that-went",
    ),
    row(
        "LocalQueue",
        {"flavors": [{"name": "a"}], "pendingWorkloads": 1},
        {"pendingWorkloads": 1},
        part="status",
        because="flavors-of-local-queues",
    ),
    row("Workload", {"priorityClassSource": "scheduling.k8s.io/priorityclass"}, {}, because="a-source-without-a-name"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "part", "old", "new"), ONE_WAY)
def test_of_v1beta1(kind: str, part: str, old: JSON, new: JSON) -> None:
    """Old words become present ones; status that kqueue does not write goes."""
    assert converted(obj(kind, OLD) | {part: old}, NEW) == obj(kind, NEW) | {part: new}


KEPT = [
    pytest.param(
        "Workload", {"priorityClassName": "high", "priority": 1}, {"priorityClassName": "high"}, id="a-class-name"
    ),
    pytest.param(
        "MultiKueueCluster",
        {"kubeConfig": {"location": "s", "locationType": "Secret"}, "clusterProfileRef": {"name": "p"}},
        {"clusterProfileRef": {"name": "p"}},
        id="a-second-source",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "kept"), KEPT)
def test_what_v1beta2_has_no_field_for_is_kept_in_an_annotation(kind: str, spec: JSON, kept: JSON) -> None:
    """It has no effect, and comes back in v1beta1."""
    old = obj(kind, OLD, spec=spec)

    new = converted(old, NEW)

    assert json.loads(new["metadata"]["annotations"][NOTE]) == kept
    assert not kept.keys() & new["spec"].keys()
    assert converted(new, OLD) == old


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no-json"),
        pytest.param("[]", id="no-object"),
        pytest.param('{"priorityClassName": "high"}', id="written-otherwise"),
        pytest.param('{"priorityClassName":7}', id="no-text"),
        pytest.param('{"active":false}', id="another-field"),
        pytest.param('{"active":false,"priorityClassName":"high"}', id="one-field-more"),
        pytest.param("[" * 5000, id="too-deep"),
    ],
)
def test_a_forged_annotation_is_an_annotation_like_any_other(text: str) -> None:
    """It sets no field, stops no conversion, and comes back as it was."""
    new = obj("Workload", NEW, spec={"priority": 1}, notes={NOTE: text})

    old = converted(new, OLD)

    assert old["spec"] == {"priority": 1}
    assert converted(old, NEW) == new


def test_an_annotation_that_contradicts_the_object_is_not_used() -> None:
    """A class that was set since then wins, and v1beta1 demands a priority where there is a name."""
    text = '{"priorityClassName":"old"}'
    of_class = obj("Workload", NEW, spec={"priority": 1, "priorityClassRef": POD_CLASS}, notes={NOTE: text})
    without_priority = obj("Workload", NEW, spec={"active": True}, notes={NOTE: text})

    assert converted(of_class, OLD)["spec"]["priorityClassName"] == "high"
    assert converted(without_priority, OLD)["spec"] == {"active": True}
    assert converted(converted(of_class, OLD), NEW) == of_class


def assigned(assignment: JSON, version: str) -> JSON:
    pod_set = {"name": "main", "topologyAssignment": assignment}
    return obj("Workload", version, status={"admission": {"clusterQueue": "q", "podSetAssignments": [pod_set]}})


def assignment_of(workload: JSON) -> JSON:
    found: JSON = workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    return found


DOMAINS = [{"values": ["h-1"], "count": 2}, {"values": ["h-2"], "count": 1}]
SLICE = {
    "domainCount": 2,
    "valuesPerLevel": [{"individual": {"prefix": "h-", "roots": ["1", "2"]}}],
    "podCounts": {"individual": [2, 1]},
}


def test_an_assignment_is_shown_domain_by_domain() -> None:
    """With its order and counts; the compressed form stays beside it."""
    new = assigned({"levels": [HOST], "slices": [SLICE]}, NEW)

    old = converted(new, OLD)

    assert assignment_of(old) == {"levels": [HOST], "domains": DOMAINS, "slices": [SLICE]}
    assert converted(old, NEW) == new


def test_domains_are_compressed() -> None:
    """As a client of v1beta1 writes them, without slices."""
    assert converted(assigned({"levels": [HOST], "domains": DOMAINS}, OLD), NEW) == assigned(
        {"levels": [HOST], "slices": [SLICE]}, NEW
    )


def test_domains_that_were_changed_count_more_than_slices() -> None:
    """A client of v1beta1 knows nothing of slices."""
    changed = assigned({"levels": [HOST], "domains": DOMAINS[:1], "slices": [SLICE]}, OLD)

    found = assignment_of(converted(changed, NEW))

    assert [part["domainCount"] for part in found["slices"]] == [1]
    assert assignment_of(converted(converted(changed, NEW), OLD))["domains"] == DOMAINS[:1]


def test_domains_with_a_value_too_few_keep_their_pods() -> None:
    """The schema of v1beta1 allows them; one such Workload must not fail the lists of all."""
    ragged = [{"values": ["a"], "count": 1}, {"values": ["a", "b"], "count": 2}]

    found = assignment_of(converted(assigned({"levels": ["r", HOST], "domains": ragged}, OLD), NEW))

    assert [part["podCounts"] for part in found["slices"]] == [{"universal": 1}, {"universal": 2}]


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        pytest.param(obj("Job", OLD), NEW, "Job x is of a kind that is not converted", id="another-kind"),
        pytest.param(obj("Workload", "v1"), NEW, "Workload x cannot be converted from v1", id="another-version"),
        pytest.param(obj("Workload", NEW), "v3", "known are .*v1beta2 and .*v1beta1", id="an-unknown-target"),
        pytest.param(
            obj("ClusterQueue", OLD) | {"spec": {"admissionChecks": 7}},
            NEW,
            "ClusterQueue x cannot be converted to .*; correct the object in .*v1beta1",
            id="a-broken-field",
        ),
        pytest.param({"apiVersion": OLD, "kind": [], "metadata": 3}, NEW, "of a kind", id="no-object-at-all"),
    ],
)
def test_a_failure_names_the_object(found: JSON, wanted: str, said: str) -> None:
    """And what would help."""
    with pytest.raises(NotConvertedError, match=said):
        converted(found, wanted)
