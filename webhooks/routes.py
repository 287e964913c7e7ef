"""Map paths to the handlers of kinds.

Paths follow the ecosystem: `/mutate-<group with dashes>-<version>-<kind>`; the core group is empty (`/mutate--v1-pod`).
The handler of a disabled integration allows every request, so that one webhook configuration serves every set of
integrations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

from kqueue.api import names
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import rules
from kqueue.jobs.catalog import REVIEWED, webhook_path
from kqueue.jobs.fields import JSON
from kqueue.jobs.gang.registry import switched_on
from kqueue.jobs.gang.reviewed import REVIEWED_GROUPS, ReviewedGroup
from kqueue.jobs.kind import GroupVersionKind, JobContext, ReviewedKind
from kqueue.jobs.multikueue.defaults import dispatched
from kqueue.jobs.pod_of_parent import ReviewedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import FRAMEWORKS, implies_pods
from webhooks import node_classes, quota, workloads
from webhooks.review import ALLOWED, Fault, Request, ReviewResult
from webhooks.surroundings import JobContextFinder, LookupFailedError, Policy, ReviewLookups

Handler = Callable[[Request], Awaitable[ReviewResult]]
Check = Callable[[Request], ReviewResult]

DEFAULT_QUEUE_PATH = "/mutate-default-queue"
"""Path for unlabelled objects of all enabled kinds, in namespaces that have a LocalQueue named `default`."""

_PODS = "pod"
_FIRST = ("batch/job", _PODS)
"""Kinds whose entries come first in the webhook configurations, as in earlier versions: while a Deployment of webhooks
is updated, replicas of two versions that disagree about the order would rewrite each other's configuration."""
_OURS = f"{names.GROUP.replace('.', '-')}-{names.VERSION}"


def reviewed_kinds(frameworks: Iterable[str], declared: Iterable[ReviewedKind] = ()) -> dict[str, ReviewedKind]:
    """Return enabled kinds with webhooks, by framework; kinds that are queued through their pods include pods.

    `declared`: kinds that users have declared; they are always on.
    """
    wanted = set(frameworks)
    ordered = sorted(FRAMEWORKS, key=lambda framework: framework not in _FIRST)
    found = {f: REVIEWED[f] for f in ordered if f in wanted and f in REVIEWED}
    if _PODS in wanted or implies_pods(wanted):
        found[_PODS] = ReviewedPod(found)
    return found | {kind.framework: kind for kind in declared}


def reviewed_groups(frameworks: Iterable[str]) -> list[ReviewedGroup]:
    """Return the group objects with webhooks of the dialects that are on."""
    return [REVIEWED_GROUPS[name] for name in switched_on(set(frameworks)) if name in REVIEWED_GROUPS]


def routes(
    frameworks: Iterable[str],
    switches: JobFeatures,
    *,
    policy: Policy | None = None,
    lookups: ReviewLookups | None = None,
    declared: Iterable[ReviewedKind] = (),
) -> dict[str, Handler]:
    """Return the handler of each path, for all kinds; handlers of disabled kinds allow every request.

    Without `policy`, objects without a queue are not managed; without `lookups`, each object is reviewed without its
    context.
    """
    observer = JobContextFinder(policy or Policy(switches=switches), lookups)
    kinds = reviewed_kinds(frameworks, declared)
    found: dict[str, Handler] = {
        f"/{word}-{row.webhook_path}": _allow for row in FRAMEWORKS.values() for word in ("mutate", "validate")
    }
    mutating: dict[tuple[str, str], Handler] = {}
    for kind in kinds.values():
        found[f"/mutate-{webhook_path(kind)}"] = mutating[kind.gvk.group, kind.gvk.kind] = _mutate_job(kind, observer)
        found[f"/validate-{webhook_path(kind)}"] = _validate_job(kind, observer)
    found[DEFAULT_QUEUE_PATH] = _by_kind(mutating)
    for path, group in _group_paths():
        found[path] = _allow
        if group.framework in switches.gangs:
            found[path] = (
                _mutate_job(group, observer) if path.startswith("/mutate") else _validate_group(group, observer)
            )
    for (word, kind_name), check in _own_kinds(switches).items():
        gvk = GroupVersionKind(names.GROUP, names.VERSION, kind_name)
        found[f"/{word}-{_OURS}-{kind_name.lower()}"] = _own(check, gvk)
    return found


