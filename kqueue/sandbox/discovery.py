"""Discovery documents: version, groups and kinds, in the per-group form and in the aggregated form."""

from __future__ import annotations

from typing import Any, Protocol

from kqueue.sandbox.api import Object
from kqueue.sandbox.registry import VERBS, KindRegistry, ServedKind
from kqueue.sandbox.reviews import REVIEWS

VERSION: Object = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3+kqueue-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "any/any",
}
STATUS_VERBS = ["get", "patch", "update"]
SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
"""Subresources whose bodies have another kind."""
CREATED_ONLY = ("binding", "eviction", "token")


def core_versions() -> Object:
    """Return `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


class Others(Protocol):
    """Groups of other servers behind this one."""

    def groups(self) -> dict[str, list[str]]:
        """Return groups with their versions."""
        ...

    def resources(self, group: str, version: str) -> Object | None:
        """Return an APIResourceList; None if the group and version are not served."""
        ...


def _groups(registry: KindRegistry, others: Others) -> dict[str, list[str]]:
    """Return all groups, groups of other servers last: clients use the first group that has a resource's name."""
    groups = dict(registry.groups())
    for group, version, _, _ in REVIEWS:
        groups.setdefault(group, [version])
    groups.pop("", None)
    return {**groups, **{name: versions for name, versions in others.groups().items() if name not in groups}}


def group_list(registry: KindRegistry, others: Others) -> Object:
    """Return `/apis`."""
    groups = [_group(*each) for each in _groups(registry, others).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: KindRegistry, name: str, others: Others) -> Object | None:
    """Return `/apis/G`; None for an unknown group."""
    versions = _groups(registry, others).get(name)
    return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> Object:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in by_maturity(versions)]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def by_maturity(versions: list[str]) -> list[str]:
    """Sort versions: stable ones first, then beta, then alpha; newer ones first."""

    def rank(version: str) -> tuple[int, list[int]]:
        stage = 2 if "alpha" in version else 1 if "beta" in version else 0
        digits = "".join(c if c.isdigit() else " " for c in version).split()
        return stage, [-int(each) for each in digits]

    return sorted(versions, key=rank)


def resource_list(registry: KindRegistry, group_name: str, version: str) -> Object | None:
    """Return `/apis/G/V` or `/api/v1`; None if the version is not served."""
    resources: list[Object] = []
    for kind in registry.served(group_name, version):
        resources += _resources(kind)
    resources += [
        {
            "name": plural,
            "singularName": "",
            "namespaced": plural == "localsubjectaccessreviews",
            "kind": kind,
            "verbs": ["create"],
        }
        for group_, version_, plural, kind in REVIEWS
        if (group_, version_) == (group_name, version)
    ]
    if not resources:
        return None
    api_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def _resources(kind: ServedKind) -> list[Object]:
    plural = kind.resource.plural
    main: Object = {
        "name": plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(VERBS),
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    return [main, *(_subresource(kind, name) for name in _subresources(kind))]


def _subresources(kind: ServedKind) -> list[str]:
    return [*(("status",) if kind.status else ()), *kind.subresources]


def _subresource(kind: ServedKind, name: str) -> Object:
    out: Object = {
        "name": f"{kind.resource.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": ["create"] if name in CREATED_ONLY else STATUS_VERBS if name in ("status", "scale") else ["get"],
    }
    if name in SUBRESOURCE_KINDS:
        out["group"], out["version"], out["kind"] = SUBRESOURCE_KINDS[name]
    return out


def aggregated(registry: KindRegistry, others: Others, *, core: bool) -> Object:
    """Return all kinds of the core group, or of all other groups, in one document."""
    groups = {"": ["v1"]} if core else _groups(registry, others)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
                "versions": [_aggregated_version(registry, others, name, version) for version in by_maturity(versions)],
            }
            for name, versions in groups.items()
        ],
    }


def _aggregated_version(registry: KindRegistry, others: Others, group_name: str, version: str) -> Object:
    listed = resource_list(registry, group_name, version) or others.resources(group_name, version)
    flat = (listed or {"resources": []})["resources"]
    found: dict[str, Object] = {}
    for each in flat:
        plural, _, sub = each["name"].partition("/")
        kind = {
            "group": each.get("group", group_name),
            "version": each.get("version", version),
            "kind": each["kind"],
        }
        if sub:
            found[plural].setdefault("subresources", []).append(
                {"subresource": sub, "responseKind": kind, "verbs": each["verbs"]}
            )
            continue
        entry: dict[str, Any] = {
            "resource": plural,
            "responseKind": kind,
            "scope": "Namespaced" if each["namespaced"] else "Cluster",
            "singularResource": each["singularName"],
            "verbs": each["verbs"],
        }
        entry |= {key: each[key] for key in ("shortNames", "categories") if key in each}
        found[plural] = entry
    return {"version": version, "resources": list(found.values()), "freshness": "Current"}
