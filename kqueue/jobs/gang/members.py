"""The members of a gang: their order, and which of them count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kqueue.jobs.pod_view import ManagedPod


def in_order(members: Iterable[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the members sorted by age, then name.  The first member defines the group, so that later members cannot
    change it.
    """
    return tuple(sorted(members, key=lambda pod: (pod.created, pod.key)))


def is_fast(pod: ManagedPod) -> bool:
    """Whether the group is queued before all of its pods are there."""
    return pod.source.is_fast(pod.obj)


def is_serving(pod: ManagedPod) -> bool:
    """Whether the group never finishes."""
    return pod.source.is_serving(pod.obj)


def runnable(members: Iterable[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the members that need no replacement."""
    return tuple(pod for pod in members if pod.runnable)


def surplus(alive: Sequence[ManagedPod], count: int) -> list[ManagedPod]:
    """Return the excess members: first those without resources, then those started last."""
    if len(alive) <= count:
        return []
    order = sorted(alive, key=lambda pod: (not pod.finalizer, pod.gated, pod.created, pod.key))
    return order[count:]


def without(members: Iterable[ManagedPod], others: Iterable[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the members that are not among `others`, in order."""
    out = set(others)
    return tuple(pod for pod in members if pod not in out)