def _own_kinds(switches: JobFeatures) -> dict[tuple[str, str], Check]:
    def workload(request: Request) -> ReviewResult:
        part = request.subresource
        return ReviewResult(
            problems=ratcheted(request, lambda o, old: workloads.problems(o, old, switches, subresource=part))
        )

    def cluster_queue(request: Request) -> ReviewResult:
        def judge(obj: JSON, old: JSON | None) -> list[FieldError]:
            return quota.cluster_queue_problems(obj, old, switches)

        if switches.strict_on_flavors:  # the feature gate demands it: old mistakes block every update
            return ReviewResult(problems=judge(request.obj, request.old))
        return ReviewResult(problems=ratcheted(request, judge))

    return {
        ("mutate", "Workload"): lambda r: ReviewResult(patch=workloads.defaults(r.obj, switches)),
        ("validate", "Workload"): workload,
        ("mutate", "ClusterQueue"): lambda r: ReviewResult(patch=quota.finalizer(r.obj)),
        ("validate", "ClusterQueue"): cluster_queue,
        ("mutate", "ResourceFlavor"): lambda r: ReviewResult(patch=quota.finalizer(r.obj)),
        ("validate", "ResourceFlavor"): lambda r: ReviewResult(
            problems=ratcheted(r, lambda o, _: quota.flavor_problems(o))
        ),
        ("validate", "Cohort"): lambda r: ReviewResult(
            problems=ratcheted(r, lambda o, _: quota.cohort_problems(o)), warnings=quota.cohort_warnings(r.obj)
        ),
    }


def ratcheted(request: Request, judge: Callable[[JSON, JSON | None], Sequence[FieldError]]) -> list[FieldError]:
    """Return the mistakes of a request, without the mistakes that the stored object has already.

    An update may keep an old mistake, because newer versions of kqueue add rules and the update may change other
    fields.  `judge` finds the mistakes of an object after and before (None on create).
    """
    found = list(judge(request.obj, request.old))
    if not found or request.old is None:
        return found
    before = judge(request.old, request.old)
    return [problem for problem in found if problem not in before]


async def _allow(_request: Request) -> ReviewResult:
    return ALLOWED


def _own(check: Check, gvk: GroupVersionKind) -> Handler:
    async def answer(request: Request) -> ReviewResult:
        return _misdirected(request, gvk) or check(request)

    return answer


def _by_kind(handlers: Mapping[tuple[str, str], Handler]) -> Handler:
    """Return a handler that calls the handler of the object's kind."""

    async def answer(request: Request) -> ReviewResult:
        handler = handlers.get((request.group, request.kind))
        if handler is not None:
            return await handler(request)
        known = ", ".join(sorted(kind for _, kind in handlers)) or "nothing"
        return _wrong_kind(request, f"this webhook answers for {known}")

    return answer


def _mutate_job(kind: ReviewedKind, observer: JobContextFinder) -> Handler:
    async def answer(request: Request) -> ReviewResult:
        misdirected = _misdirected(request, kind.gvk)
        if misdirected is not None:
            return misdirected
        try:
            around = await observer.at_creation(request)
            patch = kind.defaults(request.obj, around)
            if await observer.is_dispatched(kind, request, patch, around):
                patch = dispatched(kind, request.obj, patch)
        except LookupFailedError as e:
            return _unknown(e)
        except InvalidObjectError as e:
            return ReviewResult(problems=e.errors)
        return ReviewResult(patch=patch)

    return answer


