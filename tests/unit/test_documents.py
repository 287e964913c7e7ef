"""What users wrote is judged before objects are made of it: depth, values, aliases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kqueue.documents import DocumentLimits, JsonScan, TooMuchError, check_json, first_document, load_yaml

SMALL = DocumentLimits(depth=5, values=20)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b'{"a":[{"b":[{"c":1}]}]}', None, id="as-deep-as-it-may-be"),
        pytest.param(b'{"a":[{"b":[{"c":[1]}]}]}', "more than 5 levels", id="one-level-deeper"),
        pytest.param(b"[" + b"{}," * 18 + b"{}]", "more than 20 values", id="empty-objects"),
        pytest.param(json.dumps("[{," * 100).encode(), None, id="brackets-in-a-text"),
        pytest.param(json.dumps('\\"[{,' * 100).encode(), None, id="escaped-quotes-in-a-text"),
        pytest.param(json.dumps(["\\", [[[[[0]]]]]]).encode(), "more than 5", id="a-text-that-ends-in-a-backslash"),
        pytest.param(b"[" * 30_000, "more than", id="brackets-that-never-close"),
        pytest.param(b"]" * 30 + b"[[[[[[", None, id="no-json-at-all-is-the-parser's"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_json_is_counted_outside_of_its_texts(text: bytes, problem: str | None, size: int) -> None:
    """However it is cut into pieces."""
    scan = JsonScan(SMALL)

    def fed() -> None:
        for start in range(0, len(text), size):
            scan.feed(text[start : start + size])

    if problem is None:
        fed()
    else:
        with pytest.raises(TooMuchError, match=problem):
            fed()


def test_a_whole_text_is_judged_as_its_pieces_are() -> None:
    """The short cut for small texts lets nothing through."""
    check_json(b"[1]")
    with pytest.raises(TooMuchError, match="200 levels deep; flatten it"):
        check_json(b'{"a":' * 201 + b"1" + b"}" * 201)
    with pytest.raises(TooMuchError, match="250000 values"):
        check_json(b"[" + b"{}," * 2_700_000 + b"{}]")


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(b)}: &{chr(b)} [{', '.join(f'*{chr(b - 1)}' for _ in range(9))}]\n" for b in range(ord("b"), ord("k"))
)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        pytest.param("[" * 30_000, 1, "nested more than 200 levels", id="lists-in-brackets"),
        pytest.param("a: 1\nb: " + '{"a":' * 30_000, 2, "nested more than 200 levels", id="mappings-in-braces"),
        pytest.param("- " * 30_000, 1, "nested more than 200 levels", id="lists-in-dashes"),
        pytest.param("? " * 30_000, 1, "nested more than 200 levels", id="mappings-as-keys"),
        pytest.param("a:\n- x\n" + "- x\n" * 260_000, None, "more than 250000 values", id="values"),
        pytest.param(LAUGHS, None, "more than 250000 values", id="aliases-of-aliases"),
        pytest.param("a: &a\n  b: *a", 2, "is inside of the value that it names", id="a-value-that-holds-itself"),
    ],
)
def test_yaml_is_refused_before_objects_are_made(text: str, line: int | None, problem: str) -> None:
    """The error names the line, the limit and the remedy."""
    with pytest.raises(yaml.MarkedYAMLError, match=problem) as raised:
        load_yaml(text)

    mark = raised.value.problem_mark
    assert mark is not None
    assert line is None or mark.line + 1 == line


def test_yaml_is_read_as_before() -> None:
    """Aliases and merges count as what they stand for; empty documents are left out."""
    assert load_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\n---\n---\n[]\n") == [
        {"a": {"x": 1}, "b": {"x": 1, "y": 2}},
        [],
    ]
    assert first_document("") is None
    with pytest.raises(yaml.YAMLError, match="found 2"):
        first_document("a\n---\nb\n")
    with pytest.raises(yaml.YAMLError, match="has aliases"):
        load_yaml("[&a 1, *a]", aliases=False)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        pytest.param(["config", "check"], "a.yaml", id="config-check"),
        pytest.param(["sandbox", "--topology"], "a.yaml", id="sandbox-topology"),
        pytest.param(["import", "-n", "team", "--queuemapping-file"], "a.yaml", id="import"),
    ],
)
def test_a_command_survives_thirty_thousand_brackets(tmp_path: Path, command: list[str], name: str) -> None:
    """In a process of its own, because a parser that overflows its stack ends it: exit code 2, one sentence."""
    path = tmp_path / name
    path.write_text("[" * 30_000)

    done = subprocess.run(
        [sys.executable, "-m", "kqueue", *command, str(path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, "nested" in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
