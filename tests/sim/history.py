"""The history of a world, recorded at each stored change."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kqueue.api import gang_names, names
from kqueue.clock import Clock
from kqueue.core.topology import decode
from kqueue.sandbox.api import Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange

_UNTOLD = frozenset({"events", "leases", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"})
"""Kinds that contain the name or the certificate of the writing process, which differ in every run."""

_CONFIGURATION = frozenset({"clusterqueues", "cohorts", "localqueues", "resourceflavors", "topologies"})
_GROUP_OBJECTS = frozenset({"podgroups", "batchprocesses"})
_PREEMPTOR = re.compile(r"\(UID ([^,)]+)")
"""Finds the preemptor in the message of a preemption."""

Witness = Callable[[Object], Iterable[str]]
"""Checks a Workload at the moment of its admission; yields breaches."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """One admission of one Workload."""

    at: float
    uid: str
    workload: Object


class Stand(StrEnum):
    """The state of a Workload, read from the object."""

    WAITS = "waits"
    BLOCKED = "blocked"
    """Deactivated, on hold, short of pods, or evicted by a client that must release it."""
    HOLDS = "holds"
    LEAVES = "leaves"
    """It is evicted and has quota until its pods have ended."""
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Preempted:
    """One preemption of a Workload for another one."""

    at: float
    uid: str
    preemptor: str
    era: int


class Past:
    """The values of a fact over time, each with its start."""

    def __init__(self) -> None:
        self._values: list[tuple[float, Any]] = []

    def add(self, at: float, value: Any) -> None:
        """Record that the value is `value` from `at` on."""
        self._values.append((at, value))

    def since(self, moment: float) -> list[Any]:
        """Return the value at `moment` and all later values."""
        return self.between(moment, math.inf)

    def between(self, first: float, last: float) -> list[Any]:
        """Return the value at `first` and all values until `last`; empty if the first value is later."""
        during = [value for at, value in self._values if first < at <= last]
        return [value for at, value in self._values if at <= first][-1:] + during

    def now(self) -> Any:
        """Return the present value; None without any value."""
        return self._values[-1][1] if self._values else None

    def changed_at(self) -> float:
        """Return the start of the present value."""
        return self._values[-1][0]

    def before(self, moment: float) -> tuple[float, Any]:
        """Return start and value just before `moment`; (moment, None) if there was no value."""
        return next(((at, value) for at, value in reversed(self._values) if at < moment), (moment, None))

    def stayed(self, value: Any, first: float, last: float) -> bool:
        """Whether the value was `value` all the time."""
        return bool(self.between(first, first)) and all(each == value for each in self.between(first, last))


@dataclass(slots=True)
class Life:
    """The history of one Workload."""

    uid: str
    name: str
    queue: str
    """Its LocalQueue."""
    rank: tuple[int, str, str]
    """Sort key by priority, time in line and uid; the smallest goes first."""
    shape: str
    """Equal for Workloads with equal requests."""
    owner: str = ""
    """UID of its controller; empty: it has none."""
    base: str = ""
    """Name of the Workload of the quorum beyond which its pod is; empty: of none."""
    stands: Past = field(default_factory=Past)
    says: Past = field(default_factory=Past)
    """The reason for waiting in its status."""
    ready: Past = field(default_factory=Past)
    """Whether its pods are ready, by its condition."""


class History:
    """Listens to the API server.  Never writes and never raises: breaches are added to `violations`."""

    def __init__(self, api: ClusterApi, clock: Clock) -> None:
        self._clock = clock
        self.violations: list[str] = []
        self.admissions: list[Admitted] = []
        self.born: dict[str, float] = {}
        """Creation time of each Workload, by uid."""
        self.lives: dict[str, Life] = {}
        """Every Workload that ever was, by uid."""
        self._latest: dict[str, Life] = {}
        """The last Workload of each name."""
        self.preemptions: list[Preempted] = []
        self.era = 0
        """Grows with each change that may change decisions, except admissions and evictions."""
        self.stirred = 0.0
        """Time of the last change of a Workload, a queue or a node."""
        self.specs: defaultdict[tuple[str, str], Past] = defaultdict(Past)
        """(plural, name) to (spec, is being deleted) of a queue, cohort or flavor; None: it does not exist."""
        self.wishes: defaultdict[str, Past] = defaultdict(Past)
        """Name of a gang to (UID, spec) of its group object; None: it does not exist."""
        self.nodes: defaultdict[str, Past] = defaultdict(Past)
        """The states of each node; None while it does not exist."""
        self.bound: dict[str, float] = {}
        """Time of binding of each pod, by uid."""
        self.changes = 0
        self.witnesses: list[Witness] = []
        self.placement_witnesses: list[Witness] = []
        """Checks of a Workload at the moment when it gets the domains that it waited for with quota."""
        self.preemption_witnesses: list[Callable[[Object, Preempted], Iterable[str]]] = []
        """Checks of a Workload at the moment of its preemption."""
        self._digest = hashlib.sha256()
        api.listen(self._take)

    def fingerprint(self) -> str:
        """Return a hash that is equal for histories with the same bytes of all objects in the same order."""
        return self._digest.hexdigest()

    def _take(self, kind: ServedKind, change: StoreChange) -> None:
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
            self.disturb(now)
        elif plural in _CONFIGURATION:
            told = None if new is None else (new["spec"], bool(new["metadata"].get("deletionTimestamp")))
            past = self.specs[plural, change.record.name]
            if past.now() != told:
                past.add(now, told)
                self.disturb(now)
        elif plural in _GROUP_OBJECTS:
            told = None if new is None else (new["metadata"]["uid"], new["spec"])
            if self.wishes[change.record.name].now() != told:
                self.wishes[change.record.name].add(now, told)
        elif plural == "pods" and new is not None and new["spec"].get("nodeName"):
            self.bound.setdefault(new["metadata"]["uid"], now)

    def disturb(self, now: float) -> None:
        """Begin a new era after a change from outside."""
        self.era += 1
        self.stirred = now

    def started_for(self, workload: str) -> str:
        """Return the UID of the controller of the Workload with this name, or of the base that it is beyond; empty: it
        has none, or was never seen.
        """
        found = self._latest.get(workload)
        found = self._latest.get(found.base) if found is not None and found.base else found
        return found.owner if found is not None else ""

    def in_line_since(self, admitted: Admitted) -> float:
        """Return the time since which a Workload was the next one of its ClusterQueue, as far as its status shows.

        That is the time of its admission, or the time since which it waited for its victims until then.  A preemptor
        that waits for its victims precedes later Workloads, even older ones or ones of higher priority.
        """
        since, said = self.lives[admitted.uid].says.before(admitted.at)
        return since if said == names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS else admitted.at

    def _live(self, old: Object | None, new: Object | None, now: float) -> None:
        """Record the present state of the Workload."""
        seen = new if new is not None else old
        assert seen is not None
        uid = seen["metadata"]["uid"]
        life = self.lives.get(uid)
        if life is None:
            life = self.lives[uid] = self._born(seen)
        stand = _stand(new)
        if life.stands.now() is not stand:
            if stand in (Stand.OVER, Stand.BLOCKED) or life.stands.now() in (None, Stand.BLOCKED):
                self.disturb(now)
            life.stands.add(now, stand)
            self.stirred = now
        said = _condition(new, names.CONDITION_QUOTA_RESERVED).get("reason")
        if life.says.now() != said:
            life.says.add(now, said)
        ready = _condition(new, names.CONDITION_PODS_READY).get("status") == "True"
        if life.ready.now() != ready:
            life.ready.add(now, ready)
        if _shape(seen) != life.shape or (old is not None and _back(old) != _back(new)):
            life.shape, life.queue = _shape(seen), seen["spec"].get("queueName", "")
            self.disturb(now)
        evicted, before = _condition(new, names.CONDITION_EVICTED), _condition(old, names.CONDITION_EVICTED)
        if evicted.get("status") == "True" != before.get("status") and evicted["reason"] == names.REASON_PREEMPTED:
            found = _PREEMPTOR.search(evicted["message"])
            assert found is not None, evicted
            preempted = Preempted(now, uid, found[1], self.era)
            self.preemptions.append(preempted)
            for look in self.preemption_witnesses:
                self.violations += [f"t={now:.1f}: {told}" for told in look(seen, preempted)]

    def _born(self, workload: Object) -> Life:
        meta, spec = workload["metadata"], workload["spec"]
        rank = (-(spec.get("priority") or 0), self._queued_since(meta), meta["uid"])
        life = Life(meta["uid"], meta["name"], spec.get("queueName", ""), rank, _shape(workload))
        life.owner = next((str(o["uid"]) for o in meta.get("ownerReferences") or () if o.get("controller")), "")
        life.base = str((meta.get("annotations") or {}).get(gang_names.EXTRA_OF_ANNOTATION, ""))
        self._latest[meta["name"]] = life
        return life

    def _queued_since(self, meta: Object) -> str:
        """Return the time by which a Workload is in line: that of its gang's first member or group object, which the
        Workload of the quorum keeps; a pod beyond a quorum has the time of that Workload.  Other Workloads: creation.
        """
        annotations, created = meta.get("annotations") or {}, str(meta["creationTimestamp"])
        base = self._latest.get(annotations.get(gang_names.EXTRA_OF_ANNOTATION, ""))
        if base is not None:
            return min(base.rank[1], created)
        kept = annotations.get(gang_names.GANG_SINCE_ANNOTATION) if gang_names.GANG_ANNOTATION in annotations else None
        return min(str(kept or created), created)

    def _workload(self, old: Object | None, new: Object | None, now: float) -> None:
        self._live(old, new, now)
        if new is None:
            return
        uid, name = new["metadata"]["uid"], new["metadata"]["name"]
        self.born.setdefault(uid, now)
        if _left_over(old) and _condition(new, names.CONDITION_QUOTA_RESERVED).get("status") == "True":
            self.violations.append(f"t={now:.1f}: {name} has the reservation again that ended with its eviction")
        before, after = admission_of(old), admission_of(new)
        is_other = _but_delay(after) != _but_delay(before)
        placed = before is not None and after is not None and _gets_domains(before, after)
        if placed:
            self.violations += [f"t={now:.1f}: {told}" for look in self.placement_witnesses for told in look(new)]
        elif after is not None and before is not None and is_other and not is_repair(old or {}, new):
            self.violations.append(f"t={now:.1f}: {name} was admitted a second time while it was admitted")
        if after is not None and before is None:
            self.admissions.append(Admitted(now, uid, new))
            self.violations += [f"t={now:.1f}: {told}" for witness in self.witnesses for told in witness(new)]


def _left_over(workload: Object | None) -> bool:
    """Whether the eviction of a Workload has ended, and its admission is still in the status."""
    kinds = (names.CONDITION_EVICTED, names.CONDITION_QUOTA_RESERVED)
    ended = [_condition(workload, kind).get("status") for kind in kinds] == ["True", "False"]
    return ended and "admission" in (workload or {})["status"]


def admission_of(workload: Object | None) -> Mapping[str, Any] | None:
    """Return `status.admission`, or None."""
    return ((workload or {}).get("status") or {}).get("admission")


def is_repair(old: Object, new: Object) -> bool:
    """Whether an admission differs only in the domains of pods of failed hosts; all other pods stay.

    Released domains have no pods.
    """
    failed = {node["name"] for node in old["status"].get("unhealthyNodes") or ()}
    before, after = admission_of(old) or {}, admission_of(new) or {}
    if not failed or _but_places(before) != _but_places(after):
        return False
    for was, now in zip(before["podSetAssignments"], after["podSetAssignments"], strict=True):
        left, got = _pods_per_host(was, old), _pods_per_host(now, new)
        kept = {host: pods for host, pods in left.items() if host not in failed}
        if sum(left.values()) != sum(got.values()) or any(got.get(host, 0) < pods for host, pods in kept.items()):
            return False
    return True


def _but_delay(admission: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return an admission without the note that its domains are chosen later, or on another cluster."""
    assignments = [
        {key: value for key, value in pod_set.items() if key != "delayedTopologyRequest"}
        for pod_set in (admission or {}).get("podSetAssignments", ())
    ]
    return {**(admission or {}), "podSetAssignments": assignments}


