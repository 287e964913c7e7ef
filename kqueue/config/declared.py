"""Section `integrations.declaredKinds`: job kinds that users declare by the paths of fields in their objects.

An extension of kqueue: files for Kueue do not have it.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from kqueue.config import names
from kqueue.config.object_path import ObjectPath, Path
from kqueue.config.section import Section, refuse_any
from kqueue.errors import FieldError

PODSETS_MAX = 18
"""Maximum number of pod sets of a Workload; a job whose `[*]` makes more of them is refused."""


class Sign(Section):
    """A test of an object: a condition that is True, or a field with one of the given values."""

    condition: str = ""
    """Type of a condition in `status.conditions` that is then True."""
    path: Path | None = None
    """Path of a value."""
    values: tuple[str, ...] = ()
    """Values at `path`; booleans as true and false, numbers in digits."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        refuse_any([*self._problems()])
        return self

    def _problems(self) -> list[FieldError]:
        if bool(self.condition) == (self.path is not None):
            return [FieldError("condition", "give either condition, or path with values")]
        if (self.path is not None) != bool(self.values):
            return [FieldError("values", "must be given together with path, at least one")]
        return _plain(self.path, "path")


class Readiness(Section):
    """Required.  When all pods are ready: a sign, or a number that has reached the number of pods."""

    sign: Sign | None = None
    count: Path | None = None
    """Number of ready or succeeded pods; with `[*]` all of them are added up."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.sign is None) == (self.count is None):
            refuse_any([FieldError("sign", "give exactly one of sign and count")])
        return self


class DeclaredPodSet(Section):
    """A pod template, or with `[*]` one per entry of a list or map."""

    template: Path
    """A pod template, with metadata and spec; below `spec`."""
    replicas: Path | None = None
    """Number of pods; None, or missing in an object: 1."""
    name: str = "main"
    """Name of the pod set.  With `[*]` and without `nameFrom`, entries of a map are named by their keys, those of a
    list by this and their index.
    """
    name_from: Path | None = None
    """Path of each entry's name; only with `[*]`."""
    pod_index_label: str = ""
    """Label by which the kind's controller numbers the pods from 0; empty: it does not."""

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems = _below_spec(self.template, "template")
        for field, path in (("replicas", self.replicas), ("nameFrom", self.name_from)):
            if path is not None and path.outer != self.template.outer:
                remedy = "must lead to the same entries as template, or have no [*] where that has none"
                problems.append(FieldError(field, remedy, str(path)))
        if self.name_from is not None and self.template.outer is None:
            problems.append(FieldError("nameFrom", "needs a template with [*]; use name"))
        if rule := names.dns_label(self.name):
            problems.append(FieldError("name", rule, self.name))
        if self.pod_index_label and (rule := names.label_key(self.pod_index_label)):
            problems.append(FieldError("podIndexLabel", rule, self.pod_index_label))
        refuse_any(problems)
        return self


class DeclaredKind(Section):
    """One declared kind.  Its controller must start no pods while `suspend` is true, and must end its pods when it
    becomes true."""

    api_version: str
    """`group/version`."""
    kind: str
    """The kind."""
    resource: str = ""
    """Plural name in URLs; empty in the file: the kind in lower case with an `s`."""
    suspend: Path = ObjectPath(("spec", "suspend"))
    """The flag that keeps the object from starting."""
    pod_sets: Annotated[tuple[DeclaredPodSet, ...], Field(min_length=1, max_length=PODSETS_MAX)]
    succeeded: Sign
    failed: Sign | None = None
    """None: the kind cannot fail."""
    message: Path | None = None
    """Path of the message about the object's end."""
    ready: Readiness
    active: Path | None = None
    """Number of pods that exist; with `[*]` all of them are added up.  None: kqueue counts the pods that it knows."""
    managed_by: Path | None = None
    """The field that names the controller of an object, so that another cluster can run it (MultiKueue): the kind's own
    controller must leave objects alone whose field has `kueue.x-k8s.io/multikueue`.  None: no object is sent away.
    """
    pod_labels: dict[str, Path] = Field(default_factory=dict)
    """Labels of the object's pods, with the path of their value in the object."""

    @property
    def group(self) -> str:
        """API group."""
        return self.api_version.partition("/")[0]

    @property
    def version(self) -> str:
        """API version."""
        return self.api_version.partition("/")[2]

    @property
    def plural(self) -> str:
        """Plural name in URLs."""
        return self.resource or f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        """`Kind.version.group`."""
        return f"{self.kind}.{self.version}.{self.group}"

    @property
    def framework(self) -> str:
        """Name in lists of frameworks, as in `example.com/train`."""
        return f"{self.group}/{self.kind.lower()}"

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems = [*self._name_problems(), *_below_spec(self.suspend, "suspend"), *_plain(self.suspend, "suspend")]
        problems += _plain(self.message, "message")
        if self.managed_by is not None:
            problems += [*_below_spec(self.managed_by, "managedBy"), *_plain(self.managed_by, "managedBy")]
        for label, path in self.pod_labels.items():
            at = f"podLabels[{label}]"
            if rule := names.label_key(label):
                problems.append(FieldError(at, rule, label))
            problems += _plain(path, at)
        fixed = [pod_set.name for pod_set in self.pod_sets if pod_set.template.outer is None]
        for index, name in enumerate(fixed):
            if name in fixed[:index]:
                problems.append(FieldError(f"podSets[{index}].name", "must not repeat that of another pod set", name))
        refuse_any(problems)
        return self

    def _name_problems(self) -> list[FieldError]:
        problems = []
        if not self.version or names.dns_subdomain(self.group) or names.dns_label(self.version):
            problems.append(FieldError("apiVersion", "must be group/version, as in example.com/v1", self.api_version))
        if not self.kind.isalnum() or not self.kind[0].isupper() or not self.kind.isascii():
            problems.append(FieldError("kind", "must be a kind in letters and digits, as in Train", self.kind))
        elif rule := names.dns_label(self.plural):
            problems.append(FieldError("resource", rule, self.plural))
        return problems


def _below_spec(path: ObjectPath, field: str) -> list[FieldError]:
    below = path.root == "spec" and len((path.outer or ()) + path.inner) > 1
    return [] if below else [FieldError(field, "must lead below spec, as in spec.suspend", str(path))]


def _plain(path: ObjectPath | None, field: str) -> list[FieldError]:
    return [FieldError(field, "must not have [*]", str(path))] if path is not None and path.outer is not None else []
