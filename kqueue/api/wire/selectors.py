"""The labels that a selector selects."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.api.wire.meta import LabelSelector
from kqueue.kube.requirement import labels_match


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether `labels` match.  An absent selector (None) selects nothing, an empty selector everything."""
    return selector is not None and labels_match(selector.match_labels, selector.match_expressions, labels)
