"""The messages between the manager and the process that plans rounds and searches for moves.

A world of 12,500 hosts is sent in many small pieces, so that the event loop is never held for long.  A topology is sent
once, then only the leaves that come, go or change; of free amounts and workloads only what has changed since the last
round.  The last message of a round has a fingerprint of all that the process should have; a process that has something
else asks for everything anew.  Both ends are the same version of kqueue, and the process is a child of the manager, so
that pickled values are safe here.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, DefragSettings, Goal, NoPlan
from kqueue.core.joint.moving import RunningGang
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.running import NOTHING_RUNS, RunningInput
from kqueue.core.joint.statistics import NO_STATISTICS, NodeStatistics
from kqueue.core.lost_work import Checkpoints
from kqueue.core.planned_state import PlannedState
from kqueue.core.topology import Leaf, Tree
from kqueue.core.topology.tree import Ints
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Head, Snapshot, TopologyView

_LEAVES, WORKLOADS, _HEADS, _GANGS, _MEASURED_NODES = 400, 200, 20, 20, 1_000
"""Values of one piece: each takes a few milliseconds."""

_WHOLE = 4
"""Free amounts are sent whole when a fourth of the leaves has changed."""

T = TypeVar("T")
Tables = tuple[Sequence[str], Ints]
Held = tuple[TopologyView, Tables, Tables | None]
"""The domains of a flavor, and copies of their free amounts, with and without workloads."""


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
class TreeEdit:
    """The topology `number`: the topology `base` without some of its leaves, and with others.

    Args:
        removed: the numbers of leaves in `base`.
    """

    number: int
    base: int
    removed: tuple[int, ...]
    added: tuple[Leaf, ...]


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
class FreeLeaves:
    """Free amounts of some leaves of a flavor, of all its resources in their order; `idle` None: it has none."""

    flavor: str
    name: str
    unusable: tuple[str, ...]
    leaves: Ints
    free: Ints
    idle: Ints | None


@value(kw_only=True)
class ForgetFlavor:
    """The flavor has no domains any more."""

    flavor: str


@value(kw_only=True)
class AdmittedPart:
    """Workloads of a ClusterQueue that hold quota: some that are new or changed, and the keys of some that are gone."""

    queue: str
    workloads: Mapping[str, Admitted]
    gone: tuple[str, ...] = ()


@value(kw_only=True)
class HeadsPart:
    """Workloads of the batch: some that are new or changed, and the UIDs of some that are in it no more."""

    heads: tuple[Head, ...]
    gone: tuple[str, ...] = ()


@value(kw_only=True)
class MovablePart:
    """Some running workloads that may be moved."""

    gangs: tuple[RunningGang, ...]


@value(kw_only=True)
class CheckpointsPart:
    """Times of checkpoints of some running workloads, by UID."""

    of: Mapping[str, Checkpoints]


@value(kw_only=True)
class StatisticsPart:
    """The measured use of some nodes, or of some kinds of pods; `is_first`: what was sent before does not count."""

    statistics: NodeStatistics
    is_first: bool


@value(kw_only=True)
class Ask:
    """All that is left of a round; the process answers it.

    Args:
        rest: the pickled `Rest`.
        fingerprint: of all that the process has, if it has taken all messages.
    """

    round: int
    rest: bytes
    fingerprint: int


@value(kw_only=True)
class Rest:
    """The values that are sent whole with each round.

    Args:
        snapshot: without domains and admitted workloads.
        given: without the state and the workloads of the batch.
        flavors: with domains, in their order.
        admitted: ClusterQueues, in their order.
        batch: UIDs by ClusterQueue, in their order.
    """

    snapshot: Snapshot
    given: RoundInput
    flavors: tuple[str, ...]
    admitted: tuple[str, ...]
    batch: Mapping[str, tuple[str, ...]]


@value(kw_only=True)
class RoundFailed:
    """The process has failed on the round, or on the search of this number."""

    round: int
    problem: str


@value(kw_only=True)
class Resync:
    """The process has something else than it should have; it has forgotten all, and needs everything anew."""

    round: int


def fingerprint(
    messages: int, free: Mapping[str, Tables], admitted: Mapping[str, Sized], heads: Mapping[str, Head]
) -> int:
    """Return 64 bits that follow from the number of messages, sums of free amounts, and the number of workloads."""
    sums = sorted((flavor, *rows, *table.sum(axis=1).tolist()) for flavor, (rows, table) in free.items())
    sizes = sorted((queue, len(some)) for queue, some in admitted.items() if len(some))
    text = repr((messages, sums, sizes, len(heads)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@value(kw_only=True)
class SearchCapacity:
    """The domains of a flavor and their free amounts, for a search alone."""

    capacity: FlavorCapacity


@value(kw_only=True)
class GangsPart:
    """Some running workloads, for a search."""

    gangs: tuple[RunningGang, ...]


CHANGES = (
    *(TreeBegins, Leaves, TreeEdit, ForgetTree, FlavorCapacity, FreeLeaves, ForgetFlavor, AdmittedPart, HeadsPart),
    *(MovablePart, CheckpointsPart, StatisticsPart, SearchCapacity, GangsPart),
)
"""Messages that change what the process has; it counts them."""


@value(kw_only=True)
class Defragment:
    """All that is left of a search for moves; the process answers it.

    `messages`: the number of messages that the process has taken, if none was lost.
    """

    search: int
    goal: Goal
    settings: DefragSettings
    messages: int


@value(kw_only=True)
class Defragmented:
    """The answer to `Defragment`."""

    search: int
    found: DefragPlan | NoPlan


@dataclass(slots=True)
class Sent:
    """The values that the process has already."""

    messages: int = 0
    """Messages that change what it has."""
    trees: dict[int, tuple[int, Tree]] = field(default_factory=dict)
    """By identity, the number of each topology; a tree is kept while it has a number, so that its identity stays
    unique.
    """
    last_tree: int = 0
    flavors: dict[str, FlavorCapacity] = field(default_factory=dict)
    admitted: dict[str, dict[str, Admitted]] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)
    measured: NodeStatistics = NO_STATISTICS

    def number_of(self, tree: Tree) -> tuple[int, bool]:
        """Return the number of a topology, and whether it is new."""
        found = self.trees.get(id(tree))
        if found is not None:
            return found[0], False
        self.last_tree += 1
        self.trees[id(tree)] = self.last_tree, tree
        return self.last_tree, True

    def tree_of(self, flavor: str) -> tuple[int, Tree] | None:
        """Return the topology that a flavor had in the last round, with its number; None: it had none."""
        before = self.flavors.get(flavor)
        return next((one for one in self.trees.values() if before is not None and one[0] == before.tree), None)

    def forget_trees(self, used: Iterable[Tree]) -> list[int]:
        """Forget all topologies but these; return the numbers of the forgotten ones."""
        kept = {id(tree) for tree in used}
        return sorted([self.trees.pop(known)[0] for known in list(self.trees) if known not in kept])

    def fingerprint(self) -> int:
        """Return the fingerprint of what the process has."""
        free = {flavor: sent.free for flavor, sent in self.flavors.items()}
        return fingerprint(self.messages, free, self.admitted, self.heads)

    def changing(self, message: object) -> bytes:
        """Return a message that changes what the process has."""
        self.messages += 1
        return dumped(message)


@value(kw_only=True)
class RoundMessages:
    """The content of the messages of one round, which does not change with the state any more."""

    round: int
    rest: bytes
    views: Mapping[str, Held]
    admitted: Mapping[str, Mapping[str, Admitted]]
    heads: Mapping[str, Head]
    running: RunningInput
    measured: NodeStatistics

    @classmethod
    def of(cls, number: int, given: RoundInput) -> RoundMessages:
        """Read all of the state that may change after the call."""
        snapshot = given.state.snapshot
        queues = given.batch.queues
        rest = Rest(
            snapshot=replace(snapshot, topologies={}, admitted={}),
            given=replace(
                given,
                state=PlannedState(snapshot=NOTHING, rules=given.state.rules),
                batch=replace(given.batch, queues={}),
                solver=None,
                kept=None,
                running=NOTHING_RUNS,
                policies=replace(given.policies, statistics=NO_STATISTICS),
            ),
            flavors=tuple(snapshot.topologies),
            admitted=tuple(snapshot.admitted),
            batch={queue: tuple([head.uid for head in heads]) for queue, heads in queues.items()},
        )
        return cls(
            round=number,
            rest=dumped(rest),
            views=held(snapshot.topologies),
            admitted={queue: dict(workloads) for queue, workloads in snapshot.admitted.items()},
            heads={head.uid: head for heads in queues.values() for head in heads},
            running=given.running,
            measured=given.policies.statistics,
        )

    def pieces(self, sent: Sent) -> Iterator[bytes]:
        """Yield the messages to a process that has already what was sent, which is changed."""
        yield from state_pieces(self.views, self.admitted, self.heads, sent)
        for gangs in parts(self.running.movable, _GANGS):
            yield sent.changing(MovablePart(gangs=gangs))
        for times in parts(self.running.checkpoints.items(), WORKLOADS):
            yield sent.changing(CheckpointsPart(of=dict(times)))
        if not self.measured.equals(sent.measured):
            sent.measured = self.measured
            for number, part in enumerate(_measured(self.measured)):
                yield sent.changing(StatisticsPart(statistics=part, is_first=not number))
        yield dumped(Ask(round=self.round, rest=self.rest, fingerprint=sent.fingerprint()))


def state_pieces(
    views: Mapping[str, Held],
    admitted: Mapping[str, Mapping[str, Admitted]],
    heads: Mapping[str, Head],
    sent: Sent,
) -> Iterator[bytes]:
    """Yield the messages that give the process these domains, workloads by ClusterQueue, and heads by UID."""
    yield from view_pieces(views, sent)
    for queue in {**sent.admitted, **admitted}:
        new, left = _changes(sent.admitted.setdefault(queue, {}), admitted.get(queue, {}))
        for some, gone_keys in _in_parts(new, left, WORKLOADS):
            yield sent.changing(AdmittedPart(queue=queue, workloads=some, gone=gone_keys))
    new_heads, no_more = _changes(sent.heads, heads)
    for some_heads, uids in _in_parts(new_heads, no_more, _HEADS):
        yield sent.changing(HeadsPart(heads=tuple(some_heads.values()), gone=uids))


def pieces(number: int, given: RoundInput, sent: Sent) -> Iterator[bytes]:
    """Return the messages of a round; the call reads all of the state that may change.  `sent` is changed."""
    return RoundMessages.of(number, given).pieces(sent)


def search_pieces(number: int, question: DefragQuestion, sent: Sent) -> Iterator[bytes]:
    """Yield the messages of a search; its input must not change before the last one was yielded.  `sent` is changed.

    They leave what the process keeps for rounds as it is, but for new topologies.
    """
    for flavor, one in held(question.topologies).items():
        yield from _tree_pieces(flavor, one[0].tree, sent)
        yield sent.changing(SearchCapacity(capacity=_capacity(flavor, one, sent)))
    for gangs in parts(question.running, _GANGS):
        yield sent.changing(GangsPart(gangs=gangs))
    yield dumped(Defragment(search=number, goal=question.goal, settings=question.settings, messages=sent.messages))


def held(topologies: Mapping[str, TopologyView]) -> dict[str, Held]:
    """Return topologies with copies of their free amounts, which may change after the call."""
    found: dict[str, Held] = {}
    for flavor, view in topologies.items():
        idle = view.capacity.empty()
        found[flavor] = view, view.capacity.tables(), idle.tables() if idle is not view.capacity else None
    return found


def view_pieces(views: Mapping[str, Held], sent: Sent) -> Iterator[bytes]:
    """Yield the messages that give the process these domains and free amounts, and no others."""
    for flavor, (view, _, _) in views.items():  # before the topologies are forgotten of which they are edits
        yield from _tree_pieces(flavor, view.tree, sent)
    for gone in sent.forget_trees(view.tree for view, _, _ in views.values()):
        yield sent.changing(ForgetTree(number=gone))
    for flavor in [flavor for flavor in sent.flavors if flavor not in views]:
        del sent.flavors[flavor]
        yield sent.changing(ForgetFlavor(flavor=flavor))
    for flavor, one in views.items():
        yield from _flavor_pieces(flavor, one, sent)


def _flavor_pieces(flavor: str, one: Held, sent: Sent) -> Iterator[bytes]:
    whole = _capacity(flavor, one, sent)
    before, sent.flavors[flavor] = sent.flavors.get(flavor), whole
    part = _difference(before, whole) if before is not None else None
    if part is None:
        yield sent.changing(whole)
    elif before is None or len(part.leaves) or (before.name, before.unusable) != (whole.name, whole.unusable):
        yield sent.changing(part)


def _tree_pieces(flavor: str, tree: Tree, sent: Sent) -> Iterator[bytes]:
    """Yield the messages that give the process a topology, unless it has it."""
    number, is_new = sent.number_of(tree)
    if not is_new:
        return
    base = sent.tree_of(flavor)
    edit = _edit(number, *base, tree) if base is not None else None
    if edit is not None:
        yield sent.changing(edit)
    else:
        begins = TreeBegins(number=number, topology=tree.topology, levels=tree.levels, tolerations=tree.tolerations)
        yield sent.changing(begins)
        for some in parts(tree.leaves, _LEAVES):
            yield sent.changing(Leaves(number=number, leaves=some))


def _edit(number: int, base: int, before: Tree, now: Tree) -> TreeEdit | None:
    """Return the difference between two topologies; None: too much differs for one message."""
    if (before.topology, before.levels, before.tolerations) != (now.topology, now.levels, now.tolerations):
        return None
    theirs, mine = dict(zip(now.paths, now.leaves, strict=True)), dict(zip(before.paths, before.leaves, strict=True))
    removed = [n for n, (path, leaf) in enumerate(mine.items()) if theirs.get(path) is not leaf]
    added = [leaf for path, leaf in theirs.items() if mine.get(path) is not leaf]
    if len(added) > _LEAVES or len(removed) > _WHOLE * _LEAVES:
        return None
    return TreeEdit(number=number, base=base, removed=tuple(removed), added=tuple(added))


def _capacity(flavor: str, one: Held, sent: Sent) -> FlavorCapacity:
    """Return the free amounts of a flavor whose topology was sent."""
    view, free, idle = one
    number, _ = sent.number_of(view.tree)
    return FlavorCapacity(flavor=flavor, tree=number, name=view.name, unusable=view.unusable, free=free, idle=idle)


def _difference(before: FlavorCapacity, now: FlavorCapacity) -> FreeLeaves | None:
    """Return what has changed; None: it is sent whole, because most has changed."""
    if before.tree != now.tree or _rows(before) != _rows(now):
        return None
    tables = [(before.free[1], now.free[1])]
    if before.idle is not None and now.idle is not None:
        tables.append((before.idle[1], now.idle[1]))
    size = now.free[1].shape[1]
    changed = np.zeros(size, dtype=np.bool_)
    for old, new in tables:
        changed |= (old != new).any(axis=0)
    leaves = np.flatnonzero(changed)
    if len(leaves) * _WHOLE > size:
        return None
    return FreeLeaves(
        flavor=now.flavor,
        name=now.name,
        unusable=now.unusable,
        leaves=leaves,
        free=now.free[1][:, leaves],
        idle=now.idle[1][:, leaves] if now.idle is not None else None,
    )


def _rows(sent: FlavorCapacity) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the resources, in the order of their rows."""
    return tuple(sent.free[0]), tuple(sent.idle[0]) if sent.idle is not None else None


