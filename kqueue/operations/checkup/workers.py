"""The check of worker clusters: whether each answers, is another cluster, and lets the manager do its work there.

It connects with the same kubeconfigs, and by the same rules, as the controller, and changes nothing on workers: it
asks them what the user of the kubeconfig may do.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kqueue.api import names
from kqueue.api.wire import multikueue as api
from kqueue.clock import Clock
from kqueue.config import Configuration
from kqueue.config.dispatchers import DISPATCHER_BEST_DOMAIN
from kqueue.controllers.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    PODS,
    WORKLOADS,
    resource_of,
)
from kqueue.controllers.worker_answers import PLACEMENTS
from kqueue.controllers.worker_cluster import IDENTITY, WorkerSourceError, identity_of, serves_kueue
from kqueue.controllers.worker_sources import WorkerSources
from kqueue.errors import ApiError, ConfigError, ForbiddenError, NotFoundError
from kqueue.jobs.catalog import COMPOSED
from kqueue.jobs.deployment import Deployment
from kqueue.jobs.managed_by import Way, way_of
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.registry import kinds_for
from kqueue.model import condition
from kqueue.operations.checkup.values import CheckVerdict, failed, many, ok, skipped, warning
from kqueue.runtime.client import Client
from kqueue.runtime.kubeconfig_file import choose, parse_kubeconfig
from kqueue.runtime.resources import ResourceType

_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
_SOON = timedelta(days=14)
_AT_ONCE = 8
"""Clusters, and questions to one of them, at the same time."""
_SECONDS = 20.0
"""Time for one cluster."""
_REMEDY = "mend what the lines say (docs/how-to/several-clusters.md); --config names the namespace of kqueue's Secrets"


@dataclass(frozen=True, slots=True)
class WorkerFindings:
    """One worker cluster: a line about it, and what is wrong there.

    Args:
        faults: nothing can run there.
        remarks: something may not work, or will end.
    """

    line: str
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a kind that the manager needs on workers; `name` empty: on all objects."""

    resource: ResourceType
    verb: str
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """Return the right as words."""
        what = "/".join(part for part in (str(self.resource), self.subresource, self.name) if part)
        return f"{self.verb} {what}"

    @property
    def is_vital(self) -> bool:
        """Whether the connection fails without it: watches are of all namespaces."""
        return self.verb in ("list", "watch")

    def as_review(self) -> dict[str, Any]:
        """Return the question whether the user has it."""
        asked = {"group": self.resource.group, "resource": self.resource.plural, "verb": self.verb}
        rest = {"name": self.name, "subresource": self.subresource}
        attributes = asked | {key: value for key, value in rest.items() if value}
        return {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }


def rights(configuration: Configuration) -> list[Right]:
    """Return what a manager needs on its workers for the enabled kinds of jobs."""
    found = [Right(WORKLOADS, verb) for verb in ("get", "list", "watch", "create", "patch", "delete")]
    found += [Right(WORKLOADS, "patch", subresource="status"), Right(NAMESPACES, "get", name=IDENTITY)]
    if configuration.enabled("MultiKueueManagerQuotaAutomation"):
        found += [Right(queues, verb) for queues in (LOCAL_QUEUES, CLUSTER_QUEUES) for verb in ("list", "watch")]
    if configuration.multi_kueue.dispatcher_name == DISPATCHER_BEST_DOMAIN:
        found.append(Right(PLACEMENTS, "create"))
    on = configuration.integrations.frameworks
    owners = [kind for kind in COMPOSED if kind.framework in on]
    jobs = [resource_of(kind) for kind in (*kinds_for(configuration), *owners) if way_of(kind) is not Way.NONE]
    pods = [PODS] if {PlainPod.framework, Deployment.framework} & set(on) else []
    verbs = ("get", "list", "watch", "create", "patch", "delete")
    return found + [Right(resource, verb) for resource in (*jobs, *pods) for verb in verbs]


