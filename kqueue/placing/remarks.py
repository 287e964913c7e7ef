"""Warnings about valid input that is probably a mistake: each with its JSON pointer and a remedy.

Remarks do not change the answer.  They are computed before any placement and do not depend on free capacity, so they
can also be treated as errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, pairwise

from kqueue.core.request_faults import request_fault
from kqueue.core.topology import HOSTNAME, PODS, DomainUsage, Misfit, MisfitCode, NodeRules, SliceLayer, Tree
from kqueue.core.topology.elastic import inherit
from kqueue.core.topology.matching import rules_problem
from kqueue.core.topology.request import resolve
from kqueue.placing.document import pointer
from kqueue.placing.fields import FieldProblem, quoted, similar
from kqueue.placing.joint_values import JointCase
from kqueue.placing.solving import groups, previous_of, roles, tree_of
from kqueue.placing.values import AskedPodSet, Case

_ORDER = (
    *("topology", "flavor", "nodes", "usage", "algorithm", "workload", "podSets"),
    *("queues", "running", "workloads", "statistics", "joint", "output"),
)
_LONGEST_INDEX = 9
_REQUIRED_TERMS = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_PREFERRED_TERMS = ("nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")

_UNKNOWN_LEVEL = (MisfitCode.LEVEL_NOT_FOUND, MisfitCode.SLICE_LEVEL_NOT_FOUND, MisfitCode.INNER_LEVEL_NOT_FOUND)


def remarks(case: Case) -> tuple[FieldProblem, ...]:
    """Return all remarks on a case, in the order of the document; keys in the order of the documentation."""
    asked = _replaced(case) if case.unhealthy_nodes else _placed(case)
    found = chain(case.noted, _unlabelled(case), _unknown_domains(case), _empty(case), asked)
    return tuple(sorted(found, key=_document_order))


def joint_remarks(case: JointCase) -> tuple[FieldProblem, ...]:
    """Return all remarks on a case with several workloads, in the order of the document."""
    whole = Case(
        name=case.name,
        cluster=case.cluster,
        members=case.members,
        switches=case.switches,
        pod_sets=(),
        noted=case.noted,
    )
    found = [*whole.noted, *_unlabelled(whole), *_unknown_domains(whole), *_unused_quota(case)]
    for workload in case.workloads:
        profile = case.switches.profile.with_algorithm(workload.profile)
        one = replace(whole, switches=replace(case.switches, profile=profile), pod_sets=workload.pod_sets)
        found += [*_empty(one), *_placed(one)]
    return tuple(sorted(found, key=_document_order))


def _document_order(remark: FieldProblem) -> tuple[int, list[tuple[int, str]]]:
    _, top, *keys = remark.path.split("/")
    return _ORDER.index(top), [
        (int(key), "") if key.isascii() and key.isdigit() and len(key) <= _LONGEST_INDEX else (-1, key) for key in keys
    ]


# --- the cluster -----------------------------------------------------------------------------------------------------


def _unlabelled(case: Case) -> Iterator[FieldProblem]:
    """Yield remarks on nodes of the flavor that are outside of the topology."""
    for i, node in enumerate(case.cluster.nodes if case.members.missing_levels else ()):
        missing = case.members.missing_levels.get(node.name)
        if missing:
            yield FieldProblem(
                pointer(f"/nodes/{i}/labels", missing[0]),
                f"node {quoted(node.name)} is left out of the topology, because it lacks the label of this level: "
                "label it, or keep such nodes out by flavor.nodeLabels",
            )


def _unknown_domains(case: Case) -> Iterator[FieldProblem]:
    """Yield remarks on usage of workloads in domains without nodes, if the usage would count otherwise."""
    cluster = case.cluster
    if (case.switches.simulate_empty and not case.unhealthy_nodes) or not (cluster.usage or cluster.other_usage):
        return
    written = cluster.levels[-1:] if cluster.is_hostname else cluster.levels
    known = {tuple([node.labels.get(level) for level in written]) for node in cluster.nodes}

    def unknown(usage: Sequence[DomainUsage], path: str) -> Iterator[FieldProblem]:
        for i, item in enumerate(usage):
            if item.count and item.values not in known:
                labels = ", ".join(
                    f"{level} {quoted(value)}" for level, value in zip(written, item.values, strict=True)
                )
                yield FieldProblem(
                    f"{path}/{i}/values",
                    f"no node has the label{'' if len(written) == 1 else 's'} {labels}: this usage does not count; "
                    "correct the values, or leave the entry out",
                )

    yield from unknown(cluster.usage, "/usage/tas")
    if case.switches.overlapping_flavors and cluster.is_hostname:
        yield from unknown(cluster.other_usage, "/usage/otherFlavors")


def _unused_quota(case: JointCase) -> Iterator[FieldProblem]:
    """Yield remarks on quota of resources that nobody requests, perhaps because the name is wrong."""
    asked = {r for workload in case.workloads for pod_set in workload.pod_sets for r in pod_set.request.requests}
    asked |= {r for workload in case.running for pods in workload.pods for r in pods.request.requests}
    for i, queue in enumerate(case.queues):
        for resource in sorted(queue.quota.keys() - asked - {PODS}):
            meant = similar(resource, asked)
            yield FieldProblem(
                pointer(f"/queues/{i}/quota", resource),
                "no workload requests this resource, so its quota limits nothing: correct the name, or leave it out"
                + (f"; perhaps {meant} is meant" if meant else ""),
            )


# --- requests ---------------------------------------------------------------------------------------------------------


def _empty(case: Case) -> Iterator[FieldProblem]:
    for pod_set in case.pod_sets:
        if pod_set.request.count == 0:
            yield FieldProblem(
                pod_set.places.of("count"), "0 pods: the pod set is skipped; write how many there are, or leave it out"
            )


def _replaced(case: Case) -> Iterator[FieldProblem]:
    """Remark on inputs that prevent the replacement of failed nodes."""
    failed, *more = case.unhealthy_nodes
    known = any(failed in (node.name, node.labels.get(HOSTNAME)) for node in case.cluster.nodes)
    assigned = (pod_set.assignment for pod_set in case.pod_sets if pod_set.assignment is not None)
    if not known and not any(failed == domain.values[-1] for old in assigned for domain in old.domains):
        yield FieldProblem(
            "/workload/unhealthyNodes/0",
            f"{quoted(failed)} is neither a node nor a host of any assignment: nothing is replaced; correct the name",
        )
    if more:
        yield FieldProblem(
            "/workload/unhealthyNodes/1", "only the first node is replaced; leave the others out, and ask for each"
        )
    for pod_set in case.pod_sets:
        old = pod_set.assignment
        if pod_set.request.count and old is None:
            yield FieldProblem(
                pod_set.places.of("assignment"),
                "without an assignment there is nothing to replace, and the pod set is skipped; write where its pods "
                "are, or leave it out",
            )
        elif pod_set.request.count and old is not None:
            layers = pod_set.request.topology.slices
            yield from _unusable(case, pod_set, max(old.count, layers[0].size if layers else 1))


def _placed(case: Case) -> Iterator[FieldProblem]:
    """Remark on inputs that prevent a placement of pod sets at any capacity."""

    @cache
    def tree() -> Tree:
        return tree_of(case)

    for group in groups(case.pod_sets):
        mismatch = _group_mismatch(group)
        if mismatch is not None:
            yield mismatch
        else:
            yield from _searched(case, group, tree)


def _group_mismatch(group: Sequence[AskedPodSet]) -> FieldProblem | None:
    """Return why pod sets cannot be a group, at the path of the later one; None when they can."""
    if len(group) == 1:
        return None
    first, second = group[:2]
    if len(group) > 2:
        return FieldProblem(
            group[2].places.group,
            f"{len(group)} pod sets are in this group, which may have 2; give the others a group of their own",
        )
    if 1 not in (first.request.count, second.request.count):
        return FieldProblem(
            second.places.of("count"),
            f"{first.request.count} and {second.request.count} pods are in one group: one of the two, the leader, must "
            "have 1",
        )
    for key in ("required", "preferred"):
        levels = [getattr(pod_set.request.topology, key) for pod_set in group]
        if levels[0] != levels[1]:
            return FieldProblem(
                second.places.of("topologyRequest", key),
                f"pod set {quoted(first.request.name)} of the same group has {quoted(levels[0])} here, this one "
                f"{quoted(levels[1])}: write the same",
            )
    return None


def _searched(case: Case, group: Sequence[AskedPodSet], tree: Callable[[], Tree]) -> Iterator[FieldProblem]:
    """Yield remarks on pod sets whose domains are searched; pod sets that keep all their domains get none."""
    workers, leader = roles(group)
    pods = workers.request.count
    previous = previous_of(case, group)
    if previous:
        led = leader.request if leader is not None else None
        kept = inherit(tree(), previous, workers=workers.request, leader=led)
        if kept is not None:
            pods = kept.missing
            leader = leader if kept.leader is None else None
    if not pods:
        return
    yield from _unusable(case, workers, pods)
    yield from _left_over(workers, pods)
    if leader is not None:
        yield from _unusable_template(case, leader)


def _left_over(workers: AskedPodSet, pods: int) -> Iterator[FieldProblem]:
    """Yield a remark on pods that do not fill a slice."""
    layers, count = workers.request.topology.slices, workers.request.count
    size = layers[0].size if layers else 1
    rest = pods % size if size else 0
    if rest and rest != pods:
        of = f"count {count}" if pods == count else f"the {pods} pods of {count} that are new"
        yield FieldProblem(
            workers.places.layers[0][1],
            f"{size} does not divide {of}: {rest} {'pod is' if rest == 1 else 'pods are'} not placed; "
            f"make {'the count' if pods == count else 'the new part'} a multiple of the slice size",
        )


def _unusable(case: Case, pod_set: AskedPodSet, pods: int) -> Iterator[FieldProblem]:
    """Yield problems of a request for so many `pods`: its updates, its levels and sizes (the first only), its rules."""
    request = pod_set.request if pod_set.request.count == pods else replace(pod_set.request, count=pods)
    found = resolve(request, case.cluster.levels, case.switches.profile)
    if isinstance(found, Misfit):
        yield FieldProblem(_path_of(found, pod_set), _sentence(found, case.cluster.levels))
    yield from _unusable_template(case, pod_set)


def _path_of(misfit: Misfit, pod_set: AskedPodSet) -> str:
    """Return the JSON pointer of the part of the request that causes a misfit."""
    topology, layers = pod_set.request.topology, pod_set.places.layers
    match misfit.code:
        case MisfitCode.LEVEL_NOT_FOUND:
            return pod_set.places.of("topologyRequest", "preferred" if topology.required is None else "required")
        case MisfitCode.SLICE_LEVEL_NOT_FOUND | MisfitCode.SLICE_LEVEL_ABOVE_POD_SET_LEVEL:
            return layers[0][0]
        case MisfitCode.SLICE_SIZE_MISSING | MisfitCode.COUNT_BELOW_SLICE_SIZE:
            return layers[0][1]
        case MisfitCode.INNER_LEVEL_NOT_FOUND | MisfitCode.INNER_LEVEL_NOT_LOWER:
            return layers[_layer_of(misfit, topology.slices)][0]
        case MisfitCode.INNER_SIZE_NOT_DIVISOR:
            return layers[_layer_of(misfit, topology.slices)][1]
        case _:
            return pod_set.places.of("topologyRequest")


def _layer_of(misfit: Misfit, layers: Sequence[SliceLayer]) -> int:
    """Return the index of the slice layer that a misfit names; if two layers conflict, of the lower one."""
    return next(
        i
        for i, (above, layer) in enumerate(pairwise(layers), 1)
        if layer.level == misfit.level and misfit.other_level in (None, above.level)
    )


def _sentence(misfit: Misfit, levels: Sequence[str]) -> str:
    """Return the sentence with problem, remedy, and the level that the user may have meant."""
    text = str(request_fault(misfit, levels))
    meant = similar(misfit.level or "", levels) if misfit.code in _UNKNOWN_LEVEL else None
    return f"{text}; perhaps {meant} is meant" if meant else text


def _unusable_template(case: Case, pod_set: AskedPodSet) -> Iterator[FieldProblem]:
    """Yield remarks on conflicting updates, and on invalid node selectors and affinity."""
    if pod_set.conflict is not None:
        yield FieldProblem(pod_set.conflict.path, f"{pod_set.conflict.text}; keep one of them")
        return  # the rules are unknown here

    def problem(rules: NodeRules) -> str | None:
        found = rules_problem(
            rules, is_hostname=case.cluster.is_hostname, preferred=case.switches.profile.preferred_affinity
        )
        return found[1] if found is not None else None

    rules = pod_set.request.rules
    whole = problem(rules)
    if whole is None:
        return
    parts = [
        *((pod_set.places.selector[key], NodeRules(selector=((key, value),))) for key, value in rules.selector),
        *(
            (pod_set.places.of(*_REQUIRED_TERMS, i), NodeRules(required=(term,)))
            for i, term in enumerate(rules.required or ())
        ),
        *(
            (pod_set.places.of(*_PREFERRED_TERMS, i, "preference"), NodeRules(preferred=(weighted,)))
            for i, weighted in enumerate(rules.preferred)
        ),
    ]
    told = [FieldProblem(path, text) for path, part in parts if (text := problem(part)) is not None]
    if told:
        yield from told
    else:  # each one is valid, but there are too many of them
        yield FieldProblem(
            pod_set.places.of(
                "nodeSelector" if problem(replace(rules, required=None, preferred=())) else "nodeAffinity"
            ),
            whole,
        )
