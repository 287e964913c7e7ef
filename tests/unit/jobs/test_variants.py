"""A job is started by its own Workload, not by the variants that carry its label."""

from __future__ import annotations

import pytest

from kqueue.jobs.variants import without_variants
from tests.unit.state.families import parent_json, variant_json


def owned_by(**owner: object) -> dict[str, object]:
    made = variant_json("spot")
    made["metadata"]["ownerReferences"][0].update(owner)
    return made


@pytest.mark.parametrize(
    ("workload", "is_kept"),
    [
        pytest.param(parent_json(), True, id="a job controls it"),
        pytest.param(variant_json("spot"), False, id="a Workload controls it"),
        pytest.param(owned_by(apiVersion="kueue.x-k8s.io/v1beta1"), False, id="in any version"),
        pytest.param(owned_by(apiVersion="example.com/v1"), True, id="a kind of the same name in another group"),
        pytest.param(owned_by(controller=False), True, id="a Workload owns it without control"),
        pytest.param({"metadata": {}}, True, id="nobody owns it"),
    ],
)
def test_variants_are_left_out(workload: dict[str, object], is_kept: bool) -> None:
    """By their controller, whatever their labels say."""
    assert without_variants([workload]) == ([workload] if is_kept else [])
