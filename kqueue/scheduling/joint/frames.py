"""The messages between the manager and the process that plans rounds and searches for moves.

A world of 12,500 hosts is sent in many small pieces, so that the event loop is never held for long; a topology is sent
once, and again only when it has changed.  Both ends are the same version of kqueue, and the process is a child of the
manager, so that pickled values are safe here.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

from kqueue.core.joint.batch import Batch
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, DefragSettings, Goal, NoPlan
from kqueue.core.joint.moving import RunningGang
from kqueue.core.joint.round import RoundInput
from kqueue.core.planned_state import PlannedState
from kqueue.core.topology import Capacity, Leaf, Tree
from kqueue.core.topology.tree import Ints
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Head, Snapshot, TopologyView

_LEAVES, _WORKLOADS, _HEADS, _GANGS = 400, 200, 20, 50
"""Values of one piece: each takes a few milliseconds."""

T = TypeVar("T")
Tables = tuple[Sequence[str], Ints]


@value(kw_only=True)
class TreeBegins:
    """A topology, whose leaves follow."""

    number: int
    topology: str
    levels: tuple[str, ...]
    tolerations: tuple[Any, ...]


@value(kw_only=True)
class Leaves:
    """Some leaves of the topology `number`."""

    number: int
    leaves: tuple[Leaf, ...]


@value(kw_only=True)
class ForgetTree:
    """The topology `number` is not used any more."""

    number: int


@value(kw_only=True)
class FlavorCapacity:
    """The free amounts of a flavor; `idle` are those without workloads."""

    flavor: str
    tree: int
    name: str
    unusable: tuple[str, ...]
    free: Tables
    idle: Tables | None


@value(kw_only=True)
class AdmittedPart:
    """Some workloads of a ClusterQueue that hold quota."""

    queue: str
    workloads: Mapping[str, Admitted]


@value(kw_only=True)
class HeadsPart:
    """Some workloads of the batch, in the order of their ClusterQueue."""

    queue: str
    heads: tuple[Head, ...]


@value(kw_only=True)
class Ask:
    """All that is left of a round; the process answers it."""

    round: int
    snapshot: Snapshot
    given: RoundInput


@value(kw_only=True)
class RoundFailed:
    """The process has failed on the round, or on the search of this number."""

    round: int
    problem: str


@value(kw_only=True)
class GangsPart:
    """Some running workloads, for a search."""

    gangs: tuple[RunningGang, ...]


@value(kw_only=True)
class Defragment:
    """All that is left of a search for moves; the process answers it."""

    search: int
    goal: Goal
    settings: DefragSettings


@value(kw_only=True)
class Defragmented:
    """The answer to `Defragment`."""

    search: int
    found: DefragPlan | NoPlan


@dataclass(slots=True)
class TreeNumbers:
    """The topologies that the process has; a tree is kept while it has a number, so that its identity stays unique."""

    known: dict[int, tuple[int, Tree]] = field(default_factory=dict)
    last: int = 0

    def of(self, tree: Tree) -> tuple[int, bool]:
        """Return the number of a topology, and whether it is new."""
        found = self.known.get(id(tree))
        if found is not None:
            return found[0], False
        self.last += 1
        self.known[id(tree)] = self.last, tree
        return self.last, True

    def forget_others(self, trees: Iterable[Tree]) -> list[int]:
        """Forget all topologies but these; return the numbers of the forgotten ones."""
        used = {id(tree) for tree in trees}
        gone = [self.known.pop(known)[0] for known in list(self.known) if known not in used]
        return sorted(gone)


def pieces(number: int, given: RoundInput, trees: TreeNumbers) -> Iterator[bytes]:
    """Yield the messages of a round; the state must not change before the first one was yielded.

    `trees` are the topologies that the process has already; it is changed.
    """
    snapshot = given.state.snapshot
    views = snapshot.topologies
    rest = replace(snapshot, topologies={}, admitted={})
    ask = Ask(
        round=number,
        snapshot=rest,
        given=replace(
            given,
            state=PlannedState(snapshot=_NOTHING, rules=given.state.rules),
            batch=replace(given.batch, queues={}),
            solver=None,
        ),
    )
    last = _dumped(ask)  # the quota trees belong to the next cycle, so they are written first
    admitted = {queue: dict(workloads) for queue, workloads in snapshot.admitted.items()}
    for gone in trees.forget_others(view.tree for view in views.values()):
        yield _dumped(ForgetTree(number=gone))
    for flavor, view in views.items():
        yield from _capacity(flavor, view, trees)
    for queue, workloads in admitted.items():
        for some in _parts(workloads.items(), _WORKLOADS):
            yield _dumped(AdmittedPart(queue=queue, workloads=dict(some)))
    for queue, heads in given.batch.queues.items():
        for part in _parts(heads, _HEADS):
            yield _dumped(HeadsPart(queue=queue, heads=part))
    yield last


def search_pieces(number: int, question: DefragQuestion, trees: TreeNumbers) -> Iterator[bytes]:
    """Yield the messages of a search; its input must not change before the last one was yielded.

    `trees` are the topologies that the process has already; it is changed.
    """
    for gone in trees.forget_others(view.tree for view in question.topologies.values()):
        yield _dumped(ForgetTree(number=gone))
    for flavor, view in question.topologies.items():
        yield from _capacity(flavor, view, trees)
    for gangs in _parts(question.running, _GANGS):
        yield _dumped(GangsPart(gangs=gangs))
    yield _dumped(Defragment(search=number, goal=question.goal, settings=question.settings))


def _capacity(flavor: str, view: TopologyView, trees: TreeNumbers) -> Iterator[bytes]:
    tree, capacity = view.tree, view.capacity
    number, is_new = trees.of(tree)
    if is_new:
        yield _dumped(
            TreeBegins(number=number, topology=tree.topology, levels=tree.levels, tolerations=tree.tolerations)
        )
        for some in _parts(tree.leaves, _LEAVES):
            yield _dumped(Leaves(number=number, leaves=some))
    idle = capacity.empty()
    yield _dumped(
        FlavorCapacity(
            flavor=flavor,
            tree=number,
            name=view.name,
            unusable=view.unusable,
            free=capacity.tables(),
            idle=idle.tables() if idle is not capacity else None,
        )
    )


_NOTHING = Snapshot(queues={}, nodes={}, flavors={}, topologies={})


def _parts(values: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Yield the values in tuples of at most this size."""
    rest = iter(values)
    while some := tuple(islice(rest, size)):
        yield some


