"""The contract of policies: all of kqueue keep it, and each way to break it is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kqueue.core.joint import registry
from kqueue.core.joint.policy import BasePolicy, Depth, PlacePolicy
from kqueue.core.joint.registry import POLICIES, PolicySpec, make
from kqueue.placing.contract import ContractError
from kqueue.placing.policy_contract import check_policy
from tests.unit.toys.toy_policy import ToyPolicy

PARAMETERS: dict[str, dict[str, Any]] = {
    "interference": {"matrix": {"x": {"x": 5, "y": 100}}},
    "network": {"resource": "cpu"},
}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_keeps_the_contract(name: str) -> None:
    policy = make(PolicySpec(name=name, parameters=PARAMETERS.get(name, {})))
    assert not isinstance(policy, registry.PolicyMistake)
    check_policy(policy)


def test_the_toy_keeps_the_contract() -> None:
    check_policy(ToyPolicy(host="b0-r0-h0"))


def page() -> str:
    return (Path(__file__).parents[4] / "docs/how-to/placement-policies.md").read_text(encoding="utf-8")


def test_the_policy_of_the_page_keeps_the_contract() -> None:
    found = re.search(r"<!-- policy: run by a test -->\n```python\n(.*?)```", page(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    check_policy(names["LastHosts"]())


def test_the_page_has_all_policies() -> None:
    assert sorted(re.findall(r"^\| `([a-z]+)` \|", page(), re.MULTILINE)) == sorted(POLICIES)


def bad(**methods: Callable[..., Any]) -> PlacePolicy:
    """A policy with other methods."""
    found: PlacePolicy = type("Bad", (BasePolicy,), {"depth": Depth.HOST, **methods})()
    return found


@pytest.mark.parametrize(
    ("methods", "problem"),
    [
        ({"hosts": lambda _s, _p, _n, view: np.zeros(len(view.tree))}, "int64"),
        ({"hosts": lambda _s, _p, _n, view: np.zeros(len(view.tree) + 1, dtype=np.int64)}, "costs, and is"),
        ({"hosts": lambda _s, _p, _n, view: np.full(len(view.tree), -1)}, "below 0"),
        ({"hosts": lambda _s, _p, nth, view: np.full(len(view.tree), 10 - nth)}, "fall from pod 1 to pod 2"),
        ({"hosts": lambda _s, _p, _n, view: view.capacity.add(0, {"cpu": -1})}, "changed the free amounts"),
        ({"domains": lambda _s, _p, _l, view: np.zeros(99, dtype=np.int64)}, "domains of level 0"),
        ({"patience": lambda _s, pods, _v: 10**6 - pods.waited}, "patience falls"),
        ({"patience": lambda _s, pods, _v: 1.5}, "patience is 1.5"),
        ({"waiting": lambda _s, pods: 10**6 - pods.waited}, "waiting falls"),
        ({"real_cost": lambda _s, _p, _v: -1}, "real_cost is -1"),
        ({"real_cost": lambda _s, _p, _v: 0.5}, "real_cost is 0.5"),
    ],
)
def test_a_policy_that_breaks_the_contract_is_found(methods: dict[str, Callable[..., Any]], problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        check_policy(bad(**methods))
