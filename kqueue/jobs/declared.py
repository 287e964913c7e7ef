"""The adapter of a job kind that a user declared: it reads the paths that the configuration file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.api.bounds import INT32_MAX
from kqueue.config.declared import DeclaredKind, DeclaredPodSet, Sign
from kqueue.config.object_path import ObjectPath, look, put
from kqueue.errors import FieldError
from kqueue.jobs import several
from kqueue.jobs.fields import JSON, condition_status, mapping
from kqueue.jobs.kind import Finished, GroupVersionKind
from kqueue.jobs.templated import TemplatePart, TemplatesInPlace
from kqueue.jobs.topology_request import IndexLabels


@dataclass(frozen=True, slots=True)
class _Entry:
    """A pod set of an object, and its path."""

    declared: DeclaredPodSet
    key: str
    """Index or key of the entry; empty: there is only one."""
    name: str
    template: Mapping[str, Any]
    replicas: object

    @property
    def path(self) -> str:
        """The path of the template."""
        steps = self.declared.template
        if steps.outer is None:
            return str(steps)
        return ".".join([f"{'.'.join(steps.outer)}[{self.key}]", *steps.inner])

    @property
    def count(self) -> int:
        """The number of pods; 1 if the object does not have the number."""
        return self.replicas if isinstance(self.replicas, int) and not isinstance(self.replicas, bool) else 1


class Declared(TemplatesInPlace):
    """The adapter of one declared kind."""

    def __init__(self, declared: DeclaredKind) -> None:
        self._declared = declared
        self.framework = declared.framework
        self.gvk = GroupVersionKind(declared.group, declared.version, declared.kind)
        self.resource = declared.plural
        self.own_controller = ""
        self.flag = declared.suspend.inner
        self.managed_by_path = declared.managed_by.inner if declared.managed_by is not None else ()
        """The steps to the field that names the controller; empty: there is none."""

    def active(self, job: JSON) -> bool:
        """Whether the declared number is not 0; False if no number is declared."""
        return self._declared.active is not None and _sum(job, self._declared.active) > 0

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the declared labels."""
        return {label: _text(path.at(job)) for label, path in self._declared.pod_labels.items()}

    def managed_by(self, job: JSON) -> str:
        """Return the controller at the declared path; empty for the kind's own one."""
        return _text(look(job, self.managed_by_path)) if self.managed_by_path else self.own_controller

    def finished(self, job: JSON) -> Finished | None:
        """Return the result by the declared signs, success first; None while none is present."""
        declared = self._declared
        message = _text(declared.message.at(job)) if declared.message is not None else ""
        if _holds(declared.succeeded, job):
            return Finished(message, success=True)
        if declared.failed is not None and _holds(declared.failed, job):
            return Finished(message, success=False)
        return None

    def pods_ready(self, job: JSON) -> bool:
        """Whether the declared numbers show that all pods are ready."""
        ready = self._declared.ready
        if ready.sign is not None:
            return _holds(ready.sign, job)
        assert ready.count is not None
        return _sum(job, ready.count) >= sum(entry.count for entry in self._entries(job))

    def parts(self, job: JSON) -> list[TemplatePart]:
        """Return one part per declared template, or per entry of the list or map with the templates."""
        return [
            TemplatePart(
                name=e.name,
                path=e.path,
                template=e.template,
                count=e.count,
                index=IndexLabels(pod=e.declared.pod_index_label),
            )
            for e in self._entries(job)
        ]

    def shape_problems(self, job: JSON) -> Iterator[FieldError]:
        """Return wrong numbers and names of parts, and parts without a template."""
        return _shape_problems(list(self._entries(job)))

    def _entries(self, job: JSON) -> Iterator[_Entry]:
        for declared in self._declared.pod_sets:
            for key, entry in declared.template.entries(job):
                yield _Entry(
                    declared,
                    key,
                    _name(declared, key, entry),
                    mapping(declared.template.at(entry)),
                    declared.replicas.at(entry) if declared.replicas is not None else None,
                )

    def with_templates(self, job: JSON, templates: Sequence[JSON]) -> JSON:
        """Return the object with other templates at the declared paths."""
        new = job
        for entry, template in zip(self._entries(job), templates, strict=True):
            if template == entry.template:
                continue
            path = entry.declared.template
            if path.outer is None:
                new = put(new, path.inner, template)
            else:
                entries = _replaced(look(new, path.outer), entry.key, path.inner, template)
                new = put(new, path.outer, entries)
        return new


def _replaced(entries: Any, key: str, inner: tuple[str, ...], template: JSON) -> Any:
    """Return the list or map with one template replaced."""
    if isinstance(entries, Mapping):
        return {**entries, key: put(entries[key], inner, template)}
    number = int(key)
    return [*entries[:number], put(entries[number], inner, template), *entries[number + 1 :]]


def _name(declared: DeclaredPodSet, key: str, entry: object) -> str:
    if not key:
        return declared.name
    if declared.name_from is not None:
        return _text(declared.name_from.at(entry)).lower()
    return f"{declared.name}-{key}" if key.isdigit() else key.lower()


def _shape_problems(parts: Sequence[_Entry]) -> Iterator[FieldError]:
    if not 0 < len(parts) <= names.MAX_PODSETS:
        yield FieldError("spec", f"must hold 1 to {names.MAX_PODSETS} pod templates to be queued, has {len(parts)}")
    yield from several.name_problems((f"{part.path} (name)", part.name) for part in parts)
    for part in parts:
        if not mapping(part.template, "spec"):
            yield FieldError(part.path, "must be a pod template with a spec")
        if part.replicas is not None and part.replicas != part.count:
            yield FieldError(part.path, "needs a whole number of replicas", part.replicas)
        elif not 0 <= part.count <= INT32_MAX:
            yield FieldError(part.path, f"needs 0 to {INT32_MAX} replicas", part.count)


def _holds(sign: Sign, job: JSON) -> bool:
    if sign.path is None:
        return condition_status(job, sign.condition) == "True"
    return _text(sign.path.at(job)) in sign.values


def _sum(job: JSON, path: ObjectPath) -> int:
    found = (path.at(entry) for _, entry in path.entries(job))
    return sum(n for n in found if isinstance(n, int) and not isinstance(n, bool))


def _text(value: object) -> str:
    """Return the value as text in the form of the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""
