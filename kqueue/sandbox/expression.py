"""The subset of CEL that match conditions of admission webhooks and selectors of devices need.

The subset: `&&`, `||`, `!`, parentheses, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `has(...)`, text, integers, true,
false, null, lists of these; paths such as `object.metadata.labels['a/b']` or `request.userInfo.username`, from the
roots `object`, `oldObject` and `request`, or `device`; `path.startsWith('a')`, `.endsWith`, `.contains`.  Any other
expression is refused with an error when the webhook is registered; the real server runs all of CEL.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

Scope = dict[str, Any]
Node = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<number>-?\d+)|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<sign>&&|\|\||==|!=|<=|>=|[<>!().,\[\]]))"""
)
_ROOTS = frozenset(("object", "oldObject", "request"))
_METHODS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LITERALS = {"true": True, "false": False, "null": None}
_DEEPEST = 32


class ExpressionError(ValueError):
    """The expression is outside of the subset, or cannot be evaluated on this object."""


def compiled(text: str, *, roots: frozenset[str] = _ROOTS) -> Callable[[Scope], bool]:
    """Return a function from the values of `roots` to true or false.

    Raises:
        ExpressionError: the text is outside of the subset.  The returned function raises it for a missing field, and
            for a result that is neither true nor false.
    """
    parser = _Parser(text, roots)
    node = parser.alternatives(0)
    if parser.position < len(parser.tokens):
        raise parser.complaint()

    def run(scope: Scope) -> bool:
        outcome = node(scope)
        if not isinstance(outcome, bool):
            raise ExpressionError(f"{text!r} gave {outcome!r}, which is neither true nor false")
        return outcome

    return run


class _Parser:
    """Recursive descent; one method per level of precedence."""

    def __init__(self, text: str, roots: frozenset[str]) -> None:
        self.text, self._roots = text, roots
        self.tokens: list[tuple[str, str]] = []
        self.position = 0
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            match = _TOKEN.match(stripped, at)
            if match is None:
                raise ExpressionError(f"{text!r}: {stripped[at : at + 10]!r} is not understood by the sandbox")
            assert match.lastgroup is not None
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()

    def complaint(self) -> ExpressionError:
        rest = self.tokens[self.position][1] if self.position < len(self.tokens) else "the end"
        return ExpressionError(f"{self.text!r}: {rest!r} is not understood here by the sandbox")

    def take(self, *signs: str) -> str:
        """Take the next token if it is one of `signs`; return "" otherwise."""
        if self.position < len(self.tokens):
            kind, token = self.tokens[self.position]
            if kind != "text" and token in signs:
                self.position += 1
                return token
        return ""

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise self.complaint()

    def word(self) -> str:
        if self.position < len(self.tokens) and self.tokens[self.position][0] == "word":
            self.position += 1
            return self.tokens[self.position - 1][1]
        raise self.complaint()

    def alternatives(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise ExpressionError(f"{self.text!r} is nested too deeply")
        parts = [self.conjunction(depth)]
        while self.take("||"):
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else lambda scope: _joined(parts, scope, stop=True)

    def conjunction(self, depth: int) -> Node:
        parts = [self.comparison(depth)]
        while self.take("&&"):
            parts.append(self.comparison(depth))
        return parts[0] if len(parts) == 1 else lambda scope: _joined(parts, scope, stop=False)

    def comparison(self, depth: int) -> Node:
        left = self.negation(depth)
        sign = self.take("==", "!=", *_ORDER, "in")
        if not sign:
            return left
        right = self.negation(depth)
        match sign:
            case "==":
                return lambda scope: left(scope) == right(scope)
            case "!=":
                return lambda scope: left(scope) != right(scope)
            case "in":
                return lambda scope: _member(left(scope), right(scope))
            case _:
                return lambda scope: _ORDER[sign](*_ordered(left(scope), right(scope)))

    def negation(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise ExpressionError(f"{self.text!r} is nested too deeply")
        if self.take("!"):
            inner = self.negation(depth + 1)
            return lambda scope: not _truth(inner(scope))
        return self.operand(depth)

    def operand(self, depth: int) -> Node:
        if self.take("("):
            inner = self.alternatives(depth + 1)
            self.need(")")
            return inner
        if self.take("["):
            return self.listing(depth)
        if self.position >= len(self.tokens):
            raise self.complaint()
        kind, token = self.tokens[self.position]
        if kind in ("text", "number") or token in _LITERALS:
            self.position += 1
            value = _literal(kind, token)
            return lambda _: value
        if token == "has":  # noqa: S105 -- a word of the language
            self.position += 1
            self.need("(")
            found = self.path(maybe=True)
            self.need(")")
            return found
        return self.path(maybe=False)

    def listing(self, depth: int) -> Node:
        items: list[Node] = []
        while not self.take("]"):
            if items:
                self.need(",")
            items.append(self.alternatives(depth + 1))
        return lambda scope: [item(scope) for item in items]

    def path(self, *, maybe: bool) -> Node:
        root = self.word()
        if root not in self._roots:
            self.position -= 1
            raise self.complaint()
        keys: list[str] = []
        method = None
        while True:
            if self.take("."):
                keys.append(self.word())
                if self.take("("):
                    method = _METHODS.get(keys.pop())
                    break
            elif self.take("["):
                kind, token = self.tokens[self.position] if self.position < len(self.tokens) else ("", "")
                if kind != "text":
                    raise self.complaint()
                self.position += 1
                keys.append(_literal(kind, token))
                self.need("]")
            else:
                return _reader(self.text, root, keys, maybe)
        if method is None or maybe:
            raise self.complaint()
        argument = self.alternatives(0)
        self.need(")")
        subject, called = _reader(self.text, root, keys, False), method
        return lambda scope: called(_string(subject(scope)), _string(argument(scope)))


def _reader(text: str, root: str, keys: list[str], maybe: bool) -> Node:
    def read(scope: Scope) -> Any:
        value = scope[root]
        for position, key in enumerate(keys):
            if not isinstance(value, dict) or key not in value:
                if maybe and position == len(keys) - 1:
                    return False
                raise ExpressionError(f"{text!r}: no such key: {key}")
            value = value[key]
        return True if maybe else value

    return read


def _joined(parts: list[Node], scope: Scope, *, stop: bool) -> bool:
    """Evaluate `||` or `&&` of CEL: one decisive part gives the result, even if other parts cannot be evaluated."""
    problem: ExpressionError | None = None
    for part in parts:
        try:
            if _truth(part(scope)) is stop:
                return stop
        except ExpressionError as error:
            problem = error
    if problem is not None:
        raise problem
    return not stop


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"{value!r} is neither true nor false")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ExpressionError(f"{value!r} is not text")
    return value


def _ordered(left: Any, right: Any) -> tuple[Any, Any]:
    if type(left) is not type(right) or not isinstance(left, int | str) or isinstance(left, bool):
        raise ExpressionError(f"{left!r} and {right!r} have no order")
    return left, right


def _member(item: Any, collection: Any) -> bool:
    if not isinstance(collection, dict | list):
        raise ExpressionError(f"{collection!r} is neither a list nor a map")
    return item in collection


def _literal(kind: str, token: str) -> Any:
    if kind == "text":
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    return int(token) if kind == "number" else _LITERALS[token]
