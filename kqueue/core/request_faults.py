"""The sentences about topology requests that no capacity could satisfy: the fault, and the correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kqueue.core.topology import Misfit, MisfitCode


class RequestFault(NamedTuple):
    """A fault of a topology request. `remedy` is empty if no remedy is known."""

    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return fault and remedy as one sentence."""
        return f"{self.problem}; {self.remedy}" if self.remedy else self.problem


def request_fault(misfit: Misfit, levels: Sequence[str] = ()) -> RequestFault:
    """Return the fault of a misfit.  `levels`: the levels of the topology, for the remedy; empty: unknown."""
    match misfit.code:
        case MisfitCode.LEVEL_NOT_SPECIFIED:
            return RequestFault(
                "no level is asked for", "write required or preferred with a level, or unconstrained: true"
            )
        case MisfitCode.LEVEL_NOT_FOUND | MisfitCode.SLICE_LEVEL_NOT_FOUND | MisfitCode.INNER_LEVEL_NOT_FOUND:
            known = f"its levels are {', '.join(levels)}" if levels else "use one of its levels"
            return RequestFault(f"the topology has no level '{misfit.level}'", known)
        case MisfitCode.SLICE_LEVEL_ABOVE_POD_SET_LEVEL:
            return RequestFault(
                f"slices of level {misfit.other_level} are wider than {misfit.level}, the level of the pod set",
                f"write {misfit.level} or a narrower one",
            )
        case MisfitCode.SLICE_SIZE_MISSING:
            return RequestFault("slices have a level but no size", "write how many pods each of them has")
        case MisfitCode.COUNT_BELOW_SLICE_SIZE:
            return RequestFault(
                f"one slice has {misfit.size} pods, and {misfit.count} are to be placed",
                "write a smaller size, or more pods",
            )
        case MisfitCode.INNER_LEVEL_NOT_LOWER:
            return RequestFault(
                f"{misfit.level} is not narrower than {misfit.other_level}, the layer before it",
                "order layers by width",
            )
        case MisfitCode.INNER_SIZE_NOT_DIVISOR:
            return RequestFault(
                f"{misfit.size} does not divide {misfit.other_size}, the size of the layer before it",
                "write a divisor",
            )
        case _:
            return RequestFault(misfit.detail or str(misfit.code))
