"""Workloads that have a right to run now, in cases without doubt.

    it fits             the quota tree has room for it
    it reclaims         its ClusterQueue stays within its own nominal quota, and may reclaim from any other
    it comes first      it fits without workloads of lower priority in its own ClusterQueue, which it may preempt

Covers Workloads of one pod set in queues without a topology; in strict ClusterQueues only the first one, and no tree
with strict neighbours, whose first workloads reserve resources.  While a workload of a tree is being evicted, or
resources are reserved for a preemptor, nothing is certain: freed resources may be reserved.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from kqueue.api import gang_names, names
from kqueue.sandbox.api import PODS, Object
from tests.sim.history import Life, Stand, admission_of
from tests.sim.kinds import gang_of, least_of
from tests.sim.objects import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS
from tests.sim.quota_tree import Column, QuotaTree
from tests.sim.reading import holders, quota_usage, requests_of
from tests.sim.world import World, is_true

_PLACED = frozenset({"required", "preferred", "unconstrained", "podSetSliceRequiredTopology"})
"""Keys of a topology request that places a pod set by topology; the keys of ranks are always present."""
_SAFE_AT = 2
"""Preemptions of a Workload by the same preemptor, after which it may be protected from that preemptor."""


def usage_of(workloads: Iterable[Object]) -> dict[str, Counter[Column]]:
    """Return the usage of Workloads, by ClusterQueue."""
    usage: defaultdict[str, Counter[Column]] = defaultdict(Counter)
    for workload in workloads:
        usage[queue_of(workload)].update(quota_usage(workload))
    return usage


def queue_of(workload: Object) -> str:
    """Return the ClusterQueue of an admitted Workload."""
    admission = admission_of(workload)
    assert admission is not None
    return str(admission["clusterQueue"])


def priority_of(workload: Object) -> int:
    """Return the priority; the largest goes first."""
    return int(workload["spec"].get("priority") or 0)


def plain_request(workload: Object) -> int | None:
    """Return the request of all pods in thousandths of a core; None if other resources or topology matter."""
    pod_set, *more = workload["spec"]["podSets"]
    if more or not _PLACED.isdisjoint(pod_set.get("topologyRequest") or {}):
        return None
    asked = requests_of(pod_set["template"]["spec"])
    return None if asked.keys() - {"cpu", "pods"} else asked["cpu"] * int(pod_set["count"])


def flavors_of(spec: Object) -> list[str]:
    """Return the flavors of a ClusterQueue, in the order of their tries."""
    return [flavor["name"] for group in spec.get("resourceGroups") or () for flavor in group["flavors"]]


class Scene:
    """The queues of a world, waiting Workloads and usage, read from the API server."""

    def __init__(self, world: World) -> None:
        self.world = world
        specs = {k: {o["metadata"]["name"]: o["spec"] for o in world.objects(k)} for k in (CLUSTER_QUEUES, COHORTS)}
        self.specs = specs
        self.queues = specs[CLUSTER_QUEUES]
        self.tree = QuotaTree(self.queues, specs[COHORTS])
        self.open = {
            o["metadata"]["name"]
            for o in world.objects(CLUSTER_QUEUES)
            if is_true(o, names.CONDITION_ACTIVE) and _is_open(o)
        }
        self.doors = {
            o["metadata"]["name"]: o["spec"]["clusterQueue"] for o in world.objects(LOCAL_QUEUES) if _is_open(o)
        }
        self.held = holders(world)
        self.lines: defaultdict[str, list[tuple[Life, Object]]] = defaultdict(list)
        """Waiting Workloads of each ClusterQueue, in their order."""
        for workload in world.objects(WORKLOADS):
            life = world.history.lives[workload["metadata"]["uid"]]
            if life.stands.now() is Stand.WAITS and life.queue in self.doors:
                self.lines[self.doors[life.queue]].append((life, workload))
        for line in self.lines.values():
            line.sort(key=lambda entry: entry[0].rank)
        self.moving = self._moving()
        """ClusterQueues of trees with a Workload that is being evicted, or that waits for its victims."""

    def is_strict(self, queue: str) -> bool:
        """Whether only the first Workload of the ClusterQueue may be admitted."""
        return bool(self.queues.get(queue, {}).get("queueingStrategy") == "StrictFIFO")

    def is_placed(self, queue: str) -> bool:
        """Whether pods of the ClusterQueue are placed by topology."""
        return not self.world.tenancy.placed.isdisjoint(flavors_of(self.queues.get(queue, {})))

    def _moving(self) -> set[str]:
        lives = self.world.history.lives
        leaving = {queue_of(w) for w in self.held if lives[w["metadata"]["uid"]].stands.now() is not Stand.HOLDS}
        claiming = {
            queue
            for queue, line in self.lines.items()
            if any(life.says.now() == names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS for life, _ in line)
        }
        return {other for queue in leaving | claiming for other in self.tree.tree_of(queue)}

    def is_kept(self, queue: str) -> bool:
        """Whether a flavor of the ClusterQueue may be kept for a gang of which a member finds no node."""
        stuck = {gang_of(pod) for pod in self.world.objects(PODS) if gang_of(pod) and _finds_no_node(pod)}
        own = set(flavors_of(self.queues.get(queue, {})))
        return any(
            _gang_named_by(workload) in stuck and not own.isdisjoint(flavor for flavor, _ in quota_usage(workload))
            for workload in self.held
        )

    def is_blocked(self) -> bool:
        """Whether all admissions wait until the pods of another Workload are ready."""
        lives = self.world.history.lives
        return self.world.tenancy.pods_ready is not None and any(
            lives[w["metadata"]["uid"]].ready.now() is not True for w in self.held
        )


def _gang_named_by(workload: Object) -> str:
    named = (workload["metadata"].get("annotations") or {}).get(gang_names.GANG_ANNOTATION, "")
    return str(named.rpartition(":")[2])


def _finds_no_node(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def _is_open(queue: Object) -> bool:
    return not queue["metadata"].get("deletionTimestamp") and queue["spec"].get("stopPolicy", "None") == "None"


def entitled(scene: Scene) -> Iterator[tuple[Life, str]]:
    """Yield Workloads that wait although they have a right to run, with the reason."""
    if scene.is_blocked():
        return
    moving = scene.moving
    for queue, line in scene.lines.items():
        if queue not in scene.open or queue in moving or scene.is_placed(queue) or scene.is_kept(queue):
            continue
        if any(scene.is_strict(other) and scene.lines.get(other) for other in scene.tree.tree_of(queue) - {queue}):
            continue
        for life, workload in line[:1] if scene.is_strict(queue) else line:
            if least_of(workload):
                continue  # more must be free than it requests
            right = _right(scene, queue, workload)
            if right is not None:
                yield life, f"{life.name} of {queue} waits although {right}"


def _right(scene: Scene, queue: str, workload: Object) -> str | None:
    wanted = plain_request(workload)
    if wanted is None:
        return None
    spec, tree, usage = scene.queues[queue], scene.tree, usage_of(scene.held)
    rules = spec.get("preemption") or {}
    left_before = Counter(p.uid for p in scene.world.history.preemptions if p.preemptor == workload["metadata"]["uid"])
    safe = {uid for uid, times in left_before.items() if times >= _SAFE_AT}
    staying = usage_of(
        w
        for w in scene.held
        if queue_of(w) != queue or priority_of(w) >= priority_of(workload) or w["metadata"]["uid"] in safe
    )
    for flavor in flavors_of(spec):
        column = (flavor, "cpu")
        if tree.fits(queue, {column: wanted}, usage):
            return f"it fits in {flavor}"
        own, used = tree.nominal(queue, column), usage.get(queue, Counter())[column]
        if rules.get("reclaimWithinCohort") == "Any" and used + wanted <= own and not safe:
            return f"{queue} has {own} of {column} of its own, and uses {used}"
        may = rules.get("withinClusterQueue", "Never") != "Never"
        if may and wanted <= own and tree.fits(queue, {column: wanted}, staying):
            return f"it would fit in {flavor} if those of lower priority left"
    return None


class Patience:
    """Checks that no Workload with a right to run waits for long, in a world without faults.

    Called at the end of each moment: nothing changes between two moments, so a right that exists at each of them exists
    all the time.
    """

    LONGEST = 2.5
    """Seconds within which the controller acts on all that it knows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[str, tuple[float, str]] = {}
        """By uid of a Workload with a right to run: the start of the right, and its reason."""
        self._told: set[str] = set()
        self._seen: Scene | None = None

    def settled(self, scene: Scene) -> None:
        """Check the end of a moment; with the same scene as before, only time has passed."""
        now = self._world.clock.monotonic()
        for uid, (since, right) in self._since.items():
            if now - since > self.LONGEST and uid not in self._told:
                self._told.add(uid)
                self._world.history.violations.append(f"t={now:.1f}: {right}, since t={since:.1f}")
        if scene is not self._seen:
            self._seen, before = scene, self._since
            self._since = {life.uid: before.get(life.uid, (now, right)) for life, right in entitled(scene)}

    def forget(self) -> None:
        """Drop all rights, because a new controller starts."""
        self._since, self._seen = {}, None
