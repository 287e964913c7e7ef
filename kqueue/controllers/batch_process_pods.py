"""Creates pods and the Service of BatchProcesses, and asks the API server whether it takes the pods."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from cachetools import TTLCache

from kqueue.controllers.owner_context import OwnerContext
from kqueue.controllers.pod_writes import PodWrites
from kqueue.controllers.record import ObjectReference
from kqueue.controllers.resources import PODS, SERVICES
from kqueue.errors import AlreadyExistsError, ApiError, InvalidError, NotFoundError
from kqueue.jobs.ancestry import controller_uid
from kqueue.jobs.fields import JSON, mapping, text, whole
from kqueue.jobs.gang.batch_pods import PodPlan, pod_of, service_of
from kqueue.jobs.gang.batch_process import BatchPlan
from kqueue.jobs.gang.batch_workload import queued
from kqueue.runtime.own_writes import OwnWrites

EVENT_POD_CREATED, EVENT_FAILED_CREATE = "PodCreated", "FailedCreate"
_REMEMBERED = 10_000
_SERVICE_CHECK = 600.0
"""Seconds after which the Service is looked for again."""
_EVENT_PODS = 100
"""The most pods that one event reports."""


class PodRefusedError(InvalidError):
    """The API server does not take a pod, and would not take it the next time."""


class BatchPods:
    """The pods and Services that this process has created; the watch brings pods later."""

    def __init__(self, context: OwnerContext, writes: PodWrites) -> None:
        self._client, self._recorder, self._clock = context.client, context.recorder, context.clock
        self._writes, clock = writes, context.clock
        self._switches, self._echo_timeout = context.policy.switches, context.policy.echo_timeout
        self._made: dict[str, OwnWrites[str, bool]] = {}
        """By UID of the BatchProcess: names of created pods that the watch has not brought."""
        self._services: TTLCache[str, bool] = TTLCache(_REMEMBERED, _SERVICE_CHECK, clock.monotonic)
        """By UID of the BatchProcess: whether the Service is its own."""
        self._taken: TTLCache[tuple[str, int], str] = TTLCache(_REMEMBERED, _SERVICE_CHECK, clock.monotonic)
        """By UID and generation: the server's words about the pods; empty: it takes them."""

    def pending(self, uid: str) -> frozenset[str]:
        """Return the names of pods of a BatchProcess that were created and that the watch has not brought."""
        return frozenset(self._made.get(uid, ()))

    def seen(self, uid: str, name: str) -> None:
        """Follow the watch event of a pod."""
        made = self._made.get(uid)
        if made is not None:
            made.forget(name)
            if not made:
                del self._made[uid]

    def service_of(self, obj: JSON) -> bool | None:
        """Return whether the Service of the name is the object's; None: it was not looked for."""
        return self._services.get(text(obj, "metadata", "uid"))

    async def refusal(self, obj: JSON, plan: BatchPlan, *, queue: str) -> str:
        """Return the API server's words about the form of the pods; empty: it takes them.

        One pod of each process type is sent with `dryRun`, once for each generation of the object.
        """
        key = text(obj, "metadata", "uid"), whole(obj, "metadata", "generation") or 0
        if key not in self._taken:
            self._taken[key] = await self._ask(obj, plan, queue)
        return self._taken[key]

    async def _ask(self, obj: JSON, plan: BatchPlan, queue: str) -> str:
        for role in plan.roles:
            if not role.replicas:
                continue
            pod = self._pod(obj, plan, PodPlan(role=role, index=0), queue=queue)
            try:
                await self._client.create(PODS, pod, dry_run=True)
            except InvalidError as e:
                return f"the API server does not take the pods of process {role.name}: {e}"
            except AlreadyExistsError:
                continue
            except ApiError as e:
                if e.status != 403:
                    raise  # a quota or a policy may refuse the pod now and take it later
        return ""

    def _pod(self, obj: JSON, plan: BatchPlan, wanted: PodPlan, *, queue: str) -> JSON:
        return queued(pod_of(obj, plan, wanted, queue=queue), self._switches)

    async def create(self, obj: JSON, plan: BatchPlan, wanted: Sequence[PodPlan], *, queue: str) -> None:
        """Create pods, some at a time, and report them.

        A pod that exists already and belongs to the object counts as created.

        Raises:
            PodRefusedError: the API server will never take one of the pods.
            ApiError: a creation failed, and may succeed later.
        """
        made: list[PodPlan] = []

        async def one(plan_of_pod: PodPlan) -> None:
            pod = self._pod(obj, plan, plan_of_pod, queue=queue)
            if await self._create_one(obj, pod):
                made.append(plan_of_pod)

        try:
            await self._writes.each(wanted, one)
        finally:
            self._report(obj, made)

    async def _create_one(self, obj: JSON, pod: JSON) -> bool:
        """Create a pod; return whether it did not exist before."""
        uid, name = text(obj, "metadata", "uid"), text(pod, "metadata", "name")
        try:
            await self._client.create(PODS, pod)
        except AlreadyExistsError:
            if not await self._is_ours(uid, pod):
                self.report_failure(obj, f"pod {name} exists and belongs to another owner; delete it")
                raise
            self._remember(uid, name)
            return False
        except InvalidError as e:
            raise PodRefusedError(f"pod {name}: {e}", status=e.status) from e
        except ApiError as e:
            self.report_failure(obj, f"pod {name} could not be created: {e}")
            raise
        self._remember(uid, name)
        return True

    def _remember(self, uid: str, name: str) -> None:
        made = self._made.get(uid)
        if made is None:
            made = self._made[uid] = OwnWrites(self._clock, self._echo_timeout)
        made.remember(name, True)

    async def _is_ours(self, uid: str, pod: JSON) -> bool:
        metadata = mapping(pod, "metadata")
        try:
            found = await self._client.get_json(PODS, text(metadata, "name"), text(metadata, "namespace"))
        except NotFoundError:
            return True  # it has gone since; the next look creates it
        return controller_uid(found) == uid

    def _report(self, obj: JSON, made: Sequence[PodPlan]) -> None:
        by_process = groupby(sorted(made, key=lambda pod: (pod.role.index, pod.index)), key=lambda pod: pod.role.name)
        for process, pods in by_process:
            left = len(list(pods))
            while left > 0:
                message = f"made {min(left, _EVENT_PODS)} pods of process {process}"
                self._recorder.record(reference(obj), reason=EVENT_POD_CREATED, message=message)
                left -= _EVENT_PODS

    def report_failure(self, obj: JSON, message: str) -> None:
        """Record why something of the object could not be created."""
        self._recorder.record(reference(obj), reason=EVENT_FAILED_CREATE, message=message, warning=True, once=True)

    async def ensure_service(self, obj: JSON, *, expected: bool) -> None:
        """Create the headless Service, unless a Service of the name is known.

        `expected`: the Service probably exists, so it is read first.  A new leader then writes nothing.

        Raises:
            ApiError: the creation failed, and may succeed later.
        """
        uid = text(obj, "metadata", "uid")
        if uid in self._services:
            return
        found = await self._service(obj) if expected else None
        if found is None:
            try:
                found = await self._client.create(SERVICES, service_of(obj))
            except AlreadyExistsError:
                found = await self._service(obj)
            except ApiError as e:
                self.report_failure(obj, f"the Service could not be created: {e}")
                raise
        if found is not None:  # otherwise it has gone since, and the next look creates it
            self._services[uid] = controller_uid(found) == uid

    async def _service(self, obj: JSON) -> JSON | None:
        """Read the Service of the name; None: there is none."""
        metadata = mapping(obj, "metadata")
        try:
            return await self._client.get_json(SERVICES, text(metadata, "name"), text(metadata, "namespace"))
        except NotFoundError:
            return None


def reference(obj: JSON) -> ObjectReference:
    """Return the reference of a BatchProcess for events."""
    metadata = mapping(obj, "metadata")
    name, namespace, uid = (text(metadata, key) for key in ("name", "namespace", "uid"))
    return ObjectReference(text(obj, "apiVersion"), text(obj, "kind"), name, namespace, uid)
