"""The part of CEL with which selectors of devices are written.

The part: `&&`, `||`, `!`, `?:`, comparisons, `in`, `+ - * / %` of whole numbers, text, whole numbers, `true`, `false`,
`null`, lists; the paths `device.driver`, `device.attributes[domain].name`, `device.capacity[domain].name` and
`device.allowMultipleAllocations`; `has`, `size` and `cel.bind`; the methods `startsWith`, `endsWith`, `contains`,
`lowerAscii`, `upperAscii` and `size`; and the functions and methods of quantities and versions (`selectors.py`).

Tenants write these expressions.  So their evaluation takes time and memory in proportion to their length: the part has
no loops, no regular expressions and no joining of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]
Method = Callable[..., Any]

LONGEST_TEXT = 10 * 1024
"""As the API server allows."""
_DEEPEST = 24
_INT_MAX, _INT_MIN = 2**63 - 1, -(2**63)
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<number>\d{1,19})u?(?![\w.])"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<sign>&&|\|\||==|!=|<=|>=|[<>!().,\[\]?:+\-*/%]))"""
)
_LITERALS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(("in", "true", "false", "null"))
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}
_DEVICE = frozenset(("driver", "attributes", "capacity", "allowMultipleAllocations"))


class SelectorError(ValueError):
    """The expression is outside of the part of CEL that kqueue knows, or has no value for this device."""


