"""Invariants of every world.  Each function yields one sentence per breach.

Everything is computed from API objects alone, with arithmetic of its own, so that the product's mistakes are not
repeated here.  `ON_ADMISSION` is checked at the write that admits a Workload, `ALWAYS` after every step, `AT_REST` when
a controller runs, faults have ended, and enough time has passed for all consequences.

A decision need not know the newest changes: a quota, node or foreign pod that changed within the world's `horizon` may
count as before the change.  Invariants of quota, order and preemption are in `queue_invariants`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

from kqueue.api import names
from kqueue.core.assignment import decode
from kqueue.kube import names as kube_names
from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import JOBS, NODES, PODS, Object
from kqueue.sandbox.selectors import parse_labels
from kqueue.sandbox.topology_spec import POOL_LABEL, RACK_LABEL
from kqueue.state import waiting
from kqueue.state.cache import Cache
from kqueue.state.cache_audit import Told
from tests.sim import preemption_invariants, queue_invariants
from tests.sim.api_client import NONE
from tests.sim.entitled import Patience, Scene
from tests.sim.history import admission_of, is_delayed
from tests.sim.kinds import controller_of, gang_of_workload, least_of
from tests.sim.objects import CLUSTER_QUEUES, FOREIGN, GPU, LEVELS, LOCAL_QUEUES, WORKLOADS
from tests.sim.preemption_invariants import Keeping, Sparing
from tests.sim.quota_tree import grants_of
from tests.sim.reading import Breaches, Invariant, assigned_pod_sets, holders, holds, quota_usage, requests_of
from tests.sim.world import World, condition, is_true, subject_of

# --- reading ---------------------------------------------------------------------------------------------------------


def domains_of(workload: Object) -> Iterator[tuple[Object, tuple[str, ...], tuple[str, ...], int]]:
    """Yield (pod set, levels, values, pods) of every domain of the Workload, without released ones."""
    back = {each["name"]: each["topologyAssignment"] for each in workload["status"].get("finishedPods") or ()}
    for spec, assigned in assigned_pod_sets(workload):
        if assigned.get("topologyAssignment") is not None:
            found = decode(assigned["topologyAssignment"])
            gone = {d.values: d.count for d in decode(back[spec["name"]]).domains} if spec["name"] in back else {}
            for domain in found.domains:
                if domain.count > gone.get(domain.values, 0):
                    yield spec, found.levels, domain.values, domain.count - gone.get(domain.values, 0)


def is_gang(pod: Object) -> bool:
    """Whether the pod is placed by topology."""
    return not names.TOPOLOGY_MARKER_ANNOTATIONS.isdisjoint(pod["metadata"].get("annotations") or {})


def is_over(pod: Object) -> bool:
    """Whether the pod has ended or is being deleted."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def is_gated(pod: Object) -> bool:
    """Whether the pod has the topology gate."""
    return has_gate(pod, names.TOPOLOGY_GATE)


def has_gate(pod: Object, name: str) -> bool:
    """Whether the pod has this gate."""
    return any(gate["name"] == name for gate in pod["spec"].get("schedulingGates") or ())


def is_held(pod: Object) -> bool:
    """Whether the pod is queued itself and has kqueue's gate from before its start."""
    meta = pod["metadata"]
    if names.MANAGED_LABEL not in (meta.get("labels") or {}):
        return False
    started = names.WORKLOAD_ANNOTATION in (meta.get("annotations") or {})
    return has_gate(pod, names.ADMISSION_GATE) or (is_gated(pod) and not started)


def is_usable(node: Object) -> bool:
    """Whether the node accepts new pods."""
    blocked = any(t["effect"] in ("NoSchedule", "NoExecute") for t in node["spec"].get("taints") or ())
    return is_true(node, kube_names.CONDITION_READY) and not node["spec"].get("unschedulable") and not blocked


# --- at the moment of an admission -----------------------------------------------------------------------------------


