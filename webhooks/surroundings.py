"""What a review has to know beyond the object in it, asked for only where the answer makes a difference.

An object that names its queue and has no controller above it costs no look-up.  The API server is asked through
`Lookups`, which whoever runs the webhooks puts in; this room keeps no cache and no watch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kqueue.api import names
from kqueue.config.selector import LabelSelector
from kqueue.errors import KqueueError
from kqueue.jobs import rules
from kqueue.jobs.fields import annotations_of, mapping, objects
from kqueue.jobs.kind import Surroundings
from kqueue.jobs.switches import Switches
from webhooks.review import Request

JSON = Mapping[str, Any]


class LookupFailedError(KqueueError):
    """The API server could not be asked, or not in time; the text says about what."""


class Lookups(Protocol):
    """Questions to the API server.  Each answers within a time limit or raises LookupFailedError."""

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Labels of a namespace; empty for one that does not exist."""
        ...

    async def has_local_queue(self, namespace: str, name: str) -> bool:
        """Whether there is such a LocalQueue."""
        ...

    async def has_priority_class(self, name: str) -> bool:
        """Whether there is such a WorkloadPriorityClass."""
        ...

    async def managed_ancestor(self, obj: JSON, namespace: str) -> bool:
        """Whether an owner above the object is queued itself.

        Raises:
            InvalidObjectError: the owners cannot be followed: a circle, too many levels, one that is missing.
        """
        ...


class NoLookups:
    """Knows of nothing: where objects are to be judged by themselves alone."""

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """None but its name."""
        return {}

    async def has_local_queue(self, namespace: str, name: str) -> bool:
        """There is none."""
        return False

    async def has_priority_class(self, name: str) -> bool:
        """There is none."""
        return False

    async def managed_ancestor(self, obj: JSON, namespace: str) -> bool:
        """There is none."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the configuration says about objects that carry no queue, and about namespaces."""

    switches: Switches = field(default_factory=Switches)
    manage_without_queue: bool = False
    """`manageJobsWithoutQueueName`."""
    namespaces: LabelSelector = field(default_factory=LabelSelector)
    """`managedJobsNamespaceSelector`."""
    kinds: frozenset[tuple[str, str]] = frozenset()
    """(group, kind) of every enabled integration and external framework."""


class Observer:
    """Finds the surroundings of each request."""

    def __init__(self, policy: Policy, lookups: Lookups | None = None) -> None:
        """Without `lookups` every object is judged by itself alone."""
        self.policy = policy
        self._lookups = lookups or NoLookups()
        self._plain = Surroundings(switches=policy.switches)
        self._managed: dict[str, bool] = {}
        """What a selector says that looks at nothing but names."""
        self._by_name = all(r.key == names.NAMESPACE_NAME_LABEL for r in policy.namespaces.match_expressions) and all(
            key == names.NAMESPACE_NAME_LABEL for key in policy.namespaces.match_labels
        )

    async def at_creation(self, request: Request) -> Surroundings:
        """What defaulting has to know.

        Raises:
            LookupFailedError: something that decides whether the object is held back could not be found out.
            InvalidObjectError: the object's owners cannot be followed.
        """
        if mapping(request.obj, "metadata").get("deletionTimestamp"):
            return self._plain
        ours = await self._managed_namespace(request.namespace)
        ancestor = _is_owned(request.obj) and await self._lookups.managed_ancestor(request.obj, request.namespace)
        if not ours:
            return Surroundings(switches=self.policy.switches, managed_namespace=False, managed_ancestor=ancestor)
        named = bool(rules.queue_name(request.obj))
        queue = not ancestor and not named and await self._default_queue(request)
        without = self.policy.manage_without_queue
        queued = not ancestor and (queue or without or named)
        classed = queued and await self._default_class(request.obj)
        if not (ancestor or queue or classed or without):
            return self._plain
        return Surroundings(
            switches=self.policy.switches,
            default_queue=queue,
            default_priority_class=classed,
            managed_ancestor=ancestor,
            manage_without_queue=without,
        )

    async def at_change(self, request: Request) -> Surroundings:
        """What validation has to know, at creation and later.

        Owners that cannot be followed count as none: whoever mends or deletes an orphan must not be held up.

        Raises:
            LookupFailedError: something that the rules ask for could not be found out.
        """
        if mapping(request.obj, "metadata").get("deletionTimestamp"):
            return self._plain
        ours = await self._managed_namespace(request.namespace)
        ancestor = _is_owned(request.obj) and await self._ancestor_or_none(request)
        emptied = request.old is not None and rules.queue_name(request.old) and not rules.queue_name(request.obj)
        queue = bool(emptied) and ours and await self._lookups.has_local_queue(request.namespace, _DEFAULT)
        without = self.policy.manage_without_queue and ours
        if ours and not (ancestor or queue or without):
            return self._plain
        return Surroundings(
            switches=self.policy.switches,
            default_queue=queue,
            managed_ancestor=ancestor,
            manage_without_queue=without,
            managed_namespace=ours,
        )

    async def _managed_namespace(self, namespace: str) -> bool:
        if self._by_name and namespace in self._managed:
            return self._managed[namespace]
        labels = {} if self._by_name else await self._lookups.namespace_labels(namespace)
        ours = self.policy.namespaces.matches({**labels, names.NAMESPACE_NAME_LABEL: namespace})
        if self._by_name and len(self._managed) < _REMEMBERED:
            self._managed[namespace] = ours
        return ours

    async def _default_queue(self, request: Request) -> bool:
        """Whether the object is to get the queue named `default`; only the kind of its controller counts."""
        if _controller(request.obj) in self.policy.kinds:
            return False
        return await self._lookups.has_local_queue(request.namespace, _DEFAULT)

    async def _default_class(self, obj: JSON) -> bool:
        if not self.policy.switches.default_priority_class or rules.priority_class(obj):
            return False
        try:
            return await self._lookups.has_priority_class(names.DEFAULT_WORKLOAD_PRIORITY_CLASS)
        except LookupFailedError:
            return False  # a priority is not worth a refusal

    async def _ancestor_or_none(self, request: Request) -> bool:
        try:
            return await self._lookups.managed_ancestor(request.obj, request.namespace)
        except KqueueError:
            return False


_REMEMBERED = 10_000
_DEFAULT = names.DEFAULT_LOCAL_QUEUE


def _controller(obj: JSON) -> tuple[str, str] | None:
    """(group, kind) of the object's controller; None without one."""
    for owner in objects(obj, "metadata", "ownerReferences"):
        if owner.get("controller") is True:
            group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
            return group if slash else "", str(owner.get("kind", ""))
    return None


def _is_owned(obj: JSON) -> bool:
    """Whether owners have to be followed: the parent of a pod that says who suspends it has been looked at already."""
    return _controller(obj) is not None and names.POD_SUSPENDING_PARENT_ANNOTATION not in annotations_of(obj)
