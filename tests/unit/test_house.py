"""Rules of the house that no library checks: cycles of imports, and how long files, functions and constructors are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("kqueue/**/*.py"), *ROOT.glob("webhooks/**/*.py")])
MOST_LINES = 600
MOST_FUNCTION_LINES = 60


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Also where the import is for types only."""
    graph = grimp.build_graph("kqueue", "webhooks", exclude_type_checking_imports=False, cache_dir=None)
    below: dict[str, set[str]] = {m: set(graph.find_modules_directly_imported_by(m)) for m in graph.modules}
    while leaves := [module for module, imported in below.items() if not imported & below.keys()]:
        for module in leaves:
            del below[module]
    cyclic = [m for m in below if m in _reached(m, below)]
    assert not cyclic, f"these modules import each other in a circle: {', '.join(sorted(cyclic))}"


def _reached(module: str, below: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = [module]
    while todo:
        new = (below[todo.pop()] & below.keys()) - found
        found |= new
        todo += new
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_too_long(source: Path) -> None:
    lines = source.read_text(encoding="utf-8").count("\n")
    assert lines <= MOST_LINES, f"{lines} lines; {MOST_LINES} are allowed: find the seam"


def functions() -> Iterator[tuple[str, int]]:
    """Functions and methods, nested ones too, and how many lines each has."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{source.relative_to(ROOT)}::{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_function_is_too_long() -> None:
    found = {where: lines for where, lines in functions() if lines > MOST_FUNCTION_LINES}
    assert not found, f"{MOST_FUNCTION_LINES} lines are allowed"


def constructors() -> Iterator[tuple[str, int]]:
    """Constructors written out, and how many parameters each has."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                        arguments = method.args
                        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                        yield f"{source.relative_to(ROOT)}::{node.name}", len(named) - 1


LONG = 5
"""Constructors of more than seven parameters that are left; only ever fewer."""


def test_no_more_constructors_get_long() -> None:
    found = {where: count for where, count in constructors() if count > 7}
    assert len(found) <= LONG, found
