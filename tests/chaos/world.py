"""The API objects of one moment, and what they say: who holds quota, which pods run, what is free on each host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqueue.sandbox.amount import amount
from tests.integration.road import has, hosts_of
from tests.sim.quota_tree import Column, QuotaTree

Object = dict[str, Any]

KINDS = ("Node", "ClusterQueue", "LocalQueue", "Job", "Workload", "Pod")
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One event of a watch."""

    revision: int
    """The resourceVersion: all kinds share one sequence, because one etcd keeps them."""
    at: float
    """Seconds on the clock of the audit, when the event arrived."""
    kind: str
    """One of `KINDS`."""
    obj: Object
    deleted: bool = False


@dataclass(slots=True)
class World:
    """All objects as of one revision, by kind and UID."""

    objects: dict[str, dict[str, Object]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    succeeded: dict[str, dict[str, str]] = field(default_factory=dict)
    """Job UID to {pod UID: host} of its pods that reported success; pods that were deleted since are still in it."""
    before_admission: dict[str, frozenset[str]] = field(default_factory=dict)
    """Workload UID to the pods that had succeeded before its present admission, which is for the others only."""
    _tree: QuotaTree | None = None

    def take(self, change: Change) -> Object | None:
        """Apply one change; returns the object as it was before, None for a new one."""
        uid = change.obj["metadata"]["uid"]
        of_kind = self.objects[change.kind]
        before = of_kind.pop(uid, None)
        if not change.deleted:
            of_kind[uid] = change.obj
        if change.kind == "ClusterQueue" and (before is None or change.deleted or before["spec"] != change.obj["spec"]):
            self._tree = None
        if change.kind == "Pod" and phase(change.obj) == "Succeeded":
            self.succeeded.setdefault(owner(change.obj), {})[uid] = change.obj["spec"].get("nodeName", "")
        if change.kind == "Workload" and admission(change.obj) and not (before and admission(before)):
            self.before_admission[uid] = frozenset(self.succeeded.get(owner(change.obj), {}))
        if change.kind == "Job" and change.deleted:
            self.succeeded.pop(uid, None)
        return before

    def all(self, kind: str) -> list[Object]:
        """The objects of one kind."""
        return list(self.objects[kind].values())

    # --- quota

    @property
    def tree(self) -> QuotaTree:
        """ClusterQueues and cohorts, with their quotas."""
        if self._tree is None:
            self._tree = QuotaTree({name(queue): queue["spec"] for queue in self.all("ClusterQueue")}, {})
        return self._tree

    def holders(self) -> list[Object]:
        """Workloads that have an admission and are not finished."""
        return [workload for workload in self.all("Workload") if holds(workload)]

    def reserved(self) -> dict[str, Counter[Column]]:
        """ClusterQueue to the quota that Workloads hold; pods that succeeded hold none."""
        total: dict[str, Counter[Column]] = {name(queue): Counter() for queue in self.all("ClusterQueue")}
        for workload in self.holders():
            left, count = self.pods_left(workload), admitted_pods(workload)
            queue = total.setdefault(admission(workload)["clusterQueue"], Counter())
            for column, used in usage(workload).items():
                queue[column] += used * left // count
        return total

    def used_by_pods(self) -> tuple[dict[str, Counter[Column]], list[Object]]:
        """ClusterQueue to what its running pods take of quota, and the running pods of Jobs without an admission."""
        by_job = {owner(workload): workload for workload in self.holders()}
        total: dict[str, Counter[Column]] = {name(queue): Counter() for queue in self.all("ClusterQueue")}
        strays = []
        for pod in self.running_pods():
            workload = by_job.get(owner(pod))
            if workload is None:
                strays.append(pod)
                continue
            queue, count = admission(workload)["clusterQueue"], admitted_pods(workload)
            for column, used in usage(workload).items():
                total[queue][column] += used // count
        return total, strays

    def cluster_queue_of(self, workload: Object) -> str:
        """The ClusterQueue that the Workload waits in; empty when its LocalQueue does not exist."""
        wanted = (workload["metadata"].get("namespace"), workload["spec"].get("queueName"))
        for queue in self.all("LocalQueue"):
            if (queue["metadata"].get("namespace"), name(queue)) == wanted:
                return str(queue["spec"]["clusterQueue"])
        return ""

    # --- pods and hosts

    def running_pods(self) -> list[Object]:
        """Pods that are bound and have not ended."""
        return [pod for pod in self.all("Pod") if pod["spec"].get("nodeName") and phase(pod) not in _ENDED]

    def running(self, workload: Object) -> int:
        """How many pods of the Workload's job are bound and have not ended."""
        job = owner(workload)
        return sum(owner(pod) == job for pod in self.running_pods())

    def done(self, workload: Object) -> dict[str, str]:
        """Pods that have succeeded since the Workload was admitted, with their hosts."""
        before = self.before_admission.get(workload["metadata"]["uid"], frozenset())
        succeeded = self.succeeded.get(owner(workload), {})
        return {uid: host for uid, host in succeeded.items() if uid not in before}

    def pods_left(self, workload: Object) -> int:
        """How many of the admitted pods have not succeeded.

        A pod may succeed between the decision to admit and its write; so what the Job counts is subtracted, too.
        """
        wanted = sum(pod_set["count"] for pod_set in workload["spec"]["podSets"])
        job = self.objects["Job"].get(owner(workload))
        of_job = wanted - (counted(job) if job is not None else 0)
        return max(0, min(int(of_job), admitted_pods(workload) - len(self.done(workload))))

    def on_hosts(self, workload: Object) -> Counter[str]:
        """Host to the number of pods that the Workload's admission puts there and that have not succeeded.

        When a pod succeeded between decision and write, nothing says which host it leaves: then only bound pods count.
        """
        assigned = hosts_of(workload) - Counter(self.done(workload).values())
        if assigned.total() <= self.pods_left(workload):
            return assigned
        job = owner(workload)
        return Counter(pod["spec"]["nodeName"] for pod in self.running_pods() if owner(pod) == job)

    def free(self) -> dict[str, Counter[str]]:
        """Host to what Workloads leave free of each resource, on nodes that take pods."""
        left = {name(node): allocatable(node) for node in self.all("Node") if takes_pods(node)}
        for workload in self.holders():
            asked = requests(workload)
            for host, pods in self.on_hosts(workload).items():
                if host in left:
                    left[host].subtract({resource: each * pods for resource, each in asked.items()})
        return left


# --- one object


def name(obj: Object) -> str:
    """Its name."""
    return str(obj["metadata"]["name"])


def label(obj: Object) -> str:
    """Namespace and name, for messages."""
    namespace = obj["metadata"].get("namespace")
    return f"{namespace}/{name(obj)}" if namespace else name(obj)


def owner(obj: Object) -> str:
    """UID of its controller; empty without one."""
    return next((each["uid"] for each in obj["metadata"].get("ownerReferences", ()) if each.get("controller")), "")


def phase(pod: Object) -> str:
    """The pod's phase."""
    return str(pod.get("status", {}).get("phase", ""))


def counted(job: Object) -> int:
    """How many pods the Job counts as succeeded.

    A pod may report success while its Job stops it; then the Job may have given it up, and runs it again later.
    """
    status = job.get("status") or {}
    uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
    return (status.get("succeeded") or 0) + len(uncounted)


def admission(workload: Object) -> Object:
    """The Workload's admission; empty without one."""
    found: Object = workload.get("status", {}).get("admission") or {}
    return found


def holds(workload: Object) -> bool:
    """Whether the Workload has an admission and is not finished."""
    return bool(admission(workload)) and not has(workload, "Finished")


def usage(workload: Object) -> Counter[Column]:
    """(flavor, resource) to the amount that the admission gives to all pods."""
    total: Counter[Column] = Counter()
    for assigned in admission(workload).get("podSetAssignments", ()):
        for resource, flavor in assigned.get("flavors", {}).items():
            total[flavor, resource] += amount(assigned["resourceUsage"][resource], resource)
    return total


def admitted_pods(workload: Object) -> int:
    """How many pods the admission is for; 1 at least."""
    return max(1, sum(int(assigned.get("count", 0)) for assigned in admission(workload).get("podSetAssignments", ())))


def requests(workload: Object) -> Counter[str]:
    """What one pod of the Workload asks for; the load has one pod set with one container."""
    containers = workload["spec"]["podSets"][0]["template"]["spec"]["containers"]
    asked = containers[0].get("resources", {}).get("requests") or {}
    return Counter({resource: amount(text, resource) for resource, text in asked.items()} | {"pods": 1})


def allocatable(node: Object) -> Counter[str]:
    """What the node offers to pods."""
    offered = node.get("status", {}).get("allocatable") or {}
    return Counter({resource: amount(text, resource) for resource, text in offered.items()})


def takes_pods(node: Object) -> bool:
    """Whether the node is ready, not cordoned and without taints that keep pods away."""
    taints = node["spec"].get("taints") or ()
    kept_away = any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in taints)
    return has(node, "Ready") and not node["spec"].get("unschedulable") and not kept_away


def flavors(queue: Object) -> Iterator[str]:
    """The flavors that a ClusterQueue has quota in."""
    for group in queue["spec"].get("resourceGroups") or ():
        yield from (flavor["name"] for flavor in group["flavors"])


def told_reservations(queue: Object) -> tuple[int, Mapping[Column, int]]:
    """(Workloads, amounts that are not 0) that the status of a ClusterQueue reports as reserved."""
    status = queue.get("status") or {}
    amounts = {
        (flavor["name"], each["name"]): amount(each.get("total", "0"), each["name"])
        for flavor in status.get("flavorsReservation") or ()
        for each in flavor.get("resources") or ()
    }
    return status.get("reservingWorkloads") or 0, {column: used for column, used in amounts.items() if used}
