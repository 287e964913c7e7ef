"""The interface between the simulated controllers and the API server, without HTTP in between.

The HTTP front uses the same object, so a simulated kubelet and `kubectl` pass the same admission, locking and
validation.  Objects are plain JSON dicts; callers must not change them.
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
class GroupVersionResource:
    """One kind as the API server serves it: `GroupVersionResource("", "v1", "pods")`."""

    group: str
    version: str
    plural: str


PODS = GroupVersionResource("", "v1", "pods")
NODES = GroupVersionResource("", "v1", "nodes")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
CORE_EVENTS = GroupVersionResource("", "v1", "events")
EVENTS = GroupVersionResource("events.k8s.io", "v1", "events")
JOBS = GroupVersionResource("batch", "v1", "jobs")
JOB_SETS = GroupVersionResource("jobset.x-k8s.io", "v1alpha2", "jobsets")
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
DAEMONSETS = GroupVersionResource("apps", "v1", "daemonsets")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
REPLICA_SETS = GroupVersionResource("apps", "v1", "replicasets")
STATEFUL_SETS = GroupVersionResource("apps", "v1", "statefulsets")
RESOURCE_SLICES = GroupVersionResource("resource.k8s.io", "v1", "resourceslices")
RESOURCE_CLAIMS = GroupVersionResource("resource.k8s.io", "v1", "resourceclaims")
RESOURCE_CLAIM_TEMPLATES = GroupVersionResource("resource.k8s.io", "v1", "resourceclaimtemplates")
DEVICE_CLASSES = GroupVersionResource("resource.k8s.io", "v1", "deviceclasses")
CONTROLLER_REVISIONS = GroupVersionResource("apps", "v1", "controllerrevisions")


class Api(Protocol):
    """The API server's verbs, in process.  Failures are raised as the `ApiError` tree of `kqueue.errors`."""

    def get(self, resource: GroupVersionResource, name: str, *, namespace: str | None = None) -> Object:
        """Return the stored object.  Raises NotFoundError."""
        ...

    def list(
        self, resource: GroupVersionResource, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return all objects, or the objects of a namespace, or with all of `labels`; in key order."""
        ...

    async def create(self, resource: GroupVersionResource, obj: Object, *, namespace: str | None = None) -> Object:
        """Run admission, defaulting and validation, then store.  Raises AlreadyExists-, Invalid-, ForbiddenError."""
        ...

    async def update(self, resource: GroupVersionResource, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace, if `obj`'s resourceVersion is the present one.  Raises ConflictError, NotFoundError, ..."""
        ...

    async def patch(
        self,
        resource: GroupVersionResource,
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> Object:
        """Patch in the given format; a resourceVersion inside the patch must be the present one."""
        ...

    async def delete(
        self,
        resource: GroupVersionResource,
        name: str,
        *,
        namespace: str | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace_period_seconds: int | None = None,
    ) -> Object:
        """Delete, or mark for deletion while finalizers or a grace period hold it."""
        ...

    def watch(self, resource: GroupVersionResource) -> AsyncIterator[tuple[EventType, Object]]:
        """Yield all present objects as ADDED, then every change in order.  Never skips; ends when the server stops."""
        ...
