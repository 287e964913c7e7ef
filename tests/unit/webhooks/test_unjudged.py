"""Warnings about fields of pods that kqueue does not judge: which fields count, and when a warning is due."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import names
from kqueue.jobs import unjudged
from webhooks.unjudged import unjudged_fields

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
LEVEL = {names.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}
PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
HOST = "kubernetes.io/hostname"
SPREAD = {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}
CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}


def affinity(kind: str, key: str, app: str) -> dict[str, Any]:
    """A pod spec with a rule about pods with this label."""
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}


def job(spec: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    template = {"metadata": {"annotations": LEVEL if annotations is None else annotations}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {**template, "spec": {"containers": [{"name": "c"}], **spec}}},
    }


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        pytest.param(PORT, [], id="a host port is judged"),
        pytest.param({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, ["affinity.podAffinity"], id="affinity"),
        pytest.param(
            {"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, ["affinity.podAntiAffinity"], id="anti-affinity"
        ),
        pytest.param({"affinity": {"podAffinity": {PREFERRED: [{}]}}}, [], id="a preference keeps no pod away"),
        pytest.param({"affinity": {"nodeAffinity": {REQUIRED: {}}}}, [], id="node affinity is judged"),
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            ["topologySpreadConstraints"],
            id="a spread constraint",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, [], id="a wish to spread"
        ),
        pytest.param(CLAIM, ["volumes.persistentVolumeClaim"], id="a volume claim"),
        pytest.param(
            {"volumes": [{"ephemeral": {"volumeClaimTemplate": {}}}]}, ["volumes.ephemeral"], id="an ephemeral claim"
        ),
        pytest.param({"volumes": [{"emptyDir": {}}]}, [], id="an empty directory"),
        pytest.param(
            {"affinity": [], "volumes": {}, "containers": [{"ports": [None, 7]}], "topologySpreadConstraints": "x"},
            [],
            id="values of wrong types",
        ),
        pytest.param(SPREAD | CLAIM, ["topologySpreadConstraints", "volumes.persistentVolumeClaim"], id="two fields"),
        pytest.param(affinity("podAffinity", "rack", "own"), [], id="near its own pods is judged"),
        pytest.param(affinity("podAffinity", "rack", "other"), ["affinity.podAffinity"], id="near other pods"),
        pytest.param(affinity("podAntiAffinity", HOST, "own"), [], id="hosts of their own are judged"),
        pytest.param(affinity("podAntiAffinity", "rack", "own"), ["affinity.podAntiAffinity"], id="racks of their own"),
        pytest.param(affinity("podAntiAffinity", HOST, "alien"), ["affinity.podAntiAffinity"], id="away from others"),
        pytest.param(affinity("podAntiAffinity", HOST, "other"), [], id="away from another pod set is judged"),
        pytest.param({"affinity": {"podAffinity": {REQUIRED: [7]}}}, ["affinity.podAffinity"], id="no term"),
    ],
)
def test_fields_that_are_not_judged_are_found(spec: dict[str, Any], found: list[str]) -> None:
    """Those that may keep a pod from its assigned domain."""
    own, other = ({"metadata": {"labels": {"app": app}}, "spec": spec} for app in ("own", "other"))

    assert unjudged.fields(own, "ns", among=[own, other]) == found


def test_a_template_that_asks_for_a_level_is_warned_of_once() -> None:
    """On create, and on the update that adds the field; an update of other fields is silent."""
    said = unjudged_fields(job(SPREAD), None)

    assert said == [
        "spec.template.spec: kqueue does not judge topologySpreadConstraints when it chooses topology domains; "
        "a pod that kube-scheduler refuses there stays pending"
    ]
    assert unjudged_fields(job(SPREAD), job({})) == said
    assert unjudged_fields(job(SPREAD), job(SPREAD)) == []


def test_a_template_that_asks_for_no_level_is_not_warned_of() -> None:
    """kube-scheduler chooses among all nodes of the flavor."""
    assert unjudged_fields(job(SPREAD, {}), None) == []
    assert unjudged_fields(job(SPREAD, {names.UNCONSTRAINED_TOPOLOGY_ANNOTATION: "true"}), None) == []


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        pytest.param({"required": "rack"}, 1, id="a required level"),
        pytest.param({"preferred": "rack"}, 1, id="a preferred level"),
        pytest.param({"unconstrained": True}, 0, id="no level"),
        pytest.param(None, 0, id="no topology request"),
    ],
)
def test_pod_sets_of_a_workload_are_named(request_: Any, count: int) -> None:
    """As explain shows them."""
    pod_set = {"name": "main", "template": {"spec": SPREAD}, "topologyRequest": request_}
    said = unjudged.of_workload({"spec": {"podSets": [pod_set]}})

    assert [
        sentence.startswith("pod set main: kqueue does not judge topologySpreadConstraints") for sentence in said
    ] == [True] * count
