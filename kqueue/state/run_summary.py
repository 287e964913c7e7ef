"""The knowledge of run times as text of bounded length, for a ConfigMap."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Annotated

import msgspec

from kqueue.core.future.learned import GroupSummary, RunSummary
from kqueue.errors import KqueueError

MOST_BYTES = 512 * 1024
"""The largest length of the text; a ConfigMap holds at most twice as much."""
_VERSION = 1
_WITHOUT_GROUPS = 96 * 1024
"""Room for all but the groups: 2,000 runs that are remembered by name take at most 35 bytes each."""

_Time = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
_Namespace = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class DamagedSummaryError(KqueueError):
    """The text is no summary; the message names the place."""


class _Group(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    key: _Key
    window: _Time
    taken: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    counts: tuple[tuple[int, int], ...]


class _Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    floor: _Time
    remembered: tuple[tuple[_Key, _Time], ...]
    namespaces: dict[_Namespace, tuple[_Group, ...]]


def summary_text(summary: RunSummary, *, most_bytes: int = MOST_BYTES) -> str:
    """Return a summary as JSON of at most `most_bytes` bytes.

    Where that is too little for all groups, the namespace whose groups are longest loses the group that has learned
    nothing for the longest time, and so on.
    """
    stored = _Summary(
        version=_VERSION,
        floor=summary.floor,
        remembered=summary.remembered,
        namespaces=_fitting(summary, most_bytes - _WITHOUT_GROUPS),
    )
    return msgspec.json.encode(stored).decode()


def _fitting(summary: RunSummary, room: int) -> dict[str, tuple[_Group, ...]]:
    queues: dict[str, deque[tuple[_Group, int]]] = {}
    lengths: OrderedDict[str, int] = OrderedDict()
    for namespace, groups in summary.namespaces:
        made = [_Group(g.key, g.window, g.taken, g.counts) for g in groups]
        queues[namespace] = deque((one, len(msgspec.json.encode(one)) + 1) for one in made)
        lengths[namespace] = sum(length for _, length in queues[namespace]) + len(namespace) + 8
    total = sum(lengths.values())
    while total > room:
        longest = max(lengths, key=lambda namespace: lengths[namespace])
        _, length = queues[longest].popleft()
        lengths[longest] -= length
        total -= length
        if not queues[longest]:
            total -= lengths.pop(longest)
            del queues[longest]
    return {namespace: tuple(one for one, _ in groups) for namespace, groups in queues.items()}


def summary_from(text: str) -> RunSummary:
    """Return the summary in a text.

    Raises DamagedSummaryError, which names the place: the text is too long, no summary, or one of another version.
    """
    if len(text) > 2 * MOST_BYTES:
        raise DamagedSummaryError(f"{len(text)} characters are too many; {MOST_BYTES} are the most that is written")
    try:
        stored = msgspec.json.decode(text, type=_Summary)
    except msgspec.DecodeError as e:
        raise DamagedSummaryError(str(e)) from e
    if stored.version != _VERSION:
        raise DamagedSummaryError(f"$.version is {stored.version}, and this version of kqueue reads {_VERSION}")
    return RunSummary(
        floor=stored.floor,
        remembered=stored.remembered,
        namespaces=tuple(
            (name, tuple(GroupSummary(key=g.key, window=g.window, taken=g.taken, counts=g.counts) for g in groups))
            for name, groups in stored.namespaces.items()
        ),
    )
