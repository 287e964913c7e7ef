"""The nodes that accept a pod: taints, node selector, node affinity.  Used only where leaves are hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kqueue.core.topology.labels import LabelTable
from kqueue.core.topology.node import NodeFacts, NodeRules, NodeTerm
from kqueue.core.topology.result import Exclusions, MisfitCode
from kqueue.kube.requirement import INTEGER, Requirement, holds
from kqueue.kube.taints import REPELLING_EFFECTS, Taint, Toleration, untolerated_taint

_MOST_DEMANDS = 1000
"""The largest number of pairs and expressions of one pod set: each is an operation on all nodes, of up to 0.1 ms."""
_MOST_VALUES = 50_000
"""The largest number of values of all expressions together, enough for every host of a large cluster."""
_NAME = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])")
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Leaves that pass a pod's rules.

    `mask` is bool per leaf, None when all pass.  `affinity` is the preferred-affinity score per leaf, None without
    preferred terms.  `excluded` counts the leaves that fail, each by its first cause.
    """

    mask: NDArray[np.bool_] | None = None
    affinity: NDArray[np.int64] | None = None
    excluded: Exclusions = field(default_factory=Exclusions)

    def without(self, leaves: Sequence[int], size: int) -> Eligibility:
        """Return the same result without these of `size` leaves, for which no cause is counted."""
        if not leaves:
            return self
        mask = np.ones(size, dtype=np.bool_) if self.mask is None else self.mask.copy()
        mask[leaves] = False
        affinity = None if self.affinity is None else self.affinity.copy()
        if affinity is not None:
            affinity[leaves] = 0
        return replace(self, mask=mask, affinity=affinity)


class NodeFilter:
    """Checks the nodes of one tree against rules.  Nodes with equal taints are checked together."""

    def __init__(self, kinds: dict[tuple[Taint, ...], int], kind_of: NDArray[np.int64], labels: LabelTable) -> None:
        """Take the numbers of the distinct sets of repelling taints, the number per leaf, and the labels."""
        self._kinds, self._kind_of = kinds, kind_of
        self._labels = labels

    @classmethod
    def of(cls, nodes: Callable[[], Sequence[NodeFacts]]) -> NodeFilter:
        """Return a filter of these nodes, in leaf order."""
        kinds: dict[tuple[Taint, ...], int] = {}
        kind_of = _kinds_of(nodes(), kinds)
        return cls(kinds, kind_of, LabelTable(nodes, len(kind_of)))

    def edited(
        self,
        edit: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]],
        added: Sequence[NodeFacts],
        nodes: Callable[[], Sequence[NodeFacts]],
    ) -> NodeFilter:
        """Return the filter of an edited tree; `edit` turns a table of the old leaves into a table of the new
        leaves.
        """
        kinds = dict(self._kinds)
        kind_of = edit(self._kind_of, _kinds_of(added, kinds))
        return NodeFilter(kinds, kind_of, self._labels.edited(edit, added, nodes, len(kind_of)))

    def check(self, rules: NodeRules, flavor_tolerations: Sequence[Toleration]) -> Eligibility:
        """Return the leaves that pass `rules`, with the flavor's tolerations added to the pod's.

        The first cause counts: an untolerated taint, then the node selector, then required node affinity.
        """
        tolerations = (*rules.tolerations, *flavor_tolerations)
        refused = [untolerated_taint(taints, tolerations) for taints in self._kinds]
        passing = np.ones(len(self._kind_of), dtype=np.bool_)
        excluded_taints: dict[str, int] = {}
        for kind, taint in enumerate(refused):
            if taint is not None:
                of_kind = self._kind_of == kind
                passing &= ~of_kind
                excluded_taints[str(taint)] = excluded_taints.get(str(taint), 0) + int(of_kind.sum())
        excluded_taints = {taint: leaves for taint, leaves in excluded_taints.items() if leaves}
        by_selector = self._narrow(passing, rules.selector)
        by_affinity = self._narrow_by_terms(passing, rules.required)
        excluded = Exclusions(
            node_selector=by_selector, affinity=by_affinity, taints=dict(sorted(excluded_taints.items()))
        )
        return Eligibility(
            mask=passing if excluded else None,
            affinity=self._score(passing, rules) if rules.preferred else None,
            excluded=excluded,
        )

    def _narrow(self, passing: NDArray[np.bool_], selector: Iterable[tuple[str, str]]) -> int:
        """Remove the nodes that lack a selector pair from `passing`; return their number."""
        before = int(passing.sum())
        pairs = tuple(Requirement(key, "In", (value,)) for key, value in selector)
        if pairs:
            passing &= self._labels.matches(NodeTerm(expressions=pairs))
        return before - int(passing.sum())

    def _narrow_by_terms(self, passing: NDArray[np.bool_], terms: tuple[NodeTerm, ...] | None) -> int:
        if terms is None:
            return 0
        before = int(passing.sum())
        matching = np.zeros_like(passing)
        for term in terms:
            matching |= self._labels.matches(term)
        passing &= matching
        return before - int(passing.sum())

    def _score(self, passing: NDArray[np.bool_], rules: NodeRules) -> NDArray[np.int64]:
        scores = np.zeros(len(passing), dtype=np.int64)
        for wish in rules.preferred:
            if wish.weight > 0:
                scores[passing & self._labels.matches(wish.term)] += wish.weight
        return scores


