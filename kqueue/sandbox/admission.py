"""Calls of admission webhooks, as Mutating- and ValidatingWebhookConfigurations define them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import jsonpatch

from kqueue.errors import ApiError
from kqueue.sandbox import expression, failure, selectors
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.metadata import new_uid
from kqueue.sandbox.objects import Objects, WriteOptions
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import copied
from kqueue.sandbox.webhook_client import CallError, Resolver, WebhookClient, WebhookTarget, target_of

GROUP = "admissionregistration.k8s.io"
MUTATING = GroupVersionResource(GROUP, "v1", "mutatingwebhookconfigurations")
VALIDATING = GroupVersionResource(GROUP, "v1", "validatingwebhookconfigurations")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")


class Operation(StrEnum):
    """Operations of admission reviews."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of one configuration, ready to be matched."""

    name: str
    spec: Object
    namespaces: selectors.LabelRequirements
    objects: selectors.LabelRequirements
    conditions: tuple[Callable[[expression.Scope], bool], ...]
    target: WebhookTarget
    _rules_hold: dict[tuple[GroupVersionResource, bool, str, str], bool] = field(init=False, default_factory=dict)
    """The answers of `has_rule` so far."""

    @property
    def url(self) -> str:
        """URL of the webhook; of a Service its name in the cluster."""
        return self.target.url

    @property
    def ignores_failure(self) -> bool:
        """Whether the write goes on after a failed call."""
        return bool(self.spec["failurePolicy"] == "Ignore")

    def has_rule(self, kind: ServedKind, operation: Operation, subresource: str) -> bool:
        """Whether one of its rules names the kind, the operation and the scope."""
        asked = (kind.resource, kind.namespaced, operation, subresource)
        known = self._rules_hold.get(asked)
        if known is None:
            path = f"{kind.resource.plural}/{subresource}" if subresource else kind.resource.plural
            known = any(_rule_holds(rule, kind, operation, path) for rule in self.spec.get("rules") or ())
            self._rules_hold[asked] = known
        return known


@dataclass(frozen=True, slots=True)
class MatchedHook:
    """A webhook that a write concerns, and the kind, in the version of its rule, in which it gets the object."""

    hook: Hook
    kind: ServedKind


def _rule_holds(rule: Object, kind: ServedKind, operation: Operation, path: str) -> bool:
    def lists(key: str, value: str) -> bool:
        return "*" in rule[key] or value in rule[key]

    plural, _, subresource = path.partition("/")
    shapes = {path, "*/*", f"{plural}/*", f"*/{subresource}" if subresource else "*"}
    return (
        lists("operations", operation)
        and lists("apiGroups", kind.resource.group)
        and lists("apiVersions", kind.resource.version)
        and not shapes.isdisjoint(rule["resources"])
        and rule["scope"] in ("*", "Namespaced" if kind.namespaced else "Cluster")
    )


class AdmissionWebhooks:
    """All registered webhooks.

    Args:
        api: has the configurations, services and namespaces.
    """

    def __init__(self, api: Objects) -> None:
        self._api = api
        self._hooks: dict[GroupVersionResource, list[Hook]] = {MUTATING: [], VALIDATING: []}
        self.client = WebhookClient(api)
        api.listen(self._on_change)

    def _on_change(self, kind: ServedKind, _: object) -> None:
        if kind.resource in self._hooks:
            configurations = self._api.every(kind.resource)
            self._hooks[kind.resource] = [
                _hook(webhook) for each in configurations for webhook in each.get("webhooks") or ()
            ]

    @property
    def resolve(self) -> Resolver:
        """Finds a Service's address.  A caller may set another function."""
        return self.client.resolve

    @resolve.setter
    def resolve(self, resolver: Resolver) -> None:
        self.client.resolve = resolver

    def calls(
        self,
        kind: ServedKind,
        operation: Operation,
        subresource: str,
        new: Object | None,
        old: Object | None,
        options: WriteOptions,
    ) -> AdmissionCall | None:
        """Return the webhooks with a rule for this write, or None, the usual case."""
        if kind.resource.group == GROUP:
            return None  # so that a webhook cannot block its own removal
        mutating = self._matching(MUTATING, kind, operation, subresource)
        validating = self._matching(VALIDATING, kind, operation, subresource)
        if not mutating and not validating:
            return None
        return AdmissionCall(self, kind, operation, subresource, new, old, options, mutating, validating)

    def _matching(
        self, configurations: GroupVersionResource, kind: ServedKind, operation: Operation, subresource: str
    ) -> list[MatchedHook]:
        """Return the webhooks with a rule for the kind, or, if they match equivalents, for another version of it."""
        found, versions = [], self._api.forms.other_versions(kind)
        for hook in self._hooks[configurations]:
            if hook.has_rule(kind, operation, subresource):
                found.append(MatchedHook(hook, kind))
            elif versions and hook.spec.get("matchPolicy") == "Equivalent":
                other = next((each for each in versions if hook.has_rule(each, operation, subresource)), None)
                found += [] if other is None else [MatchedHook(hook, other)]
        return found

    def namespace_labels(self, kind: ServedKind, obj: Object) -> dict[str, str] | None:
        """Return labels of the object's namespace, or of a namespace itself; None for cluster-wide objects."""
        if kind.kind == "Namespace":
            return obj["metadata"].get("labels") or {}
        if not kind.namespaced:
            return None
        namespace = self._api.find(NAMESPACES, obj["metadata"].get("namespace", ""))
        return ((namespace or {}).get("metadata") or {}).get("labels") or {}

    def review_uid(self) -> str:
        """Return a new uid for one review."""
        return new_uid(self._api.chance)

    async def post(self, hook: Hook, review: Object) -> Object:
        """Send one review and return the answer.  Raises CallError."""
        text = await self.client.post(hook.target, review, hook.spec["timeoutSeconds"])
        return _response(text, review["request"]["uid"])

    async def converted(self, kind: ServedKind, obj: Object) -> Object:
        """Return an object in the version of `kind`."""
        return await self._api.forms.converted(kind, obj, kind.api_version)

    async def close(self) -> None:
        """Close connections to webhooks."""
        await self.client.close()


