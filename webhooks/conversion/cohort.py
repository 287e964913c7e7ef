"""Cohort: nothing but a field of the status that v1beta2 does not have."""

from __future__ import annotations

from webhooks.conversion.fair_sharing import without_past_usage
from webhooks.conversion.fields import JSON, changed


def to_v1beta1(cohort: JSON) -> JSON:
    """Return a Cohort of v1beta2 in v1beta1: it has all fields there."""
    return cohort


def to_v1beta2(cohort: JSON) -> JSON:
    """Return a Cohort of v1beta1 in v1beta2."""
    return changed(cohort, "status", without_past_usage)
