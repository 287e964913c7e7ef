"""The fields of `metadata` that the server writes, and validation of the others."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from random import Random

from kqueue.sandbox import failure
from kqueue.sandbox.api import Object
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.registry import ServedKind

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
LONGEST_GENERATED_BASE = 63 - SUFFIX_LENGTH
LONGEST_ANNOTATIONS = 256 * 1024
SERVER_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PATH_SEGMENT_FORBIDDEN = re.compile(r"[/%]")

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def timestamp(moment: datetime) -> str:
    """Return RFC 3339 with seconds, as Kubernetes writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid(chance: Random) -> str:
    """Return a new version 4 UUID."""
    digits = f"{chance.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def generated_name(base: str, chance: Random) -> str:
    """Return `base` with five random letters and digits, without vowels."""
    return base[:LONGEST_GENERATED_BASE] + "".join(chance.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))


def settle_kind(kind: ServedKind, obj: Object) -> None:
    """Fill apiVersion and kind.  Raises InvalidError if the object has another kind."""
    for key, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        found = obj.get(key) or wanted
        if found != wanted:
            raise failure.bad_request(
                f"the {key} of the provided object ({found}) does not match the one of the request ({wanted})"
            )
        obj[key] = wanted
    metadata = obj.get("metadata")
    if metadata is None:
        obj["metadata"] = {}
    elif not isinstance(metadata, dict):
        raise failure.bad_request("metadata must be an object")


def settle_name(metadata: Object, name: str) -> None:
    """Fill the name of the request.  Raises InvalidError when the object has another."""
    own = metadata.get("name") or name
    if own != name:
        raise failure.bad_request(f"the name of the object ({own}) does not match the name on the URL ({name})")
    metadata["name"] = name


def settle_namespace(kind: ServedKind, metadata: Object, namespace: str | None) -> str:
    """Set the namespace in `metadata` and return it; "" for cluster-wide kinds.  Raises InvalidError."""
    if not kind.namespaced:
        if metadata.pop("namespace", None) and namespace is None:
            raise failure.bad_request("namespace is not allowed on this type")
        return ""
    own = metadata.get("namespace") or namespace
    if not own:
        raise failure.bad_request("an empty namespace may not be set during creation")
    if namespace is not None and own != namespace:
        raise failure.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = own
    return str(own)


def begin(kind: ServedKind, metadata: Object, *, now: str, chance: Random) -> None:
    """Turn a client's metadata into a new object's: drop fields of the server, set uid, creation time, generation."""
    if metadata.get("resourceVersion"):
        raise failure.unforeseen("resourceVersion should not be set on objects to be created")
    for key in (*SERVER_FIELDS, "resourceVersion", "generation", "managedFields"):
        metadata.pop(key, None)
    metadata["uid"] = new_uid(chance)
    metadata["creationTimestamp"] = now
    if kind.generation:
        metadata["generation"] = 1


def carry_over(new: Object, old: Object) -> None:
    """Copy fields that only the server writes from `old` to `new`, and names that `new` leaves out."""
    for key in (*SERVER_FIELDS, "generation"):
        if key in ("uid", "creationTimestamp") and new.get(key):
            continue  # checked, not silently replaced
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)
    for key in ("name", "namespace", "generateName"):
        if key in old and not new.get(key):
            new[key] = old[key]


def is_subdomain(text: str) -> bool:
    """Whether `text` can name most objects."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether `text` can name a namespace or a pod's host."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def name_problem(kind: ServedKind, name: str) -> str | None:
    """Return the mistake in a name, or None."""
    if kind.kind in ("Namespace", "Service"):
        return None if is_label(name) else LABEL_RULE
    if kind.resource.group == "rbac.authorization.k8s.io":
        bad = name in (".", "..") or _PATH_SEGMENT_FORBIDDEN.search(name)
        return "may not be '.' or '..' or contain '/' or '%'" if bad else None
    return None if is_subdomain(name) else SUBDOMAIN_RULE


def qualified_name_problem(key: str) -> str | None:
    """Return the mistake in a label's or annotation's key, or None."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return "prefix part " + SUBDOMAIN_RULE
    if not name or len(name) > 63 or not _QUALIFIED.fullmatch(name):
        return QUALIFIED_RULE + (": must be no more than 63 characters" if len(name) > 63 else "")
    return None


