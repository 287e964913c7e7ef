"""`kqueue simulate`: files in, lines and an exit code out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.cli.simulate_page import simulate_page
from kqueue.errors import ApiError, InvalidError
from kqueue.operations import questions

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec: {template: {spec: {containers: []}}}
"""
KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
"""
THEN = {"clusterQueue": "team", "flavors": {"main": ["gpu"]}, "placement": [[{"level": "rack", "domains": 1}]]}
NOW = {
    "start": "Now",
    "copies": 2,
    "then": THEN,
    "borrows": [{"flavor": "gpu", "resource": "cpu", "amount": "3"}],
    "podSets": [
        {
            "name": "main",
            "count": 4,
            "flavors": {"cpu": "gpu"},
            "domains": [{"domain": ["b0", "r1"], "pods": 4}],
            "moreDomains": 2,
        }
    ],
}
LATER = {
    "start": "Later",
    "copies": 1,
    "message": "8 cpu of flavor gpu asked, 4 free",
    "startTime": {"p50": "12:00", "p90": "13:00"},
    "blockers": [{"kind": "Quota", "flavor": "gpu", "message": "short"}],
    "flavors": [{"podSets": ["main"], "flavor": "gpu", "fits": False}],
    "wouldStartIf": [{"if": "pod set main had 2 pods instead of 4", "then": {**THEN, "placement": []}}],
    "search": {"complete": True},
}


def answer(*runs: dict[str, Any], starts: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "summary": "3 workloads: 2 would start now, 1 would wait",
        "startsNow": starts,
        "asOf": {"time": "2026-01-01T00:00:00Z", "leading": True},
        "workloads": [
            {
                "object": "Job train",
                "copies": sum(run["copies"] for run in runs),
                "localQueue": "main",
                "clusterQueue": "team",
                "waitingAhead": 2,
                "results": list(runs),
            }
        ],
        **more,
    }


class Asked:
    """The questions that were posted, and their answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        kubeconfig = folder / "config"
        kubeconfig.write_text(KUBECONFIG)
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        self.posted: list[tuple[str, str, dict[str, Any]]] = []
        self.answer: dict[str, Any] | ApiError = answer(NOW)

        async def post(_client: Any, plural: str, _kind: str, question: dict[str, Any], *, namespace: str) -> Any:
            self.posted.append((plural, namespace, question["spec"]))
            if isinstance(self.answer, ApiError):
                raise self.answer
            return self.answer

        monkeypatch.setattr(questions, "post", post)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    return Asked(monkeypatch, tmp_path)


def simulate(*words: str) -> int:
    return run(["simulate", *words])


def file_of(folder: Path, text: str) -> str:
    path = folder / "manifests.yaml"
    path.write_text(text)
    return str(path)


def test_all_documents_of_a_file_are_one_question(asked: Asked, tmp_path: Path) -> None:
    """Items of a List, too; and their namespace is that of the question."""
    text = f"{JOB}---\n{{kind: List, items: [{{kind: Pod, metadata: {{name: a, namespace: team-a}}}}]}}\n"
    assert simulate("-f", file_of(tmp_path, text), "--copies", "3", "--at", "spare") == 0

    ((plural, namespace, spec),) = asked.posted
    assert (plural, namespace) == ("simulations", "team-a")
    assert [obj["kind"] for obj in spec["manifests"]] == ["Job", "Pod"]
    assert (spec["copies"], spec["queue"]) == (3, "spare")


def test_the_exit_code_says_whether_all_start(asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure is not a workload that waits."""
    path = file_of(tmp_path, JOB)
    assert simulate("-f", path) == 0
    asked.answer = answer(LATER, starts=False)
    assert simulate("-f", path, "-o", "json") == 1
    asked.answer = InvalidError("Job train is not valid: metadata.name: is no name", status=400)
    capsys.readouterr()
    assert simulate("-f", path) == 2
    assert "Job train is not valid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        pytest.param("", [], "must have one or several objects", id="empty"),
        pytest.param("- a\n", [], "must have one or several objects", id="no-object"),
        pytest.param("a: [", [], "is not YAML that can be read", id="no-yaml"),
        pytest.param(JOB.replace("train}", "t, namespace: a}"), ["-n", "b"], "--namespace is b", id="other-namespace"),
        pytest.param("{metadata: {namespace: a}}\n---\n{metadata: {namespace: b}}\n", [], "a, b", id="two-namespaces"),
    ],
)
def test_a_wrong_file_is_refused_with_the_remedy(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], says: str
) -> None:
    assert simulate("-f", file_of(tmp_path, text), *words) == 2
    assert says in capsys.readouterr().err
    assert not asked.posted


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("-f", "none.yaml") == 2
    assert "none.yaml cannot be read: No such file" in capsys.readouterr().err


def test_the_page_has_a_line_for_each_run_and_then_the_details() -> None:
    later = {**LATER, "placement": []}
    lines = [line.text for line in simulate_page(answer(NOW, later, starts=False, message="not finished: 3 of 4"))]
    assert "not finished: 3 of 4" in lines
    assert (
        "Job train (2 of 3 copies) starts now: ClusterQueue team, main on gpu, in 1 of rack, borrowing 3 cpu of gpu"
        in lines
    )
    assert any(line.endswith("asked, 4 free; start between 12:00 (p50) and 13:00 (p90)") for line in lines)
    assert {"b0/r1: 4", "and 2 more domains", "2 workloads of the ClusterQueue are tried before it"} <= set(lines)
    assert "1. pod set main had 2 pods instead of 4" in lines


def test_victims_are_listed_and_counted() -> None:
    preempts = {
        "start": "AfterPreemption",
        "copies": 1,
        "preempts": 3,
        "preempted": [
            {"hidden": True, "reason": "InCohortReclamation"},
            {"namespace": "a", "name": "b", "clusterQueue": "q", "priority": 1, "reason": "InClusterQueue"},
        ],
    }
    lines = [line.text for line in simulate_page(answer(preempts))]
    assert "Job train starts after preemption of 3 workloads" in lines
    assert lines[-5:-2] == [
        "a workload of another namespace (InCohortReclamation)",
        "a/b (ClusterQueue q, priority 1) (InClusterQueue)",
        "and 1 more",
    ]
