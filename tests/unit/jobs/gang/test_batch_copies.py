"""BatchProcesses of workspaces and their copies."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.gang.batch_copies import copy_of, follow, is_copy_of, status_back
from kqueue.jobs.gang.batch_process import problems
from kqueue.jobs.patch import apply_merge_patch
from tests.unit.jobs.gang.batch_builders import batch

JSON = dict[str, Any]


def original(**spec: Any) -> JSON:
    """A BatchProcess of a workspace without an image."""
    obj = batch(**spec)
    del obj["spec"]["image"]
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    return {
        **obj,
        "apiVersion": "workspace.brainpp.cn/v1alpha1",
        "metadata": {**obj["metadata"], "annotations": annotations, "generation": 4},
    }


def test_the_copy_is_valid_and_belongs_to_the_original() -> None:
    copy = copy_of(original(ttlSecondsAfterFinished=5), image="train:2")

    assert problems(copy) == []
    assert copy["apiVersion"] == "kqueue.dev/v1alpha1"
    assert copy["spec"]["image"] == "train:2"
    assert copy["metadata"]["annotations"] == {"a": "b"}
    assert copy["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "main"}
    assert [(o["apiVersion"], o["controller"]) for o in copy["metadata"]["ownerReferences"]] == [
        ("workspace.brainpp.cn/v1alpha1", True)
    ]
    assert "ttlSecondsAfterFinished" not in copy["spec"], "it holds for the original"
    assert is_copy_of(copy, original())
    assert not is_copy_of(batch(), original())


@pytest.mark.parametrize(("own", "image"), [("mine:1", "mine:1"), ("", "train:2")])
def test_the_image_of_the_object_counts_first(own: str, image: str) -> None:
    spec: JSON = {"image": own} if own else {}
    obj = original()
    obj["spec"] |= spec

    assert copy_of(obj, image="train:2")["spec"]["image"] == image


def test_the_copy_follows_the_original() -> None:
    copy = copy_of(original(), image="train:2")
    copy["metadata"]["labels"]["of-another"] = "x"
    changed = copy_of(original(suspend=True), image="train:2")

    patch = follow(copy, changed)

    assert patch == {"spec": {"suspend": True}}
    after = apply_merge_patch(copy, patch)
    assert follow(after, changed) == {}
    assert follow(after, copy_of(original(), image="train:2")) == {"spec": {"suspend": None}}


@pytest.mark.parametrize(("observed", "generation"), [(2, 4), (1, 3)])
def test_the_status_comes_back(observed: int, generation: int) -> None:
    """The generation counts as seen once the controller has seen that of the copy."""
    copy = {"metadata": {"generation": 2}, "status": {"phase": "Running", "observedGeneration": observed}}
    obj = {**original(), "status": {"observedGeneration": 3}}

    assert status_back(copy, obj) == {"phase": "Running", "observedGeneration": generation}
