"""Rules of the house that no library checks: cycles of imports, lengths of files and constructors, who catches all errors."""

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
MOST_PARAMETERS = 7


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


def test_no_function_is_too_long() -> None:
    found = {
        f"{source.relative_to(ROOT)}::{name}": lines
        for source in SOURCES
        for name, node in functions(ast.parse(source.read_text(encoding="utf-8")))
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_FUNCTION_LINES
    }
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


def test_no_constructor_is_too_long() -> None:
    found = {where: count for where, count in constructors() if count > MOST_PARAMETERS}
    assert not found, f"{MOST_PARAMETERS} parameters are allowed: group those that belong together in a value"


HOT = "runs for every handler of every watch event, or for every workload: a boundary takes longer than the work itself"
TRANSLATES = "raises another error, which says what failed and what to do"
IN_THE_LOG = "runs for every log line, and a log cannot log its own errors"
CATCH_ALL = {
    "kqueue/controllers/intake.py::Intake.on_workload": "raises the error again after the workload is set aside",
    "kqueue/manager/extensions.py::load_profiles": TRANSLATES,
    "kqueue/observe/logs.py::_ConsoleLine.__call__": IN_THE_LOG,
    "kqueue/observe/logs.py::_as_text": IN_THE_LOG,
    "kqueue/observe/logs.py::_encoded": IN_THE_LOG,
    "kqueue/runtime/kubeconfig_library.py::identity_by_library": TRANSLATES,
    "kqueue/runtime/store.py::Store._call": HOT,
    "kqueue/runtime/store.py::Store._notify": HOT,
    "kqueue/runtime/store.py::_Index._values_then": HOT,
    "kqueue/runtime/store.py::_Index.change": "raises the error again after the object has left its lists",
    "kqueue/state/views.py::HoldingsByQueue.viewed": HOT,
    "kqueue/visibility/server.py::VisibilityServer._viewed": TRANSLATES,
    "kqueue/visibility/server.py::VisibilityServer._written": TRANSLATES,
}
"""Places that catch every `Exception` by themselves, and why; all others use `kqueue/isolation.py`."""


def functions(tree: ast.AST, where: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its name and those of the classes and functions around it; nested ones by themselves, too."""
    for node in ast.iter_child_nodes(tree):
        name = where
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{where}.{node.name}" if where else node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
        yield from functions(node, name)


def names_in(expression: ast.AST | None) -> set[str]:
    return set() if expression is None else {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def catches(node: ast.AST, error: str) -> bool:
    """Whether a node catches `error` (`BaseException`: also by naming nothing), by `except` or by `suppress`."""
    if isinstance(node, ast.ExceptHandler):
        return error in names_in(node.type) or (node.type is None and error == "BaseException")
    return (
        isinstance(node, ast.Call)
        and "suppress" in ast.dump(node.func)
        and any(error in names_in(a) for a in node.args)
    )


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What a function consists of, without the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own_nodes(node)


def test_errors_are_isolated_by_one_boundary() -> None:
    found = {
        f"{source.relative_to(ROOT)}::{name}"
        for source in SOURCES
        for tree in [ast.parse(source.read_text(encoding="utf-8"))]
        for name, function in [("(module)", tree), *functions(tree)]
        if any(catches(node, "Exception") for node in own_nodes(function))
    }
    assert found - CATCH_ALL.keys() == set(), "use `isolated(...)` of kqueue/isolation.py"
    assert CATCH_ALL.keys() - found == set(), "these catch it no more: take them off the list"


def test_what_ends_a_task_or_the_process_is_raised_again() -> None:
    """A handler of `BaseException` may clean up; its last statement raises."""
    swallowed = [
        f"{source.relative_to(ROOT)}: {ast.unparse(node)}"
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if catches(node, "BaseException")
        and not (isinstance(node, ast.ExceptHandler) and isinstance(node.body[-1], ast.Raise))
    ]
    assert not swallowed


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        pytest.param("try: f()\nexcept Exception: pass", True, id="by name"),
        pytest.param("try: f()\nexcept (KeyError, Exception) as e: pass", True, id="in a tuple"),
        pytest.param("with contextlib.suppress(Exception): f()", True, id="suppressed"),
        pytest.param("try: f()\nexcept ValueError: pass", False, id="another error"),
        pytest.param("def g():\n    try: f()\n    except Exception: pass", False, id="in a function of its own"),
    ],
)
def test_a_catch_of_every_exception_is_found(text: str, *, caught: bool) -> None:
    assert any(catches(node, "Exception") for node in own_nodes(ast.parse(text))) is caught


# the core's own form of a type of the API has the type's name
FORMS_OF_API_TYPES = {
    "kqueue/core/workload.py": {"Admission", "PodSet", "PodSetAssignment", "ResourceGroup"},
    "kqueue/core/topology/assignment.py": {"TopologyAssignment"},
    "kqueue/core/topology/request.py": {"PodSetRequest", "TopologyRequest"},
    "kqueue/kube/taints.py": {"Taint", "Toleration"},
}


def public_classes() -> dict[str, list[str]]:
    """The modules that define each public class; types of the API count once, in whatever form."""
    found: dict[str, list[str]] = {}
    for source in SOURCES:
        path = str(source.relative_to(ROOT))
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            of_api = path.startswith("kqueue/api/") or node.name in FORMS_OF_API_TYPES.get(path, ())
            modules = found.setdefault(node.name, [])
            module = "kqueue/api" if of_api else path
            if module not in modules:
                modules.append(module)
    return found


def test_a_public_class_name_means_one_thing() -> None:
    found = {name: modules for name, modules in public_classes().items() if len(modules) > 1}
    assert not found, "give each class a name of its own"


def test_forms_of_api_types_are_there() -> None:
    for path, names in FORMS_OF_API_TYPES.items():
        defined = {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.ClassDef)}
        assert names <= defined, path