def has_domains(world: World, workload: Object) -> Breaches:
    """(1) No pod set that is to be placed by topology is ever committed without domains for each of its pods."""
    name = workload["metadata"]["name"]
    for spec, assigned in assigned_pod_sets(workload):
        if world.tenancy.placed.isdisjoint(assigned.get("flavors", {}).values()):
            continue
        if assigned.get("count", spec["count"]) == 0:  # its pods had all succeeded before the rest was admitted again
            continue
        if is_delayed(assigned):  # its nodes are still to be made
            continue
        if assigned.get("topologyAssignment") is None:
            yield f"{name} was admitted without domains for pod set {spec['name']}"
            continue
        found = decode(assigned["topologyAssignment"])
        placed, wanted = sum(d.count for d in found.domains), assigned.get("count", spec["count"])
        if placed != wanted:
            yield f"{name}: {placed} of {wanted} pods of pod set {spec['name']} have a domain"
        required = (spec.get("topologyRequest") or {}).get("required")
        if required is not None:
            level = LEVELS.index(required)
            hosts = _known_labels(world)
            paths = {
                tuple(hosts[d.values[-1]][key] for key in LEVELS[: level + 1])
                for d in found.domains
                if d.values[-1] not in world.moved
            }
            if len(paths) > 1:
                yield f"{name} must be in one {required} and was given {sorted(paths)}"


def keeps_slices_whole(world: World, workload: Object) -> Breaches:
    """No slice spans domains: each domain of a layer's level has a multiple of the layer's size.

    A partly finished gang may have one incomplete slice.
    """
    hosts = _known_labels(world)
    ended = {each["name"] for each in workload["status"].get("reclaimablePods") or ()}
    for spec, _assigned in assigned_pod_sets(workload):
        asked = spec.get("topologyRequest") or {}
        layers = [(c["topology"], c["size"]) for c in asked.get("podsetSliceRequiredTopologyConstraints") or ()]
        if asked.get("podSetSliceRequiredTopology"):
            layers.append((asked["podSetSliceRequiredTopology"], asked["podSetSliceSize"]))
        mine = [(values[-1], n) for each, _levels, values, n in domains_of(workload) if each["name"] == spec["name"]]
        if not world.moved.isdisjoint(host for host, _ in mine):
            continue
        for level, size in layers:
            placed: Counter[str] = Counter()
            for host, count in mine:
                placed[hosts[host][level]] += count
            if sum(count % size > 0 for count in placed.values()) > (spec["name"] in ended):
                yield f"{workload['metadata']['name']} has slices of {size} in one {level}, and was given {dict(placed)}"


def fits_its_nodes(world: World, workload: Object) -> Breaches:
    """(2) On each host, assigned and foreign usage of what it requests stays within allocatable; (27) no assigned host
    refuses new pods.
    """
    assigned: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in holders(world):
        for spec, _levels, values, count in domains_of(each):
            for resource, per_pod in requests_of(spec["template"]["spec"]).items():
                assigned[values[-1]][resource] += per_pod * count
    mine = {values[-1] for _spec, _levels, values, _count in domains_of(workload)}
    for pod in world.objects(PODS):
        host = pod["spec"].get("nodeName")
        known = world.history.bound.get(pod["metadata"]["uid"], 0.0) <= world.stale
        if host in mine and known and not is_gang(pod) and not is_over(pod):
            assigned[host].update(requests_of(pod["spec"]))
    name = workload["metadata"]["name"]
    asked = {resource for spec, *_ in domains_of(workload) for resource in requests_of(spec["template"]["spec"])}
    for host in sorted(mine):
        seen = [node for node in world.history.nodes[host].since(world.stale) if node is not None]
        if not any(is_usable(node) and node["metadata"]["labels"][POOL_LABEL] == "gpu" for node in seen):
            yield f"{name} was given host {host}, which takes no pods or is in another pool"
        for resource, used in assigned[host].items():
            room = max((amount(n["status"]["allocatable"].get(resource, "0"), resource) for n in seen), default=0)
            if used > room and resource in asked:
                yield f"{name} takes host {host} to {used} {resource}, which has {room}"


def _known_labels(world: World) -> dict[str, dict[str, str]]:
    """Return the labels of every node, present ones or ones within the horizon."""
    return {
        node["metadata"]["name"]: node["metadata"]["labels"]
        for past in world.history.nodes.values()
        for node in [node for node in past.since(world.stale) if node is not None][-1:]
    }


