"""`kqueue what-if`: flags become changes, and the answer becomes lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.cli.what_if_page import what_if_page
from kqueue.operations import questions
from tests.unit.cli.test_simulate import KUBECONFIG

ANSWER: dict[str, Any] = {
    "asOf": {"time": "2026-01-01T00:00:00Z", "leading": True},
    "finished": False,
    "message": "not finished: the planner's time sufficed for 1 of 2",
    "counts": {"starts": 3, "evicted": 3, "startsNoLonger": 0, "neverStarts": 1},
    "starts": [
        {"namespace": "a", "name": "b", "clusterQueue": "q", "start": "Now"},
        {"hidden": True, "clusterQueue": "q", "start": "AfterPreemption", "preempts": 2},
    ],
    "evicted": [
        {"namespace": "a", "name": "c", "clusterQueue": "q", "reason": "Drained", "again": "Now"},
        {"namespace": "a", "name": "d", "clusterQueue": "q", "reason": "Drained", "again": "Later", "message": "short"},
        {
            "hidden": True,
            "reason": "Preempted",
            "by": {"namespace": "a", "name": "b", "clusterQueue": "q", "start": "Now"},
        },
    ],
    "startsNoLonger": [],
    "neverStarts": [{"namespace": "a", "name": "e", "clusterQueue": "q", "start": "Never", "message": "too large"}],
    "queues": [
        {
            "clusterQueue": "q",
            "shareWithout": 3,
            "shareWith": 5,
            "resources": [
                {
                    "flavor": "gpu",
                    "resource": "cpu",
                    "nominal": "8",
                    "nominalAfter": "16",
                    "used": "8",
                    "usedWithout": "8",
                    "usedWith": "12",
                }
            ],
        },
        {"clusterQueue": "same", "shareWithout": 0, "shareWith": 0, "resources": []},
    ],
}


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The specs of the questions that were posted."""
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    found: list[Any] = []

    async def post(_client: Any, plural: str, _kind: str, question: dict[str, Any]) -> Any:
        assert plural == "whatifs"
        found.append(question["spec"])
        return ANSWER

    monkeypatch.setattr(questions, "post", post)
    return found


def test_flags_are_one_question(posted: list[Any]) -> None:
    """Names of queues and resources may have dots."""
    words = [
        *(
            "--set",
            "clusterqueue/a.team.quota.h100.nvidia.com/gpu=64",
            "--set",
            "clusterqueue/b.lendingLimit.x.cpu=500m",
        ),
        *("--drain", "b0/r1", "--drain", "b2", "--add-nodes", "h1=8@b0/r1", "--priority", "urgent=-5"),
    ]
    assert run(["what-if", *words, "-o", "json"]) == 0
    assert posted == [
        {
            "quotas": [
                {"clusterQueue": "a.team", "column": "h100.nvidia.com/gpu", "field": "nominalQuota", "value": "64"},
                {"clusterQueue": "b", "column": "x.cpu", "field": "lendingLimit", "value": "500m"},
            ],
            "drains": ["b0/r1", "b2"],
            "addNodes": [{"like": "h1", "count": 8, "domain": "b0/r1"}],
            "priorities": [{"name": "urgent", "value": -5}],
        }
    ]


def test_manifests_are_part_of_the_question(posted: list[Any], tmp_path: Path) -> None:
    """All documents of all files, with other changes and with the question for start times."""
    (tmp_path / "queues.yaml").write_text("kind: ClusterQueue\n---\nkind: List\nitems: [{kind: Cohort}]\n")
    (tmp_path / "flavor.json").write_text('{"kind": "ResourceFlavor"}')
    files = ["--file", str(tmp_path / "queues.yaml"), "-f", str(tmp_path / "flavor.json")]
    assert run(["what-if", *files, "--drain", "b0", "--when"]) == 0
    objects = [{"kind": "ClusterQueue"}, {"kind": "Cohort"}, {"kind": "ResourceFlavor"}]
    assert posted == [{"drains": ["b0"], "objects": objects, "when": True}]


