"""Annotations and labels that name node classes, as planning sees them."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.node_classes import NO_CLASS_REQUEST, NO_NODE_CLASS, ClassRequest, NodeClass
from kqueue.kube.taints import Taint, Toleration
from kqueue.model.pod_sets import pod_sets_of
from tests.unit.state.wire_objects import JSON, read

CARD, PREFERRED, SCARCE = "kqueue.dev/card-type", "kqueue.dev/card-type-preferred", "kqueue.dev/scarce"
GROUP = "kqueue.dev/private-group"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, NO_NODE_CLASS),
        ({CARD: "a100"}, NodeClass(card_type="a100")),
        ({CARD: "a100", SCARCE: "true"}, NodeClass(card_type="a100", scarce=True)),
        ({CARD: "a100", SCARCE: "yes"}, NodeClass(card_type="a100")),
        ({SCARCE: "true"}, NO_NODE_CLASS),
        ({GROUP: "lab"}, NodeClass(private_group="lab")),
        ({CARD: "a b", GROUP: "-"}, NodeClass()),
    ],
)
def test_the_class_of_a_flavor_g4_1(annotations: dict[str, str], expected: NodeClass) -> None:
    flavor = model.flavor(read(wire.ResourceFlavor, metadata={"name": "f", "annotations": annotations}))

    assert flavor.node_class == expected


def test_the_toleration_of_a_closed_class_comes_with_the_flavor_g4_16() -> None:
    annotations = {CARD: "a100", SCARCE: "true", GROUP: "lab"}
    flavor = model.flavor(read(wire.ResourceFlavor, metadata={"name": "f", "annotations": annotations}))

    assert model.class_taints(flavor.node_class) == (Taint(CARD, "a100"), Taint(GROUP, "lab"))
    assert flavor.tolerations == (
        Toleration(CARD, "Equal", "a100", "NoSchedule"),
        Toleration(GROUP, "Equal", "lab", "NoSchedule"),
    )


def workload(*templates: JSON, **metadata: Any) -> wire.Workload:
    """A Workload with one pod set for each template's metadata."""
    sets = [{"name": f"s{i}", "template": {"metadata": m, "spec": {}}} for i, m in enumerate(templates)]
    obj: wire.Workload = read(
        wire.Workload, metadata={"name": "w", "namespace": "ns", **metadata}, spec={"podSets": sets}
    )
    return obj


@pytest.mark.parametrize(
    ("template", "owner", "expected"),
    [
        ({}, {}, NO_CLASS_REQUEST),
        ({"annotations": {CARD: "a,b"}}, {}, ClassRequest(required=("a", "b"))),
        ({"annotations": {PREFERRED: "b"}}, {}, ClassRequest(preferred=("b",))),
        ({"labels": {GROUP: "lab"}}, {}, ClassRequest(private="lab")),
        ({}, {"annotations": {CARD: "a"}}, ClassRequest(required=("a",), inherited=True)),
        ({"annotations": {CARD: "b"}}, {"annotations": {CARD: "a"}}, ClassRequest(required=("b",))),
        (
            {"annotations": {CARD: "b"}},
            {"annotations": {PREFERRED: "a"}, "labels": {GROUP: "lab"}},
            ClassRequest(required=("b",), preferred=("a",), private="lab"),
        ),
        ({"labels": {GROUP: "x"}}, {"labels": {GROUP: "lab"}}, ClassRequest(private="x")),
    ],
)
def test_the_template_counts_before_its_owner_g4_7(template: JSON, owner: JSON, expected: ClassRequest) -> None:
    [pod_set] = pod_sets_of(workload(template, **owner), implied=False)

    assert pod_set.node_class == expected


def test_another_class_is_another_shape_and_another_version_g4_13() -> None:
    """Also where only the Workload's metadata says it, which changes no generation."""
    plain, owned = workload({}), workload({}, annotations={CARD: "a"})
    own, label = workload({"annotations": {CARD: "a"}}), workload({"labels": {GROUP: "a"}})
    pending = [model.pending(each) for each in (plain, owned, own, label)]

    assert len({entry.shape for entry in pending}) == 4
    assert len({entry.version for entry in pending}) == 4
    assert model.pending(workload({"labels": {"app": "x"}})).shape == pending[0].shape


def test_lists_that_cannot_be_read_are_a_mistake_of_the_user() -> None:
    """Past the webhook."""
    broken = workload({"annotations": {CARD: "a b"}}, annotations={PREFERRED: ""})
    head = model.head(broken, queue="team", topology_only=False, last_tried={})

    rule = "must be one card type or several joined by commas"
    assert head.problem == (
        f"metadata.annotations[{PREFERRED}]: {rule} (found ''); "
        f"spec.podSets[0].template.metadata.annotations[{CARD}]: {rule} (found 'a b')"
    )