def _changes(known: dict[str, T], now: Mapping[str, T]) -> tuple[dict[str, T], list[str]]:
    """Bring what was sent up to date; return what is new or has changed, and the keys of what is gone."""
    new = {key: one for key, one in now.items() if (old := known.get(key)) is not one and old != one}
    gone = [key for key in known if key not in now]
    known.update(new)
    for key in gone:
        del known[key]
    return new, gone


def _in_parts(new: Mapping[str, T], gone: Sequence[str], size: int) -> Iterator[tuple[dict[str, T], tuple[str, ...]]]:
    """Yield the changes in parts: first what is new, then what is gone."""
    for some in parts(new.items(), size):
        yield dict(some), ()
    for keys in parts(gone, size * 10):
        yield {}, keys


NOTHING = Snapshot(queues={}, nodes={}, flavors={}, topologies={})


def parts(values: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Yield the values in tuples of at most this size."""
    rest = iter(values)
    while some := tuple(islice(rest, size)):
        yield some


def dumped(message: object) -> bytes:
    """Return a message in the form in which it is sent."""
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def _measured(use: NodeStatistics) -> Iterator[NodeStatistics]:
    """Yield the measured use in parts, at least one; it is empty unless a policy of the round looks at it."""
    for begin in range(0, len(use.nodes) or 1, _MEASURED_NODES):
        some = slice(begin, begin + _MEASURED_NODES)
        yield NodeStatistics(use.nodes[some], use.samples[:, :, some], {})
    for means in parts(use.means.items(), _MEASURED_NODES):
        yield NodeStatistics(means=dict(means))
