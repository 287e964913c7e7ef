"""Entries as cycles: the questions of a file, one after the other, with the recorded answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import is_
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from kqueue.core import quota
from kqueue.core.hints import PlanHint
from kqueue.core.hooks import HooksByProfile
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.quota import FlavorResource, QuotaNode, TreeCopy
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.tree import Ints, Leaf, Tree
from kqueue.core.workload import (
    Admitted,
    Claim,
    Flavor,
    Head,
    Leader,
    PodSet,
    Promise,
    QueueSpec,
    Snapshot,
    TopologyView,
)
from kqueue.record.entries import (
    Answered,
    Cycle,
    FreeAmounts,
    FreeChanges,
    HeadReference,
    HoldingChanges,
    LineChanges,
    Pieces,
    WaitsBehind,
    piece_hash,
)
from kqueue.record.forms import QuestionForm, QuotaNodeForm, RulesForm, TopologyForm
from kqueue.record.plain import UnreadableValueError, at, reader
from kqueue.record.plugin_answers import AnsweredQuestion
from kqueue.record.plugin_questions import PluginQuestion, ProfileForm, read_answer
from kqueue.record.plugin_replay import RecordedAnswer, RecordedAnswers

T = TypeVar("T")

_MOST_HELD = 1 << 30
"""Bytes of pieces of one file that are held at a time: a hostile file must not fill the memory."""
_MOST_BEHIND = 1_000_000
"""Workloads behind the heads of StrictFIFO ClusterQueues: a hostile file must not fill the memory."""
_DEEPEST = 64
"""Levels of a quota tree: Kueue's cohorts have a few."""


