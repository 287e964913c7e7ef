"""Reads the marks of tests from their source, without running a test, and where each test runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLANES = {"real": "R", "sandbox": "S", "simulation": "M", "unit": "u"}
"""Where a test runs, and the letter for it."""
_BOTH = ("real", "sandbox")
_FIXTURES = {"either_plane": _BOTH, "wanted_real_plane": _BOTH, "plane": ("real",), "real_plane": ("real",)}


class MarkError(Exception):
    """A mark has arguments that its page does not know; names the file and the line."""


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """One mark of one test."""

    arguments: tuple[object, ...]
    """The constants among the mark's arguments."""
    complete: bool
    """Whether all arguments are constants."""
    where: str
    """File and line of the mark, for errors."""
    test: str
    """File below tests, and function."""
    planes: tuple[str, ...]


def marked(mark: str, folder: Path = ROOT / "tests") -> Iterator[MarkedTest]:
    """Yield each mark of this name in the tests, in the order of files and lines.

    Marks of decorators, of parameters and of modules count.  Equal marks of one test are yielded once.
    """
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"{mark}(" in text:
            yield from _of_file(mark, path, folder, ast.parse(text))


def _of_file(mark: str, path: Path, folder: Path, tree: ast.Module) -> Iterator[MarkedTest]:
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    fixtures = {f.name: f for f in functions}
    tables = _tables(mark, tree)
    everywhere = tables.pop("pytestmark", [])
    for function in functions:
        if not function.name.startswith("test_"):
            continue
        calls = list(everywhere)
        for decorator in function.decorator_list:
            calls += _calls(mark, decorator)
            named = [n.id for n in ast.walk(decorator) if isinstance(n, ast.Name) and n.id in tables]
            calls += [call for name in named for call in tables[name]]
        planes = _planes(path.relative_to(folder), function, fixtures)
        name = f"{path.relative_to(folder)}::{function.name}"
        seen = set[tuple[object, ...]]()
        for call in calls:
            arguments = tuple(a.value for a in call.args if isinstance(a, ast.Constant))
            if arguments not in seen:
                seen.add(arguments)
                complete = len(arguments) == len(call.args)
                yield MarkedTest(arguments, complete, f"{path.name}:{call.lineno}", name, planes)


def _tables(mark: str, tree: ast.Module) -> dict[str, list[ast.Call]]:
    """Names that a module gives to values with marks in them, as lists of parameters."""
    found: dict[str, list[ast.Call]] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name) and value is not None and (calls := list(_calls(mark, value))):
                found[target.id] = calls
    return found


def _calls(mark: str, node: ast.AST) -> Iterator[ast.Call]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == mark:
            yield each


def _planes(
    path: Path,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    fixtures: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef],
) -> tuple[str, ...]:
    """Return where the test runs, by the fixtures of its file that are planes."""
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
