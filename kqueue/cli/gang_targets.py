"""Finds the gang that a user names by kind and name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kqueue.errors import ConfigError, NotFoundError
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.registry import dialect_of, frameworks
from kqueue.operations.gangs import gangs_in, read_gang_objects, served_gangs

if TYPE_CHECKING:
    from kqueue.cli.reaching import Session

JSON = dict[str, Any]
_GANGS = ("gang", "gangs")
_POD_GROUPS = ("podgroup", "podgroups")


def frameworks_called(kind: str) -> Sequence[Sequence[str]]:
    """Return the frameworks that a name of a kind means, in steps of preference; empty: the name is of no gangs.

    `gang` means groups without an object of their own first; a kind may have its API group, as in
    `podgroup.scheduling.x-k8s.io`.
    """
    called, _, group = kind.lower().partition(".")
    every = [dialect_of(name) for name in frameworks()]
    if kind.lower() in _GANGS:
        alone = [d.framework for d in every if not d.kinds and d.framework != KUEUE_GROUPS]
        return [alone, [d.framework for d in every if d.framework not in alone]]
    found = [
        d.framework
        for d in every
        if d.kinds and called in (d.plural, d.kinds[0].kind.lower()) and group in ("", d.kinds[0].group)
    ]
    return [found] if found else []


def chosen(gangs: Sequence[JSON], kind: str, name: str) -> JSON | None:
    """Return the gang of that kind and name; None: there is none.

    Raises:
        ConfigError: several gangs have the name.
    """
    named = [gang for gang in gangs if gang["metadata"]["name"] == name]
    for step in frameworks_called(kind):
        found = [gang for gang in named if gang["framework"] in step]
        if len(found) > 1:
            forms = " or ".join(f"{_unambiguous(gang['framework'])}/{name}" for gang in found)
            raise ConfigError(f"{kind}/{name} names {len(found)} gangs; write {forms}")
        if found:
            return found[0]
    return None


def _unambiguous(framework: str) -> str:
    kinds = dialect_of(framework).kinds
    return f"{kinds[0].kind.lower()}.{kinds[0].group}" if kinds else "group" if framework == KUEUE_GROUPS else "gang"


async def find_gang(session: Session, kind: str, name: str) -> tuple[JSON | None, Sequence[str]]:
    """Return the gang, and notes about kinds that the user may not read; None: `podgroup` means one of Kueue's groups,
    which its Workload explains.

    Raises:
        ConfigError: several gangs have the name.
        NotFoundError: there is no such gang.
    """
    served = await served_gangs(session.client, session.namespace, name)
    if served is not None:
        found = chosen(served.gangs, kind, name)
        if found is not None or _names_kueue_group(served.gangs, kind, name):
            return found, ()
    read = await read_gang_objects(session.client, session.namespace)  # has forms that are off in the controller, too
    gangs = gangs_in(read, now=datetime.now(UTC), strangers=True)
    found = chosen(gangs, kind, name)
    if found is None and not _names_kueue_group(gangs, kind, name):
        message = f"there is no {kind} {session.namespace}/{name}; kqueue list gangs shows the gangs of a namespace"
        raise NotFoundError(message, status=404)
    return found, read.notes


def _names_kueue_group(gangs: Sequence[JSON], kind: str, name: str) -> bool:
    """Whether `podgroup` and the name mean one of Kueue's groups."""
    if kind.lower() not in _POD_GROUPS:
        return False
    return any((gang["framework"], gang["metadata"]["name"]) == (KUEUE_GROUPS, name) for gang in gangs)
