"""The reference lists every name of the modules `names`, so the product has to use each of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from kqueue.api import check_names, gang_names, kind_names, move_names, run_time_names, variant_names
from kqueue.api import names as api_names
from kqueue.kube import names as kube_names
from kqueue.sandbox import names as sandbox_names

ROOT = Path(__file__).resolve().parents[3]


@cache
def used() -> tuple[frozenset[str], dict[Path, frozenset[str]]]:
    """The names that the product and its sandbox read, and the texts in each of their files."""
    names, texts = set[str](), dict[Path, frozenset[str]]()
    for path in (path for room in ("kqueue", "webhooks") for path in (ROOT / room).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
        texts[path] = frozenset(value for value in constants if isinstance(value, str))
    return frozenset(names), texts


@pytest.mark.parametrize(
    "module",
    [
        api_names,
        kind_names,
        check_names,
        gang_names,
        move_names,
        run_time_names,
        variant_names,
        kube_names,
        sandbox_names,
    ],
    ids=lambda module: module.__name__,
)
def test_every_name_of_the_reference_is_used(module: ModuleType) -> None:
    """By its constant, or by its value where an enumeration or a schema writes it out."""
    path = ROOT.joinpath(*module.__name__.split(".")).with_suffix(".py")
    read, texts = used()
    literals = frozenset[str]().union(*(some for where, some in texts.items() if where != path))
    constants = {name: value for name, value in vars(module).items() if name.isupper()}
    composed = {name for name in constants if name.startswith("REASON_DEACTIVATED_DUE_TO_")}
    idle = [n for n, value in constants.items() if n not in read | composed and value not in literals]

    assert idle == []
