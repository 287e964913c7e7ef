"""Cycles as entries: each says what has changed since the one before."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from kqueue.core.hints import PlanHint
from kqueue.core.quota import Usage
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.tree import Ints, Leaf, Tree
from kqueue.core.workload import Admitted, Claim, Flavor, Head, Leader, PodSet, Promise, QueueSpec
from kqueue.record.answer import answer
from kqueue.record.capture import CapturedCycle, QuotaTreeState, TopologyState
from kqueue.record.entries import (
    Answered,
    Asked,
    Cycle,
    FreeAmounts,
    FreeChanges,
    HeadReference,
    HoldingChanges,
    LineChanges,
    Pieces,
    StartTimesTold,
    ToldIntervalForm,
    WaitsBehind,
    piece_hash,
    to_text,
)
from kqueue.record.forms import (
    QuestionForm,
    QuotaNodeForm,
    RulesForm,
    TopologyForm,
    form_of_question,
    form_of_rules,
)
from kqueue.record.plain import Plain, Writers
from kqueue.record.plugin_questions import ProfileForm

_WRITERS = Writers(canonical=False)
_PIECES_BYTES = 1 << 20
"""The size beyond which pieces are written as another entry."""
_CHUNK_CUT, _CHUNK_MOST = 64, 256
"""Leaves of a tree in one piece: about so many, by a hash of their paths, so that a new leaf changes one piece."""
_REMEMBERED = 50_000
"""Values whose hash is remembered by their identity."""


class CycleEncoder:
    """Encodes the cycles of one file; `Begin` is the caller's."""

    def __init__(self) -> None:
        self._written: set[str] = set()
        """The hashes of the pieces in this file."""
        self._new: dict[str, bytes] = {}
        """Pieces for the next entry."""
        self._slots: dict[str, str] = {}
        self._hashes: dict[tuple[int, Any], tuple[object, str]] = {}
        """Hashes of values by identity and type; the value is kept, so that its identity stays unique."""
        self._trees: dict[str, QuotaTreeState] = {}
        self._domains: dict[str, _Domains] = {}
        self._admitted: dict[str, Mapping[str, Admitted]] = {}
        self._lines: dict[str, Mapping[str, Head]] = {}

    def entries(self, captured: CapturedCycle) -> Iterator[bytes]:
        """Yield the texts of the entries of a cycle: start times told before it, its new pieces, then itself."""
        if captured.told:
            forms = [ToldIntervalForm(one.uid, one.at.isoformat(), one.p50, one.p90) for one in captured.told]
            yield to_text(StartTimesTold(starts=forms))
        before = dict(self._slots)
        cycle = self._cycle(captured, before)
        yield from self._pieces()
        yield to_text(cycle)

    def _cycle(self, captured: CapturedCycle, before: Mapping[str, str]) -> Cycle:
        question = captured.question
        snapshot = question.snapshot
        self._slots["flavors"] = self._piece(snapshot.flavors, Mapping[str, Flavor])
        self._slots["rules"] = self._piece(form_of_rules(question.rules), RulesForm)
        self._slots["question"] = self._piece(form_of_question(question), QuestionForm)
        for name, spec in snapshot.queues.items():
            self._slots[f"spec/{name}"] = self._known_piece(spec, QueueSpec)
        usage = {tree.key: changed for tree in captured.trees if (changed := self._usage(tree))}
        answers = captured.answers if captured.answers is not None else map(answer, captured.decisions)
        answered, unanswered = self._answered(captured)
        free = {name: new for name, state in captured.topologies.items() if (new := self._free(name, state))}
        return Cycle(
            number=captured.number,
            now=question.rules.now.isoformat(),
            trees=[tree.key for tree in captured.trees],
            topologies=list(captured.topologies),
            queues=list(snapshot.queues),
            usage=usage,
            free=free,
            admitted=dict(self._holdings(captured.cluster_queues, captured.admitted)),
            inactive=dict(snapshot.inactive),
            claims=[self._known_piece(claim, Claim) for claim in snapshot.claims],
            promises=[self._piece(promise, Promise) for promise in snapshot.promises],
            leaders={name: self._piece(leader, Leader) for name, leader in snapshot.leaders.items()},
            heads=[self._head(head) for head in question.heads],
            hints={uid: self._known_piece(hint, PlanHint) for uid, hint in question.hints.items()},
            asked=[
                Asked(queue, list(without), self._head(head) if head is not None else None)
                for queue, without, head in captured.asked
            ],
            strict=list(captured.lines),
            behind=dict(self._behind(captured)),
            plugins=list(captured.plugins),
            answers=answered,
            unanswered=unanswered,
            decisions=list(map(msgspec.Raw, answers)),
            error=captured.error,
            slots={slot: piece for slot, piece in self._slots.items() if before.get(slot) != piece},
        )

    # --- pieces

    def _pieces(self) -> Iterator[bytes]:
        some: dict[str, msgspec.Raw] = {}
        size = 0
        for name, text in self._new.items():
            some[name] = msgspec.Raw(text)
            size += len(text)
            if size > _PIECES_BYTES:
                yield to_text(Pieces(pieces=some))
                some, size = {}, 0
        self._new = {}
        if some:
            yield to_text(Pieces(pieces=some))

    def _piece(self, value: Any, kind: Any) -> str:
        return self._text(to_text(_WRITERS.of(kind)(value)))

    def _text(self, text: bytes) -> str:
        name = piece_hash(text)
        if name not in self._written:
            self._written.add(name)
            self._new[name] = text
        return name

    def _known_piece(self, value: Any, kind: Any) -> str:
        """Return the hash of a value that never changes."""
        known = self._hashes.get((id(value), kind))
        if known is None:
            if len(self._hashes) > _REMEMBERED:
                self._hashes.clear()
            known = self._hashes[id(value), kind] = value, self._piece(value, kind)
        return known[1]

    def _head(self, head: Head) -> HeadReference:
        pod_sets = [self._known_piece(pod_set, PodSet) for pod_set in head.pod_sets]
        return HeadReference(self._piece(replace(head, pod_sets=()), Head), pod_sets)

    # --- StrictFIFO and plugins

    def _behind(self, captured: CapturedCycle) -> Iterator[tuple[str, LineChanges]]:
        """Yield the changes of lines behind heads; a ClusterQueue that is StrictFIFO no more loses its line."""
        for queue in {head.queue for head in captured.question.heads} - captured.lines.keys():
            self._lines.pop(queue, None)
        for queue, line in captured.lines.items():
            before = self._lines.get(queue, {})
            if line is before:
                continue
            self._lines[queue] = line
            add = [
                WaitsBehind(head.key, uid, self._head(head))
                for uid, head in line.items()
                if before.get(uid) is not head
            ]
            drop = [uid for uid in before if uid not in line]
            if add or drop:
                yield queue, LineChanges(drop=drop, add=add)

    def _answered(self, captured: CapturedCycle) -> tuple[list[Answered], int]:
        answers = captured.plugin_answers
        if answers is None:
            return [], 0
        self._slots["plugins"] = self._piece(answers.profiles, Mapping[str, ProfileForm])
        found, left_out = answers.texts()
        return [
            Answered(one.question.value, one.name, [self._text(text) for text in _without_repeats(one.texts)])
            for one in found
        ], left_out

    # --- quota

    def _usage(self, tree: QuotaTreeState) -> list[tuple[int, list[tuple[tuple[str, str], int]]]]:
        before = self._trees.get(tree.key)
        if before is tree:
            return []
        self._trees[tree.key] = tree
        is_same = before is not None and before.shape is tree.shape and all(map(is_, before.quotas, tree.quotas))
        if not is_same:
            nodes = [
                QuotaNodeForm(node.name, node.is_cohort, parent, quotas, node.weight)
                for node, parent, quotas in zip(tree.shape.nodes, tree.shape.parents, tree.quotas, strict=True)
            ]
            name, slot = self._piece(nodes, list[QuotaNodeForm]), f"tree/{tree.key}"
            is_same = self._slots.get(slot) == name
            self._slots[slot] = name
        old: Sequence[Usage] = before.usage if before is not None and is_same else [{}] * len(tree.usage)
        return [
            (number, [((column.flavor, column.resource), amount) for column, amount in usage.items()])
            for number, usage in enumerate(tree.usage)
            if usage != old[number]
        ]

    # --- domains

    def _free(self, name: str, state: TopologyState) -> FreeChanges | None:
        known = self._domains.get(name)
        if known is None or known.tree is not state.tree or known.about != (state.topology, state.unusable):
            chunks = dict(self._chunks(state.tree, known.chunks if known is not None else {}))
            form = TopologyForm(
                name=state.topology,
                topology=state.tree.topology,
                levels=state.tree.levels,
                tolerations=state.tree.tolerations,
                unusable=state.unusable,
                chunks=tuple(piece for _, piece in chunks.values()),
            )
            self._slots[f"topology/{name}"] = self._piece(form, TopologyForm)
            if known is None or known.tree is not state.tree:
                known = self._domains[name] = _Domains(state.tree)
            known.about, known.chunks = (state.topology, state.unusable), chunks
        return known.changes(state.capacity)

    def _chunks(self, tree: Tree, before: _Chunks) -> Iterator[tuple[tuple[str, ...], tuple[tuple[Leaf, ...], str]]]:
        """Yield the leaves in pieces, by the path of the first leaf; pieces that have not changed are encoded once."""
        begin = 0
        for i, leaf in enumerate(tree.leaves, start=1):
            is_cut = crc32("\0".join(leaf.path).encode()) % _CHUNK_CUT == 0 or i - begin >= _CHUNK_MOST
            if not is_cut and i < len(tree.leaves):
                continue
            leaves, first = tree.leaves[begin:i], tree.leaves[begin].path
            known = before.get(first)
            is_known = known is not None and len(known[0]) == len(leaves) and all(map(is_, known[0], leaves))
            yield first, known if known is not None and is_known else (leaves, self._piece(leaves, tuple[Leaf, ...]))
            begin = i

    # --- holdings

    def _holdings(
        self, queues: Collection[str], admitted: Mapping[str, Mapping[str, Admitted]]
    ) -> Iterator[tuple[str, HoldingChanges]]:
        write = _WRITERS.of(Admitted)
        for queue in queues:
            now, before = admitted.get(queue, {}), self._admitted.get(queue, {})
            if now is before:
                continue
            self._admitted[queue] = now
            changed = {key: one for key, one in now.items() if before.get(key) is not one}
            gone = [key for key in before if key not in now]
            if not changed and not gone and len(now) == len(before):
                continue
            left = [key for key in before if key in now]
            is_in_order = [*left, *(key for key in changed if key not in before)] == list(now)
            if is_in_order:
                yield queue, HoldingChanges(drop=gone, set=[_raw(write(one)) for one in changed.values()])
            else:
                yield queue, HoldingChanges(all=True, set=[_raw(write(one)) for one in now.values()])


