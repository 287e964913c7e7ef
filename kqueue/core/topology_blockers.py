"""Blockers of workloads whose pods have no domains."""

from __future__ import annotations

from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.topology.result import Misfit


def topology_blocker(flavor: str, misfit: Misfit, *, unusable: tuple[str, ...] = (), never: bool = False) -> Blocker:
    """Return a misfit as a blocker; with `never` it is the misfit on an empty cluster."""
    return Blocker(
        kind=BlockerKind.TOPOLOGY,
        pod_set="" if misfit.together else misfit.pod_set,
        flavor=flavor,
        misfit=misfit,
        unusable=unusable,
        never=never,
    )
