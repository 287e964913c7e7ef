"""Traits: what the user of a workload tells the policies of joint placement."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.core.value import value


@value(kw_only=True)
class Traits:
    """The traits of one workload.

    Args:
        prefers: the place of its data, as pairs of a level and a value; empty: it prefers no place.
        interference: the name of its class of interference; empty: it has none.
        expected_seconds: how long it is expected to run; None: not known.
    """

    prefers: tuple[tuple[str, str], ...] = ()
    interference: str = ""
    expected_seconds: int | None = None


NO_TRAITS = Traits()


def pairs_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return the preferred place that a user writes as `level=value,...`; empty if any part is malformed."""
    parts = [part.strip().partition("=") for part in text.split(",")] if text else []
    if not all(level and value for level, _, value in parts):
        return ()
    return tuple([(level.strip(), value.strip()) for level, _, value in parts])


TraitsOf = Mapping[str, Traits]
"""By the UID of the workload, waiting or running; workloads without traits may be missing."""