class WorkersCheck:
    """Looks at each MultiKueueCluster and at the cluster that it names."""

    def __init__(self, client: Client, configuration: Configuration, clock: Clock) -> None:
        self._client, self._configuration, self._clock = client, configuration, clock
        self._sources = WorkerSources(client, configuration.namespace, clock=clock)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def workers(self) -> CheckVerdict:
        """Whether the worker clusters can be used."""
        try:
            listed = await self._client.list_json(MULTIKUEUE_CLUSTERS)
        except (ForbiddenError, NotFoundError) as e:
            return skipped(f"MultiKueueClusters cannot be read: {e}")
        if not listed:
            return ok("there is no worker cluster")
        ours = await identity_of(self._client)
        return verdict_of(await asyncio.gather(*(self._look(obj, ours) for obj in listed)))

    async def _look(self, obj: dict[str, Any], ours: str) -> WorkerFindings:
        name = obj["metadata"]["name"]
        async with self._turns:
            try:
                async with asyncio.timeout(_SECONDS):
                    cluster = msgspec.convert(obj, api.MultiKueueCluster)
                    return await self._probe(cluster, ours)
            except TimeoutError:
                return WorkerFindings(name, (f"it did not answer within {_SECONDS:g} s",))
            except (ApiError, ConfigError, WorkerSourceError, msgspec.ValidationError) as e:
                if isinstance(e.__cause__, ForbiddenError):
                    return WorkerFindings(name, remarks=(f"you may not read its kubeconfig: {e.__cause__}",))
                return WorkerFindings(name, (str(e),))

    async def _probe(self, cluster: api.MultiKueueCluster, ours: str) -> WorkerFindings:
        name, source = cluster.metadata.name, cluster.spec.cluster_source
        if source.kube_config is None or source.kube_config.location_type != "Secret":
            return _by_condition(cluster)
        content = await self._sources.of(cluster)()
        faults, remarks = _ends(content, self._clock.now())
        async with await self._sources.connect(cluster, content) as worker:
            version = (await worker.version()).get("gitVersion", "of an unknown version")
            if ours and await identity_of(worker) == ours:
                faults += ("its kubeconfig leads to this very cluster; give one of another cluster",)
            if not await serves_kueue(worker):
                faults += (f"it serves no {names.API_VERSION}; install kqueue (or Kueue 0.15) there",)
            try:
                missing = await _missing(worker, rights(self._configuration))
            except ForbiddenError as e:
                missing, remarks = [], (*remarks, f"the rights of the user of the kubeconfig cannot be asked for: {e}")
        vital = [right for right in missing if right.is_vital]
        others = [str(right) for right in missing if not right.is_vital]
        if vital:
            faults += (f"the user of the kubeconfig may not: {', '.join(map(str, vital))}",)
        if others:
            remarks += (f"the user of the kubeconfig may not, in all namespaces: {', '.join(others)}",)
        return WorkerFindings(f"{name}: Kubernetes {version} at {worker.server}", faults, remarks)


def verdict_of(found: Sequence[WorkerFindings]) -> CheckVerdict:
    """Return the verdict for all worker clusters, with their lines."""
    lines = [line for each in found for line in _lines(each)]
    bad = sum(bool(each.faults) for each in found)
    if bad:
        return failed(f"{bad} of {many(len(found), 'worker cluster')} cannot be used", _REMEDY, *lines)
    if any(each.remarks for each in found):
        return warning(f"{many(len(found), 'worker cluster')}, with remarks", _REMEDY, *lines)
    return ok(many(len(found), "worker cluster"), *lines)


def _lines(found: WorkerFindings) -> Iterator[str]:
    yield found.line
    for problem in (*found.faults, *found.remarks):
        yield f"  {problem}"


def _by_condition(cluster: api.MultiKueueCluster) -> WorkerFindings:
    """Return what the controller says of a cluster whose credentials only the controller can have."""
    name, told = cluster.metadata.name, condition(cluster.status.conditions, names.CONDITION_ACTIVE)
    if told is None:
        return WorkerFindings(name, remarks=("the controller has not said yet whether it can be used",))
    if told.status != "True":
        return WorkerFindings(name, (f"{told.reason}: {told.message}",))
    return WorkerFindings(f"{name}: connected, says the controller")


async def _missing(worker: Client, wanted: Sequence[Right]) -> list[Right]:
    """Return the rights that the user has not."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def has(right: Right) -> bool:
        async with turns:
            answer = await worker.create(_REVIEWS, right.as_review())
            status = answer.get("status")
            return isinstance(status, dict) and status.get("allowed") is True

    answers = await asyncio.gather(*map(has, wanted))
    return [right for right, given in zip(wanted, answers, strict=True) if not given]


# --- the end of credentials -------------------------------------------------------------------------------------------


def _ends(content: bytes, now: datetime) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return faults and remarks about the end of the credentials in a kubeconfig, as far as it can be read."""
    user = choose(parse_kubeconfig(content, "the kubeconfig"), None).user
    certificate = user.pem("client-certificate")
    ends = {
        "token": _token_end(user.text("token")),
        "client certificate": _certificate_end(certificate.content) if certificate is not None else None,
    }
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    for what, end in ends.items():
        if end is not None and end <= now:
            faults += (f"the {what} of its kubeconfig has expired ({end:%Y-%m-%d %H:%M}); store a new one",)
        elif end is not None and end - now < _SOON:
            remarks += (f"the {what} of its kubeconfig expires on {end:%Y-%m-%d %H:%M}; store a new one before",)
    return faults, remarks


def _token_end(token: str) -> datetime | None:
    """Return the end that a token names; None: it names none, or is no JSON Web Token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (binascii.Error, msgspec.DecodeError, ValueError, TypeError, KeyError, OverflowError, OSError):
        return None


def _certificate_end(content: bytes) -> datetime | None:
    from cryptography import x509

    try:
        return min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(content)[:1])
    except ValueError:
        return None
