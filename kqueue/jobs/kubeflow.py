"""The adapters of Kubeflow's training kinds (kubeflow.org/v1) and of MPIJob (v2beta1): one pod set per replica type.

All of them have a map of replica types, and are suspended by `spec.runPolicy.suspend`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.api.bounds import INT32_MAX
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import pod_set_groups, rules, several, topology_request
from kqueue.jobs.fields import JSON, annotations_of, condition_status, flag, mapping, objects, text, whole
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext, PodSetInfo, Refused, StopStep
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.jobs.pod_set_groups import GroupMember
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import as_pod_set
from kqueue.kube import names as kube_names

_LAUNCHER, _WORKER = "Launcher", "Worker"


@dataclass(frozen=True, slots=True)
class _Replicas:
    """The replicas of one type."""

    type: str
    path: str
    """Path of the pod template."""
    spec: Mapping[str, Any]

    @property
    def template(self) -> Mapping[str, Any]:
        return mapping(self.spec, "template")

    @property
    def count(self) -> int:
        """The number of pods; 1 if it is not written."""
        number = whole(self.spec, "replicas")
        return 1 if number is None else number


class TrainingJob:
    """The adapter of one kind.

    Args:
        kind: its name in Kubernetes' API.
        specs: the field of `spec` with the replica types.
        types: the replica types, in the order of the pod sets.
        version: of the API group `kubeflow.org`.
        controller: the value of `spec.runPolicy.managedBy` for Kubeflow's own controller.
        prebuilt: whether a job may use a prebuilt Workload.
    """

    defaults_on_update = False
    held_by = "spec.runPolicy.suspend"
    _labels_checked_on_update = False
    """Whether the rules for labels and annotations of a new job hold for its updates, too.  Source: Kueue."""

    def __init__(
        self,
        kind: str,
        specs: str,
        types: Sequence[str],
        *,
        version: str = "v1",
        controller: str = kube_names.TRAINING_CONTROLLER,
        prebuilt: bool = True,
    ) -> None:
        name = kind.lower()
        self.framework, self.resource = f"kubeflow.org/{name}", f"{name}s"
        self.gvk = GroupVersionKind("kubeflow.org", version, kind)
        self.own_controller = controller
        self._specs, self._types, self._prebuilt = specs, tuple(types), prebuilt

    def is_suspended(self, job: JSON) -> bool:
        """Whether `spec.runPolicy.suspend` is true."""
        return flag(job, "spec", "runPolicy", "suspend")

    def holds_back(self, job: JSON) -> bool:
        """Whether `spec.runPolicy.suspend` is true."""
        return self.is_suspended(job)

    def suspend(self, job: JSON) -> Patch:
        """Return a patch of only `spec.runPolicy.suspend`."""
        return {} if self.is_suspended(job) else {"spec": {"runPolicy": {"suspend": True}}}

    def active(self, job: JSON) -> bool:
        """Whether any replica type has active pods."""
        statuses = mapping(job, "status", "replicaStatuses")
        return any(whole(mapping(status), "active") for status in statuses.values())

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the label with the name of the job, which the kind's controller puts on all pods."""
        return {kube_names.TRAINING_JOB_NAME_LABEL: text(job, "metadata", "name")}

    def managed_by(self, job: JSON) -> str:
        """Return `spec.runPolicy.managedBy`, or the kind's own controller."""
        return text(job, "spec", "runPolicy", "managedBy") or self.own_controller

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return one pod set per replica type that the job has, in the order of the kind."""
        mistakes = [*self._shape_problems(job), *topology_request.job_problems(job, switches)]
        for replicas in self._replicas(job):
            mistakes += topology_request.problems(
                replicas.template, job, path=replicas.path, count=None, switches=switches
            )
        if mistakes:
            namespace, name = text(job, "metadata", "namespace"), text(job, "metadata", "name")
            raise InvalidObjectError(f"{self.gvk.kind} {namespace}/{name}", mistakes)
        return tuple(_pod_set(replicas, job, switches) for replicas in self._replicas(job))

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return the patch that unsuspends, with each info merged into the template of its replica type."""
        templates = several.started(self.gvk.kind, self._templates(job), infos)
        if isinstance(templates, Refused):
            return templates
        return merge_patch(job, self._with_templates(job, templates, suspend=False))

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return one step that suspends and restores.

        Templates stay unchanged if there are not as many `infos` as replica types.
        """
        templates = several.stopped(self._templates(job), infos)
        patch = merge_patch(job, self._with_templates(job, templates, suspend=True))
        return (StopStep(patch=patch, suspends=not self.is_suspended(job)),) if patch else ()

    def finished(self, job: JSON) -> Finished | None:
        """Return the result if condition Succeeded or Failed is true; else None."""
        for condition in objects(job, "status", "conditions"):
            if condition.get("type") in ("Succeeded", "Failed") and condition.get("status") == "True":
                return Finished(text(condition, "message"), success=condition["type"] == "Succeeded")
        return None

    def pods_ready(self, job: JSON) -> bool:
        """Whether condition Running is true."""
        return condition_status(job, "Running") == "True"

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return nothing: quota is released at the end only."""
        return {}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch for queue and class named `default`, and the suspension of managed jobs."""
        if mapping(job, "metadata").get("deletionTimestamp"):
            return {}
        new = apply_merge_patch(job, rules.default_labels(job, around))
        return merge_patch(job, apply_merge_patch(new, self.suspend(new) if rules.managed(new, around) else {}))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules, whether a Workload can be made, and the topology request of each replica type.

        An object that is being deleted has no problems, so that its finalizers can be removed.
        """
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        found: list[FieldError] = []
        if old is None or self._labels_checked_on_update:
            found += rules.create_problems(new, around, prebuilt=self._prebuilt, elastic=False)
        if old is not None:
            found += rules.update_problems(
                new, old, around, new_suspended=self.is_suspended(new), old_suspended=self.is_suspended(old)
            )
        if rules.managed(new, around):
            found += self._shape_problems(new)
        members = [GroupMember(one.path, one.template, one.count) for one in self._replicas(new)]
        return [*found, *pod_set_groups.topology_problems(members, new, around.switches, counted=old is None)]

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about topology annotations without effect."""
        if not around.switches.topology:
            return []
        found = [w for one in self._replicas(new) for w in topology_request.warnings(one.template, new, path=one.path)]
        return list(dict.fromkeys(found))

    def _replicas(self, job: Mapping[str, Any]) -> Iterator[_Replicas]:
        specs = mapping(job, "spec", self._specs)
        for name in self._types:
            if isinstance(specs.get(name), Mapping):
                yield _Replicas(name, f"spec.{self._specs}.{name}.template", specs[name])

    def _templates(self, job: Mapping[str, Any]) -> list[several.Placed]:
        return [(replicas.path, replicas.template) for replicas in self._replicas(job)]

    def _with_templates(self, job: JSON, templates: Sequence[JSON], *, suspend: bool) -> JSON:
        spec = mapping(job, "spec")
        specs = dict(mapping(spec, self._specs))
        for replicas, template in zip(self._replicas(job), templates, strict=True):
            if template or replicas.template:
                specs[replicas.type] = {**replicas.spec, "template": template}
        policy = {**mapping(spec, "runPolicy"), "suspend": suspend}
        return {**job, "spec": {**spec, "runPolicy": policy, self._specs: specs}}

    def _shape_problems(self, job: Mapping[str, Any]) -> Iterator[FieldError]:
        """Check for replica types that cannot become pod sets."""
        found, at = list(self._replicas(job)), f"spec.{self._specs}"
        if not found:
            yield FieldError(at, f"must have one of {', '.join(self._types)} to be queued")
        for name in mapping(job, "spec", self._specs):
            if name not in self._types:
                yield FieldError(
                    f"{at}.{name}", f"kqueue does not count pods of this type; use {', '.join(self._types)}"
                )
        for replicas in found:
            if not mapping(replicas.template, "spec"):
                yield FieldError(replicas.path, "must be a pod template with a spec")
            if not 0 <= replicas.count <= INT32_MAX:
                number = f"{at}.{replicas.type}.replicas"
                yield FieldError(number, f"must be 0 to {INT32_MAX}", replicas.count)


class MPIJob(TrainingJob):
    """The adapter of MPIJob, whose launcher is a batch Job."""

    _labels_checked_on_update = True

    def __init__(self) -> None:
        super().__init__(
            "MPIJob",
            "mpiReplicaSpecs",
            (_LAUNCHER, _WORKER),
            version="v2beta1",
            controller=kube_names.MPI_CONTROLLER,
        )

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the labels with the names of the job and of its operator."""
        return {**super().pod_selector(job), kube_names.TRAINING_OPERATOR_LABEL: kube_names.MPI_OPERATOR}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the defaults of training jobs; beside a launcher that is a worker, workers get ranks from 1 on."""
        patch = super().defaults(job, around)
        if not around.switches.topology or mapping(job, "metadata").get("deletionTimestamp"):
            return patch
        new = apply_merge_patch(job, patch)
        return merge_patch(job, apply_merge_patch(new, self._offset(new)))

    def _offset(self, job: JSON) -> Patch:
        """Return the annotation that lets workers begin with rank 1: a launcher that is a worker has rank 0."""
        launcher, worker = (mapping(job, "spec", self._specs, name) for name in (_LAUNCHER, _WORKER))
        if not (flag(job, "spec", "runLauncherAsWorker") and launcher and worker):
            return {}
        if names.PODSET_GROUP_NAME_ANNOTATION in annotations_of(mapping(launcher, "template")):
            return {}
        offset = {"metadata": {"annotations": {names.POD_INDEX_OFFSET_ANNOTATION: "1"}}}
        return {"spec": {self._specs: {_WORKER: {"template": offset}}}}


def _pod_set(replicas: _Replicas, job: JSON, switches: JobFeatures) -> JSON:
    template = replicas.template
    pod_set: JSON = {"name": replicas.type.lower(), "count": replicas.count, "template": as_pod_set(template)}
    index = topology_request.IndexLabels(pod=kube_names.TRAINING_REPLICA_INDEX_LABEL)
    request = topology_request.topology_request(template, job, index=index, switches=switches)
    if request is not None:
        pod_set["topologyRequest"] = request
    return pod_set


PYTORCH = TrainingJob("PyTorchJob", "pytorchReplicaSpecs", ("Master", _WORKER))
TENSORFLOW = TrainingJob("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", _WORKER, "Evaluator"))
XGBOOST = TrainingJob("XGBoostJob", "xgbReplicaSpecs", ("Master", _WORKER))
PADDLE = TrainingJob("PaddleJob", "paddleReplicaSpecs", ("Master", _WORKER))
JAX = TrainingJob("JAXJob", "jaxReplicaSpecs", (_WORKER,), prebuilt=False)
MPI = MPIJob()
ALL = (PYTORCH, TENSORFLOW, XGBOOST, PADDLE, JAX, MPI)
"""All training kinds."""
