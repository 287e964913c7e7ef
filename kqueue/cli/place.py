"""`kqueue place`: runs the placement algorithm on a cluster in a file, without any API server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kqueue.errors import ConfigError

_SourceOption = Annotated[str, typer.Option("--input", "-i", metavar="FILE", help="The file to read; - is stdin.")]
_TargetOption = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Where the answer goes; - is stdout.")
]
_CompactOption = Annotated[bool, typer.Option("--compact", help="Write JSON without line breaks.")]
_ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Print for people what fits where and the steps of the search; JSON only where --output names a file.",
    ),
]
_StrictOption = Annotated[
    bool, typer.Option("--strict", help="Treat remarks as errors: exit code 2, and the answer lists them all.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""

    app.command("place")(place)


def place(
    source: _SourceOption,
    target: _TargetOption = "-",
    compact: _CompactOption = False,
    explain: _ExplainOption = False,
    strict: _StrictOption = False,
) -> None:
    """Compute where pods would go in a cluster that a JSON file describes.  No cluster is needed.

    \b
    A minimal input, two hosts in one rack and three pods that must share a rack:
      {"topology": {"levels": ["rack", "kubernetes.io/hostname"]},
       "nodes": [
         {"name": "n1", "labels": {"rack": "r1", "kubernetes.io/hostname": "n1"},
          "allocatable": {"cpu": "8", "pods": 110}},
         {"name": "n2", "labels": {"rack": "r1", "kubernetes.io/hostname": "n2"},
          "allocatable": {"cpu": "4", "pods": 110}}],
       "podSets": [{"name": "main", "count": 3, "requests": {"cpu": "3"},
                    "topologyRequest": {"required": "rack"}}]}

    \b
    Keys: name, topology, flavor, nodes, usage, algorithm, workload, podSets, output; keys that start with x- are
    your own notes.  {"cases": [...]} takes many inputs at once and gives {"results": [...]}.
    To place several workloads together, write workloads in place of podSets; further keys are then queues, running
    and joint:
      "workloads": [{"name": "w1", "podSets": [...]}, {"name": "w2", "podSets": [...], "priority": 1}]
    Quantities are written as in Kubernetes; results are integers, cpu in milli.
    Equal inputs give equal outputs, byte for byte; the order of nodes, usage and keys does not matter.

    \b
    Input that is valid but hardly intended is reported on standard error, a line each with its JSON pointer: amounts
    above 2^63-1, pod sets of 0 pods, requests that no cluster could fulfil, pods that fill no slice, usage of unknown
    nodes, nodes without the label of a level, quota that limits nothing.  The answer stays the same;
    with --strict it is an input error.

    \b
    Exit codes: 0 everything is placed (cases: all are valid); 1 something is not placed; 2 the input is invalid,
    and the output lists every problem with its JSON pointer.
    """
    from kqueue.manager.extensions import load_profiles
    from kqueue.placing.fields import printable
    from kqueue.placing.run import run
    from kqueue.scheduling.joint.extensions import load_policies

    load_profiles()
    load_policies()
    answer = run(_read(source), explain=explain, strict=strict)
    if explain:
        typer.echo(printable(answer.explanation, keep="\n"), nl=False)
    if not explain or target != "-":
        _write(target, answer.text(compact=compact))
    for line in answer.remark_lines():
        typer.echo(line, err=True)
    if answer.code:
        raise typer.Exit(answer.code)


def _read(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as e:
        raise ConfigError(f"{source}: {_reason(e)}; give --input the path of a JSON file, or - for stdin") from e


def _write(target: str, text: str) -> None:
    if target == "-":
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
        return
    try:
        Path(target).write_bytes(text.encode())
    except OSError as e:
        raise ConfigError(f"{target}: {_reason(e)}; give --output the path of a file that can be written") from e


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
