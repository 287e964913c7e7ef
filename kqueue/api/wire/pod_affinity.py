"""Which pods a term of pod affinity selects, as far as templates show it.  Pure.

Source: the fields of PodAffinityTerm in the pod API.
"""

from __future__ import annotations

from kqueue.api.wire.core import PodAffinityTerm, PodTemplate
from kqueue.api.wire.selectors import selector_matches


def selects(term: PodAffinityTerm, mine: PodTemplate, theirs: PodTemplate, namespace: str) -> bool:
    """Whether a term of `mine` is certain to select the pods of `theirs`; all of them are in this namespace.

    Labels that pods get only when they are made are not known: a term that compares by them selects nothing here.
    """
    own, labels = mine.metadata.labels, theirs.metadata.labels
    return (
        _selects_namespace(term, namespace)
        and all(key in own and labels.get(key) == own[key] for key in term.match_label_keys)
        and all(key in own and labels.get(key) != own[key] for key in term.mismatch_label_keys)
        and selector_matches(term.label_selector, labels)
    )


def _selects_namespace(term: PodAffinityTerm, namespace: str) -> bool:
    """Whether the term selects pods of the namespace; a selector that tests its labels counts as not matching."""
    every = term.namespace_selector
    if not term.namespaces and every is None:
        return True
    return namespace in term.namespaces or (
        every is not None and not every.match_labels and not every.match_expressions
    )
