"""The served resources: views, paths, and their description for API discovery."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl

from kqueue.api import names
from kqueue.errors import ConfigError
from kqueue.visibility.question import JSON, View
from kqueue.visibility.rights import Action

KUEUE_VERSIONS = ("v1beta2", "v1beta1")
"""Versions of the compatible group; the first is preferred."""
OUR_VERSION = "v1alpha1"
OUR_API_VERSION = f"{names.KQUEUE_VISIBILITY_GROUP}/{OUR_VERSION}"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_MOST_FIELDS = 16
_TITLE = "kqueue visibility"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogResource:
    """A resource in one group and version: an object, or the list of all objects."""

    group: str
    version: str
    name: str
    """Plural, as in the path."""
    kind: str
    """The kind of the answer."""
    view: View
    subresource: str = ""
    namespaced: bool = False
    is_list: bool = False
    """Whether the resource is a list, whose path has no name."""
    most_bytes: int = 0
    """The largest body of a question that is posted, to a path without a name; 0: the resource is read."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "POST" if self.most_bytes else "GET"

    @property
    def has_name(self) -> bool:
        """Whether the path has a name."""
        return not (self.is_list or self.most_bytes)

    @property
    def verb(self) -> str:
        """The verb for which the user needs a right."""
        if self.most_bytes:
            return "create"
        return "list" if self.is_list else "get"

    @property
    def api_version(self) -> str:
        """The `apiVersion` of answers."""
        return f"{self.group}/{self.version}"

    @property
    def path(self) -> str:
        """The path, with braces in place of the namespace and the name."""
        parts = ["/apis", self.group, self.version, *(["namespaces", "{namespace}"] if self.namespaced else [])]
        return "/".join([*parts, self.name, *(["{name}"] if self.has_name else []), *filter(None, [self.subresource])])


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A path that leads to a resource."""

    resource: CatalogResource
    namespace: str
    name: str

    @property
    def action(self) -> Action:
        """The action for which the user needs a right."""
        resource = self.resource
        return Action(
            verb=resource.verb,
            group=resource.group,
            version=resource.version,
            resource=resource.name,
            subresource=resource.subresource,
            namespace=self.namespace,
            name=self.name,
        )


_Place = tuple[str, str, str, str, bool, bool]


class Catalog:
    """All resources.  It is complete before the server answers the first request."""

    def __init__(self, resources: Iterable[CatalogResource] = ()) -> None:
        self._resources: dict[_Place, CatalogResource] = {}
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        """Called when the server has stopped."""
        for resource in resources:
            self.add(resource)

    def add(self, resource: CatalogResource) -> None:
        """Serve a resource."""
        place = (resource.group, resource.version, resource.name, resource.subresource)
        self._resources[*place, resource.namespaced, not resource.has_name] = resource

    def find(self, path: str) -> ResolvedPath | None:
        """Return the resource of a path, or None.  Paths are not unquoted: names that need quoting do not exist."""
        parts = path.split("/")
        if parts[:2] != ["", "apis"] or len(parts) < 5:
            return None
        group, version, *rest = parts[2:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if len(rest) > 3 or not all(_NAME.fullmatch(part) for part in (*rest, namespace or "none")):
            return None
        plural, name, subresource = (*rest, "", "")[:3]
        found = self._resources.get((group, version, plural, subresource, bool(namespace), not name))
        return ResolvedPath(found, namespace, name) if found is not None else None

    def document(self, path: str) -> JSON | None:
        """Return the discovery document or schema at a path, or None."""
        match path.rstrip("/").split("/")[1:]:
            case ["apis"]:
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [self._group(g) for g in self._groups()]}
            case ["apis", group] if group in self._groups():
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
            case ["apis", group, version] if version in self._groups().get(group, ()):
                return self._resource_list(group, version)
            case ["openapi", "v2"]:
                return self._openapi_2()
            case ["openapi", "v3"]:
                paths = [
                    f"apis/{group}/{version}" for group, versions in self._groups().items() for version in versions
                ]
                return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in paths}}
            case ["openapi", "v3", "apis", group, version] if version in self._groups().get(group, ()):
                return self._openapi_3(group, version)
        return None

    def group_versions(self) -> list[tuple[str, str]]:
        """Return groups and versions, which need an APIService each; the preferred version of a group first."""
        return [(group, version) for group, versions in self._groups().items() for version in versions]

    # --- documents

    def _groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for resource in self._resources.values():
            versions = groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return groups

    def _group(self, name: str) -> JSON:
        versions = [{"groupVersion": f"{name}/{each}", "version": each} for each in self._groups()[name]]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _of(self, group: str, version: str) -> Iterator[CatalogResource]:
        return (each for each in self._resources.values() if (each.group, each.version) == (group, version))

    def _resource_list(self, group: str, version: str) -> JSON:
        """Return the list of resources of a version; the parent of a subresource is in it, even without a verb."""
        found: dict[str, JSON] = {}
        for resource in self._of(group, version):
            plural = resource.name
            whole = found.setdefault(plural, _listed(plural, resource.kind, namespaced=resource.namespaced))
            if resource.subresource:
                name = f"{plural}/{resource.subresource}"
                part = found.setdefault(name, _listed(name, resource.kind, namespaced=resource.namespaced))
                part["verbs"].append(resource.verb)
            else:
                whole["namespaced"] = whole["namespaced"] or resource.namespaced
                if resource.verb not in whole["verbs"]:  # the list of one namespace, and that of all
                    whole["verbs"].append(resource.verb)
                whole["kind"] = resource.kind.removesuffix("List")
        resources = list(found.values())
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}",
            "resources": resources,
        }

    def _openapi_2(self) -> JSON:
        """Return an OpenAPI document with the names of kinds; the documentation describes their fields."""
        answers = {"200": {"description": "OK", "schema": {"type": "object"}}}
        return {
            "swagger": "2.0",
            "info": {"title": _TITLE, "version": OUR_VERSION},
            "paths": {
                each.path: {each.method.lower(): _operation(each, answers, flat=True)}
                for each in self._resources.values()
            },
            "definitions": {},
        }

    def _openapi_3(self, group: str, version: str) -> JSON:
        answers = {"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}}
        return {
            "openapi": "3.0.0",
            "info": {"title": _TITLE, "version": version},
            "paths": {each.path: {each.method.lower(): _operation(each, answers)} for each in self._of(group, version)},
            "components": {"schemas": {}},
        }


def params_of(query: str) -> dict[str, str]:
    """Return the parameters of a query; of a repeated parameter the first value counts.

    Raises:
        ConfigError: the text is no query.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as e:
        raise ConfigError(f"the query cannot be read: more than {_MOST_FIELDS} parameters, or no UTF-8") from e
    return dict(reversed(pairs))


def _listed(name: str, kind: str, *, namespaced: bool) -> JSON:
    plural, _, subresource = name.partition("/")
    one = plural.removesuffix("ies") + "y" if plural.endswith("ies") else plural.removesuffix("s")
    singular = "" if subresource else one
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": []}


def _operation(resource: CatalogResource, answers: JSON, *, flat: bool = False) -> JSON:
    """Return an operation; `flat`: a parameter's type is beside its name, as in OpenAPI version 2."""
    kind: JSON = {"type": "string"}
    given = [part[1:-1] for part in resource.path.split("/") if part.startswith("{")]
    return {
        "operationId": re.sub(r"\W+", "_", f"{resource.verb}{resource.path}"),
        "description": f"{resource.kind}: see the documentation of kqueue.",
        "parameters": [
            {"name": name, "in": "path", "required": True, **(kind if flat else {"schema": kind})} for name in given
        ],
        "responses": answers,
    }
