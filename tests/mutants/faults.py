"""Small faults in Python source: another comparison, sign, constant, connective, or a negation that is missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A piece of source and what stands in its place."""

    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, source: str) -> str:
        """The source with the fault; offsets are of characters."""
        return f"{source[: self.start]}({self.after}){source[self.end :]}"


def faults_in(source: str) -> list[Fault]:
    """All faults that can be put into a source, one for each place, in the order of the places.

    Annotations, docstrings, and what a class says of its fields are left alone: they decide nothing.
    """
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    found = []
    for node in _expressions(ast.parse(source)):
        after = _changed(node)
        if after is None or node.end_lineno is None or node.end_col_offset is None:
            continue
        start = starts[node.lineno - 1] + _characters(source, starts[node.lineno - 1], node.col_offset)
        end = starts[node.end_lineno - 1] + _characters(source, starts[node.end_lineno - 1], node.end_col_offset)
        found.append(Fault(node.lineno, start, end, " ".join(source[start:end].split()), ast.unparse(after)))
    return found


def _characters(source: str, start: int, offset: int) -> int:
    """A column of `ast`, which counts bytes, in characters."""
    return len(source[start : start + offset].encode()[:offset].decode(errors="ignore"))


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions inside functions that are evaluated when the functions run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                yield from _evaluated(statement)


def _evaluated(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr | ast.Raise | ast.Assert):
        return  # functions are walked by themselves; words of messages are no decisions
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _evaluated(node.value)
        return
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _evaluated(child)


def _changed(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators) if type(op) in _COMPARISONS:
            return ast.Compare(left, [_COMPARISONS[type(op)]()], comparators)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return ast.BinOp(left, _OPERATORS[type(op)](), right)
        case ast.BoolOp(op=ast.And(), values=values):
            return ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
    return None
