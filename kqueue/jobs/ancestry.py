"""Find the owner that is queued on behalf of an object: its topmost owner that kqueue manages.

The walk goes from controller to controller, in one namespace.  The caller passes the look-up: reconcilers read their
watches first, webhooks read from the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kqueue.api import names
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import rules
from kqueue.jobs.fields import JSON, annotations_of, mapping, objects, text
from kqueue.jobs.kind import GroupVersionKind
from kqueue.kinds import FRAMEWORKS, OWNERS, POD, GroupKind

LEVELS_MAX = 10
"""Maximum number of owners above an object that the walk follows; Kueue's figure."""

_OWNERS = "metadata.ownerReferences"
_DRIVER_AND_OBJECT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerKind:
    """A kind of object through which the walk continues."""

    gvk: GroupVersionKind
    resource: str
    """Plural name in URLs."""
    queued: bool
    """Whether its integration is on, so that kqueue may manage its objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """The topmost managed owner of an object."""

    gvk: GroupVersionKind
    namespace: str
    name: str
    uid: str
    queue_name: str
    """Empty: the object is managed without a queue name."""
    elastic: bool
    """Whether the object has the annotation for workload slices."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The result of the walk from an object to its topmost owner."""

    ancestor: Ancestor | None = None
    owners: tuple[GroupKind, ...] = ()
    """Kinds of the owners that exist, the object's controller first."""
    forged: str = ""
    """Kind and name of an owner at which the walk ended, because its controller creates no such object; empty: none."""


class AncestryError(InvalidObjectError):
    """The owners of an object cannot be followed.  `reason` is that of the event on it."""

    def __init__(self, obj: JSON, problem: str, *, reason: str, value: object = None) -> None:
        what = f"{text(obj, 'kind') or 'object'} {text(obj, 'metadata', 'namespace')}/{text(obj, 'metadata', 'name')}"
        super().__init__(what, [FieldError(_OWNERS, problem, value)])
        self.reason = reason


class MissingOwnerError(AncestryError):
    """An owner does not exist: it is being deleted with all its dependents, or the reference is wrong."""


Fetch: TypeAlias = Callable[[OwnerKind, str, str], Awaitable[JSON | None]]
"""Return an owner by kind, namespace and name, at least its metadata; None: it does not exist."""

Made: TypeAlias = Callable[[GroupKind, JSON, JSON], bool]
"""Whether an owner of a kind may have created an object; the owner is the first argument."""


def owner_kinds(
    frameworks: Collection[str], external: Iterable[str] = (), more: Iterable[OwnerKind] = ()
) -> dict[GroupKind, OwnerKind]:
    """Return every kind through which the walk continues.

    Args:
        frameworks: the enabled frameworks (`integrations.frameworks`).
        external: `Kind.version.group` of kinds that another controller queues (`integrations.externalFrameworks`).
            Their plural is assumed to be the kind in lower case with an `s`.
        more: further kinds, such as kinds that users declare.
    """
    known = {
        key: OwnerKind(
            gvk=GroupVersionKind(row.group, row.version, row.kind),
            resource=row.plural,
            queued=row.framework in frameworks,
        )
        for key, row in OWNERS.items()
    }
    for written in external:
        kind, version, group = written.split(".", 2)
        known[group, kind] = OwnerKind(
            gvk=GroupVersionKind(group, version, kind), resource=f"{kind.lower()}s", queued=True
        )
    known.update({(owner.gvk.group, owner.gvk.kind): owner for owner in more})
    return known


def has_known_owner(obj: JSON, known: Mapping[GroupKind, OwnerKind]) -> bool:
    """Whether `obj` has a controller of a known kind; most objects do not."""
    return _known_owner(obj, known) is not None


async def managed_ancestor(
    obj: JSON,
    *,
    child: GroupKind,
    known: Mapping[GroupKind, OwnerKind],
    manages_all: bool,
    fetch: Fetch,
    made: Made = lambda _kind, _owner, _child: True,
) -> Ancestor | None:
    """Return the topmost owner that is queued, in which case `obj` is not; None: `obj` is queued itself.

    Arguments and errors are those of `lineage_of`.
    """
    return (await lineage_of(obj, child=child, known=known, manages_all=manages_all, fetch=fetch, made=made)).ancestor


