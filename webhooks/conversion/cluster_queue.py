"""ClusterQueue: cohort, checks, flavor fungibility."""

from __future__ import annotations

from kqueue.api.v1beta1.names import OLD_WORDS
from webhooks.conversion.fair_sharing import without_past_usage
from webhooks.conversion.fields import JSON, changed, renamed, reworded, without

_WORDS = {field: {word: "MayStopSearch"} for field, word in OLD_WORDS.items()}
_LIST, _STRATEGY = "admissionChecks", "admissionChecksStrategy"


def to_v1beta1(queue: JSON) -> JSON:
    """Return a ClusterQueue of v1beta2 in v1beta1."""
    return changed(queue, "spec", lambda spec: renamed(spec, "cohortName", "cohort"))


def to_v1beta2(queue: JSON) -> JSON:
    """Return a ClusterQueue of v1beta1 in v1beta2."""
    return changed(changed(queue, "spec", _spec), "status", _status)


def _spec(spec: JSON) -> JSON:
    spec = renamed(changed(spec, "flavorFungibility", lambda found: reworded(found, _WORDS)), "cohort", "cohortName")
    if names := spec.get(_LIST):
        rules = [{"name": name} for name in dict.fromkeys(names)]
        return {**without(spec, _LIST), _STRATEGY: {_LIST: rules}}
    unset = [_LIST] if (spec.get(_STRATEGY) or {}).get(_LIST) else [_LIST, _STRATEGY]
    return without(spec, *unset)  # v1beta2 refuses a strategy without checks


def _status(status: JSON) -> JSON:
    return without_past_usage(without(status, "pendingWorkloadsStatus"))