ON_PLACEMENT = (has_domains, keeps_slices_whole, fits_its_nodes)
ON_ADMISSION = (*ON_PLACEMENT, *queue_invariants.ON_ADMISSION)


# --- after every step ------------------------------------------------------------------------------------------------


def nothing_was_breached_on_the_way(world: World) -> Breaches:
    """Breaches that were found at the moment of a write, and bugs that the product logged."""
    yield from world.history.violations
    yield from world.bugs


def one_workload_per_job(world: World) -> Breaches:
    """No Job, and no other queued object, has quota twice; a group object that is created again is another one."""
    held = Counter((subject_of(w), gang_of_workload(w) and controller_of(w)) for w in holders(world))
    yield from (f"{name} holds quota through {n} Workloads" for (name, _), n in held.items() if n > 1)


def released_pods_are_in_their_domains(world: World) -> Breaches:
    """(3) Every released pod of an admitted gang is pinned to a domain of the current assignment, no domain has more
    pods than assigned, and no pod set with a required rack runs in two racks.

    Pods on a failed node are being deleted: their gang has other hosts.
    """
    hosts = {n["metadata"]["name"]: n["metadata"]["labels"] for n in world.objects(NODES)}
    usable = {n["metadata"]["name"] for n in world.objects(NODES) if not n["spec"].get("taints")}
    released: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in world.objects(PODS):
        if is_gang(pod) and not is_over(pod) and not is_gated(pod):
            released[pod["metadata"]["annotations"].get(names.WORKLOAD_ANNOTATION, "")].append(pod)
    for workload in holders(world):
        if is_true(workload, names.CONDITION_EVICTED):
            continue
        name, given = workload["metadata"]["name"], Counter[Any]()
        for spec, levels, values, count in domains_of(workload):
            given[spec["name"], levels, values] += count
        pods = released[name]
        taken: Counter[Any] = Counter()
        for pod in pods:
            selector, pod_set = pod["spec"].get("nodeSelector") or {}, _pod_set(pod)
            mine = [
                (each, levels, values)
                for each, levels, values in given
                if each == pod_set and all(selector.get(k) == v for k, v in zip(levels, values, strict=True))
            ]
            taken.update(mine)
            leaves = kube_names.HOSTNAME_LABEL in selector and selector[kube_names.HOSTNAME_LABEL] not in usable
            if not mine and not leaves:
                yield f"pod {pod['metadata']['name']} is released to {selector}, its gang has {sorted(given)}"
        yield from (f"{name}: {n} pods in {d}, which has {given[d]}" for d, n in taken.items() if n > given[d])
        for spec in workload["spec"]["podSets"]:
            if (spec.get("topologyRequest") or {}).get("required") != RACK_LABEL:
                continue
            where = {pod["spec"].get("nodeName") for pod in pods if _pod_set(pod) == spec["name"]}
            racks = {labels[RACK_LABEL] for host, labels in hosts.items() if host in where - world.moved}
            if len(racks) > 1:
                yield f"{name}: pod set {spec['name']} must be in one rack and runs in {sorted(racks)}"


def _pod_set(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.PODSET_LABEL, ""))


def strangers_are_left_alone(world: World) -> Breaches:
    """(10) Jobs and pods without our label are never suspended, gated or written by us."""
    for job in world.objects(JOBS):
        if job["metadata"]["name"].startswith(FOREIGN) and job["spec"].get("suspend"):
            yield f"job {job['metadata']['name']} is a stranger's and was suspended"
    for pod in world.objects(PODS):
        if pod["metadata"]["name"].startswith(FOREIGN) and pod["spec"].get("schedulingGates"):
            yield f"pod {pod['metadata']['name']} is a stranger's and was gated"
    for client in world.clients:
        yield from (
            f"a stranger's object was written: {write}"
            for write in client.writes
            if f"/{FOREIGN}" in write and "/events" not in write
        )


