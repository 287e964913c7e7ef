"""Turns a document with several workloads into a joint placement, or into the list of all its problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kqueue.core.joint.settings import JointOrder, JointSettings
from kqueue.core.quota import Quota
from kqueue.core.topology import membership
from kqueue.core.topology.placers import PLACERS
from kqueue.placing.case import check_hostnames
from kqueue.placing.cluster import cluster
from kqueue.placing.fields import FieldProblem, Fields, Problems
from kqueue.placing.joint_values import BEST_EFFORT, STRICT_FIFO, AskedQueue, AskedWorkload, JointCase
from kqueue.placing.parts import quantity
from kqueue.placing.requests import output_options, pod_sets, switches
from kqueue.placing.values import AskedPodSet

_KEYS = ("name", "topology", "flavor", "nodes", "usage", "algorithm", "queues", "workloads", "joint", "output")
_WORKLOAD = ("name", "podSets", "queue", "priority", "waitSeconds", "profile")
_QUEUE = ("name", "cohort", "strategy", "quota", "weight")
_LIMITS = ("nominal", "borrowingLimit", "lendingLimit")
_MOST_WORKLOADS = 10_000
_MOST_STEPS = 1_000_000
_DEFAULT_QUEUE = "default"
_MOST_PRIORITY = 2**31 - 1


def read(document: dict[str, Any]) -> JointCase | list[FieldProblem]:
    """Return the joint placement of a document with `workloads`, or all its problems."""
    problems = Problems()
    for key in ("podSets", "workload"):
        if key in document:
            problems.add(f"/{key}", "cannot be beside workloads: put pod sets into the workloads, or leave them out")
    fields = problems.fields({k: v for k, v in document.items() if k not in ("podSets", "workload")}, "", _KEYS)
    name, found_cluster = fields.text("name"), cluster(problems, fields)
    chosen = switches(problems, fields)
    queues = _queues(problems, fields)
    workloads = _workloads(problems, fields, queues, found_cluster.levels, profile=chosen.profile.constrained)
    settings, output = _settings(problems, fields), output_options(problems, fields)
    if problems:
        return problems.found
    members = membership(
        found_cluster.nodes,
        levels=found_cluster.levels,
        node_labels=found_cluster.node_labels,
        merge_duplicate_hostnames=chosen.duplicate_hostnames == "merge",
    )
    if chosen.duplicate_hostnames == "error" and found_cluster.is_hostname:
        check_hostnames(problems, found_cluster, members)
    return problems.found or JointCase(
        name=name,
        cluster=found_cluster,
        members=members,
        switches=chosen,
        queues=queues,
        workloads=workloads,
        settings=settings,
        output=output,
        noted=tuple(problems.remarks),
    )


def _settings(problems: Problems, document: Fields) -> JointSettings:
    fields = problems.fields(document.value("joint", {}), document.path("joint"), ("order", "steps"))
    return JointSettings(
        order=JointOrder(fields.choice("order", [order.value for order in JointOrder], JointOrder.STRICT)),
        steps=fields.integer("steps", JointSettings().steps, least=1, most=_MOST_STEPS),
    )


# --- queues


def _queues(problems: Problems, document: Fields) -> tuple[AskedQueue, ...]:
    """Return the queues; one without limits if the document has none."""
    found: dict[str, AskedQueue] = {}
    for path, item in document.items("queues"):
        fields = problems.fields(item, path, _QUEUE)
        fields.require("name", "the name of the queue")
        name = fields.text("name")
        if name in found:
            problems.add(fields.path("name"), f"there is another queue {name!r}: give each its own name")
        cohort = fields.optional_text("cohort")
        found[name] = AskedQueue(
            name=name,
            cohort=cohort,
            strategy=fields.choice("strategy", (BEST_EFFORT, STRICT_FIFO), BEST_EFFORT),
            quota={r: _quota(problems, where, value, r, cohort) for r, where, value in fields.members("quota")},
            weight=fields.integer("weight", 1, least=0, most=1_000_000) * 1_000_000_000,
        )
    return tuple(found.values()) or (AskedQueue(name=_DEFAULT_QUEUE, quota={}),)


def _quota(problems: Problems, path: str, value: Any, resource: str, cohort: str | None) -> Quota:
    fields = problems.fields(value, path, _LIMITS)
    amounts = {
        key: quantity(problems, fields.value(key), fields.path(key), resource) for key in _LIMITS if fields.has(key)
    }
    fields.require("nominal", "the quota of the queue")
    for key in _LIMITS[1:]:
        if key in amounts and cohort is None:
            problems.add(fields.path(key), "has no effect without a cohort: name one, or leave the limit out")
    nominal, lending = amounts.get("nominal", 0), amounts.get("lendingLimit")
    if lending is not None and lending > nominal:
        problems.add(fields.path("lendingLimit"), "is above nominal: a queue lends at most its own quota")
    return Quota(nominal, borrowing_limit=amounts.get("borrowingLimit"), lending_limit=lending)


# --- workloads


def _workloads(
    problems: Problems, document: Fields, queues: Sequence[AskedQueue], levels: Sequence[str], *, profile: str
) -> tuple[AskedWorkload, ...]:
    names = [queue.name for queue in queues]
    found: dict[str, AskedWorkload] = {}
    for path, item in document.items("workloads"):
        fields = problems.fields(item, path, _WORKLOAD)
        fields.require("name", "the name of the workload")
        name = fields.text("name")
        if name in found:
            problems.add(fields.path("name"), f"there is another workload {name!r}: give each its own name")
        queue = fields.text("queue", names[0])
        if queue not in names:
            problems.add(fields.path("queue"), f"no queue has this name; there are {', '.join(names)}")
        found[name] = AskedWorkload(
            name=name,
            pod_sets=_without_earlier(problems, pod_sets(problems, fields, levels, together=False)),
            queue=queue,
            priority=fields.integer("priority", 0, least=-_MOST_PRIORITY, most=_MOST_PRIORITY),
            waited=fields.integer("waitSeconds", 0, least=0),
            profile=fields.choice("profile", sorted(PLACERS), profile),
        )
    if not 1 <= len(found) <= _MOST_WORKLOADS and not problems:
        problems.add(document.path("workloads"), f"needs 1 to {_MOST_WORKLOADS} entries, found {len(found)}")
    return tuple(found.values())


def _without_earlier(problems: Problems, found: tuple[AskedPodSet, ...]) -> tuple[AskedPodSet, ...]:
    """Return the pod sets; places from before and contradicting updates are problems here."""
    for pod_set in found:
        if pod_set.conflict is not None:
            problems.add(pod_set.conflict.path, pod_set.conflict.text)
        for key, given in (("assignment", pod_set.assignment), ("previousAssignment", pod_set.previous)):
            if given is not None:
                problems.add(pod_set.places.of(key), "has no meaning in a joint placement: leave it out")
    return tuple([replace(p, assignment=None, previous=None) for p in found])
