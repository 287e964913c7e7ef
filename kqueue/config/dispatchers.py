"""The dispatchers of MultiKueue, values of `multiKueue.dispatcherName`."""

from __future__ import annotations

from typing import Final

from kqueue.config import names

DISPATCHER_ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
"""All clusters get a copy.  Source: Kueue."""
DISPATCHER_INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
"""Each round, some more clusters get a copy.  Source: Kueue."""
DISPATCHER_BEST_DOMAIN: Final = "kqueue.dev/best-domain"
"""The cluster with the best answer gets a copy; kqueue's own."""

DISPATCHERS: Final = (DISPATCHER_ALL_AT_ONCE, DISPATCHER_INCREMENTAL, DISPATCHER_BEST_DOMAIN)
"""The dispatchers of kqueue; any other one is another controller."""
_OWN_DOMAINS = frozenset(name.partition("/")[0] for name in DISPATCHERS)


def problem_of(name: str) -> str | None:
    """Return why no dispatcher can have a name; None: it is one of kqueue's, or another controller may have it.

    With a misspelt name no controller would nominate clusters, and all workloads would wait.
    """
    domain, slash, rest = name.partition("/")
    if name in DISPATCHERS or (slash and rest and domain not in _OWN_DOMAINS and names.label_key(name) is None):
        return None
    return (
        f"must be one of {', '.join(DISPATCHERS)}, or the name of another controller's dispatcher, with a domain of its"
        f" own, as in example.com/dispatcher{names.nearest(name, DISPATCHERS)}"
    )
