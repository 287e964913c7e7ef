"""Quota flags: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.cli.ctl.quotas import BORROWING, LENDING, NOMINAL, parse_quotas, resource_groups
from kqueue.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["a:cpu=1"], {"a": {"cpu": "1"}}, id="one-resource"),
        pytest.param(["a:cpu=1;memory=2Gi"], {"a": {"cpu": "1", "memory": "2Gi"}}, id="two-resources"),
        pytest.param(["a:cpu=1,b:cpu=2"], {"a": {"cpu": "1"}, "b": {"cpu": "2"}}, id="two-flavors"),
        pytest.param(["a:cpu=1", "b:cpu=2"], {"a": {"cpu": "1"}, "b": {"cpu": "2"}}, id="the-flag-twice"),
        pytest.param(["a:nvidia.com/gpu=8"], {"a": {"nvidia.com/gpu": "8"}}, id="a-resource-with-a-domain"),
        pytest.param(["a: cpu=1 ; memory=1 , b:cpu=500m"], {"a": {"cpu": "1", "memory": "1"}, "b": {"cpu": "500m"}},
                     id="spaces-between-parts"),
        pytest.param(["a:cpu=0"], {"a": {"cpu": "0"}}, id="zero"),
    ],
)  # fmt: skip
def test_quotas_are_read(values: list[str], want: dict[str, Any]) -> None:
    """By flavor and resource; amounts stay as they were written."""
    assert parse_quotas(values, NOMINAL) == want


@pytest.mark.parametrize(
    ("value", "match"),
    [
        pytest.param("", "write FLAVOR:", id="empty"),
        pytest.param("a", "write FLAVOR:", id="flavor-only"),
        pytest.param("a:", "write FLAVOR:", id="no-resource"),
        pytest.param(":cpu=1", "write FLAVOR:", id="no-flavor"),
        pytest.param("a:cpu", "no RESOURCE=AMOUNT", id="no-amount"),
        pytest.param("a:cpu=", "no RESOURCE=AMOUNT", id="empty-amount"),
        pytest.param("a:=1", "no RESOURCE=AMOUNT", id="no-resource-name"),
        pytest.param("a:cpu=1;", "no RESOURCE=AMOUNT", id="trailing-semicolon"),
        pytest.param("a:cpu=1,", "write FLAVOR:", id="trailing-comma"),
        pytest.param("a:cpu=1;cpu=2", "names cpu twice", id="resource-twice"),
        pytest.param("a:cpu=1,a:memory=1", "names flavor a twice", id="flavor-twice"),
        pytest.param("a:cpu=lots", "a:cpu=lots", id="no-quantity"),
        pytest.param("a:cpu=-1", "must not be negative", id="negative"),
    ],
)
def test_a_mistake_names_the_flag_and_the_part(value: str, match: str) -> None:
    """And says what to write."""
    with pytest.raises(ConfigError, match=match) as caught:
        parse_quotas([value], LENDING)
    assert "--lending-limit" in str(caught.value)


def groups_of(**flags: str) -> list[dict[str, Any]]:
    """Resource groups of flags given by their first word."""
    named = {"nominal": NOMINAL, "borrowing": BORROWING, "lending": LENDING}
    return resource_groups({named[key]: parse_quotas([value], named[key]) for key, value in flags.items()})


def test_flavors_with_the_same_resources_form_a_group() -> None:
    """In the order in which they were named; every flavor lists its resources as the group does."""
    groups = groups_of(nominal="a:cpu=1;memory=2,g:gpu=8,b:memory=4;cpu=3")
    assert [(g["coveredResources"], [f["name"] for f in g["flavors"]]) for g in groups] == [
        (["cpu", "memory"], ["a", "b"]),
        (["gpu"], ["g"]),
    ]
    assert groups[0]["flavors"][1]["resources"] == [
        {"name": "cpu", "nominalQuota": "3"},
        {"name": "memory", "nominalQuota": "4"},
    ]


def test_limits_stand_beside_the_quota() -> None:
    """And where there is a limit only, the quota is 0."""
    groups = groups_of(nominal="a:cpu=4", borrowing="a:cpu=2,b:cpu=9", lending="a:cpu=1")
    assert groups[0]["flavors"] == [
        {
            "name": "a",
            "resources": [{"name": "cpu", "nominalQuota": "4", "borrowingLimit": "2", "lendingLimit": "1"}],
        },
        {"name": "b", "resources": [{"name": "cpu", "nominalQuota": "0", "borrowingLimit": "9"}]},
    ]


def test_without_flags_there_are_no_groups() -> None:
    """A queue without quota is possible."""
    assert resource_groups({NOMINAL: {}}) == []


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        pytest.param({"nominal": "a:cpu=1", "lending": "a:memory=1"}, "flavor a", id="flags-list-different-resources"),
        pytest.param(
            {"nominal": "a:cpu=1;memory=1", "borrowing": "a:cpu=1"}, "the same resources", id="one-lists-less"
        ),
        pytest.param({"nominal": "a:cpu=1;memory=1,b:cpu=1"}, "flavors a and b share cpu", id="groups-overlap"),
    ],
)
def test_resources_that_do_not_go_together_are_refused(flags: dict[str, str], match: str) -> None:
    """The error names flavor and resource."""
    with pytest.raises(ConfigError, match=match):
        groups_of(**flags)