def _kinds_of(nodes: Sequence[NodeFacts], kinds: dict[tuple[Taint, ...], int]) -> NDArray[np.int64]:
    """Return, per node, the number of its set of repelling taints; a new set gets the next number."""
    repelling = (
        tuple([t for t in node.taints if t.effect in REPELLING_EFFECTS]) if node.taints else () for node in nodes
    )
    return np.fromiter((kinds.setdefault(taints, len(kinds)) for taints in repelling), np.int64, len(nodes))


def matches_labels(rules: NodeRules, labels: Mapping[str, str], *, only_keys: frozenset[str]) -> bool:
    """Whether labels of a node group agree with a pod's selector and required affinity, as far as `only_keys` go.

    Rules on other keys are ignored, because single nodes of the group may satisfy them.  So a term with only such rules
    matches.
    """
    if any(key in only_keys and labels.get(key) != value for key, value in rules.selector):
        return False
    if rules.required is None:
        return True
    terms = ([r for r in term.expressions if r.key in only_keys] for term in rules.required)
    return any(all(holds(r.operator, r.values, labels.get(r.key)) for r in term) for term in terms)


def rules_problem(rules: NodeRules, *, is_hostname: bool, preferred: bool) -> tuple[MisfitCode, str] | None:
    """Return why rules are not valid, as a code and the invalid part as text; None: they are valid.

    An invalid selector counts only in hostname topologies, preferred terms only where a profile uses them.
    """
    if not (rules.selector or rules.required or rules.preferred):
        return None
    terms = [*(rules.required or ())]
    if preferred:
        terms += [weighted.term for weighted in rules.preferred if weighted.weight > 0]
    too_many = _too_many(rules.selector, terms)
    if too_many:
        return too_many
    if is_hostname:
        for key, value in rules.selector:
            if not (_is_label_key(key) and _is_label_value(value)):
                return MisfitCode.INVALID_NODE_SELECTOR, f"{key}={value} is not a valid label"
    for term in terms:
        problem = _term_problem(term)
        if problem:
            return MisfitCode.INVALID_NODE_AFFINITY, problem
    return None


def _too_many(selector: Sequence[object], terms: Sequence[NodeTerm]) -> tuple[MisfitCode, str] | None:
    """Return a problem if rules have more parts than any valid use needs, because they would slow down every search."""
    if len(selector) > _MOST_DEMANDS:
        return MisfitCode.INVALID_NODE_SELECTOR, f"{len(selector)} labels are too many: ask for at most {_MOST_DEMANDS}"
    demands = len(terms) + sum(len(term.expressions) + len(term.fields) for term in terms)
    if demands > _MOST_DEMANDS:
        return (
            MisfitCode.INVALID_NODE_AFFINITY,
            f"{demands} terms and expressions are too many: write at most {_MOST_DEMANDS}",
        )
    values = sum(len(requirement.values) for term in terms for requirement in (*term.expressions, *term.fields))
    if values > _MOST_VALUES:
        return MisfitCode.INVALID_NODE_AFFINITY, f"{values} values are too many: write at most {_MOST_VALUES}"
    return None


def _term_problem(term: NodeTerm) -> str | None:
    for requirement in term.expressions:
        problem = _expression_problem(requirement)
        if problem:
            return problem
    for requirement in term.fields:
        if requirement.operator not in ("In", "NotIn"):
            return f"field {requirement.key}: operator {requirement.operator} is not allowed, use In or NotIn"
        if len(requirement.values) != 1:
            return f"field {requirement.key}: exactly one value is needed"
    return None


def _expression_problem(requirement: Requirement) -> str | None:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if not _is_label_key(key):
        return f"{key!r} is not a valid label key"
    match operator:
        case "In" | "NotIn":
            problem = None if values else f"{key}: operator {operator} needs values"
        case "Exists" | "DoesNotExist":
            problem = f"{key}: operator {operator} takes no values" if values else None
        case "Gt" | "Lt":
            one = len(values) == 1 and INTEGER.fullmatch(values[0])
            problem = None if one else f"{key}: operator {operator} needs exactly one integer"
        case _:
            problem = f"{key}: unknown operator {operator!r}"
    if problem is None:
        bad = [value for value in values if not _is_label_value(value)]
        problem = f"{key}: {bad[0]!r} is not a valid label value" if bad else None
    return problem


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= 253 and _DNS.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def _is_label_value(value: str) -> bool:
    return len(value) <= 63 and (not value or _NAME.fullmatch(value) is not None)
