"""Draws a topology as an indented tree, a bounded number of lines: marked domains and the best of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints, Tree

_MOST_LINES = 200


@dataclass(slots=True, kw_only=True)
class Drawing:
    """Draws domains up to the limit.

    Args:
        room: by level and domain; among domains without a mark the largest are drawn.
        text: the text of a domain, by level and domain.
        rest: the text about domains that are not drawn, from their number, the number of marked ones and the most room.
        marks: by path, what stands behind the text of a domain.
        deepest: the lowest level that is drawn.
        is_whole: whether domains below one without marks are drawn, too.
        most_children: limit of domains drawn below one parent.
    """

    tree: Tree
    room: Sequence[Ints]
    text: Callable[[int, int], str]
    rest: Callable[[int, int, int], str]
    marks: Mapping[Path, str]
    deepest: int
    is_whole: bool
    most_children: int
    _drawn: int = field(default=0, init=False)
    _around: set[Path] = field(init=False)
    """Paths of marked domains and of all domains around them."""

    def __post_init__(self) -> None:
        """Compute the marked branches."""
        self._around = {path[:length] for path in self.marks for length in range(1, len(path) + 1)}

    def lines(self) -> Iterator[str]:
        """Yield the lines, those of the widest level with an indentation of four."""
        yield from self._of_children(0, np.arange(self.tree.domains(0), dtype=np.int64))

    def _of_children(self, level: int, domains: Ints) -> Iterator[str]:
        """Yield the marked domains of one parent and those with the most room, in path order."""
        room = self.room[level]
        ranked = sorted(domains.tolist(), key=lambda d: (not self._is_marked(level, d), -int(room[d]), d))
        for domain in sorted(ranked[: self.most_children]):
            yield from self._of_domain(level, domain)
        rest = ranked[self.most_children :]
        if rest:
            most = max(int(room[d]) for d in rest)
            yield self._indent(level) + self.rest(len(rest), sum(self._is_marked(level, d) for d in rest), most)

    def _of_domain(self, level: int, domain: int) -> Iterator[str]:
        if self._drawn >= _MOST_LINES:
            return
        self._drawn += 1
        path = self.tree.path_of(level, domain)
        mark = f"   <- {self.marks[path]}" if path in self.marks else ""
        yield f"{self._indent(level)}{path[-1]}: {self.text(level, domain)}{mark}"
        if level < self.deepest and (self.is_whole or self._is_marked(level, domain)):
            yield from self._of_children(level + 1, self.tree.children(level, np.array([domain], dtype=np.int64)))

    def _indent(self, level: int) -> str:
        return "  " * (level + 2)

    def _is_marked(self, level: int, domain: int) -> bool:
        return self.tree.path_of(level, domain) in self._around