def _hook(spec: Object) -> Hook:
    return Hook(
        name=spec["name"],
        spec=spec,
        namespaces=selectors.from_object(spec["namespaceSelector"]),
        objects=selectors.from_object(spec["objectSelector"]),
        conditions=tuple(expression.compiled(c["expression"]) for c in spec.get("matchConditions") or ()),
        target=target_of(spec["clientConfig"]),
    )


def _response(text: bytes, uid: str) -> Object:
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise CallError(f"the answer is not JSON: {text[:100]!r}") from error
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict) or answer.get("kind") != "AdmissionReview":
        raise CallError("the answer is not an AdmissionReview with a response")
    if answer.get("apiVersion") != "admission.k8s.io/v1":
        raise CallError(f"expected response.apiVersion=admission.k8s.io/v1, got {answer.get('apiVersion')}")
    if response.get("uid") != uid:
        raise CallError(f'expected response.uid="{uid}", got "{response.get("uid")}"')
    if not isinstance(response.get("allowed"), bool):
        raise CallError("the response does not say whether the request is allowed")
    return response


@dataclass(frozen=True, slots=True)
class AdmissionCall:
    """All webhooks of one write.  Selectors and conditions are evaluated just before each call."""

    admission: AdmissionWebhooks
    kind: ServedKind
    operation: Operation
    subresource: str
    new: Object | None
    old: Object | None
    options: WriteOptions
    mutating: list[MatchedHook]
    validating: list[MatchedHook]

    async def mutate(self, obj: Object) -> Object:
        """Call the mutating webhooks in order; return the changed object, or `obj` itself without changes.

        A webhook with `reinvocationPolicy: IfNeeded` is called once more if a later one changed the object.

        Raises:
            ForbiddenError and other ApiErrors: a webhook refused, or failed and its policy is Fail.
        """
        current = obj
        again: list[MatchedHook] = []
        for index, matched in enumerate(self.mutating):
            after = await self._mutated(matched, current)
            if after is not current:
                earlier = self.mutating[:index]
                again += [m for m in earlier if m.hook.spec["reinvocationPolicy"] == "IfNeeded" and m not in again]
            current = after
        for matched in again:
            current = await self._mutated(matched, current)
        return current

    async def _mutated(self, matched: MatchedHook, current: Object) -> Object:
        hook = matched.hook
        asked = await self.admission.converted(matched.kind, current)
        response = await self._ask(matched, asked)
        if response is None or not response.get("patch"):
            return current
        try:
            if response.get("patchType") != "JSONPatch":
                raise CallError(f"the patch type {response.get('patchType')!r} is not JSONPatch")
            operations = json.loads(base64.b64decode(response["patch"], validate=True))
            changed: Object = jsonpatch.JsonPatch(operations).apply(copied(asked), in_place=True)
            if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
                raise CallError("the patch leaves no object")
        except (CallError, ValueError, TypeError, KeyError, jsonpatch.JsonPatchException,
                jsonpatch.JsonPointerException) as error:  # fmt: skip
            problem = error if isinstance(error, CallError) else CallError(f"its patch cannot be applied: {error}")
            self._failed(hook, problem)
            return current
        return current if changed == asked else await self.admission.converted(self.kind, changed)

    async def validate(self, obj: Object) -> None:
        """Call all validating webhooks concurrently.  Raises as `mutate`; the first error in their order."""
        if not self.validating:
            return
        outcomes = await asyncio.gather(*(self._judged(each, obj) for each in self.validating), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _judged(self, matched: MatchedHook, obj: Object) -> None:
        await self._ask(matched, await self.admission.converted(matched.kind, obj))

    async def _ask(self, matched: MatchedHook, obj: Object) -> Object | None:
        """Return the response that allows the write; None if the webhook does not match or its failure is ignored."""
        hook = matched.hook
        old = None if self.old is None else await self.admission.converted(matched.kind, self.old)
        try:
            if not self._concerns(matched, obj, old):
                return None
            if self.options.dry_run and hook.spec["sideEffects"] not in ("None", "NoneOnDryRun"):
                raise failure.bad_request(f'admission webhook "{hook.name}" does not support dry run')
            response = await self.admission.post(hook, self._review(matched.kind, obj, old))
        except (CallError, expression.ExpressionError) as error:
            self._failed(hook, error)
            return None
        for warning in response.get("warnings") or ():
            self.options.warnings.append(str(warning))
        if not response["allowed"]:
            raise _denied(hook, response.get("status") or {})
        return response

    def _failed(self, hook: Hook, error: Exception) -> None:
        if not hook.ignores_failure:
            raise failure.internal(f'failed calling webhook "{hook.name}": failed to call webhook: {error}') from error

    def _concerns(self, matched: MatchedHook, obj: Object, old: Object | None) -> bool:
        """Whether selectors and conditions match this write.  Raises ExpressionError."""
        hook = matched.hook
        either = [each for each in (obj, old) if each is not None]
        labels = self.admission.namespace_labels(self.kind, either[0])
        if labels is not None and not hook.namespaces.selects(labels):
            return False
        if not any(hook.objects.selects(each["metadata"].get("labels")) for each in either):
            return False
        return not hook.conditions or self._conditions_hold(matched, obj, old)

    def _conditions_hold(self, matched: MatchedHook, obj: Object, old: Object | None) -> bool:
        deleting = self.operation is Operation.DELETE
        scope: expression.Scope = {
            "object": None if deleting else obj,
            "oldObject": old,
            "request": self._request(matched.kind, obj),
        }
        problem: expression.ExpressionError | None = None
        for condition in matched.hook.conditions:
            try:
                if not condition(scope):
                    return False
            except expression.ExpressionError as error:
                problem = error
        if problem is not None:
            raise problem
        return True

    def _review(self, kind: ServedKind, obj: Object, old: Object | None) -> Object:
        request = self._request(kind, obj) | {"uid": self.admission.review_uid()}
        request["object"] = None if self.operation is Operation.DELETE else obj
        request["oldObject"] = old
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    def _request(self, asked: ServedKind, obj: Object) -> Object:
        kind, resource = _names(asked)
        request_kind, request_resource = _names(self.kind)
        out: Object = {
            "kind": kind,
            "resource": resource,
            "requestKind": request_kind,
            "requestResource": request_resource,
            "name": obj["metadata"].get("name", ""),
            "operation": str(self.operation),
            "userInfo": {"username": self.options.user, "groups": list(self.options.groups)},
            "dryRun": self.options.dry_run,
            "options": {"kind": f"{self.operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
        }
        if self.kind.namespaced:
            out["namespace"] = obj["metadata"].get("namespace", "")
        elif self.kind.kind == "Namespace":
            out["namespace"] = out["name"]
        if self.subresource:
            out["subResource"] = out["requestSubResource"] = self.subresource
        return out


def _names(kind: ServedKind) -> tuple[Object, Object]:
    """Return kind and resource as reviews name them."""
    found = kind.resource
    version = {"group": found.group, "version": found.version}
    return {**version, "kind": kind.kind}, {**version, "resource": found.plural}


def _denied(hook: Hook, status: dict[str, Any]) -> ApiError:
    message = status.get("message") or status.get("reason") or ""
    text = f'admission webhook "{hook.name}" denied the request'
    text += f": {message}" if message else " without explanation"
    return failure.by_status(int(status.get("code") or 403), str(status.get("reason") or "Forbidden"), text)
