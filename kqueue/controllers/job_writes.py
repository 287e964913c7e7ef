"""Writes to jobs of one kind, with the writes that the watch has not reported yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from kqueue.clock import Clock
from kqueue.controllers.record import ObjectReference, Recorder
from kqueue.controllers.short_stop import STOP_SECONDS, ShortStop
from kqueue.errors import ConflictError, NotFoundError
from kqueue.jobs import rules
from kqueue.jobs.kind import JobKind, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.runtime.client import Client, Propagation
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import split_key

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]
_STEPS_MAX = 4
"""The largest number of writes of one start or stop."""


def job_key(job: Mapping[str, Any]) -> str:
    """Return the key of a job: `namespace/name`."""
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"


class JobWrites:
    """Sends merge patches to jobs, each with the resource version on which it was decided."""

    def __init__(
        self,
        *,
        kind: JobKind,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        short_stop: ShortStop | None = None,
        echo_timeout: float = 60.0,
        complete: Callable[[JSON], JSON] = lambda job: job,
    ) -> None:
        """Take the client and the options; `short_stop` ends pods that run without quota; None: they are charged to no
        queue.  `complete` adds the other objects that the kind reads to a job (`kqueue/jobs/others.py`).

        `echo_timeout` is the number of seconds after which the writer no longer waits for the watch event of a write.
        """
        self._kind, self._client, self._recorder, self.complete = kind, client, recorder, complete
        self._short_stop = short_stop or ShortStop(client)
        self._resource = ResourceType(kind.gvk.group, kind.gvk.version, kind.resource, kind.gvk.kind)
        self._written: OwnWrites[str, int] = OwnWrites(clock, echo_timeout, version_of=int)
        """By job: the resource version of the newest write of this process, until the watch has reported it."""

    def is_old(self, job: JSON) -> bool:
        """Whether the watch has not reported the last write of this process yet: a decision on an older version would
        repeat the write.
        """
        return self._written.is_behind(job_key(job), int(job["metadata"]["resourceVersion"]))

    async def fetch(self, key: str) -> JSON | None:
        """Read the job from the API server; None: it does not exist."""
        namespace, name = split_key(key)
        try:
            return self.complete(await self._client.get_json(self._resource, name, namespace))
        except NotFoundError:
            return None

    async def patch(self, job: JSON, patch: Mapping[str, Any], *, subresource: str = "") -> JSON:
        """Send one merge patch; return the written job."""
        metadata = {**patch.get("metadata", {}), "resourceVersion": job["metadata"]["resourceVersion"]}
        written = await self._client.patch(
            self._resource,
            job["metadata"]["name"],
            {**patch, "metadata": metadata},
            job["metadata"]["namespace"],
            subresource=subresource or None,
        )
        self._written.remember(job_key(job), int(written["metadata"]["resourceVersion"]))
        return self.complete(written)

    async def delete(self, job: JSON) -> None:
        """Delete the job and, in the background, all objects that it owns; no effect if it is gone or replaced."""
        meta = job["metadata"]
        try:
            await self._client.delete(
                self._resource, meta["name"], meta["namespace"], uid=meta["uid"], propagation=Propagation.BACKGROUND
            )
        except (NotFoundError, ConflictError):
            return

    async def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Refused | None:
        """Make the writes that start the job, the last of which resumes it; return why the kind refuses to start it."""
        for _ in range(_STEPS_MAX):
            patch = self._kind.start(job, infos)
            if isinstance(patch, Refused):
                return patch
            last = not self._kind.is_suspended(apply_merge_patch(job, patch))
            job = await self.patch(job, patch)
            if last:
                break
        return None

    async def stop(self, job: JSON, infos: Sequence[PodSetInfo], why: str, message: str) -> JSON:
        """Take all remaining steps of a stop; return the written job.  A stopped job is not changed.

        Without `infos` the templates are not changed.
        """
        for _ in range(_STEPS_MAX):
            steps = self._kind.stop(job, infos)
            if not steps:
                return job
            step = steps[0]
            written = await self.patch(job, step.patch, subresource=step.subresource)
            if step.suspends:
                self.event(job, reason="Stopped", message=message or why)
                _log.info("job stopped", job=job_key(job), reason=why)
            job = written
        return job

    async def end_pods(self, job: JSON) -> None:
        """End the running pods of a job without quota within seconds; its queue is charged until they have ended."""
        meta = job["metadata"]
        direct = self._kind.framework == "batch/job"
        labels = self._kind.pod_selector(job)
        name = rules.queue_name(job)
        ended = await self._short_stop.end_pods(
            meta["namespace"],
            labels=labels,
            top=meta["uid"] if direct else "",
            queue=f"{meta['namespace']}/{name}" if name else "",
        )
        if ended:
            message = f"Ended {len(ended)} pods that ran without quota, within {STOP_SECONDS} s"
            self.event(job, reason="PodsEnded", message=message, warning=True)
            _log.warning("pods without quota ended", job=job_key(job), pods=len(ended))

    def event(self, job: JSON, *, reason: str, message: str, warning: bool = False) -> None:
        """Record an event on the job."""
        gvk, meta = self._kind.gvk, job["metadata"]
        reference = ObjectReference(
            api_version=gvk.api_version,
            kind=gvk.kind,
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
        )
        self._recorder.record(reference, reason=reason, message=message, warning=warning)