def _dumped(message: object) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


@dataclass(slots=True)
class Assembly:
    """Puts the messages of rounds and of searches together, in the process that plans."""

    _begun: dict[int, tuple[TreeBegins, list[Leaf]]] = field(default_factory=dict)
    _trees: dict[int, Tree] = field(default_factory=dict)
    _views: dict[str, TopologyView] = field(default_factory=dict)
    _admitted: dict[str, dict[str, Admitted]] = field(default_factory=dict)
    _heads: dict[str, list[Head]] = field(default_factory=dict)
    _gangs: list[RunningGang] = field(default_factory=list)

    def take(self, data: bytes) -> tuple[int, RoundInput | DefragQuestion] | None:
        """Take a message; return the round or the search that it completes, and its number."""
        match pickle.loads(data):
            case TreeBegins() as begins:
                self._begun[begins.number] = begins, []
            case Leaves() as some:
                self._begun[some.number][1].extend(some.leaves)
            case ForgetTree() as gone:
                self._trees.pop(gone.number, None)
            case FlavorCapacity() as capacity:
                self._views[capacity.flavor] = self._view(capacity)
            case AdmittedPart() as part:
                self._admitted.setdefault(part.queue, {}).update(part.workloads)
            case HeadsPart() as heads:
                self._heads.setdefault(heads.queue, []).extend(heads.heads)
            case Ask() as ask:
                return ask.round, self._whole(ask)
            case GangsPart() as some_gangs:
                self._gangs.extend(some_gangs.gangs)
            case Defragment() as search:
                return search.search, self._question(search)
            case other:
                raise TypeError(f"a message of the type {type(other).__name__} is unknown")
        return None

    def _view(self, capacity: FlavorCapacity) -> TopologyView:
        begun = self._begun.pop(capacity.tree, None)
        if begun is not None:
            begins, leaves = begun
            self._trees[capacity.tree] = Tree(
                topology=begins.topology, levels=begins.levels, leaves=leaves, tolerations=begins.tolerations
            )
        tree = self._trees[capacity.tree]
        free = Capacity.of_tables(tree, capacity.free, capacity.idle)
        return TopologyView(capacity.name, tree, free, capacity.unusable)

    def _whole(self, ask: Ask) -> RoundInput:
        snapshot = replace(ask.snapshot, topologies=self._views, admitted=self._admitted)
        queues = {queue: tuple(heads) for queue, heads in self._heads.items()}
        self._views, self._admitted, self._heads = {}, {}, {}
        state = replace(ask.given.state, snapshot=snapshot)
        return replace(ask.given, state=state, batch=Batch(queues=queues, strict=ask.given.batch.strict))

    def _question(self, search: Defragment) -> DefragQuestion:
        question = DefragQuestion(
            topologies=self._views, goal=search.goal, running=self._gangs, settings=search.settings
        )
        self._views, self._gangs = {}, []
        return question
