"""The adapters of Kubeflow's training kinds (kubeflow.org/v1) and of MPIJob (v2beta1): one pod set per replica type.

All of them have a map of replica types, and are suspended by `spec.runPolicy.suspend`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import run_times
from kqueue.jobs.fields import JSON, annotations_of, condition_status, flag, mapping, objects, text, whole
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.jobs.templated import TemplatePart, TemplatesInPlace
from kqueue.jobs.topology_request import IndexLabels
from kqueue.kube import names as kube_names

_LAUNCHER, _WORKER = "Launcher", "Worker"


class TrainingJob(TemplatesInPlace):
    """The adapter of one kind.

    Args:
        kind: its name in Kubernetes' API.
        specs: the field of `spec` with the replica types.
        types: the replica types, in the order of the pod sets.
        version: of the API group `kubeflow.org`.
        controller: the value of `spec.runPolicy.managedBy` for Kubeflow's own controller.
    """

    flag = ("spec", "runPolicy", "suspend")
    _labels_checked_on_update = False

    def __init__(
        self,
        kind: str,
        specs: str,
        types: Sequence[str],
        *,
        version: str = "v1",
        controller: str = kube_names.TRAINING_CONTROLLER,
    ) -> None:
        name = kind.lower()
        self.framework, self.resource = f"kubeflow.org/{name}", f"{name}s"
        self.gvk = GroupVersionKind("kubeflow.org", version, kind)
        self.own_controller = controller
        self._specs, self._types = specs, tuple(types)

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

    def finished(self, job: JSON) -> Finished | None:
        """Return the result if condition Succeeded or Failed is true; else None."""
        for condition in objects(job, "status", "conditions"):
            if condition.get("type") in ("Succeeded", "Failed") and condition.get("status") == "True":
                return Finished(text(condition, "message"), success=condition["type"] == "Succeeded")
        return None

    def deadline(self, job: JSON) -> int | None:
        """Return `spec.runPolicy.activeDeadlineSeconds`."""
        return run_times.seconds_at(job, "spec", "runPolicy", "activeDeadlineSeconds")

    def pods_ready(self, job: JSON) -> bool:
        """Whether condition Running is true."""
        return condition_status(job, "Running") == "True"

    def parts(self, job: JSON) -> list[TemplatePart]:
        """Return the templates of the replica types that the job has, in the order of the kind."""
        specs, at = mapping(job, "spec", self._specs), f"spec.{self._specs}"
        return [
            TemplatePart(
                name=name.lower(),
                path=f"{at}.{name}.template",
                template=mapping(specs[name], "template"),
                count=1 if (number := whole(specs[name], "replicas")) is None else number,
                count_path=f"{at}.{name}.replicas",
                index=IndexLabels(pod=kube_names.TRAINING_REPLICA_INDEX_LABEL),
            )
            for name in self._types_of(specs)
        ]

    def with_templates(self, job: JSON, templates: Sequence[JSON]) -> JSON:
        """Return the job with these templates in its replica types."""
        specs = dict(mapping(job, "spec", self._specs))
        for name, template in zip(self._types_of(specs), templates, strict=True):
            if template or mapping(specs[name], "template"):
                specs[name] = {**specs[name], "template": template}
        return {**job, "spec": {**mapping(job, "spec"), self._specs: specs}}

    def _types_of(self, specs: Mapping[str, Any]) -> list[str]:
        return [name for name in self._types if isinstance(specs.get(name), Mapping)]

    def shape_problems(self, job: JSON) -> Iterator[FieldError]:
        """Yield replica types that cannot become pod sets."""
        at = f"spec.{self._specs}"
        if not self.parts(job):
            yield FieldError(at, f"must have one of {', '.join(self._types)} to be queued")
        for name in mapping(job, "spec", self._specs):
            if name not in self._types:
                yield FieldError(
                    f"{at}.{name}", f"kqueue does not count pods of this type; use {', '.join(self._types)}"
                )
        yield from super().shape_problems(job)


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


PYTORCH = TrainingJob("PyTorchJob", "pytorchReplicaSpecs", ("Master", _WORKER))
TENSORFLOW = TrainingJob("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", _WORKER, "Evaluator"))
XGBOOST = TrainingJob("XGBoostJob", "xgbReplicaSpecs", ("Master", _WORKER))
PADDLE = TrainingJob("PaddleJob", "paddleReplicaSpecs", ("Master", _WORKER))
JAX = TrainingJob("JAXJob", "jaxReplicaSpecs", (_WORKER,))
MPI = MPIJob()
ALL = (PYTORCH, TENSORFLOW, XGBOOST, PADDLE, JAX, MPI)
"""All training kinds."""
