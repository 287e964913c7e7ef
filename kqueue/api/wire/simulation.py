"""Question of the view `simulations`: objects that do not exist, and their number."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kqueue.api.wire.meta import Struct

KIND: Final = "Simulation"
PLURAL: Final = "simulations"
MOST_BYTES: Final = 512 * 1024
"""The largest question that is read."""
MOST_MANIFESTS: Final = 64
MOST_WORKLOADS: Final = 1_000
"""Workloads of one question, with all copies."""
MOST_PODS: Final = 1_000_000
"""Pods of one question, with all copies."""


class SimulationMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of a question; the namespace is that of its path."""

    namespace: str = ""


class SimulationSpec(Struct, frozen=True, kw_only=True):
    """The question.

    Args:
        manifests: objects as a user would create them.
        copies: how many of each.
        queue: a LocalQueue for all of them, in place of those that they name; empty: they keep their own.
    """

    manifests: tuple[dict[str, Any], ...]
    copies: int = 1
    queue: str = ""


class SimulationQuestion(Struct, frozen=True, kw_only=True):
    """The posted object."""

    metadata: SimulationMetadata = msgspec.field(default_factory=SimulationMetadata)
    spec: SimulationSpec
