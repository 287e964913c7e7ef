"""The time of the gang that a Workload represents."""

from __future__ import annotations

from datetime import datetime

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import api_time
from kqueue.model.conditions import NO_TIME


def gang_since(obj: wire.Workload) -> datetime:
    """Return the creation of the gang of a Workload: the time of its annotation, if that is earlier than the Workload's
    creation; else the creation, as for a Workload of no gang.
    """
    created = obj.metadata.creation_timestamp or NO_TIME
    annotations = obj.metadata.annotations
    if gang_names.GANG_ANNOTATION not in annotations and gang_names.EXTRA_OF_ANNOTATION not in annotations:
        return created
    written = api_time(annotations.get(gang_names.GANG_SINCE_ANNOTATION))
    return min(written, created) if written is not None else created
