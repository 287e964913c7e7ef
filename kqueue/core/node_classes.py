"""Node classes as values: the class of a flavor's nodes, and the class that a pod set requests.

A class is a card type, a private machine group, or both.  Nodes of a scarce or private flavor carry a taint for each,
so pods that kqueue does not queue keep off them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TYPE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST = 63


CARD_TYPES_RULE = "must be one card type or several joined by commas"
"""The rule for lists of card types, as part of a sentence about a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """The class of a flavor's nodes.

    Args:
        card_type: empty: the flavor has none.
        scarce: only pod sets that name the card type, or select a node label of the flavor, get the flavor.
        private_group: only pod sets that name the group get the flavor; empty: the flavor is not private.
    """

    card_type: str = ""
    scarce: bool = False
    private_group: str = ""


NO_NODE_CLASS = NodeClass()
"""The class of a flavor without annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRequest:
    """The node class that a pod set requests.

    Args:
        required: the pod set gets one of these card types, or waits; empty: any type.
        preferred: card types that are tried first, in this order.
        private: the private group; empty: none.
        inherited: the request was made for the whole workload, so that pod sets without such resources ignore it.
    """

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    private: str = ""
    inherited: bool = False

    @property
    def names_any(self) -> bool:
        """Whether a class is requested at all."""
        return bool(self.required or self.preferred or self.private)

    def names_type(self, card_type: str) -> bool:
        """Whether the card type is required or preferred."""
        return card_type in self.required or card_type in self.preferred


NO_CLASS_REQUEST = ClassRequest()
"""The request of a pod set that names no class."""


def parse_card_types(text: str) -> tuple[str, ...] | None:
    """Return the card types of a list joined by commas, each once; None: the text is no such list."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    return found if all(map(is_card_type, found)) else None


def is_card_type(text: str) -> bool:
    """Whether the text can name a card type or a group: a label value that is not empty."""
    return len(text) <= _LONGEST and _TYPE.fullmatch(text) is not None


def joined_types(types: Sequence[str]) -> str:
    """Return `a`, `a or b`, `a, b or c`."""
    *first, last = types
    return f"{', '.join(first)} or {last}" if first else last