def equals_are_admitted_in_order(world: World) -> Breaches:
    """(6) Among Workloads of one queue with the same priority and shape, the older one (the smaller uid within one
    second) is admitted first, or at most `horizon` later, because writes of one cycle race.

    The older one must exist before the other one is admitted or begins to wait for its victims.
    """
    first: dict[str, float] = {}
    in_line: dict[str, float] = {}
    for admitted in world.history.admissions:
        if admitted.uid not in first:
            first[admitted.uid], in_line[admitted.uid] = admitted.at, world.history.in_line_since(admitted)
    lines: defaultdict[str, list[tuple[str, str, Object]]] = defaultdict(list)
    for workload in world.objects(WORKLOADS):
        if subject_of(workload) in world.disturbed:
            continue
        spec = workload["spec"]
        shape = [(p["count"], p.get("topologyRequest"), requests_of(p["template"]["spec"])) for p in spec["podSets"]]
        meta = workload["metadata"]
        lines[f"{spec.get('queueName')} {spec.get('priority')} {least_of(workload)} {shape}"].append(
            (meta["creationTimestamp"], meta["uid"], workload)
        )
    for line in lines.values():
        line.sort(key=lambda entry: entry[:2])
        for i, (_, older, workload) in enumerate(line):
            for _, younger, other in line[i + 1 :]:
                went = first.get(younger, math.inf)
                in_time = world.history.born[older] + world.horizon <= in_line.get(younger, math.inf)
                if in_time and went + world.horizon < min(first.get(older, math.inf), world.clock.monotonic()):
                    yield f"{other['metadata']['name']} was admitted before {workload['metadata']['name']}, which is older"


def audits_find_nothing(world: World) -> Breaches:
    """An audit at any moment finds that the cache equals its watches, and every sum equals its parts.

    Corrections by the controller's own audits are in `world.bugs`.
    """
    if world.controller is None or not world.controller.operator.ready.is_set():
        return
    operator = world.controller.operator
    watches = operator.watches
    told = Told(nodes=watches.nodes.store, pods=watches.pods.store, workloads=watches.workloads.store)
    yield from (str(drift) for drifts in operator.cache.audits.audit_steps(told) for drift in drifts)


ALWAYS: tuple[Invariant, ...] = (
    nothing_was_breached_on_the_way,
    audits_find_nothing,
    one_workload_per_job,
    released_pods_are_in_their_domains,
    strangers_are_left_alone,
    equals_are_admitted_in_order,
    *queue_invariants.ALWAYS,
)


# --- when all is quiet -----------------------------------------------------------------------------------------------


def no_gate_is_left_over(world: World) -> Breaches:
    """(4) A gated pod has an unfinished Workload that is not admitted: a gang starts whole or not at all.

    Does not apply to pods that are queued themselves and were not started: they are not part of a gang yet.
    """
    workloads = {w["metadata"]["name"]: w for w in world.objects(WORKLOADS)}
    for pod in world.objects(PODS):
        if not is_gated(pod) or is_over(pod) or is_held(pod):
            continue
        owner = workloads.get((pod["metadata"].get("annotations") or {}).get(names.WORKLOAD_ANNOTATION, ""))
        name = pod["metadata"]["name"]
        if owner is None or is_true(owner, names.CONDITION_FINISHED):
            yield f"pod {name} is gated and no Workload lives that could release it"
        elif is_true(owner, names.CONDITION_ADMITTED) and not is_true(owner, names.CONDITION_EVICTED):
            yield f"pod {name} is gated although its gang is admitted"


def jobs_run_exactly_when_admitted(world: World) -> Breaches:
    """(4) A queued Job is suspended and without pods unless its Workload is admitted; then it is not suspended."""
    for job in world.objects(JOBS):
        name = job["metadata"]["name"]
        if names.QUEUE_NAME_LABEL not in (job["metadata"].get("labels") or {}):
            continue
        if is_true(job, "Complete") or is_true(job, "Failed"):
            continue
        workload = world.workload_of(name)
        admitted = workload is not None and holds(workload) and not is_true(workload, names.CONDITION_EVICTED)
        admitted = admitted and is_true(workload, names.CONDITION_ADMITTED)  # not while it waits for its checks
        if admitted and job["spec"].get("suspend"):
            yield f"job {name} is admitted and still suspended"
        if not admitted and not job["spec"].get("suspend"):
            yield f"job {name} runs without being admitted"
        if not admitted and any(not is_over(pod) for pod in world.pods_of(name)):
            yield f"job {name} has pods without being admitted"


