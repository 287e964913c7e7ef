"""Ordered rules that map pods to LocalQueues, from flags or from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kqueue.documents import first_document
from kqueue.errors import ConfigError

_MATCH = {"priorityClassName", "labels"}
_RULE = {"match", "toLocalQueue", "skip"}
_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingRule:
    """Maps matching pods to a LocalQueue, or (`skip`) leaves them out."""

    priority_class: str = ""
    """Name of the priority class; empty matches all."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a pod must have, all of them."""
    queue: str = ""
    skip: bool = False

    def takes(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod matches."""
        own = (pod.get("metadata") or {}).get("labels") or {}
        named = (pod.get("spec") or {}).get("priorityClassName") or ""
        return self.priority_class in ("", named) and all(own.get(key) == value for key, value in self.labels.items())


def rule_for(pod: Mapping[str, Any], rules: Sequence[MappingRule]) -> MappingRule | None:
    """Return the first rule that matches the pod, or None."""
    return next((rule for rule in rules if rule.takes(pod)), None)


def rules_of_label(label: str, queues: Mapping[str, str]) -> list[MappingRule]:
    """Return one rule for each value of a label."""
    return [MappingRule(labels={label: value}, queue=queue) for value, queue in queues.items()]


def rules_in(path: Path) -> list[MappingRule]:
    """Read a YAML list of rules, each with `match` (priorityClassName, labels), and toLocalQueue or skip.

    Raises:
        ConfigError: the file cannot be read, or a rule has another form; names the rule by its number.
    """
    import yaml

    try:
        with path.open("rb") as file:
            text = file.read(_BYTES_MAX + 1)
        if len(text) > _BYTES_MAX:
            raise ConfigError(f"--queuemapping-file {path}: is longer than {_BYTES_MAX} bytes")
        found = first_document(text)
    except (OSError, ValueError, yaml.YAMLError) as e:
        raise ConfigError(f"--queuemapping-file {path}: {' '.join(str(e).split())}") from e
    if not isinstance(found, list) or not found:
        raise ConfigError(f"--queuemapping-file {path}: must be a list of rules, each with toLocalQueue or skip")
    return [_rule(each, f"--queuemapping-file {path}: rule {number}") for number, each in enumerate(found, 1)]


def _rule(written: object, where: str) -> MappingRule:
    rule = _mapping(written, where, _RULE)
    match = _mapping(rule.get("match") or {}, f"{where}: match", _MATCH)
    labels = match.get("labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(x, str) for pair in labels.items() for x in pair):
        raise ConfigError(f"{where}: match.labels: must map text to text; put values such as true or 1 into quotes")
    queue, skip, named = rule.get("toLocalQueue") or "", rule.get("skip") or False, match.get("priorityClassName") or ""
    if not isinstance(queue, str) or not isinstance(named, str):
        raise ConfigError(f"{where}: toLocalQueue and priorityClassName must be text")
    if not isinstance(skip, bool) or bool(queue) == skip:
        raise ConfigError(f"{where}: needs either toLocalQueue with a name, or skip: true")
    return MappingRule(priority_class=named, labels=labels, queue=queue, skip=skip)


def _mapping(value: object, where: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a mapping with {', '.join(sorted(known))}")
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise ConfigError(f"{where}: unknown field {unknown[0]}; known are {', '.join(sorted(known))}")
    return value
