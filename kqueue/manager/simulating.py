"""Makes Workloads of manifests as admission does: reviewed by the webhooks, made by the adapters of their kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.simulation import SimulationSpec
from kqueue.clock import utc_text
from kqueue.controllers.resources import read_resource, resource_of
from kqueue.controllers.run_times import make_run_times
from kqueue.controllers.topology_levels import watch_levels
from kqueue.core.future.question import WaitingWorkload
from kqueue.core.workload import Head
from kqueue.errors import ApiError, ConfigError, InvalidObjectError, KqueueError, NotFoundError
from kqueue.isolation import isolated_logged
from kqueue.jobs import rules
from kqueue.jobs.ancestry import Lineage
from kqueue.jobs.catalog import COMPOSED, webhook_path
from kqueue.jobs.composed import ComposedKind
from kqueue.jobs.drafts import SINGLE_POD, Drafting, DraftWorkload, called
from kqueue.jobs.fields import JSON, labels_of, mapping, objects, text
from kqueue.jobs.gang import batch_process
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.registry import dialect_of, framework_of_kind, membership
from kqueue.jobs.gang.reviewed import REVIEWED_GROUPS
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.kind import ExceptionalKind, JobKind, ReviewedKind
from kqueue.jobs.others import Reference, completed, references
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.registry import declared_for
from kqueue.kinds import FRAMEWORKS, POD, GroupKind
from kqueue.manager.admission import policy_of
from kqueue.manager.explaining import make_prospects
from kqueue.manager.server_rules import broken_rules
from kqueue.state.run_times import RunTimes
from kqueue.visibility.question import AuthorizedQuestion
from kqueue.visibility.simulation import Creatable, Drafts, SimulationView
from kqueue.visibility.start_times import StartTimeViews
from webhooks import workloads
from webhooks.review import Request, RequestUser, ReviewResult, refusal
from webhooks.routes import Handler, reviewed_kinds, routes
from webhooks.surroundings import LookupFailedError

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator

_SERVER_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "resourceVersion", "selfLink")
"""Metadata that the API server writes, and drops from objects that are created."""
_log = structlog.get_logger(__name__)


def make_simulations(operator: Operator, starts: StartTimeViews | None) -> SimulationView:
    """Return the view that says what would become of manifests, and when those that wait would start.

    `starts` None: answers have no start times.
    """
    return SimulationView(
        make_prospects(operator),
        ManifestDrafter(operator),
        start_times=partial(_start_times, operator.manager.shared(make_run_times), starts)
        if starts is not None
        else None,
    )


async def _start_times(
    run_times: RunTimes,
    starts: StartTimeViews,
    asked: AuthorizedQuestion,
    copies: Sequence[tuple[wire.Workload, Head]],
) -> Mapping[str, JSON]:
    added = [
        WaitingWorkload(head=head, run_time=run_times.of(obj), shape=f"asked/{obj.metadata.uid}")
        for obj, head in copies
    ]
    return await starts.of_added(asked, added)


class WatchedLookups:
    """The lookups of a review, answered from the watches of this process, and first from the manifests themselves.

    Nothing that the question's user may not read is read for it, but objects to which a job of its namespace may refer.
    """

    def __init__(self, operator: Operator, group_objects: Mapping[str, JSON], others: Sequence[JSON]) -> None:
        """`group_objects` are those of the question, by the key of the gang; `others` are all its manifests."""
        self._operator, self._group_objects, self._others = operator, group_objects, others

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; empty if it is not known."""
        return self._operator.manager.namespace_labels(namespace) or {}

    async def has_local_queue(self, namespace: str, name: str) -> bool:
        """Whether the LocalQueue exists."""
        return f"{namespace}/{name}" in self._operator.watches.local_queues.store

    async def has_priority_class(self, name: str) -> bool:
        """Whether the WorkloadPriorityClass exists."""
        return name in self._operator.watches.workload_priorities.store

    async def lineage(self, obj: JSON, kind: GroupKind, namespace: str) -> Lineage:
        """Return no owners: manifests with a controller are refused before."""
        return Lineage()

    async def is_admitted(self, uid: str, group: str, namespace: str) -> bool:
        """Return False: an object that does not exist was not admitted."""
        return False

    async def holds_quota(self, workload: str, namespace: str) -> bool:
        """Return False: an object that does not exist has no quota."""
        return False

    async def sends_away(self, namespace: str, queue: str) -> bool:
        """Return False: the question is about this cluster."""
        return False

    async def group_object(self, ref: GangRef) -> JSON | None:
        """Return the group object of a gang among the manifests; None: there is none."""
        return self._group_objects.get(gang_key(ref.framework, ref.namespace, ref.name))

    async def other(self, reference: Reference) -> JSON | None:
        """Return an object that a job refers to: from the manifests, else from the API server."""
        kind = reference.kind
        for obj in self._others:
            if (text(obj, "apiVersion").rpartition("/")[0], text(obj, "kind")) == (kind.group, kind.kind) and text(
                obj, "metadata", "name"
            ) == reference.name:
                return obj
        try:
            return await self._operator.client.get_json(
                read_resource(kind), reference.name, reference.namespace or None
            )
        except NotFoundError:
            return None
        except ApiError as e:
            raise LookupFailedError(f"{reference} could not be read: {e}") from e

    async def topology_levels(self, wanted: Collection[str]) -> frozenset[str] | None:
        """Return the levels of all topologies; None: they are not known yet."""
        return self._operator.manager.shared(watch_levels)()


