"""Turns a document with several workloads into a joint placement, or into the list of all its problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kqueue.core.joint.exact import MOST_DOMAINS, MOST_WORKLOADS, domains_of, exact_solver
from kqueue.core.joint.registry import DEFAULT_POLICIES, PolicySpec
from kqueue.core.joint.settings import JointOrder, JointSettings
from kqueue.core.topology import Capacity, Membership, Tree
from kqueue.placing.case import members_of
from kqueue.placing.cluster import cluster
from kqueue.placing.fields import FieldProblem, Fields, Problems
from kqueue.placing.joint_policies import TRAITS, policies, statistics, traits
from kqueue.placing.joint_queues import check_room, new_name, queue_of, queues, running
from kqueue.placing.joint_values import AskedQueue, AskedWorkload, JointCase
from kqueue.placing.requests import output_options, pod_sets, profiles, switches
from kqueue.placing.solving import counted_usage
from kqueue.placing.values import AskedPodSet, FlavorNodes

_KEYS = (
    "name", "topology", "flavor", "nodes", "usage", "algorithm", "queues", "running", "workloads", "statistics",
    "joint", "output",
)  # fmt: skip
_SINGLE = ("podSets", "workload")
"""Keys of a placement of one workload."""
_WORKLOAD = ("name", "podSets", "queue", "priority", "waitSeconds", "profile", *TRAITS)
_JOINT = ("order", "steps", "policies", "exact")
_MOST_WORKLOADS = 10_000
_MOST_STEPS = 1_000_000
_MOST_PRIORITY = 2**31 - 1


def read(document: dict[str, Any]) -> JointCase | list[FieldProblem]:
    """Return the joint placement of a document with `workloads`, or all its problems."""
    problems = Problems()
    for key in _SINGLE:
        if key in document:
            problems.add(f"/{key}", "cannot be beside workloads: put pod sets into the workloads, or leave them out")
    fields = problems.fields({k: v for k, v in document.items() if k not in _SINGLE}, "", _KEYS)
    name, before = fields.text("name"), len(problems.found)
    found_cluster = cluster(problems, fields)
    chosen = switches(problems, fields)
    members = members_of(problems, found_cluster, chosen) if len(problems.found) == before else None
    asked_queues = queues(problems, fields)
    runs = running(problems, fields, asked_queues, found_cluster.levels)
    tree = _tree(found_cluster, members) if members is not None else None
    if tree is not None and not chosen.simulate_empty:
        capacity = Capacity.of(tree, foreign=found_cluster.foreign, usage=counted_usage(found_cluster, chosen))
        check_room(problems, runs, tree, capacity, found_cluster.nodes)
    workloads = _workloads(problems, fields, asked_queues, found_cluster.levels, profile=chosen.profile.constrained)
    measured = statistics(problems, fields, [node.name for node in found_cluster.nodes])
    joint = problems.fields(fields.value("joint", {}), fields.path("joint"), _JOINT)
    settings, specs = _settings(problems, joint), policies(problems, joint)
    exact = _exact(problems, joint, specs, workloads, tree)
    output = output_options(problems, fields)
    if problems or members is None:
        return problems.found
    return JointCase(
        name=name,
        cluster=found_cluster,
        members=members,
        switches=chosen,
        queues=asked_queues,
        workloads=workloads,
        running=() if chosen.simulate_empty else runs,
        settings=settings,
        policies=specs,
        statistics=measured,
        exact=exact,
        output=output,
        noted=tuple(problems.remarks),
    )


def _tree(found: FlavorNodes, members: Membership) -> Tree:
    return Tree(topology=found.topology, levels=found.levels, leaves=members.leaves, tolerations=found.tolerations)


def _settings(problems: Problems, fields: Fields) -> JointSettings:
    """Return the settings of the round."""
    return JointSettings(
        order=JointOrder(fields.choice("order", [order.value for order in JointOrder], JointOrder.STRICT)),
        steps=fields.integer("steps", JointSettings().steps, least=1, most=_MOST_STEPS),
    )


def _exact(
    problems: Problems,
    fields: Fields,
    specs: Sequence[PolicySpec],
    workloads: Sequence[AskedWorkload],
    tree: Tree | None,
) -> bool:
    """Return whether the optimum is asked for."""
    exact = fields.flag("exact")
    reason = None
    if exact and specs != DEFAULT_POLICIES:
        reason = "takes no account of policies: leave one of them out"
    elif exact:
        reason = _no_optimum(workloads, tree)
    if reason is not None:
        problems.add(fields.path("exact"), reason)
    return exact


def _no_optimum(workloads: Sequence[AskedWorkload], tree: Tree | None) -> str | None:
    """Return why no optimum can be computed; None: it can."""
    if exact_solver() is None:
        return "OR-tools is not installed: install kqueue[flow], or leave exact out"
    if len(workloads) > MOST_WORKLOADS:
        return f"is for at most {MOST_WORKLOADS} workloads, found {len(workloads)}: leave exact out, or ask for fewer"
    for workload in workloads:
        if len(workload.pod_sets) > 1:
            return f"is for workloads of one pod set, and {workload.name} has {len(workload.pod_sets)}: leave exact out"
        domains = max([domains_of(p.request, tree) for p in workload.pod_sets if tree is not None], default=0)
        if domains > MOST_DOMAINS:
            return (
                f"is for at most {MOST_DOMAINS} domains of the level of each workload, and {workload.name} has "
                f"{domains}: leave exact out, or list fewer nodes"
            )
    return None


def _workloads(
    problems: Problems, document: Fields, known: Sequence[AskedQueue], levels: Sequence[str], *, profile: str
) -> tuple[AskedWorkload, ...]:
    found: dict[str, AskedWorkload] = {}
    entries = list(document.items("workloads"))
    if isinstance(document.value("workloads"), list) and not 1 <= len(entries) <= _MOST_WORKLOADS:
        problems.add(document.path("workloads"), f"needs 1 to {_MOST_WORKLOADS} entries, found {len(entries)}")
    for path, item in entries[:_MOST_WORKLOADS]:
        fields = problems.fields(item, path, _WORKLOAD)
        name = new_name(problems, fields, "workload", found)
        found[name] = AskedWorkload(
            name=name,
            path=path,
            pod_sets=_without_earlier(problems, fields, levels),
            queue=queue_of(problems, fields, known),
            priority=fields.integer("priority", 0, least=-_MOST_PRIORITY, most=_MOST_PRIORITY),
            waited=fields.integer("waitSeconds", 0, least=0),
            profile=fields.choice("profile", profiles(), profile),
            traits=traits(problems, fields, levels),
        )
    return tuple(found.values())


def _without_earlier(problems: Problems, workload: Fields, levels: Sequence[str]) -> tuple[AskedPodSet, ...]:
    """Return the pod sets; places from before and contradicting updates are problems here."""
    found = pod_sets(problems, workload, levels, together=False)
    if workload.value("podSets") == []:
        problems.add(workload.path("podSets"), "a workload has at least one pod set: write it here")
    for pod_set in found:
        if pod_set.conflict is not None:
            problems.add(pod_set.conflict.path, f"{pod_set.conflict.text}; keep one of them")
        for key, given in (("assignment", pod_set.assignment), ("previousAssignment", pod_set.previous)):
            if given is not None:
                problems.add(pod_set.places.of(key), "has no meaning in a joint placement: leave it out")
    return tuple([replace(p, assignment=None, previous=None, conflict=None) for p in found])
