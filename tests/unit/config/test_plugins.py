"""The section about plugins: all mistakes at once, each with its path."""

from __future__ import annotations

import pytest

from kqueue.config import ConfigFileError, parse

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def test_plugins_and_profiles_are_read_g5_18() -> None:
    text = """
plugins:
  enabled:
    - {name: acme, args: {factor: 2, names: [a, b]}, onError: Ignore}
    - {name: acme.deadline}
  profiles:
    - {name: night, order: [priority, acme.deadline, timestamp, uid], filter: [acme], beforeRelease: [acme]}
    - {name: default, victims: [kube-preemption]}
"""
    found = parse(HEAD + text, source="test").plugins
    assert (found.enabled[0].args, found.enabled[0].on_error) == ({"factor": 2, "names": ["a", "b"]}, "Ignore")
    assert found.enabled[1].on_error == "Wait"
    assert found.profiles[0].order == ("priority", "acme.deadline", "timestamp", "uid")
    assert found.profiles[0].before_release == ("acme",)
    assert found.profiles[1].order is None


@pytest.mark.parametrize(
    ("section", "said"),
    [
        pytest.param("enabled: [{name: Acme}]", "plugins.enabled[0].name: must be 1 to 63 lower-case", id="a name"),
        pytest.param("enabled: [{name: a}, {name: a}]", "plugins.enabled[1].name: must be different", id="twice"),
        pytest.param("enabled: [{name: uid}]", "plugins.enabled[0].name: is built in", id="a built-in name"),
        pytest.param("enabled: [{name: a, onError: Stop}]", "plugins.enabled[0].onError: must be 'Wait' or 'Ignore'", id="onError"),
        pytest.param("profiles: [{name: n}, {name: n}]", "plugins.profiles[1].name: has an order already; a profile has one order", id="two orders"),
        pytest.param("profiles: [{name: n, order: []}]", "plugins.profiles[0].order: must have a key", id="no key"),
        pytest.param("profiles: [{name: n, order: [priorty]}]", "plugins.profiles[0].order[0]: is not enabled; did you mean priority?", id="a misspelt key"),
        pytest.param("profiles: [{name: n, order: [uid, uid]}]", "plugins.profiles[0].order[1]: must not be repeated", id="a key twice"),
        pytest.param("profiles: [{name: n, beforeRelease: [a]}]", "plugins.profiles[0].beforeRelease[0]: is not enabled; plugins.enabled is empty", id="not enabled"),
        pytest.param("profiles: [{name: n, permit: [a]}]", "plugins.profiles[0].permit: unknown field", id="permit is no field"),
    ],
)  # fmt: skip
def test_mistakes_have_a_path_and_a_remedy(section: str, said: str) -> None:
    with pytest.raises(ConfigFileError) as raised:
        parse(f"{HEAD}plugins: {{{section}}}", source="test")
    assert said in str(raised.value)


@pytest.mark.mechanism("3.17")
def test_two_orders_in_one_profile_are_refused() -> None:
    """Row 3.17."""
    with pytest.raises(Exception, match="order is given twice"):
        parse(f"{HEAD}plugins:\n  profiles:\n  - name: n\n    order: [uid]\n    order: [priority]\n", source="test")


def test_all_mistakes_are_told_at_once() -> None:
    text = "plugins: {enabled: [{name: a}, {name: a}], profiles: [{name: n, screen: [b]}, {name: n, order: [c]}]}"
    with pytest.raises(ConfigFileError) as raised:
        parse(HEAD + text, source="test")
    assert [problem.path for problem in raised.value.problems] == [
        "plugins.enabled[1].name",
        "plugins.profiles[0].screen[0]",
        "plugins.profiles[1].name",
        "plugins.profiles[1].order[0]",
    ]