def cache_equals_the_api(world: World) -> Breaches:
    """(9) A cache built from the API server's objects equals the controller's cache."""
    assert world.controller is not None
    live = world.controller.operator.cache
    fresh = rebuilt(world)
    yield from (f"the cache has drifted: {drift}" for drift in live.ledger.audit(truth=fresh.ledger))
    for name in live.quota.queue_names():
        believed, true = live.quota.node_of(name), fresh.quota.node_of(name)
        assert believed is not None
        assert true is not None
        if +Counter(believed.usage) != +Counter(true.usage):
            yield f"ClusterQueue {name}: the cache believes in {dict(believed.usage)}, the API server in {dict(true.usage)}"


def rebuilt(world: World) -> Cache:
    """Return a cache built from the controller's present watches, which must equal the server's objects."""
    assert world.controller is not None
    watches, cache = world.controller.operator.watches, Cache()
    for topology in watches.topologies.store.values():
        cache.quota.on_topology(topology.metadata.name, topology)
    for flavor in watches.flavors.store.values():
        cache.on_flavor(flavor.metadata.name, flavor)
    for cohort in watches.cohorts.store.values():
        cache.quota.on_cohort(cohort.metadata.name, cohort)
    for queue in watches.cluster_queues.store.values():
        cache.quota.on_cluster_queue(queue.metadata.name, queue)
    for node in watches.nodes.store.values():
        cache.on_node(node.name, node)
    for pod in watches.pods.store.values():
        cache.held.on_pod(pod.key, pod.bound)
    for workload in watches.workloads.store.values():
        cache.held.on_workload(f"{workload.metadata.namespace}/{workload.metadata.name}", workload)
    return cache


def watches_are_true(world: World) -> Breaches:
    """Every store holds the objects of the API server at their present versions."""
    assert world.controller is not None
    for watch in world.controller.operator.watches.all():
        plural, group = watch.resource.plural, watch.resource.group
        selector = parse_labels(watch._selection.label_selector)
        there = {
            (f"{o['metadata']['namespace']}/" if o["metadata"].get("namespace") else "") + o["metadata"]["name"]: int(
                o["metadata"]["resourceVersion"]
            )
            for o in world.every(group, watch.resource.version, plural)
            if selector.selects(o["metadata"].get("labels"))
        }
        if there != watch._versions or set(there) != set(watch.store):
            yield f"the watch of {plural} holds {watch._versions}, the API server {there}"


def status_tells_the_usage(world: World) -> Breaches:
    """(9) `status.flavorsReservation` is the sum over Workloads with quota, `flavorsUsage` over admitted ones.

    Both have the resources of the ClusterQueue's quota.
    """
    for queue in world.objects(CLUSTER_QUEUES):
        name = queue["metadata"]["name"]
        listed = grants_of(queue["spec"])
        mine = [w for w in holders(world) if admission_of(w)["clusterQueue"] == name]  # type: ignore[index]
        for field, workloads in (
            ("flavorsReservation", mine),
            ("flavorsUsage", [w for w in mine if is_true(w, names.CONDITION_ADMITTED)]),
        ):
            held: Counter[tuple[str, str]] = sum((quota_usage(w) for w in workloads), Counter())
            wanted = Counter({column: amount for column, amount in held.items() if column in listed})
            written = {
                (flavor["name"], r["name"]): amount(r.get("total", "0"), r["name"])
                for flavor in (queue.get("status") or {}).get(field) or ()
                for r in flavor["resources"]
            }
            if +Counter(written) != +wanted:
                yield f"ClusterQueue {name}: {field} is {written}, its Workloads hold {dict(wanted)}"


