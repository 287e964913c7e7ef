"""The report of a removal, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kqueue.controllers.leftovers import Left, Leftover
from kqueue.operations.removal.release import RemovalOutcome
from kqueue.printable import printable

_SHOWN = 20
"""Objects of one sort that the text names."""

_WORDS = {
    Left.WEBHOOKS: ("webhook configurations call kqueue", "--release deletes them first"),
    Left.OTHERS_WEBHOOKS: (
        "webhook configurations call kqueue, but kqueue did not write them",
        "remove them with the tool that applied them, or by kubectl delete",
    ),
    Left.API_SERVICES: ("APIServices call kqueue", "--release deletes them"),
    Left.CONVERSION: (
        "definitions name kqueue's conversion webhook",
        "--release removes it, and v1beta1 is not served any more; objects are in v1beta2",
    ),
    Left.HELD_POD: ("pods are held by gates or finalizers", "--release removes these; gated pods then start uncounted"),
    Left.FINALIZER: ("objects cannot be deleted", "--release removes the finalizer"),
    Left.GATED_TEMPLATE: (
        "running jobs make pods with a gate",
        "pods that they make from now on wait until --release is run again; let these jobs end first, or delete them",
    ),
    Left.HELD_TEMPLATE: (
        "suspended Jobs would create pods with a gate",
        "--release removes it from the template; the Jobs stay suspended",
    ),
    Left.SUSPENDED: (
        "jobs wait for kqueue to start them",
        "start or delete them yourself; to start a job, set its spec.suspend to false",
    ),
    Left.UNATTENDED: (
        "BatchProcesses have no controller without kqueue",
        "their pods that run go on, and no pod is made or replaced; delete the objects to end them",
    ),
}


def as_json(found: Sequence[Leftover], outcome: RemovalOutcome | None) -> dict[str, Any]:
    """Return the output of `-o json`; `clean` says whether a removal of kqueue would leave nothing behind."""
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
    """Return the report as lines of text."""
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
