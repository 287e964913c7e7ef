"""The world of the process that plans rounds, and the tables that it keeps from round to round."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kqueue.core.joint.batch import Batch
from kqueue.core.joint.kept import Kept
from kqueue.core.joint.round import RoundInput
from kqueue.core.topology import Capacity, Leaf, Tree
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Admitted, Flavor, Head, QueueSpec, TopologyView
from kqueue.scheduling.joint.frames import (
    CHANGES,
    AdmittedPart,
    Ask,
    FlavorCapacity,
    ForgetFlavor,
    ForgetTree,
    FreeLeaves,
    HeadsPart,
    Leaves,
    Rest,
    Resync,
    TreeBegins,
    fingerprint,
)

T = TypeVar("T")


@dataclass(slots=True)
class Assembly:
    """Puts the messages of rounds together, in the process that plans."""

    kept: Kept = field(default_factory=Kept)
    _messages: int = 0
    _begun: dict[int, tuple[TreeBegins, list[Leaf]]] = field(default_factory=dict)
    _trees: dict[int, Tree] = field(default_factory=dict)
    _views: dict[str, TopologyView] = field(default_factory=dict)
    _admitted: dict[str, dict[str, Admitted]] = field(default_factory=dict)
    _unsorted: set[str] = field(default_factory=set)
    """ClusterQueues whose admitted workloads have changed in this round."""
    _heads: dict[str, Head] = field(default_factory=dict)
    _specs: Mapping[str, QueueSpec] = field(default_factory=dict)
    _flavors: Mapping[str, Flavor] = field(default_factory=dict)

    def take(self, data: bytes) -> tuple[int, RoundInput] | Resync | None:
        """Take a message; return the round that it completes, and its number.

        `Resync`: messages were lost, so that another assembly has to begin with nothing.
        """
        message = pickle.loads(data)
        self._messages += isinstance(message, CHANGES)
        match message:
            case Ask() as ask:
                return self._asked(ask)
            case TreeBegins() as begins:
                self._begun[begins.number] = begins, []
            case Leaves() as some:
                if some.number in self._begun:
                    self._begun[some.number][1].extend(some.leaves)
            case ForgetTree() as gone:
                self._trees.pop(gone.number, None)
            case FlavorCapacity() | FreeLeaves() | ForgetFlavor() as changed:
                self._take_capacity(changed)
            case AdmittedPart() as part:
                of_queue = self._admitted.setdefault(part.queue, {})
                of_queue.update(part.workloads)
                for key in part.gone:
                    of_queue.pop(key, None)
                self._unsorted.add(part.queue)
            case HeadsPart() as heads:
                self._heads.update({head.uid: head for head in heads.heads})
                for uid in heads.gone:
                    self._heads.pop(uid, None)
            case other:
                raise TypeError(f"a message of the type {type(other).__name__} is unknown")
        return None

    def _take_capacity(self, changed: FlavorCapacity | FreeLeaves | ForgetFlavor) -> None:
        """Take free amounts; parts of what was lost are left out, and the fingerprint tells."""
        match changed:
            case ForgetFlavor():
                self._views.pop(changed.flavor, None)
            case FreeLeaves():
                view = self._views.get(changed.flavor)
                if view is not None:
                    _put(view.capacity, changed.leaves, changed.free)
                    if changed.idle is not None and view.capacity.empty() is not view.capacity:
                        _put(view.capacity.empty(), changed.leaves, changed.idle)
                    self._views[changed.flavor] = replace(view, name=changed.name, unusable=changed.unusable)
            case FlavorCapacity():
                tree = self._tree(changed.tree)
                if tree is not None and changed.free[1].shape[1] == len(tree):
                    free = Capacity.of_tables(tree, changed.free, changed.idle)
                    self._views[changed.flavor] = TopologyView(changed.name, tree, free, changed.unusable)

    def _tree(self, number: int) -> Tree | None:
        """Return the topology of this number; None: its messages were lost."""
        begun = self._begun.pop(number, None)
        if begun is not None:
            begins, leaves = begun
            self._trees[number] = Tree(
                topology=begins.topology, levels=begins.levels, leaves=leaves, tolerations=begins.tolerations
            )
        return self._trees.get(number)

    def _asked(self, ask: Ask) -> tuple[int, RoundInput] | Resync:
        free = {flavor: view.capacity.tables() for flavor, view in self._views.items()}
        if ask.fingerprint != fingerprint(self._messages, free, self._admitted, self._heads):
            return Resync(round=ask.round)
        return ask.round, self._whole(pickle.loads(ask.rest))

    def _whole(self, rest: Rest) -> RoundInput:
        for queue in self._unsorted:  # the order must not depend on the order of changes
            self._admitted[queue] = dict(sorted(self._admitted[queue].items()))
        self._unsorted.clear()
        self._specs = _same(self._specs, rest.snapshot.queues)
        self._flavors = _same(self._flavors, rest.snapshot.flavors)
        self.kept.forget_others(rest.flavors)
        snapshot = replace(
            rest.snapshot,
            queues=self._specs,
            flavors=self._flavors,
            topologies={flavor: self._views[flavor] for flavor in rest.flavors},
            admitted={queue: dict(self._admitted.get(queue, {})) for queue in rest.admitted},
        )
        queues = {queue: tuple([self._heads[uid] for uid in uids]) for queue, uids in rest.batch.items()}
        return replace(
            rest.given,
            state=replace(rest.given.state, snapshot=snapshot),
            batch=Batch(queues=queues, strict=rest.given.batch.strict),
            kept=self.kept,
        )


def _put(capacity: Capacity, leaves: Ints, amounts: Ints) -> None:
    """Set the amounts of all resources on some leaves."""
    resources = capacity.resources
    for leaf, column in zip(leaves.tolist(), amounts.T.tolist(), strict=True):
        capacity.put(leaf, dict(zip(resources, column, strict=True)))


def _same(known: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    """Return the values, equal ones as the objects that are known: kept tables recognise them by their identity."""
    return {name: known[name] if name in known and known[name] == one else one for name, one in now.items()}
