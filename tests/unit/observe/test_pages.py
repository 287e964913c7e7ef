"""Alerts, dashboard and docs/metrics.md name metrics and labels that there are; each alert has its runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.observe import Metrics
from kqueue.observe.families import ClusterQueueFamilies
from kqueue.observe.family import Family
from kqueue.observe.metric_groups import MetricGroups
from tests.unit.observe.promql import Asked, Selected, asked

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "charts" / "kqueue" / "files"
PAGE = (ROOT / "docs" / "metrics.md").read_text()
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
METRICS = Metrics(groups=MetricGroups(cluster_queue_resources=True, dashboard=True))
FAMILIES = {name: (kind, set(labels)) for name, kind, labels in METRICS.described()}
GROUPS: list[dict[str, Any]] = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED: dict[str, set[str]] = {rule["record"]: set(asked(rule["expr"]).grouped) for rule in RULES if "record" in rule}
"""Labels of recorded series."""
TARGET = {"pod", "job", "namespace", "instance"}
"""Labels that Prometheus adds when it scrapes."""
ABSENT = {"kueue_replaced_workload_slices_total"}


def labels_of(metric: str) -> set[str] | None:
    """What series of this name may carry; None when there are none."""
    if metric in FAMILIES and FAMILIES[metric][0] != "histogram":
        return FAMILIES[metric][1] | TARGET | {"replica_role"}
    base = re.sub(r"_(bucket|sum|count)$", "", metric)
    if metric != base and FAMILIES.get(base, ("", set()))[0] == "histogram":
        return FAMILIES[base][1] | TARGET | {"replica_role"} | ({"le"} if metric.endswith("_bucket") else set())
    return TARGET if metric.startswith("process_") else None


def problems(expression: str) -> list[str]:
    """What it names that there is not."""
    found, known = [], set[str]()
    names = asked(expression)
    for one in names.selected:
        labels = labels_of(one.metric)
        if one.metric in RECORDED:
            known |= RECORDED[one.metric]
        elif labels is None:
            found.append(f"no metric {one.metric}")
        else:
            known |= labels
            found += [f"{one.metric} has no label {label}" for label in one.labels if label not in labels]
    return found + [f"no metric here has label {label}" for label in sorted(names.grouped - known)]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FILES / "dashboard.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[Any]:
    """Every expression that is handed to users, with where it stands."""
    for rule in RULES:
        yield pytest.param(rule["expr"], id=rule.get("alert") or rule["record"])
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5m")
            yield pytest.param(text, id=f"panel {panel['title']} {target['refId']}")
    for page in (PAGE, RUNBOOKS):
        for number, block in enumerate(re.findall(r"(?:^    .+\n)+", page, re.MULTILINE)):
            for text in re.split(r"\n(?=    \S)", block.strip("\n")):
                if re.match(r"    (sum|min|max|rate|topk|k?queue_|histogram)", text):
                    yield pytest.param(text, id=f"page {number} {text.split('(')[0].strip()}")


@pytest.mark.parametrize("expression", list(expressions()))
def test_every_expression_names_what_there_is(expression: str) -> None:
    """Metrics and labels."""
    assert problems(expression) == []


@pytest.mark.parametrize("expression", list(expressions()))
def test_gauges_of_followers_are_left_out(expression: str) -> None:
    """They show the same queues and nodes as the leader's: what is summed would be twice what there is."""
    own = {"kqueue_watch_age_seconds", "kqueue_certificate_not_after_seconds"}
    shared = [
        one
        for one in asked(expression).selected
        if FAMILIES.get(one.metric, ("", set()))[0] == "gauge" and one.metric.startswith(("kueue_", "kqueue_"))
    ]

    assert [one.metric for one in shared if one.metric not in own and "replica_role" not in one.labels] == []


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("kueue_pending_workload", ["no metric kueue_pending_workload"], id="a metric"),
        pytest.param(
            "kueue_pending_workloads{state='x'}", ["kueue_pending_workloads has no label state"], id="a label"
        ),
        pytest.param("sum by (le) (kueue_pending_workloads)", ["no metric here has label le"], id="a group"),
        pytest.param(
            "rate(kqueue_loop_lag_seconds[5m])", ["no metric kqueue_loop_lag_seconds"], id="a histogram itself"
        ),
    ],
)
def test_what_there_is_not_is_found(expression: str, want: list[str]) -> None:
    """So that the test above can fail."""
    assert problems(expression) == want


