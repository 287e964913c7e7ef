"""Signals to a running process: SIGUSR1 changes the log level, SIGUSR2 logs the state of cache and queues."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import structlog

from kqueue.clock import Clock
from kqueue.isolation import isolated_logged
from kqueue.observe import current_level, set_level

if TYPE_CHECKING:  # a webhook process has nothing to dump and does not import these
    from kqueue.core.quota import FlavorResource, QuotaNode
    from kqueue.core.topology.capacity import Capacity
    from kqueue.state.cache import Cache
    from kqueue.state.queues import Queues

_log = structlog.get_logger(__name__)

LINES_MAX = 1000
"""Most lines of a dump.  Further lines are counted only."""
_AT_ONCE = 10
"""Lines before the event loop gets a turn: about 2 ms."""
_COLUMNS, _KEYS = 30, 10
"""Columns of quota, and keys of Workloads, of one line."""


class Signals:
    """Handles SIGUSR1, which changes the log level, and SIGUSR2, which starts a dump, on the running event loop.

    Make it early: without a handler either signal ends the process.
    """

    def __init__(self) -> None:
        self.dump: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Called at SIGUSR2; None: there is nothing to dump."""
        self._first = current_level()
        self._dumping: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._change_level)
        loop.add_signal_handler(signal.SIGUSR2, self._dump)

    def _change_level(self) -> None:
        if self._first == "debug":
            set_level("info" if current_level() == "debug" else "debug")
        else:
            set_level(self._first if current_level() == "debug" else "debug")
        _log.warning("log level changed", now=current_level())

    def _dump(self) -> None:
        if self.dump is None:
            _log.warning("there is nothing to dump in this process")
        elif self._dumping is None or self._dumping.done():  # one at a time
            self._dumping = asyncio.create_task(self.dump(), name="dump")


async def dump(cache: Cache, queues: Queues, clock: Clock, *, lines_max: int = LINES_MAX) -> None:
    """Log queues, quotas and free capacity by domain, at level warning, so that every log level shows them."""
    _log.warning("dump begins", cluster_queues=len(cache.quota.queue_names()), flavors=len(cache.ledger.flavors()))
    left_out = 0
    with isolated_logged(_log, "dump failed on a bug"):
        for number, (what, fields) in enumerate(_lines(cache, queues)):
            if number >= lines_max:
                left_out += 1
                continue
            _log.warning(what, **fields)
            if number % _AT_ONCE == 0:
                await clock.sleep(0)
    _log.warning("dump ends", lines_left_out=left_out)


def _lines(cache: Cache, queues: Queues) -> Iterator[tuple[str, dict[str, Any]]]:
    from kqueue.manager.gauges import cohorts_above

    for name in sorted(cache.quota.queue_names()):
        if (node := cache.quota.node_of(name)) is not None:
            yield "dump: cluster queue", _cluster_queue(name, node, cache, queues)
    for name in sorted(cache.quota.cohort_names()):
        if (node := cache.quota.cohort_node(name)) is not None:
            yield "dump: cohort", {"cohort": name, "above": list(cohorts_above(node)), **_quota(node, node.subtree)}
    for flavor in sorted(cache.ledger.flavors()):
        if (capacity := cache.ledger.capacity(flavor)) is not None and len(capacity.tree):
            yield from _domains(flavor, capacity)


def _cluster_queue(name: str, node: QuotaNode, cache: Cache, queues: Queues) -> dict[str, Any]:
    from kqueue.manager.gauges import cohorts_above

    held, inactive = cache.held.held_in(name), cache.quota.inactive(name)
    (active, inadmissible), tried = queues.counts(name), queues.in_flight(name)
    parked = (item.key for item in queues.waiting(name) if not queues.is_active(item.key))
    return {
        "cluster_queue": name,
        "above": list(cohorts_above(node)),
        "inactive": inactive.reason if inactive is not None else "",
        "active": active,
        "inadmissible": inadmissible,
        "tried_now": tried.key if tried is not None else "",
        "next": queues.front(name, _KEYS)[0],
        "set_aside": list(islice(parked, _KEYS)),
        "reserving": held.reserving,
        "admitted": held.admitted,
        **_quota(node, {column: quota.nominal for column, quota in node.quotas.items()}),
    }


def _quota(node: QuotaNode, quota: Mapping[FlavorResource, int]) -> dict[str, Any]:
    """Return usage and quota of each column; of a cohort, the usage beyond the quotas of its members."""
    from kqueue.manager.gauges import as_written

    columns = {
        f"{column.flavor}/{column.resource}": (
            f"{as_written(column.resource, node.usage.get(column, 0)):.15g}/{as_written(column.resource, amount):.15g}"
        )
        for column, amount in islice(quota.items(), _COLUMNS)
    }
    return {"used": columns, "columns": len(quota)}


def _domains(flavor: str, capacity: Capacity) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the free amounts of each domain above the hosts."""
    import numpy as np

    from kqueue.manager.gauges import as_written

    tree = capacity.tree
    for depth, level in enumerate(tree.levels[:-1] or tree.levels):
        rows = {resource: capacity.row(resource) for resource in capacity.resources}
        sums = {
            resource: np.add.reduceat(np.maximum(row, 0), tree.first_leaf[depth])
            for resource, row in rows.items()
            if row is not None
        }
        for domain in range(tree.domains(depth)):
            free = {resource: as_written(resource, int(amounts[domain])) for resource, amounts in sums.items()}
            yield (
                "dump: domain",
                {"flavor": flavor, "topology_level": level, "domain": tree.path_of(depth, domain), "free": free},
            )
