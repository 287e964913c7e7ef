"""Build the webhook configurations: which objects the API server sends to kqueue's webhooks.

The API server sends only objects with the queue label, or in namespaces that opted in, so an outage of kqueue cannot
stop other jobs.  kube-system and kqueue's own namespace are always excluded, so that kqueue's restart never waits for
kqueue.  `docs/decisions` has a record on the ways to opt in, and on the entries that fail closed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.config.selector import SelectorSettings
from kqueue.jobs.catalog import webhook_path
from kqueue.jobs.gang.reviewed import ReviewedGroup
from kqueue.jobs.kind import ReviewedKind
from kqueue.kinds import FRAMEWORKS
from kqueue.kube import names as kube_names
from webhooks.gang_selection import gang_selections, not_of_gangs, outside_gangs
from webhooks.routes import DEFAULT_QUEUE_PATH, reviewed_groups, reviewed_kinds
from webhooks.selectors import absent, condition, exists, selector

JSON = dict[str, Any]

MUTATING_NAME = "kueue-mutating-webhook-configuration"
VALIDATING_NAME = "kueue-validating-webhook-configuration"
MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label with the manager of a configuration; kqueue's configurations have the value `kqueue`."""
OURSELVES = "kqueue"
KEPT_BY = "kqueue.dev/kept-by"
"""Label of a configuration that a chart creates empty and the webhooks fill in; kqueue's have the value `kqueue`."""
MOST_DEFAULT_QUEUES = 5_000
"""Maximum number of listed namespaces with a default LocalQueue: the list stays below 400 KB of the 1.5 MB that etcd
takes for an object."""
_OURS = f"{names.GROUP.replace('.', '-')}-{names.VERSION}"
_FAIL_SECONDS, _IGNORE_SECONDS = 10, 5
"""Time limits of the API server in seconds: for entries that fail closed, and for entries that fail open."""
_ALIVE = condition("not-being-deleted", "!has(object.metadata.deletionTimestamp)")
"""Excludes objects that are being deleted, so that finalizers can be removed during an outage of the webhooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """The address of the webhooks for the API server: a base `url`, or a service by `namespace` and `name`."""

    ca_bundle: bytes
    url: str = ""
    service: str = ""
    namespace: str = ""

    def client_config(self, path: str) -> JSON:
        """Return the `clientConfig` of a webhook."""
        bundle = {"caBundle": base64.b64encode(self.ca_bundle).decode()}
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}", **bundle}
        return {"service": {"name": self.service, "namespace": self.namespace, "path": path, "port": 443}, **bundle}

    def is_asked_by(self, webhook: JSON) -> bool:
        """Whether this entry of a webhook configuration has kqueue's webhooks as its target."""
        client = webhook.get("clientConfig") or {}
        if self.url:
            return str(client.get("url", "")).startswith(f"{self.url.rstrip('/')}/")
        service = client.get("service") or {}
        return (service.get("name"), service.get("namespace")) == (self.service, self.namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookScope:
    """The namespaces and kinds whose objects the API server sends.

    `managed` is `managedJobsNamespaceSelector`; `without_queue` opts all its namespaces in, with objects that name no
    queue.  `default_queues` are the namespaces that have a LocalQueue named `default`.
    """

    frameworks: Sequence[str]
    own_namespace: str
    managed: SelectorSettings = SelectorSettings()  # noqa: RUF009  (frozen)
    without_queue: bool = False
    default_queues: Sequence[str] = ()
    declared: Sequence[ReviewedKind] = ()
    """Kinds that users declare in the configuration file."""


def is_ours(metadata: JSON) -> bool:
    """Whether the webhooks manage the whole configuration: they created it, or a chart created it empty for them."""
    labels = metadata.get("labels") or {}
    return OURSELVES in (labels.get(MANAGED_BY), labels.get(KEPT_BY))


def webhook_configurations(target: WebhookEndpoint, scope: WebhookScope) -> list[JSON]:
    """Return the mutating and the validating configuration.  Kinds that are not enabled have no webhook."""
    kinds = reviewed_kinds(scope.frameworks, scope.declared)
    mutating = [hook for f, kind in kinds.items() for hook in _mutating_hooks(f, kind, target, scope)]
    validating = [hook for f, kind in kinds.items() for hook in _validating_hooks(f, kind, target, scope)]
    if kinds and scope.default_queues and not scope.without_queue:
        mutating.append(_default_queue_hook(kinds.values(), target, scope))
    for group in reviewed_groups(scope.frameworks):
        mutating += _group_mutating_hooks(group, target, scope)
        validating += _group_validating_hooks(group, target, scope)
    for name, plural in (
        ("ClusterQueue", "clusterqueues"),
        ("ResourceFlavor", "resourceflavors"),
        ("Workload", "workloads"),
    ):  # may fail open: reconcilers add finalizers too, and the cache itself decides whether minimum counts apply
        mutating.append(_own_hook("m", name, name, [plural], ["CREATE"], target, fail=False))
    for kind, name, plural, fail in (
        ("ClusterQueue", "ClusterQueue", "clusterqueues", True),
        ("ResourceFlavor", "ResourceFlavor", "resourceflavors", True),
        ("Cohort", "Cohort", "cohorts", True),
        ("Workload", "Workload", "workloads", True),
        # Only controllers write it; without this entry no workload could be admitted, evicted or finished during an
        # outage.
        ("Workload", "WorkloadStatus", "workloads/status", False),
    ):
        validating.append(_own_hook("v", kind, name, [plural], ["CREATE", "UPDATE"], target, fail=fail))
    return [
        _configuration("MutatingWebhookConfiguration", MUTATING_NAME, mutating),
        _configuration("ValidatingWebhookConfiguration", VALIDATING_NAME, validating),
    ]


def _configuration(kind: str, name: str, hooks: list[JSON]) -> JSON:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {MANAGED_BY: OURSELVES}},
        "webhooks": hooks,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _EntrySelection:
    """The objects of one entry of a kind."""

    suffix: str
    """The end of the entry's name."""
    objects: JSON
    namespaces: JSON
    conditions: Sequence[JSON] = ()
    created_only: bool = False
    """Whether updates of these objects are not reviewed."""

    def applied(self, hook: JSON) -> JSON:
        """Return an entry with this selection."""
        conditions = [*hook["matchConditions"], *self.conditions]
        selectors = {"objectSelector": self.objects, "namespaceSelector": self.namespaces}
        return {**hook, **selectors, "matchConditions": conditions}