def _validate_job(kind: ReviewedKind, observer: JobContextFinder) -> Handler:
    async def answer(request: Request) -> ReviewResult:
        misdirected = _misdirected(request, kind.gvk)
        if misdirected is not None:
            return misdirected
        try:
            around = await observer.at_change(request, starts=_starts(kind, request))
            complete = await observer.completer(kind, request)
        except LookupFailedError as e:
            return _unknown(e)
        except InvalidObjectError as e:
            return ReviewResult(problems=e.errors)

        def judge(obj: JSON, old: JSON | None) -> list[FieldError]:
            before = complete(old) if old is not None else None
            return [*kind.problems(complete(obj), before, around), *node_classes.request_problems(obj)]

        problems = ratcheted(request, judge)
        if around.not_admitted:
            problems.append(FieldError(kind.held_by, _STAYS_HELD.format(kind.gvk.kind)))
        warnings = [*kind.warnings(complete(request.obj), around), *_strangers(request, around)]
        if not problems:
            warnings += await observer.warnings(request)
        return ReviewResult(problems=problems, warnings=warnings)

    return answer


def _group_paths() -> Iterator[tuple[str, ReviewedGroup]]:
    """Yield the paths of all group objects of gangs; objects of other projects are not mutated."""
    for group in REVIEWED_GROUPS.values():
        yield f"/validate-{webhook_path(group)}", group
        if group.is_ours:
            yield f"/mutate-{webhook_path(group)}", group


def _validate_group(group: ReviewedGroup, observer: JobContextFinder) -> Handler:
    async def answer(request: Request) -> ReviewResult:
        misdirected = _misdirected(request, group.gvk)
        if misdirected is not None:
            return misdirected
        obj, old = request.obj, request.old
        try:
            needs_quota = old is not None and group.may_need_quota(obj, old)
            around = await observer.of_group(request, group.framework, needs_quota=needs_quota)
        except LookupFailedError as e:
            return _unknown(e)
        problems = ratcheted(
            request, lambda new, before: [*group.problems(new, before, around), *node_classes.request_problems(new)]
        )
        warnings = _strangers(request, around)
        if await observer.is_group_queued(request, around):
            warnings += group.warnings(obj, around)
            level = group.level(obj)
            if level is not None and not await observer.is_level(level[0]):
                warnings.append(level[1])
            warnings += [] if problems else await observer.warnings(request)
        return ReviewResult(problems=problems, warnings=warnings)

    return answer


def _starts(kind: ReviewedKind, request: Request) -> bool:
    """Whether an update removes the suspension or the gate of a job."""
    return request.old is not None and kind.holds_back(request.old) and not kind.holds_back(request.obj)


_STAYS_HELD = (
    "the {} waits for admission and is held back until then; kqueue starts it when it is admitted: leave this field "
    "out of what you apply, or send it as it is"
)


def _strangers(request: Request, around: JobContext) -> list[str]:
    """Warn about a queue name in a place that no component reads."""
    if around.managed_namespace or not rules.queue_name(request.obj):
        return []
    return [f"namespace {request.namespace} is not managed (managedJobsNamespaceSelector): the queue is never asked"]


def _misdirected(request: Request, gvk: GroupVersionKind) -> ReviewResult | None:
    """Return a refusal if the object's kind is not the path's (in any version), else None."""
    if not request.kind or (request.group, request.kind) == (gvk.group, gvk.kind):
        return None
    return _wrong_kind(request, f"this webhook answers for {gvk.kind} of {gvk.api_version}")


def _wrong_kind(request: Request, answers_for: str) -> ReviewResult:
    asked = f"{request.kind or 'an object without kind'} of {request.group or 'the core group'}"
    sentence = f"{answers_for}, and was asked about {asked}; correct rules or path in the webhook configuration"
    return ReviewResult(fault=Fault(400, "BadRequest", sentence))


def _unknown(error: LookupFailedError) -> ReviewResult:
    return ReviewResult(fault=Fault(503, "ServiceUnavailable", f"{error}; nothing was changed, try again"))
