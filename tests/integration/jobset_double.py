"""A double of the JobSet controller for the real control plane, with the logic of the sandbox's controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp

from kqueue.sandbox.jobset_controller import carry_out
from kqueue.sandbox.jobset_plan import child_of, plan
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.doubles import playing

Object = dict[str, Any]
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"
JOBS = "/apis/batch/v1"
LOOK_SECONDS = 0.1


@asynccontextmanager
async def jobsets_run(plane: ControlPlane | SandboxPlane) -> AsyncIterator[None]:
    """JobSets have a controller while the block runs."""
    if isinstance(plane, SandboxPlane):
        yield
        return
    async with playing(_Double(plane.cluster).run()):
        yield


class _Double:
    """Looks at all JobSets again and again.  What meets a newer object is done by the next look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._session: aiohttp.ClientSession | None = None

    async def run(self) -> None:
        async with self._cluster.access.session() as self._session:
            while True:
                await self._look()
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        job_sets = (await self._ask("GET", f"{JOBSETS}/jobsets"))["items"]
        jobs = (await self._ask("GET", f"{JOBS}/jobs"))["items"] if job_sets else []
        for job_set in job_sets:
            children = [job for job in jobs if child_of(job) == job_set["metadata"]["uid"]]
            try:
                await carry_out(plan(job_set, children, datetime.now(UTC)), job_set, self)
            except RequestError as error:
                if error.status not in (403, 404, 409):  # 403: its namespace ends
                    raise

    async def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> Object:
        return await self._cluster.access.request(method, path, body, session=self._session, **more)

    async def delete_job(self, job: Object) -> None:
        await self._ask("DELETE", f"{_job(job)}?propagationPolicy=Foreground")

    async def replace_job(self, job: Object, *, subresource: str = "") -> None:
        whole = {"apiVersion": "batch/v1", "kind": "Job", **job}  # a list leaves them out
        await self._ask("PUT", f"{_job(job)}/{subresource}" if subresource else _job(job), whole)

    async def create_job(self, job: Object) -> None:
        await self._ask("POST", _job(job).rpartition("/")[0], job)

    async def write_status(self, job_set: Object, status: Object) -> None:
        lock = {"resourceVersion": job_set["metadata"]["resourceVersion"]}
        await self._ask(
            "PATCH", f"{_job_set(job_set)}/status", {"metadata": lock, "status": status}, content_type=MERGE_PATCH
        )

    async def delete_job_set(self, job_set: Object) -> None:
        await self._ask("DELETE", f"{_job_set(job_set)}?propagationPolicy=Foreground")


def _job(job: Object) -> str:
    return f"{JOBS}/namespaces/{job['metadata']['namespace']}/jobs/{job['metadata']['name']}"


def _job_set(job_set: Object) -> str:
    return f"{JOBSETS}/namespaces/{job_set['metadata']['namespace']}/jobsets/{job_set['metadata']['name']}"
