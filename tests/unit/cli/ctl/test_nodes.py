"""Flags for labels, taints and tolerations."""

from __future__ import annotations

import pytest

from kqueue.cli.ctl.nodes import parse_labels, parse_taints, parse_tolerations
from kqueue.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param(["a=b"], {"a": "b"}, id="one"),
        pytest.param(["a=b,c=d", "e=f"], {"a": "b", "c": "d", "e": "f"}, id="several"),
        pytest.param(["x.dev/a="], {"x.dev/a": ""}, id="empty-value"),
        pytest.param(["a=b=c"], {"a": "b=c"}, id="the-first-equals-sign-counts"),
    ],
)
def test_labels_are_read(values: list[str], want: dict[str, str]) -> None:
    """Key and value; several, and several times."""
    assert parse_labels(values, "--node-labels") == want


@pytest.mark.parametrize(
    ("values", "match"),
    [
        pytest.param(["a"], "'a': write KEY=VALUE", id="no-value"),
        pytest.param(["=b"], "write KEY=VALUE", id="no-key"),
        pytest.param(["a=b,"], "'': write KEY=VALUE", id="trailing-comma"),
        pytest.param(["a=b", "a=c"], "names a twice", id="twice"),
    ],
)
def test_wrong_labels_are_named(values: list[str], match: str) -> None:
    """With the flag."""
    with pytest.raises(ConfigError, match=f"--node-labels .*{match}"):
        parse_labels(values, "--node-labels")


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("a=b:NoSchedule", [("a", "b", "NoSchedule")], id="with-value"),
        pytest.param("a:NoExecute", [("a", None, "NoExecute")], id="without-value"),
        pytest.param(
            "a:NoExecute,a:NoSchedule", [("a", None, "NoExecute"), ("a", None, "NoSchedule")], id="two-effects"
        ),
    ],
)
def test_taints_are_read(value: str, want: list[tuple[str, str | None, str]]) -> None:
    """The effect stands behind the last colon."""
    found = parse_taints([value], "--node-taints")
    assert [(taint["key"], taint.get("value"), taint["effect"]) for taint in found] == want


@pytest.mark.parametrize(
    ("value", "match"),
    [
        pytest.param("a", "write KEY=VALUE:EFFECT", id="no-effect"),
        pytest.param(":NoSchedule", "write KEY=VALUE:EFFECT", id="no-key"),
        pytest.param("a=:NoSchedule", "no value behind =", id="empty-value"),
        pytest.param("a:Never", "no effect 'Never'; known are NoSchedule", id="unknown-effect"),
        pytest.param("a=b:NoSchedule,a=c:NoSchedule", "names a:NoSchedule twice", id="key-and-effect-twice"),
    ],
)
def test_wrong_taints_are_named(value: str, match: str) -> None:
    """With the flag and what to write."""
    with pytest.raises(ConfigError, match=f"--node-taints .*{match}"):
        parse_taints([value], "--node-taints")


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("a=b:NoSchedule", {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
                     id="key-value-and-effect"),
        pytest.param("a=b", {"key": "a", "operator": "Equal", "value": "b"}, id="key-and-value"),
        pytest.param("a:NoSchedule", {"key": "a", "operator": "Exists", "effect": "NoSchedule"}, id="key-and-effect"),
        pytest.param("a", {"key": "a", "operator": "Exists"}, id="key-alone"),
        pytest.param(":NoSchedule", {"operator": "Exists", "effect": "NoSchedule"}, id="effect-alone"),
    ],
)  # fmt: skip
def test_tolerations_are_read(value: str, want: dict[str, str]) -> None:
    """Equal where there is a value, else Exists."""
    assert parse_tolerations([value], "--tolerations") == [want]


@pytest.mark.parametrize(
    ("value", "match"),
    [
        pytest.param("", "write KEY=VALUE:EFFECT", id="empty"),
        pytest.param("=b", "write KEY=VALUE:EFFECT", id="no-key"),
        pytest.param("a=", "no value behind =", id="empty-value"),
        pytest.param(":", "no effect ''", id="colon-alone"),
        pytest.param("a:Sometimes", "no effect 'Sometimes'", id="unknown-effect"),
    ],
)
def test_wrong_tolerations_are_named(value: str, match: str) -> None:
    """With the flag and what to write."""
    with pytest.raises(ConfigError, match=f"--tolerations .*{match}"):
        parse_tolerations([value], "--tolerations")
