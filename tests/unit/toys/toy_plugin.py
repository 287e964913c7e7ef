"""The smallest plugin of each point, all in one object, which notes its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.core.decision import Admit
from kqueue.core.plugins import AGREED, Approve, Permission, PodRef, ReleasePatch, Verdict
from kqueue.core.preemption import Target
from kqueue.core.queued import Queued
from kqueue.core.topology import NodeFacts
from kqueue.core.workload import Admission, Flavor, Head, PodSet


class ToyPlugin:
    """Agrees with everything.  `args` may give a sort key by the name of a workload."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.name = str(args.get("name", "toy"))
        self._keys: Mapping[str, int] = args.get("keys", {})
        self._calls: list[str] = args.get("calls", CALLS)

    def key(self, item: Queued) -> int:
        self._calls.append("key")
        return self._keys.get(item.key.rpartition("/")[2], 0)

    def screen(self, head: Head) -> Verdict:
        self._calls.append("screen")
        return AGREED

    def allows_flavor(self, pod_set: PodSet, flavor: Flavor) -> str:
        self._calls.append("allows_flavor")
        return ""

    def allows_node(self, pod_set: PodSet, node: NodeFacts) -> str:
        self._calls.append("allows_node")
        return ""

    def veto(self, head: Head, targets: Sequence[Target]) -> frozenset[str]:
        self._calls.append("veto")
        return frozenset()

    def rank(self, head: Head, targets: Sequence[Target]) -> tuple[int, ...]:
        self._calls.append("rank")
        return ()

    def prepare(self, head: Head) -> str:
        self._calls.append("prepare")
        return head.key

    def score(self, prepared: str, flavor: Flavor) -> int:
        self._calls.append("score")
        return 0

    def normalise(self, scores: Mapping[str, int]) -> Mapping[str, int]:
        self._calls.append("normalise")
        return scores

    def reserve(self, admit: Admit) -> Verdict:
        self._calls.append("reserve")
        return AGREED

    def unreserve(self, admit: Admit) -> None:
        self._calls.append("unreserve")

    async def permit(self, admit: Admit) -> Permission:
        self._calls.append("permit")
        return Approve()

    async def before_release(self, key: str, admission: Admission) -> Verdict:
        self._calls.append("before_release")
        return AGREED

    async def release(self, pod: PodRef, patch: ReleasePatch) -> bool:
        self._calls.append("release")
        return False

    def after_release(self, key: str, pods: int) -> None:
        self._calls.append("after_release")


CALLS: list[str] = []
"""The calls of plugins that a configuration has made."""
