"""Common parts of all objects: metadata, owners, conditions, quantities.

Structs are frozen and untracked by the garbage collector: decoded JSON has no cycles.  Unknown fields are skipped,
absent lists are empty tuples, absent maps are empty; None means that the field is absent and that absence has a
meaning of its own, which the field's model in `kqueue.api` describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

Quantity = str | int
"""A Kubernetes quantity as given: `"500m"`, `"2Gi"`, 8.  `kqueue.core.quantity` reads it."""

ResourceList = Mapping[str, Quantity]
"""Resource name to quantity."""

Labels = Mapping[str, str]
"""Keys to values, of labels, annotations and node selectors."""


class Struct(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of all wire structs.  Subclasses repeat `frozen` (for the type checker) and `kw_only` (not inherited)."""


class OwnerReference(Struct, frozen=True, kw_only=True):
    """A reference to an owner of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(Struct, frozen=True, kw_only=True):
    """Name, identity, version, labels and lifetime of an object.  `namespace` is empty for cluster-scoped kinds."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Labels = msgspec.field(default_factory=dict)
    annotations: Labels = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class Condition(Struct, frozen=True, kw_only=True):
    """One aspect of an object's state.  Conditions of nodes, pods and jobs may lack reason, message and time."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int | None = None


class LabelSelectorRequirement(Struct, frozen=True, kw_only=True):
    """One rule about a label: `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, kw_only=True):
    """Labels that must match, all of them.  Without any rule it matches everything."""

    match_labels: Labels = msgspec.field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
