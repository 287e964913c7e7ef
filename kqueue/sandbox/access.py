"""Users of the sandbox and their rights.

A client without credentials is the administrator.  With impersonation, or with the token of a ServiceAccount, a client
has the rights of its roles and bindings, and may read discovery documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from kqueue.errors import ForbiddenError
from kqueue.sandbox import failure, selectors
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.route import ResourcePath, flag

if TYPE_CHECKING:
    from kqueue.sandbox.cluster_api import ClusterApi

RBAC = "rbac.authorization.k8s.io"
MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"
CLUSTER_ROLES, CLUSTER_BINDINGS = (
    GroupVersionResource(RBAC, "v1", "clusterroles"),
    GroupVersionResource(RBAC, "v1", "clusterrolebindings"),
)
ROLES, BINDINGS = GroupVersionResource(RBAC, "v1", "roles"), GroupVersionResource(RBAC, "v1", "rolebindings")
_LOOKED_AT = ("/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version")
_ACCOUNT = "system:serviceaccount:"
_VERBS = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", True): "create",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}


@dataclass(frozen=True, slots=True)
class SandboxUser:
    """A user with groups, as in a SubjectAccessReview."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def as_json(self) -> Object:
        """Return the user as JSON for reviews."""
        out: Object = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            out["uid"] = self.uid
        if self.extra:
            out["extra"] = {key: list(values) for key, values in self.extra}
        return out


ADMIN = SandboxUser("system:admin", (MASTERS, AUTHENTICATED))


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAttempt:
    """A request to authorize; `path` is set for paths that are no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def attempt_of(spec: Object) -> AccessAttempt:
    """Return the attempt in the `spec` of an access review."""
    asked = spec.get("resourceAttributes") or spec.get("nonResourceAttributes") or {}
    known = ("verb", "group", "resource", "subresource", "namespace", "name", "path")
    return AccessAttempt(**{"verb": "", **{key: str(asked[key]) for key in known if asked.get(key)}})


def account(namespace: str, name: str) -> SandboxUser:
    """Return the user of a ServiceAccount."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return SandboxUser(f"{_ACCOUNT}{namespace}:{name}", groups)


def attempt(request: web.BaseRequest, found: ResourcePath | None) -> AccessAttempt:
    """Return the attempt of an HTTP request."""
    if found is None:
        return AccessAttempt(verb=request.method.lower(), path=request.path)
    verb = _VERBS.get((request.method, bool(found.name)), request.method.lower())
    return AccessAttempt(
        verb="watch" if verb in ("get", "list") and flag(request.query, "watch") else verb,
        group=found.resource.group,
        resource=found.resource.plural,
        subresource=found.subresource,
        namespace=found.namespace,
        name=found.name,
    )


def impersonated(request: web.BaseRequest) -> SandboxUser | None:
    """Return the user that the request's headers impersonate, or None.

    Raises:
        InvalidError: the headers have groups or extra fields, but no user (400).
    """
    headers, prefix = request.headers, "impersonate-extra-"
    name, groups = headers.get("Impersonate-User", ""), headers.getall("Impersonate-Group", [])
    extra = {key.lower() for key in headers if key.lower().startswith(prefix)}
    if not name:
        if groups or extra or "Impersonate-Uid" in headers:
            raise failure.bad_request("requested impersonation without a user")
        return None
    if name.startswith(_ACCOUNT) and name.count(":") == 3 and not groups:
        return account(*name.split(":")[2:])
    return SandboxUser(
        name,
        tuple(dict.fromkeys([*groups, AUTHENTICATED])),
        headers.get("Impersonate-Uid", ""),
        tuple(sorted((key[len(prefix) :], tuple(headers.getall(key))) for key in extra)),
    )


def refusal(user: SandboxUser, attempt: AccessAttempt) -> ForbiddenError:
    """Return a 403 in the wording of the API server."""
    if attempt.path:
        resource, what = GroupVersionResource("", "", ""), f'path "{attempt.path}"'
        return failure.forbidden(resource, "", f'User "{user.name}" cannot {attempt.verb} {what}')
    plural = f"{attempt.resource}/{attempt.subresource}" if attempt.subresource else attempt.resource
    where = f'in the namespace "{attempt.namespace}"' if attempt.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {attempt.verb} resource "{plural}" in API group "{attempt.group}" {where}'
    return failure.forbidden(GroupVersionResource(attempt.group, "", attempt.resource), attempt.name, why)


def allows(api: ClusterApi, user: SandboxUser, attempt: AccessAttempt) -> bool:
    """Whether a role that is bound to the user, or to one of its groups, allows the attempt."""
    if MASTERS in user.groups:
        return True
    if attempt.path and AUTHENTICATED in user.groups and attempt.verb == "get" and _is_looked_at(attempt.path):
        return True
    return any(_covers(rule, attempt) for rule in _rules(api, user, attempt.namespace))


def _is_looked_at(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in _LOOKED_AT)


def _rules(api: ClusterApi, user: SandboxUser, namespace: str) -> Iterator[Object]:
    for binding in api.every(CLUSTER_BINDINGS):
        if _binds(binding, user):
            yield from _rules_of(api, binding, "")
    for binding in api.every(BINDINGS, namespace) if namespace else ():
        if _binds(binding, user):
            yield from _rules_of(api, binding, namespace)


def _binds(binding: Object, user: SandboxUser) -> bool:
    for subject in binding.get("subjects") or ():
        name = subject.get("name", "")
        match subject.get("kind"):
            case "User" if name == user.name:
                return True
            case "Group" if name in user.groups:
                return True
            case "ServiceAccount" if f"{_ACCOUNT}{subject.get('namespace', '')}:{name}" == user.name:
                return True
    return False


def _rules_of(api: ClusterApi, binding: Object, namespace: str) -> Iterator[Object]:
    reference = binding.get("roleRef") or {}
    if reference.get("kind") == "Role":
        role = api.find(ROLES, reference.get("name", ""), namespace)
        yield from (role or {}).get("rules") or ()
        return
    role = api.find(CLUSTER_ROLES, reference.get("name", "")) or {}
    yield from role.get("rules") or ()
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        chosen = selectors.from_object(selector)
        for other in api.every(CLUSTER_ROLES):
            if chosen.selects(other["metadata"].get("labels")):
                yield from other.get("rules") or ()


def _covers(rule: Object, attempt: AccessAttempt) -> bool:
    if not _lists(rule, "verbs", (attempt.verb, "*")):
        return False
    if attempt.path:
        return any(_matches(pattern, attempt.path) for pattern in rule.get("nonResourceURLs") or ())
    plural = f"{attempt.resource}/{attempt.subresource}" if attempt.subresource else attempt.resource
    whole = ("*", plural, f"*/{attempt.subresource}") if attempt.subresource else ("*", plural)
    names = rule.get("resourceNames") or ()
    return (
        _lists(rule, "apiGroups", (attempt.group, "*"))
        and _lists(rule, "resources", whole)
        and (not names or attempt.name in names)
    )


def _lists(rule: Object, key: str, values: Iterable[str]) -> bool:
    return not set(values).isdisjoint(rule.get(key) or ())


def _matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
