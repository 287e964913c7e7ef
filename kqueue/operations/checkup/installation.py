"""Checks that kqueue is installed and answers: API server, kinds, webhooks, visibility API, leader."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kqueue import __version__
from kqueue.api import names
from kqueue.clock import Clock
from kqueue.config import Configuration
from kqueue.controllers.resources import CLUSTER_QUEUES
from kqueue.errors import ForbiddenError, InvalidError, NotFoundError, ServerError
from kqueue.jobs.unmanaged import kinds_not_queued, names_of_loose, remedy
from kqueue.kube import names as kube_names
from kqueue.kube.conditions import is_true
from kqueue.operations.checkup.hooks import has_rule, registered
from kqueue.operations.checkup.values import CheckVerdict, failed, many, ok, skipped, warning
from kqueue.operations.questions import ask, path
from kqueue.operations.removal.lease import holder_in
from kqueue.runtime.client import Client
from kqueue.runtime.resources import LEASES, ResourceType

JSON = dict[str, Any]
JOBS = ResourceType("batch", "v1", "jobs", "Job")
_CRDS = ResourceType(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_SERVICES = ResourceType("", "v1", "services", "Service")
_API_SERVICES = ResourceType("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
_VISIBILITY = ("visibility.kqueue.dev", "v1alpha1")
_SOON = timedelta(days=14)
_INSTALL = "install the chart, or in a checkout: kubectl apply --server-side -f config/crd"


class Installation:
    """The checks; each is a coroutine without arguments."""

    def __init__(self, client: Client, namespace: str, queue: str, configuration: Configuration, clock: Clock) -> None:
        """`namespace` is used for dry-run Jobs of LocalQueue `queue` (empty: of a queue that does not exist)."""
        self._client, self._namespace, self._queue = client, namespace, queue or "kqueue-doctor"
        self._configuration, self._clock = configuration, clock
        self._is_served = False

    async def api_server(self) -> CheckVerdict:
        """Whether the API server answers."""
        version = await self._client.version()
        return ok(f"Kubernetes {version.get('gitVersion', 'of an unknown version')} at {self._client.server}")

    # --- kinds -------------------------------------------------------------------------------------------------

    async def kinds(self) -> CheckVerdict:
        """Whether our kinds are installed, established, and have the schema of this version."""
        from kqueue.api.crd_files import load_crds

        wanted = {crd["metadata"]["name"]: crd for crd in load_crds()}
        found = {obj["metadata"]["name"]: obj for obj in await self._client.list_json(_CRDS) if _is_ours(obj)}
        missing = sorted(wanted.keys() - found.keys())
        if missing:
            return failed(f"{len(missing)} of {len(wanted)} kinds are not installed", _INSTALL, *missing)
        broken = [f"{name}: {why}" for name in sorted(wanted) for why in _crd_problems(found[name])]
        if broken:
            return failed("kinds are not served as they should be", _INSTALL, *broken)
        others = [name for name in sorted(wanted) if _schema(found[name]) != _schema(wanted[name])]
        if others:
            return warning(
                f"{len(others)} kinds have another schema than kqueue {__version__} brings", _INSTALL, *others
            )
        return ok(f"{len(wanted)} kinds, all as kqueue {__version__} brings them")

    # --- webhooks ----------------------------------------------------------------------------------------------

    async def webhooks(self) -> CheckVerdict:
        """Whether webhooks are registered, and their targets exist."""
        hooks, missing = await registered(self._client)
        if missing:
            return failed(
                f"{' and '.join(missing)} not found: jobs start without waiting for quota",
                "start the webhooks (kqueue webhook, or kqueue controller --with-webhooks), which register themselves",
            )
        nowhere = [target for target in sorted({_target(hook) for hook in hooks}) if await self._is_missing(target)]
        if nowhere:
            return failed(
                "targets of webhooks do not exist; the API server refuses to create queued objects",
                "restore the Service, or remove the configurations: kqueue uninstall --check",
                *nowhere,
            )
        if self._job_hook(hooks) is None:
            return warning("no webhook reviews Jobs", "add batch/job to integrations.frameworks, if Jobs should wait")
        return ok(f"{len(hooks)} webhooks are registered, at {', '.join(sorted({_target(hook) for hook in hooks}))}")

    async def certificates(self) -> CheckVerdict:
        """Check whether the API server has the certificate authority of the webhooks, and how long it is valid."""
        hooks, _ = await registered(self._client)
        if not hooks:
            return skipped("no webhook is registered")
        bundles = {hook["name"]: (hook.get("clientConfig") or {}).get("caBundle") or "" for hook in hooks}
        empty = sorted(name for name, bundle in bundles.items() if not bundle)
        if empty:
            return failed(
                f"{len(empty)} webhooks have no caBundle, so that the API server cannot trust them",
                "look into the log of the webhooks, which write it; or let cert-manager inject it",
                *empty,
            )
        ends: list[datetime] = []
        for bundle in sorted(set(bundles.values())):
            end = _valid_until(bundle)
            if end is None:
                return failed("a caBundle is no certificate", "delete the configuration; the webhooks write it anew")
            ends.append(end)
        left = min(ends) - self._clock.now()
        text = f"{len(set(bundles.values()))} authority, valid until {min(ends):%Y-%m-%d}"
        remedy = "restart the webhooks, or look at cert-manager: authorities are renewed long before they end"
        if left < timedelta(0):
            return failed(f"the authority of the webhooks has expired ({min(ends):%Y-%m-%d})", remedy)
        return warning(text, remedy) if left < _SOON else ok(text)

    async def reviews(self) -> CheckVerdict:
        """Whether a queued Job is suspended, and a Job with contradictory requests is refused; neither is stored."""
        hooks, _ = await registered(self._client)
        if self._job_hook(hooks) is None:
            return skipped("no webhook reviews Jobs")
        remedy = "look at the webhooks' log and Service; their readiness probe shows more"
        try:
            answered = await self._client.create(JOBS, self._job({}), dry_run=True)
        except ServerError as e:
            return failed(f"the API server does not get an answer: {e}", remedy)
        except NotFoundError as e:
            return skipped(f"namespace {self._namespace} cannot be tried in: {e}")
        if not answered["spec"].get("suspend"):
            return failed(
                f"a Job with a queue label in namespace {self._namespace} was not suspended",
                "webhooks ignore kube-system, kqueue's own namespace and namespaces that managedJobsNamespaceSelector "
                "leaves out: give another one with --namespace",
            )
        both = dict.fromkeys(
            (names.REQUIRED_TOPOLOGY_ANNOTATION, names.PREFERRED_TOPOLOGY_ANNOTATION), kube_names.HOSTNAME_LABEL
        )
        try:
            await self._client.create(JOBS, self._job(both), dry_run=True)
        except (ForbiddenError, InvalidError):
            return ok("a queued Job is suspended, and a Job with contradictory requests is refused")
        except ServerError as e:
            return failed(f"the API server does not get an answer: {e}", remedy)
        return failed("a Job that asks for required and preferred topology was not refused", remedy)

    async def conversion(self) -> CheckVerdict:
        """Whether the API server gets v1beta1 from the conversion webhook; the object that is tried is not stored."""
        older = replace(CLUSTER_QUEUES, version=names.OLDER_VERSION)
        queue = {"apiVersion": older.api_version, "kind": older.kind, "metadata": {"generateName": "kqueue-doctor-"},
                 "spec": {"cohort": "kqueue-doctor"}}  # fmt: skip
        try:
            found = await self._client.create(older, queue, dry_run=True)
        except NotFoundError:
            return warning(f"{older.api_version} is not served", _INSTALL)
        except ServerError as e:
            return failed(
                f"objects of {older.api_version} can be neither read nor written: {e}",
                "start the webhooks, which write their address into the definitions; their log names a missing right",
            )
        except ForbiddenError as e:
            return skipped(f"a ClusterQueue cannot be tried: {e}")
        if found["spec"].get("cohort") != "kqueue-doctor":
            return failed(f"the cohort of a ClusterQueue of {older.api_version} is lost", _INSTALL)
        return ok(f"objects of {older.api_version} are converted")

    def _job(self, annotations: Mapping[str, str]) -> JSON:
        container = {"name": "doctor", "image": "registry.k8s.io/pause:3.10"}
        template = {
            "metadata": {"annotations": dict(annotations)},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "generateName": "kqueue-doctor-",
                "namespace": self._namespace,
                "labels": {names.QUEUE_NAME_LABEL: self._queue},
            },
            "spec": {"suspend": False, "template": template},
        }

    async def labelled(self) -> CheckVerdict:
        """Whether objects of a kind that is switched off name a queue, and so start without quota."""
        hooks, _ = await registered(self._client)
        if not hooks:
            return skipped("no webhook is registered, so no kind is queued")
        found: dict[str, list[str]] = {}
        remedies: list[str] = []
        unseen: list[str] = []
        for kind in kinds_not_queued(self._configuration.integrations):
            gvk = kind.gvk
            if has_rule(hooks, gvk.group, kind.resource):
                continue
            resource = ResourceType(gvk.group, gvk.version, kind.resource, gvk.kind)
            try:
                every = await self._client.list_json(resource, label_selector=names.QUEUE_NAME_LABEL)
            except NotFoundError:
                continue  # the kind is not installed
            except ForbiddenError:
                unseen.append(gvk.kind)
                continue
            if loose := names_of_loose(every):
                found[gvk.kind] = loose
                remedies.append(remedy(gvk))
        lines = [f"{kind}: {len(some)}, as {some[0]}" for kind, some in found.items()]
        if found:
            count = sum(map(len, found.values()))
            return failed(
                f"{many(count, 'object')} name a queue and start without quota, because their kind is switched off",
                "; ".join(remedies),
                *lines,
            )
        if unseen:
            return warning(f"{', '.join(unseen)} may not be listed", "run doctor as a user who may list them")
        return ok("no labelled object is of a kind that is switched off")

    async def _is_missing(self, target: str) -> bool:
        if not target.startswith("Service "):
            return False
        namespace, _, name = target.removeprefix("Service ").partition("/")
        try:
            await self._client.get_json(_SERVICES, name, namespace)
        except NotFoundError:
            return True
        return False

    @staticmethod
    def _job_hook(hooks: Sequence[JSON]) -> JSON | None:
        for hook in hooks:
            if has_rule([hook], "batch", "jobs"):
                return hook
        return None

    # --- servers and the leader --------------------------------------------------------------------------------

    async def visibility(self) -> CheckVerdict:
        """Whether the controller answers requests through the API server."""
        name = f"{_VISIBILITY[1]}.{_VISIBILITY[0]}"
        try:
            await self._client.get_json(_API_SERVICES, name)
        except NotFoundError:
            return warning(
                f"APIService {name} is not registered: kqueue top, topology and explain get no answers",
                "switch the feature gate VisibilityOnDemand on; outside of a cluster give --visibility-url",
            )
        except ForbiddenError:
            pass  # without the right to read it the user may still ask the API
        await ask(self._client, path(*_VISIBILITY, "queuesummaries"), {"limit": "1"})
        self._is_served = True
        return ok(f"{'/'.join(_VISIBILITY)} answers")

    async def controller(self) -> CheckVerdict:
        """Check whether a controller leads: its Lease is renewed during the check."""
        election = self._configuration.leader_election
        found = await self._leases(election.resource_name, election.resource_namespace)
        if not found:
            if self._is_served:
                return ok(f"a controller answers; without leader election (no Lease {election.resource_name})")
            start = "start one: kqueue controller, or the chart"
            if await self._was_looked_at():
                return warning(
                    f"there is no Lease {election.resource_name}: a controller would run without leader election",
                    f"check with --queue NAME whether one works, or {start}",
                )
            return failed(f"there is no Lease {election.resource_name}: no controller runs", start)
        for namespace in found:
            holder = await holder_in(
                self._client,
                namespace,
                election.resource_name,
                self._clock,
                duration=election.lease_duration.total_seconds(),
            )
            if holder:
                return ok(f"{holder} leads (Lease {namespace}/{election.resource_name})")
        return failed(
            f"Lease {found[0]}/{election.resource_name} is not renewed: no controller leads",
            f"kubectl -n {found[0]} get pods; then look at the controllers' logs",
        )

    async def _was_looked_at(self) -> bool:
        """Whether the status of a ClusterQueue is current, which shows a controller without a Lease."""
        for obj in await self._client.list_json(CLUSTER_QUEUES):
            for condition in obj.get("status", {}).get("conditions") or ():
                if condition.get("observedGeneration") == obj["metadata"].get("generation"):
                    return True
        return False

    async def _leases(self, name: str, namespace: str) -> list[str]:
        """Return namespaces that have the Lease; only the configured one if the user may not list all."""
        try:
            leases = await self._client.list_json(LEASES, field_selector=f"metadata.name={name}")
        except ForbiddenError:
            leases = await self._client.list_json(LEASES, namespace, field_selector=f"metadata.name={name}")
        found = {lease["metadata"]["namespace"] for lease in leases}
        return sorted(found, key=lambda one: (one != namespace, one))


def _is_ours(crd: JSON) -> bool:
    return bool(crd["spec"].get("group") in (names.GROUP, names.KQUEUE_GROUP))


def _crd_problems(crd: JSON) -> Iterator[str]:
    if crd["metadata"].get("deletionTimestamp"):
        yield "it is being deleted"
    if not is_true(crd, "Established"):
        yield "it is not established"
    wanted = names.VERSION if crd["spec"]["group"] == names.GROUP else None
    served = [version["name"] for version in crd["spec"]["versions"] if version.get("served")]
    if wanted is not None and wanted not in served:
        yield f"it serves {', '.join(served)}, not {wanted}"


def _schema(crd: JSON) -> dict[str, Any]:
    """Return the schemas by version."""
    return {version["name"]: _stored(version.get("schema")) for version in crd["spec"]["versions"]}


def _stored(schema: Any) -> Any:
    """Return a schema as the API server stores it: without empty lists of properties."""
    if isinstance(schema, dict):
        return {key: _stored(value) for key, value in schema.items() if (key, value) != ("properties", {})}
    return [_stored(value) for value in schema] if isinstance(schema, list) else schema


def _target(hook: JSON) -> str:
    config = hook.get("clientConfig") or {}
    service = config.get("service") or {}
    if service:
        return f"Service {service['namespace']}/{service['name']}"
    return "/".join(str(config.get("url", "")).split("/", 3)[:3])


def _valid_until(bundle: str) -> datetime | None:
    """Return the latest expiry of the bundle's certificates; None if none can be parsed."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(bundle, validate=True))
    except (binascii.Error, ValueError):
        return None
    return max((certificate.not_valid_after_utc for certificate in found), default=None)
