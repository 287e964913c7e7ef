"""Workloads whose pods are under a PodDisruptionBudget that allows no disruption."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.kube.requirement import labels_match
from kqueue.state.disruption_budgets import DisruptionBudgets

JSON = dict[str, Any]


def budget(name: str = "b", *, namespace: str = "ns", allowed: int | None = 0, selector: JSON | None = None) -> Any:
    status = {} if allowed is None else {"disruptionsAllowed": allowed}
    spec = {} if selector is None else {"selector": selector}
    obj = {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}
    return msgspec.convert(obj, wire_core.PodDisruptionBudget)


def workload(uid: str, *apps: str, namespace: str = "ns") -> wire.Workload:
    sets = [
        {"name": f"p{n}", "count": 1, "template": {"metadata": {"labels": {"app": app}}, "spec": {}}}
        for n, app in enumerate(apps)
    ]
    obj = {"metadata": {"name": uid, "namespace": namespace, "uid": uid}, "spec": {"queueName": "q", "podSets": sets}}
    found: wire.Workload = msgspec.convert(obj, wire.Workload)
    return found


class Known:
    """Budgets and Workloads, as the watches bring them."""

    def __init__(self) -> None:
        self.workloads: dict[str, wire.Workload] = {}
        self.budgets: dict[tuple[str, str], Any] = {}
        self.found = DisruptionBudgets(
            lambda namespace: [w for w in self.workloads.values() if w.metadata.namespace == namespace]
        )

    def put(self, name: str, new: wire.Workload | None) -> None:
        old = self.workloads.pop(name, None)
        if new is not None:
            self.workloads[name] = new
        self.found.on_workload(old, new)

    def set(self, key: tuple[str, str], new: Any) -> None:
        old = self.budgets.pop(key, None)
        if new is not None:
            self.budgets[key] = new
        self.found.on_budget(old, new)


@pytest.mark.parametrize(
    ("given", "protected"),
    [
        pytest.param(budget(selector={"matchLabels": {"app": "web"}}), {"a", "c"}, id="labels"),
        pytest.param(
            budget(selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}),
            {"b", "c"},
            id="expressions",
        ),
        pytest.param(budget(selector={}), {"a", "b", "c"}, id="an empty selector selects all"),
        pytest.param(budget(), set(), id="no selector selects none"),
        pytest.param(budget(selector={}, allowed=1), set(), id="a disruption is allowed"),
        pytest.param(budget(selector={}, allowed=None), {"a", "b", "c"}, id="not counted yet"),
        pytest.param(budget(selector={}, namespace="other"), {"d"}, id="another namespace"),
    ],
)
def test_who_is_protected_g5_22(given: Any, protected: set[str]) -> None:
    known = Known()
    for name, apps, namespace in (
        ("a", ["web"], "ns"),
        ("b", ["db"], "ns"),
        ("c", ["db", "web"], "ns"),
        ("d", ["web"], "other"),
    ):
        known.put(name, workload(name, *apps, namespace=namespace))
    known.set((given.metadata.namespace, "b"), given)
    assert known.found.protected() == protected
    known.set((given.metadata.namespace, "b"), None)
    assert known.found.protected() == frozenset()


@pytest.mark.parametrize("seed", range(20))
def test_events_in_any_order_end_in_the_same_answer(seed: int) -> None:
    """Compared with an answer that is computed anew after each event."""
    chance, known = random.Random(seed), Known()
    for n in range(200):
        namespace, name = chance.choice(["x", "y"]), chance.choice(["a", "b", "c"])
        if chance.random() < 0.5:
            made = workload(f"{namespace}-{name}-{n}", chance.choice(["web", "db"]), namespace=namespace)
            known.put(f"{namespace}/{name}", chance.choice([made, None]))
        else:
            selector = chance.choice([None, {}, {"matchLabels": {"app": "web"}}])
            made = budget(name, namespace=namespace, allowed=chance.choice([0, 0, 1]), selector=selector)
            known.set((namespace, name), chance.choice([made, made, None]))
        assert known.found.protected() == {
            w.metadata.uid for w in known.workloads.values() if any(_under(b, w) for b in known.budgets.values())
        }


def _under(of: Any, found: wire.Workload) -> bool:
    selector = of.spec.selector
    if of.metadata.namespace != found.metadata.namespace or of.status.disruptions_allowed or selector is None:
        return False
    labels = found.spec.pod_sets[0].template.metadata.labels
    return labels_match(selector.match_labels, selector.match_expressions, labels)
