"""Finds Workloads and pods by their owners, and reads the other objects that a list of Workloads shows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kqueue.api import names
from kqueue.cli.ctl import pod_view
from kqueue.cli.ctl import workload_view as view
from kqueue.cli.ctl.discovery import Discovery, OwnerTarget, parse_target
from kqueue.cli.ctl.kinds import LOCAL_QUEUE, PODS, WORKLOAD
from kqueue.cli.ctl.objects import listed
from kqueue.cli.ctl.table import Table
from kqueue.cli.output import printable
from kqueue.errors import ApiError, ConfigError, ForbiddenError, NotFoundError, NotServedError
from kqueue.operations.questions import ask, path

if TYPE_CHECKING:
    from kqueue.cli.reaching import Session
    from kqueue.runtime.client import Client
    from kqueue.runtime.resources import ResourceType

Object = Mapping[str, Any]
_QueueKey = tuple[str, str]
"""(namespace, name) of a LocalQueue."""

_AT_ONCE = 8
"""Concurrent requests to the visibility API."""
_MOST_POSITIONS = "100000"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFilter:
    """The filter of a list of Workloads; empty fields do not filter."""

    statuses: frozenset[str] = frozenset()
    """In lower case."""
    cluster_queue: str = ""
    local_queue: str = ""
    owner: str = ""
    """The value of `--for`."""
    labels: str = ""
    fields: str = ""

    def takes(self, workload: Object) -> bool:
        """Whether a Workload has a status and queues that match."""
        return (
            (not self.statuses or view.status_of(workload).value.lower() in self.statuses)
            and self.cluster_queue in ("", view.admitted_by(workload))
            and self.local_queue in ("", view.queue_of(workload))
        )


async def find_workloads(session: Session, namespace: str | None, search: WorkloadFilter) -> list[dict[str, Any]]:
    """Return the matching Workloads of a namespace, or (None) of all.

    Raises:
        ConfigError: the object behind `--for` does not exist, or no kind is called so.
    """
    if search.owner:
        found = await _of_owner(session, namespace, search)
    else:
        found = await _listed(session, namespace, search.labels, search.fields)
    return [workload for workload in found if search.takes(workload)]


async def _of_owner(session: Session, namespace: str | None, search: WorkloadFilter) -> list[dict[str, Any]]:
    """Return the Workloads with the owner's UID in their label, or without any the Workloads that it owns."""
    _, owner = await _object(session, parse_target(search.owner), namespace)
    uid = owner["metadata"]["uid"]
    labels = ",".join(part for part in (search.labels, f"{names.JOB_UID_LABEL}={uid}") if part)
    found = await _listed(session, namespace, labels, search.fields)
    if found:
        return found
    every = await _listed(session, namespace, search.labels, search.fields)
    return [each for each in every if any(ref.get("uid") == uid for ref in view.owners_of(each))]


async def _listed(session: Session, namespace: str | None, labels: str, fields: str) -> list[dict[str, Any]]:
    return await listed(session.client, WORKLOAD.resource, namespace, labels=labels, fields=fields)


async def find_pods(
    session: Session, namespace: str | None, owner: str, *, labels: str, fields: str
) -> list[dict[str, Any]]:
    """Return the pods of a job.

    Raises:
        ConfigError: there is no such job, or pods of its kind cannot be selected by labels.
    """
    resource, job = await _object(session, parse_target(owner), namespace)
    selector = pod_view.pod_selector(resource.group, job)
    if not selector:
        raise ConfigError(
            f"--for {owner}: pods of a {resource.kind} cannot be found by labels; name a job, such as job/x"
        )
    wanted = ",".join(part for part in (selector, labels) if part)
    found = await listed(session.client, PODS.resource, namespace, labels=wanted, fields=fields)
    where = job["metadata"].get("namespace")
    return [pod for pod in found if pod["metadata"].get("namespace") == where]


