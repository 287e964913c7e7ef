"""The reference lists every name of `kqueue.api.names`, so each of them has to stand for something that kqueue does."""

from __future__ import annotations

import ast
from pathlib import Path

from kqueue.api import names

ROOT = Path(__file__).resolve().parents[3]
NAMES = ROOT / "kqueue" / "api" / "names.py"


def sources() -> list[str]:
    """The product and its sandbox without the file of names."""
    files = [path for room in ("kqueue", "webhooks") for path in (ROOT / room).rglob("*.py")]
    return [path.read_text() for path in files if path != NAMES]


def test_every_name_of_the_reference_is_used() -> None:
    """By its constant, or by its value where an enumeration or a schema writes it out."""
    trees = [ast.parse(source) for source in [*sources(), NAMES.read_text()]]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    literals = {
        node.value
        for tree in trees[:-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    constants = {name: value for name, value in vars(names).items() if name.isupper()}
    composed = {name for name in constants if name.startswith("REASON_DEACTIVATED_DUE_TO_")}
    idle = [n for n, value in constants.items() if n not in used | composed and value not in literals]

    assert idle == []