def test_a_file_that_cannot_be_read_is_named(posted: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["what-if", "--file", "missing.yaml"]) == 2
    assert "missing.yaml cannot be read" in capsys.readouterr().err
    assert not posted


def test_the_page_compares_start_times() -> None:
    at = {"known": True, "p50": "2026-01-01T01:00:00Z", "p90": "2026-01-01T01:00:00Z"}
    never = {"known": False, "message": "it does not start within 168 h"}
    times = {
        "known": True,
        "complete": True,
        "counts": {"earlier": 0, "later": 0, "again": 0, "neverAgain": 2},
        "items": [{"namespace": "a", "name": "b", "clusterQueue": "q", "without": at, "with": never}],
    }
    lines = [line.text for line in what_if_page({**ANSWER, "startTimes": times})]
    assert {
        "0 would start earlier, 0 later, 0 again after they had to leave, 2 would never start again",
        "a/b (ClusterQueue q): no start (it does not start within 168 h) instead of at 2026-01-01T01:00:00Z",
    } <= set(lines)
    unknown = what_if_page({**ANSWER, "startTimes": {"known": False, "message": "ask again"}})
    assert "not known: ask again" in [line.text for line in unknown]


@pytest.mark.parametrize(
    ("words", "form"),
    [
        pytest.param(["--set", "clusterqueue/a=5"], "clusterqueue/NAME.quota.FLAVOR.RESOURCE=AMOUNT", id="set"),
        pytest.param(["--set", "localqueue/a.quota.x.cpu=5"], "clusterqueue/NAME", id="set-of-another-kind"),
        pytest.param(["--add-nodes", "h1=many@b0"], "NODE=NUMBER@DOMAIN", id="add-nodes"),
        pytest.param(["--priority", "urgent"], "CLASS=NUMBER", id="priority"),
        pytest.param(["--end", "job-a"], "--end job-a: must have the form NAMESPACE/NAME", id="end-without-namespace"),
        pytest.param(["--end", "job/ns/job-a"], "NAMESPACE/NAME of a Workload", id="end-with-kind"),
        pytest.param([], "give at least one of --set, --drain, --end, --add-nodes, --priority", id="no-change"),
        pytest.param(["--when"], "no change is given", id="start-times-of-no-change"),
    ],
)
def test_a_wrong_flag_is_refused_with_its_form(
    posted: list[Any], capsys: pytest.CaptureFixture[str], words: list[str], form: str
) -> None:
    assert run(["what-if", *words]) == 2
    assert form in capsys.readouterr().err
    assert not posted


@pytest.mark.parametrize("words", [[], ["--end", "x"]], ids=["no-change", "end"])
def test_the_question_is_judged_before_the_cluster_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A user without a kubeconfig first reads about the flag."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert run(["what-if", *words]) == 2
    said = capsys.readouterr().err
    assert "--end" in said
    assert "kubeconfig" not in said.lower()


def test_the_page_lists_who_starts_and_who_is_evicted() -> None:
    lines = [line.text for line in what_if_page(ANSWER)]
    assert lines[0] == "3 would start, 3 would be evicted, 0 would not start any more, 1 could never start"
    assert ANSWER["message"] in lines
    assert {
        "a/b (ClusterQueue q)",
        "a workload of another namespace (ClusterQueue q): after preemption of 2",
        "and 1 more",
        "a/c (ClusterQueue q): its nodes go; it would start again at once",
        "a/d (ClusterQueue q): its nodes go; it would wait; short",
        "a workload of another namespace: preempted for a/b (ClusterQueue q)",
        "a/e (ClusterQueue q): too large",
        "share 5 instead of 3",
        "cpu of gpu: quota 16 instead of 8, uses 12 instead of 8",
    } <= set(lines)
    assert "same" not in lines
