"""The past usage that the status of ClusterQueues and Cohorts had in v1beta1."""

from __future__ import annotations

from kqueue.api.local_queue import LocalQueue
from kqueue.api.schema import schema as schema_of
from kqueue.api.v1beta1.editing import Schema, at
from kqueue.api.v1beta1.names import PAST_USAGE


def add_past_usage(schema: Schema) -> None:
    """Add the field, which has the form that it has in a LocalQueue."""
    field = at(schema_of(LocalQueue), f"status.fairSharing.{PAST_USAGE}")
    field["description"] = "Past usage.  Not written any more, and not kept."
    at(schema, "status.fairSharing")["properties"][PAST_USAGE] = field
