"""Look up the facts that a review needs beyond its object, only where they affect the result.

An object that names its queue and has no controller needs no look-up.  The process that runs the webhooks passes
`ReviewLookups`, which read from the API server; this package has no cache and no watch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kqueue.api import gang_names, names
from kqueue.config.selector import SelectorSettings
from kqueue.errors import FieldError, InvalidObjectError, KqueueError
from kqueue.jobs import rules
from kqueue.jobs.ancestry import Lineage, controller_kind, controller_uid, makes_executors, parent_of
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, text
from kqueue.jobs.gang.naming import workload_of_gang
from kqueue.jobs.gang.registry import framework_of_kind
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.kind import JobContext, ReviewedKind
from kqueue.jobs.multikueue.defaults import queue_to_ask
from kqueue.jobs.others import Reference, completed, reads_others, references
from kqueue.jobs.patch import Patch, apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import POD, GroupKind
from kqueue.kube import names as kube_names
from webhooks import gang_context, spelling, unjudged
from webhooks.accounts import Accounts
from webhooks.review import Request


class LookupFailedError(KqueueError):
    """A read from the API server failed or timed out; the text names its subject."""


class ReviewLookups(gang_context.GangLookups, Protocol):
    """Reads from the API server.  Each returns within a time limit or raises LookupFailedError."""

    async def has_priority_class(self, name: str) -> bool:
        """Whether the WorkloadPriorityClass exists."""
        ...

    async def lineage(self, obj: JSON, kind: GroupKind, namespace: str) -> Lineage:
        """Return the owners above an object of this kind, and the owner that is queued itself.

        Raises:
            InvalidObjectError: the owners cannot be followed: a cycle, too many levels, or a missing owner.
        """
        ...

    async def is_admitted(self, uid: str, group: str, namespace: str) -> bool:
        """Whether a Workload of the job with this UID, or the gang Workload of the name `group`, is admitted."""
        ...

    async def holds_quota(self, workload: str, namespace: str) -> bool:
        """Whether quota is reserved for the Workload of this name; False if it does not exist."""
        ...

    async def sends_away(self, namespace: str, queue: str) -> bool:
        """Whether the ClusterQueue behind a LocalQueue has a check of MultiKueue; False if it does not exist."""
        ...

    async def other(self, reference: Reference) -> JSON | None:
        """Return an object that a job refers to; None: it does not exist, or its kind is not served."""
        ...

    async def topology_levels(self, wanted: Collection[str]) -> frozenset[str] | None:
        """Return the levels of all Topologies, read again if one of `wanted` is missing; None if they are unknown."""
        ...


class NoLookups:
    """Look-ups without results, to review objects without their context."""

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return only the label with its name."""
        return {}

    async def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return False: without look-ups no object is found."""
        return False

    async def has_priority_class(self, name: str) -> bool:
        """Return False: without look-ups no object is found."""
        return False

    async def lineage(self, obj: JSON, kind: GroupKind, namespace: str) -> Lineage:
        """Return no owners."""
        return Lineage()

    async def is_admitted(self, uid: str, group: str, namespace: str) -> bool:
        """Return True, so that the object may start."""
        return True

    async def group_object(self, ref: GangRef) -> JSON | None:
        """Return None: without look-ups no object is found."""
        return None

    async def holds_quota(self, workload: str, namespace: str) -> bool:
        """Return False, so that the object may change."""
        return False

    async def sends_away(self, namespace: str, queue: str) -> bool:
        """Return False: without look-ups no object is found."""
        return False

    async def other(self, reference: Reference) -> JSON | None:
        """Return None: without look-ups no object is found."""
        return None

    async def topology_levels(self, wanted: Collection[str]) -> frozenset[str] | None:
        """Return None: levels are unknown."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the configuration about objects without a queue, and about namespaces."""

    switches: JobFeatures = field(default_factory=JobFeatures)
    manage_without_queue: bool = False
    """`manageJobsWithoutQueueName`."""
    namespaces: SelectorSettings = field(default_factory=SelectorSettings)
    """`managedJobsNamespaceSelector`."""
    kinds: frozenset[tuple[str, str]] = frozenset()
    """(group, kind) of every enabled integration and external framework."""
    dispatches: bool = False
    """Whether MultiKueue runs here."""
    accounts: Accounts = field(default_factory=Accounts)
    """The accounts that create the objects of queued owners."""


