"""A small world with BatchProcesses: the world of pods, and their reconciler."""

from __future__ import annotations

from typing import Any

from kqueue.controllers.batch_process import BatchProcessReconciler
from kqueue.controllers.batch_process_pods import BatchPods
from kqueue.controllers.batch_process_status import BatchStatusWriter
from kqueue.controllers.namespace_queue import NamespaceQueue
from kqueue.controllers.raw import status_writer
from kqueue.controllers.resources import BATCH_PROCESSES, PODS, SERVICES
from kqueue.jobs.fields import annotations_of, labels_of
from kqueue.jobs.gang.batch_process import FRAMEWORK
from kqueue.jobs.gang.batch_workload import workload_name
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.client import Json
from kqueue.runtime.controller import Result
from tests.unit.controllers.builders import JSON
from tests.unit.controllers.pod_world import Pods
from tests.unit.jobs.gang.batch_builders import batch as make_batch

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
KEY = "team/distill"
GANG = gang_key(FRAMEWORK, "team", "distill")
BP = "bp"
"""The key of a reconcile of the BatchProcess in `Batches.rest`."""


def batch(*processes: JSON, **more: Any) -> JSON:
    """`batch` of the pure tests, in namespace `team`, born when the clock starts."""
    obj = make_batch(*processes, **more)
    metadata = {**obj["metadata"], "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**obj, "metadata": metadata}


class Batches(Pods):
    """The world of pods with the reconciler of BatchProcesses; it has the ones that are given."""

    def __init__(self, *objects: JSON, default_queue: tuple[str, bool] = ("", False)) -> None:
        super().__init__(switches=ON)
        store = self.objects.store(BATCH_PROCESSES)
        assert store is not None
        context = self.context()
        self.made = BatchPods(context, self.writes)
        self.batches = BatchProcessReconciler(
            context,
            writes=self.writes,
            pods=self.made,
            statuses=BatchStatusWriter(
                status_writer(self.client, BATCH_PROCESSES, store), self.recorder, self.clock, window=1.0
            ),
            default_queue=lambda _namespace: NamespaceQueue(*default_queue),
            objects=self.objects,
        )
        self.pods.subscribe(lambda old, new: self.made.seen("", "") if new is None else self._seen(new.obj))
        for obj in objects:
            self.client.put(BATCH_PROCESSES, obj)
        self.sync()

    def _seen(self, pod: JSON) -> None:
        owners = pod["metadata"].get("ownerReferences") or [{"uid": ""}]
        self.made.seen(owners[0]["uid"], pod["metadata"]["name"])

    async def reconcile(self, key: str) -> Result:
        """As in `Pods`; the BatchProcess's for the key `bp`."""
        if key == BP:
            return await self.batches.reconcile(KEY)
        return await super().reconcile(key)

    async def settle_all(self) -> None:
        """All reconcilers have nothing left to do; a second passes for statuses."""
        for _ in range(8):
            before = len(self.client.writes())
            for key in (BP, GANG, *[f"team/{name}" for name in self.names()]):
                if key in (BP, GANG) or key.partition("/")[2] in self.names():
                    await self.rest(key)
            await self.clock.advance(1.1)
            if len(self.client.writes()) == before:
                return
        raise AssertionError("the world does not come to rest")

    @property
    def obj(self) -> Json:
        """The BatchProcess as the server has it."""
        found = self.client.object(BATCH_PROCESSES, KEY)
        assert found is not None, "the BatchProcess is gone"
        return found

    @property
    def told_status(self) -> JSON:
        found: JSON = self.obj.get("status", {})
        return found

    def condition_of(self, kind: str) -> tuple[str, str] | None:
        """Status and reason of a condition of the BatchProcess."""
        conditions = self.told_status.get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == kind), None)

    @property
    def load(self) -> str:
        """The name of the Workload."""
        return workload_name(self.obj, ON)

    def places(self) -> list[str]:
        """The pods as `teacher-0`, with the attempt where it is not the first."""
        return sorted(self._place(name) for name in self.names())

    def _place(self, name: str) -> str:
        labels, annotations = labels_of(self.pod(name)), annotations_of(self.pod(name))
        attempt = annotations["kqueue.dev/attempt"]
        place = f"{labels['kqueue.dev/process']}-{labels['kqueue.dev/process-index']}"
        return place if attempt == "0" else f"{place}/{attempt}"

    def alive(self) -> list[str]:
        """Places of pods that have not failed."""
        return [p for p in self.places() if self.pod(self.name_of(p)).get("status", {}).get("phase") != "Failed"]

    def name_of(self, place: str) -> str:
        """The name of the pod of a place."""
        return next(name for name in self.names() if self._place(name) == place)

    def end_pods(self, phase: str, *places: str) -> None:
        """As a kubelet does with these pods, of all without `places`."""
        self.runs(*[self.name_of(place) for place in places or self.places()], phase=phase)

    def service(self) -> Json | None:
        return self.client.object(SERVICES, KEY)

    def change(self, **spec: Any) -> None:
        """A user changes the spec."""
        self.client.change(BATCH_PROCESSES, KEY, {"spec": spec})
        self.sync()

    def pods_held(self) -> list[str]:
        """Places of pods that the admission gate holds."""
        return sorted(self._place(name) for name in self.names() if self.gated(name))

    def dry_runs(self) -> int:
        return sum(call.verb == "dry-run" and call.resource == PODS for call in self.client.calls)
