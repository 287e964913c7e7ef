"""The report of a removal, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kqueue.controllers.leftovers import Left, Leftover
from kqueue.operations.removal.release import RemovalOutcome
from kqueue.printable import printable

_SHOWN = 20
"""Objects of one sort that are named to people."""

_WORDS = {
    Left.WEBHOOKS: ("webhook configurations lead to kqueue", "--release deletes them, before all else"),
    Left.OTHERS_WEBHOOKS: (
        "webhook configurations lead to kqueue and were applied by somebody else",
        "remove them with what applied them, or by kubectl delete",
    ),
    Left.API_SERVICES: ("APIServices lead to kqueue", "--release deletes them"),
    Left.HELD_POD: ("pods are held by gates or finalizers", "--release removes these; gated pods then start uncounted"),
    Left.FINALIZER: ("objects cannot be deleted", "--release takes the finalizer off"),
    Left.GATED_TEMPLATE: (
        "running jobs make pods with a gate",
        "pods that they make from now on wait until --release is run again; let these jobs end first, or delete them",
    ),
    Left.HELD_TEMPLATE: (
        "suspended Jobs would make pods with a gate",
        "--release takes it off the template; the Jobs stay suspended",
    ),
    Left.SUSPENDED: (
        "jobs wait for kqueue to start them",
        "yours to start or to delete; to start one, set its spec.suspend to false",
    ),
}


def as_json(found: Sequence[Leftover], outcome: RemovalOutcome | None) -> dict[str, Any]:
    """The answer of `-o json`; `clean` says whether kqueue can go without leaving anything behind."""
    done = {} if outcome is None else {
        "released": len(outcome.released),
        "failed": [{**_object(leftover), "error": why} for leftover, why in outcome.failed],
    }  # fmt: skip
    counts = Counter(leftover.left.value for leftover in found)
    return {
        "clean": is_clean(found),
        "counts": {left.value: counts[left.value] for left in Left},
        "left": [_object(leftover) for leftover in found],
        **done,
    }


def is_clean(found: Iterable[Leftover]) -> bool:
    """Whether no object is left that blocks another client."""
    return not any(leftover.left.counts for leftover in found)


def lines(found: Sequence[Leftover], outcome: RemovalOutcome | None) -> list[str]:
    """The answer for people."""
    shown: list[str] = []
    if outcome is not None:
        shown.append(f"released: {len(outcome.released)}")
        shown += [f"  not released: {_where(leftover)}: {why}" for leftover, why in outcome.failed[:_SHOWN]]
        shown += _more(len(outcome.failed))
    for left in Left:
        same = [leftover for leftover in found if leftover.left is left]
        if same:
            what, remedy = _WORDS[left]
            shown += ["", f"{what}: {len(same)} ({remedy})"]
            width = max(len(_where(leftover)) for leftover in same[:_SHOWN])
            shown += [
                f"  {_where(leftover):<{width}}  {', '.join(leftover.ours)}".rstrip() for leftover in same[:_SHOWN]
            ]
            shown += _more(len(same))
    verdict = "nothing is left behind" if is_clean(found) else "something is left behind"
    return [*map(printable, shown), *([""] if shown else []), verdict]


def _more(count: int) -> list[str]:
    return [f"  and {count - _SHOWN} more; -o json names all"] if count > _SHOWN else []


def _where(leftover: Leftover) -> str:
    place = f"{leftover.namespace}/{leftover.name}" if leftover.namespace else leftover.name
    return f"{leftover.resource.kind} {place}"


def _object(leftover: Leftover) -> dict[str, Any]:
    return {
        "why": leftover.left.value,
        "apiVersion": leftover.resource.api_version,
        "kind": leftover.resource.kind,
        "namespace": leftover.namespace,
        "name": leftover.name,
        "detail": list(leftover.ours),
        "integration": leftover.integration,
        "releasable": leftover.left.releasable,
    }
