"""The simulated JobSet controller: creates the child Jobs of JobSets, and writes the JobSets' status.

`jobset_plan` decides; any implementation of the writes in `JobSetWrites` can carry out the plan.
"""

from __future__ import annotations

from typing import Protocol

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, NotFoundError
from kqueue.sandbox.api import JOB_SETS, JOBS, Api, Object
from kqueue.sandbox.jobset_plan import JobSetPlan, child_of, plan
from kqueue.sandbox.json_object import key_of, split_key, uid_of
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.owner_loop import OwnerLoop


class JobSetWrites(Protocol):
    """The writes of a plan; deleting a missing object, and creating an existing one, is no error."""

    async def delete_job(self, job: Object) -> None:
        """Delete a Job in the foreground: its pods are deleted first."""
        ...

    async def replace_job(self, job: Object, *, subresource: str = "") -> None:
        """Write a Job, or its status, if its resourceVersion is the present one."""
        ...

    async def create_job(self, job: Object) -> None:
        """Create a Job."""
        ...

    async def write_status(self, job_set: Object, status: Object) -> None:
        """Merge fields into the JobSet's status."""
        ...

    async def delete_job_set(self, job_set: Object) -> None:
        """Delete a JobSet."""
        ...


async def carry_out(found: JobSetPlan, job_set: Object, writes: JobSetWrites) -> None:
    """Make the writes of a plan, the status last, because it describes the other writes."""
    for job in found.delete:
        await writes.delete_job(job)
    for job in found.unstart:
        await writes.replace_job(job, subresource="status")
    for job in found.replace:
        await writes.replace_job(job)
    for job in found.create:
        await writes.create_job(job)
    if found.status is not None:
        await writes.write_status(job_set, found.status)
    if found.expired:
        await writes.delete_job_set(job_set)


class JobSetController:
    """Runs JobSets.  Child Jobs are found by the UID of the JobSet that controls them."""

    def __init__(self, api: Api, *, job_sets: Mirror, jobs: Mirror, clock: Clock) -> None:
        self._clock, self._writes = clock, _ThroughApi(api, job_sets, jobs)
        self._job_sets = OwnerLoop(
            "jobset", self._look, api=api, owners=job_sets, owned=jobs, owner_of=child_of, clock=clock
        )
        self.loop = self._job_sets.loop
        self.run = self._job_sets.run

    async def _look(self, job_set: Object) -> float | None:
        found = plan(job_set, self._job_sets.owned_by(job_set), self._clock.now())
        await carry_out(found, job_set, self._writes)
        return found.look_again


class _ThroughApi:
    """Writes in process; the mirrors get the results at once."""

    def __init__(self, api: Api, job_sets: Mirror, jobs: Mirror) -> None:
        self._api, self._job_sets, self._jobs = api, job_sets, jobs

    async def delete_job(self, job: Object) -> None:
        namespace, name = split_key(key_of(job))
        try:
            await self._api.delete(JOBS, name, namespace=namespace, propagation="Foreground")
            self._jobs.remember(self._api.get(JOBS, name, namespace=namespace))
        except NotFoundError:
            self._jobs.forget(job)

    async def replace_job(self, job: Object, *, subresource: str = "") -> None:
        try:
            self._jobs.remember(await self._api.update(JOBS, job, subresource=subresource or None))
        except NotFoundError:
            self._jobs.forget(job)

    async def create_job(self, job: Object) -> None:
        namespace, name = split_key(key_of(job))
        try:
            self._jobs.remember(await self._api.create(JOBS, job, namespace=namespace))
        except AlreadyExistsError:
            self._jobs.remember(self._api.get(JOBS, name, namespace=namespace))

    async def write_status(self, job_set: Object, status: Object) -> None:
        namespace, name = split_key(key_of(job_set))
        lock = {"resourceVersion": job_set["metadata"]["resourceVersion"], "uid": uid_of(job_set)}
        patch = {"metadata": lock, "status": status}
        self._job_sets.remember(await self._api.patch(JOB_SETS, name, patch, namespace=namespace, subresource="status"))

    async def delete_job_set(self, job_set: Object) -> None:
        namespace, name = split_key(key_of(job_set))
        await self._api.delete(JOB_SETS, name, namespace=namespace, propagation="Foreground")
