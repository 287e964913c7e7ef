"""The message of condition QuotaReserved=False: one short sentence with the root cause first, and a command for
details.

    <cause>[ (<time>)]; see kqueue explain <name> -n <namespace>

If a cause has figures of one moment, the message carries the time of that moment, so that it stays true.  The message
is written again when the cause becomes another one, not when only figures change: `kqueue explain` shows present
figures.
"""

from __future__ import annotations

import re
from datetime import datetime

from kqueue.api import names
from kqueue.core.mention import Mention

OF_A_MOMENT = frozenset(
    {
        names.REASON_WAITING_FOR_QUOTA,
        names.REASON_TOPOLOGY_PLACEMENT_FAILED,
        names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS,
        names.REASON_WAITING_FOR_PODS_READY,
    }
)
"""Reasons whose messages have figures or facts of one moment."""
MOST = 200
"""The largest number of characters of a message."""
_LEAST_CAUSE = 100
"""The smallest number of characters left for the cause: a name that leaves less room is omitted from the command."""
_COMMAND = "see kqueue explain"
_TIME = re.compile(r" \(\d{4}-\d\d-\d\d \d\d:\d\dZ\)$")
_FIGURE = re.compile(r"(?<![\w./-])\d+(\.\d+)?(m|[kMGTPE]i?)?(?![\w./-])")
_BEST = re.compile(r"(the best \S+) \S+ has room")


def message(key: str, cause: str, *, at: datetime | None = None) -> str:
    """Return the message for the workload with this key (namespace/name); `at` is the moment of the figures.

    At most `MOST` characters: a longer cause is cut at a word.
    """
    mention = Mention(key)
    command = f"; {_COMMAND} {key.partition('/')[2]} -n {mention.namespace}"
    time = f" ({at:%Y-%m-%d %H:%M}Z)" if at is not None else ""
    if MOST - len(command) - len(time) < _LEAST_CAUSE:
        command = f"; {_COMMAND}"
    return f"{_cut(cause, MOST - len(command) - len(time))}{time}{command}"


def cause_of(text: str) -> str:
    """Return the cause in a message, without its time and the command; other texts are returned as they are."""
    return _TIME.sub("", text.rpartition(f"; {_COMMAND}")[0] or text)


def is_same_cause(one: str, other: str) -> bool:
    """Whether two messages differ only in figures, times and the best domain."""
    return _identity(one) == _identity(other)


def _identity(text: str) -> str:
    return _FIGURE.sub("#", _BEST.sub(r"\1 # has room", cause_of(text)))


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rpartition(' ')[0] or text[: most - 1]}…"
