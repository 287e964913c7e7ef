"""What tests read from the product's state, and the product itself does not."""

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
    """The page of metrics as of now, made on the caller's thread and without the cache."""
    metrics._sample()
    return b"".join(chunks(metrics._pages(), metrics._role))


def failing(checks: Checks) -> dict[str, str]:
    """The failing checks with their reasons; empty when ready."""
    return {name: reason for name, reason in checks.results().items() if reason is not None}


def free_by_node(ledger: NodeLedger) -> dict[str, Amounts]:
    """Of every usable node: allocatable, less foreign pods, less usage by topology that names its host.

    Usage of topologies without host names belongs to no single node and is not in it.
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
    """Per pod set, what one pod requests.  Raises InvalidObjectError."""
    return {p.name: template_requests(p.template.spec, template_path(i)) for i, p in enumerate(obj.spec.pod_sets)}
