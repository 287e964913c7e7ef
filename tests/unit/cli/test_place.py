"""`kqueue place`: worked examples, exit codes, files and streams, many cases at once, order of what has no order."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.cli import app
from tests.unit.cli.place_documents import HOST, JSON, ask, make_document, make_host, make_pods, problems, statuses

PREFIX = "example.com"
EXAMPLES = Path(__file__).parents[3] / "examples" / "place"


def host(name: str, rack: str, *, cpu: str = "8", pods: str = "110", pool: str | None = "tas", **changes: Any) -> JSON:
    labels = {f"{PREFIX}/block": "b1", f"{PREFIX}/rack": rack, HOST: name}
    if pool is not None:
        labels[f"{PREFIX}/pool"] = pool
    return {"name": f"node-{name}", "labels": labels, "allocatable": {"cpu": cpu, "pods": pods}, **changes}


GANG_AND_LOGS: JSON = {
    "name": "ring-and-logs",
    "topology": {"levels": [f"{PREFIX}/block", f"{PREFIX}/rack", HOST]},
    "flavor": {"name": "tas", "nodeLabels": {f"{PREFIX}/pool": "tas"}},
    "nodes": [
        host("a1", "r1"),
        host("a2", "r1"),
        host("c1", "r2"),
        host("c2", "r2", taints=[{"key": f"{PREFIX}/maintenance", "effect": "NoSchedule"}]),
        host("c3", "r2", cpu="4", pods="5"),
        host("d1", "r2", ready=False),
        host("z1", "r9", cpu="64", pool="other"),
    ],
    "usage": {
        "pods": [
            {"name": "daemon", "node": "node-a1", "requests": {"cpu": "500m"}},
            {"name": "done", "node": "node-a2", "phase": "Succeeded", "requests": {"cpu": "4"}},
        ],
        "tas": [{"workload": "team-a/older", "values": ["a2"], "requests": {"cpu": "2"}, "count": 1}],
    },
    "podSets": [
        make_pods(1, "leader", cpu="2", groupName="ring", required=f"{PREFIX}/rack"),
        make_pods(7, "workers", cpu="1", groupName="ring", required=f"{PREFIX}/rack"),
        make_pods(20, "logs", cpu="500m", unconstrained=True),
        make_pods(3, "big", cpu="6", required=f"{PREFIX}/rack"),
        make_pods(1, "tail", cpu="100m"),
    ],
}


def domains(**counts: int) -> JSON:
    return {"levels": [HOST], "domains": [{"values": [name], "count": count} for name, count in counts.items()]}


GANG_AND_LOGS_ANSWER: JSON = {
    "name": "ring-and-logs",
    "placed": False,
    "tree": {"leaves": 5, "ignoredNodes": {"notReady": 1, "flavorLabels": 1}},
    "podSets": [
        {"name": "leader", "status": "Placed", "assignment": domains(c1=1)},
        {"name": "workers", "status": "Placed", "assignment": domains(c1=6, c3=1)},
        {"name": "logs", "status": "Placed", "assignment": domains(a1=4, a2=12, c3=4)},
        {
            "name": "big",
            "status": "Failed",
            "failure": {
                "code": "NoFit",
                "topology": "default",
                "level": f"{PREFIX}/rack",
                "unit": "pod",
                "fit": 0,
                "total": 3,
                "totalNodes": 5,
                "excluded": {"taints": {f"{PREFIX}/maintenance:NoSchedule": 1}, "resources": {"cpu": 4}},
            },
        },
        {"name": "tail", "status": "NotEvaluated"},
    ],
}

REPAIR: JSON = {
    "name": "replace-h2",
    "topology": {"levels": [f"{PREFIX}/block", f"{PREFIX}/rack", HOST]},
    "nodes": [
        host("h1", "r1", cpu="2", pods="10", pool=None),
        host("h2", "r1", cpu="2", pods="10", pool=None, ready=False),
        host("h3", "r1", cpu="3", pods="10", pool=None),
        host("h4", "r2", cpu="2", pods="10", pool=None),
        host("h5", "r2", cpu="2", pods="10", pool=None),
        host("h6", "r2", cpu="8", pods="10", pool=None),
    ],
    "usage": {"tas": [{"values": [name], "requests": {"cpu": "1"}, "count": 2} for name in ("h1", "h2", "h4", "h5")]},
    "workload": {"unhealthyNodes": ["h2"]},
    "podSets": [
        make_pods(
            8,
            cpu="1",
            required=f"{PREFIX}/block",
            slices=[(f"{PREFIX}/rack", 4), (HOST, 2)],
            assignment=domains(h1=2, h2=2, h4=2, h5=2),
        )
    ],
    "output": {"encoding": "v1beta2", "paths": True},
}


def on(name: str, rack: str) -> JSON:
    return {"values": [name], "count": 2, "path": ["b1", rack, name]}


REPAIR_ANSWER: JSON = {
    "name": "replace-h2",
    "placed": True,
    "tree": {"leaves": 5, "ignoredNodes": {"notReady": 1}},
    "podSets": [
        {
            "name": "main",
            "status": "Placed",
            "assignment": {
                "levels": [HOST],
                "domains": [on("h1", "r1"), on("h3", "r1"), on("h4", "r2"), on("h5", "r2")],
            },
            "topologyAssignment": {
                "levels": [HOST],
                "slices": [
                    {
                        "domainCount": 4,
                        "valuesPerLevel": [{"individual": {"prefix": "h", "roots": ["1", "3", "4", "5"]}}],
                        "podCounts": {"universal": 2},
                    }
                ],
            },
            "kept": False,
            "replacement": {"node": "h2", "domains": [on("h3", "r1")]},
        }
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the input is written."""
    return tmp_path / "input.json"