@dataclass(slots=True)
class _Question:
    """The manifests of one question, as they are reviewed."""

    asked: AuthorizedQuestion
    handlers: Mapping[str, Handler]
    lookups: WatchedLookups
    group_objects: Mapping[str, JSON]
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    pods: dict[str, list[JSON]] = field(default_factory=dict)
    """Reviewed pods of gangs, by the key of the gang."""


class ManifestDrafter:
    """`Drafter` for the kinds that the configuration enables."""

    def __init__(self, operator: Operator) -> None:
        self._operator, self._config = operator, operator.config
        manager = operator.manager
        self._switches = manager.switches
        self._frameworks = self._config.integrations.frameworks
        self._declared = declared_for(self._config)
        self._jobs: dict[GroupKind, JobKind] = {(k.gvk.group, k.gvk.kind): k for k in manager.kinds}
        reviewed = reviewed_kinds(self._frameworks, self._declared)
        self._reviewed: dict[GroupKind, ReviewedKind] = {
            (k.gvk.group, k.gvk.kind): k for k in (*reviewed.values(), *self._jobs.values())
        }
        self._read = {(one.group, one.kind): one for row in FRAMEWORKS.values() for one in row.reads}
        """Kinds to which jobs refer; an object of them may be among the manifests, and gets no Workload."""
        self._composed: dict[GroupKind, ComposedKind] = {(k.gvk.group, k.gvk.kind): k for k in COMPOSED}
        policy = manager.owner_policy
        self._drafting = Drafting(
            priority=manager.steps.priority_of,
            switches=self._switches,
            copied=policy.copied,
            timeouts=policy.timeouts,
        )

    def kinds_of(self, manifests: Sequence[Mapping[str, Any]]) -> Sequence[Creatable]:
        """Return the kinds of the manifests, each once.

        Raises:
            ConfigError: one is of a kind that is not queued.
        """
        found: dict[Creatable, None] = {}
        for obj in manifests:
            read = self._read.get(_group_kind(obj))
            is_read = read is not None and _group_kind(obj) not in self._reviewed
            resource = read_resource(read) if read is not None and is_read else resource_of(self._kind_of(obj))
            found[Creatable(resource.group, text(obj, "apiVersion").rpartition("/")[2], resource.plural)] = None
        return list(found)

    def _kind_of(self, obj: Mapping[str, Any]) -> ReviewedKind:
        group_kind = _group_kind(obj)
        found = self._reviewed.get(group_kind)
        framework = framework_of_kind(*group_kind)
        if found is None and framework in self._switches.gangs and framework in REVIEWED_GROUPS:
            return REVIEWED_GROUPS[framework]
        if found is None:
            kinds = sorted({kind for _, kind in self._reviewed} | {batch_process.KIND.kind})
            what = f"{text(obj, 'kind') or 'an object without kind'} of {text(obj, 'apiVersion') or 'no apiVersion'}"
            raise ConfigError(f"{what} is not queued here; kinds that are queued: {', '.join(kinds)}")
        return found

    async def drafts(self, asked: AuthorizedQuestion, spec: SimulationSpec) -> Drafts:
        """Return the Workloads that the manifests would get.

        Raises:
            ConfigError: the webhooks would refuse one, or it would not be queued; names all such manifests.
        """
        now = self._operator.clock.now()
        prepared = [
            _prepared(obj, number, namespace=asked.namespace, queue=spec.queue, created=utc_text(now))
            for number, obj in enumerate(spec.manifests)
        ]
        groups = {key: obj for obj in prepared if (key := _group_key(obj))}
        lookups = WatchedLookups(self._operator, groups, prepared)
        handlers = routes(
            self._frameworks,
            self._switches,
            policy=policy_of(self._config),
            lookups=lookups,
            declared=self._declared,
        )
        question = _Question(asked, handlers, lookups, groups)
        found = [draft for obj in prepared for draft in await self._drafted(question, obj)]
        found += self._gangs(question)
        for draft in found:
            mistakes = [str(mistake) for mistake in workloads.problems(draft.workload, None, self._switches)]
            mistakes += [
                f"the template of pod set {text(pod_set, 'name')} has no containers; add one"
                for pod_set in objects(draft.workload, "spec", "podSets")
                if not objects(pod_set, "template", "spec", "containers")
            ]
            if mistakes:
                question.problems.append(f"{draft.source} is not valid: {'; '.join(mistakes)}")
        if question.problems:
            raise ConfigError("; ".join(question.problems))
        if not found:
            raise ConfigError("these manifests get no workload: add the pods of the group")
        return Drafts(workloads=found, warnings=question.warnings)

    async def _drafted(self, question: _Question, obj: JSON) -> list[DraftWorkload]:
        """Return the Workloads of one manifest; pods of gangs are collected in the question."""
        with isolated_logged(_log, "a manifest could not be made into a Workload", kind=text(obj, "kind")) as made:
            if _group_kind(obj) in self._read and _group_kind(obj) not in self._reviewed:
                return []
            if broken := broken_rules(obj):
                question.problems.append(f"{called(obj)} would not be created: {'; '.join(broken)}")
                return []
            try:
                reviewed = await self._review(question, obj)
                return [] if reviewed is None else await self._made(question, reviewed)
            except InvalidObjectError as e:
                question.problems.append(refusal(obj, e.errors))
            except (KqueueError, RecursionError) as e:
                question.problems.append(f"{called(obj)}: {e}")
            return []
        question.problems.append(
            f"{called(obj)}: the check failed on a bug in kqueue ({type(made.error).__name__}); please report it"
        )
        return []

    async def _review(self, question: _Question, obj: JSON) -> JSON | None:
        """Return the object with the webhooks' defaults; None: the webhooks refuse it."""
        kind = self._kind_of(obj)
        group, _, _ = text(obj, "apiVersion").rpartition("/")
        user = RequestUser(question.asked.user, question.asked.groups)
        request = Request(
            uid="simulation",
            operation="CREATE",
            obj=obj,
            old=None,
            group=group,
            kind=text(obj, "kind"),
            namespace=question.asked.namespace,
            dry_run=True,
            user=user,
        )
        for word in ("mutate", "validate"):
            handler = question.handlers.get(f"/{word}-{webhook_path(kind)}")
            result = await handler(request) if handler is not None else ReviewResult()
            question.warnings += result.warnings
            if not result.allowed:
                question.problems.append(result.fault.sentence if result.fault else refusal(obj, result.problems))
                return None
            request = dataclasses.replace(request, obj=apply_merge_patch(request.obj, result.patch))
        return request.obj

    async def _made(self, question: _Question, obj: JSON) -> list[DraftWorkload]:
        """Return the Workloads of a reviewed object.

        Raises:
            ConfigError: it would not be queued.
            InvalidObjectError, TerminalError: no Workload can be made of it.
        """
        group_kind, namespace = _group_kind(obj), question.asked.namespace
        if self._operator.manager.namespace_labels(namespace) is None:
            raise ConfigError(f"namespace {namespace} does not exist; create it, or ask with another one")
        if not self._operator.manager.manages(namespace):
            raise ConfigError(f"namespace {namespace} is not managed (managedJobsNamespaceSelector): it starts at once")
        framework = framework_of_kind(*group_kind)
        if framework and group_kind not in self._reviewed:
            return self._of_group_object(obj, framework)
        if group_kind == POD:
            return self._of_pod(question, obj)
        self._require_queue(obj, namespace)
        if group_kind in self._jobs:
            return [await self._of_job(question, self._jobs[group_kind], obj)]
        if group_kind in self._composed:
            return list(self._drafting.of_composed(self._composed[group_kind], obj))
        return [self._drafting.of_deployment(obj)]

    def _require_queue(self, obj: JSON, namespace: str) -> None:
        if not (rules.queue_name(obj) or self._config.manage_jobs_without_queue_name):
            raise ConfigError(
                f"it names no LocalQueue, and namespace {namespace} has none named {names.DEFAULT_LOCAL_QUEUE}, so it "
                f"would start at once; set its label {names.QUEUE_NAME_LABEL}, or ask with a queue"
            )

    async def _of_job(self, question: _Question, kind: JobKind, obj: JSON) -> DraftWorkload:
        others = {one: await question.lookups.other(one) for one in references(kind, obj)}
        job = completed(obj, others) if others else obj
        if isinstance(kind, ExceptionalKind) and kind.is_skipped(job):
            raise ConfigError("kqueue does not queue it, although it names a queue; it belongs to another object")
        if prebuilt := rules.prebuilt_name(job, self._switches):
            raise ConfigError(f"it names a Workload that its user makes, {prebuilt}; ask without that name")
        return self._drafting.of_job(kind, job)

    def _of_pod(self, question: _Question, pod: JSON) -> list[DraftWorkload]:
        gang = membership(pod, self._switches)
        if names.MANAGED_LABEL not in labels_of(pod):
            self._require_queue(pod, question.asked.namespace)
            raise ConfigError("it would start at once: the integration pod is off")
        if gang is None:
            return [self._drafting.of_job(SINGLE_POD, pod)]
        key = gang_key(gang.framework, question.asked.namespace, gang.name)
        group_object = question.group_objects.get(key)
        if group_object is not None and dialect_of(gang.framework).queues_alone(group_object):
            return [self._drafting.of_job(SINGLE_POD, pod)]
        question.pods.setdefault(key, []).append(pod)
        return []

    def _of_group_object(self, obj: JSON, framework: str) -> list[DraftWorkload]:
        """Return the Workload of an object whose Workload is made before its pods; others wait for their pods."""
        if framework != batch_process.FRAMEWORK:
            return []
        self._require_queue(obj, text(obj, "metadata", "namespace"))
        return [self._drafting.of_batch_process(obj, rules.queue_name(obj))]

    def _gangs(self, question: _Question) -> list[DraftWorkload]:
        """Return the Workloads of the gangs whose pods are among the manifests."""
        found: list[DraftWorkload] = []
        for key, pods in question.pods.items():
            group, what = GangRef.of_key(key), f"gang {GangRef.of_key(key).name}"
            with isolated_logged(_log, "a gang could not be made into a Workload", gang=group.name) as made:
                try:
                    drafted = self._drafting.of_gang(pods, question.group_objects.get(key))
                except KqueueError as e:
                    question.problems.append(f"{what}: {e}")
                    continue
                if isinstance(drafted, GroupProblem):
                    where = f"pod {drafted.pod.name}: " if drafted.pod is not None else ""
                    question.problems.append(f"{what}: {where}{drafted.message}")
                else:
                    found.append(drafted)
            if made.error is not None:
                question.problems.append(
                    f"{what}: the check failed on a bug in kqueue ({type(made.error).__name__}); please report it"
                )
        return found


