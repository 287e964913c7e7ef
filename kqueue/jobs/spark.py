"""The adapter of SparkApplication (sparkoperator.k8s.io/v1beta2): pod sets of the driver and of its executors.

The object has no pod templates of Kubernetes that say all: the operator and Spark make the pods from a template, from
fields of the driver and the executor, and from Spark's properties.  Labels, annotations, node selectors and
tolerations of an admission are written into the fields, gates into the template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kqueue.api import kind_names
from kqueue.errors import FieldError
from kqueue.jobs import rules, several
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects, strings, text
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext, PodSetInfo, Refused
from kqueue.jobs.spark_resources import (
    DRIVER,
    EXECUTOR,
    Settings,
    UnreadableSettingError,
    allocates_dynamically,
    executors,
)
from kqueue.jobs.template import info_of, reserved_names
from kqueue.jobs.templated import TemplatedJob, TemplatePart
from kqueue.kube import names as kube_names

_ROLES = (DRIVER, EXECUTOR)
_CONTAINERS = {
    DRIVER: ("spark-kubernetes-driver",),
    EXECUTOR: ("spark-kubernetes-executor", "executor"),
}
"""Names of Spark's container in a template, the one of a new container first.  Source: the operator's webhook."""
_MARK = kind_names.SPARK_START_ANNOTATION
_MOVED = "nodeSelector"
_RESTING = frozenset({"", "SUSPENDED", "COMPLETED", "FAILED", "SUBMISSION_FAILED"})
"""States without pods; the operator deletes pods before it writes them."""


class SparkApplication(TemplatedJob):
    """The adapter of SparkApplication; it has no state."""

    framework = "sparkoperator.k8s.io/sparkapplication"
    gvk = GroupVersionKind("sparkoperator.k8s.io", "v1beta2", "SparkApplication")
    resource = "sparkapplications"
    own_controller = ""

    def active(self, job: JSON) -> bool:
        """Whether the operator may have pods of the application, or is about to make or delete them."""
        return _state(job) not in _RESTING

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the label with the application's name, which the operator gives to the driver and the executors."""
        return {kube_names.SPARK_APP_NAME_LABEL: text(job, "metadata", "name")}

    def managed_by(self, job: JSON) -> str:
        """Return the kind's own controller: no other controller can be named."""
        return self.own_controller

    def parts(self, job: JSON) -> list[TemplatePart]:
        """Return the driver and the executors, with templates as the operator and Spark make their pods."""
        spec = mapping(job, "spec")
        counts = {DRIVER: 1, EXECUTOR: _executors(spec)}
        return [
            TemplatePart(
                name=role,
                path=f"spec.{role}",
                template=_template(spec, role),
                count=counts[role],
                count_path="spec.executor.instances",
            )
            for role in _ROLES
        ]

    def started(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON | Refused:
        """Return the application with each info in the fields of its role.

        A node selector of the whole application moves into both roles, which may get different ones.
        """
        templates = several.started(self.gvk.kind, self.placed(job), infos)
        if isinstance(templates, Refused):
            return templates
        spec, marks = dict(mapping(job, "spec")), []
        if strings(spec, "nodeSelector") and not any(mapping(spec, role).get("nodeSelector") for role in _ROLES):
            moved = spec.pop("nodeSelector")
            spec |= {role: {**mapping(spec, role), "nodeSelector": moved} for role in _ROLES}
            marks.append(_MOVED)
        kept = [
            f"spec.{role}: {name} is reserved for kqueue; remove it from the template and sparkConf"
            for role, info in zip(_ROLES, infos, strict=True)
            for name in reserved_names(_outside(spec, role), info)
        ]
        if kept:
            return Refused(tuple(kept))
        for role, template in zip(_ROLES, templates, strict=True):
            section = _section(spec, role, template)
            if "template" in section and "template" not in mapping(spec, role):
                marks.append(role)
            spec[role] = section
        return _marked({**job, "spec": spec}, marks)

    def restored(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON:
        """Return the application as its user wrote it; unchanged if there are not two infos."""
        if len(infos) != len(_ROLES):
            return job
        templates = several.stopped(self.placed(job), infos)
        spec = dict(mapping(job, "spec"))
        marks = annotations_of(job).get(_MARK, "").split(",")
        for role, template in zip(_ROLES, templates, strict=True):
            section = _section(spec, role, template)
            if role in marks and _pruned(section.get("template")) == _skeleton(role):
                del section["template"]
            spec[role] = section
        if infos[1].count is not None and _executors(spec) != infos[1].count:
            spec[EXECUTOR] = {**spec[EXECUTOR], "instances": infos[1].count}
        driver, executor = (mapping(spec, role).get("nodeSelector") for role in _ROLES)
        if _MOVED in marks and driver == executor:
            spec |= {role: {k: v for k, v in spec[role].items() if k != "nodeSelector"} for role in _ROLES}
            spec["nodeSelector"] = driver
        return _marked({**job, "spec": spec}, ())

    def finished(self, job: JSON) -> Finished | None:
        """Return the result by the state; a failed submission that is tried again has not ended."""
        state, message = _state(job), text(job, "status", "applicationState", "errorMessage")
        ends = state == "FAILED" or (state == "SUBMISSION_FAILED" and not _resubmits(job))
        if state == "COMPLETED" or ends:
            return Finished(message, success=state == "COMPLETED")
        return None

    def pods_ready(self, job: JSON) -> bool:
        """Whether the application runs, and as many executors as it requests run or have ended well."""
        states = mapping(job, "status", "executorState").values()
        ready = sum(state in ("RUNNING", "COMPLETED") for state in states)
        return _state(job) == "RUNNING" and ready >= _executors(mapping(job, "spec"))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the rules of all kinds; those of updates only for applications that are or were queued.

        An application that has ended stays as it is: the operator would run it again.
        """
        if old is None:
            return super().problems(new, old, around)
        left = around.switches.leaving_validated and bool(rules.queue_name(old))
        if not (rules.queue_name(new) or around.manage_without_queue or left):
            return []
        found = super().problems(new, old, around)
        if rules.managed(old, around) and self.finished(old) is not None and _rest(new) != _rest(old):
            found.append(FieldError("spec", "cannot change after the end, which would run it again; create a new one"))
        return found

    def shape_problems(self, job: JSON) -> Iterator[FieldError]:
        """Yield settings with which the pods cannot be counted or held back."""
        spec = mapping(job, "spec")
        if text(spec, "mode") not in ("", "cluster"):
            yield FieldError("spec.mode", "must be cluster: kqueue counts the driver's pod", text(spec, "mode"))
        if path := allocates_dynamically(spec):
            yield FieldError(path, "kqueue cannot count executors whose number changes; switch it off", True)
        readings: list[Callable[[], object]] = [Settings(spec, role).resources for role in _ROLES]
        readings.append(partial(executors, spec))
        for reading in readings:
            try:
                reading()
            except UnreadableSettingError as e:
                yield e.problem


def _state(job: Mapping[str, Any]) -> str:
    return text(job, "status", "applicationState", "state")


def _resubmits(job: Mapping[str, Any]) -> bool:
    return text(job, "spec", "restartPolicy", "type") not in ("", "Never")


def _rest(job: Mapping[str, Any]) -> JSON:
    """Return what the operator runs."""
    return {key: value for key, value in mapping(job, "spec").items() if key != "suspend"}


def _executors(spec: Mapping[str, Any]) -> int:
    """Return the number of executors; 0 if it cannot be read, which is a problem of the shape."""
    try:
        return executors(spec)
    except UnreadableSettingError:
        return 0


def _properties(spec: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return Spark's properties below a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in strings(spec, "sparkConf").items() if k.startswith(prefix)}


def _outside(spec: Mapping[str, Any], role: str) -> JSON:
    """Return the template of a role without the four fields of the role that a start changes."""
    template, prefix = mapping(spec, role, "template"), f"spark.kubernetes.{role}"
    body = dict(mapping(template, "spec"))
    selector = {
        **strings(body, "nodeSelector"),
        **_properties(spec, "spark.kubernetes.node.selector."),
        **strings(spec, "nodeSelector"),
        **_properties(spec, f"{prefix}.node.selector."),
    }
    metadata = {
        "labels": {**labels_of(template), **_properties(spec, f"{prefix}.label.")},
        "annotations": {**annotations_of(template), **_properties(spec, f"{prefix}.annotation.")},
    }
    body.pop("schedulingGates", None)
    return {"metadata": metadata, "spec": {**body, **({"nodeSelector": selector} if selector else {})}}


def _template(spec: Mapping[str, Any], role: str) -> JSON:
    """Return the pod template of a role as the operator and Spark make its pods."""
    section, outside = mapping(spec, role), _outside(spec, role)
    body = dict(outside["spec"])
    body["containers"] = _containers(spec, role)
    started_first = objects(section, "initContainers")
    if started_first:
        body["initContainers"] = _with_new(objects(body, "initContainers"), started_first)
    selector = {**strings(body, "nodeSelector"), **strings(section, "nodeSelector")}
    tolerations = _union(objects(body, "tolerations"), objects(section, "tolerations"))
    gates = objects(section, "template", "spec", "schedulingGates")
    fields = {"nodeSelector": selector, "tolerations": tolerations, "schedulingGates": gates}
    body |= {key: value for key, value in fields.items() if value}
    body |= {key: section[key] for key in ("affinity", "priorityClassName") if section.get(key)}
    metadata = {key: {**outside["metadata"][key], **strings(section, key)} for key in ("labels", "annotations")}
    return {"metadata": {key: value for key, value in metadata.items() if value}, "spec": body}


def _containers(spec: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    """Return the containers of a role: Spark's with its resources, those of the template, and sidecars."""
    found = [*objects(spec, role, "template", "spec", "containers")]
    known = _CONTAINERS[role]
    place = next((number for number, one in enumerate(found) if text(one, "name") in known), 0)
    if not found:
        found = [{"name": known[0]}]
    try:
        computed = Settings(spec, role).resources()
    except UnreadableSettingError:
        computed = {}
    own = mapping(found[place], "resources")
    resources = {key: {**mapping(own, key), **mapping(computed, key)} for key in ("requests", "limits")}
    found[place] = {**found[place], "resources": {**own, **resources}}
    return _with_new(found, objects(spec, role, "sidecars"))


def _with_new(found: Sequence[Mapping[str, Any]], more: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return containers with those of `more` that are new by name and image."""
    seen = {(text(one, "name"), text(one, "image")) for one in found}
    return [*found, *(one for one in more if (text(one, "name"), text(one, "image")) not in seen)]


def _section(spec: Mapping[str, Any], role: str, target: Mapping[str, Any]) -> JSON:
    """Return the fields of a role whose pods then have the labels, annotations, node selector, tolerations and gates of
    the target.

    An entry stays in a field if it stands there; a new one is added if it does not stand outside the fields.
    """
    section, outside = mapping(spec, role), info_of(_outside(spec, role), name=role)
    wanted = info_of(target, name=role)
    fields: JSON = {
        "labels": _entries(strings(section, "labels"), outside.labels, wanted.labels),
        "annotations": _entries(strings(section, "annotations"), outside.annotations, wanted.annotations),
        "nodeSelector": _entries(strings(section, "nodeSelector"), outside.node_selector, wanted.node_selector),
        "tolerations": [
            *(one for one in objects(section, "tolerations") if one in wanted.tolerations),
            *(
                one
                for one in wanted.tolerations
                if one not in objects(section, "tolerations") and one not in outside.tolerations
            ),
        ],
    }
    found = {key: value for key, value in section.items() if key not in fields}
    found |= {key: value for key, value in fields.items() if value or section.get(key) == value}
    gates = [{"name": gate} for gate in wanted.scheduling_gates]
    if gates or objects(section, "template", "spec", "schedulingGates"):
        template = mapping(section, "template") or _skeleton(role)
        body = {key: value for key, value in mapping(template, "spec").items() if key != "schedulingGates"}
        found["template"] = {**template, "spec": {**body, **({"schedulingGates": gates} if gates else {})}}
    return found


def _entries(own: Mapping[str, str], outside: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if own.get(key) == value or outside.get(key) != value}


def _union(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    found += (one for one in (*first, *second) if one not in found)
    return found


def _skeleton(role: str) -> JSON:
    """Return the smallest template: the operator expects Spark's container in it."""
    return {"spec": {"containers": [{"name": _CONTAINERS[role][0]}]}}


def _pruned(value: Any) -> Any:
    """Return a template without empty parts, which the API server and the operator may have added."""
    if not isinstance(value, Mapping):
        return value
    parts = {key: _pruned(item) for key, item in value.items()}
    return {key: item for key, item in parts.items() if item not in (None, {}, [], "")}


def _marked(job: JSON, marks: Sequence[str]) -> JSON:
    """Return the application with the annotation that says what its stop reverts; without marks it has none."""
    annotations = mapping(job, "metadata", "annotations")
    if not marks and _MARK not in annotations:
        return job
    kept = {key: value for key, value in annotations.items() if key != _MARK}
    kept |= {_MARK: ",".join(marks)} if marks else {}
    return {**job, "metadata": {**mapping(job, "metadata"), "annotations": kept}}
