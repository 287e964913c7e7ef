"""Write the matrix of docs/integrations.md from the marks of the tests.  `--check` only compares.

A test that carries `@pytest.mark.proves(kind, feature)` proves that cell.  Tests are read, not run: the marks of
decorators, of parameters and of modules are found in their source.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kqueue.kinds import FRAMEWORKS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "integrations.md"
BEGIN = "<!-- the matrix: written by `make integrations` from the marks of the tests; do not edit -->"
END = "<!-- the end of the matrix -->"

_BUILT_IN = [row.kind for row in FRAMEWORKS.values() if row.built_in]
_AFTER_PODS = _BUILT_IN.index("Pod") + 1
KINDS = (*_BUILT_IN[:_AFTER_PODS], "Pod group", *_BUILT_IN[_AFTER_PODS:], "declared kind")
FEATURES = (
    "queueing", "start with topology", "ranks", "stop and restore", "eviction and requeue", "finished", "pods ready",
    "reclaimable pods", "partial admission", "priority class", "maximum execution time", "prebuilt workload",
    "managed by", "child jobs", "workload slices", "scale", "replacement pods", "fast admission", "excess pods",
    "webhook defaults", "webhook validation", "switched off", "uninstall",
)  # fmt: skip

WITHOUT: Mapping[str, tuple[str, ...]] = {
    "partial admission": ("Pod", "Pod group", "Deployment", "StatefulSet", "JobSet", "declared kind"),
    "replacement pods": ("Pod", "Deployment", "StatefulSet", "declared kind"),
    "fast admission": ("Job", "JobSet", "Pod", "Deployment", "StatefulSet", "declared kind"),
    "excess pods": ("Job", "JobSet", "Pod", "Deployment", "StatefulSet", "declared kind"),
    "managed by": ("Pod", "Pod group", "Deployment", "StatefulSet", "declared kind"),
    "child jobs": ("Pod", "Pod group", "Deployment", "StatefulSet"),
    "workload slices": ("JobSet", "Pod", "Pod group", "Deployment", "StatefulSet", "declared kind"),
    "reclaimable pods": ("Pod", "Deployment", "StatefulSet", "declared kind"),
    "ranks": ("Pod", "Deployment"),
    "prebuilt workload": ("Deployment", "StatefulSet"),
    "finished": ("Deployment", "StatefulSet"),
    "maximum execution time": ("Deployment", "StatefulSet"),
    "scale": ("Pod", "Pod group", "Job", "declared kind"),
}
"""Feature to the kinds that cannot have it, by their nature or because Kueue does not have it either."""

PLAYED = ("JobSet", "declared kind")
"""Kinds whose controller is played by a double on the real control plane: it is no part of Kubernetes."""
PLANES = {"real": "R", "sandbox": "S", "simulation": "M", "unit": "u"}
_PLAYED_WORDS = "real API server with a double"
_BOTH = ("real", "sandbox")
_FIXTURES = {"either_plane": _BOTH, "wanted_real_plane": _BOTH, "plane": ("real",), "real_plane": ("real",)}


class MarkError(Exception):
    """A mark names a kind or a feature that the matrix does not have, or says them otherwise than by two texts."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One test that proves one cell."""

    kind: str
    feature: str
    test: str
    """File below tests, and function."""
    planes: tuple[str, ...]


def proofs(folder: Path = ROOT / "tests") -> list[Proof]:
    """Every proof in the tests, in the order of files and lines.

    Raises:
        MarkError: a mark is wrong; names the file and the line.
    """
    return [proof for path in sorted(folder.rglob("test_*.py")) for proof in _of_file(path, folder)]


def _of_file(path: Path, folder: Path) -> Iterator[Proof]:
    text = path.read_text(encoding="utf-8")
    if "proves(" not in text:
        return
    tree = ast.parse(text)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    fixtures = {f.name: f for f in functions}
    tables = _tables(tree)
    everywhere = tables.pop("pytestmark", [])
    for function in functions:
        if not function.name.startswith("test_"):
            continue
        marks = list(everywhere)
        for decorator in function.decorator_list:
            marks += _marks(decorator)
            named = [n.id for n in ast.walk(decorator) if isinstance(n, ast.Name) and n.id in tables]
            marks += [mark for name in named for mark in tables[name]]
        planes = _planes(path.relative_to(folder), function, fixtures)
        name = f"{path.relative_to(folder)}::{function.name}"
        for mark in dict.fromkeys(_cell(mark, path) for mark in marks):
            yield Proof(*mark, name, planes)


