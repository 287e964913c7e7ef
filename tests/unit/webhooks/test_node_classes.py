"""Bad input about node classes: path, sentence, and the value that was found."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.switches import JobFeatures
from tests.unit.webhooks.test_routes import at_once
from webhooks.quota import flavor_problems
from webhooks.review import Request
from webhooks.routes import routes

CARD, PREFERRED, SCARCE = "kqueue.dev/card-type", "kqueue.dev/card-type-preferred", "kqueue.dev/scarce"
GROUP = "kqueue.dev/private-group"
LABELS = {"card": "a100"}
RULE = "must be one card type or several joined by commas"
LABEL_VALUE = "must be a label value that is not empty: at most 63 letters, digits, '-', '_' and '.'"


def flavor(annotations: dict[str, str], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "f", "annotations": annotations}, "spec": {"nodeLabels": labels or {}}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(flavor({}), [], id="no-class"),
        pytest.param(flavor({CARD: "a100"}), [], id="an-open-class-needs-no-labels"),
        pytest.param(flavor({CARD: "a100", SCARCE: "true", GROUP: "lab"}, LABELS), [], id="sound"),
        pytest.param(flavor({CARD: "a100", SCARCE: "false"}), [], id="not-scarce"),
        pytest.param(
            flavor({CARD: "a100", SCARCE: "true"}),
            ["spec.nodeLabels: must say which nodes are of the class"],
            id="scarce-without-labels",
        ),
        pytest.param(
            flavor({GROUP: "lab"}),
            ["spec.nodeLabels: must say which nodes are of the class"],
            id="private-without-labels",
        ),
        pytest.param(
            flavor({SCARCE: "true"}, LABELS),
            [f"metadata.annotations[{SCARCE}]: needs {CARD} beside it"],
            id="scarce-without-type",
        ),
        pytest.param(
            flavor({CARD: "a100", SCARCE: "yes"}, LABELS),
            [f"metadata.annotations[{SCARCE}]: must be true or false (found 'yes')"],
            id="scarce-is-a-switch",
        ),
        pytest.param(
            flavor({CARD: "a100,v100", GROUP: ""}, LABELS),
            [
                f"metadata.annotations[{CARD}]: {LABEL_VALUE} (found 'a100,v100')",
                f"metadata.annotations[{GROUP}]: {LABEL_VALUE} (found '')",
            ],
            id="one-type-per-flavor",
        ),
    ],
)
def test_flavors_7_3(obj: dict[str, Any], expected: list[str]) -> None:
    assert [str(problem) for problem in flavor_problems(obj)] == expected


def job(own: dict[str, str], template: dict[str, str]) -> dict[str, Any]:
    return {
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": own},
        "spec": {"parallelism": 1, "template": {"metadata": {"annotations": template}, "spec": {"containers": []}}},
    }


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (job({}, {CARD: "a100, v100", PREFERRED: "v100"}), []),
        (job({CARD: ""}, {}), [f"metadata.annotations[{CARD}]: {RULE} (found '')"]),
        (job({}, {CARD: "a b"}), [f"spec.template.metadata.annotations[{CARD}]: {RULE} (found 'a b')"]),
        (job({}, {PREFERRED: "a,,b"}), [f"spec.template.metadata.annotations[{PREFERRED}]: {RULE} (found 'a,,b')"]),
    ],
    ids=["sound", "empty", "a-space", "a-hole"],
)
def test_jobs_7_3(obj: dict[str, Any], expected: list[str]) -> None:
    handler = routes(["batch/job"], JobFeatures())["/validate-batch-v1-job"]
    answer = at_once(handler, Request(uid="u", operation="CREATE", obj=obj, old=None))

    assert [str(problem) for problem in answer.problems] == expected


def test_a_pod_is_checked_too_7_3() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": {CARD: "a b"}},
        "spec": {"containers": [{"name": "c"}]},
    }
    handler = routes(["pod"], JobFeatures())["/validate--v1-pod"]
    answer = at_once(handler, Request(uid="u", operation="CREATE", obj=pod, old=None))

    assert [problem.path for problem in answer.problems] == [f"metadata.annotations[{CARD}]"]


def test_an_old_mistake_blocks_no_update() -> None:
    handler = routes(["batch/job"], JobFeatures())["/validate-batch-v1-job"]
    old, new = job({CARD: ""}, {}), job({CARD: "", "x": "y"}, {})
    answer = at_once(handler, Request(uid="u", operation="UPDATE", obj=new, old=old))

    assert list(answer.problems) == []
