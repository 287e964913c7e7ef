"""Replays: a recorded question is put to the planner of this version, and both answers are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from kqueue.record.answer import answer
from kqueue.record.decoding import RecordedCycle
from kqueue.record.plain import Plain

_MOST_REMARKS = 20
"""Remarks about one cycle that are alike."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A workload that is decided differently; None: it is not decided at all."""

    workload: str
    recorded: Plain | None
    now: Plain | None

    def lines(self) -> Iterator[str]:
        """Yield the fields that differ, the recorded ones with `-`, those of this version with `+`."""
        for sign, plain, other in (("-", self.recorded, self.now), ("+", self.now, self.recorded)):
            if plain is None:
                yield f"{sign} no decision"
                continue
            for path, value in _leaves(plain):
                if other is None or _at(other, path) != value:
                    yield f"{sign} {_path_text(path)}: {msgspec.json.encode(value).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The comparison of one cycle.

    Args:
        equal: whether all decisions are the same, byte for byte and in the same order.
        differences: workloads that are decided differently.
        remarks: why the comparison may say little: plugins that are missing here, a plan that ended early, questions
            for workloads behind the heads or to plugins that the record does not answer.
        plugins: answers of plugins that are loaded here and differ from the recorded ones, as sentences.
    """

    equal: bool
    differences: tuple[Difference, ...] = ()
    remarks: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


def replay(cycle: RecordedCycle) -> Replay:
    """Put a question to the planner again.  The snapshot of the cycle is used up."""
    cycle.unknown.clear()
    now = [answer(decision) for decision in cycle.question.decisions(next_head=cycle.next_head)]
    recorded = list(cycle.answers)
    remarks = list(_remarks(cycle))
    plugins = tuple(cycle.plugin_answers.different) if cycle.plugin_answers is not None else ()
    if now == recorded or (cycle.error and now[: len(recorded)] == recorded):
        return Replay(equal=True, remarks=tuple(remarks), plugins=plugins)
    differences = tuple(_differences(recorded, now))
    if not differences:
        remarks.append("the decisions are the same, in another order")
    return Replay(equal=False, differences=differences, remarks=tuple(remarks), plugins=plugins)


def _remarks(cycle: RecordedCycle) -> Iterator[str]:
    missing = sorted(set(cycle.plugins) - cycle.question.hooks.keys())
    if missing:
        yield f"plugins of the profiles {', '.join(missing)} took part; their answers are not in the record"
    if (answers := cycle.plugin_answers) is not None:
        if answers.left_out:
            yield f"{answers.left_out} answers of plugins were too many or too long for the record"
        yield from answers.unanswered[:_MOST_REMARKS]
    if cycle.error:
        yield f"the recorded plan ended early: {cycle.error}"
    for queue, without in cycle.unknown:
        yield f"the planner asked for the workload of {queue} behind {', '.join(without)}, which is not in the record"


def _differences(recorded: Iterable[bytes], now: Iterable[bytes]) -> Iterator[Difference]:
    before, after = _by_workload(recorded), _by_workload(now)
    for uid in dict.fromkeys((*before, *after)):
        one, other = before.get(uid), after.get(uid)
        if one != other:
            yield Difference({**(one or {}), **(other or {})}["head"]["key"], one, other)


def _by_workload(texts: Iterable[bytes]) -> dict[str, Plain]:
    plain = map(msgspec.json.decode, texts)
    return {one["head"]["uid"]: one for one in plain}


_Path = tuple[str | int, ...]


def _leaves(plain: Plain, path: _Path = ()) -> Iterator[tuple[_Path, Plain]]:
    if isinstance(plain, dict) and plain:
        for key, value in plain.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(plain, list) and plain:
        for i, value in enumerate(plain):
            yield from _leaves(value, (*path, i))
    else:
        yield path, plain


def _at(plain: Plain, path: _Path) -> Plain:
    """Return the value at a path; a value that no decision has if there is none."""
    for step in path:
        is_key = isinstance(plain, dict) and step in plain
        is_index = isinstance(plain, list) and isinstance(step, int) and step < len(plain)
        if not (is_key or is_index):
            return _Nothing
        plain = plain[step]
    return plain


class _Nothing:
    """Stands for a missing value, which equals no other one."""


def _path_text(path: _Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
