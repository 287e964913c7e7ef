"""The dispatchers of MultiKueue, values of `multiKueue.dispatcherName`."""

from __future__ import annotations

from typing import Final

DISPATCHER_ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
"""All clusters get a copy.  Source: Kueue."""
DISPATCHER_INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
"""Each round, some more clusters get a copy.  Source: Kueue."""
DISPATCHER_BEST_DOMAIN: Final = "kqueue.dev/best-domain"
"""The cluster with the best answer gets a copy; kqueue's own."""
