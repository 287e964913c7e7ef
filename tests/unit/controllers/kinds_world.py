"""Objects of every custom kind that is held by a flag, and a world with one of them and the reconciler of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kqueue.config.object_path import look, put
from kqueue.controllers.resources import WORKLOADS, resource_of
from kqueue.jobs import kubeflow, ray
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.kind import JobKind
from kqueue.jobs.managed_by import managed_by_path
from kqueue.jobs.others import completed, reads_others
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, workload_for, workload_name_of
from tests.unit.controllers.builders import condition
from tests.unit.controllers.test_job import KEY, Jobs
from tests.unit.jobs import test_appwrapper, test_kubeflow, test_ray, test_spark, test_trainjob
from tests.unit.jobs.builders import JSON, prefixed

ON = JobFeatures()
_KUBEFLOW = tuple(kind.framework for kind in kubeflow.ALL)
_RAY = tuple(kind.framework for kind in ray.ALL)
TRAIN, WRAPPER, SPARK = (
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
)
CUSTOM = (*_KUBEFLOW, TRAIN, *_RAY, WRAPPER, SPARK)
"""The frameworks of all custom kinds that are held by a flag."""
WITHOUT_FIELD = (SPARK,)
"""Kinds that cannot name another controller."""
RAY_FOREVER = ("ray.io/raycluster", "ray.io/rayservice")
"""The frameworks whose objects never finish."""
RUNTIMES: Mapping[Any, JSON] = MappingProxyType({test_trainjob.TORCH: test_trainjob.runtime()})
"""What TrainJobs refer to."""


def make(
    framework: str, labels: Mapping[str, str] | None = None, *, by: str = "", suspend: bool = True, queue: str = "main"
) -> JSON:
    """Return an object of a kind, with further labels of ours; `by`: the controller that it names."""
    kind = BY_FRAMEWORK[framework]
    marks = prefixed(**({"queue_name": queue} if queue else {}), **(labels or {}))
    if isinstance(kind, kubeflow.TrainingJob):
        made = test_kubeflow.make(kind, suspend=suspend, labels=marks)
    elif isinstance(kind, ray.RayObject):
        made = test_ray.make(kind, suspend=suspend, labels=marks)
    elif framework == TRAIN:
        made = test_trainjob.make(suspend=suspend, labels=marks)
        del made["others"]
    elif framework == WRAPPER:
        made = test_appwrapper.make(suspend=suspend, labels=marks)
    else:
        made = test_spark.make(suspend=suspend, labels=marks)
    made["metadata"]["name"] = "sample"
    return dict(put(made, managed_by_path(kind), by)) if by else made


def whole(kind: JobKind, obj: JSON) -> JSON:
    """Return the object with those that it refers to."""
    return completed(obj, RUNTIMES) if reads_others(kind) else obj


class KindWorld(Jobs):
    """A world with the object `sample` of a kind."""

    def __init__(self, framework: str, *, by: str = "", **labels: str) -> None:
        self.kind = BY_FRAMEWORK[framework]
        obj = make(framework, labels, by=by)
        self.resource = resource_of(self.kind)
        self.workload_name = workload_name_of(self.kind, obj, ON)
        super().__init__(obj, kind=self.kind)
        self.writes.complete = lambda job: whole(self.kind, job)

    @property
    def key(self) -> str:
        """The key of its Workload."""
        return f"team/{self.workload_name}"

    @property
    def suspended(self) -> bool:
        """Whether the object is held."""
        return self.kind.is_suspended(self.job)

    def prebuild(self) -> None:
        """A user makes Workload `made`, which describes the object."""
        workload = workload_for(self.kind, whole(self.kind, self.job), priority=Priority(), switches=ON)
        self.workload_name = "made"
        self.client.put(WORKLOADS, {**workload, "metadata": {"name": "made", "namespace": "team", "uid": "made"}})

    def relabel(self, **labels: str | None) -> None:
        """A user changes labels of ours on the object."""
        self.client.change(self.resource, KEY, {"metadata": {"labels": prefixed(**labels)}})

    def admit(self) -> None:
        """As the scheduling loop does."""
        assigned = [
            {"name": p["name"], "count": p["count"], "flavors": {"cpu": "default"}}
            for p in self.found["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "team", "podSetAssignments": assigned}
        conditions = [condition("QuotaReserved"), condition("Admitted")]
        self.client.change(WORKLOADS, self.key, {"status": {"admission": admission, "conditions": conditions}})

    def manager(self) -> Any:
        """The controller that the object names."""
        return look(self.job, managed_by_path(self.kind))

    async def queued(self) -> None:
        await self.rest()
        assert self.client.keys(WORKLOADS) == [self.key]

    async def running(self, **_: Any) -> None:
        await self.queued()
        self.admit()
        await self.rest()
        assert not self.suspended
        self.recorder.events.clear()