@dataclass(slots=True, kw_only=True)
class RecordedCycle:
    """A recorded question with its answers.  Its snapshot is valid until the next cycle of the file is read.

    `asked`: the answers of `next_head`, by ClusterQueue and workloads to leave out.
    `lines`: as in `CapturedCycle`.
    `plugin_answers`: None where the record has none.
    """

    number: int
    question: PlanQuestion
    asked: Mapping[tuple[str, tuple[str, ...]], Head | None] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, Head]] = field(default_factory=dict)
    plugins: Collection[str] = ()
    plugin_answers: RecordedAnswers | None = None
    answers: Sequence[bytes] = ()
    error: str = ""
    unknown: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Questions for next heads that the recorded plan did not ask."""

    def next_head(self, queue: str, without: Collection[str]) -> Head | None:
        """Return the recorded answer; None also where the question is not in the record."""
        about = queue, tuple(without)
        if about not in self.asked:
            self.unknown.append(about)
        return self.asked.get(about)


@dataclass(slots=True)
class _QuotaTree:
    nodes: list[QuotaNode]
    copy: TreeCopy


class CycleDecoder:
    """Reads the cycles of one file in their order.  Every method raises UnreadableValueError."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._held = 0
        self._values: dict[tuple[str, Any], Any] = {}
        self._slots: dict[str, str] = {}
        self._trees: dict[str, _QuotaTree] = {}
        self._leaves: dict[str, Tree] = {}
        self._free: dict[str, Capacity] = {}
        self._admitted: dict[str, dict[str, Admitted]] = {}
        self.lines: dict[str, dict[str, WaitsBehind]] = {}
        """The workloads behind the heads of StrictFIFO ClusterQueues, by UID, after the last cycle with a head."""
        self._line_heads: dict[str, dict[str, Head]] = {}
        """The same as heads, for lines that were asked for since they changed; other mappings after each change."""

    def pieces(self, entry: Pieces) -> None:
        """Take the values of an entry."""
        for name, raw in entry.pieces.items():
            text = bytes(raw)
            if piece_hash(text) != name:
                raise UnreadableValueError(f"the piece {name:.40} has another hash than its name says")
            self._held += len(text)
            if self._held > _MOST_HELD:
                raise UnreadableValueError(f"the file has pieces of more than {_MOST_HELD} bytes")
            self._texts[name] = text

    def follow(self, entry: Cycle) -> None:
        """Take the changes of the next cycle."""
        self._slots.update(entry.slots)
        for slot in entry.drop:
            self._slots.pop(slot, None)
        for slot, name in entry.slots.items():
            if slot.startswith("tree/"):
                self._trees[slot.removeprefix("tree/")] = self._quota_tree(name)
            elif slot.startswith("topology/"):
                self._new_topology(slot.removeprefix("topology/"), name)
        for key, usage in entry.usage.items():
            at(f"usage[{key}]", self._apply_usage(key), usage)
        for flavor, changes in entry.free.items():
            at(f"free[{flavor}]", self._apply_free(flavor), changes)
        for queue, held in entry.admitted.items():
            at(f"admitted[{queue}]", self._apply_holdings(queue), held)
        at("behind", self._apply_lines, entry)

    def cycle(self, entry: Cycle, hooks: HooksByProfile | None = None) -> RecordedCycle:
        """Return the cycle of the entry whose changes were taken last."""
        answers = self._plugin_answers(entry)
        question = self._question(entry, hooks or {})
        if answers is not None:
            question = replace(question, hooks=answers.hooks(question.snapshot.topologies, question.hooks))
        return RecordedCycle(
            number=entry.number,
            question=question,
            asked={
                (one.queue, tuple(one.without)): self._head(one.answer) if one.answer is not None else None
                for one in entry.asked
            },
            lines={queue: self._line(queue) for queue in entry.strict},
            plugins=entry.plugins,
            plugin_answers=answers,
            answers=[bytes(raw) for raw in entry.decisions],
            error=entry.error,
        )

    def _question(self, entry: Cycle, hooks: HooksByProfile) -> PlanQuestion:
        settings = self._slot("question", QuestionForm)
        rules = self._slot("rules", RulesForm)
        return PlanQuestion(
            snapshot=self._snapshot(entry),
            heads=[self._head(reference) for reference in entry.heads],
            rules=rules.at(at("now", reader(_TIME), entry.now)),
            order=settings.order,
            held_by=settings.held_by,
            one_at_a_time=settings.one_at_a_time,
            looks=settings.looks,
            hints={uid: self._piece(name, PlanHint) for uid, name in entry.hints.items()},
            hooks=hooks,
        )

    def _snapshot(self, entry: Cycle) -> Snapshot:
        nodes: dict[str, QuotaNode] = {}
        for key in entry.trees:
            copy = _known(self._trees, key, "quota tree").copy
            copy.refresh()
            nodes.update(copy.queues)
        views = {}
        for name in entry.topologies:
            form = self._slot(f"topology/{name}", TopologyForm)
            capacity = _known(self._free, name, "free amounts").fork()
            views[name] = TopologyView(form.name, capacity.tree, capacity, form.unusable)
        return Snapshot(
            queues={name: self._slot(f"spec/{name}", QueueSpec) for name in entry.queues},
            nodes=nodes,
            flavors=self._slot("flavors", _FLAVORS),
            topologies=views,
            inactive=entry.inactive,
            admitted={queue: found for queue in nodes if (found := self._admitted.get(queue))},
            claims=tuple(self._piece(name, Claim) for name in entry.claims),
            promises=tuple(self._piece(name, Promise) for name in entry.promises),
            leaders={flavor: self._piece(name, Leader) for flavor, name in entry.leaders.items()},
        )

    # --- pieces

    def _piece(self, name: str, kind: Any) -> Any:
        known = self._values.get((name, kind))
        if known is None:
            text = msgspec.json.decode(self._text(name))
            known = self._values[name, kind] = at(f"piece {name:.40}", reader(kind), text)
        return known

    def _text(self, name: str) -> bytes:
        text = self._texts.get(name)
        if text is None:
            raise UnreadableValueError(f"the piece {name:.40} is missing")
        return text

    def _slot(self, slot: str, kind: type[T]) -> T:
        return cast("T", self._piece(_known(self._slots, slot, "value"), kind))

    def _head(self, reference: HeadReference) -> Head:
        pod_sets = tuple([self._piece(name, PodSet) for name in reference.pod_sets])
        head: Head = self._piece(reference.head, Head)
        return replace(head, pod_sets=pod_sets)

    # --- StrictFIFO and plugins

    def _apply_lines(self, entry: Cycle) -> None:
        for queue in entry.behind:
            if queue not in entry.strict:
                raise UnreadableValueError(f"ClusterQueue {queue:.80} has a line and is not StrictFIFO")
        heads = {at(f"heads[{i}]", self._queue_of, one) for i, one in enumerate(entry.heads)} if self.lines else set()
        for queue in heads.difference(entry.strict):
            self.lines.pop(queue, None)
            self._line_heads.pop(queue, None)
        for queue, changes in entry.behind.items():
            line = self.lines.setdefault(queue, {})
            for uid in changes.drop:
                if line.pop(uid, None) is None:
                    raise UnreadableValueError(f"[{queue}].drop: the workload {uid:.80} is not in the line")
            line.update((one.uid, one) for one in changes.add)
            self._change_line(queue, changes)
        if sum(map(len, self.lines.values())) > _MOST_BEHIND:
            raise UnreadableValueError(f"more than {_MOST_BEHIND} workloads wait behind heads")

    def _queue_of(self, reference: HeadReference) -> str:
        head: Head = self._piece(reference.head, Head)
        return head.queue

    def _change_line(self, queue: str, changes: LineChanges) -> None:
        heads = self._line_heads.get(queue)
        if heads is not None:
            gone = {*changes.drop, *(one.uid for one in changes.add)}
            self._line_heads[queue] = {uid: head for uid, head in heads.items() if uid not in gone}

    def _line(self, queue: str) -> dict[str, Head]:
        heads, line = self._line_heads.setdefault(queue, {}), self.lines.get(queue, {})
        if len(heads) < len(line):
            new = {uid: at(f"behind[{queue}][{uid:.80}]", self._head, line[uid].head) for uid in line.keys() - heads}
            heads = self._line_heads[queue] = {**heads, **new}
        return heads

    def _plugin_answers(self, entry: Cycle) -> RecordedAnswers | None:
        if not entry.plugins or "plugins" not in self._slots:
            if entry.answers or entry.unanswered:
                raise UnreadableValueError("answers: there are no plugins to give them")
            return None
        answers: dict[str, RecordedAnswer] = {}
        for i, one in enumerate(entry.answers):
            if one.question not in _QUESTIONS or not one.answers:
                raise UnreadableValueError(f"answers[{i}]: {one.question!r:.40} is no question with an answer")
            answers[one.name] = at(f"answers[{i}]", self._answer, one)
        profiles = {name: form for name, form in self._slot("plugins", _PROFILES).items() if name in entry.plugins}
        return RecordedAnswers(profiles, answers, entry.unanswered)

    def _answer(self, one: Answered) -> RecordedAnswer:
        question = PluginQuestion(one.question)
        texts = [self._text(name) for name in one.answers]
        values = [
            at(f"piece {name:.40}", partial(read_answer, question), msgspec.json.decode(text))
            for name, text in zip(one.answers, texts, strict=True)
        ]
        return RecordedAnswer(AnsweredQuestion(question, one.name, texts), values)

    # --- quota

    def _quota_tree(self, name: str) -> _QuotaTree:
        nodes: list[QuotaNode] = []
        depths: list[int] = []
        for form in self._piece(name, _QUOTA_NODES):
            if not -1 <= form.parent < len(nodes) or (form.parent < 0) != (not nodes):
                raise UnreadableValueError(f"the node {form.name} of a quota tree has no parent before it")
            parent = nodes[form.parent] if nodes else None
            depths.append(depths[form.parent] + 1 if nodes else 0)
            if depths[-1] > _DEEPEST:
                raise UnreadableValueError(f"a quota tree has more than {_DEEPEST} levels")
            node = QuotaNode(form.name, form.is_cohort, parent, [], form.quotas, form.weight)
            if parent is not None:
                parent.children.append(node)
            nodes.append(node)
        if not nodes:
            raise UnreadableValueError("a quota tree has no nodes")
        quota.rebuild(nodes[0])
        return _QuotaTree(nodes, TreeCopy(nodes[0]))

    def _apply_usage(self, key: str) -> Any:
        tree = _known(self._trees, key, "quota tree")

        def apply(usage: Iterable[tuple[int, Iterable[tuple[tuple[str, str], int]]]]) -> None:
            for number, amounts in usage:
                if not 0 <= number < len(tree.nodes):
                    raise UnreadableValueError(f"the quota tree has no node {number}")
                quota.set_usage(tree.nodes[number], {FlavorResource(*column): amount for column, amount in amounts})

        return apply

    # --- domains

    def _new_topology(self, flavor: str, name: str) -> None:
        form = self._piece(name, TopologyForm)
        if not form.levels:
            raise UnreadableValueError(f"the topology of flavor {flavor} has no levels")
        leaves = [leaf for chunk in form.chunks for leaf in self._piece(chunk, _LEAVES)]
        for leaf in leaves:
            if len(leaf.path) != len(form.levels) or not leaf.nodes:
                raise UnreadableValueError(f"the domain {','.join(leaf.path):.80} does not fit the levels")
        before = self._leaves.get(flavor)
        about = form.topology, form.levels, form.tolerations
        if before is not None and about == (before.topology, before.levels, before.tolerations):
            is_same = len(before.leaves) == len(leaves) and all(map(is_, before.leaves, leaves))
            if is_same:
                return  # only the list of unusable nodes has changed
        tree = Tree(topology=form.topology, levels=form.levels, leaves=leaves, tolerations=form.tolerations)
        self._leaves[flavor] = tree
        self._free.pop(flavor, None)

    def _apply_free(self, flavor: str) -> Any:
        tree = _known(self._leaves, flavor, "topology")

        def apply(changes: FreeChanges) -> None:
            known = self._free.get(flavor)
            free = _amounts(tree, known.tables() if known is not None else None, changes.free)
            idle = None
            if changes.has_idle:
                had = known.empty().tables() if known is not None and known.empty() is not known else None
                idle = _amounts(tree, had, changes.idle)
            self._free[flavor] = Capacity.of_tables(tree, free, idle)

        return apply

    # --- holdings

    def _apply_holdings(self, queue: str) -> Any:
        def apply(changes: HoldingChanges) -> None:
            now = {} if changes.all else dict(self._admitted.get(queue, {}))
            for key in changes.drop:
                now.pop(key, None)
            for i, plain in enumerate(changes.set):
                admitted = at(f"set[{i}]", reader(Admitted), plain)
                now[admitted.key] = admitted
            self._admitted[queue] = now

        return apply


