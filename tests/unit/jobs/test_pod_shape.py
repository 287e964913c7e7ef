"""The role hash is the compatible system's, byte for byte; what costs more is found by its sum."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.quantity import parse_exactly
from kqueue.jobs.pod_shape import canonical_quantity, exceeds, role_hash, shape_bytes
from tests.unit.jobs.pods import NODE_TOLERATIONS

BARE: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "priority": 0, "tolerations": NODE_TOLERATIONS}


def with_requests(**amounts: str) -> dict[str, Any]:
    return {**BARE, "containers": [{"name": "c", "image": "i", "resources": {"requests": amounts}}]}


@pytest.mark.parametrize(("spec", "expected"), [(BARE, "bf90803c"), (with_requests(cpu="1"), "4b0469f7")])
@pytest.mark.proves("Pod group", "webhook defaults")
def test_the_worked_values(spec: dict[str, Any], expected: str) -> None:
    """The two values that others have written down."""
    assert role_hash(spec) == expected


def test_the_bytes_of_a_bare_pod() -> None:
    """The text that is hashed, key by key."""
    one, two = (
        f'{{"key":"node.kubernetes.io/{key}","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}'
        for key in ("not-ready", "unreachable")
    )
    assert shape_bytes(BARE).decode() == (
        '{"spec":{"affinity":null,"containers":[{"ports":null,"resources":{"requests":null}}],"initContainers":null,'
        '"nodeSelector":null,"overhead":null,"priority":0,"resourceClaims":null,"runtimeClassName":null,'
        f'"tolerations":[{one},{two}],"topologySpreadConstraints":null}}}}'
    )


def test_fields_stand_in_the_order_of_the_api_and_empty_ones_are_left_out() -> None:
    """A pod with all that counts; pointers to nothing are kept, as the compatible system's language does."""
    spec = {
        "containers": [
            {
                "ports": [{"protocol": "TCP", "containerPort": 80, "name": "a<b", "hostPort": 0}],
                "resources": {"requests": {"memory": "1024Mi", "cpu": "500m"}, "limits": {"cpu": "1"}},
            }
        ],
        "nodeSelector": {"b": "2", "a": "1"},
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "host", "labelSelector": {"matchLabels": {"z": "1", "a": "2"}}}
                ]
            },
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"preference": {"matchExpressions": [{"operator": "In", "values": ["x"], "key": "k"}]}, "weight": 1}
                ]
            },
        },
        "tolerations": [{"operator": "Exists", "key": "", "tolerationSeconds": 0}],
        "resources": {"requests": {"cpu": "2000m"}},
        "priority": 5,
    }
    assert shape_bytes(spec).decode() == (
        '{"spec":{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":'
        '{"matchExpressions":[{"key":"k","operator":"In","values":["x"]}]}}]},"podAntiAffinity":'
        '{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"a":"2","z":"1"}},'
        '"topologyKey":"host"}]}},"containers":[{"ports":[{"name":"a\\u003cb","containerPort":80,"protocol":"TCP"}],'
        '"resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}],"initContainers":null,"nodeSelector":{"a":"1","b":"2"},'
        '"overhead":null,"priority":5,"resourceClaims":null,"resources":{"requests":{"cpu":"2"}},"runtimeClassName":null,'
        '"tolerations":[{"operator":"Exists","tolerationSeconds":0}],"topologySpreadConstraints":null}}'
    )


@pytest.mark.parametrize(
    "change",
    [
        {"restartPolicy": "Never"},
        {"containers": [{"name": "d", "image": "other", "command": ["x"], "env": [{"name": "A", "value": "1"}]}]},
        {"containers": [{"name": "c", "resources": {"limits": {"cpu": "3"}}}]},
        {"schedulingGates": [{"name": "g"}]},
    ],
)
def test_what_does_not_matter(change: dict[str, Any]) -> None:
    """Image, command, environment, limits and gates."""
    assert role_hash({**BARE, **change}) == role_hash(BARE)


@pytest.mark.parametrize(
    "change",
    [
        {"priority": 1},
        {"nodeSelector": {"a": "b"}},
        {"runtimeClassName": "r"},
        {"overhead": {"cpu": "1"}},
        {"resourceClaims": [{"name": "gpu"}]},
        {"initContainers": [{"name": "i"}]},
        {"tolerations": []},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]},
    ],
)
def test_what_matters(change: dict[str, Any]) -> None:
    """Whatever decides where a pod may run, and what it costs."""
    assert role_hash({**BARE, **change}) != role_hash(BARE)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1000m", "1"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1500Mi", "1500Mi"), ("0.5Gi", "512Mi"), ("1023Ki", "1023Ki"),
        ("1000", "1k"), ("1e3", "1e3"), ("100e3", "100e3"), (2, "2"), ("0", "0"), ("0.0000000001", "1n"), ("-5", "-5"),
        ("512", "512"), ("1.5Ki", "1536"), ("nonsense", "nonsense"),
    ],
)  # fmt: skip
def test_quantities_are_written_as_kubernetes_writes_them(written: object, expected: str) -> None:
    """The largest suffix without a fraction, in the family that was written."""
    assert canonical_quantity(written) == expected


@given(st.integers(0, 10**12), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi", "e2"]))
def test_a_canonical_quantity_is_the_same_amount_and_stays(number: int, suffix: str) -> None:
    """Writing it anew changes neither the amount nor, a second time, the text."""
    written = canonical_quantity(f"{number}{suffix}")
    assert parse_exactly(written) == parse_exactly(f"{number}{suffix}")
    assert canonical_quantity(written) == written


@pytest.mark.parametrize(
    ("pod", "more"),
    [
        (with_requests(cpu="1"), []),
        (with_requests(cpu="1000m"), []),
        (with_requests(cpu="500m"), []),
        (with_requests(cpu="1001m"), ["cpu"]),
        (with_requests(cpu="1", memory="1"), ["memory"]),
        ({**with_requests(cpu="1"), "initContainers": [{"resources": {"requests": {"cpu": "2"}}}]}, ["cpu"]),
        ({**with_requests(cpu="1"), "overhead": {"cpu": "1m"}}, ["cpu"]),
        ({**with_requests(cpu="1"), "resources": {"requests": {"cpu": "3"}}}, ["cpu"]),
        ({**BARE, "containers": [{"resources": {"limits": {"cpu": "2"}}}]}, ["cpu"]),
        ({**BARE, "containers": [*with_requests(cpu="1")["containers"]] * 2}, ["cpu"]),
    ],
)
def test_who_asks_for_more_than_a_template(pod: dict[str, Any], more: list[str]) -> None:
    """All parts of a pod are summed as quota sums them."""
    assert exceeds(pod, with_requests(cpu="1")) == more