class Program:
    """A compiled expression."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def holds(self, device: Mapping[str, Any]) -> bool:
        """Return whether the expression is true for a device.

        Raises SelectorError if it has no value, or one that is neither true nor false.
        """
        try:
            return _truth(self._node({"device": device}))
        except RecursionError as e:
            raise SelectorError("it has too many steps in a row") from e


def compiled(text: str, functions: Mapping[str, Method], methods: Mapping[str, Method]) -> Program:
    """Return the expression in a form that can be evaluated.

    `functions` and `methods` are those that the values of devices need, beside the ones that all texts and numbers
    have.  Raises SelectorError for an expression outside of the part of CEL that kqueue knows.
    """
    if len(text) > LONGEST_TEXT:
        raise SelectorError(f"it has {len(text)} characters: write at most {LONGEST_TEXT}")
    parser = _Parser(text, {**_FUNCTIONS, **functions}, {**_METHODS, **methods})
    node = parser.choice(0)
    parser.end()
    return Program(node)


class _Parser:
    """Recursive descent; one method per level of precedence."""

    def __init__(self, text: str, functions: Mapping[str, Method], methods: Mapping[str, Method]) -> None:
        self._functions, self._methods = functions, methods
        self._names: list[str] = []
        """Names that `cel.bind` has bound."""
        self._tokens: list[tuple[str, str]] = []
        self._position = at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            match = _TOKEN.match(stripped, at)
            if match is None:
                raise SelectorError(f"{stripped[at : at + 12].strip()!r} is not understood")
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind]))
            at = match.end()

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _complaint(self) -> SelectorError:
        rest = self._tokens[self._position][1] if self._position < len(self._tokens) else "the end"
        return SelectorError(f"{rest!r} is not understood here")

    def end(self) -> None:
        """Raise SelectorError unless all tokens were taken."""
        if self._position < len(self._tokens):
            raise self._complaint()

    def _take(self, *signs: str) -> str:
        """Take the next token if it is one of `signs`; return "" otherwise."""
        if self._position < len(self._tokens):
            kind, token = self._tokens[self._position]
            if kind != "text" and token in signs:
                self._position += 1
                return token
        return ""

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._complaint()

    def _word(self) -> str:
        if self._position < len(self._tokens) and self._tokens[self._position][0] == "word":
            self._position += 1
            return self._tokens[self._position - 1][1]
        raise self._complaint()

    # -- precedence ------------------------------------------------------------------------------------------------

    def choice(self, depth: int) -> Node:
        """Parse `a ? b : c` and everything that binds more."""
        _check(depth)
        test = self._alternatives(depth)
        if not self._take("?"):
            return test
        yes = self._alternatives(depth + 1)
        self._need(":")
        no = self.choice(depth + 1)
        return lambda scope: yes(scope) if _truth(test(scope)) else no(scope)

    def _alternatives(self, depth: int) -> Node:
        parts = [self._conjunction(depth)]
        while self._take("||"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else lambda scope: _joined(parts, scope, stop=True)

    def _conjunction(self, depth: int) -> Node:
        parts = [self._relation(depth)]
        while self._take("&&"):
            parts.append(self._relation(depth))
        return parts[0] if len(parts) == 1 else lambda scope: _joined(parts, scope, stop=False)

    def _relation(self, depth: int) -> Node:
        left = self._sum(depth)
        sign = self._take("==", "!=", "<", "<=", ">", ">=", "in")
        return left if not sign else _applied(_RELATIONS[sign], left, self._sum(depth))

    def _sum(self, depth: int) -> Node:
        left = self._product(depth)
        while sign := self._take("+", "-"):
            left = _applied(_ARITHMETIC[sign], left, self._product(depth))
        return left

    def _product(self, depth: int) -> Node:
        left = self._negation(depth)
        while sign := self._take("*", "/", "%"):
            left = _applied(_ARITHMETIC[sign], left, self._negation(depth))
        return left

    def _negation(self, depth: int) -> Node:
        _check(depth)
        if self._take("!"):
            inner = self._negation(depth + 1)
            return lambda scope: not _truth(inner(scope))
        if self._take("-"):
            number = self._negation(depth + 1)
            return lambda scope: _fitting(-_whole(number(scope)))
        return self._path(depth)

    # -- operands --------------------------------------------------------------------------------------------------

    def _path(self, depth: int) -> Node:
        return self._steps(depth)[0]

    def _steps(self, depth: int) -> tuple[Node, Node | None, str]:
        """Parse a path; return it, the path without its last field, and that field.  None: no field is last."""
        node, parent, last = self._operand(depth), None, ""
        while True:
            if self._take("."):
                name = self._word()
                if self._take("("):
                    node, parent = self._called(node, name, depth), None
                else:
                    node, parent, last = _field(node, name), node, name
            elif self._take("["):
                key = self.choice(depth + 1)
                self._need("]")
                node, parent = _applied(_at, node, key), None
            else:
                return node, parent, last

    def _operand(self, depth: int) -> Node:
        _check(depth)
        if self._take("("):
            inner = self.choice(depth + 1)
            self._need(")")
            return inner
        if self._take("["):
            items = self._arguments("]", depth)
            return lambda scope: tuple(item(scope) for item in items)
        if self._position >= len(self._tokens):
            raise self._complaint()
        kind, token = self._tokens[self._position]
        if kind in ("text", "number") or token in _LITERALS:
            self._position += 1
            value = _literal(kind, token)
            return lambda _scope: value
        return self._named(self._word(), depth)

    def _named(self, name: str, depth: int) -> Node:
        if name == "cel" and self._take("."):
            return self._bound(depth)
        if self._take("("):
            return self._present(depth) if name == "has" else self._function(name, depth)
        if name in self._names:
            return lambda scope: scope[name]
        if name != "device":
            self._position -= 1
            raise self._complaint()
        if (self._position + 1) < len(self._tokens) and self._tokens[self._position][1] == ".":
            chosen = self._tokens[self._position + 1][1]
            if chosen not in _DEVICE:
                raise SelectorError(f"device has no field {chosen!r}: use {', '.join(sorted(_DEVICE))}")
        return lambda scope: scope["device"]

    def _bound(self, depth: int) -> Node:
        """Parse the rest of `cel.bind(name, value, expression)`."""
        if self._word() != "bind":
            self._position -= 1
            raise self._complaint()
        self._need("(")
        name = self._word()
        if name in _RESERVED or name == "device":
            raise SelectorError(f"{name!r} cannot be bound: choose another name")
        self._need(",")
        value = self.choice(depth + 1)
        self._need(",")
        self._names.append(name)
        inner = self.choice(depth + 1)
        self._names.pop()
        self._need(")")
        return lambda scope: inner({**scope, name: value(scope)})

    def _present(self, depth: int) -> Node:
        """Parse the rest of `has(path.name)`."""
        _node, parent, name = self._steps(depth + 1)
        if parent is None:
            raise SelectorError("has needs a path that ends with a field, as in has(device.driver)")
        within = parent
        self._need(")")
        return lambda scope: name in _mapping(within(scope))

    def _function(self, name: str, depth: int) -> Node:
        function = self._functions.get(name)
        if function is None:
            raise SelectorError(f"function {name!r} is not known")
        return _call(function, self._arguments(")", depth))

    def _called(self, subject: Node, name: str, depth: int) -> Node:
        method = self._methods.get(name)
        if method is None:
            raise SelectorError(f"method {name!r} is not known")
        return _call(method, [subject, *self._arguments(")", depth)])

    def _arguments(self, end: str, depth: int) -> list[Node]:
        found: list[Node] = []
        while not self._take(end):
            if found:
                self._need(",")
            found.append(self.choice(depth + 1))
        return found


def _check(depth: int) -> None:
    if depth > _DEEPEST:
        raise SelectorError("it is nested too deeply")


# -- evaluation --------------------------------------------------------------------------------------------------------


def _applied(function: Method, left: Node, right: Node) -> Node:
    return lambda scope: function(left(scope), right(scope))


def _call(function: Method, arguments: list[Node]) -> Node:
    def run(scope: Scope) -> Any:
        given = [argument(scope) for argument in arguments]
        try:
            return function(*given)
        except SelectorError:
            raise
        except (TypeError, ValueError) as e:
            raise SelectorError(str(e)) from e

    return run


def _joined(parts: list[Node], scope: Scope, *, stop: bool) -> bool:
    """Evaluate `||` or `&&`: one decisive part gives the result, even if other parts have no value."""
    problem: SelectorError | None = None
    for part in parts:
        try:
            if _truth(part(scope)) is stop:
                return stop
        except SelectorError as e:
            problem = e
    if problem is not None:
        raise problem
    return not stop


def _field(node: Node, name: str) -> Node:
    return lambda scope: _at(_mapping(node(scope)), name)


def _at(container: Any, key: Any) -> Any:
    if isinstance(container, tuple):
        number = _whole(key)
        if not 0 <= number < len(container):
            raise SelectorError(f"the list has no item {number}")
        return container[number]
    found = _mapping(container)
    try:
        return found[_string(key)]
    except KeyError:
        raise SelectorError(f"the device has no {key!r}") from None


def _equal(left: Any, right: Any) -> bool:
    return _kind(left) is _kind(right) and bool(left == right)


def _kind(value: Any) -> Any:
    return Mapping if isinstance(value, Mapping) else type(value)


def _ordered(left: Any, right: Any) -> tuple[Any, Any]:
    if _kind(left) is not _kind(right) or not isinstance(left, str | int):
        raise SelectorError(f"{left!r} and {right!r} cannot be compared")
    return left, right


def _less(left: Any, right: Any) -> bool:
    a, b = _ordered(left, right)
    return bool(a < b)


def _member(item: Any, collection: Any) -> bool:
    if isinstance(collection, tuple):
        return any(_equal(item, each) for each in collection)
    return _string(item) in _mapping(collection)


def _divided(left: Any, right: Any) -> int:
    a, b = _whole(left), _whole(right)
    if b == 0:
        raise SelectorError("division by zero")
    return _fitting(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def _rest(left: Any, right: Any) -> int:
    return _whole(left) - _divided(left, right) * _whole(right)


def _fitting(number: int) -> int:
    if not _INT_MIN <= number <= _INT_MAX:
        raise SelectorError("a number is above 64 bits")
    return number


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SelectorError(f"{value!r} is neither true nor false")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise SelectorError(f"{value!r} is no whole number")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise SelectorError(f"{value!r} is no text")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SelectorError(f"{value!r} has no fields")
    return value


def _size(value: Any) -> int:
    if not isinstance(value, str | tuple | Mapping):
        raise SelectorError(f"{value!r} has no size")
    return len(value)


def _literal(kind: str, token: str) -> Any:
    if kind == "number":
        return _fitting(int(token))
    return _text_of(token) if kind == "text" else _LITERALS[token]


def _text_of(token: str) -> str:
    def plain(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPES:
            raise SelectorError(f"the escape {escape[0]!r} is not understood")
        return _ESCAPES[escape[1]]

    return re.sub(r"\\(.)", plain, token[1:-1])


_LOWER = dict(zip(range(ord("A"), ord("Z") + 1), "abcdefghijklmnopqrstuvwxyz", strict=True))
_UPPER = dict(zip(range(ord("a"), ord("z") + 1), "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=True))
_RELATIONS: Mapping[str, Method] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _less,
    "<=": lambda left, right: not _less(right, left),
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: not _less(left, right),
    "in": _member,
}
_ARITHMETIC: Mapping[str, Method] = {
    "+": lambda left, right: _fitting(_whole(left) + _whole(right)),
    "-": lambda left, right: _fitting(_whole(left) - _whole(right)),
    "*": lambda left, right: _fitting(_whole(left) * _whole(right)),
    "/": _divided,
    "%": _rest,
}
_FUNCTIONS: Mapping[str, Method] = {"size": _size}
_METHODS: Mapping[str, Method] = {
    "startsWith": lambda text, start: _string(text).startswith(_string(start)),
    "endsWith": lambda text, end: _string(text).endswith(_string(end)),
    "contains": lambda text, part: _string(part) in _string(text),
    "lowerAscii": lambda text: _string(text).translate(_LOWER),
    "upperAscii": lambda text: _string(text).translate(_UPPER),
    "size": _size,
}
