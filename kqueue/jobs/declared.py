"""The adapter of a job kind that a user declared: it reads the paths that the configuration file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.api.bounds import INT32_MAX
from kqueue.config.declared import DeclaredKind, DeclaredPodSet, Sign
from kqueue.config.object_path import ObjectPath, look, put
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import pod_set_groups, rules, several, topology_request
from kqueue.jobs.fields import JSON, condition_status, mapping, text
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext, PodSetInfo, Refused, StopStep
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.jobs.pod_set_groups import GroupMember
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import as_pod_set


@dataclass(frozen=True, slots=True)
class _Part:
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


class Declared:
    """The adapter of one declared kind."""

    defaults_on_update = False

    def __init__(self, declared: DeclaredKind) -> None:
        self._declared = declared
        self.framework = declared.framework
        self.gvk = GroupVersionKind(declared.group, declared.version, declared.kind)
        self.resource = declared.plural
        self.own_controller = ""

    def is_suspended(self, job: JSON) -> bool:
        """Whether the declared flag is true."""
        return self._declared.suspend.at(job) is True

    @property
    def held_by(self) -> str:
        """The path of the declared flag."""
        return ".".join(self._declared.suspend.inner)

    def holds_back(self, job: JSON) -> bool:
        """Whether the declared flag is true."""
        return self.is_suspended(job)

    def suspend(self, job: JSON) -> Patch:
        """Return a patch of only the declared flag."""
        return {} if self.is_suspended(job) else self._suspending(suspend=True)

    def _suspending(self, *, suspend: bool) -> Patch:
        return dict(put({}, self._declared.suspend.inner, suspend))

    def active(self, job: JSON) -> bool:
        """Whether the declared number is not 0; False if no number is declared."""
        return self._declared.active is not None and _sum(job, self._declared.active) > 0

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the declared labels."""
        return {label: _text(path.at(job)) for label, path in self._declared.pod_labels.items()}

    def managed_by(self, job: JSON) -> str:
        """Return the kind's own controller: no other controller can be named."""
        return self.own_controller

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return one pod set per declared template, or per entry of the list or map with the templates."""
        parts = list(self._parts(job))
        mistakes = [*_shape_problems(parts), *topology_request.job_problems(job, switches)]
        for part in parts:
            mistakes += topology_request.problems(part.template, job, path=part.path, count=None, switches=switches)
        if mistakes:
            namespace, name = text(job, "metadata", "namespace"), text(job, "metadata", "name")
            raise InvalidObjectError(f"{self.gvk.kind} {namespace}/{name}", mistakes)
        return tuple(_pod_set(part, job, switches) for part in parts)

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return the patch that unsuspends the object, with each info merged into its template."""
        parts = list(self._parts(job))
        templates = several.started(self.gvk.kind, _placed(parts), infos)
        if isinstance(templates, Refused):
            return templates
        return merge_patch(job, self._with(job, parts, templates, suspend=False))

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return one step that suspends and restores; templates stay unchanged if there are not as many `infos` as pod
        sets.
        """
        parts = list(self._parts(job))
        templates = several.stopped(_placed(parts), infos)
        patch = merge_patch(job, self._with(job, parts, templates, suspend=True))
        return (StopStep(patch=patch, suspends=not self.is_suspended(job)),) if patch else ()

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
        return _sum(job, ready.count) >= sum(part.count for part in self._parts(job))

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return nothing: quota is released at the end only."""
        return {}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the labels of a default queue and class, and the suspension of managed objects."""
        if mapping(job, "metadata").get("deletionTimestamp"):
            return {}
        new = apply_merge_patch(job, rules.default_labels(job, around))
        if rules.managed(new, around):
            new = apply_merge_patch(new, self._suspending(suspend=True))
        return merge_patch(job, new)

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules, whether a Workload can be made, and the topology request of each template."""
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        parts = list(self._parts(new))
        found = [*rules.create_problems(new, around, elastic=False)]
        if old is not None:
            suspended = self.is_suspended(new)
            found += rules.update_problems(
                new, old, around, new_suspended=suspended, old_suspended=self.is_suspended(old)
            )
        if rules.managed(new, around):
            found += _shape_problems(parts)
        members = [GroupMember(part.path, part.template, part.count) for part in parts]
        return [*found, *pod_set_groups.topology_problems(members, new, around.switches, counted=old is None)]

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about topology annotations without effect."""
        if not around.switches.topology:
            return []
        found = [w for p in self._parts(new) for w in topology_request.warnings(p.template, new, path=p.path)]
        return list(dict.fromkeys(found))

    def _parts(self, job: JSON) -> Iterator[_Part]:
        for declared in self._declared.pod_sets:
            for key, entry in declared.template.entries(job):
                yield _Part(
                    declared,
                    key,
                    _name(declared, key, entry),
                    mapping(declared.template.at(entry)),
                    declared.replicas.at(entry) if declared.replicas is not None else None,
                )

    def _with(self, job: JSON, parts: Sequence[_Part], templates: Sequence[JSON], *, suspend: bool) -> JSON:
        new: JSON = put(job, self._declared.suspend.inner, suspend)
        for part, template in zip(parts, templates, strict=True):
            if template == part.template:
                continue
            path = part.declared.template
            if path.outer is None:
                new = put(new, path.inner, template)
            else:
                entries = _replaced(look(new, path.outer), part.key, path.inner, template)
                new = put(new, path.outer, entries)
        return new


def _placed(parts: Sequence[_Part]) -> list[several.Placed]:
    return [(part.path, part.template) for part in parts]


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


def _pod_set(part: _Part, job: JSON, switches: JobFeatures) -> JSON:
    pod_set: JSON = {"name": part.name, "count": part.count, "template": as_pod_set(part.template)}
    index = topology_request.IndexLabels(pod=part.declared.pod_index_label)
    request = topology_request.topology_request(part.template, job, index=index, switches=switches)
    if request is not None:
        pod_set["topologyRequest"] = request
    return pod_set


def _shape_problems(parts: Sequence[_Part]) -> Iterator[FieldError]:
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
