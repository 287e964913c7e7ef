"""Readers of the product's state that only tests need."""

from __future__ import annotations

from kqueue.api.wire import kueue as wire
from kqueue.core.topology import HOSTNAME
from kqueue.model import template_path
from kqueue.model.resources import template_requests
from kqueue.observe import Checks, Metrics
from kqueue.observe.exposition import chunks
from kqueue.state.flavor_room import Amounts, subtract
from kqueue.state.ledger import NodeLedger


def page_of(metrics: Metrics) -> bytes:
    """Return the present page of metrics, rendered on the caller's thread and without the cache."""
    metrics._sample()
    return b"".join(chunks(metrics._pages(), metrics._role))


def failing(checks: Checks) -> dict[str, str]:
    """Return the failing checks with their reasons; empty if ready."""
    return {name: reason for name, reason in checks.results().items() if reason is not None}


def free_by_node(ledger: NodeLedger) -> dict[str, Amounts]:
    """Return by usable node: allocatable, minus foreign pods, minus usage of topologies with host names.

    Usage of topologies without host names belongs to no single node and is left out.
    """
    free: dict[str, Amounts] = {}
    for name, node in ledger._nodes.items():
        if node.usable:
            amounts = dict(node.allocatable)
            subtract(amounts, ledger._foreign.get(name, {}))
            host = node.labels.get(HOSTNAME)
            if host is not None:
                subtract(amounts, ledger._host_usage.get((host,), {}))
            free[name] = amounts
    return free


def requests_per_pod(obj: wire.Workload) -> dict[str, Amounts]:
    """Return the requests of one pod, per pod set.  Raises InvalidObjectError."""
    return {p.name: template_requests(p.template.spec, template_path(i)) for i, p in enumerate(obj.spec.pod_sets)}
