"""Reads the queues of a joint placement, and the workloads that run in them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from kqueue.core.joint.traits import Traits
from kqueue.core.quota import UNLIMITED, Quota
from kqueue.core.topology import Capacity, DomainUsage, NodeFacts, TopologyAssignment, Tree
from kqueue.placing.fields import Fields, Problems, similar
from kqueue.placing.joint_values import BEST_EFFORT, STRICT_FIFO, AskedQueue, RunningPods, RunningWorkload
from kqueue.placing.parts import assignment, quantity
from kqueue.placing.requests import pod_sets, written_levels
from kqueue.placing.values import AskedPodSet

_QUEUE = ("name", "cohort", "strategy", "quota", "weight")
_LIMITS = ("nominal", "borrowingLimit", "lendingLimit")
_RUNNING = ("name", "queue", "podSets", "assignment", "interference")
_DEFAULT_QUEUE = "default"


def queues(problems: Problems, document: Fields) -> tuple[AskedQueue, ...]:
    """Return the queues; one without limits if the document has none."""
    found: dict[str, AskedQueue] = {}
    for path, item in document.items("queues"):
        fields = problems.fields(item, path, _QUEUE)
        name = new_name(problems, fields, "queue", found)
        cohort = fields.optional_text("cohort")
        found[name] = AskedQueue(
            name=name,
            cohort=cohort,
            strategy=fields.choice("strategy", (BEST_EFFORT, STRICT_FIFO), BEST_EFFORT),
            quota={r: _quota(problems, where, value, r, cohort) for r, where, value in fields.members("quota")},
            weight=fields.integer("weight", 1, least=0, most=1_000_000) * 1_000_000_000,
        )
    return tuple(found.values()) or (AskedQueue(name=_DEFAULT_QUEUE, quota={}),)


def new_name(problems: Problems, fields: Fields, what: str, seen: Container[str]) -> str:
    """Return the name of an entry, which no entry in `seen` has."""
    fields.require("name", f"the name of the {what}")
    name = fields.text("name")
    if not name and fields.value("name") == "":
        problems.add(fields.path("name"), f"the name of a {what} cannot be empty: give it one")
    elif name and name in seen:
        problems.add(fields.path("name"), f"there is another {what} of the name {name}: give each its own")
    return name


def queue_of(problems: Problems, fields: Fields, known: Sequence[AskedQueue]) -> str:
    """Return the queue that an entry names; the first one if it names none."""
    names = [queue.name for queue in known]
    queue = fields.text("queue", names[0])
    if queue not in names:
        meant = similar(queue, names)
        problems.add(
            fields.path("queue"),
            f"no queue has this name: the queues are {', '.join(names)}"
            + (f"; perhaps {meant} is meant" if meant else ""),
        )
    return queue


def unlisted(cohort: str | None) -> Quota:
    """Return the quota of a resource that a queue does not list: all that it needs, and nothing to lend to others."""
    return Quota(UNLIMITED, lending_limit=None if cohort is None else 0)


def _quota(problems: Problems, path: str, value: Any, resource: str, cohort: str | None) -> Quota:
    fields = problems.fields(value, path, _LIMITS)
    fields.require("nominal", "the quota of the queue")
    amounts = {
        key: quantity(problems, fields.value(key), fields.path(key), resource)
        for key in _LIMITS
        if fields.has(key) or (key == "nominal" and fields.given(key))
    }
    for key in _LIMITS[1:]:
        if key in amounts and cohort is None:
            problems.add(fields.path(key), "has no effect without a cohort: name one, or leave the limit out")
    nominal, lending = amounts.get("nominal", 0), amounts.get("lendingLimit")
    if lending is not None and cohort is not None and lending > nominal and "nominal" in amounts:
        problems.add(fields.path("lendingLimit"), "is above nominal: a queue lends at most its own quota")
    return Quota(nominal, borrowing_limit=amounts.get("borrowingLimit"), lending_limit=lending)


# --- running workloads


def running(
    problems: Problems, document: Fields, known: Sequence[AskedQueue], levels: Sequence[str]
) -> tuple[RunningWorkload, ...]:
    """Return the workloads that run; the counts of their pods and of their assignments are equal."""
    found: dict[str, RunningWorkload] = {}
    for path, item in document.items("running"):
        fields = problems.fields(item, path, _RUNNING)
        name = new_name(problems, fields, "running workload", found)
        queue = queue_of(problems, fields, known)
        asked = pod_sets(problems, fields, levels, together=False)
        pods = tuple(_placed(problems, fields, asked, levels))
        traits = Traits(interference=fields.text("interference"))
        found[name] = RunningWorkload(name=name, queue=queue, pods=pods, traits=traits)
    return tuple(found.values())


def _placed(
    problems: Problems, fields: Fields, asked: Sequence[AskedPodSet], levels: Sequence[str]
) -> Iterator[RunningPods]:
    """Yield the pod sets with their assignments; a workload with one pod set may have its assignment itself."""
    path = fields.path("assignment")
    own: TopologyAssignment | None = None
    if fields.given("assignment"):
        own = assignment(problems, fields.value("assignment"), path, written_levels(levels))
        if len(asked) != 1:
            problems.add(path, "belongs to one pod set, and there are several: write one into each pod set")
            return
    for pod_set in asked:
        given = fields.given("assignment")
        where = path if given else pod_set.places.of("assignment")
        if given and pod_set.assignment is not None:
            problems.add(pod_set.places.of("assignment"), "the workload has an assignment, too: leave one of them out")
        found = own if given else pod_set.assignment
        if found is None and not given and pod_set.request.count:
            problems.add(where, "missing: the domains in which the pods run are needed here")
        if found is None:
            continue
        if found.count != pod_set.request.count:
            problems.add(
                where, f"has {found.count} pods, and the pod set has count {pod_set.request.count}: make them equal"
            )
        yield RunningPods(path=where, request=pod_set.request, assignment=found)


def check_room(
    problems: Problems, found: Sequence[RunningWorkload], tree: Tree, capacity: Capacity, nodes: Sequence[NodeFacts]
) -> None:
    """Note running pods on unknown domains, and those that do not fit beside all others, which are charged.

    Domains whose nodes are left out of the topology are known, and have no room that counts.
    """
    written = tree.written_levels
    known = {tuple([node.labels.get(level) for level in written]) for node in nodes}
    for workload in found:
        for pods in workload.pods:
            for domain in pods.assignment.domains:
                leaf, name = tree.leaf_of(domain.values), "/".join(domain.values)
                if leaf is None:
                    if domain.values not in known:
                        problems.add(pods.path, f"no node is in domain {name}: correct the values, or add the node")
                    continue
                room = capacity.times(leaf, pods.request.shape.requests, domain.count)
                if room < domain.count:
                    problems.add(
                        pods.path,
                        f"domain {name} has room for {room} of {domain.count} pods beside all other usage: correct "
                        "the count, the requests or the node",
                    )
                capacity.charge((DomainUsage(domain.values, pods.request.requests, domain.count),))
