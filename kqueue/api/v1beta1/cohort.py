"""Cohort in v1beta1: one more field of its status."""

from __future__ import annotations

from kqueue.api.v1beta1.editing import OlderKind, Schema, loosen
from kqueue.api.v1beta1.fair_sharing import add_past_usage


def _edit(schema: Schema) -> None:
    loosen(schema, "spec.resourceGroups[].coveredResources", "x-kubernetes-list-type")
    add_past_usage(schema)


COHORT = OlderKind(kind="Cohort", edit=_edit, converts=True)
