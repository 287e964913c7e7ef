"""Names and limits of Reservations, which are kqueue's own."""

from __future__ import annotations

from typing import Final

RESERVATION_KIND: Final = "Reservation"
"""Kind of domains that are free from one time to another."""
CORDONED_FOR_ANNOTATION: Final = "kqueue.dev/cordoned-for"
"""On nodes: the Reservation for which `kqueue drain` cordoned the node; `kqueue drain --undo` uncordons only these."""

CONDITION_PLANNED: Final = "Planned"
"""The domains of a Reservation are known and kept."""
CONDITION_DRAINING: Final = "Draining"
"""Workloads of others still run on the domains of a Reservation."""
CONDITION_READY: Final = "Ready"
"""The Reservation has begun, and no workload of others runs there."""
CONDITION_ENDED: Final = "Ended"
"""The time of the Reservation is over, and its domains are open to all."""

MOST_RESERVATIONS: Final = 64
"""Reservations that count at a time; the oldest ones come first."""
MOST_HOSTS: Final = 2_048
"""Hosts of all Reservations that count at a time."""
MOST_DOMAINS: Final = 64
"""Domains of one Reservation."""
MOST_RESOURCES: Final = 16
"""Resources of one Reservation."""
MOST_LISTED: Final = 32
"""Workloads that the status of a Reservation lists."""
LONGEST_RESERVATION_DAYS: Final = 366
"""The most days from the begin of a Reservation to its end."""
