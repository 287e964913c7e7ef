"""Labels whose values stand on queues and cohorts."""

from __future__ import annotations

import pytest

from kqueue.config import parse
from kqueue.manager.rules import custom_labels
from kqueue.observe import CustomLabel, Metrics
from tests.readings import page_of

TEAM = CustomLabel(name="team", key="example.com/team")


@pytest.mark.parametrize(
    ("label", "labels", "annotations", "want"),
    [
        pytest.param(TEAM, {"example.com/team": "red"}, {}, "red", id="from a label"),
        pytest.param(TEAM, {}, {"example.com/team": "red"}, "", id="no annotation where a label is asked for"),
        pytest.param(CustomLabel(name="n", key="k", is_annotation=True), {"k": "l"}, {"k": "a"}, "a", id="annotation"),
        pytest.param(CustomLabel(name="n", key="k", tracked=frozenset({"a"})), {"k": "a"}, {}, "a", id="tracked"),
        pytest.param(CustomLabel(name="n", key="k", tracked=frozenset({"a"})), {"k": "b"}, {},
                     "kueue.x-k8s.io/_UNTRACKED_VALUE_", id="not tracked"),
        pytest.param(CustomLabel(name="n", key="k", tracked=frozenset({"a"})), {}, {}, "", id="none, so not untracked"),
        pytest.param(CustomLabel(name="n", key="k", is_annotation=True), {}, {"k": "x" * 1000}, "x" * 128, id="cut"),
    ],
)  # fmt: skip
def test_a_value_is_what_stands_on_the_object(
    label: CustomLabel, labels: dict[str, str], annotations: dict[str, str], want: str
) -> None:
    """Of the key that is asked for, bounded."""
    assert label.value(labels, annotations) == want


def lines(metrics: Metrics, name: str) -> list[str]:
    return [line for line in page_of(metrics).decode().splitlines() if line.startswith(f"{name}{{")]


def test_every_series_of_an_object_has_its_labels() -> None:
    """Under its newest value, quotes and line ends escaped; objects without the label have an empty one."""
    metrics = Metrics(custom_labels={"ClusterQueue": [TEAM], "Cohort": [TEAM]})
    for name in ("a", "b"):
        metrics.cluster_queue(name).holding(reserving=1, admitted=1)
        metrics.cluster_queue(name).preempts(reason="r")
    metrics.local_queue(namespace="ns", name="a").holding(reserving=1, admitted=1)
    metrics.describe("ClusterQueue", ("a",), {"example.com/team": "red"}, {})
    metrics.describe("ClusterQueue", ("a",), {"example.com/team": 're"\nd\\'}, {})
    escaped = r'custom_team="re\"\nd\\"'

    assert lines(metrics, "kueue_reserving_active_workloads") == [
        f'kueue_reserving_active_workloads{{cluster_queue="a",replica_role="standalone",{escaped}}} 1.0',
        'kueue_reserving_active_workloads{cluster_queue="b",replica_role="standalone",custom_team=""} 1.0',
    ]
    assert escaped in lines(metrics, "kueue_preempted_workloads_total")[0]
    assert "custom_" not in lines(metrics, "kueue_local_queue_reserving_active_workloads")[0]
    metrics.undescribe("ClusterQueue", ("a",))
    assert 'custom_team=""' in lines(metrics, "kueue_reserving_active_workloads")[0]


def test_admitted_workloads_of_a_cohort_are_told_apart_by_the_labels_of_its_queues() -> None:
    """As the values of ClusterQueues, not of the cohort."""
    metrics = Metrics(custom_labels={"ClusterQueue": [TEAM], "Cohort": [TEAM]})
    metrics.describe("ClusterQueue", ("a",), {"example.com/team": "red"}, {})
    metrics.cohort("all").subtree(quota={}, reserved={}, admitted={metrics.custom_values("a"): 3})

    assert lines(metrics, "kueue_cohort_subtree_admitted_active_workloads") == [
        'kueue_cohort_subtree_admitted_active_workloads{cohort="all",custom_team="red",replica_role="standalone"} 3.0'
    ]


def test_local_queues_may_be_left_out() -> None:
    """Nothing is counted of them; shown again they begin anew."""
    metrics = Metrics()
    for shown in (True, False):
        metrics.local_queue(namespace="ns", name="a").holding(reserving=1, admitted=1)
        metrics.show_local_queue(namespace="ns", name="a", shown=shown)
    metrics.local_queue(namespace="ns", name="a").holding(reserving=1, admitted=1)
    assert lines(metrics, "kueue_local_queue_reserving_active_workloads") == []

    metrics.show_local_queue(namespace="ns", name="a", shown=True)
    metrics.local_queue(namespace="ns", name="a").holding(reserving=2, admitted=1)
    assert lines(metrics, "kueue_local_queue_reserving_active_workloads")[0].endswith(" 2.0")


def test_admissions_through_a_local_queue_are_told_apart_by_labels_of_workloads() -> None:
    """Those of its ClusterQueue are not."""
    metrics = Metrics(custom_labels={"Workload": [CustomLabel(name="tier", key="tier")]})
    values = metrics.values_of({"tier": "gold"}, {})
    for queue in (metrics.local_queue(namespace="ns", name="lq"), metrics.cluster_queue("q")):
        queue.quota_reserved(priority_class="", waited=1, admitted=True, values=values)
        queue.admitted(priority_class="", waited=1, since_reserved=1, values=values)
    own = 'custom_tier="gold",replica_role="standalone"} 2.0'

    assert values == ("gold",)
    for name in ("kueue_local_queue_admitted_workloads_total", "kueue_local_queue_admission_wait_time_seconds_count"):
        assert [line.endswith(own) for line in lines(metrics, name)] == [True]
    assert "custom_" not in lines(metrics, "kueue_local_queue_quota_reserved_workloads_total")[0]
    assert "custom_" not in lines(metrics, "kueue_admitted_workloads_total")[0]


@pytest.mark.parametrize("on", [True, False])
def test_the_file_says_where_values_stand(on: bool) -> None:
    """A label or an annotation, by default the label of the custom label's own name; nothing while the gate is off."""
    text = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {{CustomMetricLabels: {str(on).lower()}}}
metrics:
  customLabels:
  - {{name: team}}
  - {{name: owner, sourceKind: LocalQueue, sourceAnnotationKey: example.com/owner}}
  - {{name: tier, sourceKind: Workload, sourceLabelKey: example.com/tier, trackedValues: [gold]}}
"""
    found = custom_labels(parse(text, source="f"))

    want = {
        "ClusterQueue": [CustomLabel(name="team", key="team")],
        "LocalQueue": [CustomLabel(name="owner", key="example.com/owner", is_annotation=True)],
        "Workload": [CustomLabel(name="tier", key="example.com/tier", tracked=frozenset({"gold"}))],
    }
    assert found == (want if on else {})
