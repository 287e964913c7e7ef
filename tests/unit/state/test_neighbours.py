"""What host ports and affinity between pods ask of a workload's own pods."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.model.neighbours import NeighbourRules
from tests.unit.state.wire_objects import read

JSON = dict[str, Any]
HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
OWN = {"matchLabels": {"app": "train"}}


def pod_set(name: str = "main", *, labels: JSON | None = None, **spec: Any) -> JSON:
    """A pod set of two pods with the label `app: train`, or with these."""
    labels = {"app": "train"} if labels is None else labels
    return {"name": name, "count": 2, "template": {"metadata": {"labels": labels}, "spec": spec}}


def port(**fields: Any) -> JSON:
    """A pod spec with one container that has one port."""
    return {"containers": [{"name": "c", "ports": [fields]}]}


def near(selector: JSON | None = OWN, key: str = HOST, *, anti: bool = False, **more: Any) -> JSON:
    """A pod spec whose pods have to be near these pods, or away from them."""
    term = {"topologyKey": key, **({"labelSelector": selector} if selector is not None else {}), **more}
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def away(selector: JSON | None = OWN, key: str = HOST, **more: Any) -> JSON:
    """As `near`, of anti-affinity."""
    return near(selector, key, anti=True, **more)


def workload(*pod_sets: JSON) -> wire.Workload:
    """A Workload in namespace ns."""
    spec = {"queueName": "main", "podSets": list(pod_sets)}
    return read(wire.Workload, metadata={"name": "w", "namespace": "ns", "uid": "u"}, spec=spec)


def rules(*pod_sets: JSON) -> dict[str, tuple[list[str], tuple[str, ...]]]:
    """Per pod set with rules: whom it is apart from, and the labels of one domain."""
    found = model.neighbours(workload(*pod_sets))
    return {name: (sorted(each.apart), each.one_domain) for name, each in found.items()}


ALONE: JSON = {"main": (["main"], ())}
FREE: JSON = {}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        pytest.param(port(containerPort=80), FREE, id="a port of the pod alone"),
        pytest.param(port(containerPort=80, hostPort=80), ALONE, id="a host port"),
        pytest.param({**port(containerPort=80), "hostNetwork": True}, ALONE, id="on the host's network"),
        pytest.param({**port(), "hostNetwork": True}, FREE, id="a port without a number"),
        pytest.param({"initContainers": port(hostPort=80)["containers"]}, FREE, id="an init container ends first"),
        pytest.param(
            {"initContainers": [{**port(hostPort=80)["containers"][0], "restartPolicy": "Always"}]},
            ALONE,
            id="an init container that keeps running",
        ),
        pytest.param(away(), ALONE, id="away from its own pods"),
        pytest.param(away({"matchLabels": {"app": "other"}}), FREE, id="away from others"),
        pytest.param(away({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), ALONE, id="by an expression"),
        pytest.param(away(None), FREE, id="no selector selects nothing"),
        pytest.param(away({}), ALONE, id="an empty selector selects everything"),
        pytest.param(away(key=RACK), FREE, id="away by racks"),
        pytest.param(away(namespaces=["other"]), FREE, id="in another namespace"),
        pytest.param(away(namespaces=["other", "ns"]), ALONE, id="in this namespace by name"),
        pytest.param(away(namespaceSelector={}), ALONE, id="in every namespace"),
        pytest.param(away(namespaceSelector={"matchLabels": {"a": "b"}}), FREE, id="in namespaces by label"),
        pytest.param(away(matchLabelKeys=["app"]), ALONE, id="of the same value"),
        pytest.param(away(matchLabelKeys=["index"]), FREE, id="of a value that pods get later"),
        pytest.param(away({}, mismatchLabelKeys=["app"]), FREE, id="of another value"),
        pytest.param(near(), {"main": ([], (HOST,))}, id="all on one host"),
        pytest.param(near(key=RACK), {"main": ([], (RACK,))}, id="all in one rack"),
        pytest.param(near({"matchLabels": {"app": "other"}}, RACK), FREE, id="near to others"),
    ],
)
def test_rules_of_one_pod_set(spec: JSON, wanted: JSON) -> None:
    """Only what is certain to mean its own pods counts."""
    assert rules(pod_set(**spec)) == wanted


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        pytest.param({"hostPort": 80}, {"hostPort": 80}, True, id="the same port"),
        pytest.param({"hostPort": 80}, {"hostPort": 81}, False, id="another port"),
        pytest.param({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False, id="another protocol"),
        pytest.param({"hostPort": 80, "protocol": "TCP"}, {"hostPort": 80}, True, id="the protocol by default"),
        pytest.param(
            {"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False, id="another address"
        ),
        pytest.param({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, True, id="all addresses"),
        pytest.param({"hostPort": 80, "hostIP": "0.0.0.0"}, {"hostPort": 80, "hostIP": "::1"}, True, id="any address"),
    ],
)
def test_ports_of_two_pod_sets(one: JSON, other: JSON, both: bool) -> None:
    """Each excludes its own pods; they exclude each other where the same port of the same address is taken."""
    found = rules(pod_set("one", **port(**one)), pod_set("other", **port(**other)))

    assert found == {
        "one": (["one", "other"] if both else ["one"], ()),
        "other": (["one", "other"] if both else ["other"], ()),
    }


def test_the_rule_of_one_pod_set_binds_the_other() -> None:
    """Pods are kept away also from those that came first and have no rule themselves."""
    found = rules(pod_set("one", labels={"app": "x"}, **away()), pod_set("other"))

    assert found == {"one": (["other"], ()), "other": (["one"], ())}


def test_planning_hears_of_them() -> None:
    """The head that is planned has the rules of its pod sets."""
    (one, other) = model.pod_sets.pod_sets_of(
        workload(pod_set("one", **away()), pod_set("other", **near(key=RACK))), implied=False
    )

    assert (one.request.apart, one.request.one_domain) == (frozenset({"one", "other"}), ())
    assert (other.request.apart, other.request.one_domain) == (frozenset({"one"}), (RACK,))


def test_workloads_whose_labels_make_other_rules_are_not_equal() -> None:
    """Labels alone do not matter; what a selector finds among them does."""
    plain = [model.asked_for(workload(pod_set(labels={"app": app}))) for app in ("train", "other")]
    ruled = [model.asked_for(workload(pod_set(labels={"app": app}, **away()))) for app in ("train", "other")]

    assert plain[0].pods == plain[1].pods
    assert ruled[0].pods != ruled[1].pods


def test_without_rules_nothing_is_kept() -> None:
    """Most workloads have none."""
    assert model.neighbours(workload(pod_set(), pod_set("other"))) == {}
    assert NeighbourRules() == model.NO_RULES
