"""The registered webhooks of kqueue, and the kinds that they review."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kqueue.manager.registration import CONFIGURATIONS
from kqueue.runtime.client import Client
from webhooks.configuration import MUTATING_NAME, VALIDATING_NAME, is_ours

JSON = dict[str, Any]


async def registered(client: Client) -> tuple[list[JSON], list[str]]:
    """Return kqueue's registered webhooks, and the names of missing configurations.

    Raises:
        ForbiddenError: the user may not list webhook configurations.
    """
    hooks: list[JSON] = []
    missing = []
    for resource, name in zip(CONFIGURATIONS.values(), (MUTATING_NAME, VALIDATING_NAME), strict=True):
        found = [
            obj
            for obj in await client.list_json(resource)
            if obj["metadata"]["name"] == name or is_ours(obj["metadata"])
        ]
        hooks += [hook for obj in found for hook in obj.get("webhooks") or ()]
        if not found:
            missing.append(f"{resource.kind} {name}")
    return hooks, missing


def has_rule(hooks: Sequence[JSON], group: str, resource: str) -> bool:
    """Whether one of these webhooks reviews objects of a kind."""
    rules = (rule for hook in hooks for rule in hook.get("rules") or ())
    return any(group in rule.get("apiGroups", ()) and resource in rule.get("resources", ()) for rule in rules)
