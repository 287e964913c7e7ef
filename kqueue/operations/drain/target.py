"""The domain that is drained, and its Reservation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kqueue.api import names
from kqueue.api.reservation_names import RESERVATION_KIND
from kqueue.clock import utc_text
from kqueue.config.duration import parse_duration
from kqueue.core.topology.result import Path
from kqueue.errors import ConfigError, NotFoundError
from kqueue.state.cache import Cache
from kqueue.state.reserved_hosts import hosts_of

JSON = dict[str, Any]
LASTS = timedelta(days=7)
"""How long a drain lasts that names no end."""
_KEPT_SECONDS = 86_400
"""Seconds for which the Reservation of a drain is kept after its end."""
_DAYS = re.compile(r"([0-9]{1,4})d")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTarget:
    """A domain of a Topology."""

    topology: str
    domain: Path

    @property
    def name(self) -> str:
        """The name of its Reservation: the same for each call, so that a call goes on where another one stopped."""
        text = "-".join((self.topology, *self.domain))
        plain = _NOT_IN_A_NAME.sub("-", text.lower()).strip("-")[:_LONGEST_NAME]
        digest = hashlib.sha256("/".join((self.topology, *self.domain)).encode()).hexdigest()[:8]
        return f"drain-{plain}-{digest}"

    def __str__(self) -> str:
        return "/".join(self.domain)


def target_of(cache: Cache, text: str, topology: str) -> DrainTarget:
    """Return the domain with this path, its values joined by slashes; `topology` empty: the only one that has it.

    Raises:
        NotFoundError: no Topology has it.
        ConfigError: several Topologies have it.
    """
    path = tuple(text.strip("/").split("/"))
    known = sorted(cache.quota.topologies())
    having = [name for name in known if topology in ("", name) and hosts_of(cache, name, [path])]
    if not having:
        among = f"Topology {topology}" if topology else f"no Topology ({', '.join(known) or 'there is none'})"
        verb = "has no" if topology else "has the"
        raise NotFoundError(f"{among} {verb} domain {text}; kqueue topology prints the domains, such as b0/r1")
    if len(having) > 1:
        raise ConfigError(f"the Topologies {', '.join(having)} have a domain {text}: name one by --topology")
    return DrainTarget(topology=having[0], domain=path)


def time_of(text: str, flag: str, now: datetime) -> datetime:
    """Return the time that a flag names: a time with its zone, or a duration from now.  Raises ConfigError."""
    try:
        days = _DAYS.fullmatch(text)
        span = timedelta(days=int(days[1])) if days is not None else parse_duration(text)
        if span < timedelta(0):
            raise ConfigError(f"{flag} {text}: must not be before now")
        return now + span
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            f"{flag} {text}: must be a time such as 2026-01-02T15:04:05Z, or a duration such as 2h30m or 3d"
        )
    return moment.astimezone(UTC)


def reservation_object(target: DrainTarget, begins: datetime, ends: datetime, queue: str) -> JSON:
    """Return the Reservation of a drain."""
    spec: JSON = {
        "topology": target.topology,
        "domain": list(target.domain),
        "from": utc_text(begins),
        "to": utc_text(ends),
        "ttlSecondsAfterEnded": _KEPT_SECONDS,
    }
    if queue:
        spec["clusterQueue"] = queue
    return {
        "apiVersion": names.KQUEUE_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {"name": target.name},
        "spec": spec,
    }


def is_of(obj: Mapping[str, Any], target: DrainTarget) -> bool:
    """Whether a Reservation is about this domain."""
    spec = obj.get("spec") or {}
    return (spec.get("topology"), tuple(spec.get("domain") or ())) == (target.topology, target.domain)


def drain_of(obj: Mapping[str, Any]) -> DrainTarget | None:
    """Return the domain of a Reservation that `kqueue drain` has made; None: another client has made it."""
    spec = obj.get("spec") or {}
    target = DrainTarget(topology=str(spec.get("topology")), domain=tuple(spec.get("domain") or ()))
    return target if obj["metadata"]["name"] == target.name else None
