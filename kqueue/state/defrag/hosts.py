"""The workloads on the hosts of a flavor: now, after moves, and after the start of gangs that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kqueue import model
from kqueue.core.joint.movable import MoveHistory, MoveLimits
from kqueue.core.joint.moving import (
    MoveTarget,
    RunningGang,
    charge,
    close,
    common_path,
    placed,
    release,
    relocated,
    trial,
)
from kqueue.core.topology.node import PODS
from kqueue.core.topology.request import DEFAULT_PROFILE, GangDomains
from kqueue.core.topology.result import Path
from kqueue.errors import InvalidObjectError, NotFoundError
from kqueue.state.defrag.running import running_steps
from kqueue.state.defrag.view import DefragState
from kqueue.state.heads import Heads

FREE, SEVERAL, NO_ROOM = "", "+", "#"
"""Cells of a host without workloads, of one with several, and of one without workloads whose room other pods have."""
Cells = Mapping[Path, Sequence[str]]
"""Domains with a cell for each host: the key of the only workload on it (namespace/name), or one of the above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPicture:
    """The domains that a plan concerns.

    Args:
        after: the same domains after the moves and the start of the gang; None: the state has changed since the plan
            was made, so that its moves are not possible as it has them.
        names: namespace and job by key, the gang and the workloads that move first.
    """

    before: Cells
    after: Cells | None
    names: Mapping[str, str]


class Hosts:
    """The hosts of a flavor with a topology.  Moves and starts change this copy, and nothing else."""

    def __init__(self, state: DefragState, flavor: str) -> None:
        """Take a copy of the state.  Raises NotFoundError: there is no such flavor with a topology."""
        self._state, self._flavor = state, flavor
        self._topologies = state.cache.snapshot([]).topologies
        view = self._topologies.get(flavor)
        if view is None:
            raise NotFoundError(f"no ResourceFlavor {flavor} with a topology")
        self._tree, self._capacity = view.tree, view.capacity
        running: list[RunningGang] = []
        for _ in running_steps(state, self._topologies, running, limits=MoveLimits(), history=MoveHistory()):
            pass
        self._running = {gang.key: gang for gang in running}
        rows = {name: self._capacity.empty().row(name) for name in self._capacity.resources if name != PODS}
        self._offered = [name for name, row in rows.items() if row is not None and len(row) and row.max() > 0]
        """The resources that some host of the flavor has."""
        self._pods: dict[Path, Counter[str]] = {path: Counter() for path in self._tree.paths}
        for gang in running:
            self._put(gang.key, gang.places)

    def cells(self, depth: int) -> Cells:
        """Return the hosts by domain at a depth: 1 is the widest level."""
        found: dict[Path, list[str]] = {}
        for leaf, path in enumerate(self._tree.paths):
            found.setdefault(path[:depth], []).append(self._cell(leaf, path))
        return found

    def move(self, moves: Sequence[tuple[str, Path]], *, out_of: Path) -> bool:
        """Move workloads, each to a domain, and none into `out_of`; return whether all of them have room.

        Without room nothing changes.
        """
        found: list[tuple[RunningGang, MoveTarget]] = []
        with trial(self._topologies):
            level = len(out_of) - 1
            domains = {self._tree.path_of(level, domain): domain for domain in range(self._tree.domains(level))}
            if out_of not in domains:
                return False
            close(self._flavor, self._tree.leaves_of(level, domains[out_of]), self._topologies)
            for key, to in moves:
                gang = self._running.get(key)
                target = relocated(gang, self._topologies) if gang is not None else None
                if gang is None or target is None or common_path(target.places, target.places) != to:
                    return False
                charge(target.usage, self._topologies)
                found.append((gang, target))
        for gang, target in found:
            release(gang.usage, self._topologies)
            charge(target.usage, self._topologies)
            for pods in self._pods.values():
                pods.pop(gang.key, None)
            self._put(gang.key, target.places)
        return True

    def start(self, key: str, *, within: Path = ()) -> bool:
        """Start a workload that waits, in the tightest domain or in the domain `within`; return whether it has room."""
        obj = self._state.workloads.get(key)
        if obj is None:
            return False
        queue = self._state.queue_of.get(model.local_queue_key(obj)) or ""
        try:
            head = Heads(self._state.cache, self._state.workloads.get).make(obj, None, queue=queue, now=self._state.now)
        except InvalidObjectError:
            return False
        spec = self._state.cache.quota.queue_spec(queue)
        profile = (spec.profile if spec is not None else DEFAULT_PROFILE).with_algorithm(head.algorithm)
        domain = GangDomains(levels=self._tree.levels, paths=(within,)) if within else None
        requests = [replace(pod_set.request, within=domain) if domain else pod_set.request for pod_set in head.pod_sets]
        target = placed({self._flavor: requests}, self._topologies, profile)
        if target is None:
            return False
        charge(target.usage, self._topologies)
        self._put(key, target.places)
        return True

    def _put(self, key: str, places: Mapping[str, Sequence[tuple[Path, int]]]) -> None:
        for path, count in (place for of_pod_set in places.values() for place in of_pod_set):
            if path in self._pods:
                self._pods[path][key] += count

    def _cell(self, leaf: int, path: Path) -> str:
        keys = self._pods[path]
        if keys:
            return next(iter(keys)) if len(keys) == 1 else SEVERAL
        free = self._capacity.free(leaf)
        return NO_ROOM if any(free.get(name, 0) <= 0 for name in self._offered) else FREE


def plan_picture(state: DefragState, plan: Mapping[str, Any]) -> PlanPicture:
    """Return the domains that a DefragmentationPlan frees, empties and fills, on the present state.

    Raises:
        NotFoundError: its flavor is gone.
    """
    status, goal = plan.get("status") or {}, (plan.get("spec") or {}).get("goal") or {}
    domain, moves = tuple(status.get("domain") or ()), status.get("moves") or ()
    workload = goal.get("workload") or {}
    gang = f"{workload.get('namespace')}/{workload.get('name')}" if workload else ""
    hosts = Hosts(state, str(status.get("flavor") or ""))
    depth = max(1, len(domain))
    before, after = hosts.cells(depth), None
    asked = [(str(move["workload"]), tuple(move.get("to") or ())) for move in moves]
    if domain and hosts.move(asked, out_of=domain) and (not gang or hosts.start(gang, within=domain)):
        after = hosts.cells(depth)
    concerned = _concerned(before, after, [domain[:depth], *(to[:depth] for _, to in asked)])
    others = sorted({cell for path in concerned for cell in before[path]}.difference((FREE, SEVERAL, NO_ROOM)))
    return PlanPicture(
        before={path: before[path] for path in concerned},
        after={path: after[path] for path in concerned} if after is not None else None,
        names={key: name_of(state, key) for key in (gang, *(key for key, _ in asked), *others) if key},
    )


def name_of(state: DefragState, key: str) -> str:
    """Return namespace and name of the job of a Workload; without a job, or without the Workload, the key."""
    obj = state.workloads.get(key)
    jobs = [owner.name for owner in obj.metadata.owner_references if owner.controller] if obj is not None else []
    return f"{key.partition('/')[0]}/{jobs[0]}" if jobs else key


def _concerned(before: Cells, after: Cells | None, named: Iterable[Path]) -> list[Path]:
    """Return the domains that change or are named, in the order of the topology."""
    changed = {path for path in before if after is not None and before[path] != after[path]}
    wanted = changed.union(named)
    return [path for path in before if path in wanted]