def _group_kind(obj: Mapping[str, Any]) -> GroupKind:
    return text(obj, "apiVersion").rpartition("/")[0], text(obj, "kind")


def _group_key(obj: JSON) -> str:
    """Return the key of the gang whose group object this is; empty: it is none."""
    framework = framework_of_kind(*_group_kind(obj))
    return gang_key(framework, text(obj, "metadata", "namespace"), text(obj, "metadata", "name")) if framework else ""


def _prepared(obj: Mapping[str, Any], number: int, *, namespace: str, queue: str, created: str) -> JSON:
    """Return a manifest as the API server would store it, with a UID that no object has.

    Raises:
        ConfigError: it has no name, another namespace, or a controller.
    """
    meta = mapping(obj, "metadata")
    what = text(obj, "kind") or f"object {number}"
    name = text(meta, "name") or (f"{text(meta, 'generateName')}x" if text(meta, "generateName") else "")
    if not name:
        raise ConfigError(f"{what}: metadata.name: must be given, or metadata.generateName")
    if text(meta, "namespace") not in ("", namespace):
        raise ConfigError(f"{what} {name}: metadata.namespace: must be {namespace}, the namespace of the question")
    if any(owner.get("controller") is True for owner in objects(meta, "ownerReferences")):
        raise ConfigError(f"{what} {name}: metadata.ownerReferences: names a controller; ask about the controller")
    kept = {key: value for key, value in meta.items() if key not in _SERVER_FIELDS}
    labels = {**mapping(meta, "labels"), **({names.QUEUE_NAME_LABEL: queue} if queue else {})}
    own = {"name": name, "namespace": namespace, "uid": f"simulation-{number}", "generation": 1}
    metadata = {**kept, **own, "creationTimestamp": created, **({"labels": labels} if labels else {})}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}
