"""Taints of nodes and tolerations of pods.

Source: Kubernetes `v1.Toleration.ToleratesTaint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kqueue.kube.requirement import compare

REPELLING_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""The effects that keep new pods away."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's refusal of pods that do not tolerate it.  `effect`: NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """The taints that a pod tolerates.  Empty effect: every effect; empty key with Exists: every key; empty operator:
    Equal.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a pod with this toleration tolerates the taint.

    `Gt` and `Lt` compare the taint's value with the toleration's, and hold only where both are decimal integers.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key != taint.key and (toleration.key or toleration.operator != "Exists"):
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return toleration.value == taint.value
        case "Gt" | "Lt" as operator:
            return compare(operator, taint.value, toleration.value)
        case _:
            return False


def untolerated_taint(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that no toleration tolerates; None: the node accepts the pod."""
    for taint in taints:
        if taint.effect in REPELLING_EFFECTS and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
