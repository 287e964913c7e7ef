"""Extension points: the questions that plugins of other packages answer.

A plugin is an object with a `name` and the methods of one point or of several points.  It sees values and returns
values.  Methods without `async` run on the event loop: they must not do I/O.

    point           methods                           a plugin decides
    order           key                               the place of a workload in its ClusterQueue
    screen          screen                            whether a workload is tried
    filter          allows_flavor, allows_node        which flavors and nodes its pods may use
    victims         veto, rank                        which workloads are not preempted, and which set is preferred
    score           prepare, score, normalise         which of the fitting flavors is taken
    reserve         reserve                           whether a decision is written
    unreserve       unreserve                         nothing; the decision was not written
    permit          permit                            whether a workload with quota is admitted
    before_release  before_release                    whether the pods of an admitted workload are released
    release         release                           how a pod is released
    after_release   after_release                     nothing; pods were released

Source: the points are those of the scheduling framework of kube-scheduler, as far as a queue has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from kqueue.core.decision import Admit
from kqueue.core.preemption import Target
from kqueue.core.queued import Queued
from kqueue.core.topology import NodeFacts
from kqueue.core.value import value
from kqueue.core.workload import Admission, Flavor, Head, PodSet

SortKey = int | float | str
"""The sort key of a plugin; all keys of one plugin have the same of the three types."""

ReleasePatch = Mapping[str, Any]
"""The merge patch that releases a pod."""


class Point(StrEnum):
    """Extension points, in the order in which they are reached."""

    ORDER = "order"
    SCREEN = "screen"
    FILTER = "filter"
    VICTIMS = "victims"
    SCORE = "score"
    RESERVE = "reserve"
    UNRESERVE = "unreserve"
    PERMIT = "permit"
    BEFORE_RELEASE = "before_release"
    RELEASE = "release"
    AFTER_RELEASE = "after_release"


METHODS: Mapping[Point, Mapping[str, int]] = {
    Point.ORDER: {"key": 1},
    Point.SCREEN: {"screen": 1},
    Point.FILTER: {"allows_flavor": 2, "allows_node": 2},
    Point.VICTIMS: {"veto": 2, "rank": 2},
    Point.SCORE: {"score": 2, "prepare": 1, "normalise": 1},
    Point.RESERVE: {"reserve": 1},
    Point.UNRESERVE: {"unreserve": 1},
    Point.PERMIT: {"permit": 1},
    Point.BEFORE_RELEASE: {"before_release": 2},
    Point.RELEASE: {"release": 2},
    Point.AFTER_RELEASE: {"after_release": 2},
}
"""The methods of each point with their numbers of arguments."""
ASYNC_METHODS = frozenset({"permit", "before_release", "release"})
"""Methods that are coroutines; all others are plain functions."""
NEEDS: Mapping[Point, frozenset[str]] = {
    Point.FILTER: frozenset(),
    Point.VICTIMS: frozenset(),
    Point.SCORE: frozenset({"score"}),
    Point.RESERVE: frozenset({"reserve", "unreserve"}),
}
"""The methods that a point cannot do without: any one of them where the set is empty; all of them for other points."""


@value()
class Verdict:
    """Consent, or the reason of a refusal as a sentence."""

    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the plugin agrees."""
        return not self.reason


AGREED = Verdict()


@dataclass(frozen=True, slots=True)
class Approve:
    """The workload may start."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The workload returns its quota, and is queued again after `seconds`."""

    reason: str
    seconds: int = 60


@dataclass(frozen=True, slots=True)
class WaitFor:
    """The workload keeps its quota, and the plugin is called again, until `seconds` after the reservation.

    Then the workload returns its quota, and is queued again.  A later answer can shorten the wait, but not prolong it.
    """

    seconds: float
    reason: str = ""


Permission = Approve | Deny | WaitFor


@dataclass(frozen=True, slots=True)
class PodRef:
    """The name of a pod; a later pod of the same name has another UID."""

    namespace: str
    name: str
    uid: str


class Plugin(Protocol):
    """The members of all plugins."""

    @property
    def name(self) -> str:
        """The name of its entry point."""
        ...


class OrderPlugin(Plugin, Protocol):
    """Orders the workloads of a ClusterQueue."""

    def key(self, item: Queued) -> SortKey:
        """Return the sort key of a workload: the smaller key goes first."""
        ...


class ScreenPlugin(Plugin, Protocol):
    """Keeps workloads from being tried."""

    def screen(self, head: Head) -> Verdict:
        """Return whether the workload is tried now."""
        ...


class FlavorFilterPlugin(Plugin, Protocol):
    """Keeps pod sets from flavors."""

    def allows_flavor(self, pod_set: PodSet, flavor: Flavor) -> str:
        """Return why the pod set must not use the flavor; empty: it may."""
        ...


class NodeFilterPlugin(Plugin, Protocol):
    """Keeps pods from nodes of flavors with a topology."""

    def allows_node(self, pod_set: PodSet, node: NodeFacts) -> str:
        """Return why the pods must not use the node; empty: they may."""
        ...


class VetoPlugin(Plugin, Protocol):
    """Protects workloads from preemption."""

    def veto(self, head: Head, targets: Sequence[Target]) -> frozenset[str]:
        """Return the UIDs of the targets that must stay."""
        ...


class RankPlugin(Plugin, Protocol):
    """Compares the sets of workloads that different flavors would have preempted."""

    def rank(self, head: Head, targets: Sequence[Target]) -> tuple[Any, ...]:
        """Return the sort key of a set of targets: the smaller one is preferred."""
        ...


class ScorePlugin(Plugin, Protocol):
    """Prefers flavors among those that fit.

    Two more methods are optional: `prepare(head) -> object` is called once per workload, and its result is the first
    argument of `score` (without it, the workload itself is); `normalise(scores) -> scores` gets the scores of all
    fitting flavors by their names.
    """

    def score(self, prepared: Any, flavor: Flavor) -> int:
        """Return a number from 0 to 100: the higher one is preferred."""
        ...


class ReservePlugin(Plugin, Protocol):
    """Keeps a state of its own about workloads with quota."""

    def reserve(self, admit: Admit) -> Verdict:
        """Take in a decision that is about to be written, or refuse it."""
        ...

    def unreserve(self, admit: Admit) -> None:
        """Undo `reserve`: the decision was not written."""
        ...


class PermitPlugin(Plugin, Protocol):
    """Answers the AdmissionChecks that name it."""

    async def permit(self, admit: Admit) -> Permission:
        """Return whether a workload with quota may start."""
        ...


class BeforeReleasePlugin(Plugin, Protocol):
    """Prepares the nodes or anything else for the pods of an admitted workload."""

    async def before_release(self, key: str, admission: Admission) -> Verdict:
        """Return whether the pods of the workload (namespace/name) may be released."""
        ...


class ReleasePlugin(Plugin, Protocol):
    """Releases pods in place of kqueue."""

    async def release(self, pod: PodRef, patch: ReleasePatch) -> bool:
        """Return whether the plugin has released the pod; otherwise the next one is called, and kqueue at last."""
        ...


class AfterReleasePlugin(Plugin, Protocol):
    """Is called after pods were released."""

    def after_release(self, key: str, pods: int) -> None:
        """Note that so many pods of the workload (namespace/name) were released."""
        ...


def has_point(plugin: object, point: Point) -> bool:
    """Whether a plugin has the methods that a point needs."""
    needed = NEEDS.get(point, frozenset(METHODS[point]))
    if not needed:
        return any(hasattr(plugin, method) for method in METHODS[point])
    return all(hasattr(plugin, method) for method in needed)