def is_delayed(pod_set: Mapping[str, Any]) -> bool:
    """Whether the pods of an assignment get their domains later, when their nodes exist."""
    return bool(pod_set.get("delayedTopologyRequest") == "Pending")


def _gets_domains(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether an admission differs only in domains, of which some were delayed before and none is now."""
    delayed = [any(map(is_delayed, admission["podSetAssignments"])) for admission in (before, after)]
    return delayed == [True, False] and _but_places(before) == _but_places(after)


def _but_places(admission: Mapping[str, Any]) -> Mapping[str, Any]:
    assignments = [
        {key: value for key, value in pod_set.items() if key not in ("topologyAssignment", "delayedTopologyRequest")}
        for pod_set in admission["podSetAssignments"]
    ]
    return {**admission, "podSetAssignments": assignments}


def _pods_per_host(pod_set: Mapping[str, Any], workload: Object) -> Counter[str]:
    back = [f for f in workload["status"].get("finishedPods") or () if f["name"] == pod_set["name"]]
    return _places(pod_set) - sum(map(_places, back), Counter())


def _places(entry: Mapping[str, Any]) -> Counter[str]:
    found = entry.get("topologyAssignment")
    return Counter({d.values[-1]: d.count for d in decode(found).domains} if found is not None else {})


def _shape(workload: Object) -> str:
    asked = [
        {key: pod_set.get(key) for key in ("name", "count", "minCount", "topologyRequest", "template")}
        for pod_set in workload["spec"]["podSets"]
    ]
    return json.dumps([workload["spec"].get("priority"), workload["spec"].get("queueName"), asked], sort_keys=True)


def _back(workload: Object | None) -> Any:
    """Return the domains and resources that its finished pods have released."""
    return ((workload or {}).get("status") or {}).get("reclaimablePods")


def _condition(workload: Object | None, kind: str) -> Mapping[str, Any]:
    conditions = ((workload or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def _stand(workload: Object | None) -> Stand:
    if workload is None or workload["metadata"].get("deletionTimestamp"):
        return Stand.OVER
    is_true = {kind for kind in _TOLD if _condition(workload, kind).get("status") == "True"}
    if names.CONDITION_FINISHED in is_true:
        return Stand.OVER
    if admission_of(workload) is not None:
        return Stand.LEAVES if names.CONDITION_EVICTED in is_true else Stand.HOLDS
    held_back = (
        _condition(workload, names.CONDITION_REQUEUED).get("status") == "False"
        or _condition(workload, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS).get("status") == "True"
        or _condition(workload, names.CONDITION_QUOTA_RESERVED).get("reason") == names.REASON_ON_HOLD
    )
    return Stand.BLOCKED if held_back or not workload["spec"].get("active", True) else Stand.WAITS


_TOLD = (names.CONDITION_FINISHED, names.CONDITION_EVICTED)
