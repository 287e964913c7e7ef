"""The entries of a record, as JSON: what each kind of entry contains.

A file begins with a `Begin`.  `Pieces` are values by their hash, and stand before the first cycle that names them.  A
`Cycle` says what has changed since the cycle before it in the same file: a file is read from its begin.
`StartTimesTold` stands before a cycle, and has what was told since the cycle before.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

FORMAT = 3
"""The version of the format that this program writes."""
FORMATS = (1, 2, FORMAT)
"""The versions that it reads.  Files of form 1 have no start times that were told; those of the forms 1 and 2 have
neither StrictFIFO ClusterQueues with their lines nor answers of plugins.
"""
FORM_WITH_TOLD = 2
FORM_WITH_ANSWERS = 3


class Begin(msgspec.Struct, tag="begin", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The first entry of a file.

    `version` is kqueue's; `after` is the last hash of the file before, empty where there is none; `within` is the
    profile inside one workload of joint placement.
    """

    format: int
    version: str
    time: str
    after: str = ""
    within: str = ""


class Pieces(msgspec.Struct, tag="pieces", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Values by the hash of their text."""

    pieces: dict[str, msgspec.Raw]


class ToldIntervalForm(msgspec.Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """A start time that was told, as in `ToldInterval`."""

    uid: str
    at: str
    p50: int
    p90: int | None


class StartTimesTold(msgspec.Struct, tag="told", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Start times that were told since the cycle before."""

    starts: list[ToldIntervalForm]


class HoldingChanges(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of the workloads with usage in one ClusterQueue; `all`: no former one is left."""

    all: bool = False
    drop: list[str] = []
    set: list[Any] = []


class FreeAmounts(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """Free amounts of a flavor, a row for each resource; `leaves`: the leaves that changed, None: all leaves."""

    resources: list[str]
    rows: list[list[int]]
    leaves: list[int] | None = None


class FreeChanges(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of a flavor: its free amounts, and those without workloads placed by topology.

    `has_idle`: whether the flavor knows the latter; without changes in it `idle` is None.
    """

    has_idle: bool
    free: FreeAmounts | None = None
    idle: FreeAmounts | None = None


class HeadReference(msgspec.Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """A head: the hash of the workload without its pod sets, and the hashes of these."""

    head: str
    pod_sets: list[str]


class Asked(msgspec.Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """One question for the next head of a ClusterQueue, and its answer."""

    queue: str
    without: list[str]
    answer: HeadReference | None


class Answered(msgspec.Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """A question to plugins by its hash, and the hashes of its answers; the last one is that of all later askings."""

    question: str
    name: str
    answers: list[str]


class WaitsBehind(msgspec.Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """A workload that waits behind the head of a StrictFIFO ClusterQueue and is not tried."""

    key: str
    uid: str
    head: HeadReference


class LineChanges(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of the workloads behind the head of one StrictFIFO ClusterQueue; `drop` are UIDs."""

    drop: list[str] = []
    add: list[WaitsBehind] = []


class Cycle(msgspec.Struct, tag="cycle", forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """One plan: what changed, what was asked, and the decisions.

    Args:
        slots: hashes of values that have changed, by the name of their place in the state.
        drop: places of the state that have no value any more.
        trees, topologies: the keys of the quota trees and flavors that the snapshot has.
        usage: by key of a quota tree, the new usage of nodes by their number; amounts by (flavor, resource).
        strict: ClusterQueues of the heads that are StrictFIFO.
        behind: by such a ClusterQueue, the changes of its line; a ClusterQueue with a head that is not in `strict` has
            no line any more.
        plugins: profiles with plugins; the slot `plugins` has their names.
        answers: the answers of plugins that this plan got.
        unanswered: the number of further answers, which were too many or too long.
        decisions: the answers, as `answer.py` writes them.
    """

    number: int
    now: str
    slots: dict[str, str] = {}
    drop: list[str] = []
    trees: list[str] = []
    topologies: list[str] = []
    queues: list[str] = []
    usage: dict[str, list[tuple[int, list[tuple[tuple[str, str], int]]]]] = {}
    free: dict[str, FreeChanges] = {}
    admitted: dict[str, HoldingChanges] = {}
    inactive: dict[str, str] = {}
    claims: list[str] = []
    promises: list[str] = []
    leaders: dict[str, str] = {}
    heads: list[HeadReference] = []
    hints: dict[str, str] = {}
    asked: list[Asked] = []
    strict: list[str] = []
    behind: dict[str, LineChanges] = {}
    plugins: list[str] = []
    answers: list[Answered] = []
    unanswered: int = 0
    decisions: list[msgspec.Raw] = []
    error: str = ""


class End(msgspec.Struct, tag="end", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The last entry of a complete file.  `torn`: its writer was killed in the middle of an entry, which is gone."""

    torn: bool = False


Entry = Begin | Pieces | StartTimesTold | Cycle | End

to_text = msgspec.json.Encoder().encode
from_text = msgspec.json.Decoder(Entry).decode


def piece_hash(text: bytes) -> str:
    """Return the hash under which a value is stored."""
    return blake2b(text, digest_size=16).hexdigest()
