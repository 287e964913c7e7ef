"""The result of a placement as JSON.  The order of keys is fixed, so equal results are equal texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.core.topology import (
    Capacity,
    Domain,
    Exclusions,
    Misfit,
    MisfitCode,
    PodSetPlacement,
    Tree,
    encode,
    encode_plain,
)
from kqueue.core.topology.result import Path
from kqueue.placing.fields import FieldProblem
from kqueue.placing.solving import PodSetOutcome, Solution, UpdateConflict
from kqueue.placing.values import Case, OutputOptions

_REASONS = ("notReady", "unschedulable", "flavorLabels", "missingLevel", "duplicateHostname")


def text(value: Mapping[str, Any], *, compact: bool) -> str:
    """Return the document as text that ends in a newline."""
    if compact:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def error(document: Any, problems: Sequence[FieldProblem]) -> dict[str, Any]:
    """Return the document that is printed in place of an answer when the input is not valid."""
    name = document.get("name") if isinstance(document, dict) else None
    return {
        "name": name if isinstance(name, str) else "",
        "error": {
            "code": "InvalidInput",
            "problems": [{"path": problem.path, "problem": problem.text} for problem in problems],
        },
    }


def answer(solution: Solution) -> dict[str, Any]:
    """Return the answer to a valid input."""
    result: dict[str, Any] = {
        "name": solution.case.name,
        "placed": solution.placed,
        "tree": tree_entry(solution.tree, solution.ignored),
        "podSets": [_pod_set(solution.case, outcome) for outcome in solution.outcomes],
    }
    if solution.case.output.remaining:
        result["remaining"] = remaining(solution.tree, solution.capacity, solution.used)
    return result


def _pod_set(case: Case, outcome: PodSetOutcome) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": outcome.name, "status": outcome.status.value}
    if outcome.placement is not None:
        entry.update(_placed(case, outcome, outcome.placement))
    if outcome.failure is not None:
        entry["failure"] = _failure(case, outcome.failure)
    return entry


def _placed(case: Case, outcome: PodSetOutcome, placement: PodSetPlacement) -> dict[str, Any]:
    entry = assigned(placement, case.output)
    if outcome.kept is not None:
        entry["kept"] = outcome.kept
    if outcome.added is not None:
        domains = _domains(case.output, outcome.added.assignment.domains, outcome.added.paths)
        entry["replacement"] = {"node": case.unhealthy_nodes[0], "domains": domains}
    return entry | quality(placement)


def assigned(placement: PodSetPlacement, output: OutputOptions) -> dict[str, Any]:
    """Return the domains of a placed pod set, in the forms that the output asks for."""
    assignment = placement.assignment
    entry: dict[str, Any] = {
        "assignment": {
            "levels": list(assignment.levels),
            "domains": _domains(output, assignment.domains, placement.paths),
        }
    }
    if output.encoding == "v1beta2" and assignment.domains:
        entry["topologyAssignment"] = encode(assignment)
    elif output.encoding == "v1beta1":
        entry["topologyAssignment"] = encode_plain(assignment)
    return entry


def quality(placement: PodSetPlacement) -> dict[str, Any]:
    """Return the quality of a placed pod set, as far as it was measured."""
    entry: dict[str, Any] = {}
    if placement.proven is not None:
        entry["proven"] = placement.proven
    if placement.quality:
        entry["quality"] = [
            {"level": level.level, "used": level.used, "lowerBound": level.lower_bound} for level in placement.quality
        ]
    return entry


def _domains(output: OutputOptions, domains: Sequence[Domain], paths: Sequence[Path]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"values": list(domain.values), "count": domain.count} for domain in domains]
    if output.paths:
        for entry, path in zip(found, paths, strict=True):
            entry["path"] = list(path)
    return found


def _failure(case: Case, why: Misfit | UpdateConflict) -> dict[str, Any]:
    """Return a failure with the facts for its code."""
    if isinstance(why, UpdateConflict):
        return {"code": "InvalidPodSetUpdate", "detail": f"pod set {why.pod_set}: {why.detail}"}
    if why.code is MisfitCode.NO_REPLACEMENT:
        return {"code": why.code.value, "node": case.unhealthy_nodes[0]}
    return misfit(why)


def misfit(why: Misfit) -> dict[str, Any]:
    """Return why pods have no domains, with the facts for its code."""
    return {"code": why.code.value, **_facts(why)}


def _facts(why: Misfit) -> dict[str, Any]:
    match why.code:
        case MisfitCode.LEVEL_NOT_SPECIFIED | MisfitCode.SLICE_SIZE_MISSING:
            return {}
        case MisfitCode.SLICE_LEVEL_ABOVE_POD_SET_LEVEL:
            return {"sliceLevel": why.other_level, "level": why.level}
        case MisfitCode.COUNT_BELOW_SLICE_SIZE:
            return {"count": why.count, "size": why.size}
        case MisfitCode.INNER_LEVEL_NOT_LOWER:
            return {"level": why.level, "previousLevel": why.other_level}
        case MisfitCode.INNER_SIZE_NOT_DIVISOR:
            return {"size": why.size, "previousSize": why.other_size}
        case MisfitCode.NO_FIT:
            return _no_fit(why)
        case MisfitCode.STALE_ASSIGNMENT:
            return {"domain": why.hosts[0]}
        case MisfitCode.INVALID_GROUP:
            return {"group": why.group, "detail": why.detail}
        case MisfitCode.INVALID_NODE_SELECTOR | MisfitCode.INVALID_NODE_AFFINITY | MisfitCode.INTERNAL_INCONSISTENCY:
            return {"detail": why.detail}
        case _:
            return {"level": why.level}


def _no_fit(why: Misfit) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "topology": why.topology,
        "level": why.level,
        "unit": why.unit,
        "fit": why.fit,
        "total": why.total,
    }
    if why.layers:
        facts["layers"] = [{"level": layer.level, "fit": layer.fit, "total": layer.total} for layer in why.layers]
    if why.together:
        facts["together"] = list(why.together)
    return {**facts, "totalNodes": why.leaves, "excluded": _excluded(why.excluded)}


def _excluded(excluded: Exclusions) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "nodeSelector": excluded.node_selector,
        "affinity": excluded.affinity,
        "topologyDomain": excluded.topology_domain,
        "taints": dict(sorted(excluded.taints.items())),
        "resources": dict(sorted(excluded.resources.items())),
    }
    return {cause: count for cause, count in counts.items() if count}


def remaining(tree: Tree, capacity: Capacity, used: Mapping[Path, set[str]]) -> list[dict[str, Any]]:
    """Return the free amounts of each leaf, of all resources that it has or that are used there."""
    found = []
    for i, leaf in enumerate(tree.leaves):
        values, free = tree.written(i), capacity.free(i)
        resources = used[values].union(*(node.allocatable for node in leaf.nodes))
        found.append(
            {"values": list(values), "resources": {resource: free.get(resource, 0) for resource in sorted(resources)}}
        )
    return found


def tree_entry(tree: Tree, ignored: Mapping[str, int]) -> dict[str, Any]:
    """Return the facts about the topology."""
    return {"leaves": len(tree), "ignoredNodes": {why: ignored[why] for why in _REASONS if ignored.get(why)}}
