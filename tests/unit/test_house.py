"""Rules of the house that no library checks: cycles of imports, lengths, names, prose, and places that catch all errors."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
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


@cache
def parsed(source: Path) -> ast.Module:
    """The syntax of a file, which tests must not change."""
    return ast.parse(source.read_text(encoding="utf-8"))


def test_no_file_is_too_long() -> None:
    lines = {str(source.relative_to(ROOT)): source.read_text(encoding="utf-8").count("\n") for source in SOURCES}
    found = {name: number for name, number in lines.items() if number > MOST_LINES}
    assert not found, f"{MOST_LINES} lines are allowed: find the seam"


def test_no_function_is_too_long() -> None:
    found = {
        f"{source.relative_to(ROOT)}::{name}": lines
        for source in SOURCES
        for name, node in functions(parsed(source))
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_FUNCTION_LINES
    }
    assert not found, f"{MOST_FUNCTION_LINES} lines are allowed"


def constructors() -> Iterator[tuple[str, int]]:
    """Constructors written out, and how many parameters each has."""
    for source in SOURCES:
        for node in ast.walk(parsed(source)):
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
        if not isinstance(node, ast.expr):  # an expression has no functions with names in it
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
    todo = [function]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node
                todo.append(node)


def test_errors_are_isolated_by_one_boundary() -> None:
    found = {
        f"{source.relative_to(ROOT)}::{name}"
        for source in SOURCES
        for tree in [parsed(source)]
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
        for node in ast.walk(parsed(source))
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
    "kqueue/core/assignment.py": {"TopologyAssignment"},
    "kqueue/core/devices/values.py": {"Device", "DeviceClass", "DeviceRequest"},
    "kqueue/core/topology/request.py": {"PodSetRequest", "TopologyRequest"},
    "kqueue/kube/taints.py": {"Taint", "Toleration"},
}


def public_classes() -> dict[str, list[str]]:
    """The modules that define each public class; types of the API count once, in whatever form."""
    found: dict[str, list[str]] = {}
    for source in SOURCES:
        path = str(source.relative_to(ROOT))
        for node in parsed(source).body:
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


VALUES = {"property", "cached_property", "setter"}
"""Decorators that make a function a value; a noun phrase describes it."""
NO_VERB = re.compile(
    r"(a|all|an|any|at|by|each|every|false|for|from|he|how|if|in|it|its|no|nobody|none|nothing|of|on|one|only|she|so|some"
    r"|somebody|such|that|the|their|there|these|they|this|those|to|true|what|when|where|which|who|whoever|why|with|without)"
    r"[.,;:]?",
    re.IGNORECASE,
)
"""Articles, pronouns, prepositions and the like."""
BARE_PRONOUN = re.compile(r"(?:^|[.;:!?]\s+)(Nobody|Somebody|Those|What (?!if\b)|Who|Whoever|Whom)\b")


def first_words(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each function that is no property, and the first word of its docstring.

    The docstring of a constructor describes its parameters, so it may begin with a parameter's name.
    """
    for name, node in functions(tree):
        decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
        text = ast.get_docstring(node)
        if text and not decorators & VALUES and not (node.name == "__init__" and text.startswith("`")):
            yield name, text.split()[0]


def may_be_a_verb(word: str) -> bool:
    """Whether a word has the form of "Return" or "Whether", and is no article, pronoun or preposition."""
    return re.fullmatch(r"[A-Z][a-z]+[.,;:]?", word) is not None and NO_VERB.fullmatch(word) is None


def prose(text: str) -> Iterator[str]:
    """Yield docstrings, also those of attributes, and comments; comments on lines that follow each other are one."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield " ".join(block)
                block = []
            block.append(token.string.lstrip("# "))
            last = token.start[0]
    yield " ".join(block)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = [
        f"{source.relative_to(ROOT)}::{name}: {word}"
        for source in SOURCES
        for name, word in first_words(parsed(source))
        if not may_be_a_verb(word)
    ]
    assert not found, "begin with a verb (Return, Write, ...) or with Whether"


def test_no_sentence_begins_with_a_bare_pronoun() -> None:
    found = [
        f"{source.relative_to(ROOT)}: {text[match.start(1) : match.start(1) + 60]!r}"
        for source in SOURCES
        for text in prose(source.read_text(encoding="utf-8"))
        for match in BARE_PRONOUN.finditer(text)
    ]
    assert not found, "name the actor or the thing"


@pytest.mark.parametrize(
    ("docstring", "fine"),
    [
        pytest.param("Return the node.", True, id="verb"),
        pytest.param("Whether the node is ready.", True, id="predicate"),
        pytest.param("The node.", False, id="article"),
        pytest.param("Its node.", False, id="pronoun"),
        pytest.param("None, without a node.", False, id="none"),
        pytest.param("By name, the nodes.", False, id="preposition"),
        pytest.param("`name` or nothing.", False, id="code"),
        pytest.param("404 for a node.", False, id="number"),
    ],
)
def test_a_docstring_without_a_verb_is_found(docstring: str, *, fine: bool) -> None:
    tree = ast.parse(f'class A:\n    def f(self):\n        """{docstring}"""')
    assert [may_be_a_verb(word) for _, word in first_words(tree)] == [fine]


@pytest.mark.parametrize("decorator", ["property", "functools.cached_property", "name.setter"])
def test_a_noun_may_describe_a_property(decorator: str) -> None:
    tree = ast.parse(f'class A:\n    @{decorator}\n    def f(self):\n        """The node."""')
    assert list(first_words(tree)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param('def f():\n    """Read it.  Who waits is next."""', True, id="docstring"),
        pytest.param('a = 1\n"""Those that wait."""', True, id="attribute"),
        pytest.param("# the last one\n# goes. Those behind it stay", True, id="comment of two lines"),
        pytest.param("a = 1  # Nobody reads it", True, id="comment behind code"),
        pytest.param('"""Nodes: those with a name, and what they hold."""', False, id="no subject"),
        pytest.param('a = "Who waits is next."', False, id="no prose"),
        pytest.param('"""What the store keeps."""', True, id="what"),
        pytest.param('"""What if it waits."""', False, id="what if"),
    ],
)
def test_a_sentence_with_a_bare_pronoun_is_found(text: str, *, found: bool) -> None:
    assert any(BARE_PRONOUN.search(each) for each in prose(text)) is found
