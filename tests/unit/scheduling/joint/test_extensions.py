"""Policies of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from kqueue.core.joint import registry
from kqueue.core.joint.registry import PolicySpec, mistakes_in
from kqueue.core.joint.round_policies import PolicyInput
from kqueue.errors import ConfigError
from kqueue.scheduling.joint.extensions import GROUP, load_policies
from tests.builders import make_head
from tests.unit.core.joint.worlds import anywhere, places, racks, round_of, world_of

TOY = EntryPoint("toy", "tests.unit.toys.toy_policy:ToyPolicy", GROUP)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "POLICIES", dict(registry.POLICIES))


def test_a_policy_of_another_package_changes_a_placement() -> None:
    assert load_policies([TOY]) == ["toy"]
    heads = [anywhere(make_head("a", pods=1, required=None))]
    specs = (PolicySpec(name="toy", parameters={"host": "r0-h000"}),)
    for given, host in ((PolicyInput(), "r0-h000"), (PolicyInput(specs=specs), "r0-h001")):
        assert places(round_of(world_of(racks(2)), heads, policies=given)) == {"a": {host: 1}}


def test_parameters_that_the_policy_does_not_take_are_a_mistake() -> None:
    load_policies([TOY])
    wrong = [PolicySpec(name="toy", parameters={"other": 1})]
    assert [mistake.path for mistake in mistakes_in(wrong)] == ["0/parameters"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (EntryPoint("packing", TOY.value, GROUP), "taken"),
        (EntryPoint("toy", "tests.unit.toys.toy_policy:Nothing", GROUP), "AttributeError"),
        (EntryPoint("toy", "no.such.module:Policy", GROUP), "ModuleNotFoundError"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(entry: EntryPoint, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        load_policies([entry])
    assert entry.value in str(raised.value)
