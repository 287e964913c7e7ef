"""What has happened in a world, taken down at the moment of each stored change."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kqueue.clock import Clock
from kqueue.core.topology import decode
from kqueue.sandbox.api import Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.registry import Kind
from kqueue.sandbox.store import Change

_UNTOLD = frozenset({"events", "leases", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"})
"""Kinds that carry the name or the certificate of the process that wrote them, which no two runs share."""

Witness = Callable[[Object], Iterable[str]]
"""Looks at a Workload at the moment of its admission; yields what is wrong."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """One admission of one Workload."""

    at: float
    uid: str
    workload: Object


class Past:
    """The values that one thing had, and from when on."""

    def __init__(self) -> None:
        self._values: list[tuple[float, Any]] = []

    def add(self, at: float, value: Any) -> None:
        """From `at` on it is `value`."""
        self._values.append((at, value))

    def since(self, moment: float) -> list[Any]:
        """What it was at `moment`, and all it became after that."""
        later = [value for at, value in self._values if at > moment]
        return [value for at, value in self._values if at <= moment][-1:] + later


class History:
    """Listens to the API server.  Never writes, never raises: what is wrong goes into `violations`."""

    def __init__(self, api: ClusterApi, clock: Clock) -> None:
        self._clock = clock
        self.violations: list[str] = []
        self.admissions: list[Admitted] = []
        self.born: dict[str, float] = {}
        """When each Workload was created, by uid."""
        self.nominal: defaultdict[str, Past] = defaultdict(Past)
        """Nominal quota of each ClusterQueue: (flavor, resource) to amount as written."""
        self.nodes: defaultdict[str, Past] = defaultdict(Past)
        """Each node as it was; None while it is not there."""
        self.bound: dict[str, float] = {}
        """When each pod was bound, by uid."""
        self.changes = 0
        self.witnesses: list[Witness] = []
        self._digest = hashlib.sha256()
        api.listen(self._take)

    def fingerprint(self) -> str:
        """Equal for two histories in which every object had the same bytes in the same order."""
        return self._digest.hexdigest()

    def _take(self, kind: Kind, change: Change) -> None:
        plural = kind.resource.plural
        if plural in _UNTOLD or change.record is None:
            return
        self.changes += 1
        self._digest.update(change.line)
        new = None if change.type == "DELETED" else change.record.obj
        now = self._clock.monotonic()
        if plural == "workloads":
            self._workload(None if change.old is None else change.old.obj, new, now)
        elif plural == "nodes":
            self.nodes[change.record.name].add(now, new)
        elif plural == "clusterqueues":
            self.nominal[change.record.name].add(now, {} if new is None else nominal_of(new))
        elif plural == "pods" and new is not None and new["spec"].get("nodeName"):
            self.bound.setdefault(new["metadata"]["uid"], now)

    def _workload(self, old: Object | None, new: Object | None, now: float) -> None:
        if new is None:
            return
        uid, name = new["metadata"]["uid"], new["metadata"]["name"]
        self.born.setdefault(uid, now)
        before, after = admission_of(old), admission_of(new)
        if after is not None and before is not None and after != before and not is_repair(old or {}, new):
            self.violations.append(f"t={now:.1f}: {name} was admitted a second time while it was admitted")
        if after is not None and before is None:
            self.admissions.append(Admitted(now, uid, new))
            self.violations += [f"t={now:.1f}: {told}" for witness in self.witnesses for told in witness(new)]


def admission_of(workload: Object | None) -> Mapping[str, Any] | None:
    """`status.admission`; None when there is none."""
    return ((workload or {}).get("status") or {}).get("admission")


def is_repair(old: Object, new: Object) -> bool:
    """Whether an admission differs only in where the pods of failed hosts went: all others stay where they were."""
    failed = {node["name"] for node in old["status"].get("unhealthyNodes") or ()}
    before, after = admission_of(old) or {}, admission_of(new) or {}
    if not failed or _but_places(before) != _but_places(after):
        return False
    for was, now in zip(before["podSetAssignments"], after["podSetAssignments"], strict=True):
        left, got = _pods_per_host(was), _pods_per_host(now)
        kept = {host: pods for host, pods in left.items() if host not in failed}
        if sum(left.values()) != sum(got.values()) or any(got.get(host, 0) < pods for host, pods in kept.items()):
            return False
    return True


def _but_places(admission: Mapping[str, Any]) -> Mapping[str, Any]:
    assignments = [
        {key: value for key, value in pod_set.items() if key != "topologyAssignment"}
        for pod_set in admission["podSetAssignments"]
    ]
    return {**admission, "podSetAssignments": assignments}


def _pods_per_host(pod_set: Mapping[str, Any]) -> dict[str, int]:
    if "topologyAssignment" not in pod_set:
        return {}
    return {domain.values[-1]: domain.count for domain in decode(pod_set["topologyAssignment"]).domains}


def nominal_of(cluster_queue: Object) -> dict[tuple[str, str], str]:
    """(flavor, resource) to nominal quota as written."""
    return {
        (flavor["name"], quota["name"]): quota["nominalQuota"]
        for group in cluster_queue["spec"].get("resourceGroups") or ()
        for flavor in group["flavors"]
        for quota in flavor["resources"]
    }
