"""Reads manifests of policy that do not exist, as the API server and the webhooks would: schemas first, then rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from kqueue.api import names
from kqueue.api.cluster_queue import ClusterQueue
from kqueue.api.cohort import Cohort
from kqueue.api.local_queue import LocalQueue
from kqueue.api.model import ApiModel
from kqueue.api.resource_flavor import ResourceFlavor
from kqueue.api.wire import kueue as wire
from kqueue.controllers.blockers import LocalQueueSource
from kqueue.errors import ConfigError, InvalidObjectError
from kqueue.jobs import syntax
from kqueue.jobs.fields import mapping, text
from kqueue.model import inline_topology
from kqueue.state.proposed import ProposedObjects
from kqueue.state.quota_cache import QuotaCache
from kqueue.visibility.question import JSON
from kqueue.visibility.sources import Known
from kqueue.visibility.what_if_lines import HeldBack
from webhooks.review import Request, refusal
from webhooks.routes import Handler

T = TypeVar("T")
HeldBackUnder = Callable[[LocalQueueSource, QuotaCache], HeldBack]
_MODELS: Mapping[str, type[ApiModel]] = {
    names.CLUSTER_QUEUE_KIND: ClusterQueue,
    names.COHORT_KIND: Cohort,
    names.LOCAL_QUEUE_KIND: LocalQueue,
    names.RESOURCE_FLAVOR_KIND: ResourceFlavor,
}
_SERVER_FIELDS = ("creationTimestamp", "deletionTimestamp", "managedFields", "resourceVersion", "selfLink", "uid")


class PolicyManifestReader:
    """`ProposalReader`, by the webhooks' own handlers."""

    def __init__(self, handlers: Mapping[str, Handler], known: Known, under: HeldBackUnder) -> None:
        """`handlers` are those of the webhooks, by path; `under` returns the reasons that keep a Workload out of its
        queue with other queues.
        """
        self._handlers, self._known, self._under = handlers, known, under

    def held_back(self, local_queues: LocalQueueSource, quota: QuotaCache) -> HeldBack:
        """Return what tells the reasons that would keep a Workload out of its queue with these queues."""
        return self._under(local_queues, quota)

    async def read(self, manifests: Sequence[Mapping[str, Any]]) -> ProposedObjects:
        """Return the objects of the manifests.

        Raises:
            ConfigError: one is of another kind, is twice there, or would be refused at its creation or update; names
                all such manifests.
        """
        read: dict[str, dict[str, JSON]] = {kind: {} for kind in _MODELS}
        problems: list[str] = []
        for number, obj in enumerate(manifests):
            kind = text(obj, "kind")
            if kind not in _MODELS or text(obj, "apiVersion") != names.API_VERSION:
                what = f"{kind or 'an object without kind'} of {text(obj, 'apiVersion') or 'no apiVersion'}"
                problems.append(
                    f"spec.objects[{number}]: {what} cannot be asked about; kinds of {names.API_VERSION} that can: "
                    f"{', '.join(_MODELS)}"
                )
                continue
            key = _key(obj, kind)
            if key in read[kind]:
                problems.append(f"spec.objects[{number}]: {kind} {key} is there twice; keep one")
                continue
            read[kind][key] = plain = _plain(obj)
            problems += [str(p) for p in await self._problems(plain, kind, key)]
        if problems:
            raise ConfigError("; ".join(problems))
        return ProposedObjects(
            cluster_queues=_converted(read[names.CLUSTER_QUEUE_KIND], wire.ClusterQueue),
            cohorts=_converted(read[names.COHORT_KIND], wire.Cohort),
            flavors=_converted(read[names.RESOURCE_FLAVOR_KIND], wire.ResourceFlavor),
            local_queues=_converted(read[names.LOCAL_QUEUE_KIND], wire.LocalQueue),
        )

    async def _problems(self, obj: JSON, kind: str, key: str) -> list[str]:
        """Return what the API server and the webhooks would say against an object."""
        name, namespace = text(obj, "metadata", "name"), text(obj, "metadata", "namespace")
        wrong = [str(error) for error in syntax.check(syntax.subdomain, name, "metadata.name")]
        if (kind == names.LOCAL_QUEUE_KIND) != bool(namespace):
            must = "must be given" if not namespace else f"must be left out: a {kind} has none"
            wrong.append(f"metadata.namespace: {must}")
        if wrong:
            return [f"{kind} {name or '(no name)'} is not valid: {'; '.join(wrong)}"]
        try:
            _MODELS[kind].read(obj)
        except InvalidObjectError as e:
            return [refusal(obj, e.errors)]
        old = self._present(kind, key)
        if kind == names.LOCAL_QUEUE_KIND:
            return _fixed(obj, "clusterQueue", text(old or {}, "spec", "clusterQueue"))
        flavor = self._known.cache.quota.flavor(key) if kind == names.RESOURCE_FLAVOR_KIND else None
        if flavor is not None and flavor.topology not in (None, inline_topology(key)):
            fixed = _fixed(obj, "topologyName", flavor.topology or "")
            if fixed:
                return fixed
        path = f"/validate-{names.GROUP.replace('.', '-')}-{names.VERSION}-{kind.lower()}"
        request = Request(
            uid="what-if",
            operation="CREATE" if old is None else "UPDATE",
            obj=obj,
            old=old,
            group=names.GROUP,
            kind=kind,
            namespace="",
            dry_run=True,
        )
        result = await self._handlers[path](request)
        if result.allowed:
            return []
        return [result.fault.sentence if result.fault else refusal(obj, result.problems)]

    def _present(self, kind: str, key: str) -> JSON | None:
        """Return the object as it is now; None: there is none, or its kind needs no comparison."""
        quota = self._known.cache.quota
        found: msgspec.Struct | None = None
        match kind:
            case names.CLUSTER_QUEUE_KIND:
                found = quota.queue_object(key)
            case names.COHORT_KIND:
                found = quota.cohort_object(key)
            case names.LOCAL_QUEUE_KIND:
                found = self._known.local_queues.get(key)
        return msgspec.to_builtins(found) if found is not None else None


def _fixed(obj: JSON, field: str, before: str) -> list[str]:
    """Return the change of a field that the API server refuses; `before` empty: the field may be set."""
    if not before or before == text(obj, "spec", field):
        return []
    return [
        f"{text(obj, 'kind')} {text(obj, 'metadata', 'name')} is not valid: spec.{field}: cannot be changed from "
        f"{before}; ask about an object with another name instead"
    ]


def _key(obj: Mapping[str, Any], kind: str) -> str:
    name, namespace = text(obj, "metadata", "name"), text(obj, "metadata", "namespace")
    return f"{namespace}/{name}" if kind == names.LOCAL_QUEUE_KIND else name


def _plain(obj: Mapping[str, Any]) -> JSON:
    """Return a manifest without status and without what the API server writes."""
    meta = {key: value for key, value in mapping(obj, "metadata").items() if key not in _SERVER_FIELDS}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": meta}


def _converted(objects: Mapping[str, JSON], kind: type[T]) -> dict[str, T]:
    try:
        return {key: msgspec.convert(obj, kind) for key, obj in objects.items()}
    except msgspec.ValidationError as e:
        raise ConfigError(f"spec.objects: {e}") from e
