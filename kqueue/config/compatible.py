"""The supported versions of the file, and the conversion of the older one."""

from __future__ import annotations

from typing import Any

from kqueue.errors import FieldError

GROUP = "config.kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")

_NEWER = (
    ("visibilityServer",),
    ("resources", "quotaCheckStrategy"),
    ("resources", "deviceClassMappings", "sources"),
    ("multiKueue", "clusterProfile"),
    ("multiKueue", "incrementalDispatcherConfig"),
    ("multiKueue", "bestDomainConfig"),
    ("metrics", "customLabels", "sourceKind"),
    ("metrics", "customLabels", "trackedValues"),
)
"""Fields that v1beta1 does not have."""

_IGNORED = (("queueVisibility",), ("integrations", "podOptions"))
"""Fields that only v1beta1 has and that have no effect."""


def from_v1beta1(data: dict[str, Any]) -> tuple[list[str], list[FieldError]]:
    """Turn a v1beta1 mapping into a v1beta2 one, in place.

    v1beta1's own defaults are set first; where they mean "off", the section becomes None, which no file can contain.

    Returns:
        Warnings about fields without effect, and fields that v1beta1 does not have.
    """
    problems = [
        FieldError(".".join(path), "is not a field of v1beta1; change apiVersion to config.kueue.x-k8s.io/v1beta2")
        for path in _NEWER
        if _take(data, path)
    ]
    notes = [f"{'.'.join(path)}: accepted, but has no effect" for path in _IGNORED if _take(data, path)]
    problems += _wait_for_pods_ready(data)
    problems += _fair_sharing(data)
    return notes, problems


def _take(value: Any, path: tuple[str, ...]) -> bool:
    """Remove the value at `path`, in every element of lists on the path; return whether there was one."""
    if isinstance(value, list):
        return sum(_take(item, path) for item in value) > 0  # every element, not only up to the first
    if not isinstance(value, dict) or path[0] not in value:
        return False
    if len(path) == 1:
        del value[path[0]]
        return True
    return _take(value[path[0]], path[1:])


def _switch(data: dict[str, Any], name: str) -> tuple[bool, list[FieldError]]:
    """Take `enable` out of a section: its value (False when missing), and the problem with it."""
    section = data.get(name)
    if not isinstance(section, dict):
        return section is not None, []  # left for validation: a section must be a mapping
    enable = section.pop("enable", False)
    if not isinstance(enable, bool):
        return False, [FieldError(f"{name}.enable", "must be true or false, without quotes", enable)]
    return enable, []


def _wait_for_pods_ready(data: dict[str, Any]) -> list[FieldError]:
    on, problems = _switch(data, "waitForPodsReady")
    if not on:
        data["waitForPodsReady"] = None
    elif isinstance(data["waitForPodsReady"], dict):
        data["waitForPodsReady"] = {"timeout": "5m", "blockAdmission": True} | data["waitForPodsReady"]
    return problems


def _fair_sharing(data: dict[str, Any]) -> list[FieldError]:
    on, problems = _switch(data, "fairSharing")
    if not on:
        data.pop("fairSharing", None)
    elif isinstance(data["fairSharing"], dict):
        both = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        if not data["fairSharing"].get("preemptionStrategies"):
            data["fairSharing"]["preemptionStrategies"] = both
    return problems