@pytest.mark.parametrize(
    ("document", "answer", "code"),
    [
        pytest.param(GANG_AND_LOGS, GANG_AND_LOGS_ANSWER, 1, id="a gang, a spread set, one that does not fit"),
        pytest.param(REPAIR, REPAIR_ANSWER, 0, id="a failed host of a gang with two slice layers"),
    ],
)
def test_worked_examples_come_out_byte_for_byte(
    document: JSON, answer: JSON, code: int, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys, their order and the indentation are part of the format."""
    file.write_text(json.dumps(document))
    assert app.run(["place", "--input", str(file)]) == code
    assert capsys.readouterr().out == json.dumps(answer, indent=2) + "\n"


def test_a_slice_is_not_repaired_outside_of_its_rack() -> None:
    """The only host of the rack with room is taken away: the large one in the next rack does not help."""
    without = {**REPAIR, "nodes": [node for node in REPAIR["nodes"] if node["name"] != "node-h3"]}
    answer = ask(without)
    assert answer.code == 1
    assert answer.document["podSets"] == [
        {
            "name": "main",
            "status": "Failed",
            "failure": {
                "code": "NoFit",
                "topology": "default",
                "level": f"{PREFIX}/block",
                "unit": "slice",
                "fit": 0,
                "total": 1,
                "totalNodes": 4,
                "excluded": {"topologyDomain": 3, "resources": {"cpu": 1}},
            },
        }
    ]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_example_files_say_what_they_give(path: Path) -> None:
    """Each example holds the answer that it expects; the size of a search may change."""
    document = json.loads(path.read_bytes())
    answer = ask(document).document
    for size in ("steps", "classes", "arcs"):
        answer.get("joint", {}).pop(size, None)
    assert answer == document["x-answer"]


def test_there_are_example_files() -> None:
    """The table above is not empty by accident."""
    assert len(list(EXAMPLES.glob("*.json"))) >= 2


def test_stdin_and_stdout_are_the_dash(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--input -` reads, and without --output the answer goes to standard output; --compact is one line."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(make_document()).encode())))
    assert app.run(["place", "--input", "-", "--compact"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert ": " not in out
    assert json.loads(out)["placed"] is True


def test_the_answer_goes_into_a_file(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --output nothing is printed; what is not ASCII is written as UTF-8."""
    file.write_text(json.dumps(make_document(name="Größe")), encoding="utf-8")
    target = tmp_path / "answer.json"
    assert app.run(["place", "--input", str(file), "--output", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert '"name": "Größe"' in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["--input", "nowhere.json"],
            "nowhere.json: no such file or directory; give --input the path of a JSON file, or - for stdin",
            id="no such input",
        ),
        pytest.param(
            ["--input", "FILE", "--output", "nowhere/answer.json"],
            "nowhere/answer.json: no such file or directory; give --output the path of a file that can be written",
            id="no such folder for the output",
        ),
    ],
)
def test_files_that_cannot_be_used_are_told(
    arguments: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, exit code 2."""
    file.write_text(json.dumps(make_document()))
    assert app.run(["place", *(str(file) if each == "FILE" else each for each in arguments)]) == 2
    assert capsys.readouterr().err == f"kqueue: {said}\n"


def test_help_shows_a_minimal_input_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever copies it from the help page gets a placement."""
    assert app.run(["place", "--help"]) == 0
    page = capsys.readouterr().out
    document = json.loads(page[page.index("{") : page.index("\n\n  Keys:")])
    assert ask(document).document["podSets"][0]["assignment"]["domains"] == [
        {"values": ["n1"], "count": 2},
        {"values": ["n2"], "count": 1},
    ]
    assert "Exit codes: 0 " in page


def test_the_command_reads_neither_clock_nor_hash_seed(file: Path) -> None:
    """Two processes with different hash seeds and environments give the same bytes."""
    file.write_text(json.dumps({**GANG_AND_LOGS, "output": {"remaining": True, "quality": True, "paths": True}}))
    command = [sys.executable, "-m", "kqueue", "place", "--input", str(file)]
    outputs = {
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, check=False, timeout=60).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().startswith(b'{\n  "name": "ring-and-logs"')


# --- cases -----------------------------------------------------------------------------------------------------------


def test_many_cases_are_answered_in_their_order() -> None:
    """A pod set that is not placed is no failure of the command there, an invalid case is; the others still run."""
    fits, full = make_document(name="fits"), make_document(name="full", pods=[make_pods(99)])
    bad = make_document(name="bad", pods=[make_pods(-1)])
    answer = ask({"cases": [fits, full]})
    assert answer.code == 0
    assert answer.document == {"results": [ask(fits).document, ask(full).document]}
    answer = ask({"cases": [fits, bad, full], "x-remark": "kept for later"})
    assert answer.code == 2
    assert answer.document == {"results": [ask(fits).document, ask(bad).document, ask(full).document]}
    assert problems(ask(bad)).keys() == {"/podSets/0/count"}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        pytest.param({"cases": {}}, "/cases", id="cases are a list"),
        pytest.param({"cases": [], "name": "all"}, "/name", id="nothing stands beside cases"),
    ],
)
def test_a_wrong_frame_of_cases_is_one_error(document: JSON, path: str) -> None:
    """What is wrong outside of the cases belongs to none of them."""
    answer = ask(document)
    assert answer.code == 2
    assert problems(answer).keys() == {path}


