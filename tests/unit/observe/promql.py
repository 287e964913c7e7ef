"""Finds the metrics and labels in a PromQL expression: a tokenizer, not a parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>\d[\d.]*(?:[a-z]+\d*)*)|(?P<name>[a-zA-Z_:$][\w:$]*)|(?P<sign>=~|!~|!=|==|[<>]=?|\S))"""
)
_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset", "Inf", "NaN", "atan2"}


@dataclass(frozen=True, slots=True)
class Selected:
    """One metric that is asked for, with the labels in its braces."""

    metric: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """All that an expression names."""

    selected: tuple[Selected, ...]
    grouped: frozenset[str]
    """Labels in lists such as `by (...)`."""


def asked(expression: str) -> Asked:
    """What it names; raises ValueError where brackets do not match."""
    tokens = list(_tokens(expression))
    if [t for _, t in tokens].count("(") != [t for _, t in tokens].count(")"):
        raise ValueError(f"brackets do not match in {expression}")
    selected: list[Selected] = []
    grouped: set[str] = set()
    i = 0
    while i < len(tokens):
        kind, token = tokens[i]
        following = tokens[i + 1][1] if i + 1 < len(tokens) else ""
        i += 1
        if token == "[":
            i = _end(tokens, i, "]")
        elif kind != "name" or token in _WORDS:
            continue
        elif token in _LISTS and following == "(":
            end = _end(tokens, i, ")")
            grouped |= {name for what, name in tokens[i:end] if what == "name"}
            i = end
        elif following in ("(", "by", "without"):
            continue
        elif following == "{":
            end = _end(tokens, i, "}")
            inside = tokens[i + 1 : end]
            signs = {"=", "!=", "=~", "!~"}
            labels = [name for (what, name), (_, sign) in pairwise(inside)
                      if what == "name" and sign in signs]  # fmt: skip
            selected.append(Selected(token, tuple(labels)))
            i = end
        else:
            selected.append(Selected(token, ()))
    return Asked(tuple(selected), frozenset(grouped))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(expression.strip()):
        kind = found.lastgroup
        assert kind is not None
        yield kind, found[kind]


def _end(tokens: list[tuple[str, str]], start: int, sign: str) -> int:
    for i in range(start, len(tokens)):
        if tokens[i] == ("sign", sign):
            return i
    raise ValueError(f"no {sign} after {tokens[start - 1][1]}")
