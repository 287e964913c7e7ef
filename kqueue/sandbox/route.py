"""Parsing of a request's path and query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from kqueue.sandbox import failure, selectors
from kqueue.sandbox.api import GroupVersionResource
from kqueue.sandbox.decoding import Validation
from kqueue.sandbox.objects import WriteOptions
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.selectors import LabelRequirements, Test

VALIDATIONS = ("Ignore", "Warn", "Strict")


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The resource part of a path: `/apis/batch/v1/namespaces/a/jobs/b/status`.

    `namespace` and `name` are "" when the path has none.
    """

    resource: GroupVersionResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> ResourcePath | None:
    """Parse a resource path; return None for other paths."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    return ResourcePath(
        GroupVersionResource(group, version, rest[0]),
        namespace,
        rest[1] if len(rest) > 1 else "",
        rest[2] if len(rest) > 2 else "",
    )


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether a boolean query parameter is true."""
    return query.get(name, "") in ("true", "1", "True")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a query parameter as a number from 0, None if missing.  Raises InvalidError (400)."""
    text = query.get(name)
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise failure.bad_request(f'{name}: "{text}" is not a whole number')
    return int(text)


@dataclass(frozen=True, slots=True)
class RequestSelection:
    """The objects of a kind that a list or watch selects."""

    namespace: str | None
    name: str
    labels: LabelRequirements
    fields: Test | None

    @property
    def is_all(self) -> bool:
        """Whether there are no selectors."""
        return not self.name and self.fields is None and not self.labels.requirements

    def selects(self, obj: dict[str, object]) -> bool:
        """Whether the selectors match an object in the requested version; the caller checks the namespace."""
        meta = cast("dict[str, object]", obj["metadata"])
        if self.name and meta["name"] != self.name:
            return False
        if not self.labels.selects(cast("dict[str, str] | None", meta.get("labels"))):
            return False
        return self.fields is None or self.fields(obj)


def selection(route: ResourcePath, kind: ServedKind, query: Mapping[str, str]) -> RequestSelection:
    """Return the selectors of a query.  Raises InvalidError (400)."""
    return RequestSelection(
        route.namespace or None if kind.namespaced else None,
        route.name,
        selectors.parse_labels(query.get("labelSelector", "")),
        selectors.parse_fields(query.get("fieldSelector", ""), kind),
    )


def write_options(query: Mapping[str, str], agent: str, user: str, kind: str = "CreateOptions") -> WriteOptions:
    """Return the options of a write; `kind` names them in errors.  Raises InvalidError (400 or 422)."""
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise failure.invalid_object("meta.k8s.io", kind, "", [failure.unsupported("dryRun", dry_run, ["All"])])
    validation = query.get("fieldValidation") or "Warn"
    if validation not in VALIDATIONS:
        problem = failure.unsupported("fieldValidation", validation, list(VALIDATIONS))
        raise failure.invalid_object("meta.k8s.io", kind, "", [problem])
    manager = query.get("fieldManager") or agent.partition("/")[0] or "unknown"
    if len(manager) > 128:
        raise failure.bad_request("fieldManager may not be longer than 128 characters")
    return WriteOptions(
        manager=manager,
        dry_run=dry_run == "All",
        force=flag(query, "force"),
        validation=cast("Validation", validation),
        user=user,
    )
