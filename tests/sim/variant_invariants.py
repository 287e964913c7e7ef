"""Invariants of concurrent admission: a job has one flavor at a time, and is charged for it once.

Computed from API objects alone, as all invariants.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from kqueue.api import names, variant_names
from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import JOBS, NODES, PODS, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim.history import admission_of
from tests.sim.objects import CLUSTER_QUEUES, WORKLOADS
from tests.sim.reading import Breaches, Invariant, holders, quota_usage
from tests.sim.world import World, is_true


def controller_uid(workload: Object) -> str:
    """Return the UID of the object that controls a Workload; empty: none does."""
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def flavors_of(workload: Object) -> set[str]:
    """Return the flavors of a Workload's admission."""
    return {flavor for flavor, _ in quota_usage(workload)}


def is_variant(world: World, workload: Object) -> bool:
    """Whether another Workload controls this one."""
    return controller_uid(workload) in {each["metadata"]["uid"] for each in world.objects(WORKLOADS)}


def charged(world: World) -> list[Object]:
    """Return the Workloads with quota, without parents whose variant has the quota of the same flavors."""
    held = holders(world)
    covered = {(controller_uid(w), *sorted(flavors_of(w))) for w in held}
    return [w for w in held if (w["metadata"]["uid"], *sorted(flavors_of(w))) not in covered]


def a_job_has_one_flavor(world: World) -> Breaches:
    """No job has a parent, or pods, in two flavors, and no two of its variants are admitted."""
    admitted: defaultdict[str, list[str]] = defaultdict(list)
    for each in world.objects(WORKLOADS):
        name = each["metadata"]["name"]
        if len(flavors_of(each)) > 1:
            yield f"{name} is admitted in {sorted(flavors_of(each))}"
        runs = is_true(each, names.CONDITION_ADMITTED) and not is_true(each, names.CONDITION_FINISHED)
        if is_variant(world, each) and runs and admission_of(each) is not None:
            admitted[controller_uid(each)].append(name)
    yield from (f"{some} of one parent are admitted" for some in admitted.values() if len(some) > 1)
    pools: defaultdict[str, set[str]] = defaultdict(set)
    nodes = {node["metadata"]["name"]: node for node in world.objects(NODES)}
    for pod in world.objects(PODS):
        if (pod.get("status") or {}).get("phase") == "Running" and pod["spec"].get("nodeName"):
            pools[controller_uid(pod)].add(nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][POOL_LABEL])
    yield from (f"a job runs in {sorted(some)}" for some in pools.values() if len(some) > 1)


def whoever_runs_is_charged(world: World) -> Breaches:
    """Running pods use the flavor for which their job is charged: by its parent, or by a variant of it."""
    paid: defaultdict[str, set[str]] = defaultdict(set)
    parents = {w["metadata"]["uid"]: controller_uid(w) for w in world.objects(WORKLOADS)}
    for each in charged(world):
        job = controller_uid(each)
        paid[parents.get(job, job)] |= flavors_of(each)
    nodes = {node["metadata"]["name"]: node for node in world.objects(NODES)}
    for pod in world.objects(PODS):
        if (pod.get("status") or {}).get("phase") != "Running" or not pod["spec"].get("nodeName"):
            continue
        pool = nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][POOL_LABEL]
        if pool not in paid[controller_uid(pod)]:
            yield f"{pod['metadata']['name']} runs in {pool}; its job is charged for {sorted(paid[controller_uid(pod)])}"


def no_flavor_is_overdrawn(world: World) -> Breaches:
    """The sum of all charges is within the quota of each flavor."""
    usage: Counter[tuple[str, str]] = sum((quota_usage(w) for w in charged(world)), Counter())
    for queue in world.objects(CLUSTER_QUEUES):
        for group in queue["spec"]["resourceGroups"]:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    used = usage[flavor["name"], resource["name"]]
                    if used > amount(resource["nominalQuota"], resource["name"]):
                        yield f"{used} {resource['name']} of {flavor['name']} are charged"


def nothing_of_jobs_that_ended_is_charged(world: World) -> Breaches:
    """After the end of a job neither its parent nor a variant has quota."""
    over = {job["metadata"]["uid"] for job in world.objects(JOBS) if is_true(job, "Complete")}
    parents = {w["metadata"]["uid"]: controller_uid(w) for w in world.objects(WORKLOADS)}
    for each in holders(world):
        job = controller_uid(each)
        if parents.get(job, job) in over:
            yield f"{each['metadata']['name']} has quota after the end of its job"


def parents_have_their_mark(world: World) -> Breaches:
    """Every Workload of a job is marked, and has a variant for each flavor unless it has finished."""
    queues = {queue["metadata"]["name"]: queue for queue in world.objects(CLUSTER_QUEUES)}
    flavors = sum(len(g["flavors"]) for q in queues.values() for g in q["spec"]["resourceGroups"])
    made = Counter(controller_uid(each) for each in world.objects(WORKLOADS))
    for each in world.objects(WORKLOADS):
        if is_variant(world, each):
            continue
        labels = each["metadata"].get("labels") or {}
        if labels.get(variant_names.CONCURRENT_ADMISSION_PARENT_LABEL) != "true":
            yield f"{each['metadata']['name']} is no parent"
        if not is_true(each, names.CONDITION_FINISHED) and made[each["metadata"]["uid"]] != flavors:
            yield f"{each['metadata']['name']} has {made[each['metadata']['uid']]} variants"


ALWAYS: tuple[Invariant, ...] = (a_job_has_one_flavor, whoever_runs_is_charged, no_flavor_is_overdrawn)
AT_REST: tuple[Invariant, ...] = (*ALWAYS, nothing_of_jobs_that_ended_is_charged, parents_have_their_mark)
