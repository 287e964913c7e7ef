"""The reference lists every name of the modules `names`, so the product has to use each of them."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from kqueue.api import gang_names, move_names
from kqueue.api import names as api_names
from kqueue.kube import names as kube_names
from kqueue.sandbox import names as sandbox_names

ROOT = Path(__file__).resolve().parents[3]


def sources(names: Path) -> list[str]:
    """The product and its sandbox without the file of names."""
    files = [path for room in ("kqueue", "webhooks") for path in (ROOT / room).rglob("*.py")]
    return [path.read_text() for path in files if path != names]


@pytest.mark.parametrize(
    "module", [api_names, gang_names, move_names, kube_names, sandbox_names], ids=lambda module: module.__name__
)
def test_every_name_of_the_reference_is_used(module: ModuleType) -> None:
    """By its constant, or by its value where an enumeration or a schema writes it out."""
    path = ROOT.joinpath(*module.__name__.split(".")).with_suffix(".py")
    trees = [ast.parse(source) for source in [*sources(path), path.read_text()]]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    literals = {
        node.value
        for tree in trees[:-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    constants = {name: value for name, value in vars(module).items() if name.isupper()}
    composed = {name for name in constants if name.startswith("REASON_DEACTIVATED_DUE_TO_")}
    idle = [n for n, value in constants.items() if n not in used | composed and value not in literals]

    assert idle == []