async def lineage_of(
    obj: JSON,
    *,
    child: GroupKind,
    known: Mapping[GroupKind, OwnerKind],
    manages_all: bool,
    fetch: Fetch,
    made: Made = lambda _kind, _owner, _child: True,
) -> Lineage:
    """Return the owners above an object, and the topmost of them that is queued.

    The walk ends at the first owner that has an unknown kind, has another UID, or never creates such an object, because
    a user may have written the reference.

    Args:
        obj: the object, with metadata.
        child: the kind of `obj`, which lists of the API server omit.
        known: see `owner_kinds`.
        manages_all: owners are managed even if they name no queue (`manageJobsWithoutQueueName`).
        fetch: looks owners up.
        made: returns whether an owner of a kind may have created an object.

    Raises:
        MissingOwnerError: an owner of a known kind does not exist.
        AncestryError: more than `LEVELS_MAX` levels, or owners that own each other.
    """
    found: Ancestor | None = None
    namespace = text(obj, "metadata", "namespace")
    seen = {text(obj, "metadata", "uid")} - {""}
    owners: list[GroupKind] = []
    current, current_kind = obj, child
    for _ in range(LEVELS_MAX):
        step = _known_owner(current, known)
        if step is None:
            return Lineage(found, tuple(owners))
        kind, name, uid = step
        group_kind = (kind.gvk.group, kind.gvk.kind)
        if not makes(group_kind, current_kind):
            return Lineage(found, tuple(owners), f"{kind.gvk.kind} {name}")
        if uid in seen:
            raise AncestryError(obj, "owners own each other; break the circle", reason="OwnerLoop", value=name)
        owner = await fetch(kind, namespace, name)
        if owner is None:
            problem = f"{kind.gvk.kind} {name}, which owns this, does not exist; wait for its clean-up or correct this"
            raise MissingOwnerError(obj, problem, reason="OwnerNotFound", value=name)
        if text(owner, "metadata", "uid") != uid:
            return Lineage(found, tuple(owners))
        if not made(group_kind, owner, current):
            return Lineage(found, tuple(owners), f"{kind.gvk.kind} {name}")
        seen.add(uid)
        owners.append(group_kind)
        found = _queued(kind, owner, manages_all=manages_all) or found
        current, current_kind = owner, group_kind
    if _known_owner(current, known) is None:
        return Lineage(found, tuple(owners))
    raise AncestryError(obj, f"has more than {LEVELS_MAX} levels of owners", reason=names.EVENT_JOB_NESTING_TOO_DEEP)


async def queued_controller(
    obj: JSON, *, known: Mapping[GroupKind, OwnerKind], manages_all: bool, fetch: Fetch
) -> Ancestor | None:
    """Return the object's controller if it is queued, whether or not it creates such objects; None: it is not queued.

    Arguments are those of `lineage_of`.
    """
    step = _known_owner(obj, known)
    if step is None:
        return None
    kind, name, uid = step
    owner = await fetch(kind, text(obj, "metadata", "namespace"), name)
    if owner is None or text(owner, "metadata", "uid") != uid:
        return None
    return _queued(kind, owner, manages_all=manages_all)


def _queued(kind: OwnerKind, owner: JSON, *, manages_all: bool) -> Ancestor | None:
    """Return the owner as an ancestor; None if it is not queued."""
    queue = rules.queue_name(owner)
    if not kind.queued or not (manages_all or queue) or _has_no_controller(kind):
        return None
    return Ancestor(
        gvk=kind.gvk,
        namespace=text(owner, "metadata", "namespace"),
        name=text(owner, "metadata", "name"),
        uid=text(owner, "metadata", "uid"),
        queue_name=queue,
        elastic=annotations_of(owner).get(names.ELASTIC_JOB_ANNOTATION) == "true",
    )


def _has_no_controller(kind: OwnerKind) -> bool:
    """Whether a kind has no controller: its processes create the dependents, which are queued themselves."""
    row = OWNERS.get((kind.gvk.group, kind.gvk.kind))
    return row is not None and not row.controlled


def parent_of(framework: str) -> GroupKind | None:
    """Return the kind that is queued through its pods, by the name in `pod-suspending-parent`; None: there is no such
    kind.
    """
    row = FRAMEWORKS.get(framework)
    return row.group_kind if row is not None and row.through_pods else None


def makes(owner: GroupKind, child: GroupKind) -> bool:
    """Whether the controller of an owner's kind may create objects of a child's kind; True if nothing is known."""
    row = OWNERS.get(owner)
    return row is None or row.makes is None or child in row.makes


def makes_executors(owners: Sequence[GroupKind]) -> bool:
    """Whether the nearest of these owners is a pod that makes further pods of the object above it."""
    if len(owners) < _DRIVER_AND_OBJECT or owners[0] != POD:
        return False
    row = OWNERS.get(owners[1])
    return row is not None and row.drivers


def controller_kind(obj: JSON) -> GroupKind | None:
    """Return (group, kind) of the object's controller; None: it has no controller."""
    for reference in objects(mapping(obj, "metadata"), "ownerReferences"):
        if reference.get("controller") is True:
            return text(reference, "apiVersion").rpartition("/")[0], text(reference, "kind")
    return None


def controller_uid(obj: JSON) -> str:
    """Return the UID of the object's controller; empty: it has no controller."""
    return _of_controller(obj, "uid")


def controller_name(obj: JSON) -> str:
    """Return the name of the object's controller; empty: it has no controller."""
    return _of_controller(obj, "name")


def _of_controller(obj: JSON, field: str) -> str:
    references = objects(mapping(obj, "metadata"), "ownerReferences")
    return next((text(r, field) for r in references if r.get("controller") is True), "")


def _known_owner(obj: JSON, known: Mapping[GroupKind, OwnerKind]) -> tuple[OwnerKind, str, str] | None:
    """Return kind, name and UID of the object's controller; None: it has no controller of a known kind."""
    for reference in objects(mapping(obj, "metadata"), "ownerReferences"):
        if reference.get("controller") is True:
            kind = known.get((text(reference, "apiVersion").rpartition("/")[0], text(reference, "kind")))
            return None if kind is None else (kind, text(reference, "name"), text(reference, "uid"))
    return None