def waiting_workloads_say_why(world: World) -> Breaches:
    """(12) A waiting Workload's message is one short line with a command for the rest; a refusal by topology names a
    level or the nodes, and numbers.
    """
    for workload in world.objects(WORKLOADS):
        if admission_of(workload) is not None or is_true(workload, names.CONDITION_FINISHED):
            continue
        name, said = workload["metadata"]["name"], condition(workload, names.CONDITION_QUOTA_RESERVED)
        if said is None and is_true(workload, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS):
            continue  # that says why
        if said is None or said["status"] != "False" or not said["message"].strip():
            yield f"{name} waits and does not say why: {said}"
        elif len(said["message"]) > waiting.MOST or "; see kqueue explain" not in said["message"]:
            yield f"{name} says too much, or not where the rest is: {said['message']}"
        elif said["reason"] == "TopologyPlacementFailed" or "no room in the topology" in said["message"]:
            text = waiting.cause_of(said["message"])
            named = re.search(r"the best \S+|nodes?\b|pods fit", text) is not None
            if not named or len(re.findall(r"\d+", text)) < 2:
                yield f"{name} does not say which level or how much: {text}"


def queues_count_who_waits(world: World) -> Breaches:
    """`status.pendingWorkloads` of a ClusterQueue is the number of Workloads that wait for it in an open LocalQueue.

    Workloads on hold, or waiting for replacement pods, do not count.
    """
    for queue in world.objects(CLUSTER_QUEUES):
        name = queue["metadata"]["name"]
        doors = {
            o["metadata"]["name"]
            for o in world.objects(LOCAL_QUEUES)
            if o["spec"].get("clusterQueue") == name and o["spec"].get("stopPolicy", "None") == "None"
        }
        waiting = [
            w["metadata"]["name"]
            for w in world.objects(WORKLOADS)
            if w["spec"].get("queueName") in doors
            and admission_of(w) is None
            and not is_true(w, names.CONDITION_FINISHED)
            and w["spec"].get("active", True)
            and (condition(w, names.CONDITION_QUOTA_RESERVED) or {}).get("reason") != names.REASON_ON_HOLD
            and not is_true(w, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
        ]
        told = (queue.get("status") or {}).get("pendingWorkloads", 0)
        if told != len(waiting):
            yield f"ClusterQueue {name} tells of {told} waiting Workloads, there are {waiting}"


AT_REST: tuple[Invariant, ...] = (
    no_gate_is_left_over,
    jobs_run_exactly_when_admitted,
    watches_are_true,
    cache_equals_the_api,
    status_tells_the_usage,
    waiting_workloads_say_why,
    queues_count_who_waits,
    *queue_invariants.AT_REST,
)


def breaches(world: World, invariants: tuple[Invariant, ...]) -> list[str]:
    """Return all breaches, each with the name of its invariant."""
    return [f"{invariant.__name__}: {told}" for invariant in invariants for told in invariant(world)]


def watch(world: World) -> None:
    """Check every admission and preemption at its write, and, without faults, the end of every moment."""
    history = world.history
    history.witnesses += [partial(witness, world) for witness in ON_ADMISSION]
    history.placement_witnesses += [partial(witness, world) for witness in ON_PLACEMENT]
    history.preemption_witnesses += [partial(witness, world) for witness in preemption_invariants.ON_PREEMPTION]
    if world.faults != NONE:
        return
    patience, sparing, keeping = Patience(world), Sparing(world), Keeping(world)
    history.witnesses.append(keeping.admitted)
    history.preemption_witnesses.append(sparing.preempted)
    seen: list[tuple[int, Scene]] = []

    def settled() -> None:
        if world.controller is None or not world.controller.operator.ready.is_set():
            for each in (patience, sparing, keeping):
                each.forget()
            return
        if not seen or seen[0][0] != history.changes:
            seen[:] = [(history.changes, Scene(world))]
        for each in (patience, sparing, keeping):
            each.settled(seen[0][1])

    world.on_settled.append(settled)


def nothing_is_held(world: World) -> Breaches:
    """At the end no Workload has quota, and no queue reports any."""
    yield from (f"{w['metadata']['name']} still holds quota" for w in holders(world))
    for queue in world.objects(CLUSTER_QUEUES):
        for flavor in (queue.get("status") or {}).get("flavorsReservation") or ():
            used = {r["name"]: r.get("total") for r in flavor["resources"] if amount(r.get("total", "0"), GPU)}
            if used:
                yield f"ClusterQueue {queue['metadata']['name']} tells of {used} in flavor {flavor['name']}"