async def _object(session: Session, target: OwnerTarget, namespace: str | None) -> tuple[ResourceType, dict[str, Any]]:
    """Return kind and object of `--for`; with all namespaces, the namespace of the context is searched.

    Raises:
        ConfigError: the object does not exist, or no kind has this name.
    """
    resource = await Discovery(session.client).called(target)
    place = (namespace or session.namespace) if resource.namespaced else None
    try:
        return resource, await session.client.get_json(resource, target.name, place)
    except NotFoundError as e:
        where = f" in namespace {place}" if place else ""
        raise ConfigError(f"--for: there is no {resource.kind} {target.name}{where}") from e


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The data of other objects that a list of Workloads shows."""

    cluster_queues: Mapping[_QueueKey, str] = field(default_factory=dict)
    """The ClusterQueue of each LocalQueue."""
    positions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Positions in the LocalQueue, by namespace and name of the Workload."""
    starts: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    """Start times, by namespace and name of the Workload."""
    now: datetime | None = None
    """The time of these; None: they were not asked for."""

    @property
    def table(self) -> Table:
        """Return the table of Workloads with these facts."""
        return Table(columns=view.COLUMNS, row=self.row, wide_columns=view.WIDE_COLUMNS, wide_row=self.wide_row)

    def row(self, workload: Object, now: datetime) -> list[str]:
        """Return the cells of a Workload."""
        meta = workload["metadata"]
        namespace = str(meta.get("namespace", ""))
        pending = view.status_of(workload) is view.WorkloadState.PENDING
        position = self.positions.get((namespace, meta["name"])) if pending else None
        return view.row(
            workload,
            cluster_queue=self.cluster_queues.get((namespace, view.queue_of(workload)), ""),
            position="" if position is None else str(position),
            now=now,
        )

    def wide_row(self, workload: Object) -> list[str]:
        """Return the additional cells of a Workload in a wide list."""
        meta = workload["metadata"]
        start = self.starts.get((str(meta.get("namespace", "")), meta["name"]))
        return view.wide_row(workload, start=view.start_cell(start, self.now) if start and self.now else "")


async def read_surroundings(
    client: Client, workloads: Sequence[Object], namespace: str | None, *, starts_at: datetime | None = None
) -> Surroundings:
    """Read the LocalQueues of the Workloads, and get positions from the controller; with the time `starts_at` start
    times, too.

    Facts that cannot be read are left out, and a note on stderr gives the cause.
    """
    cluster_queues = {}
    if any(not view.admitted_by(each) for each in workloads):
        cluster_queues = await _cluster_queues(client, namespace)
    waiting = {
        (str(each["metadata"].get("namespace", "")), view.queue_of(each))
        for each in workloads
        if view.status_of(each) is view.WorkloadState.PENDING and view.queue_of(each)
    }
    starts = await _starts(client, namespace) if starts_at is not None and waiting else {}
    return Surroundings(cluster_queues, await _positions(client, sorted(waiting)), starts, starts_at)


async def _cluster_queues(client: Client, namespace: str | None) -> dict[_QueueKey, str]:
    try:
        found = await listed(client, LOCAL_QUEUE.resource, namespace)
    except ForbiddenError as e:
        _note(f"ClusterQueues of pending workloads are not shown: {e}")
        return {}
    return {
        (str(each["metadata"].get("namespace", "")), each["metadata"]["name"]): str(
            (each.get("spec") or {}).get("clusterQueue") or ""
        )
        for each in found
    }


async def _starts(client: Client, namespace: str | None) -> dict[tuple[str, str], Object]:
    """Return start times of pending Workloads of a namespace, or (None) of all."""
    where = ("namespaces", namespace) if namespace else ()
    try:
        found = await ask(client, path(names.KQUEUE_VISIBILITY_GROUP, "v1alpha1", *where, "starttimes"))
    except (ApiError, NotServedError) as e:
        _note(f"start times are not shown: {e}")
        return {}
    if "message" in found:
        _note(f"start times are not shown: {found['message']}")
    return {(one["metadata"]["namespace"], one["metadata"]["name"]): one["startTime"] for one in found["items"]}


async def _positions(client: Client, queues: Sequence[_QueueKey]) -> dict[tuple[str, str], int]:
    """Return positions of pending Workloads; the first failure ends the requests."""
    found: dict[tuple[str, str], int] = {}
    try:
        for start in range(0, len(queues), _AT_ONCE):
            some = queues[start : start + _AT_ONCE]
            for positions in await asyncio.gather(*(_positions_in(client, *queue) for queue in some)):
                found.update(positions)
    except (ApiError, NotServedError) as e:
        _note(f"positions in queues are not shown: {e}")
    return found


async def _positions_in(client: Client, namespace: str, queue: str) -> dict[tuple[str, str], int]:
    """Return positions in a LocalQueue, from 1 as in explanations and quotas; the compatible API counts from 0."""
    where = path(names.VISIBILITY_GROUP, names.VERSION, "namespaces", namespace, "localqueues", queue, _PENDING)
    try:
        summary = await ask(client, where, {"limit": _MOST_POSITIONS})
    except NotFoundError:
        return {}  # the workload names a queue that does not exist
    items = summary.get("items") or ()
    return {(namespace, each["metadata"]["name"]): each["positionInLocalQueue"] + 1 for each in items}


_PENDING = "pendingworkloads"


def _note(text: str) -> None:
    print(f"kqueue: {printable(text)}", file=sys.stderr)
