from __future__ import annotations

from typing import Any

import pytest

from kqueue.errors import InvalidError
from kqueue.sandbox.patching import json_patched, merged, patched, strategic
from kqueue.sandbox.shape import builtin
from kqueue.sandbox.store import copied
from tests.unit.sandbox.objects import CONFIG_MAPS, new_api


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null-removes"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}, id="objects-merge"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists-are-replaced"),
        pytest.param({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="nulls-are-not-added"),
        pytest.param({"a": {"b": 1}}, {"a": "x"}, {"a": "x"}, id="text-replaces-an-object"),
    ],
)
def test_merge_patches(old: Any, patch: Any, new: Any) -> None:
    """RFC 7386, and the old object stays as it is."""
    before = copied(old)

    assert merged(old, patch) == new
    assert old == before


def env(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def conditions(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


POD = {
    "spec": {
        "containers": [
            {"name": "a", "image": "x", "env": env(ONE="1", TWO="2"), "args": ["p", "q"]},
            {"name": "b", "image": "y"},
        ],
        "tolerations": [{"key": "k"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "metadata": {"finalizers": ["f/1", "f/2"]},
    "status": {"conditions": conditions("A", "B")},
}


@pytest.mark.parametrize(
    ("patch", "path", "new"),
    [
        pytest.param(
            {"spec": {"containers": [{"name": "a", "env": env(TWO="3", ZWEI="4")}]}},
            ("spec", "containers", 0, "env"),
            env(ONE="1", TWO="3", ZWEI="4"),
            id="lists-with-a-key-merge-by-it",
        ),
        pytest.param(
            {"status": {"conditions": conditions("C")}},
            ("status", "conditions"),
            conditions("C", "A", "B"),
            id="new-items-come-first",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "a", "args": ["r"]}]}},
            ("spec", "containers", 0, "args"),
            ["r"],
            id="plain-lists-are-replaced",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}},
            ("spec", "containers", slice(1, None)),
            [],
            id="an-item-is-deleted-by-its-key",
        ),
        pytest.param(
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}},
            ("spec", "containers"),
            [{"name": "z"}],
            id="a-whole-list-is-replaced-on-demand",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}},
            ("spec", "volumes"),
            [{"name": "v", "configMap": {"name": "c"}}],
            id="keys-that-are-not-retained-go",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["f/3"], "$deleteFromPrimitiveList/finalizers": ["f/1"]}},
            ("metadata", "finalizers"),
            ["f/3", "f/2"],
            id="sets-of-text-merge-and-lose-values",
        ),
        pytest.param(
            {"status": {"conditions": conditions("C"), "$setElementOrder/conditions": [{"type": "B"}, {"type": "C"}]}},
            ("status", "conditions"),
            conditions("A", "B", "C"),
            id="the-order-is-as-asked",
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "l"}]}}, ("spec", "tolerations"), [{"key": "l"}], id="no-key-no-merge"
        ),
        pytest.param(
            {"spec": {"$patch": "replace", "x": 1}}, ("spec",), {"x": 1}, id="an-object-is-replaced-on-demand"
        ),
        pytest.param(
            {"spec": {"tolerations": None}}, ("spec", "volumes", 0, "name"), "v", id="null-removes-only-itself"
        ),
    ],
)
def test_strategic_merge_patches(patch: Any, path: tuple[Any, ...], new: Any) -> None:
    """Lists merge by the keys that Kubernetes gives them, and directives are obeyed."""
    before = copied(POD)
    found = strategic(POD, patch, builtin("core.Pod"))
    for step in path:
        found = found[step]

    assert found == new
    assert before == POD


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"containers": [{"image": "x"}]}}, id="an-item-without-its-key"),
        pytest.param({"spec": {"containers": ["x"]}}, id="text-among-objects"),
    ],
)
def test_a_strategic_patch_that_makes_no_sense_is_refused(patch: Any) -> None:
    """With 400, naming what is missing."""
    with pytest.raises(InvalidError) as caught:
        strategic(POD, patch, builtin("core.Pod"))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        pytest.param([{"op": "remove", "path": "/spec/nope"}], 422, id="removes-what-is-not-there"),
        pytest.param([{"op": "test", "path": "/spec/x", "value": 1}], 422, id="a-test-fails"),
        pytest.param([{"op": "explode", "path": "/"}], 422, id="an-unknown-operation"),
        pytest.param([1, None], 422, id="no-operations-at-all"),
        pytest.param({"op": "add"}, 400, id="not-a-list"),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(patch: Any, status: int) -> None:
    """And the object stays as it is."""
    before = copied(POD)
    with pytest.raises(InvalidError) as caught:
        json_patched(POD, patch)
    assert caught.value.status == status
    assert before == POD


def test_an_unknown_patch_type_is_415() -> None:
    """The answer names the types that are read."""
    kind = new_api().kind(CONFIG_MAPS)
    with pytest.raises(InvalidError, match=r"application/merge-patch\+json") as caught:
        patched({"metadata": {}}, {}, "text/plain", kind)
    assert caught.value.status == 415


def test_a_patch_leaves_an_object() -> None:
    """Metadata cannot be patched away."""
    kind = new_api().kind(CONFIG_MAPS)
    with pytest.raises(InvalidError, match="leaves no object"):
        patched({"metadata": {}}, {"metadata": None}, "application/merge-patch+json", kind)