def _tables(tree: ast.Module) -> dict[str, list[ast.Call]]:
    """Names that a module gives to values with marks in them, as lists of parameters."""
    found: dict[str, list[ast.Call]] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name) and value is not None and (marks := list(_marks(value))):
                found[target.id] = marks
    return found


def _marks(node: ast.AST) -> Iterator[ast.Call]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "proves":
            yield each


def _cell(mark: ast.Call, path: Path) -> tuple[str, str]:
    values = [argument.value for argument in mark.args if isinstance(argument, ast.Constant)]
    if len(values) != 2 or len(mark.args) != 2 or values[0] not in KINDS or values[1] not in FEATURES:
        raise MarkError(
            f"{path.name}:{mark.lineno}: proves{tuple(values)} is no cell of the matrix; kinds are {', '.join(KINDS)}; "
            f"features are {', '.join(FEATURES)}"
        )
    return str(values[0]), str(values[1])


def _planes(
    path: Path,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    fixtures: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef],
) -> tuple[str, ...]:
    """Where the test runs: follows the fixtures of its file down to those that are planes."""
    if path.parts[0] == "sim":
        return ("simulation",)
    todo, seen = [a.arg for a in function.args.args], set[str]()
    while todo:
        name = todo.pop()
        if name in _FIXTURES:
            return _FIXTURES[name]
        if name in fixtures and name not in seen:
            seen.add(name)
            todo += [a.arg for a in fixtures[name].args.args]
    return ("sandbox",) if path.parts[0] == "integration" else ("unit",)


def matrix(found: Iterable[Proof]) -> str:
    """The generated part of the page: the table, and the tests of each cell."""
    cells: dict[tuple[str, str], list[Proof]] = defaultdict(list)
    for proof in found:
        cells[proof.feature, proof.kind].append(proof)
    lines = ["| |" + "".join(f" {kind} |" for kind in KINDS), "|---|" + "---|" * len(KINDS)]
    for feature in FEATURES:
        lines.append(f"| {feature} |" + "".join(f" {_shown(feature, kind, cells)} |" for kind in KINDS))
    lines += ["", "<details><summary>The tests behind each cell</summary>", ""]
    for kind in KINDS:
        lines += [f"**{kind}**", ""]
        for feature in FEATURES:
            for proof in cells[feature, kind]:
                planes = [_PLAYED_WORDS if p == "real" and kind in PLAYED else p for p in proof.planes]
                lines.append(f"- {feature}: `{proof.test}` ({' and '.join(planes)})")
        lines.append("")
    return "\n".join([*lines, "</details>"])


def _shown(feature: str, kind: str, cells: Mapping[tuple[str, str], list[Proof]]) -> str:
    planes = {plane for proof in cells.get((feature, kind), ()) for plane in proof.planes}
    letters = "".join(letter for plane, letter in PLANES.items() if plane in planes)
    if kind in PLAYED:
        letters = letters.replace("R", "r")
    return letters or ("n/a" if kind in WITHOUT.get(feature, ()) else "")


def page(text: str, generated: str) -> str:
    """The page with the generated part put between its two marks.

    Raises:
        MarkError: the page lacks them.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkError(f"{PAGE.name} lacks the line {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}"


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when the page differs")
    check = parser.parse_args().check
    found = proofs()
    text = PAGE.read_text(encoding="utf-8")
    wanted = page(text, matrix(found))
    if wanted == text:
        return
    if check:
        sys.exit("docs/integrations.md is not what the tests prove; run `make integrations`")
    PAGE.write_text(wanted, encoding="utf-8")
    print(f"docs/integrations.md: {len({(p.kind, p.feature) for p in found})} cells of {len(found)} proofs written")


if __name__ == "__main__":
    main()