def test_an_expression_is_taken_apart() -> None:
    """Metrics with the labels of their braces, and labels of groups; functions, numbers and texts are none."""
    text = 'sum by (a, b) (rate(x_total{c="d{e}", f!~"g"}[5m] offset 1h)) / on (h) (y > 0.5e3) unless z:r == 1'

    assert asked(text) == Asked(
        (Selected("x_total", ("c", "f")), Selected("y", ()), Selected("z:r", ())), frozenset({"a", "b", "h"})
    )


def test_the_number_of_series_of_a_priority_class_is_so() -> None:
    """Buckets, sums and counts are series; how often a family was created is none that is served."""
    families = (f for f in vars(ClusterQueueFamilies(None)).values() if isinstance(f, Family))
    children = [f.labels("q", "c") for f in families if set(f.label_names) == {"cluster_queue", "priority_class"}]
    samples = [sample.name for child in children for metric in child.collect() for sample in metric.samples]

    served = [name for name in samples if not name.endswith("_created")]
    assert f"up to {len(served)} series for each priority class" in " ".join(PAGE.split())


def test_the_reference_is_complete() -> None:
    """Each metric has one row, with its type and its labels; what the compatible system has besides has its reason."""
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ([^|]*) \| (.+) \|$", PAGE, re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}

    assert len(rows) == len(documented)
    assert documented == FAMILIES
    assert all(f"`{name}`" in PAGE for name in ABSENT)


@pytest.mark.parametrize("alert", [pytest.param(alert, id=alert["alert"]) for alert in ALERTS])
def test_an_alert_says_what_it_means_and_what_to_do(alert: dict[str, Any]) -> None:
    """Severity, summary, description, and a section of the runbooks that tells what it means, how to look, what to do."""
    notes = alert["annotations"]
    section = RUNBOOKS.partition(f"\n## {alert['alert']}\n")[2].partition("\n## ")[0]

    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert set(notes) == {"summary", "description", "runbook"}
    assert notes["runbook"] == f"docs/runbooks.md#{alert['alert'].lower()}"
    assert [word for word in ("**Means:**", "**Look:**", "**Do:**") if word not in section] == []


def test_no_runbook_is_left_over() -> None:
    """Every section that is named like an alert is one's."""
    sections = set(re.findall(r"^## (Kqueue\w+)$", RUNBOOKS, re.MULTILINE))

    assert sections == {alert["alert"] for alert in ALERTS}


def kept_by(expression: str) -> set[str]:
    """Labels that its result may carry."""
    names = asked(expression)
    if re.search(r"\b(by|without)\b", expression):
        return set(names.grouped)
    metrics = [one.metric for one in names.selected]
    found = [RECORDED[metric] if metric in RECORDED else labels_of(metric) or set() for metric in metrics]
    return set().union(*found)


@pytest.mark.parametrize("alert", [pytest.param(alert, id=alert["alert"]) for alert in ALERTS])
def test_a_label_in_a_sentence_is_one_that_the_result_has(alert: dict[str, Any]) -> None:
    """One that the expression drops would show as nothing."""
    named = set(re.findall(r"\$labels\.(\w+)", json.dumps(alert["annotations"])))

    assert named - kept_by(alert["expr"]) == set()


def test_panels_of_the_dashboard_are_told_apart() -> None:
    """By id and place, and each says what it shows."""
    found = panels()
    places = [tuple(panel["gridPos"].values()) for panel in found]

    assert len({panel["id"] for panel in found}) == len(found) == len(set(places)) > 20
    assert all(panel["title"] and panel["description"] and panel["targets"] for panel in found)
