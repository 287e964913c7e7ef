"""Calls of admission webhooks, as Mutating- and ValidatingWebhookConfigurations define them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp
import jsonpatch

from kqueue.errors import ApiError
from kqueue.sandbox import expression, failure, selectors
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.metadata import new_uid
from kqueue.sandbox.objects import Objects, WriteOptions
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import copied

GROUP = "admissionregistration.k8s.io"
MUTATING = GroupVersionResource(GROUP, "v1", "mutatingwebhookconfigurations")
VALIDATING = GroupVersionResource(GROUP, "v1", "validatingwebhookconfigurations")
SERVICES = GroupVersionResource("", "v1", "services")
ENDPOINTS = GroupVersionResource("", "v1", "endpoints")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
LARGEST_ANSWER = 8 * 1024 * 1024

Address = tuple[str, int]
Resolver = Callable[[str, str, int], Address | None]
"""Maps a Service's namespace, name and port to an address; None when it is not known."""


class Operation(StrEnum):
    """Operations of admission reviews."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class CallError(Exception):
    """A webhook could not be called, or its answer is invalid."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of one configuration, ready to be matched."""

    name: str
    spec: Object
    namespaces: selectors.LabelRequirements
    objects: selectors.LabelRequirements
    conditions: tuple[Callable[[expression.Scope], bool], ...]
    tls: ssl.SSLContext
    url: str
    service: Object | None

    @property
    def ignores_failure(self) -> bool:
        """Whether the write goes on after a failed call."""
        return bool(self.spec["failurePolicy"] == "Ignore")

    def has_rule(self, kind: ServedKind, operation: Operation, subresource: str) -> bool:
        """Whether one of its rules names the kind, the operation and the scope."""
        path = f"{kind.resource.plural}/{subresource}" if subresource else kind.resource.plural
        return any(_rule_holds(rule, kind, operation, path) for rule in self.spec.get("rules") or ())


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
        self._session: aiohttp.ClientSession | None = None
        self.resolve: Resolver = self._from_endpoints
        """Finds a Service's address; by default from its Endpoints.  A caller may set another function."""
        api.listen(self._on_change)

    def _on_change(self, kind: ServedKind, _: object) -> None:
        if kind.resource in self._hooks:
            configurations = self._api.every(kind.resource)
            self._hooks[kind.resource] = [
                _hook(webhook) for each in configurations for webhook in each.get("webhooks") or ()
            ]

    def _from_endpoints(self, namespace: str, name: str, port: int) -> Address | None:
        endpoints = self._api.find(ENDPOINTS, name, namespace)
        for subset in (endpoints or {}).get("subsets") or ():
            for address in subset.get("addresses") or ():
                ports = subset.get("ports") or [{"port": port}]
                return str(address["ip"]), int(ports[0]["port"])
        return None

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
        mutating = [h for h in self._hooks[MUTATING] if h.has_rule(kind, operation, subresource)]
        validating = [h for h in self._hooks[VALIDATING] if h.has_rule(kind, operation, subresource)]
        if not mutating and not validating:
            return None
        return AdmissionCall(self, kind, operation, subresource, new, old, options, mutating, validating)

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
        url, name = self._address(hook)
        timeout = aiohttp.ClientTimeout(total=hook.spec["timeoutSeconds"])
        body = json.dumps(review).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            async with self._open().post(
                url,
                data=body,
                headers=headers,
                timeout=timeout,
                ssl=hook.tls,
                server_hostname=name,
                allow_redirects=False,
            ) as answer:
                text = await _read(answer)
                if answer.status != 200:
                    raise CallError(f'Post "{hook.url}": the server answered {answer.status}: {text[:200]!r}')
        except TimeoutError as error:
            raise CallError(
                f'Post "{hook.url}": context deadline exceeded after {hook.spec["timeoutSeconds"]} s'
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise CallError(f'Post "{hook.url}": {cause(error)}') from error
        return _response(text, review["request"]["uid"])

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def close(self) -> None:
        """Close connections to webhooks."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _address(self, hook: Hook) -> tuple[str, str | None]:
        """Return the URL to connect to, and the server name in the certificate (None: the URL's)."""
        service = hook.service
        if service is None:
            return hook.url, None
        namespace, name, port = service["namespace"], service["name"], service["port"]
        address = self.resolve(namespace, name, port)
        if address is None:
            present = self._api.find(SERVICES, name, namespace)
            why = "no endpoints available for service" if present else "service not found:"
            raise CallError(f'Post "{hook.url}": {why} "{name}" in namespace "{namespace}"')
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        path = service.get("path", "/")
        return f"https://{host}:{address[1]}{path}", f"{name}.{namespace}.svc"


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Return the whole body.  Raises CallError if it is too long."""
    parts = bytearray()
    async for part in answer.content.iter_any():
        parts += part
        if len(parts) > LARGEST_ANSWER:
            raise CallError(f"the answer is longer than {LARGEST_ANSWER} bytes")
    return bytes(parts)


def _hook(spec: Object) -> Hook:
    client = spec["clientConfig"]
    service = client.get("service")
    if service is None:
        url = client["url"]
    else:
        url = f"https://{service['name']}.{service['namespace']}.svc:{service['port']}{service.get('path', '/')}"
    return Hook(
        name=spec["name"],
        spec=spec,
        namespaces=selectors.from_object(spec["namespaceSelector"]),
        objects=selectors.from_object(spec["objectSelector"]),
        conditions=tuple(expression.compiled(c["expression"]) for c in spec.get("matchConditions") or ()),
        tls=_tls(client.get("caBundle", "")),
        url=url,
        service=service,
    )


def _tls(bundle: str) -> ssl.SSLContext:
    pem = base64.b64decode(bundle).decode("ascii", "replace")
    try:
        return ssl.create_default_context(cadata=pem) if pem.strip() else ssl.create_default_context()
    except ssl.SSLError:
        return ssl.create_default_context()  # the call then fails with a verification error


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
    mutating: list[Hook]
    validating: list[Hook]

    async def mutate(self, obj: Object) -> Object:
        """Call the mutating webhooks in order; return the changed object, or `obj` itself without changes.

        A webhook with `reinvocationPolicy: IfNeeded` is called once more if a later one changed the object.

        Raises:
            ForbiddenError and other ApiErrors: a webhook refused, or failed and its policy is Fail.
        """
        current = obj
        again: list[Hook] = []
        for index, hook in enumerate(self.mutating):
            after = await self._mutated(hook, current)
            if after is not current:
                earlier = self.mutating[:index]
                again += [h for h in earlier if h.spec["reinvocationPolicy"] == "IfNeeded" and h not in again]
            current = after
        for hook in again:
            current = await self._mutated(hook, current)
        return current

    async def _mutated(self, hook: Hook, current: Object) -> Object:
        response = await self._ask(hook, current)
        if response is None or not response.get("patch"):
            return current
        try:
            if response.get("patchType") != "JSONPatch":
                raise CallError(f"the patch type {response.get('patchType')!r} is not JSONPatch")
            operations = json.loads(base64.b64decode(response["patch"], validate=True))
            changed: Object = jsonpatch.JsonPatch(operations).apply(copied(current), in_place=True)
            if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
                raise CallError("the patch leaves no object")
        except (CallError, ValueError, TypeError, KeyError, jsonpatch.JsonPatchException,
                jsonpatch.JsonPointerException) as error:  # fmt: skip
            problem = error if isinstance(error, CallError) else CallError(f"its patch cannot be applied: {error}")
            self._failed(hook, problem)
            return current
        return current if changed == current else changed

    async def validate(self, obj: Object) -> None:
        """Call all validating webhooks concurrently.  Raises as `mutate`; the first error in their order."""
        if not self.validating:
            return
        outcomes = await asyncio.gather(*(self._ask(hook, obj) for hook in self.validating), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _ask(self, hook: Hook, obj: Object) -> Object | None:
        """Return the response that allows the write; None if the webhook does not match or its failure is ignored."""
        try:
            if not self._concerns(hook, obj):
                return None
            if self.options.dry_run and hook.spec["sideEffects"] not in ("None", "NoneOnDryRun"):
                raise failure.bad_request(f'admission webhook "{hook.name}" does not support dry run')
            response = await self.admission.post(hook, self._review(obj))
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

    def _concerns(self, hook: Hook, obj: Object) -> bool:
        """Whether selectors and conditions match this write.  Raises ExpressionError."""
        either = [each for each in (obj, self.old) if each is not None]
        labels = self.admission.namespace_labels(self.kind, either[0])
        if labels is not None and not hook.namespaces.selects(labels):
            return False
        if not any(hook.objects.selects(each["metadata"].get("labels")) for each in either):
            return False
        return not hook.conditions or self._conditions_hold(hook, obj)

    def _conditions_hold(self, hook: Hook, obj: Object) -> bool:
        deleting = self.operation is Operation.DELETE
        scope: expression.Scope = {
            "object": None if deleting else obj,
            "oldObject": self.old,
            "request": self._request(obj),
        }
        problem: expression.ExpressionError | None = None
        for condition in hook.conditions:
            try:
                if not condition(scope):
                    return False
            except expression.ExpressionError as error:
                problem = error
        if problem is not None:
            raise problem
        return True

    def _review(self, obj: Object) -> Object:
        request = self._request(obj) | {"uid": self.admission.review_uid()}
        request["object"] = None if self.operation is Operation.DELETE else obj
        request["oldObject"] = self.old
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    def _request(self, obj: Object) -> Object:
        resource = self.kind.resource
        kind = {"group": resource.group, "version": resource.version, "kind": self.kind.kind}
        path = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        out: Object = {
            "kind": kind,
            "resource": path,
            "requestKind": kind,
            "requestResource": path,
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


def _denied(hook: Hook, status: dict[str, Any]) -> ApiError:
    message = status.get("message") or status.get("reason") or ""
    text = f'admission webhook "{hook.name}" denied the request'
    text += f": {message}" if message else " without explanation"
    return failure.by_status(int(status.get("code") or 403), str(status.get("reason") or "Forbidden"), text)


def cause(error: Exception) -> str:
    """Return the text of a client error without the Python objects in it."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        why = os.strerror(error.os_error.errno).lower() if error.os_error.errno else str(error.os_error)
        return f"dial tcp {error.host}:{error.port}: connect: {why}"
    return str(error)