def _mutating_hooks(framework: str, kind: ReviewedKind, target: WebhookEndpoint, scope: WebhookScope) -> Iterator[JSON]:
    """Return an entry that fails closed: a job that starts unsuspended or ungated bypasses its queue before kqueue can
    stop it."""
    path = f"/mutate-{webhook_path(kind)}"
    verbs = ["CREATE", "UPDATE"] if kind.defaults_on_update else ["CREATE"]
    for selection in _selections(framework, scope):
        name = f"m{_word(framework, kind)}{selection.suffix}.kb.io"
        hook = _hook(name, path, [_rule(kind, verbs)], target, fail=True)
        yield {**selection.applied(hook), "reinvocationPolicy": "Never"}


def _validating_hooks(
    framework: str, kind: ReviewedKind, target: WebhookEndpoint, scope: WebhookScope
) -> Iterator[JSON]:
    """Return an entry that fails open: reconcilers report or correct unchecked changes, and running objects stay
    editable."""
    path = f"/validate-{webhook_path(kind)}"
    for selection in _selections(framework, scope):
        rule = _rule(kind, ["CREATE"] if selection.created_only else ["CREATE", "UPDATE"])
        name = f"v{_word(framework, kind)}{selection.suffix}.kb.io"
        yield selection.applied(_hook(name, path, [rule], target, fail=False))


def _group_mutating_hooks(group: ReviewedGroup, target: WebhookEndpoint, scope: WebhookScope) -> Iterator[JSON]:
    """Return the entry that gives new objects of kqueue's own kind their queue; other projects' objects stay as they
    are.
    """
    if group.is_ours:
        rule = _group_rule(group, ["CREATE"])
        hook = _hook(f"m{group.word}.kb.io", f"/mutate-{webhook_path(group)}", [rule], target, fail=True)
        yield {**hook, "namespaceSelector": selector(_not_protected(scope)), "reinvocationPolicy": "Never"}


def _group_validating_hooks(group: ReviewedGroup, target: WebhookEndpoint, scope: WebhookScope) -> Iterator[JSON]:
    """Return the entries that check group objects.

    They fail open, because the controller reports mistakes, too; only new objects of kqueue's own kind wait for it.
    """
    path = f"/validate-{webhook_path(group)}"
    if not group.is_ours:
        hook = _hook(f"v{group.word}.kb.io", path, [_group_rule(group, ["CREATE", "UPDATE"])], target, fail=False)
        yield {**hook, "namespaceSelector": _managed(scope)}
        return
    for suffix, verb, fail in (("", "CREATE", True), ("-update", "UPDATE", False)):
        hook = _hook(f"v{group.word}{suffix}.kb.io", path, [_group_rule(group, [verb])], target, fail=fail)
        yield {**hook, "namespaceSelector": selector(_not_protected(scope))}


def _group_rule(group: ReviewedGroup, verbs: Sequence[str]) -> JSON:
    return {**_rule(group, verbs), "apiVersions": [each.version for each in group.versions]}


def _word(framework: str, kind: ReviewedKind) -> str:
    """Return the kind for names of entries; a declared kind has its group, as a built-in kind may have its name."""
    name = kind.gvk.kind.lower()
    return name if framework in FRAMEWORKS else f"{name}-{kind.gvk.group.replace('.', '-')}"