def test_no_cases_give_no_results() -> None:
    """An empty list is valid."""
    assert (ask({"cases": []}).code, ask({"cases": []}).document) == (0, {"results": []})


# --- order -----------------------------------------------------------------------------------------------------------


def _shuffled(value: Any, draw: st.DrawFn) -> Any:
    """The same object with its keys in another order, at every depth."""
    if isinstance(value, dict):
        return {key: _shuffled(value[key], draw) for key in draw(st.permutations(sorted(value)))}
    return [_shuffled(item, draw) for item in value] if isinstance(value, list) else value


@st.composite
def same_input(draw: st.DrawFn) -> JSON:
    """The first worked example with more usage, in another order of nodes, usage and keys."""
    more = {"values": ["c1"], "requests": {"cpu": "250m", "memory": "1Gi"}, "count": 2}
    usage = {**GANG_AND_LOGS["usage"], "otherFlavors": [more, {**more, "values": ["a1"]}]}
    document = {**GANG_AND_LOGS, "output": {"remaining": True, "quality": True, "paths": True}}
    document["nodes"] = draw(st.permutations([*GANG_AND_LOGS["nodes"], make_host("b1/r1/no-level")]))
    document["usage"] = {kind: draw(st.permutations(entries)) for kind, entries in usage.items()}
    shuffled: JSON = _shuffled(document, draw)
    return shuffled


@settings(max_examples=30, deadline=None)
@given(same_input(), same_input())
def test_order_of_nodes_usage_and_keys_changes_nothing(first: JSON, second: JSON) -> None:
    """Equal inputs give equal bytes."""
    assert ask(first).text(compact=False) == ask(second).text(compact=False)


def test_order_of_pod_sets_decides() -> None:
    """Whoever comes first takes what there is."""
    pods = [make_pods(16, "first", required="rack"), make_pods(17, "second")]
    assert statuses(ask(make_document(pods=pods))) == {"first": "Placed", "second": "Failed"}
    assert statuses(ask(make_document(pods=pods[::-1]))) == {"first": "Failed", "second": "Placed"}
