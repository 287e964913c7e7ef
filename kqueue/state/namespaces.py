"""Reasons for which a namespace may not use a ClusterQueue."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.selectors import selector_matches


def namespace_problem(
    namespace: str, labels: Mapping[str, str] | None, cluster_queue: wire.ClusterQueue | None
) -> str | None:
    """Return why workloads of the namespace may not use the queue; None: they may, or the queue is not known.

    `labels` are the namespace's; None: the namespace does not exist.
    """
    if labels is None:
        return f"Namespace {namespace} does not exist"
    if cluster_queue is None or selector_matches(cluster_queue.spec.namespace_selector, labels):
        return None
    name = cluster_queue.metadata.name
    if cluster_queue.spec.namespace_selector is None:
        return f"ClusterQueue {name} admits no namespace: set its spec.namespaceSelector ({{}} admits all)"
    return f"Namespace {namespace} does not match the namespaceSelector of ClusterQueue {name}; label it to match"
