"""Which labels a selector means."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.api.wire.meta import LabelSelector


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether labels match; None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for rule in selector.match_expressions:
        has = labels.get(rule.key)
        match rule.operator:
            case "In":
                holds = has is not None and has in rule.values
            case "NotIn":
                holds = has is None or has not in rule.values
            case "Exists":
                holds = has is not None
            case "DoesNotExist":
                holds = has is None
            case _:
                holds = False
        if not holds:
            return False
    return True
