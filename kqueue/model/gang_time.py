"""The time of the gang that a Workload represents."""

from __future__ import annotations

from datetime import datetime

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import api_time
from kqueue.model.conditions import NO_TIME


def gang_since(obj: wire.Workload) -> datetime:
    """Return the creation of the gang that a Workload represents: the annotation of its time if it is earlier than the
    Workload, else the creation of the Workload.
    """
    created = obj.metadata.creation_timestamp or NO_TIME
    written = api_time(obj.metadata.annotations.get(gang_names.GANG_SINCE_ANNOTATION))
    return min(written, created) if written is not None else created
