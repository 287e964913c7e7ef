"""The interface of gang dialects: the labels, annotations and kinds by which users group pods.

A new dialect is one file with a `Dialect`, and one line in `registry.py`.  A dialect reads: it finds the gang of a pod,
the wish of a gang, and mistakes.  It never decides about order, places, starts and stops, writes nothing, and reads no
clock: that is common to all gangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON
from kqueue.jobs.gang.value import GangMembership, GangPhase, GangRef, GangSpec, GangState
from kqueue.jobs.gang.value import GroupProblem as GroupProblem
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelection:
    """The pods that a dialect's webhook entry reviews: either pods with a label, or pods for which a condition holds.

    Raises:
        ValueError: both are given, or neither is (a bug of the dialect).
    """

    word: str
    """The dialect in the name of its webhook entry, a DNS label; unique among dialects."""
    label: str = ""
    """Label that such a pod has."""
    condition: str = ""
    """CEL expression over `object` that is true of such a pod, and false, without an error, of every other pod."""

    def __post_init__(self) -> None:
        if bool(self.label) == bool(self.condition):
            raise ValueError(f"the selection of {self.word} needs a label or a condition")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTimeouts:
    """The deadline of gangs whose dialect names none, in seconds."""

    base: float = 60.0
    per_member: float = 1.0
    maximum: float = 1800.0

    def seconds(self, quorum: int) -> float:
        """Return the time for a quorum of so many members."""
        return min(self.maximum, self.base + self.per_member * quorum)


DEFAULT_TIMEOUTS = ScheduleTimeouts()
LARGEST_QUORUM = 10_000
"""Members of the largest base that is possible; Kueue's own groups have no such bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRules:
    """The configuration as far as the wish of a gang depends on it."""

    switches: JobFeatures = field(default_factory=JobFeatures)
    timeouts: ScheduleTimeouts = DEFAULT_TIMEOUTS
    levels: frozenset[str] | None = None
    """The levels of all topologies; None: not known, so that no level of a group object is judged."""


class Dialect(Protocol):
    """One form of gang.  Pure: takes objects as JSON and views of pods, returns values."""

    @property
    def framework(self) -> str:
        """The name used in `integrations.frameworks`."""
        ...

    @property
    def kinds(self) -> tuple[GroupVersionKind, ...]:
        """The kind of the group object in its versions, the newest first; empty: there is no group object."""
        ...

    @property
    def plural(self) -> str:
        """Plural name of the group object in URLs; empty: there is none."""
        ...

    @property
    def writes_status(self) -> bool:
        """Whether kqueue writes the status of the group object."""
        ...

    @property
    def names_workloads(self) -> GroupVersionKind | None:
        """The kind from which names of Workloads are made; None: a Workload has the name of its group."""
        ...

    @property
    def has_extras(self) -> bool:
        """Whether members beyond the quorum are queued alone; if not, they are deleted."""
        ...

    @property
    def makes_workloads(self) -> bool:
        """Whether a reconciler of the group object makes the Workload, before there are members."""
        ...

    @property
    def guards_occupant(self) -> bool:
        """Whether pods of one owner at a time are in a group."""
        ...

    @property
    def announces_room(self) -> bool:
        """Whether controllers create pods only once the status of the group object says that there is room for them."""
        ...

    @property
    def joined_by(self) -> str:
        """Path of the field by which a pod joins, for messages, as in `metadata.labels[example.com/gang]`."""
        ...

    @property
    def marks(self) -> frozenset[str]:
        """Keys of labels and annotations and fields of the pod's spec; a pod with none of them is in no gang of the
        dialect, and `membership` is not called for it.
        """
        ...

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the gang that the pod says to be in; None: it is in none of this dialect."""
        ...

    def selection(self) -> PodSelection | None:
        """Return the pods that the dialect's webhook entry reviews; None: the entries of queued pods review them."""
        ...

    def proposed_queue(self, obj: JSON) -> str:
        """Return the queue that a group object names in a field of its own kind, which counts if a LocalQueue has that
        name; empty: it names none.
        """
        ...

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterable[FieldError]:
        """Return each mistake in a pod's marks of this dialect; called for pods of other dialects, too."""
        ...

    def pod_warnings(self, pod: JSON, around: JobContext) -> Iterable[str]:
        """Return a sentence for each mark of this dialect that has another effect than the user may expect; called for
        queued pods of other dialects, too.
        """
        ...

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return the wish for a gang, or the contradiction in it.

        Args:
            obj: the group object; None: it does not exist, or the dialect has none.
            members: all members in order; there may be none if the group object exists.
        """
        ...

    def queues_alone(self, obj: JSON) -> bool:
        """Whether the pods of this group object are queued one by one, because it asks for no common start."""
        ...

    def phase(self, obj: JSON) -> GangPhase | None:
        """Return the phase that the status of the group object has; None: kqueue wrote none yet."""
        ...

    def report(self, state: GangState) -> JSON:
        """Return the wanted status of the group object; empty for a dialect that writes none."""
        ...


class WithoutGroupObject:
    """Base class of dialects whose groups are described by their pods alone."""

    kinds: tuple[GroupVersionKind, ...] = ()
    plural = ""
    writes_status = False
    makes_workloads = False
    guards_occupant = False
    announces_room = False

    def proposed_queue(self, obj: JSON) -> str:
        """Return nothing."""
        return ""

    def pod_warnings(self, pod: JSON, around: JobContext) -> Iterable[str]:
        """Return nothing."""
        return ()

    def queues_alone(self, obj: JSON) -> bool:
        """Return False: there is no group object."""
        return False

    def phase(self, obj: JSON) -> GangPhase | None:
        """Return None: there is no group object."""
        return None

    def report(self, state: GangState) -> JSON:
        """Return nothing."""
        return {}
