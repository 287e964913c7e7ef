"""Warnings of labels and annotations under our prefixes that have no meaning."""

from __future__ import annotations

import pytest

from kqueue.jobs.unknown_keys import KNOWN, unknown_keys
from tests.unit.jobs.builders import JSON, make_job, make_template

POD = "spec.template.metadata.annotations"


@pytest.mark.parametrize(
    ("key", "told"),
    [
        pytest.param("kueue.x-k8s.io/podset-prefered-topology", "kueue.x-k8s.io/podset-preferred-topology", id="a-letter"),
        pytest.param("kueue.x-k8s.io/Queue-Name", "kueue.x-k8s.io/queue-name", id="case"),
        pytest.param("kqueue.dev/placement-profil", "kqueue.dev/placement-profile", id="of-kqueue"),
        pytest.param("kueue.x-k8s.io/zzz", None, id="nothing-is-near"),
        pytest.param(f"kueue.x-k8s.io/{'podset-' * 200}", None, id="too-long-to-be-compared"),
    ],
)  # fmt: skip
def test_a_key_without_meaning_is_told_with_the_nearest_one(key: str, told: str | None) -> None:
    job = make_job(template=make_template(annotations={key: "x"}))

    (warning,) = unknown_keys(job, None)

    assert warning.startswith(f"{POD}[{key}]: no such key is known, so it has no effect")
    assert warning.endswith(f"; did you mean {told}?" if told else "no effect")


def test_keys_that_are_known_and_keys_of_others_are_not_told() -> None:
    own = dict.fromkeys(KNOWN, "x")
    job = make_job(labels=own, annotations=own, template=make_template(labels=own, annotations={"example.com/a": "b"}))

    assert unknown_keys(job, None) == []


def test_what_the_object_had_before_is_not_told_again() -> None:
    """An update by another client does not repeat it; a further key is told."""
    old = make_job(annotations={"kueue.x-k8s.io/zzz": "1"})
    new = make_job(annotations={"kueue.x-k8s.io/zzz": "2", "kueue.x-k8s.io/yyy": "1"})

    assert unknown_keys(old, old) == []
    assert [warning.partition(":")[0] for warning in unknown_keys(new, old)] == [
        "metadata.annotations[kueue.x-k8s.io/yyy]"
    ]


def test_templates_in_lists_are_looked_at_and_five_keys_are_told() -> None:
    keys = {f"kueue.x-k8s.io/zz{n}": "x" for n in range(9)}
    jobs = [{"template": {"spec": {"template": make_template(annotations=keys)}}}]
    jobset: JSON = {"metadata": {"name": "a"}, "spec": {"replicatedJobs": jobs}}

    found = unknown_keys(jobset, None)

    assert len(found) == 5
    assert found[0].startswith("spec.replicatedJobs[0].template.spec.template.metadata.annotations[")


@pytest.mark.parametrize(
    "metadata", [None, [], {"labels": None}, {"labels": ["kueue.x-k8s.io/a"]}, {"labels": {3: "x"}}]
)
def test_metadata_of_another_form_is_passed_over(metadata: object) -> None:
    assert unknown_keys({"metadata": metadata, "spec": {"a": [None, 1, [metadata]]}}, None) == []
