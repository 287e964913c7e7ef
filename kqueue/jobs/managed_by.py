"""How other clusters may run objects of a kind, and the field that names the controller of a job."""

from __future__ import annotations

from enum import Enum, auto

from kqueue.jobs.declared import Declared
from kqueue.jobs.kind import NamedKind
from kqueue.jobs.pod import PlainPod
from kqueue.kinds import FRAMEWORKS


class Way(Enum):
    """The means by which an original does not run on the manager while a worker cluster runs its copy."""

    NONE = auto()
    """Nothing does: objects of the kind are not sent."""
    FIELD = auto()
    """The field that names its controller."""
    FLAG = auto()
    """The flag that suspends it."""
    GATE = auto()
    """The gate of a pod."""
    GATES = auto()
    """The gates of the pods that the original makes in groups."""


def managed_by_path(kind: NamedKind) -> tuple[str, ...]:
    """Return the steps to the field; empty: objects of the kind cannot name another controller."""
    if isinstance(kind, Declared):
        return kind.managed_by_path
    row = FRAMEWORKS.get(kind.framework)
    return tuple(row.managed_by.split(".")) if row is not None and row.managed_by else ()


def way_of(kind: NamedKind) -> Way:
    """Return how objects of a kind are sent.  Pods of a Deployment are sent one by one, as pods."""
    if managed_by_path(kind):
        return Way.FIELD
    if kind.framework == PlainPod.framework:
        return Way.GATE
    row = FRAMEWORKS.get(kind.framework)
    if row is None:
        return Way.NONE
    if row.sent_held:
        return Way.FLAG
    return Way.GATES if row.through_pods and row.watched else Way.NONE
