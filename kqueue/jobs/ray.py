"""The adapters of RayCluster, RayJob and RayService (ray.io/v1): one pod set for the head, and one per worker group.

KubeRay creates the RayCluster of a RayJob and of a RayService, and a batch Job that submits a RayJob; their pods count
as pods of the object above them.  An autoscaler changes the numbers of workers in the RayCluster alone, so an elastic
object above one has the numbers that its RayCluster has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names, ray_names
from kqueue.errors import FieldError
from kqueue.jobs import rules, run_times, syntax
from kqueue.jobs.ancestry import controller_uid
from kqueue.jobs.fields import (
    JSON,
    annotations_of,
    condition_status,
    flag,
    labels_of,
    mapping,
    objects,
    sequence,
    text,
    whole,
)
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext
from kqueue.jobs.others import Reference, other
from kqueue.jobs.patch import Patch
from kqueue.jobs.ray_cluster_spec import CLEANUP_TEMPLATE, SUBMITTER_CONTAINER, RayClusterSpec
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.templated import TemplatePart, TemplatesInPlace
from kqueue.kinds import RAY_CLUSTERS
from kqueue.kube import names as kube_names

SUBMITTER, SUBMITTER_PATH = "submitter", "spec.submitterPodTemplate"
"""Pod set of the pod that submits a RayJob, and path of its template."""
_K8S_JOB, _SIDECAR = "K8sJobMode", "SidecarMode"
_READY = "ready"
_SLICES = syntax.entry_path("metadata.annotations", names.ELASTIC_JOB_ANNOTATION)


class RayObject(TemplatesInPlace):
    """The base of the adapters of Ray's kinds.

    Args:
        kind: its name in Kubernetes' API.
        spec: path of the cluster spec.
    """

    own_controller = kube_names.RAY_CONTROLLER
    _elastic = True

    def __init__(self, kind: str, spec: tuple[str, ...]) -> None:
        name = kind.lower()
        self.framework, self.resource = f"ray.io/{name}", f"{name}s"
        self.gvk = GroupVersionKind("ray.io", "v1", kind)
        self._spec = spec

    @abstractmethod
    def active(self, job: JSON) -> bool:
        """Whether pods of the object may still use resources, as its status says."""

    @abstractmethod
    def pods_ready(self, job: JSON) -> bool:
        """Whether all pods are ready, as the status says."""

    @abstractmethod
    def _cluster_name(self, job: JSON) -> str:
        """Return the name of the RayCluster that runs the pods; empty: there is none yet."""

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the label with the name of the RayCluster, which KubeRay puts on all pods of a cluster."""
        return {kube_names.RAY_CLUSTER_LABEL: self._cluster_name(job)}

    def managed_by(self, job: JSON) -> str:
        """Return `spec.managedBy`, or KubeRay's operator."""
        return text(job, "spec", "managedBy") or self.own_controller

    def finished(self, job: JSON) -> Finished | None:
        """Return None: it runs until it is deleted."""
        return None

    def is_skipped(self, job: JSON) -> bool:
        """Return False."""
        return False

    def on_hold(self, job: JSON) -> str:
        """Return nothing: KubeRay runs what it accepts."""
        return ""

    def cleans_up(self, job: JSON, switches: JobFeatures) -> bool:
        """Return False: only a RayCluster does."""
        return False

    def clears_redis(self, job: JSON) -> bool:
        """Whether KubeRay clears Redis in a pod when the cluster is deleted."""
        return self._cluster(job).clears_redis

    def parts(self, job: JSON) -> list[TemplatePart]:
        """Return the head and the worker groups."""
        return self._cluster(job).parts()

    def with_templates(self, job: JSON, templates: Sequence[JSON]) -> JSON:
        """Return the object with other templates in its cluster spec."""
        return self._cluster(job).with_templates(templates)

    def shape_problems(self, job: JSON) -> Iterator[FieldError]:
        """Return why head, groups and submitter cannot become pod sets."""
        yield from self._cluster(job).problems(self.parts(job))
        yield from super().shape_problems(job)

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check what other kinds check, autoscaling, and the gates of elastic jobs; an update only of an object that is
        or was queued.
        """
        if mapping(new, "metadata").get("deletionTimestamp") or not _is_checked(new, old, around):
            return []
        found = super().problems(new, old, around)
        if rules.managed(new, around):
            found += self._autoscaling_problems(new, around.switches)
            if self._gated_when_made and rules.is_elastic(new, around.switches):
                found += _gate_problems(self._cluster(new).parts())
        return found

    def _cluster(self, job: JSON) -> RayClusterSpec:
        return RayClusterSpec(self._spec, job)

    def _autoscaling_problems(self, job: JSON, switches: JobFeatures) -> Iterator[FieldError]:
        cluster = self._cluster(job)
        if not cluster.autoscales:
            return
        at = f"{cluster.at}.enableInTreeAutoscaling"
        if not rules.is_elastic(job, switches):
            yield FieldError(at, f'needs {_SLICES}: "true", so that added workers wait for quota', True)
        elif self.managed_by(job) == names.MULTIKUEUE_CONTROLLER:
            yield FieldError("spec.managedBy", f"cannot be used together with {at}; remove one", self.managed_by(job))


class RayAbove(RayObject):
    """The base of the adapters of kinds that run in a RayCluster which KubeRay makes."""

    def reads(self, job: JSON) -> tuple[Reference, ...]:
        """Return the RayCluster of an elastic object that runs and scales by itself."""
        if self.is_suspended(job) or not rules.asks_for_slices(job) or not RayClusterSpec(self._spec, job).autoscales:
            return ()
        return (Reference(RAY_CLUSTERS, text(job, "metadata", "namespace"), self._cluster_name(job)),)

    def revision(self, job: JSON) -> str:
        """Return the generation of the RayCluster that was written last."""
        return annotations_of(job).get(ray_names.RAYCLUSTER_GENERATION_ANNOTATION, "")

    def revise(self, job: JSON) -> Patch:
        """Return the patch that writes the generation of the RayCluster, if it has one and another one is written."""
        generation = whole(self._runs(job), "metadata", "generation")
        if generation is None or str(generation) == self.revision(job):
            return {}
        return {"metadata": {"annotations": {ray_names.RAYCLUSTER_GENERATION_ANNOTATION: str(generation)}}}

    def _cluster(self, job: JSON) -> RayClusterSpec:
        return RayClusterSpec(self._spec, job, self._runs(job))

    def _runs(self, job: JSON) -> JSON:
        """Return the RayCluster that KubeRay made for the object and that has the numbers of workers; empty: none."""
        for reference in self.reads(job):
            found = other(job, reference)
            if found is not None and controller_uid(found) == text(job, "metadata", "uid"):
                return found
        return {}


class RayCluster(RayObject):
    """The adapter of RayCluster, whose workers may be scaled while it runs."""

    def __init__(self) -> None:
        super().__init__("RayCluster", ("spec",))

    def active(self, job: JSON) -> bool:
        """Whether the cluster is ready."""
        return text(job, "status", "state") == _READY

    def pods_ready(self, job: JSON) -> bool:
        """Whether the cluster is ready."""
        return self.active(job)

    def resized(self, job: JSON, counts: Mapping[str, int]) -> JSON:
        """Return the cluster with other numbers of workers."""
        return self._cluster(job).with_counts(counts)

    def cleans_up(self, job: JSON, switches: JobFeatures) -> bool:
        """Whether the cluster is being deleted, and KubeRay has not cleared Redis yet."""
        meta = mapping(job, "metadata")
        waits = kube_names.RAY_CLEANUP_FINALIZER in sequence(meta, "finalizers")
        return switches.ray_redis_cleanup and waits and bool(meta.get("deletionTimestamp"))

    def _cluster_name(self, job: JSON) -> str:
        return text(job, "metadata", "name")


class RayJob(RayAbove):
    """The adapter of RayJob.  A job that runs in a RayCluster that exists is not queued."""

    _gated_when_made = False  # as in Kueue; a job that is unsuspended by hand is stopped

    def __init__(self) -> None:
        super().__init__("RayJob", ("spec", "rayClusterSpec"))

    def is_skipped(self, job: JSON) -> bool:
        """Whether the job selects a RayCluster that exists."""
        return bool(mapping(job, "spec", "clusterSelector"))

    def active(self, job: JSON) -> bool:
        """Whether KubeRay has begun with the job."""
        return _stage(job) not in ("", "Suspended")

    def finished(self, job: JSON) -> Finished | None:
        """Return the result if the job is Complete or Failed; it succeeded if Ray says so."""
        if _stage(job) not in ("Complete", "Failed"):
            return None
        return Finished(text(job, "status", "message"), success=text(job, "status", "jobStatus") == "SUCCEEDED")

    def deadline(self, job: JSON) -> int | None:
        """Return `spec.activeDeadlineSeconds` for the first try and each of `spec.backoffLimit` more: KubeRay counts
        it from the start of a try.
        """
        seconds = run_times.seconds_at(job, "spec", "activeDeadlineSeconds")
        return seconds * (1 + max(0, whole(job, "spec", "backoffLimit") or 0)) if seconds is not None else None

    def pods_ready(self, job: JSON) -> bool:
        """Whether the job's cluster is ready."""
        return text(job, "status", "rayClusterStatus", "state") == _READY

    def on_hold(self, job: JSON) -> str:
        """Return KubeRay's message if it refuses the job."""
        if _stage(job) != "ValidationFailed":
            return ""
        return f"KubeRay refuses the job: {text(job, 'status', 'message') or 'its validation failed'}"

    def parts(self, job: JSON) -> list[TemplatePart]:
        """Return the parts of the cluster, and last the submitter, if it has a pod of its own."""
        if not self._cluster(job).spec:
            return []
        mode = text(job, "spec", "submissionMode") or _K8S_JOB
        parts = self._cluster(job).parts(beside_head=[SUBMITTER_CONTAINER] if mode == _SIDECAR else [])
        if mode == _K8S_JOB:
            own = mapping(job, "spec", "submitterPodTemplate")
            template = own or self._default_submitter(job)
            parts.append(TemplatePart(name=SUBMITTER, path=SUBMITTER_PATH, template=template, count=1))
        return parts

    def with_templates(self, job: JSON, templates: Sequence[JSON]) -> JSON:
        """Return the job with other templates; the submitter's default template is left out."""
        cluster = self._cluster(job)
        own = len(cluster.parts()) if cluster.spec else 0
        new = cluster.with_templates(templates[:own]) if own else dict(job)
        spec = {**mapping(new, "spec")}
        if len(templates) > own:
            spec.pop("submitterPodTemplate", None)
            if not self._is_default_submitter(job, templates[own]):
                spec["submitterPodTemplate"] = templates[own]
        return {**new, "spec": spec}

    def shape_problems(self, job: JSON) -> Iterator[FieldError]:
        """Return also why the job needs another cluster, or would keep it."""
        if self.is_skipped(job):
            yield FieldError("spec.clusterSelector", "cannot be used together with spec.rayClusterSpec; remove one")
            return
        if not self._cluster(job).spec:
            yield FieldError("spec.rayClusterSpec", "is needed to queue the job; or select a cluster that exists")
            return
        if not flag(job, "spec", "shutdownAfterJobFinishes"):
            said = "must be true: otherwise the cluster runs on after the job has ended"
            yield FieldError("spec.shutdownAfterJobFinishes", said, False)
        yield from super().shape_problems(job)

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the defaults of other kinds; nothing for a job that is not queued: KubeRay cannot suspend it."""
        return {} if self.is_skipped(job) else super().defaults(job, around)

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check nothing in a job that is not queued, except that it has no cluster of its own, too."""
        if self.is_skipped(new) and not self._cluster(new).spec:
            return []
        return super().problems(new, old, around)

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return also that a job which names a queue is not queued."""
        found = super().warnings(new, around)
        if self.is_skipped(new) and rules.queue_name(new):
            found.append("spec.clusterSelector: the job runs in a RayCluster that exists, and is not queued itself")
        return found

    def _cluster_name(self, job: JSON) -> str:
        return text(job, "status", "rayClusterName")

    def _default_submitter(self, job: JSON) -> JSON:
        """Return the template that KubeRay uses if the job has none."""
        head = mapping(self._cluster(job).spec, "headGroupSpec", "template", "spec")
        first = next(iter(objects(head, "containers")), {})
        container = {**SUBMITTER_CONTAINER, **{key: first[key] for key in ("image", "imagePullPolicy") if key in first}}
        secrets = {"imagePullSecrets": head["imagePullSecrets"]} if "imagePullSecrets" in head else {}
        return {"spec": {"containers": [container], "restartPolicy": "Never", **secrets}}

    def _is_default_submitter(self, job: JSON, template: JSON) -> bool:
        empty = not labels_of(template) and not mapping(template, "metadata", "annotations")
        return empty and template.get("spec") == self._default_submitter(job)["spec"]


class RayService(RayAbove):
    """The adapter of RayService, which serves until it is deleted."""

    flag = ("spec", "rayClusterConfig", "suspend")

    def __init__(self) -> None:
        super().__init__("RayService", ("spec", "rayClusterConfig"))

    def active(self, job: JSON) -> bool:
        """Whether condition Ready is true."""
        return condition_status(job, "Ready") == "True"

    def pods_ready(self, job: JSON) -> bool:
        """Whether condition Ready is true."""
        return self.active(job)

    def edited(self, job: JSON) -> JSON:
        """Return what the service serves, and how: all but its cluster."""
        return {k: v for k, v in mapping(job, "spec").items() if k not in (self._spec[1], "managedBy")}

    def _cluster_name(self, job: JSON) -> str:
        active, pending = (
            text(job, "status", name, "rayClusterName") for name in ("activeServiceStatus", "pendingServiceStatus")
        )
        return active or pending


def job_template(kind: str, owner: JSON) -> Mapping[str, Any] | None:
    """Return the pod template of the Job that KubeRay makes for an object, which no such Job exceeds; None: it makes
    none.
    """
    if kind == JOB.gvk.kind:
        return next((part.template for part in JOB.parts(owner) if part.path == SUBMITTER_PATH), None)
    return CLEANUP_TEMPLATE if kind == CLUSTER.gvk.kind and CLUSTER.clears_redis(owner) else None


def _stage(job: Mapping[str, Any]) -> str:
    """Return how far KubeRay is with a RayJob; empty: it has not begun."""
    return text(job, "status", "jobDeploymentStatus")


def _is_checked(new: JSON, old: JSON | None, around: JobContext) -> bool:
    """Whether the rules hold for a request: for each new object, and for changes of an object that is or was queued."""
    if old is None or rules.queue_name(new) or around.manage_without_queue:
        return True
    return around.switches.leaving_validated and bool(rules.queue_name(old))


def _gate_problems(parts: Sequence[TemplatePart]) -> Iterator[FieldError]:
    for part in parts:
        gates = objects(part.template, "spec", "schedulingGates")
        if not any(gate.get("name") == names.ELASTIC_JOB_GATE for gate in gates):
            said = f"must contain {names.ELASTIC_JOB_GATE} in an elastic object, so that added pods wait for quota"
            yield FieldError(f"{part.path}.spec.schedulingGates", said)


CLUSTER, JOB, SERVICE = ALL = (RayCluster(), RayJob(), RayService())
"""The adapters of Ray's kinds."""