class JobContextFinder:
    """Finds the `JobContext` of each request."""

    def __init__(self, policy: Policy, lookups: ReviewLookups | None = None) -> None:
        """Create the surroundings of reviews; without `lookups` every object is reviewed without its context."""
        self.policy = policy
        self._lookups = lookups or NoLookups()
        self._plain = JobContext(switches=policy.switches)
        self._managed: dict[str, bool] = {}
        """Whether each namespace matches, by name; cached for selectors that test only the name."""
        self._by_name = all(
            r.key == kube_names.NAMESPACE_NAME_LABEL for r in policy.namespaces.match_expressions
        ) and all(key == kube_names.NAMESPACE_NAME_LABEL for key in policy.namespaces.match_labels)

    async def at_creation(self, request: Request) -> JobContext:
        """Return the context for defaulting.

        Raises:
            LookupFailedError: a fact that decides whether the object is suspended or gated could not be read.
            InvalidObjectError: the object's owners cannot be followed.
        """
        if mapping(request.obj, "metadata").get("deletionTimestamp"):
            return self._plain
        ours = await self._managed_namespace(request.namespace)
        lineage = await self._lineage(request) if controller_kind(request.obj) is not None else Lineage()
        ancestor, forged = lineage.ancestor is not None, self._is_forged(request, lineage)
        if ours and forged and ancestor:
            raise _forgery(request)
        false_parent = _claims_a_parent(request.obj) and (forged or not self._shows_parent(request.obj, lineage))
        if not ours:
            return JobContext(
                switches=self.policy.switches,
                managed_namespace=False,
                managed_ancestor=ancestor,
                ancestor=_named(lineage),
                false_parent=false_parent,
            )
        named = bool(rules.queue_name(request.obj))
        gang_queue = "" if ancestor or named else await self._gang_queue(request)
        queue = not ancestor and not named and not gang_queue and await self._default_queue(request)
        without = self.policy.manage_without_queue
        # pods of a disabled kind start, unless they would be queued themselves without the names that they have
        false_parent = false_parent or (
            _claims_a_parent(request.obj) and (queue or gang_queue or without) and not self._is_on(request.obj)
        )
        queued = not ancestor and (queue or gang_queue or without or named)
        classed = bool(queued) and await self._default_class(request.obj)
        if not (ancestor or queue or gang_queue or classed or without or false_parent):
            return self._plain
        return JobContext(
            switches=self.policy.switches,
            default_queue=queue,
            gang_queue=gang_queue,
            default_priority_class=classed,
            managed_ancestor=ancestor,
            ancestor=_named(lineage),
            manage_without_queue=without,
            false_parent=false_parent,
        )

    async def is_dispatched(self, kind: ReviewedKind, request: Request, patch: Patch, around: JobContext) -> bool:
        """Whether a new object with these defaults is for another cluster, which its queue decides.

        Raises:
            LookupFailedError: the queue could not be read; a job that starts here cannot be sent away any more.
        """
        if not self.policy.dispatches or request.old is not None:
            return False
        queue = queue_to_ask(kind, request.obj, patch, around)
        return bool(queue) and await self._lookups.sends_away(request.namespace, queue)

    async def at_change(self, request: Request, *, starts: bool = False) -> JobContext:
        """Return the context for validation, at creation and at updates.

        Owners that cannot be followed are ignored, so that orphans can be edited and deleted.

        Args:
            request: the reviewed request.
            starts: the request removes the suspension or the gate of a queued object.

        Raises:
            LookupFailedError: a fact that the rules need could not be read.
            InvalidObjectError: a user names an owner that is queued as the controller of an object.
        """
        if mapping(request.obj, "metadata").get("deletionTimestamp"):
            return self._plain
        ours = await self._managed_namespace(request.namespace)
        lineage = await self._lineage_or_none(request) if self._is_followed(request) else Lineage()
        ancestor = lineage.ancestor is not None
        if ours and ancestor and self._is_forged(request, lineage):
            raise _forgery(request)
        emptied = request.old is not None and rules.queue_name(request.old) and not rules.queue_name(request.obj)
        queue = bool(emptied) and ours and await self._lookups.has_local_queue(request.namespace, _DEFAULT)
        without = self.policy.manage_without_queue and ours
        judged = starts and ours and not ancestor and self._is_queued(request.old or {})
        not_admitted = judged and not await self._may_start(request)
        false_mark = _marks_an_extra(request) and not self.policy.accounts.marks(request.user)
        if ours and not (ancestor or queue or without or not_admitted or false_mark):
            return self._plain
        return JobContext(
            switches=self.policy.switches,
            default_queue=queue,
            managed_ancestor=ancestor,
            ancestor=_named(lineage),
            manage_without_queue=without,
            managed_namespace=ours,
            not_admitted=not_admitted,
            false_mark=false_mark,
        )

    async def completer(self, kind: ReviewedKind, request: Request) -> Callable[[JSON], JSON]:
        """Return the function that gives the reviewed object, before and after, the other objects that its kind reads.

        Raises:
            LookupFailedError: an object that a job refers to could not be read.
        """
        if not reads_others(kind) or mapping(request.obj, "metadata").get("deletionTimestamp"):
            return lambda obj: obj
        here = {"metadata": {"namespace": request.namespace}}
        seen = [apply_merge_patch(obj, here) for obj in (request.obj, request.old) if obj is not None]
        found = {reference: await self._lookups.other(reference) for reference in references(kind, *seen)}
        return lambda obj: completed(apply_merge_patch(obj, here), found)

    async def warnings(self, request: Request) -> list[str]:
        """Warn of misspelt names and unjudged fields in a user's object; a controller's objects repeat its template."""
        if controller_kind(request.obj) is not None or mapping(request.obj, "metadata").get("deletionTimestamp"):
            return []
        found = spelling.unknown_names(request.obj, request.old)
        if not self.policy.switches.topology:
            return found
        found += unjudged.unjudged_fields(request.obj, request.old)
        asked = spelling.levels_asked(request.obj, request.old)
        if asked:
            known = await self._levels({one.level for one in asked})
            found += spelling.unknown_levels(asked, known) if known is not None else []
        return found

    async def _levels(self, wanted: Collection[str]) -> frozenset[str] | None:
        try:
            return await self._lookups.topology_levels(wanted)
        except LookupFailedError:
            return None  # without levels there is no warning; a failed look-up must not refuse the object

    async def _managed_namespace(self, namespace: str) -> bool:
        if self._by_name and namespace in self._managed:
            return self._managed[namespace]
        labels = {} if self._by_name else await self._lookups.namespace_labels(namespace)
        ours = self.policy.namespaces.matches({**labels, kube_names.NAMESPACE_NAME_LABEL: namespace})
        if self._by_name and len(self._managed) < _REMEMBERED:
            self._managed[namespace] = ours
        return ours

    async def _default_queue(self, request: Request) -> bool:
        """Whether the object gets the queue named `default`; depends on the kind of its controller only."""
        if controller_kind(request.obj) in self.policy.kinds:
            return False
        return await self._lookups.has_local_queue(request.namespace, _DEFAULT)

    async def _gang_queue(self, request: Request) -> str:
        """Return the queue of the gang that a pod or a group object without a queue is in; empty for other objects."""
        obj, namespace, kind = request.obj, request.namespace, _kind_of(request)
        if kind == POD:
            return await gang_context.queue_of_pod(obj, namespace, self.policy.switches, self._lookups)
        framework = framework_of_kind(*kind)
        if framework not in self.policy.switches.gangs:
            return ""
        return await gang_context.queue_of_group(obj, framework, namespace, self._lookups)

    async def of_group(self, request: Request, framework: str, *, needs_quota: bool) -> JobContext:
        """Return the context of a group object for validation.

        `needs_quota`: it depends on the quota of the gang if the change is possible.

        Raises:
            LookupFailedError: a fact that the rules need could not be read.
        """
        ours = await self._managed_namespace(request.namespace)
        name, uid = (text(request.obj, "metadata", key) for key in ("name", "uid"))
        ref = GangRef(framework=framework, namespace=request.namespace, name=name)
        workload = workload_of_gang(ref, self.policy.switches, uid=uid)
        return JobContext(
            switches=self.policy.switches,
            managed_namespace=ours,
            manage_without_queue=self.policy.manage_without_queue and ours,
            holds_quota=needs_quota and ours and await self._lookups.holds_quota(workload, request.namespace),
        )

    async def is_group_queued(self, request: Request, around: JobContext) -> bool:
        """Whether a queue is known for the gang of a group object; False if it could not be looked up."""
        if not around.managed_namespace:
            return False
        if rules.managed(request.obj, around):
            return True
        try:
            return bool(await self._gang_queue(request)) or await self._default_queue(request)
        except LookupFailedError:
            return False  # only warnings depend on the answer

    async def is_level(self, level: str) -> bool:
        """Whether a Topology has this level, or it is not known."""
        known = await self._levels({level})
        return known is None or level in known

    async def _default_class(self, obj: JSON) -> bool:
        if not self.policy.switches.default_priority_class or rules.priority_class(obj):
            return False
        try:
            return await self._lookups.has_priority_class(names.DEFAULT_WORKLOAD_PRIORITY_CLASS)
        except LookupFailedError:
            return False  # a failed look-up of the priority must not refuse the object

    # --- owners ------------------------------------------------------------------------------------------------

    async def _lineage(self, request: Request) -> Lineage:
        return await self._lookups.lineage(request.obj, _kind_of(request), request.namespace)

    async def _lineage_or_none(self, request: Request) -> Lineage:
        try:
            return await self._lineage(request)
        except KqueueError:
            return Lineage()

    def _is_followed(self, request: Request) -> bool:
        """Whether the request's owners matter.

        The owners of a pod that names its suspending parent were checked when the pod was created, and matter again
        only if the request sets another controller.
        """
        if controller_kind(request.obj) is None:
            return False
        return not _claims_a_parent(request.obj) or _names_another_controller(request)

    def _is_forged(self, request: Request, lineage: Lineage) -> bool:
        """Whether another client than the owner's controller names the owner as the object's controller."""
        owner = controller_kind(request.obj)
        if owner is None or not lineage.owners or not _names_another_controller(request):
            return False
        if (
            owner == POD
            and self._gates_its_pods(request.obj)
            and self.policy.accounts.operates(request.user, request.namespace)
        ):
            return False
        if makes_executors(lineage.owners) and request.user.pod_uid == controller_uid(request.obj) != "":
            return False  # a driver names itself
        return not self.policy.accounts.makes(request.user, owner, request.namespace)

    def _gates_its_pods(self, obj: JSON) -> bool:
        """Whether the template of an object names a parent that suspends its pods, so that each of them is gated and
        reviewed itself: workers of a LeaderWorkerSet have a StatefulSet whose controller is their leader.
        """
        template = dict(mapping(obj, "spec", "template"))
        return _claims_a_parent(template) and self._is_on(template)

    def _shows_parent(self, obj: JSON, lineage: Lineage) -> bool:
        """Whether the owners show the parent that a pod names."""
        return _parent_of(obj) in lineage.owners

    def _is_on(self, obj: JSON) -> bool:
        """Whether the kind of parent that a pod names is queued."""
        return _parent_of(obj) in self.policy.kinds

    def _is_queued(self, obj: JSON) -> bool:
        """Whether an object without a queued owner is queued itself."""
        named = bool(rules.queue_name(obj)) or names.MANAGED_LABEL in labels_of(obj)
        return named or self.policy.manage_without_queue

    async def _may_start(self, request: Request) -> bool:
        """Whether the object may start: the request is kqueue's, or its Workload is admitted."""
        if self.policy.accounts.is_ours(request.user):
            return True
        namespace, group = request.namespace, ""
        if _kind_of(request) == POD:
            before = request.old or request.obj  # the request may have added a mark
            group = await gang_context.workload_of_pod(before, namespace, self.policy.switches, self._lookups)
        uid = text(request.obj, "metadata", "uid")
        if group and await self._lookups.is_admitted(uid, group, namespace):
            return True  # else the pod may be queued alone, as pods of a PodGroup without a gang policy are
        return await self._lookups.is_admitted(uid, "", namespace)