def _amounts(
    tree: Tree, known: tuple[Sequence[str], Ints] | None, changes: FreeAmounts | None
) -> tuple[Sequence[str], Ints]:
    """Return the amounts after a change."""
    if changes is None:
        if known is None:
            raise UnreadableValueError("free amounts are missing")
        return known
    rows, width = len(changes.resources), len(changes.leaves) if changes.leaves is not None else len(tree)
    if len(changes.rows) != rows or any(len(row) != width for row in changes.rows):
        raise UnreadableValueError(f"{rows} rows of {width} amounts are needed")
    table = np.array(changes.rows, dtype=np.int64).reshape(rows, width)
    if changes.leaves is None:
        return changes.resources, table
    if known is None or list(known[0]) != changes.resources:
        raise UnreadableValueError("amounts of some leaves come before those of all leaves")
    if not all(0 <= leaf < len(tree) for leaf in changes.leaves):
        raise UnreadableValueError("a changed leaf is not in the topology")
    known[1][:, changes.leaves] = table
    return known


def _known(values: Mapping[str, T], key: str, what: str) -> T:
    found = values.get(key)
    if found is None:
        raise UnreadableValueError(f"the {what} {key!r:.80} comes later than its first use")
    return found


_TIME: Any = datetime
_PROFILES: Any = Mapping[str, ProfileForm]
_QUESTIONS = frozenset(one.value for one in PluginQuestion)
_FLAVORS: Any = Mapping[str, Flavor]
_LEAVES: Any = tuple[Leaf, ...]
_QUOTA_NODES: Any = list[QuotaNodeForm]
