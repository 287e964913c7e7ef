"""Nodes, topologies and findings, as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.kube.names import HOSTNAME_LABEL

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LabelledNode:
    """A node's name and labels."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels of a Topology. `selectors` are the node labels of the flavors that use it; empty if no flavor does."""

    name: str
    levels: tuple[str, ...]
    selectors: tuple[Mapping[str, str], ...] = ()

    @property
    def is_by_host(self) -> bool:
        """Whether the lowest level is the host name."""
        return bool(self.levels) and self.levels[-1] == HOSTNAME_LABEL

    @property
    def named(self) -> tuple[str, ...]:
        """The levels whose values people choose: all but the host name."""
        return self.levels[:-1] if self.is_by_host else self.levels

    def has(self, node: LabelledNode) -> bool:
        """Whether a flavor of the topology matches this node."""
        return any(wanted.items() <= node.labels.items() for wanted in self.selectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFinding:
    """A problem with labels.

    `mend` are kubectl commands; a value that only a person can know is written `VALUE`. A note is no mistake and does
    not count as one.
    """

    code: str
    level: str
    text: str
    nodes: tuple[str, ...] = ()
    mend: tuple[str, ...] = ()
    is_note: bool = False

    def as_json(self, topology: str) -> JSON:
        """Return the finding as JSON."""
        return {
            "topology": topology,
            "code": self.code,
            "severity": "note" if self.is_note else "problem",
            "level": self.level,
            "message": self.text,
            "nodes": list(self.nodes),
            "mend": list(self.mend),
        }


_SAFE = re.compile(r"[A-Za-z0-9_./=:-]+")
_AT_ONCE = 20
"""Nodes of one command, so that the line is short enough to paste."""


def label_command(nodes: Sequence[str], key: str, value: str, *, overwrite: bool = False) -> list[str]:
    """Return kubectl commands that set a label on these nodes; several if there are many nodes."""
    ends = " --overwrite" if overwrite else ""
    return [
        f"kubectl label node {' '.join(map(_quoted, nodes[at : at + _AT_ONCE]))} {_quoted(f'{key}={value}')}{ends}"
        for at in range(0, len(nodes), _AT_ONCE)
    ]


def _quoted(text: str) -> str:
    """Return `text` quoted for a shell, because names and values come from the cluster."""
    return text if _SAFE.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


def normalised(text: str) -> str:
    """Return a value or key without differences of spelling: case, blanks, signs, leading zeros."""
    words = re.findall(r"[^\W\d_]+|\d+", text.lower())
    return " ".join(word.lstrip("0") or "0" if word.isdigit() else word for word in words)


def some(names: Iterable[str], most: int = 5) -> str:
    """Return the first names, and the number of the rest."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
