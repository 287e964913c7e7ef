"""Describes a placement for people: the pods that fit in each domain, the chosen domains, the reason of a misfit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.core.explain import Blocker, BlockerKind, sentence
from kqueue.core.quantity import format_quantity
from kqueue.core.topology import Misfit, MisfitCode, PodSetPlacement, PodSetRequest, TopologyRequest, Tree
from kqueue.core.topology.result import Path
from kqueue.placing.fields import FieldProblem
from kqueue.placing.picture import picture
from kqueue.placing.solving import PlacingStep, PodSetOutcome, PodSetStatus, Solution, UpdateConflict
from kqueue.placing.values import Case, FlavorNodes

_MOST_PROBLEMS = 50


def explain_problems(document: Any, problems: Sequence[FieldProblem]) -> str:
    """Describe an invalid input: every problem with its JSON pointer."""
    name = document.get("name") if isinstance(document, dict) else None
    lines = [f"{name or 'the input'} is not valid:"]
    lines += [f"  {problem.path or '(the whole input)'}: {problem.text}" for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"  and {len(problems) - _MOST_PROBLEMS} more, all of which are in the JSON answer")
    return "\n".join(lines) + "\n"


class PlacementExplainer:
    """Collects the description of one case while it is placed."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._parts: list[str] = []

    def watch(self, step: PlacingStep) -> None:
        """Describe one group, with the capacity that was free before it."""
        self._parts.append("\n".join(_described(self._case, step)))

    def text(self, solution: Solution) -> str:
        """Return the whole description."""
        verdict = "placed" if solution.placed else "not placed"
        head = head_of(self._case.name, verdict, self._case.cluster, solution.tree, solution.ignored)
        return "\n\n".join([head, *self._parts, *_rest(solution.outcomes)]) + "\n"


def head_of(name: str, verdict: str, cluster: FlavorNodes, tree: Tree, ignored: Mapping[str, int]) -> str:
    """Return the first lines: the verdict, and the nodes; `ignored` are nodes left out, by reason."""
    domains = ", ".join(f"{tree.domains(i)} x {level}" for i, level in enumerate(tree.levels))
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(ignored.items()))
    lines = [
        f"{name or 'placement'}: {verdict}",
        f"topology {cluster.topology}: {domains}",
        f"nodes: {len(cluster.nodes)}, of which {len(tree)} leaves" + (f"; left out: {left_out}" if left_out else ""),
    ]
    return "\n".join(lines)


def _rest(outcomes: Iterable[PodSetOutcome]) -> Iterator[str]:
    """Yield lines about pod sets without a search."""
    skipped = [outcome.name for outcome in outcomes if outcome.status is PodSetStatus.SKIPPED]
    waiting = [outcome.name for outcome in outcomes if outcome.status is PodSetStatus.NOT_EVALUATED]
    if skipped:
        yield f"skipped, nothing to place: {', '.join(skipped)}"
    if waiting:
        yield f"not evaluated after the failure: {', '.join(waiting)}"


def _described(case: Case, step: PlacingStep) -> Iterator[str]:
    yield _asked(step.requests)
    if isinstance(step.result, UpdateConflict):
        yield f"  failed: {step.result.detail}"
        return
    if isinstance(step.result, Misfit):
        yield from _why(case.cluster.flavor, step.result)
    else:
        yield f"  {_where(step.capacity.tree, step.result, step.requests[0].topology.preferred)}"
    yield from picture(case, step)


def _asked(requests: Sequence[PodSetRequest]) -> str:
    parts = []
    for request in requests:
        amounts = (f"{resource} {format_quantity(n, resource)}" for resource, n in sorted(request.requests.items()))
        each = ", ".join(amounts)
        parts.append(f"{request.name or 'pod set'}: {_pods(request.count)}" + (f" of {each}" if each else ""))
    name = "together" if requests[0].together else f"group {requests[0].group}"
    group = f"{name}: " if len(requests) > 1 else ""
    return f"{group}{' + '.join(parts)} ({_request_text(requests[0].topology)})"


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def _request_text(request: TopologyRequest) -> str:
    if request.required is not None:
        wish = f"required {request.required}"
    elif request.preferred is not None:
        wish = f"preferred {request.preferred}"
    else:
        wish = "anywhere"
    return wish + "".join(f", slices of {layer.size} per {layer.level}" for layer in request.slices)


def _where(tree: Tree, placed: Sequence[PodSetPlacement], preferred: str | None) -> str:
    """Return the narrowest domain that has all pods, or the number of domains they are spread over."""
    paths = {path for pod_set in placed for path in pod_set.paths}
    together: Path = ()
    for level in range(len(tree.levels)):
        tops = {path[: level + 1] for path in paths}
        if len(tops) != 1:
            break
        together = next(iter(tops))
    leaves = f"on {len(paths)} {'domain' if len(paths) == 1 else 'domains'} of level {tree.levels[-1]}"
    wider = preferred in tree.levels[len(together) :]
    note = f"; that is wider than the preferred level {preferred}" if wider else ""
    if not together:
        widest = len({path[:1] for path in paths})
        return f"placed, spread over {widest} domains of level {tree.levels[0]}, {leaves}{note}"
    return f"placed in {'/'.join(together)} (level {tree.levels[len(together) - 1]}), {leaves}{note}"


def _why(flavor: str, misfit: Misfit) -> Iterator[str]:
    text = sentence(Blocker(kind=BlockerKind.TOPOLOGY, flavor=flavor, misfit=misfit))
    yield f"  failed, {misfit.code}: {text}"
    if misfit.level is not None and misfit.code in (MisfitCode.NO_FIT, MisfitCode.NO_DOMAINS_AT_LEVEL):
        yield f"  the search ended at level {misfit.level}"
