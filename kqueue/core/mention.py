"""Workloads in a message: named for readers of their namespace, counted for all other readers.

Every user who may read an object reads its conditions, events and annotations.  So they must not contain names of
workloads of other namespaces: these are counted, and their ClusterQueue is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kqueue.core.value import value

MayName = Callable[[str], bool]
"""Whether the readers of a message may know the names of workloads of this namespace."""


@value()
class Mention:
    """A workload by its key (namespace/name) and its ClusterQueue; empty: unknown."""

    key: str
    queue: str = ""

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self.key.partition("/")[0]


def no_reader(_namespace: str) -> bool:
    """Return False: no workload may be named."""
    return False


def readers_of(key: str) -> MayName:
    """Return the test for readers of the workload with this key, who may know the names of its namespace."""
    own = Mention(key).namespace
    return lambda namespace: namespace == own


def mentioned(workloads: Iterable[Mention], may_name: MayName, *, most: int = 5) -> str:
    """Return these workloads as part of a sentence, each once: names in order, at most `most`, and counts of the
    others.
    """
    every = sorted(set(workloads), key=lambda one: (one.key, one.queue))
    named = [one.key for one in every if may_name(one.namespace)]
    hidden = Counter(one.queue for one in every if not may_name(one.namespace))
    parts = [", ".join(named[:most])] if named else []
    if len(named) > most:
        parts.append(f"{len(named) - most} more")
    parts += [_counted(count, queue) for queue, count in sorted(hidden.items())]
    return " and ".join(parts)


def _counted(count: int, queue: str) -> str:
    who = "a workload" if count == 1 else f"{count} workloads"
    return f"{who} of ClusterQueue {queue}" if queue else f"{who} of another namespace"