_REMEMBERED = 10_000
_DEFAULT = names.DEFAULT_LOCAL_QUEUE


def _kind_of(request: Request) -> GroupKind:
    if request.kind:
        return request.group, request.kind
    return text(request.obj, "apiVersion").rpartition("/")[0], text(request.obj, "kind")


def _named(lineage: Lineage) -> str:
    """Return kind and name of the queued owner; empty: there is none."""
    above = lineage.ancestor
    return f"{above.gvk.kind} {above.name}" if above is not None else ""


def _claims_a_parent(obj: JSON) -> bool:
    return names.POD_SUSPENDING_PARENT_ANNOTATION in annotations_of(obj)


def _parent_of(obj: JSON) -> GroupKind | None:
    """Return the kind of the parent that a pod names; None if no kind of that name is queued through its pods."""
    return parent_of(annotations_of(obj)[names.POD_SUSPENDING_PARENT_ANNOTATION])


def _names_another_controller(request: Request) -> bool:
    """Whether the request gives the object a controller that it did not have."""
    return request.old is None or controller_uid(request.obj) != controller_uid(request.old)


def _marks_an_extra(request: Request) -> bool:
    """Whether an update marks a pod as one beyond the quorum of its gang, or changes such a mark."""
    mark = annotations_of(request.obj).get(gang_names.EXTRA_ANNOTATION)
    return request.old is not None and mark not in (None, annotations_of(request.old).get(gang_names.EXTRA_ANNOTATION))


def _forgery(request: Request) -> InvalidObjectError:
    group, kind = controller_kind(request.obj) or ("", "")
    user = request.user.name or "a user without a name"
    problem = (
        f"says that {kind} controls this, and {user} is not the account of its controller: leave `controller` out, or "
        f"have the account added to integrations.controllerAccounts of kqueue's configuration"
    )
    what = f"{request.kind or 'object'} {request.namespace}/{text(request.obj, 'metadata', 'name')}"
    return InvalidObjectError(what, [FieldError("metadata.ownerReferences", problem, f"{group}/{kind}".strip("/"))])
