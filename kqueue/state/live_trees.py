"""The quota trees of the present configuration: changes are collected, and applied together when a tree is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kqueue.api.wire import kueue as wire
from kqueue.core.quota import QuotaNode
from kqueue.state.quota_trees import ConfiguredQueue, QuotaEdit, Trees, UsageOf, build, has_new_cycle

_Key = tuple[bool, str]
"""A root of a tree: whether it is a cohort, and its name."""


class LiveTrees:
    """The quota trees, and numbers that rise when quota of a tree is released or changed."""

    def __init__(
        self, queues: Mapping[str, ConfiguredQueue], cohorts: Mapping[str, wire.Cohort], usage: UsageOf
    ) -> None:
        """Take the configuration, which the caller changes and reports."""
        self._queues, self._cohorts, self._usage = queues, cohorts, usage
        self._trees = Trees()
        self._changed_queues: dict[str, bool] = {}
        """ClusterQueues that have changed since the last edit; True: what they give out may have changed."""
        self._changed_cohorts: dict[str, None] = {}
        self._number = 0
        """The number of releases and changes."""
        self._freed: dict[_Key, int] = {}
        """The number at the last release or change, by root."""
        self._room: dict[_Key, int] = {}
        """The number at the last change of what the tree gives out, by root."""
        self._left: dict[str, int] = {}
        """The number at the last release of quota of a ClusterQueue."""

    # --- events ------------------------------------------------------------------------------------------------

    def on_queue(self, name: str, *, same: bool = False) -> None:
        """Follow a ClusterQueue that appeared, changed or is gone.  `same`: it gives out the same as before."""
        self._changed_queues[name] = self._changed_queues.get(name, False) or not same

    def on_cohort(self, name: str) -> None:
        """Follow a Cohort that appeared, changed or is gone."""
        self._changed_cohorts[name] = None

    def on_release(self, queue: str) -> None:
        """Follow a release of quota in a ClusterQueue."""
        self._number += 1
        self._left[queue] = self._number
        node = self._trees.queues.get(queue)
        if node is not None:
            self._freed[_key(node.root)] = self._number

    # --- questions ---------------------------------------------------------------------------------------------

    @property
    def as_charged(self) -> Trees:
        """The trees without the changes since the last edit.  Usage may be charged to them: the edit takes the usage of
        their ClusterQueues, and computes that of changed Cohorts anew.
        """
        return self._trees

    def now(self) -> Trees:
        """Return the present trees."""
        if self._changed_queues or self._changed_cohorts:
            self._edit()
        return self._trees

    def put(self, trees: Trees) -> None:
        """Replace all trees by trees of the same configuration."""
        self._trees = trees

    def room(self, queue: str) -> int:
        """Return a number that rises when quota of a ClusterQueue is released, and when its tree gives out other quota,
        or in another order of flavors.
        """
        node = self.now().queues.get(queue)
        return max(self._left.get(queue, 0), self._room.get(_key(node.root), 0) if node is not None else 0)

    def freed(self, queue: str) -> int:
        """Return a number that rises when quota in the tree of a ClusterQueue is released or changed."""
        node = self.now().queues.get(queue)
        return self._freed.get(_key(node.root), 0) if node is not None else self._left.get(queue, 0)

    # --- edits -------------------------------------------------------------------------------------------------

    def _edit(self) -> None:
        queues, self._changed_queues = self._changed_queues, {}
        cohorts, self._changed_cohorts = self._changed_cohorts, {}
        self._number += 1
        if cohorts and (self._trees.cyclic or has_new_cycle(cohorts, self._cohorts)):
            self._build()
        else:
            self._change(queues, cohorts)
        for name in queues.keys() - self._queues.keys():
            self._left.pop(name, None)

    def _build(self) -> None:
        """Build all trees: links that were cut, or have to be cut, may belong to any of them."""
        trees = self._trees = build(self._queues, self._cohorts, self._usage)
        tops = [node for node in (*trees.queues.values(), *trees.cohorts.values()) if node.parent is None]
        self._freed = dict.fromkeys(map(_key, tops), self._number)
        self._room = self._freed.copy()

    def _change(self, queues: Mapping[str, bool], cohorts: Collection[str]) -> None:
        edit = QuotaEdit(self._trees)
        for name in cohorts:
            edit.put_cohort(name, self._cohorts.get(name))
        for name, gives_out_other in queues.items():
            queue = self._queues.get(name)
            if queue is None:
                edit.drop_queue(name)
            else:
                edit.put_queue(name, queue, self._usage, same=not gives_out_other)
        for root in edit.finish(self._cohorts):
            self._freed[_key(root)] = self._number
        for node in edit.gives_out_other():
            self._room[_key(node.root)] = self._number
        for node in edit.no_roots():
            self._freed.pop(_key(node), None)
            self._room.pop(_key(node), None)


def _key(root: QuotaNode) -> _Key:
    return root.is_cohort, root.name
