"""The orders in which workloads wait, by the profile that a ClusterQueue names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kqueue.core.order_keys import (
    BUILT_IN_PROFILES,
    DEFAULT_PROFILE_NAME,
    PlaceInOrder,
    ProfileOrder,
    built_in_order,
    keeps_runs,
)
from kqueue.core.queued import Queued
from kqueue.model.pending import Pending

FirstTry = Callable[[str, datetime], datetime | None]
"""See `Tries.first`."""


@dataclass(frozen=True, slots=True)
class QueueSorting:
    """The order of one ClusterQueue."""

    queue: str
    order: ProfileOrder
    first_try: FirstTry
    keeps_runs: bool = False
    """Whether the pods beyond the quorum of a gang are tried right after the quorum."""

    def place(self, item: Pending) -> PlaceInOrder:
        """Return the place of a workload."""
        created = item.created or item.timestamp
        return self.order.place(
            Queued(
                key=item.key,
                uid=item.uid,
                queue=self.queue,
                local_queue=item.local_queue,
                priority=item.priority,
                timestamp=item.timestamp,
                created=created,
                first_try=self.first_try(item.key, created),
                gang=item.gang,
            )
        )


class ProfileOrders:
    """The orders of all profiles."""

    def __init__(self, orders: Mapping[str, ProfileOrder] | None = None, *, first_try: FirstTry | None = None) -> None:
        """`orders` by the name of the profile; None: those built in.

        A default profile in `orders` replaces the built-in order, which needs no computed keys.
        """
        if orders is None:
            orders = {name: built_in_order(name) for name in BUILT_IN_PROFILES if name != DEFAULT_PROFILE_NAME}
        self._orders = orders
        self._first_try = first_try or (lambda _key, _created: None)
        self.names = tuple(dict.fromkeys((*BUILT_IN_PROFILES, *orders)))
        """All profiles, those built in first."""

    def of(self, queue: str, profile: str) -> QueueSorting | None:
        """Return the order of a ClusterQueue with this profile; None: priority, timestamp, UID.

        A ClusterQueue with an unknown profile is inactive, so its order does not matter.
        """
        order = self._orders.get(profile)
        return QueueSorting(queue, order, self._first_try, keeps_runs(profile)) if order is not None else None
