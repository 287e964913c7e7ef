"""Find objects that name a queue and whose kind is not queued: they start without quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kqueue.config.policy import Integrations
from kqueue.jobs.ancestry import OwnerKind, owner_kinds
from kqueue.jobs.kind import GroupVersionKind
from kqueue.kinds import framework_of, implies_pods

JSON = Mapping[str, Any]
_ENDED = ("Succeeded", "Failed")


def kinds_not_queued(integrations: Integrations) -> list[OwnerKind]:
    """Return the known kinds that can name a queue, and that are not queued with these integrations."""
    managed = set(integrations.frameworks)
    if implies_pods(managed):
        managed |= {"pod"}
    others = {(kind.group, kind.kind) for kind in integrations.declared_kinds}
    others |= {_group_kind(text) for text in integrations.external_frameworks}
    return [
        owner
        for key, owner in owner_kinds(managed).items()
        if framework_of(*key) is not None and not owner.queued and key not in others
    ]


def names_of_loose(found: Iterable[JSON]) -> list[str]:
    """Return `namespace/name` of objects that name a queue and have no controller, without ended pods."""
    return [
        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        for obj in found
        if (obj.get("status") or {}).get("phase") not in _ENDED
        and not any(reference.get("controller") for reference in obj["metadata"].get("ownerReferences") or ())
    ]


def remedy(gvk: GroupVersionKind) -> str:
    """Return the setting that enables a kind of `kinds_not_queued`."""
    framework = framework_of(gvk.group, gvk.kind)
    return f"add {framework} to configuration.integrations.frameworks of the chart's values"


def _group_kind(text: str) -> tuple[str, str]:
    """Return `Kind.version.group` as (group, kind)."""
    kind, _, rest = text.partition(".")
    return rest.partition(".")[2], kind
