"""Hands jobs to their adapters together with the other objects that these read, and follows those objects.

`kqueue/jobs/others.py` says which these are; the watches have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kqueue.controllers.raw import key_of
from kqueue.jobs.kind import JobKind
from kqueue.jobs.others import Reference, completed, reads_others, references
from kqueue.kinds import GroupKind
from kqueue.runtime.store import Store, object_key

JSON = dict[str, Any]
_READS = "reads"
"""Index of jobs by the objects that they refer to."""


def completer(kind: JobKind, others: Mapping[GroupKind, Sequence[Store[JSON]]]) -> Callable[[JSON], JSON]:
    """Return the function that completes jobs of a kind from the watches; a kind that reads no others keeps its jobs
    as they are.
    """
    if not reads_others(kind):
        return lambda job: job

    def find(reference: Reference) -> JSON | None:
        stores = others.get((reference.kind.group, reference.kind.kind), ())
        return next((found for store in stores if (found := store.get(_key(reference))) is not None), None)

    return lambda job: completed(job, {reference: find(reference) for reference in references(kind, job)})


def enqueue_readers(
    kind: JobKind,
    jobs: Store[JSON],
    others: Mapping[GroupKind, Sequence[Store[JSON]]],
    enqueue: Callable[[str], None],
) -> None:
    """Enqueue jobs whenever an object that they refer to appears, changes or disappears."""
    if not reads_others(kind):
        return
    jobs.add_index(_READS, lambda job: [_index(r.kind.group, r.kind.kind, _key(r)) for r in references(kind, job)])
    for (group, name), stores in others.items():
        for store in stores:
            store.subscribe(_handler(group, name, jobs, enqueue))


def _handler(
    group: str, kind: str, jobs: Store[JSON], enqueue: Callable[[str], None]
) -> Callable[[JSON | None, JSON | None], None]:
    def on_change(old: JSON | None, new: JSON | None) -> None:
        seen = new if new is not None else old
        assert seen is not None
        for job in jobs.keys_by_index(_READS, _index(group, kind, key_of(seen))):
            enqueue(job)

    return on_change


def _key(reference: Reference) -> str:
    return object_key(reference.namespace, reference.name)


def _index(group: str, kind: str, key: str) -> str:
    return f"{group}/{kind}/{key}"