def label_value_problem(value: object) -> str | None:
    """Return the mistake in a label's value, or None."""
    if not isinstance(value, str):
        return "must be a string"
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return None if not value or _QUALIFIED.fullmatch(value) else VALUE_RULE


def label_causes(labels: object, path: str) -> list[Cause]:
    """Return all mistakes in a map of labels."""
    if labels is None:
        return []
    if not isinstance(labels, dict):
        return [failure.wrong_type(path, labels, "must be a map of strings")]
    causes = []
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            causes.append(failure.invalid(path, key, problem))
        if problem := label_value_problem(value):
            causes.append(failure.invalid(path, value, problem))
    return causes


def annotation_causes(annotations: object, path: str) -> list[Cause]:
    """Return all mistakes in a map of annotations."""
    if annotations is None:
        return []
    if not isinstance(annotations, dict):
        return [failure.wrong_type(path, annotations, "must be a map of strings")]
    causes = []
    size = 0
    for key, value in annotations.items():
        if problem := qualified_name_problem(key.lower()):
            causes.append(failure.invalid(path, key, problem))
        if not isinstance(value, str):
            causes.append(failure.wrong_type(f"{path}[{key}]", value, "must be a string"))
        else:
            size += len(key) + len(value)
    if size > LONGEST_ANNOTATIONS:
        causes.append(Cause("FieldValueTooLong", path, f"Too long: may not be more than {LONGEST_ANNOTATIONS} bytes"))
    return causes


def causes(kind: ServedKind, metadata: Object) -> list[Cause]:
    """Return all mistakes in the metadata of an object before it is stored."""
    found = []
    name = metadata.get("name")
    if not name:
        found.append(failure.required("metadata.name", "name or generateName is required"))
    elif not isinstance(name, str):
        found.append(failure.wrong_type("metadata.name", name, "must be a string"))
    elif problem := name_problem(kind, name):
        found.append(failure.invalid("metadata.name", name, problem))
    if (namespace := metadata.get("namespace")) and not is_label(namespace):
        found.append(failure.invalid("metadata.namespace", namespace, LABEL_RULE))
    if labels := metadata.get("labels"):
        found += label_causes(labels, "metadata.labels")
    if annotations := metadata.get("annotations"):
        found += annotation_causes(annotations, "metadata.annotations")
    if owners := metadata.get("ownerReferences"):
        found += _owner_causes(owners)
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if not isinstance(finalizer, str) or qualified_name_problem(finalizer):
            found.append(failure.invalid("metadata.finalizers", finalizer, QUALIFIED_RULE))
        if kind.custom is None and "/" not in str(finalizer) and finalizer not in STANDARD_FINALIZERS:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(failure.invalid(f"metadata.finalizers[{index}]", finalizer, problem))
    return found


def _owner_causes(owners: list[Object]) -> list[Cause]:
    found = []
    controllers = 0
    for owner in owners:
        found += [
            failure.invalid(f"metadata.ownerReferences.{key}", owner.get(key, ""), f"{word}must not be empty")
            for key, word in (("apiVersion", "version "), ("kind", "kind "), ("name", ""), ("uid", ""))
            if not owner.get(key)
        ]
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        found.append(
            failure.invalid("metadata.ownerReferences", owners, "Only one reference can have Controller set to true")
        )
    return found


def update_causes(new: Object, old: Object) -> list[Cause]:
    """Return all mistakes in the change of metadata."""
    found = [
        failure.invalid(f"metadata.{key}", new.get(key), "field is immutable")
        for key in ("name", "namespace", "uid", "creationTimestamp")
        if new.get(key) != old.get(key)
    ]
    if old.get("deletionTimestamp"):
        added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            found.append(
                failure.forbidden_field(
                    "metadata.finalizers",
                    f"no new finalizers can be added if the object is being deleted, found new finalizers {added}",
                )
            )
    return found
