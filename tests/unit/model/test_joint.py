"""Annotations for the policies of joint placement."""

from __future__ import annotations

import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core.joint.traits import Traits
from tests.unit.controllers.builders import make_cluster_queue, read


@pytest.mark.parametrize(
    ("annotations", "traits"),
    [
        ({}, None),
        ({"prefers": "rack=r1"}, Traits(prefers=(("rack", "r1"),))),
        ({"prefers": "x.com/block=b1, x.com/rack=r1"}, Traits(prefers=(("x.com/block", "b1"), ("x.com/rack", "r1")))),
        ({"prefers": "r1"}, Traits()),
        ({"prefers": "rack=r1,"}, Traits()),
        ({"interference": "noisy"}, Traits(interference="noisy")),
        ({"expected-runtime": "90m"}, Traits(expected_seconds=5400)),
        ({"expected-runtime": "1ms"}, Traits(expected_seconds=1)),
        ({"expected-runtime": "-1m"}, Traits()),
        ({"expected-runtime": "soon"}, Traits()),
    ],
)
def test_annotations_are_traits(annotations: dict[str, str], traits: Traits | None) -> None:
    meta = ObjectMeta(name="w", annotations={f"kqueue.dev/{key}": value for key, value in annotations.items()})
    assert model.traits_of(meta) == traits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[{name: nothing}]", "0/name: there is no policy nothing"),
        ("[{name: packing, weight: 0}]", "0/weight: must be from 1 to 1000000"),
        ("[{name: packing, each: 1}]", "entry 0 has an unknown key each"),
        ("packing", "must be a list"),
        ("[]", "must be a list"),
        ("[1]", "entry 0 must have a name"),
        ("[{", "is no YAML"),
    ],
)
def test_a_wrong_list_of_policies_is_named(text: str, problem: str) -> None:
    meta = ObjectMeta(name="q", annotations={"kqueue.dev/joint-policies": text})
    specs, found = model.joint_policies(meta)
    assert specs is None
    assert found.startswith("metadata.annotations[kqueue.dev/joint-policies]: ")
    assert problem in found


def test_a_cluster_queue_with_a_wrong_list_has_a_problem() -> None:
    made = make_cluster_queue()
    made["metadata"]["annotations"] = {"kqueue.dev/joint-policies": "[{name: nothing}]"}
    assert "there is no policy nothing" in model.queue_spec(read(wire.ClusterQueue, made))[2]
