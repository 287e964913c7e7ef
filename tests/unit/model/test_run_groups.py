"""Which workloads are alike enough to learn from each other."""

from __future__ import annotations

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.core.future.learned import RunKeys
from kqueue.model.run_groups import name_stem, run_keys
from tests.unit.state.wire_objects import JSON, asking, make_workload


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train", "train"),
        ("train-x7k2p", "train"),
        ("backup-28391020", "backup-#"),
        ("train-v2-001", "train-v#-#"),
        ("run-3f2a9c0de1", "run-#"),
        ("train-model", "train-model"),
        ("deadbeef", "deadbeef"),
        ("train-deadbeef", "train-deadbeef"),
        ("", ""),
        ("9" * 253, "#"),
        ("a-" * 126, "a-" * 126),
    ],
)
def test_stems(name: str, stem: str) -> None:
    assert name_stem(name) == stem


def of(owner: str = "train-1", *, kind: str = "Job", queue: str = "main", pods: int = 4, cpu: str = "1") -> RunKeys:
    return run_keys(made(owner, kind=kind, queue=queue, pods=pods, cpu=cpu))


def made(owner: str, *, kind: str, queue: str, pods: int, cpu: str, namespace: str = "ns") -> wire.Workload:
    reference = {"apiVersion": "batch/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
    metadata: JSON = {"namespace": namespace, "ownerReferences": [reference]}
    pod_set = {"name": "main", "count": pods, "template": {"spec": asking(cpu=cpu)}}
    return make_workload(metadata=metadata, pod_sets=[pod_set], queueName=queue)


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        pytest.param(of("train-2"), [True, True, True], id="next-run"),
        pytest.param(of(cpu="1000m"), [True, True, True], id="same-amount"),
        pytest.param(of("eval-1"), [False, True, True], id="other-owner"),
        pytest.param(of(kind="JobSet"), [False, True, True], id="other-kind"),
        pytest.param(of(pods=8), [False, False, True], id="other-count"),
        pytest.param(of(cpu="2"), [False, False, True], id="other-requests"),
        pytest.param(of(queue="other"), [False, False, False], id="other-queue"),
    ],
)
def test_groups_of_like_workloads(other: RunKeys, shared: list[bool]) -> None:
    own = of()
    assert [a == b for a, b in zip(own.keys, other.keys, strict=True)] == shared
    assert own.namespace == "ns"


def test_no_name_makes_groups_of_another_workload() -> None:
    """Parts are hashed apart, so a line break in one of them is no second part."""
    assert of("a", queue="b").keys[0] != of("b\na", queue="").keys[0]


def test_a_group_of_pods_is_known_by_its_name() -> None:
    """Its pods own it, and none of them controls it."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name} for name in ("a", "b")]
    one, two = (
        run_keys(make_workload(metadata={"name": name, "ownerReferences": owners})) for name in ("gang-1", "gang-2")
    )
    assert one == two


@pytest.mark.parametrize("amount", ["x", "-1", "9" * 100])
def test_amounts_that_cannot_be_read_are_a_shape_too(amount: str) -> None:
    assert len(of(cpu=amount).keys[0]) == 16


def test_keys_have_a_bounded_length() -> None:
    keys = run_keys(made("o" * 100_000, kind="Job", queue="q" * 100_000, pods=1, cpu="1"))
    assert [len(key) for key in keys.keys] == [16, 16, 16]