def _selections(framework: str, scope: WebhookScope) -> Iterator[_EntrySelection]:
    """Yield the selection of each entry of a kind, without overlaps."""
    everywhere = selector(_not_protected(scope))
    yield _EntrySelection(suffix="", objects=selector(exists(names.QUEUE_NAME_LABEL)), namespaces=everywhere)
    nameless = [absent(names.QUEUE_NAME_LABEL)]
    conditions: Sequence[JSON] = ()
    if framework == "pod":  # pods of a StatefulSet get the queue's name after their creation, from the StatefulSet
        managed = selector(exists(names.MANAGED_LABEL), *nameless)
        yield _EntrySelection(suffix="-managed", objects=managed, namespaces=everywhere)
        nameless.append(absent(names.MANAGED_LABEL))
        yield from _gang_pods(scope, nameless)
        outside = outside_gangs(scope.frameworks)
        nameless += outside.labels
        conditions = outside.conditions
    if scope.without_queue:
        yield _EntrySelection(
            suffix="-unlabelled", objects=selector(*nameless), namespaces=_managed(scope), conditions=conditions
        )


def _gang_pods(scope: WebhookScope, nameless: Sequence[JSON]) -> Iterator[_EntrySelection]:
    """Yield the selections for pods that name a group and no queue, one for each dialect.

    kqueue labels each of these pods that it queues, so an update of a pod without labels is none of its concern.
    """
    for gang in gang_selections(scope.frameworks):
        yield _EntrySelection(
            suffix=f"-{gang.word}",
            objects=selector(*gang.labels, *nameless),
            namespaces=_managed(scope),
            conditions=gang.conditions,
            created_only=True,
        )


def _default_queue_hook(kinds: Iterable[ReviewedKind], target: WebhookEndpoint, scope: WebhookScope) -> JSON:
    """Return one entry for all kinds, so that the namespaces are listed once."""
    rules = [_rule(kind, ["CREATE"]) for kind in kinds]
    listed = sorted(scope.default_queues)[:MOST_DEFAULT_QUEUES]
    namespaces = _managed(scope)
    namespaces["matchExpressions"].append({"key": kube_names.NAMESPACE_NAME_LABEL, "operator": "In", "values": listed})
    selection = _EntrySelection(
        suffix="",
        objects=selector(absent(names.QUEUE_NAME_LABEL), absent(names.MANAGED_LABEL)),
        namespaces=namespaces,
        conditions=not_of_gangs(scope.frameworks),
    )
    hook = _hook("mdefault-queue.kb.io", DEFAULT_QUEUE_PATH, rules, target, fail=True)
    return {**selection.applied(hook), "reinvocationPolicy": "Never"}


def _own_hook(
    letter: str,
    kind: str,
    name: str,
    resources: Sequence[str],
    verbs: Sequence[str],
    target: WebhookEndpoint,
    *,
    fail: bool,
) -> JSON:
    rule = {
        "apiGroups": [names.GROUP],
        "apiVersions": [names.VERSION],
        "resources": list(resources),
        "operations": list(verbs),
        "scope": "Namespaced" if kind == names.WORKLOAD_KIND else "Cluster",
    }
    word = "mutate" if letter == "m" else "validate"
    path = f"/{word}-{_OURS}-{kind.lower()}"
    hook = _hook(f"{letter}{name.lower()}.kb.io", path, [rule], target, fail=fail)
    return hook | ({"reinvocationPolicy": "Never"} if letter == "m" else {})


def _hook(name: str, path: str, rules: Sequence[JSON], target: WebhookEndpoint, *, fail: bool) -> JSON:
    """Return an entry with every field set, also defaults, so that it can be compared with the stored object."""
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": target.client_config(path),
        "failurePolicy": "Fail" if fail else "Ignore",
        "matchConditions": [_ALIVE],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": _FAIL_SECONDS if fail else _IGNORE_SECONDS,
        "rules": list(rules),
    }


def _rule(kind: ReviewedKind, verbs: Sequence[str]) -> JSON:
    return {
        "apiGroups": [kind.gvk.group],
        "apiVersions": [kind.gvk.version],
        "resources": [kind.resource],
        "operations": list(verbs),
        "scope": "Namespaced",
    }


def _not_protected(scope: WebhookScope) -> JSON:
    protected = sorted({"kube-system", scope.own_namespace})
    return {"key": kube_names.NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": protected}


def _managed(scope: WebhookScope) -> JSON:
    """Return `managedJobsNamespaceSelector` in the form of Kubernetes, without the protected namespaces."""
    expressions = [_not_protected(scope)]
    for requirement in scope.managed.match_expressions:
        values = {"values": list(requirement.values)} if requirement.values else {}
        expressions.append({"key": requirement.key, "operator": requirement.operator, **values})
    labels = {"matchLabels": dict(scope.managed.match_labels)} if scope.managed.match_labels else {}
    return {**labels, "matchExpressions": expressions}
