"""Who is queued on behalf of an object: the topmost owner above it that kqueue manages itself.

The walk goes from controller to controller, in one namespace.  Objects are looked up by whoever asks, so this room
reads nothing itself: reconcilers look into their watches first, webhooks ask the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kqueue.api import names
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import rules
from kqueue.jobs.fields import JSON, annotations_of, mapping, objects, text
from kqueue.jobs.kind import GroupVersionKind

LEVELS_MAX = 10
"""Owners above an object that are looked at; Kueue's figure."""

_OWNERS = "metadata.ownerReferences"

GroupKind: TypeAlias = tuple[str, str]
"""API group and kind, whatever the version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerKind:
    """A kind of object through which the walk goes on."""

    gvk: GroupVersionKind
    resource: str
    """Plural name in URLs."""
    queued: bool
    """Its integration is on: objects of it may be managed themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """The topmost managed owner of an object."""

    gvk: GroupVersionKind
    namespace: str
    name: str
    uid: str
    queue_name: str
    """Empty where it is managed without one."""
    elastic: bool
    """It carries the annotation for workload slices."""


class AncestryError(InvalidObjectError):
    """The owners of an object cannot be followed.  `reason` is that of the event on it."""

    def __init__(self, obj: JSON, problem: str, *, reason: str, value: object = None) -> None:
        what = f"{text(obj, 'kind') or 'object'} {text(obj, 'metadata', 'namespace')}/{text(obj, 'metadata', 'name')}"
        super().__init__(what, [FieldError(_OWNERS, problem, value)])
        self.reason = reason


class MissingOwnerError(AncestryError):
    """An owner does not exist: it is being deleted with all that it owns, or the reference is wrong."""


Fetch: TypeAlias = Callable[[OwnerKind, str, str], Awaitable[JSON | None]]
"""Looks an owner up by kind, namespace and name; its metadata are enough.  None: there is none."""

_KNOWN = (
    ("batch/job", "batch", "v1", "Job", "jobs"),
    ("jobset.x-k8s.io/jobset", "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("pod", "", "v1", "Pod", "pods"),
    ("deployment", "apps", "v1", "Deployment", "deployments"),
    ("", "apps", "v1", "ReplicaSet", "replicasets"),
    ("statefulset", "apps", "v1", "StatefulSet", "statefulsets"),
    (
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "leaderworkerset.x-k8s.io",
        "v1",
        "LeaderWorkerSet",
        "leaderworkersets",
    ),
    ("kubeflow.org/pytorchjob", "kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org/tfjob", "kubeflow.org", "v1", "TFJob", "tfjobs"),
    ("kubeflow.org/xgboostjob", "kubeflow.org", "v1", "XGBoostJob", "xgboostjobs"),
    ("kubeflow.org/paddlejob", "kubeflow.org", "v1", "PaddleJob", "paddlejobs"),
    ("kubeflow.org/jaxjob", "kubeflow.org", "v1", "JAXJob", "jaxjobs"),
    ("kubeflow.org/mpijob", "kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    ("trainer.kubeflow.org/trainjob", "trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
    ("ray.io/rayjob", "ray.io", "v1", "RayJob", "rayjobs"),
    ("ray.io/raycluster", "ray.io", "v1", "RayCluster", "rayclusters"),
    ("ray.io/rayservice", "ray.io", "v1", "RayService", "rayservices"),
    ("workload.codeflare.dev/appwrapper", "workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers"),
    (
        "sparkoperator.k8s.io/sparkapplication",
        "sparkoperator.k8s.io",
        "v1beta2",
        "SparkApplication",
        "sparkapplications",
    ),
)
"""Framework, group, version, kind, plural.  A ReplicaSet is no framework: the walk only passes through it."""


def owner_kinds(
    frameworks: Collection[str], external: Iterable[str] = (), more: Iterable[OwnerKind] = ()
) -> dict[GroupKind, OwnerKind]:
    """Every kind through which the walk goes.

    Args:
        frameworks: those that are on (`integrations.frameworks`).
        external: `Kind.version.group` of kinds that somebody else queues (`integrations.externalFrameworks`).
            Their plural is taken to be the kind in lower case with an `s`.
        more: further ones, as those declared by users.
    """
    known = {
        (group, kind): OwnerKind(
            gvk=GroupVersionKind(group, version, kind), resource=plural, queued=framework in frameworks
        )
        for framework, group, version, kind, plural in _KNOWN
    }
    for written in external:
        kind, version, group = written.split(".", 2)
        known[group, kind] = OwnerKind(
            gvk=GroupVersionKind(group, version, kind), resource=f"{kind.lower()}s", queued=True
        )
    known.update({(owner.gvk.group, owner.gvk.kind): owner for owner in more})
    return known


def has_known_owner(obj: JSON, known: Mapping[GroupKind, OwnerKind]) -> bool:
    """Whether there is anything to look up at all; most objects have no controller."""
    return _known_owner(obj, known) is not None


async def managed_ancestor(
    obj: JSON, *, known: Mapping[GroupKind, OwnerKind], manages_all: bool, fetch: Fetch
) -> Ancestor | None:
    """The topmost owner that is queued itself, so that `obj` is not; None: `obj` stands for itself.

    Args:
        obj: the object, with metadata.
        known: see `owner_kinds`; the walk ends at the first owner of another kind, or with another UID.
        manages_all: owners are managed even if they name no queue (`manageJobsWithoutQueueName`).
        fetch: looks owners up.

    Raises:
        MissingOwnerError: an owner of a known kind does not exist.
        AncestryError: more than `LEVELS_MAX` levels, or owners that own each other.
    """
    found: Ancestor | None = None
    namespace = text(obj, "metadata", "namespace")
    seen = {text(obj, "metadata", "uid")} - {""}
    current = obj
    for _ in range(LEVELS_MAX):
        step = _known_owner(current, known)
        if step is None:
            return found
        kind, name, uid = step
        if uid in seen:
            raise AncestryError(obj, "owners own each other; break the circle", reason="OwnerLoop", value=name)
        owner = await fetch(kind, namespace, name)
        if owner is None:
            problem = f"{kind.gvk.kind} {name}, which owns this, does not exist; wait for its clean-up or correct this"
            raise MissingOwnerError(obj, problem, reason="OwnerNotFound", value=name)
        if text(owner, "metadata", "uid") != uid:
            return found
        seen.add(uid)
        queue = rules.queue_name(owner)
        if kind.queued and (manages_all or queue):
            elastic = annotations_of(owner).get(names.ELASTIC_JOB_ANNOTATION) == "true"
            found = Ancestor(gvk=kind.gvk, namespace=namespace, name=name, uid=uid, queue_name=queue, elastic=elastic)
        current = owner
    if _known_owner(current, known) is None:
        return found
    raise AncestryError(obj, f"has more than {LEVELS_MAX} levels of owners", reason="JobNestingTooDeep")


def _known_owner(obj: JSON, known: Mapping[GroupKind, OwnerKind]) -> tuple[OwnerKind, str, str] | None:
    """Kind, name and UID of the object's controller; None where it has none of a known kind."""
    for reference in objects(mapping(obj, "metadata"), "ownerReferences"):
        if reference.get("controller") is True:
            kind = known.get((text(reference, "apiVersion").rpartition("/")[0], text(reference, "kind")))
            return None if kind is None else (kind, text(reference, "name"), text(reference, "uid"))
    return None