def _without_repeats(texts: list[bytes]) -> list[bytes]:
    """Return the texts without those at the end that repeat the one before."""
    last = len(texts)
    while last > 1 and texts[last - 1] == texts[last - 2]:
        last -= 1
    return texts[:last]


_Chunks = Mapping[tuple[str, ...], tuple[tuple[Leaf, ...], str]]


class _Domains:
    """The domains of a flavor as they were written last."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.about: tuple[str, tuple[str, ...]] | None = None
        self.chunks: _Chunks = {}
        self._free: tuple[tuple[str, ...], Ints] | None = None
        self._idle: tuple[tuple[str, ...], Ints] | None = None

    def changes(self, capacity: Capacity) -> FreeChanges | None:
        """Return what has changed since the last call; None: nothing."""
        is_first, empty = self._free is None, capacity.empty()
        free, self._free = self._free, capacity.tables()
        idle, self._idle = self._idle, empty.tables() if empty is not capacity else None
        new_free = _amounts(free, self._free)
        new_idle = _amounts(idle, self._idle) if self._idle is not None else None
        if not is_first and new_free is None and new_idle is None and (idle is None) == (self._idle is None):
            return None
        return FreeChanges(has_idle=self._idle is not None, free=new_free, idle=new_idle)


def _raw(value: Plain) -> Any:
    """Return a value as its text, which a later encoding copies.

    The encoder holds the interpreter as long as it runs, and the event loop with it: ten milliseconds for a cycle with
    2,500 workloads that run.  In parts it holds each of them for a moment.
    """
    return msgspec.Raw(to_text(value))


def _amounts(before: tuple[Sequence[str], Ints] | None, now: tuple[Sequence[str], Ints]) -> FreeAmounts | None:
    resources, table = now
    if before is None or list(before[0]) != list(resources):
        return FreeAmounts(resources=list(resources), rows=[_raw(row.tolist()) for row in table])
    leaves = np.flatnonzero((before[1] != table).any(axis=0))
    if not len(leaves):
        return None
    return FreeAmounts(resources=list(resources), rows=table[:, leaves].tolist(), leaves=leaves.tolist())
