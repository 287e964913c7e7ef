"""The world of the process that plans rounds, and the tables that it keeps from round to round."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kqueue.core.joint.batch import Batch
from kqueue.core.joint.defrag import DefragQuestion
from kqueue.core.joint.kept import Kept
from kqueue.core.joint.moving import RunningGang
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.running import RunningInput
from kqueue.core.joint.statistics import NodeStatistics, joined
from kqueue.core.lost_work import Checkpoints
from kqueue.core.topology import Capacity, Leaf, Tree
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Admitted, Flavor, Head, QueueSpec, Snapshot, TopologyView
from kqueue.scheduling.joint.frames import (
    CHANGES,
    AdmittedPart,
    Ask,
    CheckpointsPart,
    Defragment,
    FlavorCapacity,
    ForgetFlavor,
    ForgetTree,
    FreeLeaves,
    GangsPart,
    HeadsPart,
    Leaves,
    MovablePart,
    Rest,
    Resync,
    SearchCapacity,
    StatisticsPart,
    TreeBegins,
    TreeEdit,
    fingerprint,
)

T = TypeVar("T")


@dataclass(slots=True)
class Assembly:
    """Puts the messages of rounds and of searches together, in the process that plans."""

    kept: Kept = field(default_factory=Kept)
    _messages: int = 0
    _begun: dict[int, tuple[TreeBegins, list[Leaf]]] = field(default_factory=dict)
    _trees: dict[int, Tree] = field(default_factory=dict)
    _views: dict[str, TopologyView] = field(default_factory=dict)
    _admitted: dict[str, dict[str, Admitted]] = field(default_factory=dict)
    _unsorted: set[str] = field(default_factory=set)
    """ClusterQueues whose admitted workloads have changed in this round."""
    _heads: dict[str, Head] = field(default_factory=dict)
    _movable: list[RunningGang] = field(default_factory=list)
    _checkpoints: dict[str, Checkpoints] = field(default_factory=dict)
    """These two are sent whole with each round."""
    _measured: list[NodeStatistics] = field(default_factory=list)
    """The parts of the last measured use."""
    _searched: dict[str, TopologyView] = field(default_factory=dict)
    _gangs: list[RunningGang] = field(default_factory=list)
    """These two are sent whole with each search."""
    _specs: Mapping[str, QueueSpec] = field(default_factory=dict)
    _flavors: Mapping[str, Flavor] = field(default_factory=dict)

    def take(self, data: bytes) -> tuple[int, RoundInput | DefragQuestion] | Resync | None:
        """Take a message; return the round or the search that it completes, and its number.

        `Resync`: messages were lost, so that another assembly has to begin with nothing.
        """
        return self.follow(pickle.loads(data))

    def follow(self, message: object) -> tuple[int, RoundInput | DefragQuestion] | Resync | None:
        """Take a message that was read already, as `take` does."""
        self._messages += isinstance(message, CHANGES)
        match message:
            case Ask() as ask:
                return self._asked(ask)
            case Defragment() as search:
                return self._question(search)
            case TreeBegins() as begins:
                self._begun[begins.number] = begins, []
            case Leaves() as some:
                if some.number in self._begun:
                    self._begun[some.number][1].extend(some.leaves)
            case TreeEdit() as edit:
                self._take_edit(edit)
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
            case MovablePart() | CheckpointsPart() | StatisticsPart() as whole:
                self._take_whole(whole)
            case SearchCapacity() | GangsPart() as searched:
                self._take_searched(searched)
            case other:
                raise TypeError(f"a message of the type {type(other).__name__} is unknown")
        return None

    def _take_edit(self, edit: TreeEdit) -> None:
        """Take a topology that follows from another one; if that was lost, the fingerprint tells."""
        base = self._tree(edit.base)
        if base is not None and all(number < len(base) for number in edit.removed):
            self._trees[edit.number] = base.edited(edit.removed, edit.added)[0]

    def _take_whole(self, part: MovablePart | CheckpointsPart | StatisticsPart) -> None:
        """Take a part of what is sent whole with each round."""
        match part:
            case MovablePart():
                self._movable.extend(part.gangs)
            case CheckpointsPart():
                self._checkpoints.update(part.of)
            case StatisticsPart():
                if part.is_first:
                    self._measured.clear()
                self._measured.append(part.statistics)

    def _take_searched(self, part: SearchCapacity | GangsPart) -> None:
        """Take a part of a search."""
        if isinstance(part, GangsPart):
            self._gangs.extend(part.gangs)
            return
        view = self._view(part.capacity)
        if view is not None:
            self._searched[part.capacity.flavor] = view

    def _question(self, search: Defragment) -> tuple[int, DefragQuestion] | Resync:
        topologies, running = self._searched, self._gangs
        self._searched, self._gangs = {}, []
        if search.messages != self._messages:
            return Resync(round=search.search)
        return search.search, DefragQuestion(
            topologies=topologies, goal=search.goal, running=running, settings=search.settings
        )

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
                view = self._view(changed)
                if view is not None:
                    self._views[changed.flavor] = view

    def _view(self, sent: FlavorCapacity) -> TopologyView | None:
        """Return the domains of a flavor; None: messages of its topology were lost."""
        tree = self._tree(sent.tree)
        if tree is None or sent.free[1].shape[1] != len(tree):
            return None
        return TopologyView(sent.name, tree, Capacity.of_tables(tree, sent.free, sent.idle), sent.unusable)

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
        if not self.has_all(ask.fingerprint):
            return Resync(round=ask.round)
        return ask.round, self._whole(pickle.loads(ask.rest))

    def has_all(self, expected: int) -> bool:
        """Whether the fingerprint of what the process has is the one that the manager expects."""
        free = {flavor: view.capacity.tables() for flavor, view in self._views.items()}
        return expected == fingerprint(self._messages, free, self._admitted, self._heads)

    def snapshot(self, rest: Snapshot, flavors: Iterable[str], admitted: Iterable[str]) -> Snapshot:
        """Return the snapshot that was sent without domains and workloads, with those of these flavors and queues."""
        for queue in self._unsorted:  # the order must not depend on the order of changes
            self._admitted[queue] = dict(sorted(self._admitted[queue].items()))
        self._unsorted.clear()
        self._specs = _same(self._specs, rest.queues)
        self._flavors = _same(self._flavors, rest.flavors)
        return replace(
            rest,
            queues=self._specs,
            flavors=self._flavors,
            topologies={flavor: self._views[flavor] for flavor in flavors},
            admitted={queue: dict(self._admitted.get(queue, {})) for queue in admitted},
        )

    def holders(self) -> list[Admitted]:
        """Return all workloads with usage."""
        return [workload for of_queue in self._admitted.values() for workload in of_queue.values()]

    def head(self, uid: str) -> Head:
        """Return a workload that was sent, by its UID."""
        return self._heads[uid]

    def _whole(self, rest: Rest) -> RoundInput:
        self.kept.forget_others(rest.flavors)
        snapshot = self.snapshot(rest.snapshot, rest.flavors, rest.admitted)
        running = RunningInput(checkpoints=self._checkpoints, movable=tuple(self._movable))
        policies = replace(rest.given.policies, statistics=joined(self._measured))
        self._movable, self._checkpoints = [], {}
        queues = {queue: tuple([self._heads[uid] for uid in uids]) for queue, uids in rest.batch.items()}
        return replace(
            rest.given,
            state=replace(rest.given.state, snapshot=snapshot),
            batch=Batch(queues=queues, strict=rest.given.batch.strict),
            kept=self.kept,
            running=running,
            policies=policies,
        )


def _put(capacity: Capacity, leaves: Ints, amounts: Ints) -> None:
    """Set the amounts of all resources on some leaves."""
    resources = capacity.resources
    for leaf, column in zip(leaves.tolist(), amounts.T.tolist(), strict=True):
        capacity.put(leaf, dict(zip(resources, column, strict=True)))


def _same(known: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    """Return the values, equal ones as the objects that are known: kept tables recognise them by their identity."""
    return {name: known[name] if name in known and known[name] == one else one for name, one in now.items()}
