"""The seam inside the sandbox: what its simulated controllers ask of its API server, without HTTP in between.

The HTTP front uses the very same object, so a simulated kubelet and `kubectl` pass the same admission, locking and
validation.  Objects are plain JSON dicts; whoever gets one must not change it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Object = dict[str, Any]
"""One Kubernetes object as JSON."""

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API server serves it: `Resource("", "v1", "pods")`."""

    group: str
    version: str
    plural: str


PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes")
NAMESPACES = Resource("", "v1", "namespaces")
CORE_EVENTS = Resource("", "v1", "events")
EVENTS = Resource("events.k8s.io", "v1", "events")
JOBS = Resource("batch", "v1", "jobs")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
DAEMONSETS = Resource("apps", "v1", "daemonsets")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions")


class Api(Protocol):
    """The API server's verbs, in process.  Failures are raised as the `ApiError` tree of `kqueue.errors`."""

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        """The stored object.  Raises NotFoundError."""
        ...

    def list(
        self, resource: Resource, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """All objects, or those of a namespace, or those that carry all of `labels`; in key order."""
        ...

    async def create(self, resource: Resource, obj: Object, *, namespace: str | None = None) -> Object:
        """Admission, defaulting, validation, then store.  Raises AlreadyExistsError, InvalidError, ForbiddenError."""
        ...

    async def update(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace, under the optimistic lock of `obj`'s resourceVersion.  Raises ConflictError, NotFoundError, ..."""
        ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> Object:
        """Patch in the given format; a resourceVersion inside the patch is an optimistic lock."""
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace_period_seconds: int | None = None,
    ) -> Object:
        """Delete, or mark for deletion while finalizers or a grace period hold it."""
        ...

    def watch(self, resource: Resource) -> AsyncIterator[tuple[EventType, Object]]:
        """All present objects as ADDED, then every change in order.  Never skips; ends when the server stops."""
        ...
